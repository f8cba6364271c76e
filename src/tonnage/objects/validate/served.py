"""Kubernetes' own kinds, and pods and Jobs within other kinds, held to what kube-apiserver refuses.

The rules are :mod:`tonnage.objects.api`'s; here they are put to an object of a file, with its defaults filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tonnage.objects.api import defaults, defaults_pods, fields, jobs, label_keys, pods
from tonnage.objects.api.canonical import canonical
from tonnage.objects.api.errors import FieldError
from tonnage.objects.api.refused import refused
from tonnage.objects.decode import quote, show, without_nulls
from tonnage.objects.validate.common import Report

_WITH_STATUS = ("Node",)
"""Kinds of which the API refuses something of a status."""
_TYPES = {
    "string": "a string",
    "bool": "true or false",
    "int32": "an integer of 32 bits",
    "int64": "an integer of 64 bits",
    "double": "a number",
}


def served(kind: str, report: Report) -> bool:
    """An object of one of Kubernetes' own kinds, but for its metadata; whether it could be read at all."""
    content = _content(kind, report)
    readable = _is_readable(kind, content, "", report)
    if readable:
        content.setdefault("metadata", {})
        if kind == "Pod":
            label_keys.merge(content)
        report.refused(_of_any_version(refused(kind, defaults.fill_in(kind, content, stored=False))))
    return readable


def has_types(kind: str, report: Report) -> bool:
    """Whether all values of an object of a custom kind are of their fields' types, as its CRD has them; what is not is
    said. Only then its rules have a meaning."""
    return _is_readable(kind, _content(kind, report), "", report)


def _content(kind: str, report: Report) -> dict[str, Any]:
    return {
        key: without_nulls(value) for key, value in report.written.items() if key != "status" or kind in _WITH_STATUS
    }


def _of_any_version(errors: Iterable[FieldError]) -> Iterator[FieldError]:
    """Without what a later version takes: 1.37 lets autoscalers scale to zero (HPAScaleToZero, KEP-2021), if they have
    a metric that is there without pods."""
    for error in errors:
        if error.field != "spec.minReplicas" or error.value != 0:
            yield error


def pod_spec(path: str, report: Report) -> None:
    """The pod's spec that stands at ``path`` in an object of another kind."""

    def fill_in(spec: dict[str, Any]) -> None:
        canonical(spec, "PodSpec")
        defaults_pods.pod_spec(spec)
        defaults_pods.requests_from_limits(spec)

    _part(path, "PodSpec", report, fill_in, pods.pod_spec)


def job_spec(path: str, report: Report, *, restart: str = "") -> None:
    """The Job's spec that stands at ``path`` in an object of another kind. ``restart``: the restartPolicy that a
    webhook sets where there is none, as JobSet's does (kubernetes-sigs/jobset pkg/webhooks/jobset_webhook.go)."""

    def fill_in(spec: dict[str, Any]) -> None:
        canonical(spec, "JobSpec")
        template = spec.get("template")
        pod = template.get("spec") if isinstance(template, dict) else None
        if isinstance(pod, dict) and restart:
            pod.setdefault("restartPolicy", restart)
        defaults.job_spec(spec)

    _part(path, "JobSpec", report, fill_in, jobs.job_spec)


def _part(
    path: str,
    kind: str,
    report: Report,
    fill_in: Callable[[dict[str, Any]], None],
    rules: Callable[[str, dict[str, Any]], list[FieldError]],
) -> None:
    found = report.at(path)
    spec: dict[str, Any] = without_nulls(found) if isinstance(found, dict) else {}
    if _is_readable(kind, spec, path, report):
        fill_in(spec)
        report.refused(rules(path, spec))


def _is_readable(kind: str, content: Mapping[str, Any], path: str, report: Report) -> bool:
    """Whether everything has the type that its kind gives it, but for quantities; what has not is said."""
    readable = True
    for field in _null_entries(content, path):
        readable = False
        report.add(field, "null: expected an entry of the list")
    for field, text in fields.wrong_types(kind, dict(content)):
        here = f"{path}.{field}" if path else field
        if "quantit" in text:
            report.quantity(here, report.at(here))
            readable = readable and not isinstance(report.at(here), list | dict)
        else:
            readable = False
            value, expected = report.at(here), _expected(text)
            scalar = isinstance(value, bool | int | float)
            report.add(
                here, f"{show(value)}: {expected}", quote(value) if scalar and expected.endswith("a string") else ""
            )
    return readable


def _expected(text: str) -> str:
    """What a field wants, by what encoding/json says of what it got."""
    of = text.rpartition(" of type ")[2]
    if " of type " not in text:
        return text.removeprefix("json: ")
    if of.startswith("[]") and of != "[]uint8":
        return "expected a list"
    return f"expected {_TYPES.get(of, 'a mapping')}"


def _null_entries(value: Any, path: str) -> Iterator[str]:
    """The paths of what is null in lists."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _null_entries(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if inner is None:
                yield f"{path}[{index}]"
            else:
                yield from _null_entries(inner, f"{path}[{index}]")
