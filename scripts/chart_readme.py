#!/usr/bin/env python3
"""Writes the values into charts/tonnage/README.md from the comments in values.yaml; `--check` only compares."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import yaml

CHART = Path(__file__).resolve().parent.parent / "charts/tonnage"
BEGIN, END = "<!-- values -->", "<!-- end of values -->"
_KEY = re.compile(r"( *)([A-Za-z][\w-]*):(?: .*)?")
_COMMENT = re.compile(r" *# ?(.*)")


class Value(NamedTuple):
    """One value: its path from the root, its default, the comment above it (empty without one)."""

    path: tuple[str, ...]
    default: Any
    text: str

    @property
    def name(self) -> str:
        """The path as ``helm --set`` takes it."""
        return ".".join(self.path)


def read(source: str) -> list[Value]:
    """The leaves of a values file in its order: what is no block mapping, or has a comment of its own and ``{}``.

    Comments that stand alone, with a blank line after them, belong to no value."""
    lines = source.splitlines()
    tree = yaml.safe_load(source)
    found: list[Value] = []
    path: list[tuple[int, str]] = []
    comments: list[str] = []
    for line in lines:
        if comment := _COMMENT.fullmatch(line):
            comments.append(comment[1].strip())
            continue
        key = _KEY.fullmatch(line)
        if key is None:
            comments = []
            continue
        indent = len(key[1])
        path = [step for step in path if step[0] < indent]
        parent = tuple(name for _, name in path)
        if _is_leaf(parent, tree):
            comments = []
            continue  # inside a value that is documented as a whole
        path.append((indent, key[2]))
        names = (*parent, key[2])
        if _is_leaf(names, tree):
            found.append(Value(names, _at(tree, names), " ".join(comments)))
        comments = []
    return found


def _at(tree: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        tree = tree[name]
    return tree


def _is_leaf(path: tuple[str, ...], tree: Any) -> bool:
    value = _at(tree, path)
    return not isinstance(value, dict) or not value or path[-1:] == ("resources",)


def table(values: list[Value]) -> str:
    """The values as a Markdown table."""
    rows = ["| value | default | |", "|---|---|---|"]
    for value in values:
        text = value.text.replace("|", r"\|")
        rows.append(f"| `{value.name}` | `{json.dumps(value.default)}` | {text} |")
    return "\n".join(rows)


def rendered(readme: str, values: list[Value]) -> str:
    """The README with the table between its markers."""
    head, _, rest = readme.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(values)}\n{END}{tail}"


def main() -> int:
    """Writes the README; with ``--check``, 1 when it would change."""
    path = CHART / "README.md"
    before = path.read_text()
    after = rendered(before, read((CHART / "values.yaml").read_text()))
    if "--check" in sys.argv[1:]:
        if before != after:
            print("charts/tonnage/README.md is not up to date: run scripts/chart_readme.py", file=sys.stderr)
            return 1
        return 0
    path.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
