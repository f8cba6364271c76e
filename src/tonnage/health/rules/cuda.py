"""Images whose CUDA no node runs on which the pods may land, and number formats that its GPU does not have.

Sources: :mod:`tonnage.cuda_fit.check`; vLLM vllm/platforms/cuda.py (check_if_supports_dtype), vllm/config (minimum
capability of a quantization)."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.cuda_fit import pods as cuda_pods
from tonnage.cuda_fit import remedy
from tonnage.facts.cuda import cuda_text, parse_version
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.landing import Place
from tonnage.health.rules import engines
from tonnage.health.rules.arguments import crash_blocker
from tonnage.health.setting import Pods, Setting
from tonnage.inference import vllm_flags
from tonnage.inference.servers import EngineServer

_LAST_OLD = (0, 11, 0)


def images(setting: Setting) -> Iterator[Blocker]:
    """The driver, or the GPU, of every node that is feasible otherwise does not run what is in the image."""
    for pods in setting.pods:
        needed = cuda_pods.certain(pods.spec)
        places = setting.places(pods) if needed else ()
        refused = [(place, why) for place in places if (why := cuda_pods.refusal(needed, place.host))]
        if not refused or (len(refused) < len(places) and refused[0][0].anywhere):
            continue
        place, why = refused[0]
        number = len({one.name for one, _ in refused})
        found = next(found for one in needed if (found := remedy.remedies(one, place.host)) or one is needed[-1])
        yield Blocker(
            "image-cuda-not-supported",
            UNSCHEDULABLE,
            pods.ref,
            pods.where(_image_field(pods)),
            f"{_on(place)} cannot run the CUDA of the image: {why}",
            "; or ".join(one.text for one in found) or "use an image with an older CUDA, or upgrade the driver",
            "Unschedulable",
            f"0/{number} nodes are available: {number} node(s) cannot run the image's CUDA: {why}.",
            some=len(refused) < len(places),
        )


def _on(place: Place) -> str:
    if place.anywhere:
        return place.name
    return f"NodePool {place.name}" if place.bought else f"node {place.name}"


def _image_field(pods: Pods) -> str:
    wanted = {container.name for container in cuda_pods.gpu_containers(pods.spec)}
    for part, containers in (("containers", pods.spec.containers), ("initContainers", pods.spec.init_containers)):
        for index, container in enumerate(containers):
            if container.name in wanted:
                return f"{part}[{index}].image"
    return ""


def formats(setting: Setting) -> Iterator[Blocker]:
    """--dtype and --quantization on GPUs that are too old for them."""
    for pods in setting.pods:
        server = pods.engine
        if server is None or engines.starts_not(engines.causes(setting, pods, server)):
            continue
        for flag in ("--dtype", "--quantization"):
            yield from _format(setting, pods, server, flag)


def _format(setting: Setting, pods: Pods, server: EngineServer, flag: str) -> Iterator[Blocker]:
    value = server.value(flag)
    now, before = vllm_flags.choices(flag).get((value or "").lower(), ("", ""))
    needed = before if server.version is not None and server.version <= _LAST_OLD else now
    if not needed or flag in server.open:
        return
    places = [place for place in setting.places(pods) if place.host.arch is not None]
    old = [place for place in places if (place.host.arch or ()) < parse_version(needed)]
    if not old or (len(old) < len(places) and old[0].anywhere):
        return
    arch = cuda_text(old[0].host.arch or ())
    gpu = old[0].host.gpu
    if flag == "--dtype":
        help_ = "set --dtype=half, or use a GPU of compute capability 8.0 or later (A100, L4 and newer)"
        said = (
            f"ValueError: Bfloat16 is only supported on GPUs with compute capability of at least {needed}. "
            f"Your {gpu} GPU has compute capability {arch}. You can use float16 instead by explicitly setting the "
            "`dtype` flag in CLI, for example: --dtype=half."
        )
    else:
        help_ = f"use a GPU of compute capability {needed} or later, or a format that {gpu} has"
        said = (
            f"ValueError: The quantization method {value} is not supported for the current GPU. Minimum capability: "
            f"{needed.replace('.', '')}. Current capability: {arch.replace('.', '')}."
        )
    yield crash_blocker(
        pods,
        "format-not-on-gpu",
        server.field(flag),
        f"{flag} {value} needs compute capability {needed}, {gpu} of {_on(old[0])} has {arch}",
        help_,
        said,
        some=len(old) < len(places),
    )
