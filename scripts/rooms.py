"""Whether modules import each other as docs/explanation/rooms.md draws them. Run by `make check`.

Every import counts: those for types alone (`if TYPE_CHECKING`) and those within functions too. What is held:

- the picture has every package and module of `src/tonnage` once, and its layers are those of `.importlinter`;
- a room imports rooms that are drawn below it, and no others;
- so do the parts of a room that has a picture of its own, below a heading with its name;
- no module imports itself by way of others.

Prints what does not hold, one line each; exit code 1 then.
"""

from __future__ import annotations

import ast
import configparser
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Set
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
    return {name: imports_of(name, known) for name in known}


def imports_of(name: str, known: Mapping[str, Path]) -> set[str]:
    """The known modules that one of them imports anywhere in its text."""
    path = known[name]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return {one for node in ast.walk(tree) for one in _named(node, package, known)} - {name}


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


def drawn(page: str) -> dict[str, list[set[str]]]:
    """The pictures: what is drawn → its layers, the highest first. "" is the house; a picture under ``### room`` draws
    the parts of that room. The first line of a picture has one name; descriptions begin in the column of its own."""
    found = {}
    above = ""
    for heading, picture in re.findall(r"^### (\w+)$|^```text\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        if heading:
            above = heading
            continue
        lines = picture.splitlines()
        column = re.match(r"\w+\s+", lines[0])
        assert column is not None
        found[above] = [set(line[: column.end()].split()) for line in lines]
    return found


def contracted(text: str) -> list[set[str]]:
    """The layers of import-linter's first contract, the highest first."""
    parsed = configparser.ConfigParser()
    parsed.read_string(text)
    lines = parsed["importlinter:contract:layers"]["layers"].split("\n")
    return [{one.strip().removeprefix(f"{PACKAGE}.") for one in line.split("|")} for line in lines if line.strip()]


def room(module: str, within: str = "") -> str:
    """The package below ``tonnage`` that a module is in, or the module itself; with ``within``, below that package of
    it. Empty for a module that is not below it."""
    above = f"{PACKAGE}.{within}." if within else f"{PACKAGE}."
    return module.removeprefix(above).partition(".")[0] if module.startswith(above) else ""


def upward(graph: Imports, layers: list[set[str]], within: str = "") -> list[str]:
    """Imports of a room, or of a part of one, that is not drawn below the one that imports it: ``from → to``."""
    height = {name: -at for at, layer in enumerate(layers) for name in layer}
    found = []
    for name, others in sorted(graph.items()):
        here = room(name, within)
        for other in sorted(others):
            there = room(other, within)
            if here in height and there in height and here != there and height[there] >= height[here]:
                found.append(f"{name} → {other}")
    return found


def misdrawn(known: Iterable[str], layers: list[set[str]], within: str) -> Iterator[str]:
    """Rooms that a picture has not once, and names in it that are no room."""
    there = {room(name, within) for name in known} - {"", *PUBLIC}
    names = [name for layer in layers for name in layer]
    for name in sorted(there):
        if names.count(name) != 1:
            yield f"{PAGE.name}: {name} is drawn {names.count(name)} times, expected once"
    where = f"src/{PACKAGE}/{within}".rstrip("/")
    yield from (f"{PAGE.name}: {name} is drawn, and {where} has no such room" for name in sorted({*names} - there))


def problems(root: Path = ROOT) -> list[str]:
    """What does not hold, one line each."""
    known = modules(root / "src")
    graph = imports(known)
    pictures = drawn((root / PAGE.relative_to(ROOT)).read_text(encoding="utf-8"))
    found = [one for within, layers in pictures.items() for one in misdrawn(known, layers, within)]
    if pictures[""] != contracted((root / CONTRACTS.name).read_text(encoding="utf-8")):
        found.append(f"{PAGE.name} draws other layers than {CONTRACTS.name}: make them the same")
    for within, layers in pictures.items():
        below = "a part of a room imports" if within else "a room imports"
        found += [f"{one}: {below} only what is drawn below it" for one in upward(graph, layers, within)]
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
