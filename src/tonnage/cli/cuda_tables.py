"""What `tonnage cuda` prints for people: at most 80 columns."""

from __future__ import annotations

import sys
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tonnage.cli import lines
from tonnage.cli.look import Console, Look

_WORDS = {True: "yes", False: "no", None: "not known"}
_VERDICTS = {True: "fits", False: "does not fit", None: "not known whether it fits"}
_STYLES = {True: "green", False: "bold red", None: "yellow"}
_TITLES = {"require": "conditions", "gpu": "GPU", "driver": "driver", "kernels": "code"}


def _console() -> tuple[Console, Look]:
    console = Console(sys.stdout)
    console.width = lines.width()
    return console, Look.of(console)


def answers(found: list[dict[str, Any]], node: dict[str, Any]) -> None:
    """Each thing that was asked about: the verdict, the questions, what helps."""
    console, look = _console()
    console.print(Text(f"Node: {_node(node)}"))
    for answer in found:
        console.print()
        name = (
            answer["name"] if len(answer["name"]) <= 2 * lines.WIDEST else answer["name"][: 2 * lines.WIDEST - 1] + "…"
        )
        line = Text(f"{name}: ")
        line.append(_VERDICTS[answer["fits"]], look.style(_STYLES[answer["fits"]]))
        console.print(line)
        table = look.table()
        table.add_column("Question", no_wrap=True)
        table.add_column("Answer", no_wrap=True)
        table.add_column("Why", overflow="fold")
        for one in answer["checks"]:
            why = one["reason"] + (f" ({one['note']})" if one["note"] else "")
            word = look.text(_WORDS[one["fits"]], _STYLES[one["fits"]])
            table.add_row(_TITLES[one["name"]], word, Text(why))
        console.print(table)
        for number, one in enumerate(answer["remedies"]):
            console.print(_hanging("helps: " if number == 0 else "or:    ", one["text"]))


def fleet(report: dict[str, Any]) -> None:
    """Drivers, what does not run, the order of an upgrade."""
    console, look = _console()
    console.print(_drivers(report, look))
    console.print()
    refused = report["refused"]
    console.print(Text(f"Pods that do not run where they are: {len(refused)}"))
    for one in refused:
        console.print(_item(f"{one['pod']} on {one['node']}: {one['reason']}"))
        if one["remedies"]:
            console.print(Padding(_hanging("helps: ", one["remedies"][0]), (0, 0, 0, 4)))
    for one in report["waiting"]:
        console.print(_item(f"{one['pod']} is pending: {one['nodes']} of {report['nodes']} nodes can run it"))
        for why in one["reasons"]:
            console.print(Padding(Text(f"{why['nodes']}: {why['reason']}"), (0, 0, 0, 4)))
    if report["unknown_images"]:
        names = ", ".join(report["unknown_images"])
        console.print(_hanging("Images of which nothing is known: ", names))
    if "upgrade" in report:
        console.print()
        _upgrade(report["upgrade"], console, look)


def _drivers(report: dict[str, Any], look: Look) -> Table:
    table = look.table()
    for name in ("Driver", "CUDA", "GPU", "CC"):
        table.add_column(name, overflow="fold")
    for name in ("Nodes", "GPUs", "Pods"):
        table.add_column(name, justify="right")
    for one in report["drivers"]:
        cells = [one["driver"], one["cuda"], one["gpu"], one["arch"], one["nodes"], one["gpus"], one["pods"]]
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in cells))
    return table


def _upgrade(plan: dict[str, Any], console: Console, look: Look) -> None:
    steps = plan["steps"]
    ahead = [step for step in steps if not step["refused"] and not step["there"]]
    console.print(look.text(f"Upgrade to {plan['to']}: {len(ahead)} of {len(steps)} nodes, in this order", "bold"))
    table = look.table()
    table.add_column("", justify="right")
    table.add_column("Node", overflow="fold")
    table.add_column("From", overflow="fold")
    for name in ("Breaks", "Strands", "Mends", "Moves"):
        table.add_column(name, justify="right")
    for number, step in enumerate(ahead, 1):
        counts = [str(len(step[name])) for name in ("breaks", "stranded", "mends", "moves")]
        table.add_row(str(number), Text(step["node"]), Text(step["from"] or "not known"), *counts)
    if ahead:
        console.print(table)
    for step in ahead:
        for one in step["breaks"]:
            console.print(_item(f"breaks {one['pod']} on {step['node']}: {one['reason']}"))
        for pod in step["stranded"]:
            console.print(_item(f"strands {pod} while {step['node']} is drained: no other node with free GPUs runs it"))
        for one in step["mends"]:
            console.print(_item(f"fixes {one['pod']} on {step['node']}"))
    for step in steps:
        if step["refused"]:
            console.print(_item(f"{step['node']} keeps {step['from'] or 'its driver'}: {step['refused']}"))
        if step["there"]:
            console.print(_item(f"{step['node']} has {step['from']} already"))


def _node(node: dict[str, Any]) -> str:
    parts = [f"driver {node['driver']}" if node["driver"] else "driver not known"]
    if node["cuda"]:
        parts.append(f"CUDA {node['cuda']}")
    gpu = node["gpu"] or ("" if node["arch"] else "GPU not known")
    parts.append(f"{gpu} ({node['arch']})" if gpu and node["arch"] else gpu or f"compute capability {node['arch']}")
    return ", ".join(parts)


def _item(text: str) -> Padding:
    return Padding(_hanging("- ", text), (0, 0, 0, 2))


def _hanging(first: str, text: str) -> Table:
    grid = Table.grid()
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(first), Text(text))
    return grid
