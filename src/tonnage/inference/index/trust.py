"""Which source to believe about a worker's cache, and why: its events, what was dispatched to it, or neither.

A worker's events are believed unless there are none, messages are missing, or were lost and the index has not proved
itself since, or it has been silent although prompts that it must have cached were sent to it, or what it reported as
cached differs from what the index said. Then what was dispatched is believed, unless that differs from the reports too.
What is left is load alone. All times are handed in.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

Source: TypeAlias = Literal["exact", "approximate", "load"]


class TrustSettings(Struct, frozen=True):
    """``stale_after_ns``: silence after a dispatch that must cause events. ``max_error``: mean difference between
    blocks said and blocks reported as cached, as a share of the prompt. ``weight``: of the newest report in that mean.
    ``proof``: reports before a mean counts, and that a source needs to be believed again.

    Assumptions: an engine announces a block within its step, so ten seconds are many steps; a quarter of the prompt is
    far more than the last block, which engines compute again."""

    stale_after_ns: int = 10_000_000_000
    max_error: float = 0.25
    weight: float = 0.2
    proof: int = 8


class TrustedSource(NamedTuple):
    """The source to use. ``reason``: what spoke against a better one ("" when nothing did), ``value`` against
    ``limit`` in the reason's own unit."""

    source: Source
    reason: str = ""
    value: float = 0.0
    limit: float = 0.0


class _Error:
    """A running mean of errors, and how many there were."""

    __slots__ = ("count", "mean")

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0

    def add(self, error: float, weight: float) -> None:
        self.count += 1
        self.mean += (error - self.mean) * max(weight, 1 / self.count)


class WorkerTrust:
    """What is known about one worker's sources."""

    __slots__ = ("_approximate", "_exact", "_gap", "_heard", "_lost", "_owed_ns", "_settings")

    def __init__(self, settings: TrustSettings) -> None:
        self._settings = settings
        self._exact = _Error()
        self._approximate = _Error()
        self._heard = False
        self._gap = False
        self._lost = 0
        self._owed_ns: int | None = None

    def dispatched(self, new_blocks: int, now_ns: int) -> None:
        """A prompt was sent of which the index knew all but ``new_blocks`` full blocks: events are due for those."""
        if new_blocks > 0 and self._owed_ns is None:
            self._owed_ns = now_ns

    def heard(self, gap: bool, lost: int = 0) -> None:
        """Events came (or time passed on a stream): whether messages are missing now, how many were given up."""
        self._heard = True
        self._owed_ns = None
        self._gap = gap
        if lost:
            self._lost += lost
            self._exact = _Error()

    def answered(self) -> None:
        """Another rank of the worker announced blocks: a prompt that was sent there may have gone to that rank."""
        self._owed_ns = None

    def restarted(self) -> None:
        """The worker began again, and the index with it: what was lost does not matter any more."""
        self._lost = 0
        self._gap = False
        self._exact = _Error()
        self._approximate = _Error()

    def reported(self, exact: int, approximate: int, cached: int, blocks: int) -> None:
        """The engine says that ``cached`` of a prompt's ``blocks`` were hit; the sources had said the other two."""
        settings = self._settings
        whole = max(blocks, 1)
        self._exact.add(abs(exact - cached) / whole, settings.weight)
        self._approximate.add(abs(approximate - cached) / whole, settings.weight)
        if self._lost and self._exact.count >= settings.proof and self._exact.mean <= settings.max_error:
            self._lost = 0

    def verdict(self, now_ns: int) -> TrustedSource:
        """The best source that may be believed."""
        settings = self._settings
        against = self._against_exact(now_ns)
        if against is None:
            return TrustedSource("exact")
        error = self._approximate
        if error.count >= settings.proof and error.mean > settings.max_error:
            return TrustedSource("load", "dispatches disagree with reported hits", error.mean, settings.max_error)
        return against

    def _against_exact(self, now_ns: int) -> TrustedSource | None:
        settings = self._settings
        if not self._heard:
            return TrustedSource("approximate", "no events")
        if self._gap:
            return TrustedSource("approximate", "messages missing")
        if self._lost:
            return TrustedSource("approximate", "messages lost", float(self._lost))
        if self._owed_ns is not None and now_ns - self._owed_ns > settings.stale_after_ns:
            silent = float(now_ns - self._owed_ns)
            return TrustedSource("approximate", "silent since a dispatch", silent, float(settings.stale_after_ns))
        if self._exact.count >= settings.proof and self._exact.mean > settings.max_error:
            return TrustedSource(
                "approximate", "events disagree with reported hits", self._exact.mean, settings.max_error
            )
        return None
