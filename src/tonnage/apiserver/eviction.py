"""The Eviction API: a pod goes only when the PodDisruptionBudgets that select it allow it now.

Budgets are worked out from the pods as they are at that moment, so they hold whether or not a disruption controller
keeps their status.
Source: kubernetes/kubernetes v1.36 pkg/registry/core/pod/storage/eviction.go and pkg/controller/disruption.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from tonnage.apiserver import selectors
from tonnage.apiserver.lifecycle import DeleteOptions, check_preconditions, set_condition, stamp
from tonnage.apiserver.request import WriteOptions
from tonnage.apiserver.status import StatusError, bad_request
from tonnage.apiserver.store import Store
from tonnage.apiserver.subresources import selector_text
from tonnage.apiserver.writes import Writes
from tonnage.kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    PDBS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
    by_kind,
)
from tonnage.objects.policy import DisruptionAllowance, needs

JsonObject: TypeAlias = dict[str, Any]
_SCALED = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS)
_TARGET = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
"""The condition that tells controllers why the pod goes."""


def evict(writes: Writes, namespace: str, name: str, eviction: JsonObject, options: WriteOptions) -> None:
    """Evict a pod. Raises Refusal (400, 404, 409; 429 when a budget forbids it now; 500 for two budgets)."""
    given = (eviction.get("metadata") or {}).get("name", name)
    if eviction.get("kind", "Eviction") != "Eviction":
        raise bad_request(f"the kind in the data ({eviction['kind']}) does not match the expected kind (Eviction)")
    if given != name:
        raise bad_request("name in URL does not match name in Eviction object")
    body = eviction.get("deleteOptions") or {}
    asked = DeleteOptions.of(body, {"dryRun": "All"} if options.dry_run else {})
    with writes.store.lock:
        stored = writes.read(PODS, namespace, name)
        pod = stored.object
        check_preconditions(PODS, pod, asked)
        if not _needs_no_budget(pod):
            _check_budgets(writes.store, namespace, pod)
            if not asked.dry_run:
                marked = stored.fresh()
                set_condition(marked, _TARGET, stamp(writes.clock()))
                writes.server_managed(PODS, stored, marked, options)
                asked = DeleteOptions(asked.grace_s, asked.propagation, asked.uid, "", asked.dry_run)
        writes.delete(PODS, namespace, name, asked)


def budget(store: Store, pdb: JsonObject) -> DisruptionAllowance:
    """What a budget allows now."""
    namespace, spec = pdb["metadata"]["namespace"], pdb.get("spec", {})
    pods = _selected(store, namespace, spec.get("selector"))
    healthy = sum(_is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods)
    at_most, at_least = spec.get("maxUnavailable"), spec.get("minAvailable")
    if at_most is None and at_least is None:
        return DisruptionAllowance(healthy, 0, len(pods))
    try:
        desired, expected = needs(at_least, at_most, len(pods), lambda: _expected(store, namespace, pods))
    except ValueError as error:
        raise StatusError(500, "InternalError", f"invalid value for IntOrString: {error}") from error
    return DisruptionAllowance(healthy, desired, expected)


def _selected(store: Store, namespace: str, selector: Any) -> list[JsonObject]:
    if selector is None:
        return []
    tests = selectors.ObjectSelector(selectors.label_tests(selector_text(selector)))
    return [one.object for one in store.items(PODS, namespace)[0] if tests.matches(one.object)]


def _expected(store: Store, namespace: str, pods: list[JsonObject]) -> int:
    """The sum of the scales of the pods' controllers."""
    scales: dict[str, int] = {}
    for pod in pods:
        found = _controller(store, namespace, pod)
        if found is None:
            continue
        resource, owner = found
        above = _controller(store, namespace, owner)
        if above is not None and above[0] in _SCALED:
            resource, owner = above
        if resource in _SCALED:
            scales[owner["metadata"]["uid"]] = owner.get("spec", {}).get("replicas", 1)
        elif resource is DAEMON_SETS:
            scales[owner["metadata"]["uid"]] = owner.get("status", {}).get("desiredNumberScheduled", 0)
    return sum(scales.values())


def _controller(store: Store, namespace: str, obj: JsonObject) -> tuple[Resource, JsonObject] | None:
    for owner in obj["metadata"].get("ownerReferences") or ():
        resource = by_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        if owner.get("controller") and resource is not None:
            found = store.get(resource, namespace, owner.get("name", ""))
            if found is not None and found.object["metadata"]["uid"] == owner.get("uid"):
                return resource, found.object
    return None


def _is_ready(pod: JsonObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _needs_no_budget(pod: JsonObject) -> bool:
    phase = pod.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _check_budgets(store: Store, namespace: str, pod: JsonObject) -> None:
    labels = pod["metadata"].get("labels") or {}
    budgets = []
    for one in store.items(PDBS, namespace)[0]:
        selector = one.object.get("spec", {}).get("selector")
        if selector is not None and all(test(labels) for test in selectors.label_tests(selector_text(selector))):
            budgets.append(one.object)
    if not budgets:
        return
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise StatusError(500, "", message)
    name, found = budgets[0]["metadata"]["name"], budget(store, budgets[0])
    policy = budgets[0].get("spec", {}).get("unhealthyPodEvictionPolicy") or "IfHealthyBudget"
    if found.spares(ready=_is_ready(pod), policy=policy) or found.allowed:
        return
    why = f"The disruption budget {name} does not allow evicting pods currently"
    if found.healthy <= found.desired:
        why = f"The disruption budget {name} needs {found.desired} healthy pods and has {found.healthy} currently"
    cause = {"reason": "DisruptionBudget", "message": why}
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    raise StatusError(429, "TooManyRequests", message, {"causes": [cause]})
