"""Completion, version and manual pages: what a shell and its user expect."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_builders import tonnage

from tonnage import __version__
from tonnage.cli import COMMANDS, COMPLETING
from tonnage.cli.shell import SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_sourced_asks_this_program(capfd: pytest.CaptureFixture[str], shell: str) -> None:
    ran = tonnage(capfd, "completion", shell)
    assert ran.code == 0
    assert f"{COMPLETING}={shell}_complete" in ran.out
    assert not ran.err


def test_bash_completes_commands_and_options(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    program = tmp_path / "tonnage"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tonnage "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    sourced = tonnage(capfd, "completion", "bash").out
    script = (
        f'{sourced}\nCOMP_WORDS=(tonnage trace ha); COMP_CWORD=2; _tonnage_completion tonnage; echo "${{COMPREPLY[@]}}"'
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([bash, "-c", script], env=env, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.split() == ["hash"]


def test_another_shell_is_refused_with_those_that_there_are(capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "completion", "tcsh")
    assert ran.code == 2
    assert all(shell in ran.err for shell in SHELLS)


def test_the_version_is_one_for_people_and_programs(capfd: pytest.CaptureFixture[str]) -> None:
    assert tonnage(capfd, "version").out.startswith(f"tonnage {__version__} ")
    assert json.loads(tonnage(capfd, "version", "-o", "json").out)["version"] == __version__


def test_every_command_has_a_page_with_its_options_and_examples(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert tonnage(capfd, "man", "--to", tmp_path).code == 0
    names = {path.stem for path in tmp_path.iterdir()}
    assert names >= {"tonnage", "tonnage-trace-hash", *(f"tonnage-{name}" for name in COMMANDS)}
    page = tonnage(capfd, "man", "trace", "hash").out
    assert page == (tmp_path / "tonnage-trace-hash.1").read_text(encoding="utf-8")
    assert page.startswith('.TH "TONNAGE-TRACE-HASH" "1"')
    assert "\\-\\-block\\-size" in page
    assert "\n.nf\ntonnage trace hash requests.jsonl" in page


def test_the_pages_are_correct_roff(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("there is no groff")
    tonnage(capfd, "man", "--to", tmp_path)
    words = [groff, "-man", "-Tutf8", "-ww", "-z", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(words, check=True, stderr=subprocess.PIPE, text=True)
    assert not done.stderr


@pytest.mark.parametrize(("words", "told"), [(("man", "sizes"), "sizes"), (("man", "--to", "/nowhere"), "/nowhere")])
def test_a_page_that_is_not_there_is_named(
    capfd: pytest.CaptureFixture[str], words: tuple[str, ...], told: str
) -> None:
    ran = tonnage(capfd, *words)
    assert ran.code == 2
    assert told in ran.err
