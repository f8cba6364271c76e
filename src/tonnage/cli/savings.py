"""`tonnage savings`: what each strategy saves on one's own usage, on top of those before it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli import answers, files, messages
from tonnage.cli.options import OUTPUT, Finite
from tonnage.cli.piped import FILE, ScenarioToRead
from tonnage.cli.simulate import SEED
from tonnage.facts.tables import PIPED

if TYPE_CHECKING:
    from tonnage.cli.savings_report import SavingsReport
    from tonnage.costs.strategies import BusinessHours, SavingsSettings

STRATEGIES = ("right-sizing", "consolidation", "schedules", "spot", "checkpointing", "commitments")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"(?P<first>[a-z]{3})(-(?P<last>[a-z]{3}))? (?P<start>\d{1,2})-(?P<end>\d{1,2})")


def _business_hours(_: click.Context, __: click.Parameter, text: str) -> BusinessHours:
    """Days and hours as they are written."""
    from tonnage.costs.strategies import BusinessHours

    found = _HOURS.fullmatch(text.lower())
    expected = "expected days and hours (UTC) like Mon-Fri 8-18"
    if found is None or {found["first"], found["last"] or found["first"]} - set(_DAYS):
        raise click.BadParameter(f'"{text}", {expected}')
    first, last = (_DAYS.index(found[name] or found["first"]) for name in ("first", "last"))
    days = tuple(day % 7 for day in range(first, last + 1 if last >= first else last + 8))
    start, end = int(found["start"]), int(found["end"])
    if not start < end <= 24:
        raise click.BadParameter(f'"{text}", {expected}, and they end after they start')
    return BusinessHours(days, start, end)


def _seconds(_: click.Context, __: click.Parameter, text: str | None) -> float | None:
    """A duration as it is written, in seconds."""
    from tonnage.documents import duration_ns

    if text is None:
        return None
    try:
        found = duration_ns(text) / 1e9
    except ValueError:
        found = 0.0
    if found <= 0:
        raise click.BadParameter(f'"{text}", expected a duration above 0 like 15m or 90s')
    return found


@click.command()
@click.argument("usage", metavar="SCENARIO|USAGE.csv", type=ScenarioToRead(csv=True))
@click.option(
    "--strategy",
    "strategies",
    type=click.Choice(STRATEGIES),
    multiple=True,
    help="May be given several times, in this order. [default: all]",
)
@click.option("--policy", metavar="NAME", help="Of the scenario. [default: as the scenario says]")
@SEED
@click.option(
    "--business-hours",
    callback=_business_hours,
    metavar="HOURS",
    default="Mon-Fri 8-18",
    show_default=True,
    help="Days and hours, UTC.",
)
@click.option("--on-demand", "keep", multiple=True, metavar="NODEPOOL", help="Its nodes must not be interrupted.")
@click.option(
    "--checkpoint", callback=_seconds, metavar="TIME", help="Work between checkpoints. [default: what costs least]"
)
@click.option(
    "--checkpoint-write",
    callback=_seconds,
    metavar="TIME",
    default="60s",
    show_default=True,
    help="How long writing one takes.",
)
@click.option(
    "--commitment-discount",
    type=Finite(min=0, max=1, min_open=True, max_open=True),
    default=0.35,
    show_default=True,
    metavar="SHARE",
    help="Of the on-demand price.",
)
@click.option("--commitment", type=Finite(min=0), metavar="USD", help="Covered per hour. [default: what costs least]")
@click.option("--prices", metavar="FILE", type=FILE, help="Your own prices, CSV or YAML.")
@OUTPUT
@click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
def savings(
    usage: Path,
    strategies: tuple[str, ...],
    policy: str | None,
    seed: int,
    business_hours: BusinessHours,
    keep: tuple[str, ...],
    checkpoint: float | None,
    checkpoint_write: float,
    commitment_discount: float,
    commitment: float | None,
    prices: Path | None,
    output: str,
    quiet: bool,
) -> None:
    """What strategies save on your own usage, each on top of those before it: right-sizing, consolidation, schedules,
    spot, checkpointing, commitments. The steps add up to the difference of the first bill and the last.

    A SCENARIO is run as it is, then once more for each strategy. USAGE.csv has node-hours: start, hours, instance_type,
    and what is known of them.

    \b
    tonnage savings examples/mixed
    tonnage savings usage.csv --strategy spot --strategy commitments
    """
    from tonnage.cli import savings_report
    from tonnage.costs.strategies import SavingsSettings
    from tonnage.units import micro_usd

    order = tuple(dict.fromkeys(strategies)) or STRATEGIES
    if "commitments" in order[:-1]:
        raise click.UsageError("--strategy commitments comes last: a commitment is to what the others have left")
    settings = SavingsSettings(
        hours=business_hours,
        commitment_discount=commitment_discount,
        commitment_micro_usd_per_hour=None if commitment is None else micro_usd(commitment),
        checkpoint_s=checkpoint,
        write_s=checkpoint_write,
    )
    path = files.existing(usage)
    if path == PIPED or path.suffix.lower() == ".csv":
        for option, given in (("--policy", policy), ("--on-demand", keep)):
            if given:
                raise click.UsageError(f"{option} is for a scenario; a usage file says interruptible in its rows")
        report = savings_report.of_usage(path, order, settings, prices)
    else:
        report = _of_scenario(path, policy, order, settings, seed, prices, keep, quiet=quiet)
    if output != "table":
        import msgspec

        answers.show(msgspec.json.format(msgspec.json.encode(report), indent=2), output)
    else:
        savings_report.show(report, quiet=quiet)


def _of_scenario(
    path: Path,
    policy: str | None,
    order: tuple[str, ...],
    settings: SavingsSettings,
    seed: int,
    prices: Path | None,
    keep: tuple[str, ...],
    *,
    quiet: bool,
) -> SavingsReport:
    from tonnage.cli import savings_report
    from tonnage.simulation import run, scenario

    return savings_report.of_scenario(
        scenario.load(path),
        policy,
        order,
        settings,
        run.RunOptions(seed=seed, price_file=prices),
        keep,
        lambda name: messages.note(f"{name}: done", quiet),
    )
