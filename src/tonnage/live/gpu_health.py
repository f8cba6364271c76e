"""What the health of a node's GPUs changes in the cluster: a node condition, a taint, and pods that are evicted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from tonnage.kube.resources import NODES
from tonnage.kube.transport import STRATEGIC_PATCH, ApiError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.node.health_effects import TAINT, HealthPolicy, NodeVerdict, ToEvict


class GpuHealthEffects:
    """Writes what is said of one node. Only what differs from the node as it is now is written."""

    def __init__(self, client: Client, node: str, policy: HealthPolicy) -> None:
        self._client, self._node, self._policy = client, node, policy
        self._asked: set[str] = set()

    def apply(self, verdict: NodeVerdict, leaving: Sequence[ToEvict], at: datetime) -> list[str]:
        """Write condition and taint, and ask for the evictions. Returns what was done, in sentences. An eviction that
        is refused, as by a PodDisruptionBudget, is asked for again the next time. Raises ClientError where the API
        fails."""
        found = self._client.get(NODES, self._node)
        done = [*self._taint(found, verdict), *self._condition(found, verdict, at)]
        for one in leaving:
            done += self._evict(one)
        self._asked &= {one.pod for one in leaving}
        return done

    def _condition(self, node: JsonObject, verdict: NodeVerdict, at: datetime) -> list[str]:
        type_ = self._policy.condition
        if not type_:
            return []
        there = next((one for one in node.get("status", {}).get("conditions", ()) if one["type"] == type_), None)
        new = {"type": type_, "status": verdict.status, "reason": verdict.reason, "message": verdict.message}
        if there is not None and new.items() <= there.items():
            return []
        stamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        same = there is not None and there["status"] == verdict.status
        since = there["lastTransitionTime"] if there is not None and same else stamp
        condition = {**new, "lastHeartbeatTime": stamp, "lastTransitionTime": since}
        patch = {"status": {"conditions": [condition]}}
        self._client.patch(NODES, self._node, patch, subresource="status", content_type=STRATEGIC_PATCH)
        return [f"condition {type_}={verdict.status}: {verdict.message}"]

    def _taint(self, node: JsonObject, verdict: NodeVerdict) -> list[str]:
        there = node["spec"].get("taints", [])
        others = [one for one in there if one["key"] != TAINT]
        new = [] if verdict.taint is None else [dict(zip(("key", "value", "effect"), verdict.taint, strict=True))]
        keys = ("key", "value", "effect")
        ours = [{key: one[key] for key in keys if key in one} for one in there if one not in others]
        if ours == new:
            return []
        patch = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": [*others, *new] or None},
        }
        self._client.patch(NODES, self._node, patch)
        return [f"taint {TAINT}: {verdict.taint[1]}" if verdict.taint is not None else f"taint {TAINT} removed"]

    def _evict(self, one: ToEvict) -> list[str]:
        namespace, _, name = one.pod.partition("/")
        try:
            self._client.evict(name, namespace)
        except ApiError as error:
            if error.code == 404:
                return []
            said = f"{one.pod} is not evicted yet: {error}"
            new = one.pod not in self._asked
            self._asked.add(one.pod)
            return [said] if new else []
        return [f"{one.pod} evicted: {one.reason}"]
