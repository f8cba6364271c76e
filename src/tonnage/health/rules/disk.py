"""Volumes that are smaller than the weights which an engine downloads into them.

Sources: kubernetes/kubernetes pkg/kubelet/eviction (an emptyDir above its sizeLimit has the pod evicted);
huggingface_hub keeps what it fetches below HF_HOME.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.errors import InputError
from tonnage.health.blocker import CRASHING, Blocker
from tonnage.health.rules import engines
from tonnage.health.rules.arguments import ERROR
from tonnage.health.setting import Pods, Setting
from tonnage.inference.config import weight_bytes
from tonnage.inference.servers import EngineServer
from tonnage.objects import quantity
from tonnage.objects.needs import Volume
from tonnage.units import GIB
from tonnage.workloads.volumes.weights import folder_of, mounted_at


def weights(setting: Setting) -> Iterator[Blocker]:
    """A model that is fetched from Hugging Face into a volume without room for it."""
    for pods in setting.pods:
        server = pods.engine
        shape = server.shape if server is not None else None
        if server is None or shape is None or (server.args.model or "").startswith(("/", ".", "s3:", "gs:")):
            continue
        if engines.starts_not(engines.causes(setting, pods, server)):
            continue
        try:
            needed = weight_bytes(shape)
        except InputError:
            continue
        yield from _too_small(setting, pods, server, needed)


def _too_small(setting: Setting, pods: Pods, server: EngineServer, needed: int) -> Iterator[Blocker]:
    needs = pods.template.needs
    container = needs.containers[server.index]
    volume = mounted_at(container, needs.volumes, folder_of(container))
    size, field = _size(setting, pods, volume) if volume is not None else (None, "")
    if volume is None or size is None or size >= needed:
        return
    index = needs.volumes.index(volume)
    empty = volume.empty_dir is not None
    said = f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{field}"'
    yield Blocker(
        "volume-below-weights",
        CRASHING,
        pods.ref,
        pods.where(f"volumes[{index}].{'emptyDir.sizeLimit' if empty else 'persistentVolumeClaim.claimName'}"),
        f"the weights of {server.args.model} are {needed / GIB:.0f} GiB, and volume {volume.name}, into which they are "
        f"downloaded, has {size / GIB:.0f} GiB: "
        + ("the pod is evicted before it serves" if empty else "the disk is full before the server starts"),
        f"give the volume {needed * 11 // 10 // GIB + 1}Gi or more",
        "Evicted" if empty else ERROR,
        said if empty else "OSError: [Errno 28] No space left on device",
    )


def _size(setting: Setting, pods: Pods, volume: Volume) -> tuple[int | None, str]:
    """(bytes, as written); None where the volume is as large as what it lies on, or nobody knows."""
    if volume.empty_dir is not None:
        return _bytes(volume.empty_dir.size_limit), str(volume.empty_dir.size_limit)
    if volume.persistent_volume_claim is None:
        return None, ""
    claim = setting.volumes.claims.get((pods.namespace, volume.persistent_volume_claim.claim_name))
    if claim is None or "ReadWriteMany" in claim.spec.access_modes:  # shared file systems grow
        return None, ""
    bound = setting.volumes.bound_to(claim)
    written = (bound.spec.capacity if bound is not None else claim.spec.resources.requests).get("storage")
    return _bytes(written), str(written)


def _bytes(written: str | int | float | None) -> int | None:
    if written is None:
        return None
    try:
        return quantity.amount("memory", written)
    except ValueError:
        return None
