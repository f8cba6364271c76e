"""LimitRanges: what containers get that ask for nothing, and what they may ask for.

Source: kubernetes/kubernetes v1.36 plugin/pkg/admission/limitranger/admission.go and pkg/apis/core/v1/defaults.go
(SetDefaults_LimitRangeItem).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

import msgspec

from tonnage.objects import core, quantity
from tonnage.objects.quota import LimitRange, LimitRangeItem, Quantities
from tonnage.workloads.admission.refused import LIMIT_RANGER, VALIDATION, AdmissionRefusal


def completed(item: LimitRangeItem) -> LimitRangeItem:
    """The item as the API server stores it: of containers a maximum is the default limit, that the default request,
    and a minimum is one where there is no other."""
    if item.type != "Container":
        return item
    default = {**item.max, **item.default}
    request = {**item.min, **default, **item.default_request}
    return msgspec.structs.replace(item, default=default, default_request=request)


def defaulted(spec: core.PodSpec, ranges: Iterable[LimitRange]) -> core.PodSpec:
    """The spec with limits and requests where its containers name none; the same one where nothing is missing."""
    limits: Quantities = {}
    requests: Quantities = {}
    for item in _items(ranges, "Container"):
        limits = {**item.default, **limits}
        requests = {**item.default_request, **requests}
    if not limits and not requests:
        return spec
    containers = [_defaulted(one, limits, requests) for one in spec.containers]
    init = [_defaulted(one, limits, requests) for one in spec.init_containers]
    if containers == spec.containers and init == spec.init_containers:
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=init)


def _defaulted(container: core.Container, limits: Quantities, requests: Quantities) -> core.Container:
    given = container.resources
    asked = {**requests, **given.limits, **given.requests}  # a limit without a request is the request
    resources = msgspec.structs.replace(given, limits={**limits, **given.limits}, requests=asked)
    return msgspec.structs.replace(container, resources=resources)


def refusals(spec: core.PodSpec, ranges: Sequence[LimitRange]) -> list[AdmissionRefusal]:
    """Every bound that a pod breaks, whose containers have their defaults already."""
    found: list[AdmissionRefusal] = []
    for limit_range in ranges:
        for item in map(completed, limit_range.spec.limits):
            if item.type == "Container":
                for field, container in _containers(spec):
                    found += _broken(item, container.resources, field, limit_range.name)
            elif item.type == "Pod":
                requests = core.pod_requests(only(spec, "requests"))
                limits = core.pod_requests(only(spec, "limits"))
                whole = core.ResourceRequirements(
                    requests=dict(quantity.quantities(requests)), limits=dict(quantity.quantities(limits))
                )
                found += _broken(item, whole, "containers", limit_range.name)
    return found


def contradictions(given: core.PodSpec, spec: core.PodSpec, ranges: Sequence[LimitRange]) -> list[AdmissionRefusal]:
    """Requests of a container that are above a limit which it got by default."""
    found = []
    for (field, before), (_, container) in zip(_containers(given), _containers(spec), strict=True):
        for name, written in container.resources.requests.items():
            limit = container.resources.limits.get(name)
            if limit is None or name in before.resources.limits:
                continue
            if quantity.parse(written) > quantity.parse(limit):
                by = next((one.name for one in ranges if _has_default(one, name)), "")
                said = f'spec.{field}.resources.requests: Invalid value: "{written}": must be less than or equal to '
                said += f"{name} limit of {limit}"
                found.append(AdmissionRefusal(VALIDATION, said, f"{field}.resources.requests.{name}", by))
    return found


def _has_default(limit_range: LimitRange, name: str) -> bool:
    return any(name in item.default for item in _items([limit_range], "Container"))


def _items(ranges: Iterable[LimitRange], type_: str) -> Iterator[LimitRangeItem]:
    return (completed(item) for one in ranges for item in one.spec.limits if item.type == type_)


def _containers(spec: core.PodSpec) -> Iterator[tuple[str, core.Container]]:
    for part, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield f"{part}[{index}]", container


def only(spec: core.PodSpec, part: str) -> core.PodSpec:
    """The spec with the requests, or the limits in their place, of its containers and nothing beside them."""

    def one(container: core.Container) -> core.Container:
        given = container.resources
        asked = {**given.limits, **given.requests} if part == "requests" else given.limits
        return msgspec.structs.replace(container, resources=core.ResourceRequirements(requests=asked))

    return msgspec.structs.replace(
        spec, containers=[one(c) for c in spec.containers], init_containers=[one(c) for c in spec.init_containers]
    )


def _broken(item: LimitRangeItem, asked: core.ResourceRequirements, field: str, by: str) -> Iterator[AdmissionRefusal]:
    requests, limits = {**asked.limits, **asked.requests}, asked.limits
    for name, bound in sorted(item.min.items()):
        said = f"minimum {name} usage per {item.type} is {bound}"
        yield from _below(said, name, bound, requests, limits, field, by)
    for name, bound in sorted(item.max.items()):
        said = f"maximum {name} usage per {item.type} is {bound}"
        yield from _above(said, name, bound, requests, limits, field, by)
    for name, bound in sorted(item.max_limit_request_ratio.items()):
        said = f"{name} max limit to request ratio per {item.type} is {bound}"
        yield from _ratio(said, name, bound, requests, limits, field, by)


Asked = Mapping[str, str | int | float]


def _below(
    said: str, name: str, bound: str | int | float, requests: Asked, limits: Asked, field: str, by: str
) -> Iterator[AdmissionRefusal]:
    if name not in requests:
        yield _refused(f"{said}.  No request is specified", field, "", name, by)
    elif _value(requests[name]) < _value(bound):
        yield _refused(f"{said}, but request is {requests[name]}", field, "requests", name, by)
    elif name in limits and _value(limits[name]) < _value(bound):
        yield _refused(f"{said}, but limit is {limits[name]}", field, "limits", name, by)


def _above(
    said: str, name: str, bound: str | int | float, requests: Asked, limits: Asked, field: str, by: str
) -> Iterator[AdmissionRefusal]:
    if name not in limits:
        yield _refused(f"{said}.  No limit is specified", field, "", name, by)
    elif _value(limits[name]) > _value(bound):
        yield _refused(f"{said}, but limit is {limits[name]}", field, "limits", name, by)
    elif name in requests and _value(requests[name]) > _value(bound):
        yield _refused(f"{said}, but request is {requests[name]}", field, "requests", name, by)


def _ratio(
    said: str, name: str, bound: str | int | float, requests: Asked, limits: Asked, field: str, by: str
) -> Iterator[AdmissionRefusal]:
    if not _value(requests.get(name, 0)):
        yield _refused(f"{said}, but no request is specified or request is 0", field, "", name, by)
    elif not _value(limits.get(name, 0)):
        yield _refused(f"{said}, but no limit is specified or limit is 0", field, "", name, by)
    elif (ratio := _value(limits[name]) / _value(requests[name])) > _value(bound):
        yield _refused(f"{said}, but provided ratio is {float(ratio):f}", field, "limits", name, by)


def _refused(said: str, field: str, part: str, name: str, by: str) -> AdmissionRefusal:
    if field == "containers":
        return AdmissionRefusal(LIMIT_RANGER, said, field, by)
    return AdmissionRefusal(LIMIT_RANGER, said, f"{field}.resources{f'.{part}.{name}' if part else ''}", by)


def _value(written: str | int | float) -> Fraction:
    return quantity.parse(written)
