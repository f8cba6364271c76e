"""Extended resources that devices of claims serve: a pod that requests ``nvidia.com/gpu`` gets, on a node whose device
plugin does not offer it, devices of the class that serves the resource, by a claim that the scheduler makes for it.

Source: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go and
k8s.io/dynamic-resource-allocation v0.36.3 deviceclass/extendedresourcecache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from tonnage.objects import core
from tonnage.objects.dra import DeviceClass, DeviceRequest, ExactDeviceRequest

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""Every class serves, beside what it names, the resource of this prefix and its own name."""

Classes: TypeAlias = Mapping[str, str]
"""Extended resource → name of the class that serves it."""


class ServedRequests(NamedTuple):
    """What containers request of one resource, as a claim asks for it: its requests, and whose they are."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[core.ContainerExtendedResourceRequest, ...]


def served(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The resources that these classes serve. Of several that name one resource the newest does, of those of one time
    the first by name."""
    found: dict[str, str] = {}
    named = sorted(classes, key=lambda one: one.name, reverse=True)
    for one in sorted(named, key=lambda one: one.metadata.creation_timestamp or ""):
        found[IMPLICIT + one.name] = one.name
        if one.spec.extended_resource_name:
            found[one.spec.extended_resource_name] = one.name
    return found


def asked(spec: core.PodSpec, classes: Classes) -> dict[str, ServedRequests]:
    """What the pod requests of the resources that classes serve, by resource."""
    names = {name for one in _containers(spec) for name, n in core.container_requests(one).items() if n}
    return {name: _asked(spec, name, classes[name]) for name in sorted(names & classes.keys())}


def in_order(asked: Iterable[ServedRequests]) -> ServedRequests:
    """One claim's requests and whose they are, of several resources (by name)."""
    several = list(asked)
    requests = sorted((request for one in several for request in one.requests), key=lambda one: one.name)
    return ServedRequests(tuple(requests), tuple(mapping for one in several for mapping in one.mappings))


def _containers(spec: core.PodSpec) -> list[core.Container]:
    return [*spec.init_containers, *spec.containers]


def _asked(spec: core.PodSpec, resource: str, of_class: str) -> ServedRequests:
    """A container that stays has a request of its own. Init containers that end use those of containers that start
    later; what the largest of them needs beyond is one request more, for all of them."""
    containers = _containers(spec)
    ends = [at < len(spec.init_containers) and not one.is_sidecar for at, one in enumerate(containers)]
    stays: dict[int, DeviceRequest] = {}
    mappings = []
    for at, one in enumerate(containers):
        if not ends[at] and (count := core.container_requests(one).get(resource, 0)) > 0:
            stays[at] = _request(at, one, resource, of_class, count)
            mappings.append(_mapping(one, resource, stays[at].name))
    uses: list[tuple[core.Container, list[str], bool]] = []
    most: DeviceRequest | None = None
    for at, one in enumerate(containers):
        if ends[at] and (count := core.container_requests(one).get(resource, 0)) > 0:
            later = (request for other, request in sorted(stays.items()) if other > at)
            reused, missing = _reused(later, count)
            uses.append((one, reused, missing > 0))
            if missing > 0 and (most is None or missing > _count(most)):
                most = _request(at, one, resource, of_class, missing)
    for one, reused, needs_more in uses:
        names = [*reused, *([most.name] if needs_more and most is not None else [])]
        mappings += [_mapping(one, resource, name) for name in names]
    requests = [*([most] if most is not None else []), *(stays[at] for at in sorted(stays))]
    return ServedRequests(tuple(requests), tuple(mappings))


def _reused(requests: Iterator[DeviceRequest], count: int) -> tuple[list[str], int]:
    """The names of the requests that an init container uses, and how many devices it lacks then."""
    names: list[str] = []
    for one in requests:
        names.append(one.name)
        count -= _count(one)
        if count <= 0:
            break
    return names, max(0, count)


def _mapping(container: core.Container, resource: str, request: str) -> core.ContainerExtendedResourceRequest:
    return core.ContainerExtendedResourceRequest(
        container_name=container.name, resource_name=resource, request_name=request
    )


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


def _request(at: int, container: core.Container, resource: str, of_class: str, count: int) -> DeviceRequest:
    """Named by the container's place and by that of the resource among those that the container requests, by name."""
    place = sorted(core.container_requests(container)).index(resource)
    exactly = ExactDeviceRequest(device_class_name=of_class, count=count)
    return DeviceRequest(name=f"container-{at}-request-{place}", exactly=exactly)
