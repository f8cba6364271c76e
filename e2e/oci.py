"""OCI image archives of a folder, made without a registry, and started by runc.

``podman load``, ``ctr images import`` and kind take them. The same files give the same bytes. Format: github.com/opencontainers/image-spec (image-layout.md, manifest.md,
config.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_OCI = "application/vnd.oci.image."
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PIECE = 1 << 20


def archive(out: Path, root: Path, config: Mapping[str, Any], names: Sequence[str]) -> str:
    """Write the archive of an image of one layer, all that is below ``root``, owned by root and without times.

    ``config``: of the container, as the image specification has it (Entrypoint, Env, User, …). ``names``: each
    REPOSITORY:TAG. Returns the digest of the manifest."""
    with tempfile.TemporaryFile() as layer, tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as written:
        plain = _write_layer(root, layer)
        blobs = _Blobs(written)
        whole = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": dict(config),
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain}"]},
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": _OCI + "manifest.v1+json",
            "config": blobs.add(_json(whole), "config.v1+json"),
            "layers": [blobs.add(layer, "layer.v1.tar+gzip")],
        }
        manifests = []
        for name in names:
            said = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]}
            manifests.append(blobs.add(_json(manifest), "manifest.v1+json", annotations=said))
        index = {"schemaVersion": 2, "mediaType": _OCI + "index.v1+json", "manifests": manifests}
        _add(written, "index.json", _json(index))
        _add(written, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
    return str(manifests[0]["digest"])


def read(archive: Path, root: Path) -> dict[str, Any]:
    """Lay the image of an archive out below ``root``; the config of its container."""
    with tarfile.open(archive) as file:

        def blob(about: Mapping[str, Any]) -> IO[bytes]:
            found = file.extractfile(f"blobs/sha256/{about['digest'].removeprefix('sha256:')}")
            assert found is not None
            return found

        index = file.extractfile("index.json")
        assert index is not None
        manifest = json.load(blob(json.load(index)["manifests"][0]))
        for about in manifest["layers"]:
            with tarfile.open(fileobj=blob(about), mode="r:gz") as layer:
                layer.extractall(root, filter="tar")
        config: dict[str, Any] = json.load(blob(manifest["config"]))["config"]
        return config


def cannot_start() -> str:
    """Why no image can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "not root"
    return "" if shutil.which("runc") else "no runc on PATH (Debian: apt-get install runc)"


def start(archive: Path, words: Sequence[str], limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    """Run a command in the image of an archive by runc, as a hardened pod does: on a read-only root but for /tmp, as
    the image's user, without capabilities, in a network of its own that leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="tonnage-bundle-") as folder:
        bundle = Path(folder)
        (bundle / "rootfs").mkdir()
        config = read(archive, bundle / "rootfs")
        for point in ("proc", "dev", "sys"):
            (bundle / "rootfs" / point).mkdir(exist_ok=True)
        subprocess.run(["runc", "spec"], cwd=bundle, check=True)
        spec = json.loads((bundle / "config.json").read_text())
        user, _, group = config["User"].partition(":")
        process = spec["process"] | {
            "terminal": False,
            "user": {"uid": int(user), "gid": int(group)},
            "args": list(words),
            "env": config["Env"],
            "cwd": config["WorkingDir"],
            "capabilities": {},
        }
        process.pop("rlimits", None)
        spec |= {"process": process, "root": {"path": "rootfs", "readonly": True}}
        spec["mounts"].append({"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": ["mode=1777"]})
        # A cgroup of its own is no part of what is tried, and may not be had in a container.
        spec["mounts"] = [one for one in spec["mounts"] if one["type"] != "cgroup"]
        spec["linux"].pop("resources", None)
        (bundle / "config.json").write_text(json.dumps(spec))
        name = f"tonnage-{os.getpid()}-{bundle.name.rpartition('-')[2].replace('_', '-')}"
        state = ["runc", "--root", str(bundle / "state")]
        try:
            return subprocess.run(
                [*state, "run", "--bundle", str(bundle), name],
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        finally:
            subprocess.run([*state, "delete", "--force", name], capture_output=True, check=False)


class _Blobs:
    """What is in the archive under its own hash, each once."""

    def __init__(self, written: tarfile.TarFile) -> None:
        self._written = written
        self._known: set[str] = set()

    def add(self, data: bytes | IO[bytes], media_type: str, **more: Any) -> dict[str, Any]:
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        digest, size = _hashed(file)
        if digest not in self._known:
            self._known.add(digest)
            _add(self._written, f"blobs/sha256/{digest}", file, size)
        return {"mediaType": _OCI + media_type, "digest": f"sha256:{digest}", "size": size, **more}


def _write_layer(root: Path, out: IO[bytes]) -> str:
    """The files below ``root`` as a compressed tar; the hash of the tar itself."""
    with tempfile.TemporaryFile() as plain:
        with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(root.rglob("*")):
                info = tar.gettarinfo(path, str(path.relative_to(root)))
                info.uid = info.gid = info.mtime = 0
                info.uname = info.gname = ""
                if info.islnk():
                    info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
                if info.isreg():
                    with path.open("rb") as file:
                        tar.addfile(info, file)
                else:
                    tar.addfile(info)
        digest, _ = _hashed(plain)
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=out, mtime=0) as packed:
            shutil.copyfileobj(plain, packed, _PIECE)
    return digest


def _hashed(file: IO[bytes]) -> tuple[str, int]:
    """Hash and size; the file stands at its beginning afterwards."""
    file.seek(0)
    found, size = hashlib.sha256(), 0
    while piece := file.read(_PIECE):
        found.update(piece)
        size += len(piece)
    file.seek(0)
    return found.hexdigest(), size


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _add(tar: tarfile.TarFile, name: str, data: bytes | IO[bytes], size: int = 0) -> None:
    info = tarfile.TarInfo(name)
    info.mode = 0o644
    info.size = len(data) if isinstance(data, bytes) else size
    tar.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else data)
