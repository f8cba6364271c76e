"""Decisions of controllers as they are printed: a line each, for people or for programs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tonnage.cli import answers, messages, terminal

if TYPE_CHECKING:
    from tonnage.decisions import Decision, Outcome
    from tonnage.live.healthz import Metrics


class Printed:
    """Prints decisions, one a line, and counts them."""

    def __init__(self, form: str, metrics: Metrics | None = None) -> None:
        self.form, self.metrics = form, metrics

    def decided(self, controller: str, loop: str, decision: Decision, outcome: Outcome) -> None:
        """One line: in text for people, in JSON for programs."""
        import msgspec

        from tonnage.decisions import Refused, Stale, Wait

        kind = type(outcome).__name__
        if self.form == "none":
            return
        why = outcome.why if isinstance(outcome, Refused) else outcome.changed if isinstance(outcome, Stale) else ""
        if self.form in ("json", "yaml"):
            became = {"type": kind, "why": why}
            if isinstance(outcome, Refused) and outcome.code:
                became["code"] = outcome.code
            line = {
                "time": time.time(),
                "controller": controller,
                "loop": loop,
                "decision": decision,
                "outcome": became,
            }
            if self.form == "yaml":
                terminal.echo("---")
            answers.show(msgspec.json.encode(line), self.form)
            return
        stamp = time.strftime("%H:%M:%S")
        outcome_text = f"  [{kind}: {why}]" if why else "" if isinstance(decision, Wait) else f"  [{kind}]"
        terminal.echo(f"{stamp}  {loop:<12} {decision.summary()}{outcome_text}  {decision.reason.text()}")

    def counted(self, loop: str, decision: Decision, outcome: Outcome) -> None:
        """Count it, news or not."""
        if self.metrics is not None:
            self.metrics.decided(loop, type(decision).__name__, type(outcome).__name__.lower())

    def failed(self, loop: str, error: Exception) -> None:
        """A fault, in one line."""
        messages.error(f"{loop}: {type(error).__name__}: {error}")

    def ticked(self, loop: str, seconds: float, taken: int) -> None:
        """Count it."""
        if taken and self.metrics is not None:
            self.metrics.ticked(loop, seconds)
