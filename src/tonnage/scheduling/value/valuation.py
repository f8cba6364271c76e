"""One mix of pods weighed against one fleet: the tables that scores are looked up in."""

from __future__ import annotations

import numpy as np

from tonnage.fleet.asks import FULL, Kind
from tonnage.fleet.state import Fleet
from tonnage.scheduling.value.choices import PRECISION, Choices, Weights
from tonnage.scheduling.value.fragment import Fragments
from tonnage.scheduling.value.mix import Mix, NodeKind, kinds_of
from tonnage.scheduling.value.states import DeviceDemand, Ints, NodeStates, States
from tonnage.scheduling.value.worth import block_shares, cores_per_device, linear, priced, scarcity

STEEPNESS = 3
"""The price of a kind of node is its scarcity to this power: little until most of it is spoken for."""


class Valuation:
    """Typical pods, worth, prices and the states of the nodes, for one mix. Where worth has a weight, it is by the
    duals of the packing program, otherwise idle devices are worth what they are.

    ``price``: by kind of node, from 0 to 1; kinds that are worth the same are one here. ``per_core``: thousandths of a
    device for which the mix wants a millicore; 0 where that does not count. ``plain``: all devices are open and no pod
    takes memory apart from compute, so that states say what fits."""

    def __init__(self, fleet: Fleet, mix: Mix, weights: Weights) -> None:
        self.fleet = fleet
        self.mix = mix
        self.weights = weights
        kind_of, kinds = kinds_of(fleet, mix.rules)
        worth = priced(mix, kinds) if weights.worth > 0 else linear(len(kinds))
        prices = scarcity(mix, kinds) ** STEEPNESS
        alike: dict[tuple[object, ...], int] = {}
        self._kinds: dict[object, int] = {}
        for number, kind in enumerate(kinds):
            same = kind.admits, prices[number], worth.cpu[number], worth.memory[number], tuple(worth.device[number])
            known = alike.setdefault(same, number)
            self._kinds[_identity(kind)] = known
        kind_of = np.array([*self._kinds.values(), -1], np.int64)[kind_of]
        self.fragments = Fragments(mix, kinds)
        per_device = cores_per_device(mix, kinds) if weights.stranded else 0.0
        self.per_core = FULL / per_device if per_device else 0.0
        self.price = prices
        self.worth = worth
        self.states = States(self.fragments, worth, block_shares(mix))
        self.cores: list[int] = self.fragments.cores.tolist()
        self.buckets = self.fragments.buckets
        self._topology_revision = fleet.topology_revision
        self._shapes = 0
        self._separate = False
        self.plain = self._is_plain()
        self.nodes = NodeStates(fleet, self.states, kind_of, self.per_core, plain=self.plain)
        shares = any(ask.count and ask.milli < FULL for ask in mix.asks)
        self._packing = -PRECISION * (weights.packing if shares else weights.packing_whole)
        self._choices: dict[tuple[DeviceDemand, bool], Choices] = {}
        self._listed: dict[bytes, list[int]] = {}

    def choices(self, demand: DeviceDemand, *, complete: bool = False) -> Choices:
        """The choices of devices for the demand, one table for all who ask."""
        known = self._choices.get((demand, complete))
        if known is None:
            prices = self.price * (-PRECISION * self.weights.scarcity * (demand.devices > 0))
            known = self._choices[demand, complete] = Choices(
                demand, self.states, self.weights, self._packing, prices.tolist(), complete=complete
            )
        return known

    def listed(self, amounts: Ints) -> list[int]:
        """The amounts as a list, one for all views that have the same: most differ in nothing but the devices."""
        known = self._listed.get(key := amounts.tobytes())
        if known is None:
            known = self._listed[key] = amounts.tolist()
        return known

    def covers(self) -> bool:
        """Whether the fleet has only kinds of nodes that are known here; follows nodes that came and went."""
        fleet = self.fleet
        if self._topology_revision == fleet.topology_revision:
            return True
        kind_of, kinds = kinds_of(fleet, self.mix.rules)
        known = [self._kinds.get(_identity(kind)) for kind in kinds]
        if None in known:
            return False
        self._topology_revision = fleet.topology_revision
        self._listed.clear()
        self.nodes.restart(np.array([*known, -1], np.int64)[kind_of])
        self._shapes = 0
        return True

    def refresh(self) -> None:
        """Follow pods that were bound or unbound, and shapes that are new."""
        if self._shapes != len(self.fleet.classes.shapes):
            self.plain = self._is_plain()
            self.nodes.read_as(plain=self.plain)
        self.nodes.refresh()

    def _is_plain(self) -> bool:
        """Whether the fleet is, with the shapes that it has now."""
        shapes = self.fleet.classes.shapes
        self._separate |= any(s.ask.kind is Kind.MEMORY and s.ask.separate for s in shapes[self._shapes :])
        self._shapes = len(shapes)
        return not self._separate and not bool(self.fleet.cards.special.any())


def _identity(kind: NodeKind) -> tuple[int, int, int, tuple[bool, ...]]:
    return kind.devices, kind.cpu, kind.memory, kind.admits
