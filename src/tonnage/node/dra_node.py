"""A node's DRA driver as it runs: cards watched, devices offered with taints, sockets served, claims tidied up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tonnage.dra.nvidia import PublishedCard
from tonnage.node.devices import Devices
from tonnage.node.dra_api import DeviceHealthEntry
from tonnage.node.dra_driver import DraDriver, Say
from tonnage.node.dra_offer import Offer, health_entries, offered
from tonnage.node.dra_server import TIMEOUT_S
from tonnage.node.health_watch import HealthWatch
from tonnage.units import NS_PER_S

TIDY_S = 30
"""How often claims that are gone are looked for."""


class DraSockets(Protocol):
    """The sockets."""

    def ensure(self) -> None: ...

    def tell(self) -> None: ...


class DraNode:
    """``effect``: of the taints of what is not healthy."""

    def __init__(
        self, devices: Devices, driver: DraDriver, watch: HealthWatch, say: Say, effect: str, *, on_demand: bool
    ) -> None:
        self._devices, self._driver, self._watch, self._say = devices, driver, watch, say
        self._effect, self._on_demand = effect, on_demand
        self._tidied_ns: int | None = None
        self._now_ns = 0
        self._problems: tuple[str, ...] = ()

    def look(self, now_ns: int, wait_s: float = 0) -> Sequence[PublishedCard]:
        """Take in what happened, waiting up to ``wait_s`` for the first of it; what is to be published. Raises
        InputError where the driver fails."""
        for change in self._watch.take(self._devices.events(wait_s), now_ns):
            self._say(f"GPU {change.gpu} is {'healthy' if change.healthy else 'unhealthy'}: {change.message}")
        self._now_ns = now_ns
        if self._tidied_ns is None or now_ns - self._tidied_ns >= TIDY_S * NS_PER_S:
            self._tidied_ns = now_ns
            self._driver.tidy()
        found = self._found()
        for problem in found.problems:
            if problem not in self._problems:
                self._say(problem)
        self._problems = found.problems
        self._driver.offer = found
        return found.cards

    def serve(self, server: DraSockets, before: Offer) -> None:
        """Have the sockets there, and tell the kubelet where some device's health is other than ``before``."""
        server.ensure()
        if before.healthy != self._driver.offer.healthy:
            server.tell()

    def health(self, pool: str) -> list[DeviceHealthEntry]:
        """All devices, for the kubelet."""
        return health_entries(self._driver.offer, pool, self._now_ns, TIMEOUT_S)

    def _found(self) -> Offer:
        records = self._driver.journal.records()
        return offered(self._devices, records, self._watch.health, self._effect, on_demand=self._on_demand)
