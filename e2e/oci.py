"""OCI image archives of a folder, made without a registry, and started by runc.

``podman load``, ``ctr images import`` and kind take them. The same files give the same bytes. Format:
github.com/opencontainers/image-spec (image-layout.md, manifest.md, config.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_OCI = "application/vnd.oci.image."
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_PIECE = 1 << 20
START_S = 120.0
"""How long a command in an image may take."""


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
                layer.extractall(root, filter="fully_trusted")  # one that was made here
        config: dict[str, Any] = json.load(blob(manifest["config"]))["config"]
        return config


def cannot_start() -> str:
    """Why no image can be started here; empty when one can."""
    if os.geteuid() != 0:
        return "not root"
    return "" if shutil.which("runc") else "no runc on PATH (Debian: apt-get install runc)"


@contextmanager
def bundle(archive: Path) -> Iterator[Callable[[Sequence[str]], subprocess.CompletedProcess[str]]]:
    """The image of an archive, laid out; runs commands in it by runc, as a hardened pod does: on a read-only root but
    for /tmp, as the image's user, without capabilities, in a network of its own that leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="tonnage-bundle-") as folder:
        there = Path(folder)
        (there / "rootfs").mkdir()
        config = read(archive, there / "rootfs")
        for point in ("proc", "dev", "sys"):
            (there / "rootfs" / point).mkdir(exist_ok=True)
        subprocess.run(["runc", "spec"], cwd=there, check=True)
        spec = _hardened(json.loads((there / "config.json").read_text()), config)
        name = f"tonnage-{os.getpid()}-{secrets.token_hex(4)}"
        runc = ["runc", "--root", str(there / "state")]

        def run(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
            spec["process"]["args"] = list(words)
            (there / "config.json").write_text(json.dumps(spec))
            begin = [*runc, "run", "--bundle", str(there), name]
            try:
                return subprocess.run(
                    begin, capture_output=True, text=True, timeout=START_S, check=False, stdin=subprocess.DEVNULL
                )
            finally:
                subprocess.run([*runc, "delete", "--force", name], capture_output=True, check=False)

        yield run


def _hardened(spec: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """runc's own specification, as the image's config and a hardened pod have it."""
    user, _, group = config["User"].partition(":")
    process = spec["process"] | {
        "terminal": False,
        "user": {"uid": int(user), "gid": int(group)},
        "env": config["Env"],
        "cwd": config["WorkingDir"],
        "capabilities": {},
    }
    process.pop("rlimits", None)
    # A cgroup of its own is no part of what is tried, and may not be had inside a container.
    mounts = [one for one in spec["mounts"] if one["type"] != "cgroup"]
    mounts.append({"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": ["mode=1777"]})
    linux = {key: value for key, value in spec["linux"].items() if key != "resources"}
    root = {"path": "rootfs", "readonly": True}
    return spec | {"process": process, "root": root, "mounts": mounts, "linux": linux}


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
