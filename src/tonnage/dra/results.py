"""What a search has found, as the status of claims says it.

Source: k8s.io/dynamic-resource-allocation v0.36.3 structured/internal/experimental/allocator_experimental.go
(Allocate, createNodeSelector).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence

from tonnage.dra.capacity import written
from tonnage.dra.features import Features
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.pools import PoolDevice
from tonnage.dra.search import Chosen
from tonnage.dra.ways import ClaimWays, RequestOption
from tonnage.objects.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from tonnage.objects.dra import (
    NODE_NAME_FIELD,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)

_SHARES = uuid.UUID("6f3f6f58-6b9e-5a43-9a4e-0d9c5d1f6a11")
"""Namespace of share ids (RFC 9562, version 5): equal allocations of a claim get equal ids."""


def results(
    on: NodeDevices, claims: Sequence[ClaimWays], chosen: Sequence[Chosen], features: Features
) -> tuple[AllocationResult, ...]:
    """The allocation of each claim, in order."""
    return tuple(
        _allocation(on, one, [device for device in chosen if device.way.claim == at], features)
        for at, one in enumerate(claims)
    )


def _allocation(on: NodeDevices, of: ClaimWays, chosen: Sequence[Chosen], features: Features) -> AllocationResult:
    devices = [on.devices[one.device] for one in chosen]
    ways = {one.way.request: one.way for one in chosen}
    return AllocationResult(
        devices=DeviceAllocationResult(
            results=[
                _result(of.claim, number, one, device, features)
                for number, (one, device) in enumerate(zip(chosen, devices, strict=True))
            ],
            config=list(_configs(of.claim, ways)),
        ),
        node_selector=_node_selector(devices, on.node.name),
    )


def _result(
    claim: ResourceClaim, number: int, one: Chosen, device: PoolDevice, features: Features
) -> DeviceRequestAllocationResult:
    way, published = one.way, device.device
    share = None
    if device.shared:
        share = str(uuid.uuid5(_SHARES, f"{claim.metadata.uid or claim.namespace}/{claim.name}/{number}/{device.id}"))
    binding = features.device_binding_conditions
    return DeviceRequestAllocationResult(
        request=way.name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=True if way.admin else None,
        tolerations=way.asked.tolerations,
        binding_conditions=published.binding_conditions if binding else [],
        binding_failure_conditions=published.binding_failure_conditions if binding else [],
        share_id=share,
        consumed_capacity={name: written(amount) for name, amount in sorted((one.takes or {}).items())},
    )


def _configs(claim: ResourceClaim, ways: dict[str, RequestOption]) -> Iterable[DeviceAllocationConfiguration]:
    """The class's configuration of each class once, with the requests that it goes with; then the claim's own."""
    by_class: dict[str, list[str]] = {}
    classes = {}
    for request in claim.spec.devices.requests:
        way = ways.get(request.name)
        if way is not None:
            classes[way.device_class.name] = way.device_class
            by_class.setdefault(way.device_class.name, []).append(way.name)
    for name, requests in by_class.items():
        for config in classes[name].spec.config:
            yield DeviceAllocationConfiguration(source="FromClass", requests=requests, opaque=config.opaque)
    for own in claim.spec.devices.config:
        if not own.requests:
            yield DeviceAllocationConfiguration(source="FromClaim", opaque=own.opaque)
        for request in claim.spec.devices.requests if own.requests else ():
            way = ways.get(request.name)
            if request.name in own.requests or (way is not None and way.name in own.requests):
                yield DeviceAllocationConfiguration(source="FromClaim", requests=own.requests, opaque=own.opaque)


def _node_selector(devices: Sequence[PoolDevice], node: str) -> NodeSelector | None:
    """The nodes from which all devices can be reached: this one, if one of them is local to it; None: every node."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for one in devices:
        where = one.device if one.slice.spec.per_device_node_selection else one.slice.spec
        if where.node_name is not None or one.device.binds_to_node:
            only = NodeSelectorRequirement(key=NODE_NAME_FIELD, operator="In", values=[node])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[only])])
        for term in where.node_selector.node_selector_terms[:1] if where.node_selector is not None else ():
            _add(fields, term.match_fields)
            _add(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_expressions=expressions, match_fields=fields)])


def _add(to: list[NodeSelectorRequirement], more: Iterable[NodeSelectorRequirement]) -> None:
    for one in more:
        known = ((each.key, each.operator, set(each.values)) for each in to)
        if (one.key, one.operator, set(one.values)) not in list(known):
            to.append(one)
