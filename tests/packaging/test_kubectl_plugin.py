"""`kubectl tonnage`: the same command line under kubectl's name, and completions as kubectl asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kube_programs
from chart_builders import ROOT
from tonnage.cli import COMMANDS, plugin


def ends(call: object, *arguments: str) -> int:
    """The exit code of an entry point."""
    with pytest.raises(SystemExit) as ended:
        call(list(arguments))  # type: ignore[operator]
    return int(ended.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "code", "stream", "words"),
    [
        (["--help"], 0, "out", "Usage: kubectl tonnage [OPTIONS]"),
        ([], 0, "out", "Usage: kubectl tonnage [OPTIONS]"),
        (["simulate", "--help"], 0, "out", "Usage: kubectl tonnage simulate [OPTIONS] SCENARIO"),
        (["--version"], 0, "out", "kubectl tonnage "),
        (["simulate", "--nope"], 2, "err", "(see kubectl tonnage simulate --help)"),
        (["simulat"], 2, "err", "no command 'simulat' (did you mean simulate?) (see kubectl tonnage --help)"),
        (["check", "nowhere.yaml"], 2, "err", "nowhere.yaml"),
    ],
)
def test_help_and_errors_name_the_plugin(
    arguments: list[str], code: int, stream: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(plugin.main, *arguments) == code
    printed = capsys.readouterr()
    assert words in (printed.out if stream == "out" else printed.err)
    assert "Usage: tonnage" not in printed.out and "see tonnage" not in printed.err


def completions(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[list[str], str]:
    """What the plugin offers, without descriptions, and the directive."""
    plugin.complete(list(words))
    *offered, last = capsys.readouterr().out.splitlines()
    assert last.startswith(":")
    return [line.split("\t")[0] for line in offered], last[1:]


@pytest.mark.parametrize(
    ("words", "offered", "directive"),
    [
        (["sim"], ["simulate"], plugin.NOTHING_ELSE),
        (["simulate", "--pol"], ["--policy"], plugin.NOTHING_ELSE),
        (["simulate", "--output", ""], ["table", "json", "yaml"], plugin.NOTHING_ELSE),
        (["simulate", ""], [], plugin.FILES),
        (["nope", ""], [], plugin.NOTHING_ELSE),
        (["trace", ""], ["fit", "hash", "show"], plugin.NOTHING_ELSE),
        (["zzz"], [], plugin.NOTHING_ELSE),
    ],
)
def test_words_are_completed(
    words: list[str], offered: list[str], directive: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert completions(capsys, *words) == (offered, str(directive))


@pytest.mark.parametrize("words", [[], [""]])
def test_nothing_typed_offers_every_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert completions(capsys, *words) == (list(COMMANDS), str(plugin.NOTHING_ELSE))


def test_a_description_stays_on_its_line_after_a_tab(capsys: pytest.CaptureFixture[str]) -> None:
    plugin.complete(["simulate", "--policy"])
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("--policy\tOne of the scenario's policies.")
    assert last == ":4"


def test_both_programs_are_installed() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-tonnage"] == "tonnage.cli.plugin:main"
    assert scripts["kubectl_complete-tonnage"] == "tonnage.cli.plugin:complete"


@pytest.fixture
def on_the_path(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has both programs, as an installation puts them there."""
    for program, function in (("kubectl-tonnage", "main"), ("kubectl_complete-tonnage", "complete")):
        script = tmp_path / program
        script.write_text(f"#!{sys.executable}\nfrom tonnage.cli.plugin import {function}\n{function}()\n")
        script.chmod(0o755)
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}


@pytest.mark.peer
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tonnage", "--version"], 0, "kubectl tonnage "),
        (["tonnage", "simulate", "--nope"], 2, "see kubectl tonnage simulate --help"),
        (["__complete", "tonnage", "sim"], 0, "simulate\t"),
        (["__complete", "tonnage", "sim"], 0, "ShellCompDirectiveNoFileComp"),
        (["__complete", "tonnage", "simulate", "--report", ""], 0, "ShellCompDirectiveDefault"),
        (["plugin", "list", "--name-only"], 0, "kubectl-tonnage"),
    ],
)
def test_kubectl_runs_and_completes_it(
    on_the_path: dict[str, str], arguments: list[str], code: int, words: str
) -> None:
    done = subprocess.run(
        [kube_programs.kubectl(), *arguments], env=on_the_path, text=True, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == code or arguments[0] == "plugin", done.stderr  # it also warns of other people's plugins
    assert words in done.stdout + done.stderr
