"""Configuration files of NVIDIA's tools: YAML with the line of every field, plain or inside a ConfigMap.

What is inside a ConfigMap has the lines of the file that holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from tonnage.errors import InputError, Problem, Where
from tonnage.objects import dump, tree
from tonnage.objects.base import ObjectMeta, Origin, Unknown, place, where
from tonnage.objects.core import ConfigMap
from tonnage.objects.decode import convert, without_nulls
from tonnage.objects.tree import Tree
from tonnage.objects.unknown import fields
from tonnage.objects.validate import check

T = TypeVar("T")


@dataclass(slots=True)
class ConfigDocument:
    """One configuration: ``key`` is its key in a ConfigMap, empty for a plain file. ``value``: plain, without nulls."""

    tree: Tree
    key: str = ""
    value: Any = field(init=False)

    def __post_init__(self) -> None:
        self.value = without_nulls(self.tree.value)

    def where(self, path: str = "") -> Where:
        """The place of a field, or of the innermost part of its path that was written; of the whole by its key."""
        if not path and self.key:
            return Where(self.tree.file, self.tree.line, f"data.{self.key}")
        return place(Origin(self.tree.file, self.tree.line), self.tree.lines, path)

    def problem(self, path: str, message: str, hint: str = "") -> Problem:
        """Something wrong or suspicious about a field."""
        return Problem(self.where(path), message, hint)


def read(text: str, file: str) -> list[ConfigDocument]:
    """The configurations in a text. Raises InputError for broken YAML, a key that appears twice, or nothing there."""
    found = [document for one in tree.parse(text, file) for document in _unwrapped(one, text)]
    if not found:
        raise InputError.at("no configuration in it", file=file, hint="expected YAML with version: v1")
    problems = [problem for document in found for problem in document.tree.problems]
    if problems:
        raise InputError(*problems)
    return found


def inside(one: ConfigMap) -> list[ConfigDocument]:
    """The configurations in a ConfigMap of the manifests, by key; an empty text is an empty configuration.

    Raises InputError for broken YAML and a key that appears twice."""
    found = []
    for key, text in one.data.items():
        at = place_of(one, key)
        trees = list(_shifted(text, at.file, at.line, block="\n" in text)) or [Tree(at.file, at.line, {})]
        found += [ConfigDocument(made, key) for made in trees]
    problems = [problem for document in found for problem in document.tree.problems]
    if problems:
        raise InputError(*problems)
    return found


def place_of(one: ConfigMap, key: str) -> Where:
    """Where a key of a ConfigMap's data stands."""
    return where(one, f"data.{key}")


def typed(document: ConfigDocument, value: Any, type_: type[T], path: str, who: str) -> T | list[Problem]:
    """``value``, which stands at ``path``, as a struct, or everything that keeps it from being one. ``who``: the
    program that reads it."""
    start = f"{path}." if path else ""
    written = {at.removeprefix(start): text for at, text in document.tree.written.items() if at.startswith(start)}
    made = convert(value, type_, written)
    if not isinstance(made, list):
        return made
    return [
        document.problem(
            start + wrong.field if wrong.field else path,
            wrong.message,
            wrong.hint.replace("the API server requires", f"{who} requires"),
        )
        for wrong in made
    ]


def unknown_fields(document: ConfigDocument, value: Any, type_: type[Any], path: str, effect: str) -> list[Problem]:
    """A problem for each field that ``type_`` has not, with near names; ``effect``: what the program does then."""
    start = f"{path}." if path else ""
    return [
        document.problem(start + at, message, hint if hint.startswith("did you mean") else effect)
        for at, message, hint in fields(value, type_)
    ]


def check_version(document: ConfigDocument, *, required: bool) -> list[Problem]:
    """What is wrong with ``version``: it has to be ``v1``."""
    value = document.value if isinstance(document.value, dict) else {}
    if "version" not in value:
        return [document.problem("version", "the field is missing", "expected version: v1")] if required else []
    if value["version"] != "v1":
        return [document.problem("version", f"unknown version {value['version']!r}", "expected version: v1")]
    return []


def yaml_text(content: Mapping[str, Any]) -> str:
    """Plain values as YAML, keys in their order, strings quoted where they would be read as something else."""
    return dump.dump([Unknown(api_version="", kind="", content=dict(content))])


def config_map(name: str, data: Mapping[str, str], namespace: str = "") -> str:
    """A ConfigMap around configurations, as YAML. Raises InputError for a name or namespace that cannot be one."""
    made = ConfigMap(api_version="v1", kind="ConfigMap", metadata=ObjectMeta(name=name, namespace=namespace))
    made.data = dict(data)
    problems = check(made, lambda field: Where(field=field))
    if problems:
        raise InputError(*problems)
    return dump.dump([made])


def _unwrapped(outer: Tree, text: str) -> Iterator[ConfigDocument]:
    value = outer.value
    if not isinstance(value, dict) or value.get("kind") != "ConfigMap":
        yield ConfigDocument(outer)
        return
    at = partial(place, Origin(outer.file, outer.line), outer.lines)
    data = value.get("data")
    if not isinstance(data, dict) or not data:
        raise InputError(Problem(at("data"), "the ConfigMap has no data", "expected a key with a configuration"))
    if outer.problems:
        raise InputError(*outer.problems)
    for key, inner in data.items():
        if not isinstance(inner, str):
            raise InputError(Problem(at(f"data.{key}"), "expected a text", f"write {key}: | and indent what follows"))
        line = at(f"data.{key}").line
        made = list(_shifted(inner, outer.file, *_lines(inner, text, line)))
        for one in made or [Tree(outer.file, line, {})]:
            yield ConfigDocument(one, key)


def _lines(inner: str, text: str, line: int) -> tuple[int, bool]:
    """How many lines of the file are above the inner text that stands at the key on ``line``, and whether its lines
    are lines of the file: they are in a block (``|``)."""
    outer = text.splitlines()[line:]
    block = all(a.strip() == b.strip() for a, b in zip(inner.splitlines(), outer, strict=False))
    return line, block and inner.count("\n") > 0


def _shifted(inner: str, file: str, above: int, block: bool) -> Iterator[Tree]:
    """The documents of an inner text with the lines of the file."""

    def line(number: int) -> int:
        return above + number if block else above

    try:
        for one in tree.parse(inner, file):
            one.line = line(one.line)
            one.lines = {path: line(number) for path, number in one.lines.items()}
            one.problems = [replace(p, where=replace(p.where, line=line(p.where.line))) for p in one.problems]
            yield one
    except InputError as error:
        raise InputError(
            *(replace(p, where=replace(p.where, line=line(p.where.line))) for p in error.problems)
        ) from error
