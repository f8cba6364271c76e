"""`tonnage simulate`, `tonnage compare` and `tonnage demo`: scenarios in the simulated cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tonnage.cli import answers, files, messages
from tonnage.cli.options import output_option
from tonnage.cli.piped import FILE, SCENARIO

if TYPE_CHECKING:
    from tonnage.objects.load import Manifest
    from tonnage.simulation.result import Result
    from tonnage.simulation.scenario import Scenario

DEMO = Path("examples/traffic-surge")
DEMO_FINDINGS = 6

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class SimulateSettings:
    """How to run, and what to make of the results. ``form`` is table, json or yaml."""

    seed: int = 0
    trace: Path | None = None
    prices: Path | None = None
    check: bool = False
    form: str = "table"
    report: Path | None = None
    quiet: bool = False
    fail_on: str = "never"


def _checked_seed(_: click.Context, __: click.Parameter, seed: int) -> int:
    """A seed that fits the result's JSON."""
    if not 0 <= seed < 2**63:
        raise click.BadParameter(f"{seed}, expected 0 to {2**63 - 1}")
    return seed


_PATH = click.Path(path_type=Path)
SEED = click.option(
    "--seed",
    type=int,
    callback=_checked_seed,
    metavar="N",
    default=0,
    show_default=True,
    help="Seed of arrivals, surges and jitter; equal seeds give equal results.",
)
"""The seed of a run."""
_QUIET = click.option("-q", "--quiet", is_flag=True, help="No progress and no notes.")
_OPTIONS = (
    SEED,
    click.option("--trace", type=FILE, metavar="FILE", help="A request log instead of the scenario's traffic."),
    click.option("--prices", type=FILE, metavar="FILE", help="CSV or YAML prices on top of the bundled ones."),
    output_option("form"),
    click.option("--report", type=_PATH, metavar="FILE.html", help="Write a report for a browser; needs no network."),
    click.option("--check", is_flag=True, help="Verify all invariants after every event. Slow."),
    click.option(
        "--fail-on",
        type=click.Choice(["never", "error", "slo"]),
        default="never",
        show_default=True,
        help="Exit 1: error, where pods never run or a finding is an error; slo, also where a Service misses its SLO.",
    ),
    _QUIET,
)


def _run_options(command: Command) -> Command:
    """The options that simulate and compare have in common, in the order of the help text."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command()
@click.argument("scenario", type=SCENARIO)
@click.option("--policy", metavar="NAME", help="One of the scenario's policies. [default: as the scenario says]")
@_run_options
def simulate(scenario: Path, policy: str | None, **options: Any) -> None:
    """Run SCENARIO in the simulated cluster: a file, or a folder with a scenario.yaml.

    Bundled scenarios go by their place in the source tree: examples/traffic-surge.

    \b
    tonnage simulate examples/traffic-surge --policy slo --seed 1
    tonnage simulate your-manifests/ --fail-on error
    kubectl get deployments,services -A -o yaml | tonnage simulate -
    """
    settings = SimulateSettings(**options)
    loaded = _load(scenario)
    _finish(_run(loaded, [policy or loaded.default_policy], settings), settings, single=True)


@click.command()
@click.argument("scenario", type=SCENARIO)
@click.option("--policy", "policies", metavar="NAME", multiple=True, help="May be given several times. [default: all]")
@_run_options
def compare(scenario: Path, policies: tuple[str, ...], **options: Any) -> None:
    """Run SCENARIO under several policies, on the same traffic, and show the differences in one table.

    \b
    tonnage compare examples/traffic-surge --report surge.html
    tonnage compare examples/mixed --policy slo -o yaml
    """
    settings = SimulateSettings(**options)
    loaded = _load(scenario)
    names = list(dict.fromkeys(policies or loaded.spec.policies))
    _finish(_run(loaded, names, settings), settings, single=False)


@click.command()
@SEED
@click.option(
    "--report",
    type=_PATH,
    metavar="FILE.html",
    default="tonnage-demo.html",
    show_default=True,
    help="Where to write the report.",
)
@_QUIET
def demo(seed: int, report: Path, quiet: bool) -> None:
    """The traffic surge on bundled input: two models share twelve GPUs, and one model's traffic multiplies.

    Compares the published configuration, the same with its mistakes fixed, and the slo policy.

    \b
    tonnage demo
    tonnage demo --seed 3 --report surge.html
    """
    from tonnage.cli import output

    settings = SimulateSettings(seed=seed, report=report, quiet=quiet)
    loaded = _load(DEMO)
    results = _run(loaded, list(loaded.spec.policies), settings)
    _write_report(results, settings)
    console = output.console()
    for line in _surges(results[0]):
        console.print(line, markup=False)
    console.print()
    output.comparison(results, console, DEMO_FINDINGS)
    console.print()
    for line in _what_next(report):
        console.print(line, markup=False)


def _surges(result: Result) -> Iterator[str]:
    from tonnage.simulation.report import formats

    for service in result.services:
        for start, end, factor in service.surges:
            span = f"{formats.clock(start)} to {formats.clock(end)}"
            yield f"Surge: {service.name} gets {factor:.1f} times its traffic from {span}, drawn by seed {result.seed}."


def _what_next(report: Path) -> tuple[str, ...]:
    return (
        f"Open {report} in a browser: replicas, nodes, latency and money over time, and the reason of each decision.",
        f"Then: tonnage simulate {DEMO} --policy slo --seed 1, or tonnage check YOUR-MANIFESTS/",
    )


def _load(path: Path) -> Scenario:
    from tonnage.simulation import scenario

    return scenario.load(files.existing(path))


def _run(loaded: Scenario, policies: Sequence[str], settings: SimulateSettings) -> list[Result]:
    """Run the policies; what is wrong with the report's path or any manifest is said before the first one starts."""
    from tonnage.cli import runs

    if settings.report is not None:
        files.check_writable(settings.report)
    read = _warn(loaded, policies)
    jobs = [
        runs.RunRequest(loaded.document.path, name, settings.seed, settings.trace, settings.prices, settings.check)
        for name in policies
    ]
    if len(jobs) == 1:  # in this process, which has the manifests already
        jobs = [replace(jobs[0], manifest=read[loaded.policy(policies[0]).manifests])]
    return runs.run_all(jobs, quiet=settings.quiet)


