"""What `tonnage savings` answers: the JSON, and the table for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tonnage.cli import savings_usage, terminal
from tonnage.cli.lines import say, show_table
from tonnage.costs.commitments import Commitment
from tonnage.costs.strategies import Savings, SavingsSettings, on_usage
from tonnage.errors import InputError
from tonnage.facts import prices, savings_claims
from tonnage.simulation import run
from tonnage.simulation.report import formats
from tonnage.simulation.result import Result
from tonnage.simulation.savings import on_scenario
from tonnage.simulation.scenario import Scenario

SCHEMA = "tonnage.dev/savings/v1"


class StrategyLine(msgspec.Struct, frozen=True):
    """One strategy. ``of_before``: share of the bill before it; ``of_start``: of the first bill; ``claimed``: what
    guides promise, lowest and highest; ``served``: share of requests within the SLO, of a scenario with traffic."""

    strategy: str
    total_micro_usd: int
    saved_micro_usd: int
    of_before: float
    of_start: float
    claimed: tuple[float, float] | None
    change: str
    served: float | None
    unfinished_requests: int | None
    training_done: float | None


class SumLine(msgspec.Struct, frozen=True):
    """A sum that a guide makes: its parts, what it claims, and what the parts make one after the other."""

    name: str
    parts: tuple[tuple[str, float], ...]
    claimed: float
    compounded: float
    source: str


class SavingsReport(msgspec.Struct, frozen=True):
    """The answer. ``share``: of the first bill that all strategies save together."""

    schema: str
    usage: str
    start_micro_usd: int
    end_micro_usd: int
    saved_micro_usd: int
    share: float
    start_served: float | None
    steps: tuple[StrategyLine, ...]
    commitment: Commitment | None
    sums: tuple[SumLine, ...]
    prices_as_of: str


def of_usage(path: Path, order: Sequence[str], settings: SavingsSettings, price_file: Path | None) -> SavingsReport:
    """Of a file with node-hours. Raises InputError for what is wrong in it."""
    book = prices.load(price_file)
    found, _, commitment = on_usage(savings_usage.read(path, book), order, book, settings)
    return _report(str(path), found, commitment, (), book.as_of)


def of_scenario(
    loaded: Scenario,
    policy: str | None,
    order: Sequence[str],
    settings: SavingsSettings,
    options: run.RunOptions,
    keep: Sequence[str],
    done: Callable[[str], None],
) -> SavingsReport:
    """Of a scenario. Raises InputError for what is wrong in it."""
    name = policy or loaded.default_policy
    loaded.policy(name)
    try:
        found = on_scenario(loaded, name, order, settings, options, keep, done)
    except ValueError as error:
        raise InputError.at(str(error), file=str(loaded.folder)) from error
    usage = f"{loaded.spec.name}, {name}"
    return _report(usage, found.savings, found.commitment, found.results, found.results[0].cost.prices_as_of)


def _report(
    usage: str, savings: Savings, commitment: Commitment | None, results: Sequence[Result], as_of: str
) -> SavingsReport:
    lines, claims = [], savings_claims.claims()
    before, run_of = savings.start_micro_usd, iter(results[1:])
    last = results[0] if results else None
    for step in savings.steps:
        if last is not None and step.strategy != "commitments" and step.change != "nothing to change":
            last = next(run_of, last)
        claim = claims.get(step.strategy)
        lines.append(
            StrategyLine(
                step.strategy,
                step.total_micro_usd,
                step.saved_micro_usd,
                _share(step.saved_micro_usd, before),
                _share(step.saved_micro_usd, savings.start_micro_usd),
                None if claim is None else (claim.low, claim.high),
                step.change,
                *(_served(last) if last is not None else (None, None, None)),
            )
        )
        before = step.total_micro_usd
    asked = {step.strategy for step in savings.steps}
    sums = [one for one in savings_claims.sums() if {name for name, _ in one.parts} <= asked]
    return SavingsReport(
        SCHEMA,
        usage,
        savings.start_micro_usd,
        savings.end_micro_usd,
        savings.saved_micro_usd,
        round(savings.share, 6),
        _served(results[0])[0] if results else None,
        tuple(lines),
        commitment,
        tuple(SumLine(one.name, one.parts, one.claimed, round(one.compounded, 6), one.source) for one in sums),
        as_of,
    )


def _share(part: int, whole: int) -> float:
    return round(part / whole, 6) if whole else 0.0


def _served(result: Result) -> tuple[float | None, int | None, float | None]:
    """Share of requests within the SLO, requests that failed or did not end, and training work that was done."""
    counted = [one for service in result.services for one in (service.overall, service.grace)]
    requests = sum(one.requests for one in counted)
    training = [] if isinstance(result.training, msgspec.UnsetType) else result.training
    done = [one.progress for one in training if one.progress is not None]
    return (
        round(sum(one.met for one in counted) / requests, 6) if requests else None,
        sum(one.unfinished for one in counted) if requests else None,
        round(sum(done) / len(done), 6) if done else None,
    )


# ---- for people ----


def show(report: SavingsReport, *, quiet: bool) -> None:
    """The table: one strategy a row, what they make together, and what guides say of the same."""
    say(f"Savings on {report.usage}")
    terminal.echo()
    rows = [("", "bill", "saved", "of the step before", "of the start", "guides say")]
    rows.append(("as it is", formats.dollars(report.start_micro_usd), "", "", "", ""))
    for step in report.steps:
        rows.append(
            (
                step.strategy,
                formats.dollars(step.total_micro_usd),
                formats.dollars(step.saved_micro_usd),
                _percent(step.of_before),
                _percent(step.of_start),
                _claimed(step.claimed),
            )
        )
    saved = formats.dollars(report.saved_micro_usd)
    rows.append(("together", formats.dollars(report.end_micro_usd), saved, "", _percent(report.share), ""))
    show_table(rows)
    terminal.echo()
    for step in report.steps:
        say(f"{step.strategy}: {step.change}")
    if report.start_served is not None:
        shares = [("as it is", report.start_served), *((one.strategy, one.served) for one in report.steps)]
        told = ", ".join(f"{name} {formats.percent(share)}" for name, share in shares if name != "commitments")
        say(f"requests within the SLO: {told}")
    for one in () if quiet else report.sums:
        parts = " + ".join(f"{name} {share:.0%}" for name, share in one.parts)
        total = sum(share for _, share in one.parts)
        said = f"a guide's sum for {one.name}: {parts} = about {one.claimed:.0%}"
        say(f"{said}; added up they are {total:.0%}, one after the other {one.compounded:.1%}")
    say(f"Prices: {report.prices_as_of or 'no date'}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _claimed(claimed: tuple[float, float] | None) -> str:
    if claimed is None:
        return ""
    low, high = (f"{share:.0%}" for share in claimed)
    return low if low == high else f"{low} to {high}"
