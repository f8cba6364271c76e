"""Whom `tonnage why` is asked about: a pod or a gang by its key, or KIND/NAME as kubectl takes it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from tonnage.cli.why_cases import Case
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.live.group_kinds import by_kind
from tonnage.objects import core, selectors
from tonnage.objects.base import KubeObject
from tonnage.objects.kind_words import kind_of
from tonnage.objects.templates import templates

NEAR = 5


class WhyTarget(NamedTuple):
    """What is meant: a pod or gang (``key``), or an object (``ref``) with its pods."""

    key: str = ""
    ref: Ref | None = None


def find(name: str, case: Case, namespace: str = "") -> WhyTarget:
    """What the name means. Raises InputError for nothing, and for several."""
    fleet = case.snapshot.fleet
    keys = [f"{space}/{pod}" for space, pod in fleet.pod_by_key]
    known = [*keys, *case.snapshot.gangs]
    if namespace and "/" not in name and f"{namespace}/{name}" in known:
        return WhyTarget(f"{namespace}/{name}")
    if name in known and (not namespace or name.startswith(f"{namespace}/")):
        return WhyTarget(name)
    kind, slash, rest = name.partition("/")
    if slash and (of_kind := kind_of(kind, {one.kind for one in case.objects})) is not None:
        return _named(of_kind, rest, name, case, namespace)
    if slash and case.told(name) is not None:
        return WhyTarget(name)
    if slash and (meant := _owner(kind, rest, case)) is not None:
        return WhyTarget(ref=meant)
    found = sorted({key for key in known if key.endswith(f"/{name}") and namespace in ("", key.partition("/")[0])})
    if len(found) == 1:
        return WhyTarget(found[0])
    if found:
        hint = f"say which: {', '.join(found[:NEAR])}"
        raise InputError.at(f'"{name}" is the name of {len(found)} pods or gangs', field="POD", hint=hint)
    refs = [_ref(one) for one in case.objects if one.name == name and _has_pods(one)]
    refs = [one for one in refs if namespace in ("", one.namespace)]
    if len(refs) == 1:
        return WhyTarget(ref=refs[0])
    raise _nothing(name, known, keys, case)


def _named(kind: str, name: str, written: str, case: Case, namespace: str) -> WhyTarget:
    if kind == "Pod":
        return find(f"{namespace}/{name}" if namespace else name, case)
    found = [
        one
        for one in case.objects
        if one.kind == kind and one.name == name.rpartition("/")[2] and namespace in ("", one.namespace or "default")
    ]
    if len(found) == 1:
        return WhyTarget(ref=_ref(found[0]))
    if found:
        spaces = ", ".join(one.namespace or "default" for one in found)
        raise InputError.at(f'"{written}": there is one in each of {spaces}', field="POD", hint="say which with -n")
    names = [one.name for one in case.objects if one.kind == kind]
    near = difflib.get_close_matches(name, names, NEAR, 0.4)
    hint = f"did you mean {', '.join(near)}?" if near else f"there are: {', '.join(names[:NEAR]) or 'none'}"
    raise InputError.at(f'"{written}": no such {kind}', field="POD", hint=hint)


def _owner(namespace: str, name: str, case: Case) -> Ref | None:
    """The workload of this name, or the one whose pod would be called so and can never be made."""
    fits = [one for one in case.objects if (one.namespace or "default") == namespace and _has_pods(one)]
    exact = [one for one in fits if one.name == name]
    made = exact or [one for one in fits if name.startswith(f"{one.name}-") and case.about(_ref(one))]
    return _ref(made[0]) if len(made) == 1 else None


def _has_pods(one: KubeObject) -> bool:
    return next(iter(templates(one)), None) is not None


def _ref(one: KubeObject) -> Ref:
    known = by_kind(one.api_version, one.kind)
    if known is not None and not known.namespaced:
        return Ref(one.kind, one.name)
    return Ref(one.kind, one.name, one.namespace or "default")


def makes_pods(ref: Ref, objects: Sequence[KubeObject]) -> bool:
    """Whether there is a template of pods in the object."""
    return any(_ref(one) == ref and _has_pods(one) for one in objects)


def selected(ref: Ref, objects: Sequence[KubeObject]) -> list[Ref]:
    """The workloads whose pods a Service selects."""
    service = next(
        one
        for one in objects
        if isinstance(one, core.Service) and (one.namespace or "default", one.name) == (ref.namespace, ref.name)
    )
    if not service.spec.selector:
        return []
    selector = core.LabelSelector(match_labels=service.spec.selector)
    return [
        _ref(one)
        for one in objects
        if (one.namespace or "default") == ref.namespace
        and any(selectors.matches(selector, t.metadata.labels) for t in templates(one))
    ]


def _nothing(name: str, known: Sequence[str], keys: Sequence[str], case: Case) -> InputError:
    near = difflib.get_close_matches(name, known, NEAR, 0.5)
    near += [key for key in known if name.rpartition("/")[2] in key and key not in near][: NEAR - len(near)]
    if not near:
        ends = {key.partition("/")[2]: key for key in known}
        near = [ends[end] for end in difflib.get_close_matches(name, ends, NEAR, 0.4)]
    fleet = case.snapshot.fleet
    specs = [fleet.pod(row).spec for row in fleet.pending]
    waiting = sorted({spec.gang or f"{spec.namespace}/{spec.name}" for spec in specs})
    hint = f"did you mean {', '.join(near[:NEAR])}?" if near else f"of {len(keys)} pods there wait: {_some(waiting)}"
    return InputError.at(f'"{name}": no such pod or gang', field="POD", hint=hint)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NEAR} more" if len(names) > NEAR else ""
    return ", ".join(names[:NEAR]) + more if names else "none"
