"""Pods from JSON, fast: what `kubectl get pods -A -o json` or the API server sends for a whole cluster.

Two passes over each pod, both in compiled code: a strict one over mirrors of the pod's structs that know every field
of the API and refuse any other, and one that makes the pod. Only a pod that fails is looked at field by field.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Literal, get_args, get_origin

import msgspec

from tonnage.errors import InputError, Problem, Where
from tonnage.objects import unknown
from tonnage.objects.base import ObjectMeta, Origin
from tonnage.objects.core import Pod, PodSpec, PodStatus
from tonnage.objects.decode import convert, without_nulls
from tonnage.objects.known import unread


class _Listed(msgspec.Struct, rename="camel", gc=False, kw_only=True):
    """A pod as it stands in a list; the API server leaves out what the list says already."""

    api_version: str = "v1"
    kind: Literal["Pod"] = "Pod"
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec
    status: PodStatus = PodStatus()

    def pod(self) -> Pod:
        return Pod(
            api_version=self.api_version,
            kind=self.kind,
            metadata=self.metadata,
            spec=self.spec,
            status=self.status,
        )


class _Named(msgspec.Struct):
    kind: msgspec.Raw = msgspec.Raw()


class _List(msgspec.Struct):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


def pods_from_json(data: bytes, file: str = "") -> tuple[list[Pod], list[Problem]]:
    """The pods of a JSON list (PodList, List, array, or a single Pod), and warnings about fields that nobody knows.

    The pods are taken as an API server's: their types are checked, the rules of admission are not. Objects of other
    kinds are left out with a warning. ``file`` names the input in messages; the line is that of the pod.

    Raises InputError for broken JSON and for values of a wrong type, all of them.
    """
    try:
        with _collector_paused():
            return _pods(data, file)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        hint = "expected what kubectl get pods -o json prints"
        raise InputError.at(f"not a JSON list of pods: {error}", file=file, hint=hint) from error


def _pods(data: bytes, file: str) -> tuple[list[Pod], list[Problem]]:
    items, prefix = _items(data)
    strict = msgspec.json.Decoder(_mirror(_Listed))
    make = _maker(items)
    origin = Origin(file)
    pods: list[Pod | None] = []
    doubtful: list[int] = []
    for index, raw in enumerate(items):
        try:
            strict.decode(raw)
            made = make(raw)
        except msgspec.ValidationError:
            pods.append(None)
            doubtful.append(index)
            continue
        if file:
            made.remember(origin, {})
        pods.append(made)
    warnings = _look_at(doubtful, items, pods, data, file, prefix)
    return [pod for pod in pods if pod is not None], warnings


def _maker(items: list[msgspec.Raw]) -> Callable[[msgspec.Raw], Pod]:
    """What makes a pod of its text. kubectl writes the kind of every item; the API server leaves it out."""
    with suppress(msgspec.ValidationError):  # of the first item: the one who makes it will say so
        if items and msgspec.json.decode(items[0], type=_Named).kind:
            return msgspec.json.Decoder(Pod).decode
    listed = msgspec.json.Decoder(_Listed)
    return lambda raw: listed.decode(raw).pod()


def _items(data: bytes) -> tuple[list[msgspec.Raw], str]:
    """The items, undecoded, and how their path begins."""
    if data.lstrip()[:1] == b"[":
        return msgspec.json.decode(data, type=list[msgspec.Raw]), "[{}]"
    whole = msgspec.json.decode(data, type=_List)
    if whole.kind.endswith("List"):
        return whole.items or [], "items[{}]"
    return [msgspec.Raw(data)], ""


class _Lines:
    """Where items stand in the text; asked for in order."""

    def __init__(self, data: bytes, items: list[msgspec.Raw]) -> None:
        self.data, self.items = data, items
        self.index, self.offset, self.line = 0, 0, 1
        self.one_line = b"\n" not in data.rstrip()

    def of(self, index: int) -> int:
        """The line at which an item begins. No item begins before the ones in front of it have ended."""
        if self.one_line:
            return 1
        earliest = self.offset + sum(memoryview(item).nbytes for item in self.items[self.index : index])
        begin = self.data.index(bytes(self.items[index]), earliest)
        self.line += self.data.count(b"\n", self.offset, begin)
        self.index, self.offset = index, begin
        return self.line


def _look_at(
    doubtful: list[int], items: list[msgspec.Raw], pods: list[Pod | None], data: bytes, file: str, prefix: str
) -> list[Problem]:
    """Put those of these items that are pods after all in their places; tell what is odd about each."""
    errors: list[Problem] = []
    warnings: list[Problem] = []
    lines = _Lines(data, items)
    for index in doubtful:
        at = Where(file, lines.of(index), prefix.format(index))
        content = without_nulls(msgspec.json.decode(items[index]))
        kind = content.get("kind", "Pod") if isinstance(content, dict) else "Pod"
        if kind != "Pod":
            warnings.append(Problem(_inside(at, "kind"), f"{kind!r} is left out", "only pods are read here"))
            continue
        made = convert(content, _Listed, {})
        if isinstance(made, list):
            errors += [Problem(_inside(at, wrong.field), wrong.message, wrong.hint) for wrong in made]
            continue
        pods[index] = made.pod().remember(Origin(at.file, at.line), {}) if file else made.pod()
        meta = made.metadata
        name = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
        for path, message, hint in unknown.fields(content, Pod):
            warnings.append(Problem(_inside(at, path), f"{message} of Pod {name}", hint))
    if errors:
        raise InputError(*errors)
    return warnings


def _inside(at: Where, field: str) -> Where:
    return Where(at.file, at.line, ".".join(part for part in (at.field, field) if part))


@cache
def _mirror(type_: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A struct with every field of the API's type, read here or not, that refuses any other."""
    known = {field.encode_name: (field.name, _mirrored(field.type)) for field in msgspec.structs.fields(type_)}
    for number, name in enumerate(unread(type_.__name__)):
        known[name] = f"unread_{number}", msgspec.Raw
    # In the order in which kubectl prints them: the decoder looks for each beside the one before.
    fields = [(*known[name], msgspec.field(default=None, name=name)) for name in sorted(known)]
    return msgspec.defstruct(type_.__name__, fields, forbid_unknown_fields=True, gc=False, kw_only=True)


_SCALARS = (str, int, bool, str | None, int | None, bool | None)
"""Quicker to make than to leave raw; all else is quicker to skip."""


def _mirrored(type_: Any) -> Any:
    struct = unknown.struct_in(type_)
    if get_origin(type_) is Literal:
        return type_
    if type_ in _SCALARS:
        return type_ | None
    if struct is None:
        return msgspec.Raw
    if get_origin(type_) is list:
        return list[_mirror(struct)]  # type: ignore[misc]
    return _mirror(struct) | None if get_args(type_) else _mirror(struct)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """No garbage collection meanwhile: a million new objects, none of them garbage, would be walked over and over. Nor
    are they walked over once right after it: they join the oldest generation as they are, unless somebody has set
    objects aside, who would lose them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()
