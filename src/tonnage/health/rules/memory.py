"""Memory that does not suffice: of the GPU, the slice or the share that a pod gets, of the container, of /dev/shm."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import msgspec

from tonnage.errors import InputError
from tonnage.facts import gpus, mig
from tonnage.facts.models import ModelShape
from tonnage.health.blocker import CRASHING, Blocker
from tonnage.health.landing import Place, PodGpu
from tonnage.health.rules import arguments, engines
from tonnage.health.rules.arguments import crash_blocker
from tonnage.health.setting import Pods, Setting
from tonnage.inference import tables
from tonnage.inference.config import EngineRefused, engine_config, replica
from tonnage.inference.servers import MODEL, EngineServer
from tonnage.inference.vllm_args import VllmArgs
from tonnage.objects import quantity
from tonnage.units import GIB, MIB

UTILIZATION, LENGTH = "--gpu-memory-utilization", "--max-model-len"
_WEIGHED = frozenset({MODEL, UTILIZATION, LENGTH, *arguments.PARALLEL, "--quantization", "--dtype", "--kv-cache-dtype"})
_OVERRIDES = ("--cpu-offload-gb", "--num-gpu-blocks-override", "--kv-cache-memory-bytes", "--kv-offloading-size")
"""Flags that change what has to fit on the GPU in ways that are not weighed."""


class _Tried(msgspec.Struct, frozen=True):
    place: Place
    card: PodGpu
    refused: EngineRefused | None


def gpu_memory(setting: Setting) -> Iterator[Blocker]:
    """Weights, activations and the KV cache of one sequence do not fit what the pods get of a GPU."""
    for pods in setting.pods:
        server = pods.engine
        if server is None or engines.starts_not(engines.causes(setting, pods, server)):
            continue
        shape = server.shape
        if shape is None or server.open & _WEIGHED or any(server.value(flag) is not None for flag in _OVERRIDES):
            continue
        tried = list(_tried(setting.places(pods), shape, server.args))
        refused = [one for one in tried if one.refused is not None]
        if refused and (len(refused) == len(tried) or not refused[0].place.anywhere):
            yield _too_small(pods, server, shape, refused, some=len(refused) < len(tried))


def _tried(places: Iterable[Place], shape: ModelShape, args: VllmArgs) -> Iterator[_Tried]:
    """The engine on each kind of card that the pods may get; nothing of cards for which it cannot be told."""
    seen: dict[tuple[PodGpu, str], Place] = {}
    for place in places:
        if place.card is not None:
            seen.setdefault((place.card, place.name), place)
    for (card, _), place in seen.items():
        try:
            engine_on(shape, card, args)
        except EngineRefused as refused:
            yield _Tried(place, card, refused)
        except InputError:
            continue
        else:
            yield _Tried(place, card, None)


def engine_on(shape: ModelShape, card: PodGpu, args: VllmArgs) -> None:
    """Raises EngineRefused where the engine does not start on the card, InputError where that cannot be told."""
    if card.part < 1:
        args = msgspec.structs.replace(args, gpu_memory_utilization=min(utilization(args), card.part))
    replica(shape, mig.resolve(card.name)[0], args)


def utilization(args: VllmArgs) -> float:
    """The share of its GPU's memory that an engine claims."""
    given = args.gpu_memory_utilization
    return tables.vllm_memory()["gpu_memory_utilization"] if given is None else given


def _too_small(pods: Pods, server: EngineServer, shape: ModelShape, refused: list[_Tried], *, some: bool) -> Blocker:
    best = max(refused, key=lambda one: (mig.resolve(one.card.name)[0].memory_mib * one.card.part, one.place.name))
    why = best.refused
    assert why is not None
    resource, _ = engines.held(pods, server)
    limits = f"containers[{server.index}].resources.limits.{resource}"
    share = server.args.gpu_memory_utilization
    low = share is not None and share < tables.vllm_memory()["gpu_memory_utilization"]
    lowered = low and _fits(shape, best.card, msgspec.structs.replace(server.args, gpu_memory_utilization=None))
    if lowered:
        field = server.field(UTILIZATION)
    elif why.kind == "cache" and server.args.max_model_len is not None:
        field = server.field(LENGTH)
    elif ":" in best.card.name or best.card.part < 1:
        field = limits
    else:
        field = server.field(MODEL)
    rule = "kv-cache-below-max-model-len" if why.kind == "cache" else "engine-exceeds-gpu-memory"
    problem = why.problems[0]
    on = _where_it_lands(best, refused)
    help_ = f"raise {UTILIZATION}" if lowered else _remedy(shape, best.card, server.args, why)
    return crash_blocker(pods, rule, field, f"{problem.message}{on}", help_, why.said, some=some)


def _where_it_lands(best: _Tried, refused: list[_Tried]) -> str:
    names = list(dict.fromkeys(one.card.name for one in refused))
    share = f" and may have {best.card.part:.0%} of its memory" if best.card.part < 1 else ""
    if best.place.anywhere:
        return (
            f" on {best.card.name}{share}, the largest of the GPUs that the pods can get" if len(names) > 1 else share
        )
    where = f"NodePool {best.place.name}" if best.place.bought else f"node {best.place.name}"
    return f", on {best.card.name} of {where}{share}"


