"""What a simulation's result looks like in a terminal, in JSON and in YAML.

Where colour is unwanted (``NO_COLOR``) or nobody looks (the output is a pipe), tables have neither lines nor
styles. This module imports rich: import it where something is printed, not at start-up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tonnage.cli import not_running
from tonnage.cli.look import INDENT, Console, Look, hang, place
from tonnage.decisions import Finding
from tonnage.simulation.report import formats
from tonnage.simulation.report.comparison import HOLDS, compare, holds_slo
from tonnage.simulation.report.headline import SEVERITIES, Headline, TrainingHeadline, headline, training_headline
from tonnage.simulation.result import CostResult, Result, ServiceLevel, TrainingResult, WorkloadResult

CHECK_SCHEMA = "tonnage.dev/check/v1"
FINDINGS_SHOWN = 5
_SEVERITY_STYLE = {"error": "bold red", "warning": "yellow", "info": "blue"}


class CheckReport(msgspec.Struct, frozen=True):
    """What a set of manifests does and never does."""

    schema: str
    findings: tuple[Finding, ...]


def summary(result: Result, console: Console, findings: int = FINDINGS_SHOWN) -> None:
    """Prints one run: services, money, nodes, and the first ``findings`` findings. Fits 80 columns."""
    look, head = Look.of(console), headline(result)
    not_running.show([result], console)
    console.print(look.text(f"{result.scenario}, {result.policy}", "bold"))
    run = f"{formats.seconds(result.duration_s)}, seed {result.seed}"
    if result.services:
        run += f", {formats.count(head.requests)} requests from {result.traffic_source}"
    console.print(look.text(run, "dim"))
    console.print()
    if result.slo is not None and result.services:
        console.print(_services(result, result.slo, look))
        console.print(look.text(_slo(result.slo), "dim"))
        console.print()
    if not isinstance(result.workloads, msgspec.UnsetType):
        console.print(_workloads(result.workloads, look))
        console.print()
    if head.training is not None:
        console.print(_training(result, look))
        console.print(look.text(_training_time(head.training), "dim"))
        console.print()
    console.print(_figures(result, head, look))
    console.print()
    console.print(_owners(result.cost, look))
    _print_check(result, console, look)
    if result.findings:
        console.print()
        print_findings(result.findings, console, findings)


def compare_table(results: Sequence[Result], *, plain: bool = False) -> Table:
    """One table of several runs: a row a figure, a column a run; ``*`` marks the best value of a row."""
    look = Look(plain)
    comparison = compare(results)
    table = look.table()
    table.add_column("", overflow="fold")
    for name in comparison.columns:
        table.add_column(look.text(name, "bold"), justify="right", no_wrap=True)
    group = None
    for row in comparison.rows:
        if row.group != group:
            group = row.group
            if table.row_count:
                table.add_row("")
            table.add_row(look.text(group or "Whole run", "bold"))
        cells = [
            look.text(f"{text} *", "bold green") if best else Text(f"{text}  ")
            for text, best in zip(row.texts, row.best, strict=True)
        ]
        table.add_row(f"  {row.label}", *cells)
    return table


def comparison(results: Sequence[Result], console: Console, findings: int = FINDINGS_SHOWN) -> None:
    """Prints :func:`compare_table` and the findings of the runs, each finding once."""
    look = Look.of(console)
    not_running.show(results, console)
    console.print(compare_table(results, plain=look.plain))
    if len(results) > 1:
        console.print(look.text(_legend(results), "dim"))
    for result in results:
        _print_check(result, console, look, f"{result.policy}: ")
    unique = list({_identity(finding): finding for result in results for finding in result.findings}.values())
    if unique:
        console.print()
        print_findings(unique, console, findings)


def _legend(results: Sequence[Result]) -> str:
    """What the star means here."""
    if all(not result.services for result in results):
        return "* best of the row; rows without it are for information, or equal"
    goal = f"{100 * HOLDS:.0f}% of each Service's requests"
    if not any(map(holds_slo, results)):
        return f"No run holds the SLO ({goal}): nothing is marked"
    return f"* best of the runs that hold the SLO ({goal})"


def print_findings(findings: Sequence[Finding], console: Console, limit: int = FINDINGS_SHOWN) -> None:
    """Prints the worst ``limit`` findings with their place, and says how many more there are."""
    look = Look.of(console)
    console.print(look.text(f"Findings: {_counts(findings)}", "bold"))
    for finding in _ranked(findings)[:limit]:
        severity = look.text(f"{finding.severity:<{INDENT}}", _SEVERITY_STYLE.get(finding.severity, ""))
        hang(console, severity, Text.assemble((finding.rule, look.style("bold")), f"  {finding.object}"))
        hang(console, Text(" " * INDENT), Text(finding.message))
        if isinstance(finding.help, str) and finding.help:
            hang(console, Text(" " * INDENT), look.text(f"help: {finding.help}"))
        if str(finding.where):
            at = look.text(" " * INDENT + place(finding.where), "dim")
            console.print(at, soft_wrap=True)  # unbroken, so that it can be clicked and copied
    if len(findings) > limit:
        console.print(look.text(f"{len(findings) - limit} more in the report and in -o json", "dim"))


def _ranked(findings: Sequence[Finding]) -> list[Finding]:
    """The worst first; within a severity the first of every rule before the second of any."""
    seen: Counter[str] = Counter()
    keyed = []
    for number, finding in enumerate(findings):
        keyed.append((_rank(finding.severity), seen[finding.rule], number))
        seen[finding.rule] += 1
    return [findings[number] for *_, number in sorted(keyed)]


def console() -> Console:
    """Standard output, as wide as the terminal."""
    return Console()


def json_bytes(results: Result | Sequence[Result]) -> bytes:
    """The documented JSON on one line; an array for a sequence. Equal results give equal bytes."""
    return msgspec.json.Encoder(order="deterministic").encode(results) + b"\n"


def check_json(findings: Sequence[Finding]) -> bytes:
    """What `tonnage check` found, as JSON on one line."""
    report = CheckReport(CHECK_SCHEMA, tuple(findings))
    return msgspec.json.Encoder(order="deterministic").encode(report) + b"\n"


def json_schema(type_: type[msgspec.Struct] = Result) -> bytes:
    """The JSON Schema of what is printed, indented."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(type_)}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2) + b"\n"


