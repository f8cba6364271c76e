"""DaemonSets: one pod for every node that its template fits, pinned to the node by its name.

The pods are not bound here: their affinity names the node (:func:`pinned_node`), and the scheduler that they ask for
binds them. Histories (ControllerRevision) are not kept, so `kubectl rollout history` and `undo` have nothing to show
for DaemonSets; `rollout status` and `restart` work.

Source of behaviour, tolerations and messages: kubernetes/kubernetes v1.36 pkg/controller/daemon.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.apiserver.controllers import daemon_rollout
from tonnage.apiserver.controllers import pods as pod_control
from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import (
    Key,
    controller_of,
    controller_reference,
    controller_uid,
    generation_of,
    is_deleting,
    key_of,
    labels_of,
    owners_of,
    pod_is_available,
    pod_ready_since,
    selector_of,
    spec_of,
    status_of,
    uid_of,
)
from tonnage.apiserver.controllers.replica_sets import BURST
from tonnage.apiserver.controllers.templates import template_hash
from tonnage.facts.labels import (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    NETWORK_UNAVAILABLE,
    NOT_READY,
    PID_PRESSURE,
    REVISION_HASH,
    TEMPLATE_GENERATION,
    UNREACHABLE,
    UNSCHEDULABLE_TAINT,
)
from tonnage.kube.resources import DAEMON_SETS, NODES, PODS, Resource
from tonnage.kube.verbs import JsonObject
from tonnage.objects.core import PodSpec, Taint
from tonnage.objects.selectors import matches
from tonnage.workloads import daemons
from tonnage.workloads.daemons import DaemonFit

_GENERATION = "deprecated.daemonset.template.generation"
_FAILED_BACKOFF_S = 1.0
_FAILED_BACKOFF_MOST_S = 900.0
_NO_EXECUTE = (NOT_READY, UNREACHABLE)
_NO_SCHEDULE = (
    DISK_PRESSURE,
    MEMORY_PRESSURE,
    PID_PRESSURE,
    UNSCHEDULABLE_TAINT,
)


class DaemonSets:
    """The DaemonSet controller."""

    name = "daemonset-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._fits: dict[str, tuple[int, dict[str, tuple[tuple[Any, Any], DaemonFit]], PodSpec]] = {}
        self._failures: dict[tuple[str, str], tuple[float, float]] = {}

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource is DAEMON_SETS:
            if new is not None:
                self._context.queue.add((self.name, key_of(new)))
            elif old is not None:
                self._fits.pop(uid_of(old), None)
        elif resource is PODS:
            self._pod_changed(old, new)
        elif resource is NODES and (old is None or new is None or _placing(old) != _placing(new)):
            for daemon_set in self._context.cache.all(DAEMON_SETS):
                self._context.queue.add((self.name, key_of(daemon_set)))

    def sync(self, key: Key) -> None:
        daemon_set = self._context.cache.get(DAEMON_SETS, key)
        if daemon_set is None or is_deleting(daemon_set):
            return
        self._claim(daemon_set)
        value = template_hash(spec_of(daemon_set).get("template") or {}, None)
        nodes = self._context.cache.all(NODES)
        fits = {key_of(node)[1]: self._fit(daemon_set, node) for node in nodes}
        self._manage(daemon_set, fits, value)
        if (spec_of(daemon_set).get("updateStrategy") or {}).get("type", "RollingUpdate") == "RollingUpdate":
            plan = daemon_rollout.plan(
                daemon_set, fits, self._pods_by_node(daemon_set), value, self._context.clock(), _is_updated
            )
            self._carry_out(daemon_set, list(plan.delete), list(plan.create), value)
        self._write_status(daemon_set, fits, value)

    def _pod_changed(self, old: JsonObject | None, new: JsonObject | None) -> None:
        for pod in (old, new):
            owner = controller_of(pod) if pod is not None else None
            if owner is not None and owner.get("kind") == DAEMON_SETS.kind:
                found = self._context.cache.find(owner["uid"])
                if found is not None:
                    self._context.queue.add((self.name, key_of(found[1])))
        if new is not None and not controller_of(new) and (old is None or labels_of(old) != labels_of(new)):
            for daemon_set in self._context.cache.in_namespace_of(DAEMON_SETS, key_of(new)[0]):
                if matches(selector_of(spec_of(daemon_set).get("selector")), labels_of(new)):
                    self._context.queue.add((self.name, key_of(daemon_set)))

    def _claim(self, daemon_set: JsonObject) -> None:
        cache, writer, uid = self._context.cache, self._context.writer, uid_of(daemon_set)
        selector = selector_of(spec_of(daemon_set).get("selector"))
        for pod in cache.dependents(uid, PODS):
            if controller_uid(pod) == uid and not is_deleting(pod) and not matches(selector, labels_of(pod)):
                kept = [owner for owner in owners_of(pod) if owner["uid"] != uid]
                writer.patch(PODS, pod, {"metadata": {"ownerReferences": kept or None}})
        for pod in cache.orphans(PODS, key_of(daemon_set)[0]):
            if not is_deleting(pod) and matches(selector, labels_of(pod)):
                owners = [*owners_of(pod), controller_reference(DAEMON_SETS, daemon_set)]
                writer.patch(PODS, pod, {"metadata": {"ownerReferences": owners}})

    def _pods_by_node(self, daemon_set: JsonObject) -> dict[str, list[JsonObject]]:
        """The DaemonSet's pods by the node that they are bound or pinned to, oldest and bound first."""
        by_node: dict[str, list[JsonObject]] = {}
        for pod in self._context.cache.dependents(uid_of(daemon_set), PODS):
            if controller_uid(pod) == uid_of(daemon_set):
                by_node.setdefault(spec_of(pod).get("nodeName") or pinned_node(pod), []).append(pod)
        for pods in by_node.values():
            pods.sort(
                key=lambda pod: (
                    not spec_of(pod).get("nodeName"),
                    pod["metadata"].get("creationTimestamp", ""),
                    key_of(pod)[1],
                )
            )
        return by_node

    def _fit(self, daemon_set: JsonObject, node: JsonObject) -> DaemonFit:
        """As :func:`fit`, remembered until the DaemonSet's spec or what matters of the node changes."""
        uid, generation = uid_of(daemon_set), generation_of(daemon_set)
        known = self._fits.get(uid)
        if known is None or known[0] != generation:
            spec = msgspec.convert(_pod_spec(spec_of(daemon_set).get("template") or {}), PodSpec)
            known = self._fits[uid] = generation, {}, spec
        _, fits, spec = known
        name = key_of(node)[1]
        placing = _placing(node)
        remembered = fits.get(name)
        if remembered is None or remembered[0] != placing:
            remembered = fits[name] = placing, fit(spec, node)
        return remembered[1]

    def _manage(self, daemon_set: JsonObject, fits: dict[str, DaemonFit], value: str) -> None:
        """Make pods where they are missing, delete those that are too many, ended, or where they should not be."""
        create: list[str] = []
        delete: list[JsonObject] = []
        by_node = self._pods_by_node(daemon_set)
        for node, judged in fits.items():
            pods = by_node.get(node, [])
            alive = [pod for pod in pods if not is_deleting(pod)]
            if judged.run and not pods:
                create.append(node)
            elif not judged.stay:
                delete += alive
            else:
                running = [pod for pod in alive if not self._ended(daemon_set, pod, node, delete)]
                if not daemon_rollout.surges(daemon_set):
                    delete += running[1:]
                elif not running and judged.run:
                    create.append(node)
                else:
                    delete += self._surplus_of_surge(daemon_set, running, value)
        for node, pods in by_node.items():
            if node not in fits:
                delete += [pod for pod in pods if not spec_of(pod).get("nodeName") and not is_deleting(pod)]
        self._carry_out(daemon_set, delete, create, value)

    def _ended(self, daemon_set: JsonObject, pod: JsonObject, node: str, delete: list[JsonObject]) -> bool:
        """Whether a pod has ended; then it is to go, a failed one not faster than its backoff."""
        phase = status_of(pod).get("phase")
        if phase not in ("Failed", "Succeeded"):
            return False
        subject = f"{phase.lower()} daemon pod {'/'.join(key_of(pod))} on node {node}"
        if phase == "Succeeded":
            message, kind = f"Found {subject}, will try to delete it", "Normal"
        else:
            now, key = self._context.clock(), (uid_of(daemon_set), node)
            since, wait = self._failures.get(key, (float("-inf"), 0.0))
            if now < since + wait:
                self._context.queue.add_at((self.name, key_of(daemon_set)), since + wait)
                return True
            longer = _FAILED_BACKOFF_S if now > since + 2 * _FAILED_BACKOFF_MOST_S else wait * 2
            self._failures[key] = now, min(max(longer, _FAILED_BACKOFF_S), _FAILED_BACKOFF_MOST_S)
            message, kind = f"Found {subject}, will try to kill it", "Warning"
        reason = f"{phase}DaemonPod"
        self._context.recorder.event(self.name, DAEMON_SETS, daemon_set, reason, message, kind)
        delete.append(pod)
        return True

    def _surplus_of_surge(self, daemon_set: JsonObject, running: list[JsonObject], value: str) -> list[JsonObject]:
        """With surge a node may have one old and one new pod, until the new one is available or the old one fails."""
        if len(running) <= 1:
            return []
        new = [pod for pod in running if labels_of(pod).get(REVISION_HASH) == value]
        old = [pod for pod in running if labels_of(pod).get(REVISION_HASH) != value]
        surplus = [*new[1:], *old[1:]]
        if new and old:
            min_ready = int(spec_of(daemon_set).get("minReadySeconds") or 0)
            if pod_ready_since(old[0]) is None or pod_is_available(new[0], min_ready, self._context.clock()):
                surplus.append(old[0])
        return surplus

    def _carry_out(self, daemon_set: JsonObject, delete: list[JsonObject], create: list[str], value: str) -> None:
        if max(len(delete), len(create)) > BURST:
            self._context.queue.add((self.name, key_of(daemon_set)))
        template = _template(daemon_set, value)
        for node in create[:BURST]:
            spec = {**template["spec"], "affinity": _pinned(template["spec"].get("affinity"), node)}
            made = pod_control.create(self._context, self.name, DAEMON_SETS, daemon_set, {**template, "spec": spec})
            if made is None:
                break
        for pod in delete[:BURST]:
            pod_control.delete(self._context, self.name, DAEMON_SETS, daemon_set, pod)

    def _write_status(self, daemon_set: JsonObject, fits: dict[str, DaemonFit], value: str) -> None:
        latest = self._context.cache.get(DAEMON_SETS, key_of(daemon_set))
        if latest is None:
            return
        now, min_ready = self._context.clock(), int(spec_of(daemon_set).get("minReadySeconds") or 0)
        by_node = self._pods_by_node(daemon_set)
        wanted = {node for node, judged in fits.items() if judged.run}
        first = {node: by_node[node][0] for node in wanted if by_node.get(node)}
        ready = [pod for pod in first.values() if pod_ready_since(pod) is not None]
        available = sum(pod_is_available(pod, min_ready, now) for pod in ready)
        status: dict[str, Any] = {
            "currentNumberScheduled": len(first),
            "numberMisscheduled": sum(node in fits and node not in wanted for node in by_node),
            "desiredNumberScheduled": len(wanted),
            "numberReady": len(ready),
            "observedGeneration": generation_of(daemon_set),
        }
        for field, number in (
            ("updatedNumberScheduled", sum(_is_updated(daemon_set, pod, value) for pod in first.values())),
            ("numberAvailable", available),
            ("numberUnavailable", len(wanted) - available),
        ):
            if number:
                status[field] = number
        if {k: v for k, v in status_of(latest).items() if v or k in status} != status:
            self._context.writer.put_status(DAEMON_SETS, latest, status)
        if min_ready and len(ready) != available:
            self._context.queue.add_at((self.name, key_of(daemon_set)), now + min_ready)


