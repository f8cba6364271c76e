"""What `tonnage mig check` and `tonnage mig node` print for people: at most 80 columns where names allow it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tonnage.cli import lines, terminal


def check(reports: Sequence[Mapping[str, Any]]) -> None:
    """One block a file or key: what each configuration makes, then problems with slot maps, then notes."""
    for number, report in enumerate(reports):
        if number:
            terminal.echo()
        key = f" ({report['key']})" if report["key"] else ""
        what = {"hooks": "mig-parted hooks"}.get(report["kind"], report["kind"])
        terminal.echo(f"{report['file']}{key}: {what}")
        if report["kind"] == "mig-parted":
            for config in report["configs"]:
                _config(config)
        elif report["kind"] == "hooks":
            for name, commands in report["hooks"].items():
                _say(f"{name}: {', '.join(commands)}", 2)
        else:
            _device_plugin(report)


def node(answer: Mapping[str, Any]) -> None:
    """Resources, labels as key=value, and what is to be said about them."""
    terminal.echo(f"MIG strategy {answer['strategy']}, sharing {answer['sharing']}")
    terminal.echo()
    terminal.echo("resources")
    for name, count in answer["resources"].items():
        terminal.echo(f"  {name}: {count}")
    if not answer["resources"]:
        terminal.echo("  none")
    terminal.echo()
    terminal.echo("labels")
    for key, value in answer["labels"].items():
        line = f"  {key}={value}"
        terminal.echo(line if len(line) <= lines.width() else f"  {key}=\n    {value}")
    for title, told in (("not in the tables", answer["unknown_labels"]), ("problems", answer["problems"])):
        _list(title, told)
    _list("notes", answer["notes"])


def _list(title: str, told: Sequence[str]) -> None:
    if told:
        terminal.echo()
        terminal.echo(title)
    for line in told:
        _say(line, 2)


def _config(config: Mapping[str, Any]) -> None:
    """The configuration's name, and a line for each layout with the GPUs that get it."""
    terminal.echo(f"  {config['name']}")
    for what, gpus in _grouped(config["makes"]):
        _say(f"{what}: {', '.join(gpus)}", 4)
    for problem in config["problems"]:
        _say(f"error: {_line(problem)}", 4)
    if not config["makes"] and not config["problems"]:
        _say("nothing on this GPU", 4)
    shown: set[tuple[str, ...]] = set()
    for refused in config["refused"] if config["problems"] else ():
        drawn = tuple(refused["map"])
        if drawn and drawn not in shown:
            shown.add(drawn)
            for line in drawn:
                terminal.echo(line)
    for note in config["notes"]:
        _say(f"note: {_line(note)}", 4)


def _grouped(makes: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """(what is made, GPUs): equal layouts together, in the order of the entries."""
    found: dict[str, list[str]] = {}
    for one in makes:
        counts = ", ".join(f"{n} x {name}" if n > 1 else name for name, n in one["profiles"].items())
        what = (counts or "MIG on, no instances") if one["mig"] else "MIG off"
        found.setdefault(what, []).append(one["gpu"] or "every GPU")
    return [(what, list(dict.fromkeys(gpus))) for what, gpus in found.items()]


def _device_plugin(report: Mapping[str, Any]) -> None:
    each = ", one replica per container" if report["one_each"] else ""
    terminal.echo(f"  sharing: {report['sharing']}{each if report['resources'] else ''}")
    for one in report["resources"]:
        text = f"{one['name']}: {one['replicas']} replicas of each, offered as {one['advertised']}"
        if report["sharing"] == "mps":
            text += f"; each client has {100 // one['replicas']} % of the threads and 1/{one['replicas']} of the memory"
        _say(text, 4)
    for name, value in report["flags"].items():
        text = str(value).lower() if isinstance(value, bool) else ", ".join(value) if isinstance(value, list) else value
        _say(f"{name}: {text}", 2)
    for one in report["ignored"]:
        _say(f"ignored: {_line(one)}", 2)


def _line(problem: Mapping[str, str]) -> str:
    hint = f" ({problem['hint']})" if problem["hint"] else ""
    return f"{problem['where']}: {problem['message']}{hint}"


def _say(text: str, indent: int) -> None:
    """A text, wrapped between words, further lines two columns in."""
    lines.say(text, " " * (indent + 2), " " * indent)
