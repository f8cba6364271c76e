"""What a pod can ask less of, and the pod that does."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import msgspec

from tonnage.fleet import asks
from tonnage.fleet.asks import Ask, Kind
from tonnage.fleet.classes import Shape
from tonnage.fleet.rows import FleetPod
from tonnage.objects import core, quantity

Amounts: TypeAlias = dict[str, str | int | float]


def written(resource: str, amount: int) -> str:
    """The amount as it is written for this resource."""
    if resource == "cpu":
        return quantity.format_cpu(amount)
    if resource == asks.FRACTION:
        return f"{amount / asks.FULL:g}"
    if resource == "memory" or resource.startswith("hugepages-") or resource == "ephemeral-storage":
        return quantity.format_bytes(amount)
    return str(amount)


def axes(pod: FleetPod, shape: Shape) -> dict[str, int]:
    """What the pod can ask less of, and how much it asks of each now: resources, and what it asks of each device."""
    ask = shape.ask
    found = {name: amount for name, amount in shape.requests.items() if amount and name != "pods"}
    if ask.refused or not ask.shares:
        return found
    if ask.count > 1:
        found[asks.FRACTION_DEVICES if _annotated(pod) else ask.resource] = ask.count
    if ask.kind is Kind.SHARE:
        found[asks.FRACTION] = ask.milli
    elif _annotated(pod):
        found[asks.FRACTION_MEMORY] = ask.mib
    else:
        stated = core.pod_requests(pod.spec)
        if ask.mib or asks.MEMORY_PERCENT in stated:
            found |= {asks.MEMORY_MIB: ask.mib} if ask.mib else {asks.MEMORY_PERCENT: ask.percent}
        if ask.milli:
            found[asks.CORES] = ask.milli // 10
    return found


def _annotated(pod: FleetPod) -> bool:
    return any(name in pod.annotations for name in asks.ANNOTATIONS)


def asked_less(ask: Ask, resource: str, to: int) -> Ask:
    """The ask with so much of one of :func:`axes`."""
    match resource:
        case asks.FRACTION:
            return replace(ask, milli=to)
        case asks.FRACTION_MEMORY | asks.MEMORY_MIB:
            return replace(ask, mib=to)
        case asks.MEMORY_PERCENT:
            return replace(ask, percent=to)
        case asks.CORES:
            return replace(ask, milli=10 * to)
    if resource in (ask.resource, asks.FRACTION_DEVICES):
        return replace(ask, count=to)
    if ask.kind is Kind.MIG:
        profiles = tuple((name, to if name == resource else n) for name, n in ask.profiles if to or name != resource)
        kind = Kind.MIG if profiles else Kind.WHOLE if ask.count else Kind.NONE
        return replace(ask, profiles=profiles, kind=kind)
    return ask


def device_axes(pod: FleetPod, shape: Shape) -> list[str]:
    """Those of the axes that devices give."""
    ask = shape.ask
    names = {*asks.ANNOTATIONS, *asks.VIRTUAL, ask.resource, *(name for name, _ in ask.profiles)}
    return [name for name in axes(pod, shape) if name in names]


def lowered(pod: FleetPod, resource: str, to: int) -> FleetPod:
    """The pod when it asks for so much of one of :func:`axes`. Raises ValueError where its overhead alone is more."""
    if resource in asks.ANNOTATIONS:
        return replace(pod, annotations={**pod.annotations, resource: written(resource, to)})
    if resource in asks.VIRTUAL:
        return replace(pod, spec=_each(pod.spec, resource, to))
    target = to - core.amounts(pod.spec.overhead).get(resource, 0)
    if target < 0:
        raise ValueError(f"the pod's overhead alone is more than {to} {resource}")
    return replace(pod, spec=_in_all(pod.spec, resource, target))


def without(pod: FleetPod, resource: str) -> FleetPod:
    """The pod when no container of it asks for the resource. Raises ValueError where its overhead is of it."""
    spec = pod.spec
    if resource in core.amounts(spec.overhead):
        raise ValueError(f"the pod's overhead is of {resource}")

    def less(resources: core.ResourceRequirements) -> core.ResourceRequirements:
        requests, limits = (
            {name: amount for name, amount in given.items() if name != resource}
            for given in (resources.requests, resources.limits)
        )
        return msgspec.structs.replace(resources, requests=requests, limits=limits)

    containers, starting = (
        [msgspec.structs.replace(one, resources=less(one.resources)) for one in group]
        for group in (spec.containers, spec.init_containers)
    )
    whole = spec.resources and less(spec.resources)
    after = msgspec.structs.replace(spec, containers=containers, init_containers=starting, resources=whole)
    return replace(pod, spec=after)


def in_whole(pod: FleetPod, resource: str, count: int) -> FleetPod:
    """The pod when it asks for so many whole devices in place of parts of them: where none of its containers names
    them, the first that asked for a part does. Raises ValueError where its overhead is of parts."""
    after = replace(
        pod, annotations={name: text for name, text in pod.annotations.items() if name not in asks.ANNOTATIONS}
    )
    for name in asks.VIRTUAL:
        after = without(after, name)
    if core.pod_requests(after.spec).get(resource, 0):
        return after
    groups = pod.spec.containers, pod.spec.init_containers
    asked = [
        (part, at) for part, group in enumerate(groups) for at, one in enumerate(group) if _asks_for_part(one)
    ] or [(0, 0)]
    changed = [list(after.spec.containers), list(after.spec.init_containers)]
    part, at = asked[0]
    one = changed[part][at]
    limits = {**one.resources.limits, resource: str(count)}
    changed[part][at] = msgspec.structs.replace(one, resources=msgspec.structs.replace(one.resources, limits=limits))
    return replace(after, spec=msgspec.structs.replace(after.spec, containers=changed[0], init_containers=changed[1]))


def _asks_for_part(container: core.Container) -> bool:
    return any(core.container_requests(container).get(name) for name in asks.VIRTUAL)


def _each(spec: core.PodSpec, resource: str, to: int) -> core.PodSpec:
    """No container with more of it."""
    containers = [_capped(one, resource, to) for one in spec.containers]
    starting = [_capped(one, resource, to) for one in spec.init_containers]
    return msgspec.structs.replace(spec, containers=containers, init_containers=starting)


def _in_all(spec: core.PodSpec, resource: str, to: int) -> core.PodSpec:
    """Sidecars keep theirs as far as there is room, then the containers in order; init containers what is left."""
    left, starting, containers = to, [], []
    for one in spec.init_containers:
        starting.append(_capped(one, resource, left))
        if one.restart_policy == "Always":
            left -= core.container_requests(starting[-1]).get(resource, 0)
    for one in spec.containers:
        containers.append(_capped(one, resource, left))
        left -= core.container_requests(containers[-1]).get(resource, 0)
    whole = spec.resources
    if whole is not None and core.is_pod_level(resource):
        whole = _requirements(whole, resource, to)
    return msgspec.structs.replace(spec, init_containers=starting, containers=containers, resources=whole)


def _capped(container: core.Container, resource: str, to: int) -> core.Container:
    if core.container_requests(container).get(resource, 0) <= to:
        return container
    return msgspec.structs.replace(container, resources=_requirements(container.resources, resource, to))


def _requirements(resources: core.ResourceRequirements, resource: str, to: int) -> core.ResourceRequirements:
    """Requests of so much; a limit of an extended resource is its request."""
    extended = "/" in resource
    return msgspec.structs.replace(
        resources,
        requests=_with(resources.requests, resource, to, always=not extended or resource in resources.requests),
        limits=_with(resources.limits, resource, to, always=False) if extended else resources.limits,
    )


def _with(amounts: Amounts, resource: str, to: int, *, always: bool) -> Amounts:
    if not always and resource not in amounts:
        return amounts
    return {**amounts, resource: f"{to}m" if resource == "cpu" else str(to)}