def pinned_node(pod: JsonObject) -> str:
    """The node that a DaemonSet's pod is for, by its affinity to metadata.name; empty for any other pod."""
    affinity = ((spec_of(pod).get("affinity") or {}).get("nodeAffinity")) or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            values = list(field.get("values") or [])
            if field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1:
                return str(values[0])
    return ""


def fit(spec: PodSpec, node: JsonObject) -> DaemonFit:
    """Whether a node is for the pods of a DaemonSet (``spec`` with the tolerations that these get)."""
    taints = [msgspec.convert(taint, Taint) for taint in spec_of(node).get("taints") or ()]
    return daemons.fit(spec, labels_of(node), taints, key_of(node)[1])


def _placing(node: JsonObject) -> tuple[Any, Any]:
    """What of a node decides whether it gets a pod."""
    return labels_of(node), spec_of(node).get("taints")


def _pod_spec(template: dict[str, Any]) -> dict[str, Any]:
    """The template's spec with the tolerations of DaemonSets."""
    spec = dict(template.get("spec") or {})
    added = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in _NO_EXECUTE]
    keys = [*_NO_SCHEDULE, *((NETWORK_UNAVAILABLE,) if spec.get("hostNetwork") else ())]
    added += [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    mine = {(toleration["key"], toleration["effect"]) for toleration in added}
    given = [one for one in spec.get("tolerations") or () if (one.get("key"), one.get("effect")) not in mine]
    return {**spec, "tolerations": [*given, *added]}


def _template(daemon_set: JsonObject, value: str) -> dict[str, Any]:
    """The template of the pods: with tolerations and the labels of its version."""
    template = spec_of(daemon_set).get("template") or {}
    metadata = dict(template.get("metadata") or {})
    labels = {**(metadata.get("labels") or {}), REVISION_HASH: value}
    generation = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION)
    if generation:
        labels[TEMPLATE_GENERATION] = generation
    return {**template, "metadata": {**metadata, "labels": labels}, "spec": _pod_spec(template)}


def _is_updated(daemon_set: JsonObject, pod: JsonObject, value: str) -> bool:
    """Whether a pod is of the present template; pods from before there were hashes tell it by their generation."""
    labels = labels_of(pod)
    if REVISION_HASH in labels:
        return labels[REVISION_HASH] == value
    generation = (daemon_set["metadata"].get("annotations") or {}).get(_GENERATION)
    return bool(generation) and labels.get(TEMPLATE_GENERATION) == generation


def _pinned(affinity: dict[str, Any] | None, node: str) -> dict[str, Any]:
    """The affinity with its required node terms replaced by the node's name."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = affinity or {}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
    }
    return {**affinity, "nodeAffinity": node_affinity}
