"""What ResourceClaims hold of devices, and which pods on nodes use them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tonnage.dra.allocated import AllocatedState, DeviceID
from tonnage.dra.pools import PoolKey
from tonnage.fleet.claim_asks import ClaimAsks, is_extended
from tonnage.fleet.claim_needs import ClaimKey
from tonnage.objects.dra import MOST_CONSUMERS, AllocationResult, ResourceClaim

NOTHING: frozenset[Any] = frozenset()


class Released(NamedTuple):
    """A claim that has its devices no more. ``assumed``: its status did not say so yet; ``made``: the claim, where no
    API server has it."""

    key: ClaimKey
    allocation: AllocationResult
    assumed: bool
    made: ResourceClaim | None = None


class GivenUp(NamedTuple):
    """What a pod gave up when it left its node: the claims that it used, and those that lost their devices."""

    used: tuple[ClaimKey, ...] = ()
    released: tuple[Released, ...] = ()


class ClaimLedger:
    """``asks``: the claims that there are; ``touched``: told the pools of whose devices others are held now.

    ``given``: what each claim has; ``assumed``: those whose status does not say so yet; ``made``: claims for extended
    resources that no API server is known to have; ``state``: the devices that are held; ``held``: the same of each
    pool, to be compared."""

    def __init__(self, asks: ClaimAsks, touched: Callable[[Iterable[PoolKey]], None]) -> None:
        self.given: dict[ClaimKey, AllocationResult] = {}
        asks.allocated = self.given
        self.assumed: set[ClaimKey] = set()
        self.made: set[ClaimKey] = set()
        self.state = AllocatedState()
        self.held: dict[PoolKey, frozenset[Any]] = {}
        self._claims, self._touched = asks.claims, touched
        self._users: dict[ClaimKey, set[int]] = {}
        self._uses: dict[int, tuple[ClaimKey, ...]] = {}

    # ---- devices ----

    def take(self, key: ClaimKey, allocation: AllocationResult) -> None:
        """The claim has these devices."""
        self.given[key] = allocation
        self.state.take(allocation)
        self._hold(allocation, held=True)

    def release(self, key: ClaimKey) -> AllocationResult:
        """The claim has no devices any more; those that it had."""
        allocation = self.given.pop(key)
        self.assumed.discard(key)
        self.state.release(allocation)
        self._hold(allocation, held=False)
        return allocation

    def _hold(self, allocation: AllocationResult, *, held: bool) -> None:
        pools: list[PoolKey] = []
        for one in allocation.devices.results:
            if one.admin_access:
                continue
            pool = one.driver, one.pool
            what = frozenset([(one.device, one.share_id, tuple(sorted(one.consumed_capacity.items())))])
            before = self.held.get(pool, NOTHING)
            self.held[pool] = before | what if held else before - what
            pools.append(pool)
        self._touched(pools)

    # ---- users ----

    def users(self, key: ClaimKey) -> frozenset[int]:
        """The rows of the bound pods that use the claim."""
        return frozenset(self._users.get(key, ()))

    def used_by(self, row: int) -> tuple[ClaimKey, ...]:
        """The claims that the bound pod in this row uses."""
        return self._uses.get(row, ())

    def is_full(self, key: ClaimKey, claim: ResourceClaim) -> bool:
        """Whether no more pods may use the claim."""
        return max(len(claim.status.reserved_for), len(self._users.get(key, ()))) >= MOST_CONSUMERS

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

    def leave(self, row: int, uid: str, *, reserved: bool, staying: Iterable[ClaimKey] = ()) -> GivenUp:
        """The pod in that row leaves its node: claims that it was the last to use lose the devices of which their
        status does not know. ``reserved``: so do those that are reserved for the pod, which has this uid. ``staying``:
        claims that it is to use again."""
        used, released = self.used_by(row), []
        for key in self._part(row):
            if key in staying or key not in self.given:
                continue
            if key in self.assumed or (reserved and self._is_reserved(key, uid)):
                assumed, made = key in self.assumed, self._unmade(key)
                released.append(Released(key, self.release(key), assumed, made))
        return GivenUp(used, tuple(released))

    def _unmade(self, key: ClaimKey) -> ResourceClaim | None:
        """The claim, which is no more where no API server has it."""
        if key not in self.made:
            return None
        self.made.discard(key)
        return self._claims.pop(key)

    def _is_reserved(self, key: ClaimKey, uid: str) -> bool:
        """Whether the claim is reserved for the pod, and for nobody but pods."""
        claim = self._claims.get(key)
        consumers = claim.status.reserved_for if claim is not None else []
        return any(one.uid == uid for one in consumers) and all(one.resource == "pods" for one in consumers)

    def come_back(self, row: int, left: GivenUp) -> None:
        """Undo :meth:`leave`."""
        for one in left.released:
            self.take(one.key, one.allocation)
            if one.assumed:
                self.assumed.add(one.key)
            if one.made is not None:
                self.make(one.key, one.made)
        self.join(row, left.used)

    def make(self, key: ClaimKey, claim: ResourceClaim) -> None:
        """A claim for extended resources, which no API server is known to have."""
        self._claims[key] = claim
        self.made.add(key)

    def withdraw(self, row: int, taken: Iterable[ClaimKey]) -> None:
        """The pod in that row was never bound, and these were never allocated."""
        self._part(row)
        for key in taken:
            if key in self.given:
                self.release(key)
            self._unmade(key)

    def assumed_of(self, row: int) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
        """The claims of the pod in that row whose status does not know of their devices yet, with these."""
        for key in self._uses.get(row, ()):
            if key in self.assumed:
                yield self._claims[key], self.given[key]

    def stuck(self, keys: Iterable[ClaimKey], uid: str) -> Iterator[tuple[ResourceClaim, AllocationResult]]:
        """Those of the claims that have devices, by their status, which no bound pod uses and nobody has reserved but
        the pod of this uid."""
        for key in keys:
            claim, given = self._claims.get(key), self.given.get(key)
            if claim is None or given is None or key in self.assumed or key in self._users:
                continue
            if all(one.uid == uid for one in claim.status.reserved_for):
                yield claim, given

    def violations(self, users: Mapping[ClaimKey, set[int]]) -> list[str]:
        """What does not hold: it is rebuilt from the claims' devices and compared. ``users``: the rows of the bound
        pods that use each claim, but for those that were made for their extended resources alone."""
        found, rebuilt = [], AllocatedState()
        for key, given in sorted(self.given.items()):
            if why := taken_by_others(rebuilt, key, given):
                found.append(f"{why} twice")
            rebuilt.take(given)
        state = self.state
        if (rebuilt.devices, rebuilt.shares) != (state.devices, state.shares) or rebuilt.consumed != state.consumed:
            found.append("the devices that claims hold differ from a rebuild")
        own = {key for key in self._users.keys() - users.keys() if is_extended(self._claims[key])}
        if {key: rows for key, rows in self._users.items() if key not in own} != dict(users):
            found.append("the users of claims differ from a rebuild")
        unused = sorted(self.assumed - self._users.keys())
        found += [f"claim {'/'.join(key)} has devices and no user" for key in unused]
        return found


def taken_by_others(state: AllocatedState, key: ClaimKey, allocation: AllocationResult) -> str:
    """Which of these devices of a claim others have; empty: none."""
    for one in allocation.devices.results:
        device = DeviceID(one.driver, one.pool, one.device)
        if one.admin_access:
            continue
        if device in state.devices or (one.share_id is None and state.is_held(device)):
            return f"device {device} of claim {'/'.join(key)} is allocated"
    return ""
