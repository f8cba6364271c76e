"""Plain values to typed objects, and every value of a wrong type said in the words of the API server."""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

T = TypeVar("T")
Step: TypeAlias = str | int

_MISSING = re.compile(r"Object missing required field `(.*)`")
_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*)`")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_ANY_KEY = "[...]"
_MAX_PROBLEMS = 50
"""Of one object; whoever has more has fed something else than a manifest."""

_PYTHON: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}
_STAND_IN: dict[str, Any] = {"int": 0, "float": 0.0, "str": "", "bool": False, "array": [], "object": {}}
_PLAIN = (str, int, float)
_STRING_MAPS = frozenset({"annotations", "labels", "matchLabels", "nodeSelector"})


class Wrong(NamedTuple):
    """A field that the API server would not decode: its path, what is wrong with it, what to do."""

    field: str
    message: str
    hint: str = ""


def without_nulls(value: Any) -> Any:
    """The value as Kubernetes takes it: a null field is absent, a null label or annotation is empty."""
    if isinstance(value, dict):
        return {
            key: inner
            if isinstance(inner, _PLAIN)
            else dict.fromkeys(inner, "") | {k: v for k, v in inner.items() if v is not None}
            if key in _STRING_MAPS and isinstance(inner, dict)
            else without_nulls(inner)
            for key, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list):
        return [item if isinstance(item, _PLAIN) else without_nulls(item) for item in value]
    return value


def convert(content: Any, type_: type[T], written: Mapping[str, str]) -> T | list[Wrong]:
    """The typed object, or everything in ``content`` that keeps it from being one.

    ``written`` has the text of scalars that YAML reads as something else than they look like, by path.
    """
    try:
        return msgspec.convert(content, type_)
    except msgspec.ValidationError as error:
        return _Repair(copy.deepcopy(content), written).run(error, type_)


def show(value: Any) -> str:
    """A value as it would stand in JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


class _Repair:
    """Finds all wrong values by putting something of the right type in the place of each one that is refused."""

    def __init__(self, content: Any, written: Mapping[str, str]) -> None:
        self.content = content
        self.written = written
        self.wrong: list[Wrong] = []
        self.replaced: set[str] = set()

    def run(self, error: msgspec.ValidationError, type_: type[Any]) -> list[Wrong]:
        while len(self.wrong) < _MAX_PROBLEMS and self._repair(str(error)):
            try:
                msgspec.convert(self.content, type_)
            except msgspec.ValidationError as next_error:
                error = next_error
            else:
                break
        return self.wrong

    def _repair(self, text: str) -> bool:
        """Note what the error says and fix it; False when that is beyond us."""
        message, _, at = text.partition(" - at `$")
        at = at.removesuffix("`").removeprefix(".")
        steps: list[Step] = [int(index) if index else name for name, index in _STEP.findall(at)]
        missing = _MISSING.fullmatch(message)
        if missing:
            near = difflib.get_close_matches(missing[1], self._get(steps), 1, 0.75)
            steps.append(missing[1])
            hint = f"is {near[0]} a typing error?" if near else "the API server requires it"
            self._note(steps, "the field is missing", hint)
            # Its type is not known here; the next error tells it.
            return self._put(steps, _Absent())
        expected = _EXPECTED.fullmatch(message)
        if expected is None:
            self._note(steps, message)
            return False
        kinds = [kind for kind in expected[1].split(" | ") if kind != "null"]
        if not at.endswith(_ANY_KEY):
            return self._replace(steps, kinds)
        inside = self._get(steps)
        wrong = [key for key, value in inside.items() if not _is_one_of(value, kinds)]
        for key in wrong:
            self._replace([*steps, key], kinds)
        return bool(wrong)

    def _replace(self, steps: list[Step], kinds: list[str]) -> bool:
        value = self._get(steps)
        if not isinstance(value, _Absent):
            message, hint = self._explain(_path(steps), value, kinds)
            self._note(steps, message, hint)
        return self._put(steps, copy.copy(_STAND_IN[kinds[0]]))

    def _explain(self, path: str, value: Any, kinds: list[str]) -> tuple[str, str]:
        expected = f"expected {_words(kinds)}"
        text = self.written.get(path)
        if text is not None:
            hint = f'quote it: "{text}"' if "str" in kinds else ""
            return f"{text}: {expected}, YAML reads it as {show(value)}", hint
        hint = ""
        if "str" in kinds and "float" not in kinds and isinstance(value, (bool, int, float)):
            hint = quote(value)
        elif isinstance(value, str) and "str" not in kinds:
            looks = _looks_like(value)
            hint = f"without quotes: {value}" if _is_one_of(looks, kinds) else ""
        return f"{show(value)}: {expected}", hint

    def _note(self, steps: list[Step], message: str, hint: str = "") -> None:
        """Keep the problem, unless it only follows from a value that was put in before."""
        path = _path(steps)
        if not any(path == of or path.startswith((f"{of}.", f"{of}[")) for of in self.replaced):
            self.wrong.append(Wrong(path, message, hint))
            self.replaced.add(path)

    def _get(self, steps: list[Step]) -> Any:
        value = self.content
        for step in steps:
            value = value[step]
        return value

    def _put(self, steps: list[Step], value: Any) -> bool:
        if not steps:
            return False
        self._get(steps[:-1])[steps[-1]] = value
        return True


def quote(value: Any) -> str:
    """What helps where text is wanted and YAML reads something else."""
    return f'quote it: "{show(value)}"'


class _Absent:
    """Stands for a required field that is not there."""


def _path(steps: list[Step]) -> str:
    path = ""
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}"
    return path.removeprefix(".")


def _words(kinds: list[str]) -> str:
    if {"str", "float"} <= set(kinds):
        return "a quantity, e.g. 500m, 8 or 32Gi"
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds)


def _is_one_of(value: Any, kinds: list[str]) -> bool:
    return any(type(value) in _PYTHON.get(kind, ()) for kind in kinds)


def _looks_like(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