def _fits(shape: ModelShape, card: PodGpu, args: VllmArgs) -> bool:
    try:
        engine_on(shape, card, args)
    except InputError:
        return False
    return True


def _remedy(shape: ModelShape, card: PodGpu, args: VllmArgs, why: EngineRefused) -> str:
    """The smallest change that helps, tried with the same arithmetic."""
    found = []
    if why.kind == "cache":
        auto = msgspec.structs.replace(args, max_model_len=None)
        most = _longest(shape, card, auto)
        if most:
            found.append(f"set {LENGTH} to {most} or less")
    if ":" not in card.name and card.part >= 1:
        for size in (2, 4, 8, 16):
            more = msgspec.structs.replace(args, tensor_parallel_size=size)
            if size > args.tensor_parallel_size and _fits(shape, card, more):
                found.append(f"use {more.gpus} GPUs with --tensor-parallel-size {size}")
                break
    for gpu in sorted(gpus.all(), key=lambda one: (one.memory_mib, one.name)):
        if gpu.karpenter_name and _fits(shape, PodGpu(gpu.name), args):
            found.append(f"use a whole GPU of {gpu.memory_mib / 1024:.0f} GiB or more, such as {gpu.name}")
            break
    return ", or ".join(found) or why.problems[0].hint


def _longest(shape: ModelShape, card: PodGpu, args: VllmArgs) -> int:
    """The longest context that the engine holds on the card; 0 where not even one token."""
    try:
        engine = engine_config(
            shape,
            mig.resolve(card.name)[0],
            tensor_parallel=args.tensor_parallel_size,
            pipeline_parallel=args.pipeline_parallel_size,
            pipeline_layers=args.pipeline_layers,
            max_num_batched_tokens=args.max_num_batched_tokens,
            max_num_seqs=args.max_num_seqs,
            gpu_memory_utilization=min(utilization(args), card.part),
            max_model_len=-1,
            dtype=args.dtype,
            quantization=args.quantization,
            kv_cache_dtype=args.kv_cache_dtype,
        )
    except InputError:
        return 0
    return engine.max_model_len


def shared_cards(setting: Setting) -> Iterator[Blocker]:
    """Engines whose shares of the memory of cards that they have in common add up to more than there is.

    Time-slicing keeps no memory apart: an engine claims its share when it starts, and one that finds less free ends
    (vLLM v1/worker/utils.py, request_memory). Where nodes are launched, pods are packed onto one before there is
    another.
    """
    groups: dict[tuple[Place, ...], list[tuple[Pods, float, int]]] = {}
    for pods in setting.pods:
        server = pods.engine
        if server is None or UTILIZATION in server.open:
            continue
        places = setting.places(pods)
        if not places or any(one.card is None or one.card.sharers < 2 or one.card.part < 1 for one in places):
            continue
        groups.setdefault(places, []).append((pods, utilization(server.args), _replicas(pods)))
    for places, members in groups.items():
        cards = _cards(places)
        free = [1.0] * cards
        for pods, share, replicas in members:
            placed = 0
            for _ in range(min(replicas, 10_000)):
                room = next((at for at, left in enumerate(free) if left >= share - 1e-9), None)
                if room is None:
                    break
                free[room] -= share
                placed += 1
            if placed < replicas:
                yield _crowded(pods, share, replicas, placed, cards, places[0])


def _cards(places: Iterable[Place]) -> int:
    """How many cards the pods have in common."""
    nodes: dict[str, int] = {}
    for one in places:
        if one.bought:
            nodes[""] = min(nodes.get("", one.cards), one.cards)
        else:
            nodes[one.name] = max(nodes.get(one.name, 0), one.cards or 1)
    return max(1, sum(nodes.values()))


def _replicas(pods: Pods) -> int:
    wanted = getattr(getattr(pods.object, "spec", None), "replicas", 1)
    return wanted if isinstance(wanted, int) else 1


def _crowded(pods: Pods, share: float, replicas: int, placed: int, cards: int, place: Place) -> Blocker:
    server, card = pods.engine, place.card
    assert server is not None and card is not None
    total = mig.resolve(card.name)[0].memory_mib / 1024
    fits = math.floor(1 / share + 1e-9) * cards if share else 0
    many = f"{replicas} pods" if replicas > 1 else "the pod"
    return crash_blocker(
        pods,
        "gpu-memory-oversubscribed",
        server.field(UTILIZATION),
        f"{cards} × {card.name}, each shared by up to {card.sharers} pods, has room for {fits} that claim {share:g} of "
        f"a GPU's memory: {placed} of {many} find room beside the others",
        f"set {UTILIZATION} to {math.floor(100 / card.sharers) / 100:g} or less, or have fewer pods on a GPU",
        f"ValueError: Free memory on device cuda:0 ({max(0.0, 1 - share) * total:.2f}/{total:.2f} GiB) on startup is "
        f"less than desired GPU memory utilization ({share:g}, {share * total:.2f} GiB). Decrease GPU memory "
        "utilization or reduce GPU memory used by other processes.",
    )


