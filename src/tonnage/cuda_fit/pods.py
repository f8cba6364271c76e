"""Pods on nodes: what the GPU containers of a pod need, and whether a node's labels rule it out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from tonnage.cuda_fit import check, need, require
from tonnage.cuda_fit.host import Host
from tonnage.cuda_fit.need import Need
from tonnage.objects import core

_RESOURCE = re.compile(r"nvidia\.com/(gpu([.-].*)?|mig-.+)")
"""Names of resources that are GPUs, shares or slices of them, not memory or cores of one (nvidia.com/gpumem)."""

_VARIABLES = ("NVIDIA_", "CUDA_")


def gpu_containers(spec: core.PodSpec) -> Iterator[core.Container]:
    """The containers, init containers too, that ask for a GPU or a slice of one."""
    return (one for one in (*spec.init_containers, *spec.containers) if _asks(one))


def gpus_of(amounts: Mapping[str, int]) -> dict[str, int]:
    """Those of the amounts by resource that are GPUs, slices or shares, without zeros."""
    return {name: amount for name, amount in amounts.items() if amount and _RESOURCE.fullmatch(name)}


def _asks(container: core.Container) -> bool:
    asked = {**container.resources.limits, **container.resources.requests}
    gpus = {name: written for name, written in asked.items() if _RESOURCE.fullmatch(name)}
    return bool(gpus) and any(core.amounts(gpus).values())


def needs(spec: core.PodSpec) -> tuple[tuple[str, Need], ...]:
    """(container name, what its image needs) for each container with a GPU of whose image something is known."""
    found = ((one.name, need_of(one)) for one in gpu_containers(spec))
    return tuple((name, made) for name, made in found if made.known)


def need_of(container: core.Container) -> Need:
    """What the container's image needs, with the container's environment."""
    return need.of_image(container.image, dict(_environment(container)))


def certain(spec: core.PodSpec) -> tuple[Need, ...]:
    """What is sure enough of a pod to keep it off a node, without doubles: images known by name, and expressions that
    the pod itself states. Conditions that an image is known to bring are left out, since not every container runtime
    asks them; so are faulty expressions, which do not concern the node."""
    kept: dict[Need, None] = {}
    for container in gpu_containers(spec):
        sure = _certain(container.image, _environment(container))
        if sure is not None:
            kept[sure] = None
    return tuple(kept)


def refusal(needed: tuple[Need, ...], host: Host) -> str:
    """Why a node cannot run one of these images; empty where it can or too little is known."""
    for one in needed:
        found = check.fit(one, host)
        if found.fits is False:
            return found.reason
    return ""


def _environment(container: core.Container) -> tuple[tuple[str, str], ...]:
    """The container's variables that matter here."""
    return tuple((one.name, one.value) for one in container.env if one.name.startswith(_VARIABLES))


@lru_cache(maxsize=4096)
def _certain(image: str, environment: tuple[tuple[str, str], ...]) -> Need | None:
    known = need.of_image(image, dict(environment))
    stated = tuple(one for one in known.requirements if one.stated and not _faulty(one.expression))
    sure = Need(image, requirements=stated)
    if known.sure:
        sure = Need(image, known.cuda, known.kernels, known.compat, stated, True, known.source)
    return sure if sure.known else None


def _faulty(expression: str) -> bool:
    return any(rule.problem for rules in require.parse(expression) for rule in rules)
