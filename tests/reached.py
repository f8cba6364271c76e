"""What of `src/` a command or a documented name reaches, by names in the source: no module is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

Name: TypeAlias = tuple[str, str]
"""(module, name of a function, class or constant at its top); an empty name: what runs when it is imported."""


@dataclass
class Module:
    """One file. ``aliases``: by the name that it has here, what is imported: (module, "") or (module, name)."""

    name: str
    tree: ast.Module
    is_package: bool
    aliases: dict[str, Name] = field(default_factory=dict)
    parts: dict[str, list[ast.AST]] = field(default_factory=dict)
    """Statements by the name at the top that they define; those of "" run at import."""

    def __post_init__(self) -> None:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for one in node.names:
                    self.aliases[one.asname or one.name.partition(".")[0]] = (
                        one.name if one.asname else one.name.partition(".")[0],
                        "",
                    )
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    self.aliases[one.asname or one.name] = self._from(node), one.name
        self._statements(self.tree.body)

    def _from(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def _statements(self, body: Iterable[ast.stmt]) -> None:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self.parts.setdefault(node.name, []).append(node)
                    if any(_registers(one) for one in node.decorator_list):
                        self.parts.setdefault("", []).append(ast.Name(node.name))
                case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                    self.parts.setdefault(name, []).append(node)
                case ast.If() if "TYPE_CHECKING" in ast.unparse(node.test):
                    continue
                case ast.Import() | ast.ImportFrom():
                    continue
                case ast.Expr(value=ast.Constant()):
                    continue
                case _:
                    self.parts.setdefault("", []).append(node)


def _registers(decorator: ast.expr) -> bool:
    """Whether the decorator makes it a command of a group, or a function of expressions: nobody has to name it."""
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "function":
        return True
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Attribute)
        and decorator.func.attr in ("command", "group")
        and ast.unparse(decorator.func.value) != "click"
    )


def read(source: Path) -> dict[str, Module]:
    """The modules below a source folder, by dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, ast.parse(path.read_text(encoding="utf-8")), is_package)
    return found


class Reached:
    """All that is reached from these names."""

    def __init__(self, modules: dict[str, Module], roots: Iterable[Name]) -> None:
        self.modules = modules
        self.names: set[Name] = set()
        self.attributes: set[str] = set()
        """Attributes, keywords and strings that are written in what is reached: any of them may name a method."""
        self._todo: list[Name] = list(roots)
        while self._todo:
            self._reach(*self._todo.pop())

    def _reach(self, module: str, name: str) -> None:
        there = self.modules.get(module)
        if there is None or (module, name) in self.names:
            return
        self.names.add((module, name))
        if name:
            self._todo.append((module, ""))
        elif "." in module:
            self._todo.append((module.rpartition(".")[0], ""))
        parts = there.parts.get(name, [])
        if name and not parts:
            self._todo += self._target(module, name)
        for part in parts:
            self._uses(there, part)
        if not name:
            for alias in there.aliases.values():  # what an import runs
                self._todo += [(one, "") for one in (alias[0], f"{alias[0]}.{alias[1]}") if one in self.modules]

    def _target(self, module: str, name: str) -> list[Name]:
        """What an imported name of a module stands for."""
        alias = self.modules[module].aliases.get(name)
        if f"{module}.{name}" in self.modules:
            return [(f"{module}.{name}", "")]
        return [] if alias is None else self._meaning(alias)

    def _meaning(self, alias: Name) -> list[Name]:
        module, name = alias
        if name and f"{module}.{name}" in self.modules and name not in self.modules.get(module, _NOTHING).parts:
            return [(f"{module}.{name}", "")]
        return [alias]

    def _uses(self, module: Module, part: ast.AST) -> None:
        for node in ast.walk(part):
            if isinstance(node, ast.Name):
                if node.id in module.parts:
                    self._todo.append((module.name, node.id))
                elif node.id in module.aliases:
                    self._todo += self._meaning(module.aliases[node.id])
            elif isinstance(node, ast.Attribute):
                self.attributes.add(node.attr)
                if (of := self._module_of(module, node.value)) is not None:
                    self._todo.append((of, node.attr))
            elif isinstance(node, ast.keyword) and node.arg:
                self.attributes.add(node.arg)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.attributes.add(node.value)
                if node.value.count(":") == 1 and node.value.partition(":")[0] in self.modules:
                    self._todo.append(tuple(node.value.split(":")))  # type: ignore[arg-type]
            elif isinstance(node, ast.MatchClass):
                self.attributes.update(node.kwd_attrs)

    def _module_of(self, module: Module, node: ast.AST) -> str | None:
        """The module that an expression names."""
        if isinstance(node, ast.Attribute):
            of = self._module_of(module, node.value)
            return f"{of}.{node.attr}" if of is not None and f"{of}.{node.attr}" in self.modules else None
        if not isinstance(node, ast.Name) or node.id not in module.aliases:
            return None
        (meaning,) = self._meaning(module.aliases[node.id])
        return meaning[0] if not meaning[1] and meaning[0] in self.modules else None

    @cached_property
    def dead(self) -> list[str]:
        """Modules, functions, classes, constants and methods that nothing reaches; of what is inside of one only it."""
        return sorted(self._dead())

    def _dead(self) -> Iterator[str]:
        for name, module in self.modules.items():
            if (name, "") not in self.names:
                yield name
                continue
            for part, nodes in module.parts.items():
                if not part or part.startswith("__"):
                    continue
                if (name, part) not in self.names:
                    yield f"{name}.{part}"
                    continue
                for node in nodes:
                    if isinstance(node, ast.ClassDef) and not any(self._is_foreign(module, one) for one in node.bases):
                        yield from (f"{name}.{part}.{one}" for one in self._dead_methods(node))

    def _is_foreign(self, module: Module, base: ast.expr) -> bool:
        """Whether a class of another package calls the methods of those that inherit from it."""
        first = base
        while isinstance(first, ast.Attribute):
            first = first.value
        alias = module.aliases.get(first.id) if isinstance(first, ast.Name) else None
        return alias is not None and alias[0].partition(".")[0] not in {one.partition(".")[0] for one in self.modules}

    def _dead_methods(self, node: ast.ClassDef) -> Iterator[str]:
        for one in node.body:
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and not one.name.startswith("__"):
                own = sum(isinstance(inside, ast.Attribute) and inside.attr == one.name for inside in ast.walk(one))
                if one.name not in self.attributes and not own:
                    yield one.name


_NOTHING = Module("", ast.Module([], []), False)
