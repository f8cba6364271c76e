"""Label and field selectors, as written in a query.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/labels/selector.go, pkg/fields/selector.go, and
the field labels that each resource's strategy lets be selected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tonnage.apiserver.status import bad_request
from tonnage.kube.resources import EVENTS, NAMESPACES, NODES, PODS, REPLICA_SETS, RESOURCE_SLICES, Resource

JsonObject: TypeAlias = dict[str, Any]
_Test: TypeAlias = Callable[[Mapping[str, str]], bool]

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_PART = re.compile(
    rf"\s*(?:(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|(?P<than>[<>])\s*(?P<number>-?[0-9]+))?"
    rf"|!\s*(?P<absent>{_KEY}))\s*(?:,|$)"
)

_FIELDS: dict[Resource, tuple[str, ...]] = {
    PODS: (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    NODES: ("spec.unschedulable",),
    NAMESPACES: ("status.phase",),
    REPLICA_SETS: ("status.replicas",),
    RESOURCE_SLICES: ("spec.driver", "spec.nodeName"),
    EVENTS: (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
}
_FALSE = ("spec.unschedulable", "spec.hostNetwork")
_ZERO = ("status.replicas",)


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """What a list or watch asks for; empty asks for everything."""

    labels: tuple[_Test, ...] = ()
    fields: tuple[tuple[str, str, bool], ...] = ()  # path, value, whether it must be equal
    namespace: str = ""

    def __bool__(self) -> bool:
        return bool(self.labels or self.fields)

    def matches(self, obj: JsonObject) -> bool:
        """Whether an object is asked for (its namespace too)."""
        meta = obj["metadata"]
        if self.namespace and meta.get("namespace") != self.namespace:
            return False
        if any((_field(obj, path) == value) is not equal for path, value, equal in self.fields):
            return False
        labels = meta.get("labels") or {}
        return all(test(labels) for test in self.labels)

    def name(self) -> str:
        """The only name that can match, if the selector says so."""
        return next((value for path, value, equal in self.fields if path == "metadata.name" and equal), "")


def parse(resource: Resource, labels: str, fields: str, namespace: str = "") -> ObjectSelector:
    """The selector of a query. Raises Refusal (400) for one that cannot be read."""
    return ObjectSelector(label_tests(labels), field_tests(resource, fields), namespace)


def label_tests(text: str) -> tuple[_Test, ...]:
    """The parts of a label selector. Raises Refusal (400)."""
    tests: list[_Test] = []
    at = 0
    while at < len(text.rstrip()):
        part = _PART.match(text, at)
        if part is None or part.end() == at:
            raise bad_request(f"unable to parse requirement: {text[at:]!r} in label selector {text!r}")
        tests.append(_label_test(part.groupdict()))
        at = part.end()
    return tuple(tests)


def _label_test(part: Mapping[str, str | None]) -> _Test:
    absent, key, value = part["absent"], part["key"] or "", part["value"] or ""
    if absent:
        return lambda labels: absent not in labels
    if part["op"] == "!=":
        return lambda labels: labels.get(key) != value
    if part["op"]:
        return lambda labels: labels.get(key) == value
    if part["set"]:
        values = {one.strip() for one in (part["values"] or "").split(",")}
        if part["set"] == "in":
            return lambda labels: key in labels and labels[key] in values
        return lambda labels: labels.get(key) not in values or key not in labels
    if part["than"]:
        bound, above = int(part["number"] or 0), part["than"] == ">"
        return lambda labels: (
            _number(labels.get(key)) is not None
            and ((_number(labels.get(key)) or 0) > bound if above else (_number(labels.get(key)) or 0) < bound)
        )
    return lambda labels: key in labels


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?[0-9]+", text) else None


def field_tests(resource: Resource, text: str) -> tuple[tuple[str, str, bool], ...]:
    """The parts of a field selector: (path, value, equal). Raises Refusal (400)."""
    known = ("metadata.name", *(("metadata.namespace",) if resource.namespaced else ()), *_FIELDS.get(resource, ()))
    tests = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        split = re.match(r"([^=!]+)(==|!=|=)(.*)", part, re.DOTALL)
        if split is None:
            raise bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        path, operator, value = split.groups()
        if path not in known:
            raise bad_request(f"field label not supported: {path}")
        tests.append((path, re.sub(r"\\([\\,=])", r"\1", value), operator != "!="))
    return tuple(tests)


def _field(obj: JsonObject, path: str) -> str:
    if path == "source":
        found: Any = obj.get("source", {}).get("component") or obj.get("reportingComponent")
        return str(found or "")
    found = obj
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    if found is None:
        return "false" if path in _FALSE else "0" if path in _ZERO else ""
    return str(found).lower() if isinstance(found, bool) else str(found)