def _warn(loaded: Scenario, policies: Sequence[str]) -> dict[str, Manifest]:
    """Say what is suspicious about the policies' manifests, and return them by their folder. Raises InputError for what
    is wrong with them."""
    from tonnage.objects import load

    found = {}
    for folder in dict.fromkeys(loaded.policy(name).manifests for name in policies):
        found[folder] = load.read([loaded.folder / folder])
        messages.warnings(found[folder].problems)
    return found


def _finish(results: Sequence[Result], settings: SimulateSettings, *, single: bool) -> None:
    _write_report(results, settings)
    _print(results, settings, single=single)
    if settings.report is not None:
        messages.note(f"report: {settings.report}", settings.quiet)
    broken = [result for result in results if result.check.violations]
    for result in broken:
        first, count = result.check.violations[0], len(result.check.violations)
        messages.error(f"{result.policy}: {count} invariants violated, the first at {first}")
    failed = [why for result in results if (why := _fails(result, settings.fail_on))]
    for why in failed:
        messages.error(why)
    if broken or failed:
        raise click.exceptions.Exit(1)


def _fails(result: Result, fail_on: str) -> str:
    """Why the run does not pass; empty for one that does."""
    from tonnage.cli import not_running
    from tonnage.simulation.report import formats
    from tonnage.simulation.report.comparison import HOLDS

    if fail_on == "never":
        return ""
    stopped = [str(one.object) for one in not_running.of(result)]
    if stopped:
        return f"{result.policy}: {stopped[0]} does not run" + (f", and {len(stopped) - 1} more" * (len(stopped) > 1))
    errors = [finding for finding in result.findings if finding.severity == "error"]
    if errors:
        return f"{result.policy}: {len(errors)} findings of severity error, the first {errors[0].rule}"
    for service in result.services if fail_on == "slo" else ():
        share = service.overall.share
        if share is not None and share < HOLDS:
            return f"{result.policy}: {service.name} met its SLO with {formats.percent(share)} of its requests, not 99%"
    return ""


def _write_report(results: Sequence[Result], settings: SimulateSettings) -> None:
    if settings.report is not None:
        from tonnage.simulation.report import render

        files.write(settings.report, render(results))


def _print(results: Sequence[Result], settings: SimulateSettings, *, single: bool) -> None:
    from tonnage.cli import output

    what = results[0] if single else results
    if settings.form != "table":
        answers.show(output.json_bytes(what), settings.form)
    elif single:
        output.summary(results[0], output.console())
    else:
        output.comparison(results, output.console())
