"""`make demo` on a fresh clone: what it installs, and what is seen meanwhile. The Python and its pip are stand-ins."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "scripts" / "venv.sh"
PYTHON = """\
#!/usr/bin/env bash
case "$1 $2" in
  "-c "*) exit 0 ;;
  "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip")
    echo "${@: -1}" >> "$(dirname "$0")/../asked"
    printf 'Obtaining file:///clone\\nCollecting click>=8.1 (from tonnage==0.1)\\n  Downloading click.whl\\n'
    printf 'Collecting rich[all]<15\\nInstalling collected packages: click, rich\\n'
    exit ${FAILS:-0} ;;
esac
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    made = tmp_path / "python"
    made.write_text(PYTHON)
    made.chmod(0o755)
    return made


def set_up(python: Path, **more: str) -> tuple[int, str]:
    """The exit code of the script, and what it shows on a terminal."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"VENV": str(python.parent / "venv"), "PYTHON": str(python), **more}
    done = subprocess.run([str(SCRIPT), "."], env=environment, stderr=theirs, stdout=subprocess.DEVNULL, check=False)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # Linux: nobody has the other end open any more
            part = b""
        if not part:
            break
        shown += part
    os.close(ours)
    return done.returncode, shown.decode()


def test_each_package_is_named_as_it_comes(python: Path) -> None:
    code, shown = set_up(python)
    assert code == 0
    assert re.findall(r"\x1b\[K {2}([^\r\n\x1b]+)", shown) == ["1: click", "2: rich", "unpacking 2 packages"]
    assert re.search(r"installed in \d+ s", shown)


def test_off_a_terminal_only_the_beginning_and_the_end_are_said(python: Path) -> None:
    environment = os.environ | {"VENV": str(python.parent / "venv"), "PYTHON": str(python)}
    done = subprocess.run([str(SCRIPT)], env=environment, capture_output=True, text=True, check=True)
    said = [re.sub(r"\d+", "N", line) for line in done.stderr.splitlines()]
    assert [line.partition(" /")[0] for line in said] == ["making", "installing Tonnage into", "installed in N s"]
    assert done.stdout == ""


def test_a_failed_installation_is_a_failure(python: Path) -> None:
    code, _ = set_up(python, FAILS="3")
    assert code == 3


@pytest.mark.parametrize(("there", "asked"), [((), "scripts/venv.sh ."), ((".installed",), "scripts/venv.sh '.[dev]'")])
def test_the_demo_installs_what_it_needs_and_keeps_what_tests_need(
    tmp_path: Path, there: tuple[str, ...], asked: str
) -> None:
    for name in there:  # older than pyproject.toml
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    command = ["make", "--dry-run", "demo", f"VENV={tmp_path}"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    (line,) = [line for line in done.stdout.splitlines() if "scripts/venv.sh" in line]
    assert line.endswith(asked)
