"""Manifests of the agent: DaemonSets with the parts that their nodes need, what they may do, and the chart values with
which the GPU operator leaves those parts to them.

Every part is a container of its own, with the capabilities, folders and permissions of the part alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from tonnage.dra.nvidia import device_classes
from tonnage.facts import operands as facts
from tonnage.facts.labels import APP_NAME, GPU_PRESENT
from tonnage.facts.operands import AgentPart
from tonnage.node import mps_daemon
from tonnage.node.operator_parts import environment, operands_of, parts_of
from tonnage.node.pod_labels import allowed
from tonnage.objects.gpu_operator import ClusterPolicySpec, ConfigMapChoice, DcgmExporterSpec

NAME = "tonnage-agent"
_OWN_LABELS = {APP_NAME: NAME}
CONFIG_FOLDER = "/etc/tonnage/device-plugin"
"""Where the ConfigMap of the device plugin's configurations is mounted."""
_NO_CONFIG_MAP = ConfigMapChoice()
_CONFIG, _SHM = "device-plugin-config", "mps-shared-memory"
_PLUGIN, _DRA, _METRICS = "device-plugin", "dra", "metrics"
_NO_EXPORTER = DcgmExporterSpec()
_MPS = str(mps_daemon.ROOT)
JsonObject = dict[str, Any]


class NodeSet(NamedTuple):
    """Nodes that need the same parts for the same reasons. ``environment``: its name, empty for none that is known;
    ``off``: labels of operands that are ``false`` on them; ``parts``: of the agent; ``nodes``: their names."""

    environment: str
    off: tuple[str, ...]
    parts: tuple[str, ...]
    nodes: tuple[str, ...]


def node_sets(policy: ClusterPolicySpec | None, nodes: Mapping[str, Mapping[str, str]]) -> list[NodeSet]:
    """The nodes by what they need, those that need nothing left out. ``nodes``: labels by name."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, labels in sorted(nodes.items()):
        kind = environment(labels)
        off = tuple(label for label in _labels() if labels.get(label) == "false")
        found.setdefault((kind.name if kind is not None else "", off), []).append(name)
    sets = []
    for (kind_name, off), names in sorted(found.items()):
        parts = parts_of(operands_of(policy, nodes[names[0]]))
        if parts:
            sets.append(NodeSet(kind_name, off, tuple(parts), tuple(names)))
    return sets


def _labels() -> list[str]:
    """Those that turn parts of the agent off."""
    return sorted(one.label for one in facts.operands().values() if one.part)


def manifests(
    sets: Sequence[NodeSet],
    *,
    namespace: str,
    image: str,
    config: ConfigMapChoice = _NO_CONFIG_MAP,
    exporter: DcgmExporterSpec = _NO_EXPORTER,
    dra: bool = False,
    mps: bool = False,
) -> list[JsonObject]:
    """ServiceAccounts, roles and DaemonSets: one of each for each set, named by its environment and a number where it
    has several. ``config``: the configurations of the device plugin, as the ClusterPolicy names them, ``exporter``:
    its settings of dcgm-exporter. ``dra``: claims
    are served in place of the device plugin's resources, and the device classes are there.
    ``mps``: the device plugin may run MPS control daemons, and finds those that run. Raises InputError where an
    expression for the labels of pods is none."""
    found: list[JsonObject] = [msgspec.to_builtins(one) for one in device_classes()] if dra else []
    for name, one in zip(_names(sets), sets, strict=True):
        names = [_DRA if dra and part == _PLUGIN else part for part in one.parts]
        parts = [_configured(facts.parts()[part], config, exporter, mps=mps) for part in names]
        found.append(_object("v1", "ServiceAccount", name, namespace))
        rules = rules_of(parts)
        if rules:
            found.append({**_object("rbac.authorization.k8s.io/v1", "ClusterRole", name), "rules": rules})
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
            binding = _object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", name)
            found.append({**binding, "roleRef": role, "subjects": [subject]})
        found.append(_daemon_set(name, namespace, image, one, parts, config.name, token=bool(rules)))
    return found


def sidecar(image: str) -> JsonObject:
    """A patch of a workload's pod template: the exporter as a native sidecar (an init container that goes on), for pods
    on nodes where no DaemonSet of it runs. It reads the GPUs that its pod's containers are shown, and needs no API."""
    alone = replace(facts.parts()[_METRICS], arguments=(_METRICS,), read=(), rbac=())
    container = _container(alone, image)
    container |= {"name": f"{NAME}-{_METRICS}", "restartPolicy": "Always"}
    container.pop("volumeMounts")
    return {"spec": {"template": {"spec": {"initContainers": [container]}}}}


def _of_exporter(part: AgentPart, exporter: DcgmExporterSpec) -> AgentPart:
    """The exporter with what the ClusterPolicy wants of dcgm-exporter: labels of pods, jobs of a batch system."""
    arguments, read, rbac = part.arguments, part.read, part.rbac
    if exporter.enable_pod_labels:
        written = exporter.pod_label_allowlist_regex
        expressions = [written] if isinstance(written, str) else written
        allowed(expressions, "ClusterPolicy: spec.dcgmExporter.podLabelAllowlistRegex")
        for expression in expressions or ["."]:
            arguments += ("--pod-label", expression)
        rbac += (("pods", ("get",)),)
    jobs = exporter.hpc_job_mapping
    if jobs.enabled:
        arguments += ("--hpc-jobs", jobs.directory)
        read += (jobs.directory,)
    return replace(part, arguments=arguments, read=read, rbac=rbac)


