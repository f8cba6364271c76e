"""Cluster events, as `kubectl get events` shows them."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.machines.mirror import Mirror, Unseen


@dataclass(slots=True)
class ClusterEvent:
    """As `kubectl get events` shows it; repeats of the same text are counted."""

    t_ns: int
    object: str
    type: str
    reason: str
    message: str
    count: int = 1


class EventLog:
    """Cluster events, aggregated by (object, reason, message)."""

    def __init__(self, mirror: Mirror | None = None) -> None:
        self.rows: dict[tuple[str, str, str], ClusterEvent] = {}
        self.mirror = mirror or Unseen()

    def add(self, t_ns: int, object_: str, type_: str, reason: str, message: str) -> None:
        """Record an event, or count it once more."""
        key = (object_, reason, message)
        known = self.rows.get(key)
        if known is None:
            self.rows[key] = ClusterEvent(t_ns, object_, type_, reason, message)
        else:
            known.count += 1
        self.mirror.event(object_, type_, reason, message)
