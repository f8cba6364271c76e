"""ResourceClaims of the cluster: what may be allocated, what is, and which pods on nodes use it.

What is held of devices changes with bindings (:meth:`tonnage.fleet.state.Fleet.bind`) and with what is seen of claims.
Why it is here: docs/adr/0029-claims-in-the-fleet.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from tonnage.dra.allocated import AllocatedState, DeviceID
from tonnage.dra.allocator import Allocation, Allocator, Feasibility
from tonnage.dra.features import Features
from tonnage.dra.node_devices import NodeDevices
from tonnage.dra.pools import NodeView, PoolKey
from tonnage.fleet.claim_needs import NO_CLAIMS, ClaimKey, ClaimNeed, PodClaim, pod_claims
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, ObjectMeta, OwnerReference
from tonnage.objects.dra import (
    MOST_CONSUMERS,
    POD_CLAIM_NAME,
    V1,
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

_SHARED = "="
"""Marks, among what a class asks for, a claim that counts by its name."""
_CHANGES_KEPT = 1 << 14
_ANSWERS_KEPT = 1 << 17


Planned: TypeAlias = tuple[int, tuple[str, ...]] | None
"""How many GPUs claims take, and the instance types whose GPUs will do; None: none will."""


class Released(NamedTuple):
    """A claim that has its devices no more. ``assumed``: its status did not say so yet."""

    key: ClaimKey
    allocation: AllocationResult
    assumed: bool


class CannotAllocate(Exception):
    """Claims that have no devices on a node; says why."""


class DeviceClaims:
    """Slices, classes, taint rules, templates and claims as they are now, and what of the devices is held.

    ``makes``: claims of pods that no API server has are made here, as the resource claim controller would,
    under the name POD-CLAIM."""

    def __init__(
        self, objects: Iterable[KubeObject] = (), *, makes: bool = False, features: Features | None = None
    ) -> None:
        self.makes = makes
        self.features = features if features is not None else Features()
        self.claims: dict[ClaimKey, ResourceClaim] = {}
        self.templates: dict[ClaimKey, ResourceClaimTemplate] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes: dict[str, DeviceClass] = {}
        self.rules: dict[str, DeviceTaintRule] = {}
        self.state = AllocatedState()
        self.opened = 0
        """Goes up when devices are published or given up, so that claims may be allocated which could not be."""
        self._given: dict[ClaimKey, AllocationResult] = {}
        self._assumed: set[ClaimKey] = set()
        self._users: dict[ClaimKey, set[int]] = {}
        self._uses: dict[int, tuple[ClaimKey, ...]] = {}
        self._made: dict[ClaimKey, Mapping[str, str | None]] = {}
        self._asked: dict[str, ResourceClaim] = {}
        self._allocator: Allocator | None = None
        self._reach: dict[PoolKey, frozenset[str] | None] = {}
        self._held: dict[PoolKey, frozenset[Any]] = {}
        self._changes: list[frozenset[str] | None] = []
        self._dropped = 0
        self._answers: dict[tuple[str, tuple[str, ...]], dict[tuple[Any, ...], tuple[NodeDevices, str]]] = {}
        self._count = 0
        self._planned: dict[tuple[str, ...], Planned] = {}
        for one in objects:
            self.see(one)

    # ---- what there is ----

    def see(self, one: KubeObject) -> bool:
        """Note an object; whether it is one that counts here."""
        match one:
            case ResourceClaim():
                self._see_claim(one)
            case ResourceClaimTemplate():
                self.templates[_key(one)] = one
            case ResourceSlice():
                self.slices[one.name] = one
                self._published()
            case DeviceClass():
                self.classes[one.name] = one
                self._published()
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
                key = _key(one)
                if self.claims.pop(key, None) is not None and key in self._given:
                    self._release(key)
                    self.opened += 1
            case ResourceClaimTemplate():
                self.templates.pop(_key(one), None)
            case ResourceSlice():
                self.slices.pop(one.name, None)
                self._published()
            case DeviceClass():
                self.classes.pop(one.name, None)
                self._published()
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

    def _see_claim(self, claim: ResourceClaim) -> None:
        key, said = _key(claim), claim.status.allocation
        self.claims[key] = claim
        known = self._given.get(key)
        if said is None:
            if known is not None and key not in self._assumed:
                self._release(key)
                self.opened += 1
        elif known is None or known.devices != said.devices:
            if known is not None:
                self._release(key)
            self._take(key, said)
        if said is not None:
            self._assumed.discard(key)

    def note_pod(self, namespace: str, pod: str, statuses: Iterable[Mapping[str, Any]]) -> bool:
        """The claims that were made for a pod, by its ``status.resourceClaimStatuses``; whether that is news."""
        made = {str(one.get("name", "")): one.get("resourceClaimName") for one in statuses}
        if self._made.get((namespace, pod), {}) == made:
            return False
        if made:
            self._made[namespace, pod] = made
        else:
            self._made.pop((namespace, pod), None)
        return True

    # ---- what a pod needs ----

    def need(self, namespace: str, pod: str, uid: str, written: Sequence[Mapping[str, Any]]) -> ClaimNeed:
        """What the claims of a pod ask, by its ``spec.resourceClaims``. ``uid``: empty where no API server has it."""
        if not written:
            return NO_CLAIMS
        keys: list[ClaimKey] = []
        asks: list[str] = []
        for one in pod_claims(written):
            name = one.claim or self._name_of(namespace, pod, one, makes=self.makes and not uid)
            if name is None:
                if one.name in self._made.get((namespace, pod), {}):
                    continue  # the template asks for nothing: no claim is needed
                return ClaimNeed(f'pod "{namespace}/{pod}": ResourceClaim not created yet')
            claim = self.claims.get((namespace, name))
            if claim is None:
                return ClaimNeed(f'resourceclaim.resource.k8s.io "{name}" not found')
            if claim.metadata.deletion_timestamp:
                return ClaimNeed(f'resourceclaim "{name}" is being deleted')
            key = namespace, name
            keys.append(key)
            asks.append(self._ask(key, claim) if one.template else f"{_SHARED}{namespace}/{name}")
        return ClaimNeed("", tuple(keys), tuple(asks))

    def _name_of(self, namespace: str, pod: str, one: PodClaim, *, makes: bool) -> str | None:
        made = self._made.get((namespace, pod), {})
        if one.name in made or not makes:
            return made.get(one.name)
        template = self.templates.get((namespace, one.template))
        name = f"{pod}-{one.name}"
        if template is None:
            return None
        if (namespace, name) not in self.claims:
            meta = ObjectMeta(
                name=name,
                namespace=namespace,
                labels=template.spec.metadata.labels,
                annotations={POD_CLAIM_NAME: one.name},
                owner_references=[OwnerReference(api_version="v1", kind="Pod", name=pod, controller=True)],
            )
            made_of = ResourceClaim(api_version=V1, kind="ResourceClaim", metadata=meta, spec=template.spec.spec)
            self.see(made_of)
        return name

    def _ask(self, key: ClaimKey, claim: ResourceClaim) -> str:
        if key in self._given:
            return f"{_SHARED}{key[0]}/{key[1]}"
        text = msgspec.json.encode(claim.spec, order="sorted").decode()
        self._asked.setdefault(text, claim)
        return text

    def claim_of(self, ask: str) -> ResourceClaim | None:
        """A claim that asks for that; the one of the name, where it counts by its name."""
        if not ask.startswith(_SHARED):
            return self._asked.get(ask)
        namespace, _, name = ask[1:].partition("/")
        return self.claims.get((namespace, name))

    # ---- where they can be allocated ----

    def allocation_of(self, key: ClaimKey) -> AllocationResult | None:
        """The devices of a claim, those counted that its status does not say yet."""
        return self._given.get(key)

    def users(self, key: ClaimKey) -> frozenset[int]:
        """The rows of the bound pods that use the claim."""
        return frozenset(self._users.get(key, ()))

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

    def standing(self, asks: Iterable[str]) -> list[object]:
        """What, beside devices that are held, the answer of :meth:`refusal` hangs on: of each claim that counts by its
        name what it has, and whether more pods may use it. Compared by identity."""
        found: list[object] = []
        for ask in asks:
            claim = self.claim_of(ask) if ask.startswith(_SHARED) else None
            key = _key(claim) if claim is not None else ("", "")
            found += (self._given.get(key), claim is not None and self._is_full(key, claim))
        return found

    def refusal(self, asks: tuple[str, ...], node: NodeView) -> str:
        """Why these claims cannot be had on the node together; empty where they can."""
        pending = []
        for ask in asks:
            claim = self.claim_of(ask)
            if claim is None:
                return NOT_AVAILABLE
            key = _key(claim)
            given = self._given.get(key) if ask.startswith(_SHARED) else None
            if given is None:
                pending.append((ask, claim))
            elif self._is_full(key, claim):
                return IN_USE
            elif not _reaches(given, node):
                return NOT_AVAILABLE
        return self._answer(pending, node) if pending else ""

    def _is_full(self, key: ClaimKey, claim: ResourceClaim) -> bool:
        """Whether no more pods may use the claim."""
        return max(len(claim.status.reserved_for), len(self._users.get(key, ()))) >= MOST_CONSUMERS

    def _answer(self, pending: Sequence[tuple[str, ResourceClaim]], node: NodeView) -> str:
        on = self.allocator.devices(node)
        held = tuple([self._held.get(pool.key, _NOTHING) for pool in on.pools])
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

    def look(self, keys: Iterable[ClaimKey], node: NodeView) -> Allocation | None:
        """What the allocator says of those of the claims that have no devices yet; None: each has some."""
        pending = [claim for key in keys if key not in self._given and (claim := self.claims.get(key)) is not None]
        return self.allocator.allocate(pending, node, self.state) if pending else None

    def count(self, asks: tuple[str, ...], node: NodeView, most: int) -> int:
        """At most how many pods that ask for this can have their claims on the node, as far as ``most``. A claim that
        counts by its name may be used by any number of them."""
        if not most or self.refusal(asks, node):
            return 0
        pending = [claim for ask in asks if not ask.startswith(_SHARED) and (claim := self.claim_of(ask)) is not None]
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
    ) -> tuple[ClaimKey, ...]:
        """The pod in that row comes to the node: allocate those of its claims that have no devices, as ``given`` or as
        found, all or none, and say which. Raises CannotAllocate."""
        found: dict[ClaimKey, AllocationResult] = {}
        if why := self.overtaken(keys, node, given):
            raise CannotAllocate(why)
        pending = [self.claims[key] for key in keys if key not in self._given]
        if pending and given is not None:
            found = {_key(one): given[_key(one)] for one in pending}
        elif pending:
            said = self.allocator.allocate(pending, node, self.state)
            if said.feasibility is not Feasibility.ALLOCATED:
                raise CannotAllocate(_text(said))
            found = {_key(one): result for one, result in zip(pending, said.results, strict=True)}
        for key, allocation in found.items():
            self._take(key, allocation)
            self._assumed.add(key)
        self.join(row, keys)
        return tuple(found)

    def overtaken(
        self, keys: Iterable[ClaimKey], node: NodeView, given: Mapping[ClaimKey, AllocationResult] | None
    ) -> str:
        """Why a pod with these claims cannot use them on the node as was thought: one has other devices, or none and is
        not ``given`` any, or somebody has those. Empty where it can. ``given`` None: what has none is found some."""
        found: dict[ClaimKey, AllocationResult] = {}
        for key in keys:
            name, has, wanted = "/".join(key), self._given.get(key), (given or {}).get(key)
            claim = self.claims.get(key)
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
            if self._is_full(key, claim):
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

    def join(self, row: int, keys: tuple[ClaimKey, ...]) -> None:
        """The pod in that row uses these claims, whatever they have."""
        self._uses[row] = keys
        for key in keys:
            self._users.setdefault(key, set()).add(row)

    def _part(self, row: int) -> list[ClaimKey]:
        """The pod in that row uses no claim any more: those that nobody uses now."""
        unused = []
        for key in self._uses.pop(row, ()):
            self._users[key].discard(row)
            if not self._users[key]:
                del self._users[key]
                unused.append(key)
        return unused

    def leave(self, row: int, uid: str, *, reserved: bool) -> tuple[Released, ...]:
        """The pod in that row leaves its node: claims that it was the last to use lose the devices of which their
        status does not know. ``reserved``: so do those that are reserved for the pod, which has this uid."""
        released = []
        for key in self._part(row):
            if key in self._given and (key in self._assumed or (reserved and self._is_reserved(key, uid))):
                assumed = key in self._assumed
                released.append(Released(key, self._release(key), assumed))
        return tuple(released)

    def _is_reserved(self, key: ClaimKey, uid: str) -> bool:
        """Whether the claim is reserved for the pod, and for nobody but pods."""
        claim = self.claims.get(key)
        consumers = claim.status.reserved_for if claim is not None else []
        return any(one.uid == uid for one in consumers) and all(one.resource == "pods" for one in consumers)

    def come_back(self, row: int, keys: tuple[ClaimKey, ...], released: Iterable[Released]) -> None:
        """Undo :meth:`leave`."""
        for one in released:
            self._take(one.key, one.allocation)
            if one.assumed:
                self._assumed.add(one.key)
        self.join(row, keys)

    def withdraw(self, row: int, taken: Iterable[ClaimKey]) -> None:
        """Undo :meth:`bind`, which allocated these."""
        self._part(row)
        for key in taken:
            if key in self._given:
                self._release(key)

    def assumed_of(self, row: int) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
        """The claims of the pod in that row whose status does not know of their devices yet, with these."""
        for key in self._uses.get(row, ()):
            if key in self._assumed:
                yield self.claims[key], self._given[key]

    def stuck(self, keys: Iterable[ClaimKey], uid: str) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
        """Those of the claims that have devices, by their status, which no bound pod uses and nobody has reserved but
        the pod of this uid."""
        for key in keys:
            claim, given = self.claims.get(key), self._given.get(key)
            if claim is None or given is None or key in self._assumed or key in self._users:
                continue
            if all(one.uid == uid for one in claim.status.reserved_for):
                yield claim, given

    def reserve(self, row: int, pod: str, uid: str) -> None:
        """The status of the claims that the pod in that row uses says what they have, and that they are reserved for
        it: where no API server keeps it."""
        for key in self._uses.get(row, ()):
            claim = self.claims[key]
            consumer = ResourceClaimConsumerReference(resource="pods", name=pod, uid=uid)
            consumers = [*claim.status.reserved_for, consumer]
            status = ResourceClaimStatus(allocation=self._given.get(key), reserved_for=consumers)
            self.claims[key] = msgspec.structs.replace(claim, status=status)
            self._assumed.discard(key)

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
            if POD_CLAIM_NAME in claim.metadata.annotations and any(one.name == pod for one in owners):
                self.forget(claim)

    def unallocated(self) -> DeviceClaims:
        """The same objects, those to come too, with nothing allocated."""
        made = DeviceClaims(makes=self.makes, features=self.features)
        made.claims = self.claims
        made.templates, made.slices, made.classes, made.rules = self.templates, self.slices, self.classes, self.rules
        made._made, made._asked = self._made, self._asked
        return made

    # ---- what is held ----

    def violations(self, users: Mapping[ClaimKey, set[int]]) -> list[str]:
        """What does not hold of the ledger: it is rebuilt from the claims' devices and compared. ``users``: the rows
        of the bound pods that use each claim."""
        found, rebuilt = [], AllocatedState()
        for key, given in sorted(self._given.items()):
            if why := taken_by_others(rebuilt, key, given):
                found.append(f"{why} twice")
            rebuilt.take(given)
        state = self.state
        if (rebuilt.devices, rebuilt.shares) != (state.devices, state.shares) or rebuilt.consumed != state.consumed:
            found.append("the devices that claims hold differ from a rebuild")
        if self._users != dict(users):
            found.append("the users of claims differ from a rebuild")
        found += [f"claim {'/'.join(key)} has devices and no user" for key in sorted(self._assumed - users.keys())]
        return found

    def _take(self, key: ClaimKey, allocation: AllocationResult) -> None:
        self._given[key] = allocation
        self.state.take(allocation)
        self._hold(allocation, held=True)

    def _release(self, key: ClaimKey) -> AllocationResult:
        allocation = self._given.pop(key)
        self._assumed.discard(key)
        self.state.release(allocation)
        self._hold(allocation, held=False)
        return allocation

    def _hold(self, allocation: AllocationResult, *, held: bool) -> None:
        """Note what is held of each pool, as answers are kept by it."""
        self.allocator  # noqa: B018 (which nodes a pool reaches is known with it)
        touched: set[str] | None = set()
        for one in allocation.devices.results:
            if one.admin_access:
                continue
            pool = one.driver, one.pool
            what = frozenset([(one.device, one.share_id, tuple(sorted(one.consumed_capacity.items())))])
            before = self._held.get(pool, _NOTHING)
            self._held[pool] = before | what if held else before - what
            names = self._reach.get(pool)
            touched = None if touched is None or names is None else touched | names
        self._note(frozenset(touched) if touched is not None and touched else None)


_NOTHING: frozenset[Any] = frozenset()


def taken_by_others(state: AllocatedState, key: ClaimKey, allocation: AllocationResult) -> str:
    """Which of these devices of a claim others have; empty: none."""
    for one in allocation.devices.results:
        device = DeviceID(one.driver, one.pool, one.device)
        if one.admin_access:
            continue
        if device in state.devices or (one.share_id is None and state.is_held(device)):
            return f"device {device} of claim {'/'.join(key)} is allocated"
    return ""


def _key(claim: KubeObject) -> ClaimKey:
    return claim.namespace or DEFAULT_NAMESPACE, claim.name


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
