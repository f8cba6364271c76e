"""An OCI image archive that holds one static program, made without a registry.

``ctr -n k8s.io images import FILE`` then knows every name. The same program gives the same bytes.
Format: github.com/opencontainers/image-spec (image-layout.md, manifest.md, config.md).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_OCI = "application/vnd.oci.image."
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
NOBODY = "65534:65534"


def write(out: Path, program: Path, names: Sequence[str]) -> None:
    """Write the archive; the program is the entry point and runs as nobody."""
    layer = _tar({program.name: (program.read_bytes(), 0o755)})
    blobs: dict[str, tuple[bytes, int]] = {}

    def blob(data: bytes, media_type: str, **more: Any) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = (data, 0o644)
        return {"mediaType": _OCI + media_type, "digest": f"sha256:{digest}", "size": len(data), **more}

    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "User": NOBODY},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _OCI + "manifest.v1+json",
        "config": blob(_json(config), "config.v1+json"),
        "layers": [blob(gzip.compress(layer, mtime=0), "layer.v1.tar+gzip")],
    }
    manifests = [
        blob(
            _json(manifest),
            "manifest.v1+json",
            annotations={
                "io.containerd.image.name": name,
                "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1],
            },
        )
        for name in names
    ]
    index = _json({"schemaVersion": 2, "mediaType": _OCI + "index.v1+json", "manifests": manifests})
    layout = _json({"imageLayoutVersion": "1.0.0"})
    out.write_bytes(_tar({"oci-layout": (layout, 0o644), "index.json": (index, 0o644), **blobs}))


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """``files``: name → (contents, mode)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, (data, mode) in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), mode
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()
