"""Our own YAML documents: read into a typed struct, with the place of everything that is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from tonnage.errors import InputError, Problem, Where
from tonnage.objects import tree
from tonnage.units import NS_PER_S

T = TypeVar("T")


class Document:
    """A parsed file that remembers where its fields stand."""

    def __init__(self, path: Path, root: yaml.Node, hint: str) -> None:
        self.path = path
        self._root = root
        self._hint = hint

    @classmethod
    def empty(cls, path: Path, hint: str) -> Document:
        """One in which nothing stands, of a place without a file."""
        nowhere = yaml.Mark("", 0, -1, 0, "", 0)
        return cls(path, yaml.MappingNode("tag:yaml.org,2002:map", [], nowhere, nowhere), hint)

    def where(self, field: str) -> Where:
        """The place of the innermost part of ``field`` (``traffic[1].surges[0].start``) that is there."""
        return Where(str(self.path), self._node(field).start_mark.line + 1, field)

    def problem(self, field: str, message: str, hint: str = "") -> Problem:
        """Something wrong with ``field``."""
        return Problem(self.where(field), message, hint or self._hint)

    def convert(self, type_: type[T], secret: Set[str] = frozenset()) -> T:
        """The document as a struct. Raises InputError with file, line, field, the value and what was expected of every
        field that is wrong; the values of fields of these names are ``secret``."""
        made, problems = self.convert_some(type_, secret)
        if problems or made is None:
            raise InputError(*problems)
        return made

    def convert_some(self, type_: type[T], secret: Set[str] = frozenset()) -> tuple[T | None, list[Problem]]:
        """Like :meth:`convert`, with what is wrong beside it. Where that is fields that nobody knows, the struct is
        there without them; else it is None. Raises InputError for what is not YAML."""
        try:
            content = yaml.constructor.SafeConstructor().construct_document(self._root)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            message = f"not valid YAML: {error.problem}"
            raise InputError.at(message, file=str(self.path), line=line, hint=self._hint) from error
        problems: list[Problem] = []
        looked = _Looked(content)
        while len(problems) < _MOST_PROBLEMS:
            try:
                made = msgspec.convert(content, type_)
            except msgspec.ValidationError as error:
                message, _, path = _with_key(str(error), content, type_).partition(" - at `$")
                where = looked.as_written(path.rstrip("`"))
                problem = self._invalid(f"{message} - at `${where}`", secret)
                if not looked.is_known(problem.where.field):
                    problems.append(problem)
                if not looked.without(problem.where.field):
                    break
            else:
                known = all(one.message == _UNKNOWN for one in problems)
                return (made if known else None), sorted(problems, key=lambda one: one.where.line)
        return None, sorted(problems, key=lambda one: one.where.line)

    def _invalid(self, text: str, secret: Set[str]) -> Problem:
        """A message of msgspec ("Expected `int`, got `str` - at `$.arrivals[3]`") as a problem with its place."""
        message, _, path = text.partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        named = re.fullmatch(r"Object (missing required|contains unknown) field `(.*)`", message)
        if named:
            field = f"{field}.{named[2]}".lstrip(".")
            return self.problem(field, "the field is missing" if named[1] == "missing required" else _UNKNOWN)
        node = self._node(field)
        said = isinstance(node, yaml.ScalarNode) and field.rpartition(".")[2] not in secret
        found = f'"{node.value}": ' if said else ""
        return self.problem(field, found + message.replace("`", "").replace("Expected", "expected"))

    def _node(self, field: str) -> yaml.Node:
        node = self._root
        for name, index in re.findall(r"([^.\[\]]+)(?![^\[]*\])|\[(\d+|\.\.\.)\]", field):
            if isinstance(node, yaml.MappingNode):
                children = [value for key, value in node.value if key.value == name]
            elif isinstance(node, yaml.SequenceNode) and index.isdigit():
                children = node.value[int(index) : int(index) + 1]
            else:
                children = []
            if not children:
                break
            node = children[0]
        return node


_UNKNOWN = "unknown field"
_MOST_PROBLEMS = 50
_STEP = re.compile(r"([^.\[\]]+)(?![^\[]*\])|\[(\d+|\.\.\.)\]")


class _Looked:
    """Content of which what is wrong is taken out, one after the other, so that the rest can be looked at."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self._fields: list[str] = []
        self._items: dict[str, list[int]] = {}  # of each list those taken out, by their index in the document

    def as_written(self, field: str) -> str:
        """A field of the content as it is now, by the indices of the document."""
        found = ""
        for name, index in _STEP.findall(field):
            if index.isdigit():
                number = int(index)
                for gone in sorted(self._items.get(found, ())):
                    number += gone <= number
                found += f"[{number}]"
            else:
                found += f".{name}" if name else f"[{index}]"
        return found

    def is_known(self, field: str) -> bool:
        """Whether it, or a part of it, was taken out: what is said of it now comes of that."""
        return any(one == field or one.startswith((f"{field}.", f"{field}[")) for one in self._fields)

    def without(self, field: str) -> bool:
        """Take a field of the document out; what has it where it is missing. Whether something was taken out."""
        self._fields.append(field)
        steps = [index or name for name, index in _STEP.findall(field)]
        while steps:
            *path, last = steps
            within, place = self._content, ""
            for step in path:
                within, place = self._child(within, place, step)
            if isinstance(within, dict) and last in within:
                del within[last]
                return True
            if isinstance(within, list) and last.isdigit() and self._index(place, last) < len(within):
                within.pop(self._index(place, last))
                self._items.setdefault(place, []).append(int(last))
                return True
            steps = path
        return False

    def _child(self, within: Any, place: str, step: str) -> tuple[Any, str]:
        if isinstance(within, dict):
            return within.get(step), f"{place}.{step}"
        if isinstance(within, list) and step.isdigit():
            index = self._index(place, step)
            return (within[index] if index < len(within) else None), f"{place}[{step}]"
        return None, place

    def _index(self, place: str, step: str) -> int:
        """Where an item of the document is now."""
        return int(step) - sum(gone < int(step) for gone in self._items.get(place, ()))


