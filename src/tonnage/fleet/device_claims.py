"""ResourceClaims of the cluster: what may be allocated, what is, and which pods on nodes use it.

What is held of devices changes with bindings (:meth:`tonnage.fleet.state.Fleet.bind`) and with what is seen of claims.
What claims ask for is :mod:`tonnage.fleet.claim_asks`, what they hold :mod:`tonnage.fleet.claim_ledger`; here is where
they can be allocated. Why it is here: docs/adr/0029-claims-in-the-fleet.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from tonnage.dra import extended
from tonnage.dra.allocated import AllocatedState, DeviceID
from tonnage.dra.allocator import Allocation, Allocator, Feasibility
from tonnage.dra.features import Features
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.pools import NodeView, PoolKey
from tonnage.fleet.claim_asks import ClaimAsks, counts_by_name, is_extended, key_of
from tonnage.fleet.claim_ledger import NOTHING, ClaimLedger, taken_by_others
from tonnage.fleet.claim_needs import ClaimKey, ClaimNeed, PlannedDevices
from tonnage.objects import core
from tonnage.objects.base import KubeObject
from tonnage.objects.compute_domains import ComputeDomain, channel_template
from tonnage.objects.dra import (
    POD_CLAIM_NAME,
    AllocationResult,
    DeviceAllocationResult,
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceClaimTemplate,
    ResourceSlice,
)
from tonnage.objects.selectors import any_matches

CANNOT_ALLOCATE = "cannot allocate all claims"
NOT_AVAILABLE = "resourceclaim not available on the node"
IN_USE = "resourceclaim in use"
"""Texts of kube-scheduler's plugin DynamicResources."""
NOT_DECIDED = "whether all claims can be allocated was not decided in time"

NONE_SERVED: frozenset[str] = frozenset()
"""No extended resource is served by claims."""
_CHANGES_KEPT = 1 << 14
_ANSWERS_KEPT = 1 << 17


Planned: TypeAlias = PlannedDevices | None
"""None: no node to come has what claims ask for."""


class CannotAllocate(Exception):
    """Claims that have no devices on a node; says why."""


