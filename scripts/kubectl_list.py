"""Writes docs/reference/kubectl.md from the list of commands that are compared with a real kube-apiserver.

``python scripts/kubectl_list.py [--check]``; with --check it writes nothing and exits with 1 when the page is old.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = ROOT / "tests" / "apiserver" / "differential" / "commands.yaml"
PAGE = ROOT / "docs" / "reference" / "kubectl.md"

OPENING = """# What kubectl does on the embedded API

Each of these commands is run, in this order, against the [embedded API](embedded-api.md) and against a real
kube-apiserver (v1.36.3) with its controller manager. Exit code, standard output and standard error are the same, but
for ids, ages, times, addresses and random names; where a command is marked, only the exit code is compared. The files
that they name are in [manifests](../../tests/apiserver/differential/manifests). What is not on this list may differ.
"""
NOT_SUPPORTED = """
## Not supported

These end with an error that says so.
"""


def page() -> str:
    """The page as it should be."""
    found: dict[str, Any] = yaml.safe_load(COMMANDS.read_text(encoding="utf-8"))
    parts = [OPENING]
    for scenario in found["scenarios"]:
        parts.append(f"\n## {scenario['name']}\n")
        parts.append(_block(_line(step) for step in scenario["commands"]))
    parts.append(NOT_SUPPORTED)
    parts.append(_block(step["run"] if isinstance(step, dict) else step for step in found["not_supported"]))
    return "\n".join(parts)


def _line(step: dict[str, Any]) -> str:
    file = f" < {step['input']}" if isinstance(step.get("input"), str) and "\n" not in step["input"] else ""
    mark = "    # exit code only" if step.get("compare") == "exit" else ""
    return f"{step['run']}{file}{mark}"


def _block(lines: Any) -> str:
    text = "\n".join(line.strip() for line in lines)
    return f"```sh\n{text}\n```\n"


def main() -> int:
    wanted = page()
    if "--check" in sys.argv[1:]:
        return int(not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
