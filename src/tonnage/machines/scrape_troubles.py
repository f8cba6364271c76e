"""What keeps Prometheus from a sound sample: targets that do not answer, answer NaN, or whose samples come late."""

from __future__ import annotations

from dataclasses import dataclass, field

GPU_EXPORTER = "every dcgm-exporter"
"""Stands for dcgm-exporter on every node where a Service's name stands for its gateway and engines: a Service's name
has a slash."""


@dataclass(slots=True)
class ScrapeTroubles:
    """Until when (ns) a target has one of them, by the name of its Service (namespace/name) or :data:`GPU_EXPORTER`.

    ``late``: and by how many ns its samples come late, each with the time at which it was taken."""

    unscraped: dict[str, int] = field(default_factory=dict)
    not_a_number: dict[str, int] = field(default_factory=dict)
    late: dict[str, tuple[int, int]] = field(default_factory=dict)

    def unanswered(self, target: str, now_ns: int) -> bool:
        """Whether Prometheus cannot scrape it now."""
        return self.unscraped.get(target, 0) > now_ns

    def gives_nan(self, target: str, now_ns: int) -> bool:
        """Whether all that it exports now is NaN."""
        return self.not_a_number.get(target, 0) > now_ns

    def delay_ns(self, target: str, now_ns: int) -> int:
        """How much later than now its samples of now can be queried."""
        until_ns, delay_ns = self.late.get(target, (0, 0))
        return delay_ns if until_ns > now_ns else 0
