"""Which devices of a node claims get, by the rules of kube-scheduler; of those that would do, the ones that leave most.

Source of the rules: k8s.io/dynamic-resource-allocation v0.36.3, structured. Where this differs from it on purpose is
said in docs/adr/0028-allocation-of-devices.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.features import Features
from tonnage.dra.node_devices import DeviceLayouts, NodeDevices
from tonnage.dra.pools import NodeView, Slices
from tonnage.dra.reasons import RequestRefusal, refusals
from tonnage.dra.results import results
from tonnage.dra.search import Chosen, DeviceSearch, OutOfSteps, SelectorFailed
from tonnage.dra.selecting import Compiler, Selectors
from tonnage.dra.ways import ClaimWays, NotAllocatable, Reader
from tonnage.objects.dra import AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

STEPS = 20_000
"""Devices that a search may try before it gives up: a second or so."""


class Feasibility(StrEnum):
    """What became of claims on a node. NOT_DECIDED is no answer: the search was given up, and they may fit."""

    ALLOCATED = "allocated"
    DOES_NOT_FIT = "does not fit"
    NOT_DECIDED = "not decided in time"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Allocation:
    """``results``: of each claim, in order, what goes into its status (ALLOCATED). ``reasons``: of each request what
    there is for it (DOES_NOT_FIT). ``pools``: unusable pools of the node, with why. ``error``: what is wrong with
    the claims, a class or a selector (ERROR). ``steps``: what the search took."""

    feasibility: Feasibility
    results: tuple[AllocationResult, ...] = ()
    reasons: tuple[RequestRefusal, ...] = ()
    pools: tuple[str, ...] = ()
    error: str = ""
    steps: int = 0

    def __str__(self) -> str:
        """What became of the claims, in a line for each reason."""
        said = [self.error] if self.error else [*map(str, self.reasons), *self.pools]
        return "\n".join([self.feasibility.value, *said])


class Allocator:
    """Allocates claims on nodes by what drivers have published.

    Made once for the slices, classes and rules of a moment; what does not change between claims and nodes is kept.
    Whoever allocates a claim adds its result to the ``AllocatedState`` of the next call."""

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        classes: Iterable[DeviceClass],
        *,
        compiler: Compiler | None = None,
        features: Features | None = None,
        taint_rules: Iterable[DeviceTaintRule] = (),
    ) -> None:
        self.features = features if features is not None else Features()
        self._slices = Slices(slices, self.features, taint_rules)
        self._classes = {one.name: one for one in classes}
        if compiler is None:
            from tonnage.dra.compiled import cel_compiler  # CEL is for clusters with claims alone

            compiler = cel_compiler(self.features)
        self._selectors = Selectors(compiler)
        self._layouts = DeviceLayouts()
        self._nodes: dict[str, NodeDevices] = {}

    def devices(self, node: NodeView) -> NodeDevices:
        """The devices that a node sees."""
        known = self._nodes.get(node.name)
        if known is None or known.node.labels != node.labels:
            known = NodeDevices(node, self._slices.pools(node), self._layouts)
            self._nodes[node.name] = known
        return known

    def allocate(
        self, claims: Sequence[ResourceClaim], node: NodeView, state: AllocatedState, *, steps: int = STEPS
    ) -> Allocation:
        """Devices on the node for all of the claims, or for none. ``state`` is what other claims hold; it is not
        changed. ``steps``: the most devices to try. What is allocated depends on the arguments alone."""
        on = self.devices(node)
        reader = Reader(on, self._classes, state, self._selectors, self.features)
        try:
            read = reader.read(claims)
            search = _searched(on, state, reader, read, steps)
        except (NotAllocatable, SelectorFailed) as error:
            return Allocation(Feasibility.ERROR, error=str(error))
        except OutOfSteps:
            return Allocation(Feasibility.NOT_DECIDED, pools=_unusable(on), steps=steps)
        if isinstance(search, DeviceSearch):
            if search.clashed:
                return Allocation(Feasibility.ERROR, error=search.clashed, steps=search.steps)
            reasons = tuple(refusals(reader, read))
            return Allocation(Feasibility.DOES_NOT_FIT, reasons=reasons, pools=_unusable(on), steps=search.steps)
        chosen, taken = search
        return Allocation(Feasibility.ALLOCATED, results=results(on, read, chosen, self.features), steps=taken)


def _unusable(on: NodeDevices) -> tuple[str, ...]:
    return tuple(f"pool {pool.name} {pool.unusable}" for pool in on.pools if pool.unusable)


def _searched(
    on: NodeDevices, state: AllocatedState, reader: Reader, claims: Sequence[ClaimWays], steps: int
) -> tuple[list[Chosen], int] | DeviceSearch:
    """What was chosen and the steps that it took, or the search that found nothing. Where a selector has no value
    for some device, kube-scheduler's order decides whether that matters, so that order goes first."""
    is_broken = any(way.broken for claim in claims for ways in claim.requests for way in ways)
    first: DeviceSearch | None = None
    if is_broken:
        first = DeviceSearch(on, state, reader, claims, published=True)
        if not first.run(steps):
            return first
    search = DeviceSearch(on, state, reader, claims, published=False)
    try:
        found = search.run(steps if first else -(-steps // 2))
    except OutOfSteps:
        if first is None:
            first = DeviceSearch(on, state, reader, claims, published=True)
            if not first.run(steps // 2):
                return first
        return first.chosen, steps
    if found:
        return search.chosen, search.steps
    return (first.chosen, first.steps) if first else search


def allocate(
    claims: Sequence[ResourceClaim],
    node: NodeView,
    *,
    slices: Iterable[ResourceSlice],
    classes: Iterable[DeviceClass],
    compiler: Compiler | None = None,
    state: AllocatedState | None = None,
    features: Features | None = None,
    taint_rules: Iterable[DeviceTaintRule] = (),
    steps: int = STEPS,
) -> Allocation:
    """The same in one call, for one node and some claims."""
    allocator = Allocator(slices, classes, compiler=compiler, features=features, taint_rules=taint_rules)
    return allocator.allocate(claims, node, state if state is not None else AllocatedState(), steps=steps)
