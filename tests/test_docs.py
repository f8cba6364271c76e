"""The documentation says what is there: links, commands, fields, rules, numbers."""

from __future__ import annotations

import ast
import csv
import dataclasses
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

import docs_outputs
import yaml_text
from deep_seeds import deep
from docs_outputs import REPOSITORY, Block, blocks, pages
from tonnage.cli import cli
from tonnage.scaling.slo import Target
from tonnage.simulation.result import Result
from tonnage.simulation.scenario import ScenarioSpec
from tonnage.units import NS_PER_S

DOCS = REPOSITORY / "docs"
SOURCE = REPOSITORY / "src" / "tonnage"
PAGES = pages()
BLOCKS = [block for page in PAGES for block in blocks(page)]
WHOLE_RUNS = ("compare examples/", "backtest examples/", "trace fit --prometheus")
"""How commands begin that play whole scenarios, under every policy or to be measured: `make fuzz` runs them."""
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


def _name(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _reference(name: str) -> str:
    return _text(DOCS / "reference" / name)


# ---- links ----


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", _text(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", _without_code(_text(page))):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_relative_links_of_a_page_resolve(page: Path) -> None:
    assert list(_broken_links(page)) == []


def test_every_page_of_the_documentation_can_be_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)\s]+)\)", _text(page)):
            target = (page.parent / link.partition("#")[0]).resolve()
            waiting += sorted(target.glob("*.md")) if target.is_dir() else [target] if target.is_file() else []
    assert [_name(page) for page in PAGES if page not in reached] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_page_names_no_absolute_path_of_a_machine(page: Path) -> None:
    found = re.findall(r"(?<![\w.~/-])/(?:work|home|root|tmp|usr|opt|mnt|Users)/[\w./-]*", _text(page))
    assert found == []


# ---- commands ----


def _commands(group: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    found = {path: group}
    if isinstance(group, click.Group):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            found |= _commands(command, (*path, name))
    return found


COMMANDS = _commands(cli)


def _flags(command: click.Command) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts} | {"-h", "--help"}


def _invocations(text: str) -> Iterator[list[str]]:
    """The words after ``tonnage`` in code, up to a comment, a pipe or the end of the command."""
    shell = [match[3] for match in _FENCE.finditer(text) if match[2] == "sh"]
    inline = re.findall(r"`([^`\n]+)`", _FENCE.sub("", text))
    for line in "\n".join((*shell, *inline)).splitlines():
        match = re.match(r"\s*(?:\S*bin/)?tonnage ([^#|;>]*)", line)
        if match and not match[1].startswith(("COMMAND", "…")):
            yield match[1].split()


def _wrong(words: list[str]) -> str:
    """What of a command line does not exist; empty when all does."""
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in COMMANDS:
        path = (*path, words.pop(0))
    command = COMMANDS[path]
    if isinstance(command, click.Group) and words and not words[0].startswith(("-", "…")):
        return f"no command {' '.join((*path, words[0]))}"
    unknown = [word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word) and word not in _flags(command)]
    return f"{' '.join(path)} has no {', '.join(unknown)}" if unknown else ""


def test_pages_name_commands() -> None:
    assert len([words for page in PAGES for words in _invocations(_text(page))]) > 20


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_commands_and_options_that_a_page_names_exist(page: Path) -> None:
    assert [wrong for words in _invocations(_text(page)) if (wrong := _wrong(words))] == []


def test_every_command_and_option_stands_in_the_reference() -> None:
    text = _reference("cli.md")
    for path, command in COMMANDS.items():
        if path and not isinstance(command, click.Group):
            section = text.partition(f"## tonnage {' '.join(path)}")[2].partition("\n## ")[0]
            assert section, path
            shared = path == ("compare",)  # its options are said to be those of simulate
            options = [] if shared else [p for p in command.params if isinstance(p, click.Option)]
            assert [p.name for p in options if f"`{p.opts[-1]}" not in section and f"`{p.opts[0]}" not in section] == []


def test_the_targets_of_make_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9]+):", _text(REPOSITORY / "Makefile"), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:^|`)make ([a-z0-9]+)", _text(page), re.MULTILINE)}
    assert named <= targets


# ---- formats ----