def _configured(part: AgentPart, config: ConfigMapChoice, exporter: DcgmExporterSpec, *, mps: bool) -> AgentPart:
    """The exporter as the ClusterPolicy has it; the device plugin follows the node's label, where there are
    configurations to choose from."""
    if part.name == _METRICS:
        return _of_exporter(part, exporter)
    if part.name == _PLUGIN and mps:
        part = replace(part, write=(*part.write, _MPS))
    if part.name != _PLUGIN or not config.name:
        return part
    arguments = (*part.arguments, "--config", CONFIG_FOLDER)
    if config.default:
        arguments += ("--default-config", config.default)
    return replace(part, arguments=arguments, rbac=(*part.rbac, ("nodes", ("list", "watch"))))


def _names(sets: Sequence[NodeSet]) -> list[str]:
    names: list[str] = []
    for one in sets:
        base = f"{NAME}-{one.environment}" if one.environment else NAME
        taken = sum(name == base or name.startswith(f"{base}-v") for name in names)
        names.append(f"{base}-v{taken + 1}" if taken else base)
    return names


def rules_of(parts: Iterable[AgentPart]) -> list[JsonObject]:
    """What the parts may do in the API; nothing: they need no token."""
    verbs: dict[tuple[str, str], set[str]] = {}
    for part in parts:
        for resource, own in part.rbac:
            group, slash, name = resource.partition("/")
            key = (group, name) if slash and "." in group else ("", resource)
            verbs.setdefault(key, set()).update(own)
    return [
        {"apiGroups": [group], "resources": [name], "verbs": sorted(own)}
        for (group, name), own in sorted(verbs.items())
    ]


def _object(api_version: str, kind: str, name: str, namespace: str = "") -> JsonObject:
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": {**meta, "labels": dict(_OWN_LABELS)}}


def _daemon_set(
    name: str,
    namespace: str,
    image: str,
    one: NodeSet,
    parts: Sequence[AgentPart],
    config_map: str,
    *,
    token: bool,
) -> JsonObject:
    labels = {**_OWN_LABELS, "app.kubernetes.io/instance": name}
    folders = sorted({folder for part in parts for folder in (*part.read, *part.write)})
    volumes: list[JsonObject] = [
        {"name": _volume(folder), "hostPath": {"path": folder, "type": _type(folder, parts)}} for folder in folders
    ]
    if _MPS in folders:  # a daemon and its clients share memory
        volumes.append({"name": _SHM, "hostPath": {"path": f"{_MPS}/shm", "type": "DirectoryOrCreate"}})
    if any(CONFIG_FOLDER in part.arguments for part in parts):
        volumes.append({"name": _CONFIG, "configMap": {"name": config_map}})
    spec = {
        "serviceAccountName": name,
        "automountServiceAccountToken": token,
        "priorityClassName": "system-node-critical",
        "nodeSelector": {GPU_PRESENT: "true"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": expressions(one)}]
                }
            }
        },
        "tolerations": [{"operator": "Exists"}],
        **({"hostPID": True} if _MPS in folders else {}),
        "containers": [_container(part, image) for part in parts],
        "volumes": volumes,
    }
    made = _object("apps/v1", "DaemonSet", name, namespace)
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {**made, "spec": {"selector": {"matchLabels": dict(labels)}, "template": template}}


def expressions(one: NodeSet) -> list[JsonObject]:
    """By which labels exactly such nodes are selected."""
    found: list[JsonObject] = []
    for kind in facts.environments().values():
        values = {"values": [kind.value]} if kind.value else {}
        if kind.name == one.environment:
            found.append({"key": kind.label, "operator": "In" if values else "Exists", **values})
            break
        found.append({"key": kind.label, "operator": "NotIn" if values else "DoesNotExist", **values})
    for label in _labels():
        found.append({"key": label, "operator": "In" if label in one.off else "NotIn", "values": ["false"]})
    return found


def _container(part: AgentPart, image: str) -> JsonObject:
    security: JsonObject = {
        "runAsUser": 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"], **({"add": list(part.capabilities)} if part.capabilities else {})},
    }
    mounts = [{"name": _volume(folder), "mountPath": folder, "readOnly": True} for folder in part.read]
    mounts += [{"name": _volume(folder), "mountPath": folder} for folder in part.write]
    if _MPS in part.write:
        mounts.append({"name": _SHM, "mountPath": "/dev/shm"})
    if CONFIG_FOLDER in part.arguments:
        mounts.append({"name": _CONFIG, "mountPath": CONFIG_FOLDER, "readOnly": True})
    made: JsonObject = {
        "name": part.name,
        "image": image,
        "args": ["agent", *part.arguments],
        "env": [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "securityContext": security,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "volumeMounts": mounts,
    }
    made["args"] += ["--node", "$(NODE_NAME)"]
    if part.port is not None:
        made["ports"] = [{"name": part.name, "containerPort": part.port}]
    return made


def _volume(folder: str) -> str:
    return folder.strip("/").replace("/", "-").replace(".", "-").lower()


def _type(folder: str, parts: Sequence[AgentPart]) -> str:
    return "DirectoryOrCreate" if any(folder in part.write for part in parts) else "Directory"


def operator_values(policy: ClusterPolicySpec | None, sets: Sequence[NodeSet]) -> JsonObject:
    """Values of the GPU operator's chart: what the agent has is off, and what must run on none of these nodes. The
    others are as the ClusterPolicy has them."""
    had = {part for one in sets for part in one.parts}
    kinds = [facts.environments()[one.environment] if one.environment else None for one in sets]
    found: JsonObject = {}
    for operand in facts.operands().values():
        said = policy.enabled(operand.field) if policy is not None else None
        unwanted = bool(kinds) and all(kind is not None and operand.name in kind.without for kind in kinds)
        if operand.part in had or unwanted:
            found[operand.field] = {"enabled": False}
        elif said is not None and operand.field != "validator":
            found[operand.field] = {"enabled": said}
    return found
