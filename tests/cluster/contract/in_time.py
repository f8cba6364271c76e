"""A scenario with training in running time: what becomes of its gangs and pods, seen from the API."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tonnage.cluster.client.transport import ClientError
from tonnage.cluster.client.verbs import Client, JsonObject
from tonnage.cluster.resources import PODS
from tonnage.cluster.server.inprocess import InProcess
from tonnage.decisions import Applied, Decision, Outcome
from tonnage.fleet.invariants import violations
from tonnage.hollow.up import Settings, Up
from tonnage.simulation.run import SetUp
from tonnage.simulation.training.workload import Training

LOOK_S = 0.05


@dataclass
class Seen:
    """Implements Observer. ``halves``: for how many real seconds a gang was held in part without a break, at most.
    ``disturbed``: whether the disturbance came before the end; ``succeeded``: the pods that have done their work."""

    errors: list[str] = field(default_factory=list)
    applied: Counter[str] = field(default_factory=Counter)
    halves: float = 0.0
    disturbed: bool = False
    over: bool = False
    succeeded: set[str] = field(default_factory=set)
    _since: dict[str, float] = field(default_factory=dict)

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        if isinstance(outcome, Applied):
            self.applied[type(decision).__name__] += 1

    def failed(self, loop: str, error: Exception) -> None:
        self.errors.append(f"{loop}: {error}")

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        return

    def look(self, made: SetUp, pods: list[JsonObject]) -> None:
        """Which gangs are held in part now, and since when."""
        standing = {one["metadata"]["name"] for one in pods if _stands(one)}
        self.succeeded |= {one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Succeeded"}
        now = time.monotonic()
        half = {key for one in made.cluster.training.values() for key in _halves(one, standing, self.succeeded)}
        self._since = {key: self._since.get(key, now) for key in half}
        self.halves = max((self.halves, *(now - since for since in self._since.values())))


def _stands(pod: JsonObject) -> bool:
    ended = pod["status"].get("phase") in ("Succeeded", "Failed")
    return bool(pod["spec"].get("nodeName")) and not ended and "deletionTimestamp" not in pod["metadata"]


def _halves(training: Training, standing: set[str], succeeded: set[str]) -> list[str]:
    """The gangs of which some pods stand, and with those that have succeeded fewer than they take."""
    found = []
    for part in training.parts:
        members = part.replicas.keys() & (standing | succeeded)
        if part.gang is not None and part.replicas.keys() & standing and not part.enough(members):
            found.append(part.gang.key)
    return found


def played(made: SetUp, settings: Settings, patience_s: float, disturb: Callable[[], None] | None = None) -> Seen:
    """Run it until every workload is over, but not for longer than this many real seconds. ``disturb`` is called once,
    when pods have been evicted for the first time."""
    seen = Seen()
    with Up(made, settings, seen) as up:
        client = settings.client or Client(InProcess(up.server.api))  # type: ignore[union-attr]
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not seen.over:
            time.sleep(LOOK_S)
            if disturb is not None and seen.applied["Evict"] and not seen.disturbed:
                seen.disturbed = True
                disturb()
            try:
                seen.look(made, client.list(PODS))
            except ClientError:
                continue
            with up.lock:
                assert violations(made.cluster.fleet) == []
                seen.over = all(one.over for one in made.cluster.training.values()) and not made.cluster.pods
        time.sleep(2 * LOOK_S)
        seen.look(made, client.list(PODS))
    return seen
