"""What kube-apiserver takes of a pod or a pod template and warns of.

Source: kubernetes/kubernetes v1.36 pkg/api/pod/warnings.go, pkg/api/persistentvolumeclaim/util.go and
pkg/api/node/util.go. Warnings of AppArmor annotations, of how IP addresses are written and of overlapping paths in
volumes are not among these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from tonnage.facts.labels import BETA_ARCH, BETA_OS, BETA_REGION, BETA_ZONE
from tonnage.objects.api.amounts import is_whole
from tonnage.objects.api.canonical import canonical_quantity
from tonnage.objects.api.errors import value_faults
from tonnage.objects.api.placing import PREFERRED, REQUIRED

JsonObject: TypeAlias = dict[str, Any]

_BYTES = ("ephemeral-storage", "memory")
_LABELS = {
    BETA_ARCH: 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    BETA_OS: 'deprecated since v1.14; use "kubernetes.io/os" instead',
    BETA_REGION: 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    BETA_ZONE: 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
"""Labels of nodes that are out of use, and what the API says of them."""
_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_OF_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_NO_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_SAID_OF = {"storageos": "storageOS"}
"""Volumes that the warning spells otherwise."""
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
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


def part(obj: JsonObject, name: str) -> JsonObject:
    """The object in a field; empty where it is none, which is refused elsewhere or not read."""
    found = obj.get(name)
    return found if isinstance(found, dict) else {}


def each(obj: JsonObject, name: str) -> Iterator[tuple[int, JsonObject]]:
    """(index, entry) of a list of objects."""
    found = obj.get(name)
    for index, entry in enumerate(found if isinstance(found, list) else ()):
        if isinstance(entry, dict):
            yield index, entry


def warned(field: str, text: str) -> Warned:
    """A warning of one field."""
    return Warned(field, f": {text}", field)


def of_key(field: str, key: str, text: str) -> Warned:
    """A warning of one entry of a map."""
    return Warned(f"{field}[{key}]", f": {text}", f"{field}.{key}")


def template(path: str, obj: JsonObject) -> Iterator[Warned]:
    """Every warning below a pod (``path`` is empty) or a pod template that stands at ``path``."""
    spec, above = part(obj, "spec"), f"{path}." if path else ""
    yield from _annotations(f"{above}metadata.annotations", part(part(obj, "metadata"), "annotations"), spec)
    yield from _pod(f"{above}spec", spec)


def claim(path: str, spec: JsonObject) -> Iterator[Warned]:
    """Every warning below the ``spec`` of a PersistentVolumeClaim, which stands at ``path``."""
    resources = part(spec, "resources")
    for which in ("requests", "limits"):
        yield from _fractions(f"{path}.resources.{which}", part(resources, which), ("storage",))


def _pod(path: str, spec: JsonObject) -> Iterator[Warned]:
    for key in part(spec, "nodeSelector"):
        if key in _LABELS:
            yield of_key(f"{path}.nodeSelector", key, _LABELS[key])
    for index, constraint in each(spec, "topologySpreadConstraints"):
        here, key = f"{path}.topologySpreadConstraints[{index}]", str(constraint.get("topologyKey"))
        if key in _LABELS:
            yield warned(f"{here}.topologyKey", f"{key} is {_LABELS[key]}")
        if constraint.get("labelSelector") is None:
            yield warned(f"{here}.labelSelector", _NULL_SELECTOR)
    yield from _volumes(path, spec)
    yield from _twice(path, spec, "hostAliases", "ip")
    yield from _twice(path, spec, "imagePullSecrets", "name")
    for index, secret in each(spec, "imagePullSecrets"):
        if not secret.get("name"):
            yield warned(f"{path}.imagePullSecrets[{index}].name", 'invalid empty name ""')
    yield from _fractions(f"{path}.overhead", part(spec, "overhead"))
    yield from _containers(path, spec)
    grace = spec.get("terminationGracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        why = "must be >= 0; negative values are invalid and will be treated as 1"
        yield warned(f"{path}.terminationGracePeriodSeconds", why)
    yield from _affinity(f"{path}.affinity", part(spec, "affinity"))


def _fractions(path: str, quantities: JsonObject, names: tuple[str, ...] = _BYTES) -> Iterator[Warned]:
    """Bytes that are no whole number to the API server."""
    for name in names:
        if name in quantities and not is_whole(quantities[name]):
            shown = canonical_quantity(quantities[name], thousandths=True)
            yield of_key(path, name, f'fractional byte value "{shown}" is invalid, must be an integer')


def _annotations(path: str, given: JsonObject, spec: JsonObject) -> Iterator[Warned]:
    for key in given:
        if key in _ANNOTATIONS:
            yield of_key(path, key, _ANNOTATIONS[key])
    if _SECCOMP in given and not part(spec, "securityContext").get("seccompProfile"):
        yield of_key(path, _SECCOMP, _NO_SECCOMP)
    for _, container in _each_container("", spec) if given else ():
        key = f"{_SECCOMP_OF_CONTAINER}{container.get('name')}"
        if key in given and not part(container, "securityContext").get("seccompProfile"):
            yield of_key(path, key, _NO_SECCOMP)


def _twice(path: str, spec: JsonObject, name: str, field: str) -> Iterator[Warned]:
    seen: set[str] = set()
    for index, entry in each(spec, name):
        value = str(entry.get(field) or "")
        if value in seen:
            yield warned(f"{path}.{name}[{index}].{field}", f'duplicate {field} "{value}"')
        seen.add(value)


def _volumes(path: str, spec: JsonObject) -> Iterator[Warned]:
    for index, volume in each(spec, "volumes"):
        here = f"{path}.volumes[{index}]"
        for kind, why in _VOLUMES.items():
            if kind in volume:
                yield Warned(f"{here}.{_SAID_OF.get(kind, kind)}", f": {why}", f"{here}.{kind}")
        wanted = part(part(part(volume, "ephemeral"), "volumeClaimTemplate"), "spec")
        yield from claim(f"{here}.ephemeral.volumeClaimTemplate.spec", wanted)


def _affinity(path: str, given: JsonObject) -> Iterator[Warned]:
    nodes = part(given, "nodeAffinity")
    for index, term in each(part(nodes, REQUIRED), "nodeSelectorTerms"):
        yield from _node_term(f"{path}.nodeAffinity.{REQUIRED}.nodeSelectorTerms[{index}]", term, values=False)
    for index, wish in each(nodes, PREFERRED):
        here = f"{path}.nodeAffinity.{PREFERRED}[{index}].preference"
        yield from _node_term(here, part(wish, "preference"), values=True)
    for name in ("podAffinity", "podAntiAffinity"):
        for index, term in each(part(given, name), REQUIRED):
            if term.get("labelSelector") is None:
                yield warned(f"{path}.{name}.{REQUIRED}[{index}].labelSelector", _NULL_SELECTOR)
        for index, wish in each(part(given, name), PREFERRED):
            if part(wish, "podAffinityTerm").get("labelSelector") is None:
                yield warned(f"{path}.{name}.{PREFERRED}[{index}].podAffinityTerm.labelSelector", _NULL_SELECTOR)


def _node_term(path: str, term: JsonObject, *, values: bool) -> Iterator[Warned]:
    for index, one in each(term, "matchExpressions"):
        here, key, given = f"{path}.matchExpressions[{index}]", str(one.get("key")), one.get("values")
        if key in _LABELS:
            yield warned(f"{here}.key", f"{key} is {_LABELS[key]}")
        for number, value in enumerate(given if values and isinstance(given, list) else ()):
            for why in value_faults(str(value)):
                yield warned(f"{here}.values[{number}]", f"{value} is invalid, {why}")


def _each_container(path: str, spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    for name in _CONTAINERS:
        for index, container in each(spec, name):
            yield f"{path}.{name}[{index}]", container


def _containers(path: str, spec: JsonObject) -> Iterator[Warned]:
    containers = list(_each_container(path, spec))
    for here, container in containers:
        for which in ("limits", "requests"):
            yield from _fractions(f"{here}.resources.{which}", part(part(container, "resources"), which))
        yield from _variables(here, container)
    ports = [(f"{here}.ports[{index}]", port) for here, one in containers for index, port in each(one, "ports")]
    yield from _ports(ports)
    yield from _port_names(ports)


def _variables(path: str, container: JsonObject) -> Iterator[Warned]:
    seen: set[str] = set()
    for index, variable in each(container, "env"):
        name, value = str(variable.get("name") or ""), str(variable.get("value") or "")
        itself = f"$({name})"
        if name in seen and (variable.get("valueFrom") or value == itself or itself not in value):
            why = f'hides previous definition of "{name}", which may be dropped when using apply'
            yield warned(f"{path}.env[{index}]", why)
        seen.add(name)


def _ports(ports: Sequence[tuple[str, JsonObject]]) -> Iterator[Warned]:
    """Ports of any of the containers that are the same, or may be."""
    known: dict[str, list[tuple[str, Any, Any]]] = {}
    for here, port in ports:
        ip, on_host = port.get("hostIP") or "", port.get("hostPort") or 0
        number, protocol = port.get("containerPort") or 0, port.get("protocol") or "TCP"
        if ip and not on_host:
            name = port.get("name") or ""
            shown = f"{{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{ip}}}"
            yield warned(here, f"hostIP set without hostPort: {shown}")
        others = known.setdefault(f"{number}/{protocol}", [])
        for other, its_ip, its_port in others:
            if (ip, on_host) == (its_ip, its_port):
                yield warned(here, f"duplicate port definition with {other}")
            elif not (on_host and its_port):
                yield warned(here, f"overlapping port definition with {other}")
            elif on_host == its_port and not (ip and its_ip):
                yield warned(here, f"dangerously ambiguous port definition with {other}")
        others.append((here, ip, on_host))


def _port_names(ports: Sequence[tuple[str, JsonObject]]) -> Iterator[Warned]:
    names: dict[str, str] = {}
    for here, port in ports:
        name = str(port.get("name") or "")
        if name in names:
            why = (
                f'duplicate port name "{name}" with {names[name]}, '
                f"services and probes that select ports by name will use {names[name]}"
            )
            yield warned(here, why)
        elif name:
            names[name] = here
