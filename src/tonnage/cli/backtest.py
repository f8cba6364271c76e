"""`tonnage backtest`: a scenario's run beside what Prometheus measured."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tonnage.cli import answers, files, prometheus_options, terminal
from tonnage.cli.options import OUTPUT
from tonnage.cli.piped import SCENARIO
from tonnage.cli.simulate import SEED
from tonnage.errors import InputError
from tonnage.units import NS_PER_S

if TYPE_CHECKING:
    from tonnage.cli.prometheus_options import PrometheusRange
    from tonnage.live.prometheus import Prometheus
    from tonnage.metrics.functions import Dialect
    from tonnage.simulation.backtest import Backtest, MeasuredSide
    from tonnage.simulation.scenario import Scenario
    from tonnage.traffic.readings import ScrapedService

LEAD = "10m"


@click.command(short_help="A scenario's run beside what Prometheus measured.")
@click.argument("scenario", type=SCENARIO)
@click.option("--policy", metavar="NAME", help="One of the scenario's policies. [default: as the scenario says]")
@click.option(
    "--service",
    "services",
    metavar="NAMESPACE/NAME",
    multiple=True,
    help="Of the scenario; repeatable. [default: all with traffic]",
)
@click.option(
    "--traffic",
    type=click.Choice(["measured", "scenario"]),
    default="measured",
    show_default=True,
    help="What is played: the requests that were measured, or the scenario's own.",
)
@click.option(
    "--lead",
    metavar="DURATION",
    default=LEAD,
    show_default=True,
    help="Played before the start, so that pods run by then; with the scenario's own traffic none.",
)
@click.option(
    "--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Plot measured and simulated values over time."
)
@SEED
@OUTPUT
@prometheus_options.options
def backtest(
    scenario: Path,
    policy: str | None,
    services: tuple[str, ...],
    traffic: str,
    lead: str,
    plot: Path | None,
    seed: int,
    output: str,
    **given: Any,
) -> None:
    """Compare SCENARIO with what was measured: replicas, TTFT and TPOT, measured and simulated, side by side.

    The traffic that Prometheus has is played on the scenario's fleet and manifests, and both are read by the same
    queries at the same times. What differs is what the simulator, or the scenario, has wrong.

    \b
    tonnage backtest my-scenario/ --prometheus http://localhost:9090 --last 2h --plot backtest.svg
    """
    from tonnage.simulation import backtest as tests
    from tonnage.simulation import run
    from tonnage.simulation import scenario as scenarios

    if not given["prometheus"]:
        raise click.UsageError("Missing option '--prometheus'.")
    if plot is not None:
        files.check_writable(plot)
    lead_s = prometheus_options.target_s("--lead", lead) if lead not in ("0", "0s") else 0.0
    asked = prometheus_options.asked(given)
    loaded = scenarios.load(files.existing(scenario))
    chosen = policy or loaded.default_policy
    loaded.policy(chosen)
    names = tests.traffic_of(loaded, services)
    if len(names) > 1 and (asked.selector or asked.gateway):
        raise InputError.at("it is of one service", field="--selector", hint=f"give --service: {', '.join(names)}")
    with asked.open() as server:
        held = _held(server, loaded, names, asked, traffic == "measured", round(lead_s * NS_PER_S))
        found = tests.backtest(loaded, chosen, held, run.RunOptions(seed=seed))
    if plot is not None:
        from tonnage.simulation import backtest_plot

        files.write(plot, backtest_plot.svg(found))
    if output != "table":
        import msgspec

        answers.show(msgspec.json.format(msgspec.json.encode(found, order="deterministic")), output)
        return
    _print(found)
    if plot is not None:
        terminal.echo(f"plot: {plot}")


def _held(
    server: Prometheus, loaded: Scenario, names: tuple[str, ...], asked: PrometheusRange, measured: bool, lead_ns: int
) -> MeasuredSide:
    from tonnage.simulation.backtest import MeasuredSide
    from tonnage.traffic.measured import MeasuredPeriod, fit_measured
    from tonnage.traffic.profile import ProfileSource
    from tonnage.traffic.readings import find_served

    served: list[ScrapedService] = [
        find_served(server, name, asked.start_ns, asked.end_ns, selector=asked.selector, gateway=asked.gateway)
        for name in names
    ]
    profiles = {}
    for one in served if measured else ():
        if not any(one.name == "+".join(dict.fromkeys(entry.services)) for entry in loaded.spec.traffic):
            hint = "its traffic goes by routes to several Services: give --traffic scenario"
            raise InputError.at(f"{one.name} has no traffic of its own", field="--service", hint=hint)
        wanted = MeasuredPeriod(asked.start_ns, asked.end_ns, context=asked.context)
        profiles[one.name] = fit_measured(server, one, ProfileSource(f"{one.name}, measured"), wanted)
    start = datetime.fromtimestamp(asked.start_ns // NS_PER_S, UTC).isoformat().replace("+00:00", "Z")
    return MeasuredSide(
        server, served, asked.start_ns, asked.end_ns, start, profiles, lead_ns if measured else 0, _dialect(server)
    )


def _dialect(server: Prometheus) -> Dialect:
    """The PromQL of the server's release, where it says which."""
    from tonnage.metrics.functions import PROMETHEUS_3, Dialect

    found = re.match(r"(\d+)\.(\d+)", server.version())
    return Dialect.of(int(found[1]), int(found[2])) if found else PROMETHEUS_3


def _print(found: Backtest) -> None:
    from tonnage.cli.look import Console, Look

    console = Console()
    look = Look.of(console)
    span = f"{found.duration_s / 60:g} min from {found.start}"
    console.print(look.text(f"{found.scenario}, {found.policy}: {span}", "bold"))
    console.print(look.text(f"traffic: {found.traffic}, seed {found.seed}", "dim"))
    for service in found.services:
        table = look.table()
        table.add_column(f"{service.name} ({service.engine})", overflow="fold")
        for name in ("measured", "simulated", "difference", "off by"):
            table.add_column(name, justify="right")
        for curve in service.curves:
            measured, simulated = curve.means
            off = curve.difference
            change = (simulated - measured) / measured if measured and simulated is not None else None
            table.add_row(
                f"{curve.name}, {curve.unit}",
                _number(measured),
                _number(simulated),
                "no data" if change is None else f"{100 * change:+.1f}%",
                "no data" if off is None else f"{100 * off:.1f}%",
            )
        console.print()
        console.print(table)
    console.print()
    console.print(look.text("means over the time; off by: how far apart they are at each time, on average", "dim"))


def _number(value: float | None) -> str:
    return "no data" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