def _with_key(text: str, content: dict[str, Any], type_: type[Any]) -> str:
    """A message of msgspec with the key of a top-level map that it leaves out ("at `$.policies[...].scaling`")."""
    match = re.search(r"`\$\.(\w+)\[\.\.\.\]", text)
    if match is None:
        return text
    field = match[1]
    for key, value in content[field].items():
        try:
            msgspec.convert(content | {field: {key: value}}, type_)
        except msgspec.ValidationError as error:
            if str(error) == text:
                return text.replace(f"{field}[...]", f"{field}.{key}", 1)
    return text


def _stands_twice(root: yaml.Node) -> Iterator[tuple[int, str]]:
    """(line, key) of every key that stands a second time in its mapping."""
    seen: set[str] = set()
    for child in root.value if isinstance(root, yaml.CollectionNode) else ():
        if isinstance(child, yaml.Node):
            yield from _stands_twice(child)
            continue
        key, value = child
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                yield key.start_mark.line + 1, key.value
            seen.add(key.value)
        yield from _stands_twice(value)


def read(path: Path, kind: str, what: str, hint: str) -> Document:
    """Parse ``path`` and check its ``kind``. ``what`` names the document in messages ("a scenario").

    Raises InputError: the file cannot be read, is not UTF-8 or not YAML, is empty, has a field twice, or is of another
    kind.
    """
    return parse(text_of(path, what, hint), path, kind, what, hint)


def text_of(path: Path, what: str, hint: str) -> str:
    """What stands in ``path``. Raises InputError: it cannot be read, or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError.at(
            f"cannot be read: {error.strerror}", file=str(path), hint=f"give the path of {what}"
        ) from error
    except UnicodeDecodeError as error:
        raise InputError.at("not UTF-8 text", file=str(path), hint=hint) from error


def parse(text: str, path: Path, kind: str, what: str, hint: str) -> Document:
    """Like :func:`read`, of what was read from ``path`` before."""
    root = compose(text, path, hint)
    if root is None:
        raise InputError.at(f"the file is empty, expected {what}", file=str(path), hint=hint)
    document = Document(path, root, hint)
    found = document.where("kind")
    value = (
        next((v.value for k, v in root.value if k.value == "kind"), None)
        if isinstance(root, yaml.MappingNode)
        else None
    )
    if value != kind:
        raise InputError(Problem(found, f"not {what}, expected the line kind: {kind}", hint))
    return document


def compose(text: str, path: Path, hint: str) -> yaml.Node | None:
    """The tree of one document, read from ``path``; None where there is none. Raises InputError: it is not YAML, or has
    a field twice."""
    try:
        root = yaml.compose(text, Loader=tree.LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError.at(f"not valid YAML: {error.problem}", file=str(path), line=line, hint=hint) from error
    except (yaml.YAMLError, RecursionError) as error:
        what_is_wrong = "nested too deeply" if isinstance(error, RecursionError) else str(error).splitlines()[0]
        raise InputError.at(f"not valid YAML: {what_is_wrong}", file=str(path), hint=hint) from error
    if root is None:
        return None
    tree.check(root, str(path))
    twice = list(_stands_twice(root))
    if twice:
        raise InputError(
            *(Problem(Where(str(path), line, key), "the field appears twice", hint) for line, key in twice)
        )
    return root


def without_nulls(node: yaml.Node) -> yaml.Node:
    """The tree without the fields whose value is null: as if they were not there. It is changed in place."""
    if isinstance(node, yaml.MappingNode):
        node.value = [(key, value) for key, value in node.value if value.tag != _NULL]
    for child in node.value if isinstance(node, yaml.CollectionNode) else ():
        without_nulls(child[1] if isinstance(child, tuple) else child)
    return node


_NULL = "tag:yaml.org,2002:null"
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")


LONGEST_S = 366 * 24 * 3600
"""No duration of a scenario is longer than a year."""


def duration_ns(text: str) -> int:
    """``90m``, ``1h30m``, ``2s``, ``50ms`` in nanoseconds. Raises ValueError, also for more than a year."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not text.strip():
        raise ValueError(text)
    hours, minutes, seconds, milliseconds = (float(part) if part else 0.0 for part in match.groups())
    total_s = hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
    if total_s > LONGEST_S:
        raise ValueError(text)
    return round(total_s * NS_PER_S)


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    """A part of a scenario: a field that it does not know is an error."""