class DeviceClaims:
    """Slices, classes, taint rules, templates and claims as they are now, and what of the devices is held.

    ``makes``: claims of pods that no API server has are made here, as the resource claim controller would,
    under the name POD-CLAIM. ``on_served``: called when other extended resources are served by classes."""

    def __init__(
        self, objects: Iterable[KubeObject] = (), *, makes: bool = False, features: Features | None = None
    ) -> None:
        self.features = features if features is not None else Features()
        self.asks = ClaimAsks(makes=makes)
        self.ledger = ClaimLedger(self.asks, self._touch)
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.opened = 0
        """Goes up when devices are published or given up, so that claims may be allocated which could not be."""
        self.on_served: Callable[[], None] | None = None
        self._allocator: Allocator | None = None
        self._reach: dict[PoolKey, frozenset[str] | None] = {}
        self._changes: list[frozenset[str] | None] = []
        self._dropped = 0
        self._answers: dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], tuple[NodeDevices, str]]] = {}
        self._count = 0
        self._planned: dict[tuple[str, ...], Planned] = {}
        for one in objects:
            self.see(one)

    @property
    def claims(self) -> Mapping[ClaimKey, ResourceClaim]:
        """The claims that there are."""
        return self.asks.claims

    @property
    def state(self) -> AllocatedState:
        """The devices that are held."""
        return self.ledger.state

    @property
    def served(self) -> Mapping[str, str]:
        """Extended resource → the class that serves it."""
        return self.asks.served

    # ---- what there is ----

    def see(self, one: KubeObject) -> bool:
        """Note an object; whether it is one that counts here."""
        match one:
            case ResourceClaim():
                self._see_claim(one)
            case ResourceClaimTemplate():
                self.asks.templates[key_of(one)] = one
            case ComputeDomain():
                template = channel_template(one)
                self.asks.templates.setdefault(key_of(template), template)
            case ResourceSlice():
                self.slices[one.name] = one
                self._published()
            case DeviceClass():
                self.classes[one.name] = one
                self._published()
                self._serve()
            case DeviceTaintRule():
                self.rules[one.name] = one
                self._published()
            case _:
                return False
        return True

    def forget(self, one: KubeObject) -> None:
        """The object is gone."""
        match one:
            case ResourceClaim():
                key = key_of(one)
                self.asks.forget(key)
                self.ledger.made.discard(key)
                if key in self.ledger.given:
                    self.ledger.release(key)
                    self.opened += 1
            case ResourceClaimTemplate():
                self.asks.templates.pop(key_of(one), None)
            case ResourceSlice():
                self.slices.pop(one.name, None)
                self._published()
            case DeviceClass():
                self.classes.pop(one.name, None)
                self._published()
                self._serve()
            case DeviceTaintRule():
                self.rules.pop(one.name, None)
                self._published()

    def forget_node(self, name: str) -> None:
        """The node is gone, and with it what its drivers have published."""
        gone = [one for one in self.slices.values() if one.spec.node_name == name]
        for one in gone:
            self.forget(one)

    def _published(self) -> None:
        self.opened += 1
        self._allocator = None
        self._answers.clear()
        self._planned.clear()
        self._note(None)

    def _serve(self) -> None:
        served = extended.served(self.classes.values())
        if served != self.asks.served:
            self.asks.served = served
            if self.on_served is not None:
                self.on_served()

    def _see_claim(self, claim: ResourceClaim) -> None:
        key, said, ledger = key_of(claim), claim.status.allocation, self.ledger
        self.asks.see(claim)
        ledger.made.discard(key)
        known = ledger.given.get(key)
        if said is None:
            if known is not None and key not in ledger.assumed:
                ledger.release(key)
                self.opened += 1
        elif known is None or known.devices != said.devices:
            if known is not None:
                ledger.release(key)
            ledger.take(key, said)
        if said is not None:
            ledger.assumed.discard(key)

    # ---- what a pod needs ----

    def note_pod(
        self, namespace: str, pod: str, statuses: Iterable[Mapping[str, Any]], extended_claim: str = ""
    ) -> bool:
        """The claims that were made for a pod, by its ``status.resourceClaimStatuses``, and that for its extended
        resources; whether that is news."""
        return self.asks.note_pod(namespace, pod, statuses, extended_claim)

    def need(self, namespace: str, pod: str, uid: str, spec: core.PodSpec) -> ClaimNeed:
        """What the claims of a pod ask, and its extended resources that claims serve. ``uid``: empty where no API
        server has it."""
        return self.asks.need(namespace, pod, uid, spec)

    # ---- where they can be allocated ----

    def allocation_of(self, key: ClaimKey) -> AllocationResult | None:
        """The devices of a claim, those counted that its status does not say yet."""
        return self.ledger.given.get(key)

    def users(self, key: ClaimKey) -> frozenset[int]:
        """The rows of the bound pods that use the claim."""
        return self.ledger.users(key)

    def left(self, key: ClaimKey) -> list[tuple[ResourceClaim, AllocationResult]]:
        """The claim that an attempt to bind its pod has left, with what it has; none where it is given up already."""
        claim = self.claims.get(key)
        if claim is None or claim.metadata.deletion_timestamp:
            return []
        return [(claim, self.ledger.given.get(key, AllocationResult()))]

    def used_by(self, row: int) -> tuple[ClaimKey, ...]:
        """The claims that the bound pod in this row uses."""
        return self.ledger.used_by(row)

    @property
    def allocator(self) -> Allocator:
        """By what is published now."""
        if self._allocator is None:
            made = Allocator(
                [one for _, one in sorted(self.slices.items())],
                self.classes.values(),
                features=self.features,
                taint_rules=[one for _, one in sorted(self.rules.items())],
            )
            self._allocator = made
            reach: dict[PoolKey, set[str] | None] = {}
            for one in self.slices.values():
                key, name = (one.spec.driver, one.spec.pool.name), one.spec.node_name
                known = reach.setdefault(key, set())
                if known is not None and (name or not one.spec.shared_counters):
                    reach[key] = known | {name} if name else None
            self._reach = {key: frozenset(names) if names is not None else None for key, names in reach.items()}
        return self._allocator

    def _touch(self, pools: Iterable[PoolKey]) -> None:
        """Other devices of these pools are held."""
        self.allocator  # noqa: B018 (which nodes a pool reaches is known with it)
        touched: set[str] | None = set()
        for pool in pools:
            names = self._reach.get(pool)
            touched = None if touched is None or names is None else touched | names
        self._note(frozenset(touched) if touched else None)

    def standing(self, asks: Iterable[str]) -> list[object]:
        """What, beside devices that are held, the answer of :meth:`refusal` hangs on: of each claim that counts by its
        name what it has, and whether more pods may use it. Compared by identity."""
        found: list[object] = []
        for ask in asks:
            claim = self.asks.claim_of(ask) if counts_by_name(ask) else None
            key = key_of(claim) if claim is not None else ("", "")
            found += (self.ledger.given.get(key), claim is not None and self.ledger.is_full(key, claim))
        return found

    def refusal(self, asks: Sequence[str], node: NodeView, served: frozenset[str] = NONE_SERVED) -> str:
        """Why these claims cannot be had on the node together; empty where they can. ``served``: the extended resources
        that claims serve there."""
        pending = []
        for ask in self.asks.on_node(asks, served):
            claim = self.asks.claim_of(ask)
            if claim is None:
                return NOT_AVAILABLE
            key = key_of(claim)
            given = self.ledger.given.get(key) if counts_by_name(ask) else None
            if given is None:
                pending.append((ask, claim))
            elif self.ledger.is_full(key, claim):
                return IN_USE
            elif not _reaches(given, node):
                return NOT_AVAILABLE
        return self._answer(pending, node) if pending else ""

    def _answer(self, pending: Sequence[tuple[str, ResourceClaim]], node: NodeView) -> str:
        on = self.allocator.devices(node)
        held = tuple([self.ledger.held.get(pool.key, NOTHING) for pool in on.pools])
        asked = tuple([ask for ask, _ in pending])
        known = self._answers.setdefault((node.name, asked), {})
        found = known.get(held)
        if found is None or found[0] is not on:
            if self._count > _ANSWERS_KEPT:
                self._answers.clear()
                self._count = 0
            self._count += 1
            said = self.allocator.allocate([claim for _, claim in pending], node, self.state)
            found = known[held] = on, _text(said)
        return found[1]

    def planned(self, asked: tuple[str, ...], make: Callable[[Sequence[DeviceClass]], Planned]) -> Planned:
        """What is planned for claims that ask for this, as made of the classes that there are; kept until what is
        published changes."""
        if asked not in self._planned:
            self._planned[asked] = make([one for _, one in sorted(self.classes.items())])
        return self._planned[asked]

    def look(self, keys: Iterable[ClaimKey], node: NodeView, also: ResourceClaim | None = None) -> Allocation | None:
        """What the allocator says of those of the claims that have no devices yet, and of one that is not there;
        None: each has some."""
        pending = [
            claim for key in keys if key not in self.ledger.given and (claim := self.claims.get(key)) is not None
        ]
        pending += [also] if also is not None else []
        return self.allocator.allocate(pending, node, self.state) if pending else None

    def count(self, asks: Sequence[str], node: NodeView, most: int, served: frozenset[str] = NONE_SERVED) -> int:
        """At most how many pods that ask for this can have their claims on the node, as far as ``most``. A claim that
        counts by its name may be used by any number of them."""
        if not most or self.refusal(asks, node, served):
            return 0
        asks = self.asks.on_node(asks, served)
        pending = [claim for ask in asks if not counts_by_name(ask) and (claim := self.asks.claim_of(ask)) is not None]
        taken: list[AllocationResult] = []
        while pending and len(taken) < most * len(pending):
            said = self.allocator.allocate(pending, node, self.state)
            if said.feasibility is not Feasibility.ALLOCATED:
                break
            own = [msgspec.structs.replace(one, devices=_numbered(one.devices, len(taken))) for one in said.results]
            for one in own:
                self.state.take(one)
            taken += own
        for one in reversed(taken):
            self.state.release(one)
        return len(taken) // len(pending) if pending else most

    def changed_since(self, position: int) -> tuple[int, frozenset[str] | None]:
        """(position now, names of the nodes on which other devices are held or can be allocated since then). None:
        all."""
        now = self._dropped + len(self._changes)
        if position < self._dropped:
            return now, None
        found: set[str] = set()
        for names in self._changes[position - self._dropped :]:
            if names is None:
                return now, None
            found |= names
        return now, frozenset(found)

    def _note(self, names: frozenset[str] | None) -> None:
        self._changes.append(names)
        if len(self._changes) > _CHANGES_KEPT:
            self._dropped += len(self._changes)
            self._changes.clear()

    # ---- bindings ----

    def bind(
        self,
        row: int,
        keys: tuple[ClaimKey, ...],
        node: NodeView,
        given: Mapping[ClaimKey, AllocationResult] | None = None,
        made: ResourceClaim | None = None,
    ) -> tuple[ClaimKey, ...]:
        """The pod in that row comes to the node: allocate those of its claims that have no devices, as ``given`` or as
        found, all or none, and say which. ``made``: the claim for its extended resources there, which comes to be.
        Raises CannotAllocate."""
        found: dict[ClaimKey, AllocationResult] = {}
        if why := self.overtaken(keys, node, given, made):
            raise CannotAllocate(why)
        pending = [self.claims[key] for key in keys if key not in self.ledger.given]
        pending += [made] if made is not None else []
        if pending and given is not None:
            found = {key_of(one): given[key_of(one)] for one in pending}
        elif pending:
            said = self.allocator.allocate(pending, node, self.state)
            if said.feasibility is not Feasibility.ALLOCATED:
                raise CannotAllocate(_text(said))
            found = {key_of(one): result for one, result in zip(pending, said.results, strict=True)}
        if made is not None:
            self.ledger.make(key_of(made), made)
            keys = *keys, key_of(made)
        for key, allocation in found.items():
            self.ledger.take(key, allocation)
            self.ledger.assumed.add(key)
        self.ledger.join(row, keys)
        return tuple(found)

    def overtaken(
        self,
        keys: Iterable[ClaimKey],
        node: NodeView,
        given: Mapping[ClaimKey, AllocationResult] | None,
        made: ResourceClaim | None = None,
    ) -> str:
        """Why a pod with these claims cannot use them on the node as was thought: one has other devices, or none and is
        not ``given`` any, or somebody has those. Empty where it can. ``given`` None: what has none is found some.
        ``made``: a claim that comes to be with the binding."""
        found: dict[ClaimKey, AllocationResult] = {}
        for key in (*keys, key_of(made)) if made is not None else keys:
            name, has, wanted = "/".join(key), self.ledger.given.get(key), (given or {}).get(key)
            claim = made if made is not None and key == key_of(made) else self.claims.get(key)
            if claim is None:
                return f"resourceclaim {name} is gone"
            if has is None:
                if wanted is not None:
                    found[key] = wanted
                elif given is not None:
                    return f"resourceclaim {name} has no devices any more"
                continue
            if wanted is not None and wanted.devices != has.devices:
                return f"resourceclaim {name} has been allocated otherwise"
            if self.ledger.is_full(key, claim):
                return f"{IN_USE}: {name}"
            if not _reaches(has, node):
                return f"{NOT_AVAILABLE}: {name}"
        taken = (taken_by_others(self.state, key, one) for key, one in sorted(found.items()))
        return next(filter(None, taken), "") or self._unpublished(found, node)

    def _unpublished(self, found: Mapping[ClaimKey, AllocationResult], node: NodeView) -> str:
        there = {one.id for one in self.allocator.devices(node).devices}
        for key, allocation in sorted(found.items()):
            for one in allocation.devices.results:
                device = DeviceID(one.driver, one.pool, one.device)
                if device not in there:
                    return f"device {device} of claim {'/'.join(key)} is not published for node {node.name}"
        return ""

    def reserve(self, row: int, pod: str, uid: str) -> None:
        """The status of the claims that the pod in that row uses says what they have, and that they are reserved for
        it: where no API server keeps it."""
        for key in self.ledger.used_by(row):
            claim = self.claims[key]
            consumer = ResourceClaimConsumerReference(resource="pods", name=pod, uid=uid)
            consumers = [*claim.status.reserved_for, consumer]
            status = ResourceClaimStatus(allocation=self.ledger.given.get(key), reserved_for=consumers)
            self.asks.claims[key] = msgspec.structs.replace(claim, status=status)
            self.ledger.assumed.discard(key)
            self.ledger.made.discard(key)

    def give_up(self, keys: Iterable[ClaimKey], pod: str, uid: str) -> None:
        """A pod has ended that used these: as the resource claim controller, where there is none. A claim that nobody
        uses any more has no devices, and one that was made for the pod is gone."""
        for key in keys:
            claim = self.claims.get(key)
            if claim is None:
                continue
            left = [one for one in claim.status.reserved_for if one.uid != uid]
            unused = not left and len(left) < len(claim.status.reserved_for)
            given = None if unused else claim.status.allocation
            status = ResourceClaimStatus(allocation=given, reserved_for=left)
            self._see_claim(msgspec.structs.replace(claim, status=status))
            owners = claim.metadata.owner_references
            is_own = POD_CLAIM_NAME in claim.metadata.annotations or is_extended(claim)
            if is_own and any(one.name == pod for one in owners):
                self.forget(claim)

    def unallocated(self) -> DeviceClaims:
        """The same objects, those to come too, with nothing allocated."""
        made = DeviceClaims(features=self.features)
        made.asks = self.asks.unallocated()
        made.ledger = ClaimLedger(made.asks, made._touch)
        made.slices, made.classes, made.rules = self.slices, self.classes, self.rules
        return made


def _numbered(devices: DeviceAllocationResult, number: int) -> DeviceAllocationResult:
    """The same with shares of their own, where the claim that asked stands for several."""
    own = [
        msgspec.structs.replace(one, share_id=f"{one.share_id}/{number}") if one.share_id is not None else one
        for one in devices.results
    ]
    return msgspec.structs.replace(devices, results=own)


def _text(said: Allocation) -> str:
    """Why nothing was allocated, as the scheduler says it; empty where it was."""
    match said.feasibility:
        case Feasibility.ALLOCATED:
            return ""
        case Feasibility.DOES_NOT_FIT:
            return CANNOT_ALLOCATE
        case Feasibility.NOT_DECIDED:
            return NOT_DECIDED
    return f"claims cannot be allocated: {said.error}"


def _reaches(allocation: AllocationResult, node: NodeView) -> bool:
    """Whether the devices can be reached from the node."""
    selector = allocation.node_selector
    return selector is None or any_matches(selector.node_selector_terms, node.labels, node.name)
