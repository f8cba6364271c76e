"""Whether modules import each other as docs/explanation/rooms.md draws them. Run by `make check`.

Every import counts: those for types alone (`if TYPE_CHECKING`) and those within functions too. What is held:

- the picture has every package and module of `src/tonnage` once, and its layers are those of `.importlinter`;
- a room imports rooms that are drawn below it, and no others;
- no module imports itself by way of others.

Prints what does not hold, one line each; exit code 1 then.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explanation/rooms.md"
CONTRACTS = ROOT / ".importlinter"
PACKAGE = "tonnage"
PUBLIC = ("__init__", "__main__")

Imports = Mapping[str, Set[str]]
"""Module → the modules that it imports, by dotted names."""


def modules(source: Path) -> dict[str, Path]:
    """Dotted name → file of every module below ``source``; a package is a module too."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(known: Mapping[str, Path]) -> dict[str, set[str]]:
    """Of each module the known modules that it imports anywhere in its text."""
    found = {}
    for name, path in known.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        found[name] = {one for node in ast.walk(tree) for one in _named(node, package, known)} - {name}
    return found


def _named(node: ast.AST, package: str, known: Mapping[str, Path]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in known)
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        for alias in node.names:
            within = f"{base}.{alias.name}"
            if within in known:
                yield within
            elif base in known:
                yield base


def circles(graph: Imports) -> list[list[str]]:
    """Modules that import each other, directly or by way of others: every largest such set, sorted (Tarjan, 1972)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []
    for start in sorted(graph):
        if start in number:
            continue
        number[start] = lowest[start] = len(number)
        stack.append(start)
        path = [(start, iter(sorted(graph[start])))]
        while path:
            here, left = path[-1]
            following = next(left, None)
            if following is not None:
                if following not in number:
                    number[following] = lowest[following] = len(number)
                    stack.append(following)
                    path.append((following, iter(sorted(graph.get(following, ())))))
                elif following in stack:
                    lowest[here] = min(lowest[here], number[following])
                continue
            path.pop()
            if path:
                above = path[-1][0]
                lowest[above] = min(lowest[above], lowest[here])
            if lowest[here] == number[here]:
                at = stack.index(here)
                if len(stack) - at > 1:
                    found.append(sorted(stack[at:]))
                del stack[at:]
    return sorted(found)


def drawn(page: str) -> list[set[str]]:
    """The layers of the picture, the highest first. Descriptions begin in the column in which the first one does."""
    (picture,) = re.findall(r"^```text\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE)
    lines = picture.splitlines()
    column = re.match(r"\w+\s+", lines[0])
    assert column is not None
    return [set(line[: column.end()].split()) for line in lines]


def contracted(text: str) -> list[set[str]]:
    """The layers of import-linter's first contract, the highest first."""
    parsed = configparser.ConfigParser()
    parsed.read_string(text)
    lines = parsed["importlinter:contract:layers"]["layers"].split("\n")
    return [{one.strip().removeprefix(f"{PACKAGE}.") for one in line.split("|")} for line in lines if line.strip()]


def room(module: str) -> str:
    """The package below ``tonnage`` that a module is in, or the module itself; empty for ``tonnage``."""
    return module.split(".")[1] if "." in module else ""


def upward(graph: Imports, layers: list[set[str]]) -> list[str]:
    """Imports of a room that is not drawn below the one that imports it: ``from → to``."""
    height = {name: -at for at, layer in enumerate(layers) for name in layer}
    return [
        f"{name} → {other}"
        for name, others in sorted(graph.items())
        for other in sorted(others)
        if room(name) in height and room(other) in height and room(name) != room(other)
        if height[room(other)] >= height[room(name)]
    ]


def problems(root: Path = ROOT) -> list[str]:
    """What does not hold, one line each."""
    known = modules(root / "src")
    graph = imports(known)
    layers = drawn((root / PAGE.relative_to(ROOT)).read_text(encoding="utf-8"))
    there = {room(name) for name in known} - {"", *PUBLIC}
    names = [name for layer in layers for name in layer]
    found = [
        f"{PAGE.name}: {name} is drawn {names.count(name)} times, expected once"
        for name in sorted(there)
        if names.count(name) != 1
    ]
    found += [f"{PAGE.name}: {name} is drawn, and src/{PACKAGE} has no such room" for name in sorted({*names} - there)]
    if layers != contracted((root / CONTRACTS.name).read_text(encoding="utf-8")):
        found.append(f"{PAGE.name} draws other layers than {CONTRACTS.name}: make them the same")
    found += [f"{one}: a room imports only what is drawn below it" for one in upward(graph, layers)]
    found += [f"these import each other, types counted: {', '.join(one)}" for one in circles(graph)]
    return found


def main() -> int:
    """Print the problems; returns the exit code."""
    found = problems()
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