SHM = PurePosixPath("/dev/shm")
SHM_DEFAULT = 64 * MIB
"""What containerd and CRI-O give a container at /dev/shm (NCCL issues 525; vllm issues 1710, 7466)."""
SHM_LEAST = 256 * MIB
"""Below this NCCL and vLLM's message queues of several workers do not get their segments: NCCL takes some 10 to 30 MiB
a channel and pair of ranks, vLLM's broadcast queue 10 chunks of 16 to 24 MiB (vllm/distributed/device_communicators/
shm_broadcast.py)."""
BASE = 5 * GIB
"""An estimate, not measured: resident memory of the API server (about 1.5 GiB with torch and vLLM imported) and of an
engine that has opened CUDA and compiled (3 to 4 GiB). Each further rank is another process with CUDA."""
RANK = 2 * GIB


def shared_memory(setting: Setting) -> Iterator[Blocker]:
    """Several GPUs and no room at /dev/shm: the ranks of an engine exchange messages and data there."""
    for pods in setting.pods:
        server = pods.engine
        if server is None or server.open & set(arguments.PARALLEL):
            continue
        if server.args.tensor_parallel_size * server.args.pipeline_parallel_size < 2 or _host_ipc(pods):
            continue
        _, has = engines.held(pods, server)
        if has < 2 or engines.starts_not(engines.causes(setting, pods, server)):
            continue
        found = _shm(pods, server)
        if found is None:
            size, field = SHM_DEFAULT, server.field(*arguments.PARALLEL)
            what = "/dev/shm is the 64 MiB that every container has"
        else:
            size, field = found
            what = f"/dev/shm has {size / MIB:.0f} MiB"
        if size < SHM_LEAST:
            yield crash_blocker(
                pods,
                "shared-memory-too-small",
                field,
                f"{what}, and NCCL between the {server.args.gpus} ranks of the engine needs more",
                "mount an emptyDir {medium: Memory, sizeLimit: 8Gi} at /dev/shm",
                "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details): Error while "
                "creating shared memory segment /dev/shm/nccl-* (size 9637888), error: No space left on device (28)",
            )


def _host_ipc(pods: Pods) -> bool:
    return pods.template.needs.host_ipc


def _shm(pods: Pods, server: EngineServer) -> tuple[int, str] | None:
    """(bytes, field) of the volume at /dev/shm; None where there is none. One without a limit has room."""
    needs = pods.template.needs
    for mount in needs.containers[server.index].volume_mounts:
        if PurePosixPath(mount.mount_path) != SHM:
            continue
        for index, volume in enumerate(needs.volumes):
            if volume.name != mount.name:
                continue
            limit = volume.empty_dir.size_limit if volume.empty_dir is not None else None
            if limit is None:
                return (1 << 62, "")
            return _bytes(limit), f"volumes[{index}].emptyDir.sizeLimit"
        return (1 << 62, "")
    return None


def _bytes(written: str | int | float) -> int:
    try:
        return quantity.amount("memory", written)
    except ValueError:
        return 1 << 62


def host_memory(setting: Setting) -> Iterator[Blocker]:
    """A memory limit of the container below what the server takes of the host: processes, pinned buffers, what it keeps
    in /dev/shm. Weights pass through the page cache, which the kernel takes back before it kills, and do not count."""
    for pods in setting.pods:
        server = pods.engine
        if server is None or engines.starts_not(engines.causes(setting, pods, server)):
            continue
        limit = server.container.resources.limits.get("memory")
        if limit is None or not engines.held(pods, server)[1]:
            continue
        has, parts = _bytes(limit), _host_parts(pods, server)
        needs = sum(size for _, size in parts)
        if has < needs:
            listed = ", ".join(f"{what} {size / GIB:.1f}" for what, size in parts)
            yield Blocker(
                "host-memory-too-small",
                CRASHING,
                pods.ref,
                pods.where(f"containers[{server.index}].resources.limits.memory"),
                f"the container may have {has / GIB:.1f} GiB of memory, and the server needs {needs / GIB:.1f} GiB at "
                f"least ({listed})",
                f"set the memory limit to {math.ceil(needs / GIB) + 4}Gi or more",
                "OOMKilled",
                "exit code 137",
            )


def _host_parts(pods: Pods, server: EngineServer) -> list[tuple[str, int]]:
    ranks = max(1, server.args.gpus)
    parts = [("the server's processes", BASE + (ranks - 1) * RANK)]
    for flag, what in (("--cpu-offload-gb", "weights on the host"), ("--kv-offloading-size", "KV cache on the host")):
        value = _number(server.value(flag))
        if value:
            parts.append((what, int(value * GIB) * (ranks if flag == "--cpu-offload-gb" else 1)))
    return parts


def _number(written: str | None) -> float:
    try:
        value = float(written or 0)
    except ValueError:
        return 0.0
    return value if math.isfinite(value) else 0.0
