"""YAML and JSON text to plain values, with the line of every field.

A YAML scalar means what it means to Kubernetes' tooling (kubernetes-sigs/yaml goyaml.v2 resolve.go): `on`, `yes` and
`y` are booleans, `010` is 8, `1_000` is 1000, `1e3` is a number, while base-60 numbers (`12:30`) and dates are
strings. Keys are read alike and made strings again. Merge keys (`<<`) are taken over, with what stands beside them
winning.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import yaml

from tonnage.errors import InputError, Problem, Where
from tonnage.objects.base import LINE

Lines = dict[str, int]

_ACTION = re.compile(r"^[ \t]*\{\{|:[ \t]+\{\{", re.MULTILINE)
"""An action of a Go template where YAML has a key or a value: no YAML is written so."""
_RENDER = "a template is read once it is rendered: helm template CHART | tonnage … -"
_NULL = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_TRUE = dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True)
_FALSE = dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False)
_WORDS: dict[str, bool | None] = {**_NULL, **_TRUE, **_FALSE}
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BASES = (16, 2, 8, 10)
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_NUMBER = re.compile(r"(?<![\w\"])(NaN|-?Infinity)(?![\w\"])")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON_TOKEN = re.compile(r'\n|"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')

_SCRIPTS = (".command", ".args")
"""Lists in which a text may be a script, of whose lines each has its own place."""
_MOST_DIGITS = 250
"""Of an integer: in any base less than the largest float, 1.8e308."""

_STR = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_MAX_ALIASED = 100_000
"""Values that aliases may add to a document: far more than any manifest needs, and no way to fill the memory."""

DEEPEST = 200
"""Levels of a document. Schemas in CustomResourceDefinitions have some 60."""

_RESOLVER = yaml.resolver.Resolver()


@dataclass(slots=True)
class Tree:
    """One document: its value, the line where it begins, and the line of each field by path.

    ``written`` has the text of plain scalars that mean something else than they look like (`on`, `010`), by path;
    ``problems`` what is wrong with the document itself (a key that appears twice).
    """

    file: str
    line: int
    value: Any = None
    lines: Lines = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where it is there: ten times as fast."""


def check(root: yaml.Node, file: str) -> None:
    """Raises InputError where aliases contain themselves or stand for too much, or the nodes are nested too deep: then
    nothing may walk them."""
    _Reader(root, file)


def parse(text: str, file: str) -> Iterator[Tree]:
    """Every non-empty document of a YAML text. Raises InputError with file and line for broken YAML."""
    try:
        for root in yaml.compose_all(text, Loader=LOADER):
            if root is not None and not (isinstance(root, yaml.ScalarNode) and root.value in _NULL):
                yield _Reader(root, file).tree
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError.at(
            f"not valid YAML: {error.problem}",
            file=file,
            line=line,
            hint=_RENDER if _ACTION.search(text) else "check the indentation and quotes there",
        ) from error
    except yaml.YAMLError as error:
        raise InputError.at(f"not valid YAML: {error}", file=file, hint="is it a text file?") from error


