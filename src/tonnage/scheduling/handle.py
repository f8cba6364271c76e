"""What placement policies have in common of one fleet, as kube-scheduler hands its plugins a Handle."""

from __future__ import annotations

from tonnage.fleet.state import Fleet
from tonnage.scheduling.value.choices import Weights
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.value.valuation import Valuation
from tonnage.scheduling.view import NodeTable

DRIFT = 0.25
"""The mix is read again when the fleet's pods, or its pod classes, have become more or fewer by this share."""


class Handle:
    """The fleet, its node table, and what is left of its devices valued for the recent mix of pods.

    ``mix``: of which pods to think; None: those of the fleet, read when first asked for and again as they drift."""

    def __init__(self, fleet: Fleet, mix: Mix | None = None) -> None:
        self.fleet = fleet
        self.nodes = NodeTable(fleet)
        self._given = mix
        self._mix: Mix | None = None  # the same for all policies
        self._valuations: dict[Weights, Valuation] = {}
        self._epoch, self._as_of = 0, (-1, -1, -1)

    def epoch(self) -> int:
        """A number that is the same as long as a view holds that a policy gave: until pods, pod classes or nodes come
        or go, or what nodes are changes. Bindings do not count."""
        fleet = self.fleet
        now = len(fleet.pod_by_key), len(fleet.classes.rows), fleet.topology_revision
        if now != self._as_of:
            self._epoch, self._as_of = self._epoch + 1, now
        return self._epoch

    def valuation(self, weights: Weights) -> Valuation:
        """That of these weights: the same as before until the mix is read again, or pods come that it does not know."""
        known = self._valuations.get(weights)
        if self._mix is None or self._drifted(self._mix):
            self._mix = self._given or Mix.of(self.fleet)
        if known is None or known.mix is not self._mix or not known.covers():
            known = self._valuations[weights] = Valuation(self.fleet, self._mix, weights)
        return known

    def _drifted(self, mix: Mix) -> bool:
        if self._given is not None:
            return False
        pods, classes = len(self.fleet.pod_by_key), len(self.fleet.classes.rows)
        return abs(pods - mix.pods) > DRIFT * mix.pods or abs(classes - mix.classes) > DRIFT * mix.classes