def _services(result: Result, slo: ServiceLevel, look: Look) -> Table:
    table = look.table()
    table.add_column("Service", overflow="fold", style=look.style("bold"))
    for name in ("SLO met", "in grace", "TTFT p50", "TTFT p99", "TPOT p99", "Ready"):
        table.add_column(name, justify="right", no_wrap=True)
    for service in result.services:
        table.add_row(
            Text(service.name),
            look.text(formats.percent(service.overall.share), "bold"),
            formats.percent(service.grace.share),
            _limited(service.ttft_ms.p50, 1000 * slo.ttft_s, look),
            _limited(service.ttft_ms.p99, 1000 * slo.ttft_s, look),
            _limited(service.tpot_ms.p99, 1000 * slo.tpot_s, look),
            f"{service.min_ready_replicas} to {service.max_ready_replicas}",
        )
    return table


def _workloads(workloads: Sequence[WorkloadResult], look: Look) -> Table:
    table = look.table()
    alike = all(one.name.count("/") == 1 for one in workloads)  # else with the kind in their names
    table.add_column("Deployment" if alike else "Workload", overflow="fold", style=look.style("bold"))
    for name in ("replicas", "Ready", "Ready since"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in workloads:
        ready = f"{one.min_ready_replicas} to {one.max_ready_replicas}"
        table.add_row(Text(one.name), str(one.replicas), ready, formats.clock(one.ready_s))
    return table


def _limited(value: float | None, limit: float, look: Look) -> Text:
    """A latency, coloured where it is over its limit."""
    return look.text(formats.milliseconds(value), "red" if value is not None and value > limit else "")


def _slo(slo: ServiceLevel) -> str:
    limits = f"SLO: TTFT {formats.seconds(slo.ttft_s)}, TPOT {formats.milliseconds(1000 * slo.tpot_s)}"
    if not slo.grace_s:
        return limits
    return f"{limits}; grace: the first {formats.seconds(slo.grace_s)} of a surge, counted apart"


def _training(result: Result, look: Look) -> Table:
    """A row a workload; the copies of one have a row together, with their means."""
    table = look.table()
    table.add_column("Training", overflow="fold", style=look.style("bold"))
    for name in ("state", "wait", "took", "useful", "lost", "restarts"):
        table.add_column(name, justify="right", no_wrap=True)
    copies: dict[str, list[TrainingResult]] = {}
    for work in [] if isinstance(result.training, msgspec.UnsetType) else result.training:
        copies.setdefault(work.copy_of, []).append(work)
    short = Counter(name.partition("/")[2] for name in copies)
    for name, group in copies.items():
        head, without_namespace = training_headline(group), name.partition("/")[2]
        table.add_row(
            Text(without_namespace if short[without_namespace] == 1 else name),
            look.text(_state(group, head), "red" if head.failed else ""),
            formats.clock(head.mean_wait_s),
            formats.clock(head.mean_makespan_s),
            formats.hours(head.gpu_hours.useful),
            formats.hours(head.gpu_hours.lost),
            formats.count(head.restarts),
        )
    return table


def _state(group: Sequence[TrainingResult], head: TrainingHeadline) -> str:
    if len(group) > 1:
        return f"{head.done} of {head.workloads} done" + (f", {head.failed} failed" if head.failed else "")
    work = group[0]
    over = work.state in ("done", "failed") or work.progress is None
    return work.state if over else formats.percent(work.progress)


def _training_time(training: TrainingHeadline) -> str:
    hours = training.gpu_hours
    return (
        f"{formats.count(training.done)} of {formats.count(training.workloads)} done; GPU-hours: "
        f"{formats.hours(hours.useful)} useful, {formats.hours(hours.lost)} lost, "
        f"{formats.hours(hours.checkpoints)} checkpoints, {formats.hours(hours.starting + hours.broken)} starting or "
        f"waiting, {formats.hours(hours.half)} in partial gangs"
    )


def _figures(result: Result, head: Headline, look: Look) -> Table:
    hours = result.gpu_hours
    nothing = (one for one in result.events if one.reason == "FaultHitNothing")
    missed = "; ".join(f"{one.message} at {formats.clock(one.t_s)}, so it hit nothing" for one in nothing)
    rows = (
        (
            "Cost",
            formats.dollars(result.cost.total_micro_usd)
            + (f", {formats.dollars(head.micro_usd_per_million_tokens)} per million tokens" if result.services else ""),
        ),
        (
            "GPU-hours",
            f"{formats.hours(hours.paid)} paid, {formats.hours(hours.allocated)} allocated, "
            f"{formats.hours(hours.busy)} busy",
        ),
        (
            "Nodes",
            f"{head.max_nodes} at most, {head.nodes_bought} launched, {head.nodes_returned} terminated",
        ),
        *([("Faults", missed)] if missed else ()),
        *([("Tokens", f"{formats.count(head.tokens)} prompt and generated")] if result.services else ()),
        ("Prices", f"{result.cost.region}, {result.cost.prices_as_of or 'no date'}"),
    )
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style=look.style("dim"))
    table.add_column()
    for row in rows:
        table.add_row(*row)
    return table


