"""What kube-apiserver takes and warns of (the Warning header, which kubectl shows).

Source: kubernetes/kubernetes v1.36 pkg/api/pod/warnings.go, pkg/api/node/util.go, pkg/registry/core/service and
pkg/registry/batch/job (WarningsOnCreate). Warnings of volumes are not among these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import amount, label_faults

JsonObject: TypeAlias = dict[str, Any]

_BYTES = ("ephemeral-storage", "memory")
_TEMPLATES = ("DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet")
_RENAMED = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
"""Labels of nodes that have another name, and since when."""
_NAMES = {
    "Pod": "the Pod's hostname",
    "Job": "Pod names and hostnames",
}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NULL_SELECTOR = "a null labelSelector results in matching no pod"


class Warned(NamedTuple):
    """``field`` as the API says it; the text that follows it; ``at``: the field's path in the object."""

    field: str
    text: str
    at: str

    @property
    def message(self) -> str:
        """As the API sends it."""
        return f"{self.field}{self.text}"


def warnings(kind: str, obj: JsonObject) -> Iterator[Warned]:
    """Every warning for an object of a built-in kind, with defaults filled in or as it was written."""
    spec = obj.get("spec") or {}
    name = (obj.get("metadata") or {}).get("name") or ""
    if kind in _NAMES and name and label_faults(name):
        why = (
            f": this is used in {_NAMES[kind]}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(label_faults(name))}]"
        )
        yield Warned("metadata.name", why, "metadata.name")
    if kind == "Pod":
        yield from pod("spec", spec)
    elif kind in _TEMPLATES:
        yield from pod("spec.template.spec", (spec.get("template") or {}).get("spec") or {})
    elif kind == "Service" and spec.get("externalIPs"):
        why = " is deprecated and may no longer be implemented in some clusters"
        yield Warned("spec.externalIPs", why, "spec.externalIPs")
    elif kind == "Node" and spec.get("externalID"):
        yield _at("spec.externalID", "this field is deprecated, and is unused by Kubernetes")


def pod(path: str, spec: JsonObject) -> Iterator[Warned]:
    """Every warning below a pod's ``spec``, which stands at ``path``."""
    for key in spec.get("nodeSelector") or {}:
        if key in _RENAMED:
            since, name = _RENAMED[key]
            why = f': deprecated since {since}; use "{name}" instead'
            yield Warned(f"{path}.nodeSelector[{key}]", why, f"{path}.nodeSelector.{key}")
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield _at(f"{path}.imagePullSecrets[{index}].name", 'invalid empty name ""')
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        if constraint.get("labelSelector") is None:
            yield _at(f"{path}.topologySpreadConstraints[{index}].labelSelector", _NULL_SELECTOR)
    yield from _affinity(f"{path}.affinity", spec.get("affinity") or {})
    yield from _fractions(f"{path}.overhead", spec.get("overhead") or {})
    yield from _containers(path, spec)


def _at(field: str, text: str) -> Warned:
    return Warned(field, f": {text}", field)


def _affinity(path: str, given: JsonObject) -> Iterator[Warned]:
    for name in ("podAffinity", "podAntiAffinity"):
        part = given.get(name) or {}
        for index, term in enumerate(part.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield _at(f"{path}.{name}.{_REQUIRED}[{index}].labelSelector", _NULL_SELECTOR)
        for index, wish in enumerate(part.get(_PREFERRED) or ()):
            if (wish.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield _at(f"{path}.{name}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector", _NULL_SELECTOR)


def _fractions(path: str, quantities: JsonObject) -> Iterator[Warned]:
    for name in _BYTES:
        value = amount(quantities[name]) if name in quantities else None
        if value is not None and value.denominator != 1:
            shown = canonical_quantity(quantities[name], thousandths=True)
            why = f': fractional byte value "{shown}" is invalid, must be an integer'
            yield Warned(f"{path}[{name}]", why, f"{path}.{name}")


def _containers(path: str, spec: JsonObject) -> Iterator[Warned]:
    ports: dict[tuple[Any, ...], str] = {}
    names: dict[str, str] = {}
    for part in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(part) or ()):
            here = f"{path}.{part}[{index}]"
            resources = container.get("resources") or {}
            for which in ("limits", "requests"):
                yield from _fractions(f"{here}.resources.{which}", resources.get(which) or {})
            yield from _variables(f"{here}.env", container.get("env") or [])
            if part == "containers" or container.get("restartPolicy") == "Always":
                yield from _ports(f"{here}.ports", container.get("ports") or [], ports, names)


def _variables(path: str, variables: list[JsonObject]) -> Iterator[Warned]:
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        if name in seen and f"$({name})" not in str(variable.get("value") or ""):
            yield _at(
                f"{path}[{index}]", f'hides previous definition of "{name}", which may be dropped when using apply'
            )
        seen.add(name)


def _ports(
    path: str, given: list[JsonObject], ports: dict[tuple[Any, ...], str], names: dict[str, str]
) -> Iterator[Warned]:
    own: set[str] = set()
    for index, port in enumerate(given):
        here, name = f"{path}[{index}]", port.get("name") or ""
        key = (port.get("containerPort"), port.get("protocol") or "TCP", port.get("hostIP"), port.get("hostPort"))
        first = ports.setdefault(key, here)
        if first != here:
            yield _at(here, f"duplicate port definition with {first}")
        if name and name in names and name not in own:
            why = (
                f'duplicate port name "{name}" with {names[name]}, '
                f"services and probes that select ports by name will use {names[name]}"
            )
            yield _at(here, why)
        elif name:
            names[name] = here
            own.add(name)
