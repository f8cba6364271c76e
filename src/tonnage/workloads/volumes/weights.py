"""On which of a pod's claims the weights of its engine lie, and how fast they are read from there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tonnage.facts import provisioners, storage
from tonnage.objects.needs import ContainerNeeds, Volume
from tonnage.objects.storage import StorageClass
from tonnage.units import MIB
from tonnage.workloads.volumes.book import Volumes

HOMES = ("HF_HUB_CACHE", "HF_HOME", "HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "XDG_CACHE_HOME")
"""Variables that say where Hugging Face's libraries keep weights, the first that is set counts."""
HOME = "/root/.cache/huggingface"
"""Where they keep them else, in vLLM's image."""


@dataclass(frozen=True, slots=True)
class WeightSource:
    """Where weights are read from: what it gives by itself, and what the bytes pass through."""

    bytes_per_s: float
    path: storage.Path


def source(
    book: Volumes, namespace: str, container: ContainerNeeds, volumes: Iterable[Volume], folder: str = ""
) -> WeightSource | None:
    """Of an engine whose weights are in ``folder``, or where Hugging Face's libraries keep them; None where that is not
    a claim of which the throughput is known."""
    volume = mounted_at(container, volumes, folder or folder_of(container))
    if volume is None or volume.persistent_volume_claim is None:
        return None
    claim = book.claims.get((namespace, volume.persistent_volume_claim.claim_name))
    if claim is None:
        return None
    bound = book.bound_to(claim)
    class_ = book.storage_class(book.class_of(claim))
    driver = bound.spec.csi.driver if bound is not None and bound.spec.csi is not None else ""
    return _of(driver or (class_.provisioner if class_ is not None else ""), class_)


def folder_of(container: ContainerNeeds) -> str:
    """Where Hugging Face's libraries keep weights in the container."""
    return next((v.value for name in HOMES for v in container.env if v.name == name and v.value), HOME)


def mounted_at(container: ContainerNeeds, volumes: Iterable[Volume], folder: str) -> Volume | None:
    """The volume of the pod in which the folder lies; None where that is the container's own disk."""
    mounts = [one for one in container.volume_mounts if _within(folder, one.mount_path)]
    mount = max(mounts, key=lambda one: len(one.mount_path), default=None)
    return next((one for one in volumes if mount is not None and one.name == mount.name), None)


def _of(provisioner: str, class_: StorageClass | None) -> WeightSource | None:
    maker = provisioners.all().get(provisioner)
    if maker is None or not maker.storage:
        return None
    parameters: Mapping[str, Any] = class_.parameters if class_ is not None else {}
    type_ = str(parameters.get("type", "")).lower()
    known = storage.get("io2" if type_ in ("io1", "io2") else maker.storage)
    throughput = str(parameters.get("throughput", ""))
    if known.name == "gp3" and throughput.isascii() and throughput.isdigit() and len(throughput) < 6:
        return WeightSource(int(throughput) * MIB, known.network)
    return WeightSource(known.bytes_per_s, known.network)


def _within(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(f"{folder.rstrip('/')}/"))