def _owners(cost: CostResult, look: Look) -> Table:
    table = look.table()
    table.add_column("Cost by owner", overflow="fold")
    for name in ("used", "idle in allocation", "idle", "total"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in cost.lines:
        parts = (line.used_micro_usd, line.idle_in_allocation_micro_usd, line.idle_micro_usd)
        table.add_row(Text(line.owner or "nobody"), *(formats.dollars(part) for part in (*parts, sum(parts))))
    return table


def _print_check(result: Result, console: Console, look: Look, label: str = "") -> None:
    check = result.check
    if not check.enabled:
        return
    console.print()
    if not check.violations:
        console.print(look.text(f"{label}Invariants held in {formats.count(check.steps)} steps", "green"))
        return
    console.print(look.text(f"{label}Invariants violated: {len(check.violations)}", "bold red"))
    for violation in check.violations[:FINDINGS_SHOWN]:
        console.print(Padding(Text(violation), (0, 0, 0, 2), expand=False))


def _rank(severity: str) -> int:
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _counts(findings: Iterable[Finding]) -> str:
    severities = [finding.severity for finding in findings]
    known = [(severities.count(name), name) for name in SEVERITIES]
    return ", ".join(
        f"{number} {name}{'s' if number > 1 and name != 'info' else ''}" for number, name in known if number
    )


def _identity(finding: Finding) -> tuple[str, str, str]:
    return finding.rule, str(finding.object), str(finding.where)
