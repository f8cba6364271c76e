"""What all commands have in common: examples, answers for programs, standard input, the options that name a cluster."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import pytest

from tonnage.cli import cli
from tonnage.cli.piped import FileToRead
from tonnage.cli.share import render as share_render

TABLES = ["table", "json", "yaml"]
NO_ANSWER = {
    "demo": "tonnage compare examples/traffic-surge -o json is the same",
    "up": "it runs until interrupted",
    "controller": "its decisions come one by one: tests/live/manager/test_decision_table.py",
    "agent cdi": "prints a CDI specification",
    "agent device-plugin": "runs until interrupted",
    "agent dra": "runs until interrupted",
    "agent health": "runs until interrupted",
    "agent inject": "prints nothing",
    "agent labels": "prints labels as features, JSON or a NodeFeature",
    "agent metrics": "runs until interrupted",
    "agent mig": "runs until interrupted",
    "trace fit": "writes a file; -o is its name",
    "trace hash": "writes a file; -o is its name",
    "mig render": "prints a file of mig-parted",
    "share render": "prints a ConfigMap",
    "init": "writes a folder",
    "dump": "prints objects as JSON or YAML",
    "schema": "prints a JSON Schema",
    "completion": "prints a script of a shell",
    "man": "prints a manual page",
}
"""Commands that print no table, and what they do."""
READS_A_CLUSTER = {
    "check": "--context",
    "why": "--context",
    "plan": "--context",
    "share": "--context",
    "advise devices": "--context",
    "mig plan": "--context",
    "cuda fleet": "--context",
    "realloc": "--context",
    "init": "--context",
    "dump": "--context",
    "size": "--kube-context",
}
"""Commands that read a cluster, and the option that names it: of `size` --context is the engine's."""
WRITTEN = {"--write", "--report", "--plot", "--save", "--record", "--output", "--to", "--kubeconfig"}
"""Options whose file is written."""
OWN = ("agent ", "trace hash", "init", "size")
"""Commands that read standard input in their own way, or programs of a node, whose files are read again and again."""


def _leaves(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(words), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from _leaves(below, (*words, name))


COMMANDS = {**dict(_leaves(cli)), "share render": share_render}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_examples_of_it_that_can_be_typed(name: str) -> None:
    text = COMMANDS[name].help or ""
    assert "\b\n" in text, "no examples"
    examples = [line.strip() for line in text.rpartition("\b\n")[2].splitlines()]
    assert any(f"tonnage {name} " in f"{one} " for one in examples)
    for one in examples:
        for part in re.findall(r"(?:^|\| *)tonnage ([^|>]*)", one):
            _typed(shlex.split(part.partition("  #")[0]))


def _typed(words: list[str]) -> None:
    """Raises click's errors for words that are no command, or options that it has not."""
    command: click.Command = cli
    while isinstance(command, click.Group):
        below = command.get_command(click.Context(command), words[0]) if words else None
        assert below is not None, words
        command, words = below, words[1:]
    command.make_context("tonnage", list(words), resilient_parsing=True)
    options = {opt for param in command.params for opt in (*param.opts, *param.secondary_opts)}
    own = words[: words.index("--")] if "--" in words else words
    assert {word.partition("=")[0] for word in own if re.match(r"--?[a-z]", word)} <= options or words[:1] == ["render"]


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - NO_ANSWER.keys()))
def test_what_prints_a_table_prints_it_as_json_and_yaml_too(name: str) -> None:
    (output,) = [one for one in COMMANDS[name].params if "--output" in one.opts]
    assert isinstance(output.type, click.Choice)
    assert list(output.type.choices)[-2:] == ["json", "yaml"] and "-o" in output.opts


def test_no_exception_is_out_of_date() -> None:
    assert NO_ANSWER.keys() | READS_A_CLUSTER.keys() <= COMMANDS.keys()
    for name in NO_ANSWER:
        for one in COMMANDS[name].params:
            assert not isinstance(one.type, click.Choice) or list(one.type.choices) != TABLES


@pytest.mark.parametrize(("name", "context"), READS_A_CLUSTER.items())
def test_what_reads_a_cluster_takes_the_options_of_kubectl(name: str, context: str) -> None:
    options = {opt for param in COMMANDS[name].params for opt in param.opts}
    assert options >= {context, "--kubeconfig", "-n", "--namespace"}


def _read_here() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in COMMANDS.items():
        for one in command.params:
            if isinstance(one.type, click.Path) and not WRITTEN & set(one.opts) and not name.startswith(OWN):
                yield name, one


def test_every_file_that_is_read_may_be_standard_input() -> None:
    read = list(_read_here())
    assert len(read) > 30
    assert [(name, one.human_readable_name) for name, one in read if not isinstance(one.type, FileToRead)] == []
