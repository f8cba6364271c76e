"""What will surprise a person about an option: said of it, with its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tonnage.facts import counting, cuda, gpus, instances, mig
from tonnage.inference import memory, tables
from tonnage.inference.sizing import fit, point
from tonnage.inference.timing import heads_per_gpu
from tonnage.units import GIB

if TYPE_CHECKING:
    from tonnage.facts.gpus import Gpu
    from tonnage.inference.sizing.loading import Loading
    from tonnage.inference.sizing.options import ReplicaOffer, SizingOption
    from tonnage.inference.sizing.request import SizingRequest

_FIRST_BF16 = (8, 0)
"""The compute capability from which tensor cores take BF16: CUDA C++ Programming Guide."""
_BITS = 8
_MEGA = 1_000_000


class Warning(msgspec.Struct, frozen=True):
    """``about`` is a word to filter by; ``text`` one or two sentences."""

    about: str
    text: str


def warnings(request: SizingRequest, option: SizingOption, loading: Loading | None, probe_s: float) -> list[Warning]:
    """What holds of ``option`` on its cheapest offer. ``loading``: from the disk that will be used; ``probe_s``: how
    long the startup probe waits."""
    found = [
        _other_memory(request, option),
        _links(request, option),
        _boxes(request, option),
        _stages(request, option),
        _replication(request, option),
        _engine(request, option),
        _formats(request, option),
        _unquantized(request, option),
        _sampler(request, option),
        _sharing(option),
        _disk(option, loading, probe_s),
        _host(request, option),
        _idle(option),
        _spot(option),
        _visible(option),
    ]
    return [Warning(about, text) for one in found if one is not None for about, text in [one]]


def _other_memory(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    """The same name with another amount of memory: A100 in p4d and p4de, H100 and H200 in p5 and p5e."""
    card = option.plan.card
    twins = {"a100-80": ("a100-40", "p4d has A100 of 40 GB, p4de of 80 GB"), "h200": ("h100", "p5 has H100 of 80 GB")}
    if card.kind != "gpu":
        return None
    if card.name == "a100-40":
        return "memory", (
            "this is the A100 of 40 GB (p4d). A test on 80 GB (p4de) does not show that it fits here: "
            f"{option.plan.memory.used / GIB:.1f} GiB are taken before the KV cache, of "
            f"{option.plan.memory.requested / GIB:.1f}"
        )
    if card.name not in twins:
        return None
    other, text = twins[card.name]
    small = fit.plan(
        request,
        msgspec.structs.replace(card, name=other, gpu=gpus.get(other), whole=other),
        option.plan.tensor_parallel,
        option.plan.pipeline_parallel,
    )
    if small.fits:
        return None
    return "memory", f"{text}: there the same setting lacks {small.short / GIB:.1f} GiB per GPU and does not start"


def _links(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    plan = option.plan
    if plan.tensor_parallel < 2 or plan.card.gpu.nvlink_bytes_per_s is not None:
        return None
    rate = plan.card.gpu.pcie_bytes_per_s / 1e9
    text = f"TP {plan.tensor_parallel} on {plan.card.name} goes over PCIe ({rate:.0f} GB/s, no NVLink)"
    if option.point.tpot_s is None:
        return "links", text
    parts = point.decode_step(request, plan, option.point.concurrency / plan.pipeline_parallel)
    reduced, step = parts["communication"], sum(parts.values())
    return "links", (
        f"{text}: its all-reduces take {reduced * 1000:.1f} ms of a decode step of {step * 1000:.0f} ms, and more "
        "while prompts are computed"
    )


def _boxes(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    """Single-GPU instances of the same GPU do not replace one with several."""
    plan, best = option.plan, option.best
    if plan.tensor_parallel < 2 or best is None:
        return None
    singles = [kind for kind in instances.all() if kind.gpu == plan.card.whole and kind.gpu_count == 1]
    singles = [kind for kind in singles if kind.network_mbps]
    if not singles:
        return None
    kind = min(singles, key=lambda one: one.vcpu)
    link = plan.card.gpu.nvlink_bytes_per_s or plan.card.gpu.pcie_bytes_per_s
    network = (kind.network_mbps or 0) * _MEGA / _BITS
    return "boxes", (
        f"{plan.tensor_parallel} x {kind.name} are not {plan.tensor_parallel} GPUs of one node: their network gives "
        f"{network / 1e9:.2g} GB/s where the link inside a node gives {link / 1e9:.0f}, {link / network:.0f} times "
        "more, and TP crosses it twice a layer"
    )


def _stages(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    plan, best = option.plan, option.best
    if plan.pipeline_parallel < 2:
        return None
    across = " across nodes" if best and best.nodes > option.replicas else ""
    return "stages", (
        f"PP {plan.pipeline_parallel}{across} adds its stages up in every token's time; it buys memory and throughput, "
        "not latency"
    )


def _replication(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    shape, tp = request.shape, option.plan.tensor_parallel
    if tp < 2:
        return None
    if shape.kv_lora_rank:
        return "kv", (
            f"the latent KV cache of {shape.name} is not divided by TP: each of the {tp} GPUs holds all of it. Data "
            "parallel attention would divide it"
        )
    if heads_per_gpu(shape.kv_heads, tp) * tp > shape.kv_heads:
        return (
            "kv",
            f"TP {tp} is above the {shape.kv_heads} KV heads: they are replicated, TP {tp} holds no more tokens",
        )
    return None


def _formats(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    gpu: Gpu = option.plan.card.gpu
    lacking = {"fp8": gpu.fp8_flops, "fp4": gpu.fp4_flops}
    wanted = request.stored.arithmetic
    if wanted in lacking and lacking[wanted] is None and request.stored.name != "int8":
        return "format", (
            f"{option.plan.card.whole} has no {wanted.upper()} tensor cores: weights in {request.stored.name} are "
            "unpacked to 16 bits as they are read. Memory is saved, arithmetic is not faster"
        )
    if cuda.gpu(option.plan.card.whole).arch < _FIRST_BF16 and request.stored.name == "bf16":
        return "format", f"{option.plan.card.whole} has no BF16: start vLLM with --dtype half"
    return None


def _engine(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    """GPUs that the serving system has no code for."""
    arch, first = cuda.gpu(option.plan.card.whole).arch, tables.vllm_memory()["compute_capability"]
    if request.system != "vllm" or arch >= cuda.parse_version(f"{first:.1f}"):
        return None
    return "engine", (
        f"vLLM runs on GPUs of compute capability {first:.1f} and later, {option.plan.card.whole} has "
        f"{cuda.cuda_text(arch)}: what it would need is told, but vLLM does not start there"
    )


def _unquantized(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    """Checkpoints that others publish in FP8 may leave attention in 16 bits (Llama-3.1-405B-Instruct-FP8 does)."""
    shape, plan = request.shape, option.plan
    if request.stored.name != "fp8" or shape.precision == "fp8" or not counting.known(shape):
        return None
    counts = counting.count(shape)
    extra = (counts.attention + counts.keys_values) / plan.gpus
    room = plan.memory.kv_cache - extra
    verdict = "it would not start with one" if room < plan.needed else f"{room / GIB:.1f} GiB are left for the KV cache"
    return "checkpoint", (
        f"all linear layers are counted in fp8. A published checkpoint that leaves attention in 16 bits takes "
        f"{extra / GIB:.1f} GiB per GPU more: {verdict}"
    )


def _sampler(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    """vLLM before 0.16 sorts the logits of all sequences in its profiling run."""
    plan = option.plan
    old = fit.plan(request, plan.card, plan.tensor_parallel, plan.pipeline_parallel, sorts_logits=True)
    if old.fits:
        return None
    more = (plan.memory.kv_cache - old.memory.kv_cache) / GIB
    return "sampler", (
        f"vLLM before 0.16 sorts the logits of {plan.max_num_seqs:,} sequences while it starts, which takes {more:.1f} "
        "GiB more: there this does not start. Use a newer one, or a smaller --max-num-seqs"
    )


def _sharing(option: SizingOption) -> tuple[str, str] | None:
    card = option.plan.card
    if card.kind == "mig":
        profile = mig.get(card.whole, card.name.partition(":")[2])
        text = (
            f"{card.per_gpu} instances of {profile.name} fit a {card.whole}; they have no NVLink or peer access "
            "between them, so TP is 1"
        )
        if not profile.measured:
            text += ". SMs or memory of this profile were not found in a driver's listing and are taken from its slices"
        return "sharing", text
    if card.kind == "time-slice":
        return "sharing", (
            f"time-slicing isolates nothing: each of the {card.per_gpu} replicas must be started with "
            f"--gpu-memory-utilization {option.plan.memory.utilization:.2f}, one out of memory takes the others down, "
            "and each is as slow as here only while all are busy"
        )
    return None


def _disk(option: SizingOption, loading: Loading | None, probe_s: float) -> tuple[str, str] | None:
    if loading is None or loading.start_s is None or loading.load_s is None:
        return None
    if loading.start_s <= probe_s:
        return None
    return "disk", (
        f"{loading.bytes / 1e9:.0f} GB of weights from {loading.storage} take {loading.load_s:.0f} s, and vLLM answers "
        f"after {loading.start_s:.0f} s ({loading.start_cached_s:.0f} with a compile cache), but the startup probe "
        f"waits {probe_s:.0f} s: the pod would be killed and start again for ever"
    )


def _host(request: SizingRequest, option: SizingOption) -> tuple[str, str] | None:
    best = option.best
    if best is None or not best.instance_type:
        return None
    kind = instances.get(best.instance_type)
    size = memory.weight_bytes(request.shape, request.stored)
    nodes = max(1, best.nodes // option.replicas)
    if size / nodes <= kind.allocatable_memory_mib * 1024 * 1024:
        return None
    return "host", (
        f"{kind.name} has {kind.memory_mib / 1024:.0f} GiB of memory for {size / GIB:.0f} GiB of weights: the page "
        "cache cannot hold them, every restart reads the disk again"
    )


def _idle(option: SizingOption) -> tuple[str, str] | None:
    best: ReplicaOffer | None = option.best
    if best is None or best.idle_gpus < 1 or not best.instance_type:
        return None
    return "idle", (
        f"{best.idle_gpus:g} of {best.gpus} GPUs are paid for and not used; the used ones cost "
        f"${best.share_usd_per_hour:.2f} of ${best.usd_per_hour:.2f} an hour"
    )


def _spot(option: SizingOption) -> tuple[str, str] | None:
    best = option.best
    if best is None or best.spot_usd_per_hour is None:
        return None
    saved = 1 - best.spot_usd_per_hour / best.usd_per_hour
    return "spot", f"spot saves {saved:.0%} and may be taken with two minutes' notice: not for latency-critical serving"


def _visible(option: SizingOption) -> tuple[str, str] | None:
    kv = option.plan.memory.kv_cache
    if kv > 0.1 * option.plan.memory.requested:
        return None
    return "tight", (
        f"only {kv / GIB:.1f} GiB of {option.plan.memory.requested / GIB:.1f} are left for the KV cache, less than the "
        "activations and CUDA graphs may differ from their estimate: try it before you rely on it"
    )