def _structs(type_: Any) -> Iterator[type[msgspec.Struct]]:
    """A struct and those inside its fields."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        yield type_
        for field in msgspec.structs.fields(type_):
            yield from _structs(field.type)
    for argument in get_args(type_):
        yield from _structs(argument)


def _fields(type_: type[msgspec.Struct]) -> list[str]:
    return sorted({field.encode_name for struct in _structs(type_) for field in msgspec.structs.fields(struct)})


@pytest.mark.parametrize("field", _fields(ScenarioSpec))
def test_every_field_of_a_scenario_stands_in_the_reference(field: str) -> None:
    assert f"`{field}`" in _reference("scenario.md")


@pytest.mark.parametrize("field", _fields(Result))
def test_every_field_of_a_result_stands_in_the_reference(field: str) -> None:
    assert f"`{field}`" in _reference("result.md")


def _scenarios() -> list[tuple[Path, str]]:
    yaml_code = [(page, match[3]) for page in PAGES for match in _FENCE.finditer(_text(page)) if match[2] == "yaml"]
    return [(page, text) for page, text in yaml_code if "kind: Scenario" in text]


@pytest.mark.parametrize(
    ("page", "text"), _scenarios(), ids=lambda value: _name(value) if isinstance(value, Path) else ""
)
def test_a_scenario_on_a_page_can_be_read(page: Path, text: str) -> None:
    assert msgspec.convert(yaml_text.load(text), ScenarioSpec).kind == "Scenario"


# ---- findings, facts ----


def _rules() -> set[str]:
    """Every rule of a finding in the source: the first name in kebab case among the arguments of what makes one."""
    found = set[str]()
    for path in SOURCE.rglob("*.py"):
        text = _text(path)
        if not any(word in text.lower() for word in ("finding", "blocker", "_problems", "rule = ")):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                function = node.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if name.lower().endswith(("finding", "blocker")) or name == "_problems":
                    found |= set([a.value for a in node.args if _is_rule(a)][:1])  # type: ignore[attr-defined]
            elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "rule" for t in node.targets):
                found |= {n.value for n in ast.walk(node.value) if _is_rule(n)}  # type: ignore[attr-defined,arg-type]
    return found


def _is_rule(node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, str) and re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", value) is not None


def test_the_findings_of_the_reference_are_those_of_the_source() -> None:
    rows = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", _reference("findings.md"), re.MULTILINE)
    described = {rule for row in rows for rule in re.findall(r"`([a-z0-9-]+)`", row)} - {"rule"}
    assert described == _rules()
    assert len(described) > 40


def test_every_table_of_facts_stands_in_the_reference_with_its_size() -> None:
    text = _reference("facts.md")
    tables = {path.name: path for path in SOURCE.rglob("data/*.csv")}
    assert [name for name in tables if f"`{name}`" not in text] == []
    for names, sizes in re.findall(r"^\| ((?:`\w+\.csv`[^|]*)) \| ([\d, ]+) \|", text, re.MULTILINE):
        for name, size in zip(re.findall(r"`(\w+\.csv)`", names), sizes.split(", "), strict=True):
            with tables[name].open(encoding="utf-8", newline="") as file:
                assert sum(1 for _ in csv.DictReader(file)) == int(size.replace(",", "")), name


def test_the_knobs_of_the_slo_policy_have_the_defaults_of_the_source() -> None:
    text = _text(DOCS / "explanation" / "slo-policy.md")
    knobs = {
        field.name: field.default for field in dataclasses.fields(Target) if field.name in ("hold_ns", "drain_ns", "z")
    }
    told = dict(re.findall(r"^\| `(\w+)` \| ([\d.]+)(?: s)? \|", text, re.MULTILINE))
    assert {name: float(value) for name, value in told.items()} == {
        name: value / NS_PER_S if name.endswith("_ns") else value for name, value in knobs.items()
    }


# ---- output ----


@pytest.mark.parametrize(
    "block",
    [one for block in BLOCKS for one in (deep([block]) if block.command.startswith(WHOLE_RUNS) else [block])],
    ids=str,
)
def test_output_on_a_page_is_what_the_command_prints(block: Block) -> None:
    assert block.text == block.wanted(), "python tests/docs_outputs.py rewrites it"


def test_a_process_prints_the_same_on_a_pipe() -> None:
    command = next(block.command for block in BLOCKS if block.command.startswith("check examples"))
    environment = os.environ | {"COLUMNS": docs_outputs.WIDTH, "PYTHONPATH": str(REPOSITORY / "src")}
    words = [sys.executable, "-m", "tonnage", *shlex.split(command)]
    done = subprocess.run(words, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == docs_outputs.output(command) != ""


@pytest.mark.fuzz
def test_shares_and_dollars_in_the_text_of_the_readme_stand_in_its_table() -> None:
    text = _text(REPOSITORY / "README.md")
    table = docs_outputs.output("compare examples/traffic-surge -q")
    section = _without_code(text.partition("## What the demo shows")[2].partition("\n## ")[0])
    assert [number for number in re.findall(r"\$[\d.]+|[\d.]+%", section) if number not in table] == []


def test_the_page_of_kubectl_commands_lists_those_that_are_compared() -> None:
    script = runpy.run_path(str(REPOSITORY / "scripts" / "kubectl_list.py"))
    assert _reference("kubectl.md") == script["page"](), "run python scripts/kubectl_list.py"
