"""Services whose engines share GPUs: what happens at one of them changes how fast another is, so they advance together,
in order of time."""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.machines.serving.service import SimulatedService


class Together:
    """Services in order of name."""

    def __init__(self, services: Iterable[SimulatedService]) -> None:
        self.services = sorted(services, key=lambda service: service.name)
        for service in self.services:
            service.together = self

    def advance(self, until_ns: int) -> None:
        """Dispatch every request that arrives before ``until_ns``, after what happens up to its arrival."""
        while True:
            arrivals = [service.next_arrival_ns for service in self.services]
            at_ns = min((at for at in arrivals if at is not None), default=until_ns)
            if at_ns >= until_ns:
                return
            self.play(at_ns)
            for service in self.services:
                service.receive(at_ns)

    def play(self, until_ns: int) -> None:
        """Let everything happen at their engines up to ``until_ns``."""
        while True:
            changes = [service.next_change_ns for service in self.services]
            at_ns = min((at for at in changes if at is not None), default=until_ns + 1)
            if at_ns > until_ns:
                return
            for service in self.services:
                service.happen(at_ns)


def unite(services: Iterable[SimulatedService], now_ns: int) -> None:
    """From now on these Services advance together, with those that advance with them already. They stay so."""
    found = dict.fromkeys(services)
    known = {service.together for service in found}
    if len(known) == 1 and None not in known:
        return
    for service in tuple(found):
        service.catch_up(now_ns)
        if service.together is not None:
            found |= dict.fromkeys(service.together.services)
    Together(found)
