"""Kubernetes' own kinds, and pods and Jobs within other kinds, held to what kube-apiserver refuses.

The rules are :mod:`tonnage.objects.api`'s; here they are put to an object of a file, with its defaults filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tonnage.objects.api import defaults, defaults_pods, fields, jobs, pods
from tonnage.objects.api.canonical import canonical
from tonnage.objects.api.errors import FieldError
from tonnage.objects.api.refused import refused
from tonnage.objects.decode import show, without_nulls
from tonnage.objects.validate.common import Report

_WITH_STATUS = ("Node",)
"""Kinds of which the API refuses something of a status."""
_TYPES = {
    "string": "a string",
    "bool": "true or false",
    "int32": "an integer of 32 bits",
    "int64": "an integer of 64 bits",
}


def served(kind: str, report: Report) -> bool:
    """An object of one of Kubernetes' own kinds, but for its metadata; whether it could be read at all."""
    content = {
        key: without_nulls(value) for key, value in report.written.items() if key != "status" or kind in _WITH_STATUS
    }
    readable = _is_readable(kind, content, "", report) if kind in fields.structs() else _is_alike(content, report)
    if readable:
        content.setdefault("metadata", {})
        report.refused(_of_any_version(refused(kind, defaults.fill_in(kind, content, stored=False))))
    return readable


def _is_alike(content: dict[str, Any], report: Report) -> bool:
    """The same of a StatefulSet, which is not served: what it has in common with a Deployment, and its claims."""
    readable = True
    for part, struct in (("metadata", "ObjectMeta"), ("spec", "")):
        given = content.get(part)
        if given is not None and not isinstance(given, dict):
            report.add(part, f"{show(given)}: expected a mapping")
            return False
        readable = readable and not (struct and given and not _is_readable(struct, given, part, report))
    spec = content.get("spec") or {}
    common = {
        key: value for key, value in spec.items() if key in fields.structs()["DeploymentSpec"] and key != "strategy"
    }
    readable = _is_readable("DeploymentSpec", common, "spec", report) and readable
    listed = spec.get("volumeClaimTemplates")
    for index, one in enumerate(listed if isinstance(listed, list) else [] if listed is None else [listed]):
        path = f"spec.volumeClaimTemplates[{index}]"
        if not isinstance(listed, list) or not isinstance(one, dict):
            report.add("spec.volumeClaimTemplates", f"{show(one)}: expected a list of claims")
            readable = False
        elif not _is_readable("PersistentVolumeClaimTemplate", one, path, report):
            readable = False
    texts = [key for key in ("serviceName", "podManagementPolicy") if not isinstance(spec.get(key) or "", str)]
    maps = [
        key
        for key in ("updateStrategy", "persistentVolumeClaimRetentionPolicy", "ordinals")
        if spec.get(key) is not None and not isinstance(spec[key], dict)
    ]
    update = spec.get("updateStrategy")
    if isinstance(update, dict):
        readable = _is_readable("DaemonSetUpdateStrategy", update, "spec.updateStrategy", report) and readable
    for key, expected in (*((key, "a string") for key in texts), *((key, "a mapping") for key in maps)):
        report.add(f"spec.{key}", f"{show(spec[key])}: expected {expected}")
    return readable and not texts and not maps


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
    for field, text in fields.wrong_types(kind, dict(content)):
        here = f"{path}.{field}" if path else field
        if "quantit" in text:
            report.quantity(here, report.at(here))
        else:
            readable = False
            of = text.rpartition(" of type ")[2]
            expected = f"expected {_TYPES[of]}" if of in _TYPES else text.removeprefix("json: ")
            report.add(here, f"{show(report.at(here))}: {expected}")
    return readable
