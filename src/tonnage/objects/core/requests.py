"""What pods and containers request, in whole numbers."""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.objects import quantity
from tonnage.objects.core.containers import Container
from tonnage.objects.core.pods import PodSpec


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """What the pod requests: cpu in millicores, memory and storage in bytes, everything else in units.

    Containers and sidecars add up; init containers run one after another, each beside the sidecars started before it,
    and the pod needs the larger of the two; overhead comes on top. A limit without a request is the request. Requests
    of the pod as a whole replace the sum, its limits count where no container says anything.
    Source: kubernetes/kubernetes staging/src/k8s.io/component-helpers/resource/helpers.go.
    """
    running: dict[str, int] = {}
    for container in spec.containers:
        _add(running, container_requests(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.init_containers:
        own = container_requests(container)
        if container.is_sidecar:
            _add(running, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for name, amount in own.items():
            starting[name] = max(starting.get(name, 0), amount)
    total = {name: max(running.get(name, 0), starting.get(name, 0)) for name in {**running, **starting}}
    if spec.resources is not None:
        total |= _pod_level(spec.resources.requests)
        total = _pod_level(spec.resources.limits) | total
    _add(total, amounts(spec.overhead))
    return {name: min(amount, quantity.LARGEST) for name, amount in total.items()}


def container_requests(container: Container) -> dict[str, int]:
    """The container's requests, each limit standing in where there is no request."""
    return amounts({**container.resources.limits, **container.resources.requests})


def amounts(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """Quantities as integers: cpu in millicores, memory and storage in bytes, everything else in units."""
    return {name: quantity.amount(name, written) for name, written in quantities.items()}


def _pod_level(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    return amounts({name: written for name, written in quantities.items() if is_pod_level(name)})


def is_pod_level(resource: str) -> bool:
    """Whether the resource can be requested for a pod as a whole: cpu, memory and huge pages."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