def parse_json(text: str, file: str) -> Tree:
    """The value of a JSON text. Raises InputError with file and line for broken JSON."""
    try:
        value = json.loads(text, parse_int=_json_integer, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InputError.at(
            f"not valid JSON: {error.msg} (column {error.colno})",
            file=file,
            line=error.lineno,
            hint="check the commas and quotes there",
        ) from error
    except _NoNumber as error:
        found = _NO_NUMBER.search(text)
        line = text[: found.start()].count("\n") + 1 if found else 0
        hint = "JSON has neither NaN nor infinity"
        raise InputError.at(f"not valid JSON: {error}", file=file, line=line, hint=hint) from error
    if _SURROGATE.search(text):
        value = without_halves(value)
    tree = Tree(file, text[: len(text) - len(text.lstrip())].count("\n") + 1, value)
    _note_json_lines(text, tree)
    return tree


def _json_integer(written: str) -> int | float | str:
    """As YAML's: one that no float holds is not a number."""
    found = scalar(written)
    assert isinstance(found, int | float | str)
    return found


def without_halves(value: Any) -> Any:
    """The value with U+FFFD for each half of a character that stands alone, as Go has it."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_halves(inner) for inner in value]
    if isinstance(value, dict):
        return {without_halves(key): without_halves(inner) for key, inner in value.items()}
    return value


class _NoNumber(ValueError):
    """NaN or Infinity, which Python reads and JSON does not have."""


def _no_constant(written: str) -> Any:
    raise _NoNumber(written)


@lru_cache(maxsize=4096)
def scalar(text: str) -> Any:
    """What a plain YAML scalar means: None, a boolean, an integer, a float or the text itself."""
    first = text[:1]
    if first in "yYnNtTfFoO~":
        return _WORDS.get(text, text)
    if first in "+-.0123456789":
        return _number(text)
    return text


def _number(text: str) -> Any:
    plain = text.replace("_", "")
    integer = _INTEGER.fullmatch(plain)
    if integer:
        sign, *digits = integer.groups()
        written, base = next((d, base) for d, base in zip(digits, _BASES, strict=True) if d is not None)
        if len(written) > _MOST_DIGITS:
            return text  # more than a float holds: a string, as infinity is
        value = int(written, base)
        value = -value if sign == "-" else value
        return value if -(2**63) <= value < 2**63 else float(value)
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    if number in (float("inf"), float("-inf")):
        return text
    # JSON, through which every manifest passes, writes 3.0 and 1e3 as integers.
    return int(number) if number.is_integer() and abs(number) < 1e21 else number


def _too_deep(file: str, line: int) -> InputError:
    return InputError.at("nested too deep", file=file, line=line, hint=f"expected at most {DEEPEST} levels")


def _implicit_tag(text: str) -> str:
    tag: str = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    return tag


class _Reader:
    """Builds a Tree from composed YAML nodes."""

    def __init__(self, root: yaml.Node, file: str) -> None:
        self.tree = Tree(file, root.start_mark.line + 1)
        self._open: set[int] = set()
        self._seen: set[int] = set()
        self._aliased = 0
        self.tree.value = self._value(root, "")

    def _value(self, node: yaml.Node, path: str) -> Any:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._enter(node, path)
        value = self._mapping(node, path) if isinstance(node, yaml.MappingNode) else self._sequence(node, path)
        self._open.discard(id(node))
        return value

    def _enter(self, node: yaml.Node, path: str) -> None:
        """Refuse aliases that contain themselves or multiply endlessly."""
        line = node.start_mark.line + 1
        if id(node) in self._open:
            raise InputError.at("an alias is inside its own anchor", file=self.tree.file, line=line, field=path)
        if len(self._open) >= DEEPEST:
            raise _too_deep(self.tree.file, line)
        if id(node) in self._seen:
            self._aliased += len(node.value)
            if self._aliased > _MAX_ALIASED:
                message = f"the aliases stand for more than {_MAX_ALIASED} values"
                raise InputError.at(message, file=self.tree.file, line=line, field=path)
        self._open.add(id(node))
        self._seen.add(id(node))

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Any:
        value = _value_of(node)
        if value is not None and not isinstance(value, str) and json.dumps(value) != node.value:
            self.tree.written[path] = node.value
        return value

    def _sequence(self, node: yaml.Node, path: str) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            inner = f"{path}[{index}]"
            self.tree.lines[inner] = item.start_mark.line + 1
            items.append(self._value(item, inner))
            if isinstance(item, yaml.ScalarNode) and item.style == "|" and path.endswith(_SCRIPTS):
                first = item.start_mark.line + 2
                self.tree.lines.update({f"{inner}{LINE}{n}": first + n for n in range(item.value.count("\n") + 1)})
        return items

    def _mapping(self, node: yaml.Node, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == _MERGE:
                merged += _sources(value)
                continue
            name = _key(key)
            if name is None:
                hint = "a Helm template must be rendered first: helm template"
                self._problem("a key must be a string", line, path, hint)
                continue
            inner = f"{path}.{name}" if path else name
            if name in found:
                self._problem(f"the key {name!r} appears twice", line, inner, "keep one of them")
                continue
            self.tree.lines[inner] = line
            found[name] = self._value(value, inner)
        for source in merged:
            self._merge(source, path, found)
        return found

    def _merge(self, source: yaml.Node, path: str, found: dict[str, Any]) -> None:
        """Take over what a `<<` names, less the keys that are there already."""
        if not isinstance(source, yaml.MappingNode):
            self._problem("<< must name a mapping", source.start_mark.line + 1, path, "e.g. <<: *defaults")
            return
        self._enter(source, path)
        for key, value in source.value:
            name = _key(key)
            if key.tag == _MERGE:
                for inner_source in _sources(value):
                    self._merge(inner_source, path, found)
            elif name is not None and name not in found:
                inner = f"{path}.{name}" if path else name
                self.tree.lines[inner] = key.start_mark.line + 1
                found[name] = self._value(value, inner)
        self._open.discard(id(source))

    def _problem(self, message: str, line: int, path: str, hint: str) -> None:
        self.tree.problems.append(Problem(Where(self.tree.file, line, path), message, hint))


def _value_of(node: yaml.ScalarNode) -> Any:
    text: str = node.value
    if node.style and node.tag in (_STR, "!"):
        return text
    value = scalar(text)
    explicit = node.tag == _STR and not isinstance(value, str) and _implicit_tag(text) != _STR
    return text if explicit else value


def _key(node: yaml.Node) -> str | None:
    """A mapping's key as JSON has it: `on` is "true", `010` is "8"; None for what JSON has no key for."""
    value = _value_of(node) if isinstance(node, yaml.ScalarNode) else None
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _sources(value: yaml.Node) -> list[yaml.Node]:
    """What a `<<` takes over: one mapping or several, the first of which wins."""
    return list(value.value) if isinstance(value, yaml.SequenceNode) else [value]


@dataclass(slots=True)
class _Level:
    """An open object (with its keys so far) or list (with the index of the next item) of a JSON text."""

    path: str
    is_object: bool
    keys: set[str] = field(default_factory=set)
    key: str = ""
    index: int = 0

    def inner(self) -> str:
        if not self.is_object:
            return f"{self.path}[{self.index}]"
        return f"{self.path}.{self.key}" if self.path else self.key


def _note_json_lines(text: str, tree: Tree) -> None:
    """Fill in the tree's lines from the tokens of a text that is known to be valid."""
    line = 1
    levels: list[_Level] = []
    expects_key = False
    for match in _JSON_TOKEN.finditer(text):
        token = match[0]
        if token == "\n":
            line += 1
        elif token == ":":
            expects_key = False
        elif token == ",":
            expects_key = levels[-1].is_object
            levels[-1].index += 1
        elif token in ("}", "]"):
            levels.pop()
            expects_key = False
        elif expects_key:
            _note_key(json.loads(token), levels[-1], line, tree)
        else:
            path = levels[-1].inner() if levels else ""
            if levels and not levels[-1].is_object:
                tree.lines[path] = line
            if token in ("{", "["):
                expects_key = token == "{"
                levels.append(_Level(path, is_object=expects_key))
                if len(levels) > DEEPEST:
                    raise _too_deep(tree.file, line)


def _note_key(key: str, level: _Level, line: int, tree: Tree) -> None:
    level.key = key
    inner = level.inner()
    if key in level.keys:
        message = f"the key {key!r} appears twice"
        tree.problems.append(Problem(Where(tree.file, line, inner), message, "keep one of them"))
    level.keys.add(key)
    tree.lines[inner] = line
