"""A rollout of a driver on a cluster: what :mod:`tonnage.cuda_fit.rollout` decides is read from and written to the API.

A change of a node is made only while its stage is the one that it was decided at, and on the very version of the object
that was read."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.cuda_fit.rollout import DRAINING, STAGE, UPGRADING, NodeEdit, RolloutTurn, RolloutView
from tonnage.cuda_fit.users import DriverUser
from tonnage.errors import InputError
from tonnage.facts.gpu_stack import DRIVER
from tonnage.kube.resources import CLUSTER_POLICIES, NODES, PODS
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.node.operator_parts import operands_of
from tonnage.objects import core
from tonnage.objects.gpu_operator import ClusterPolicy

_NO_OPERATOR = (
    "drivers of nodes are changed by the GPU operator alone; where they are part of an image, change the image"
)


def seen(nodes: Sequence[core.Node], pods: Sequence[core.Pod], policies: Sequence[ClusterPolicy]) -> RolloutView:
    """The cluster as a rollout looks at it. Raises InputError where the GPU operator does not upgrade drivers."""
    if len(policies) != 1:
        message = "no ClusterPolicy" if not policies else f"{len(policies)} ClusterPolicies"
        raise InputError.at(f"{message}: which driver nodes are to have is not said", hint=_NO_OPERATOR)
    policy = policies[0]
    driver, where = policy.spec.driver, f"ClusterPolicy {policy.metadata.name}"
    if driver.enabled is False:
        raise InputError.at(f"{where} has driver.enabled: false", hint=_NO_OPERATOR)
    if driver.use_nvidia_driver_crd:
        hint = "change spec.version of the NVIDIADriver objects, a node pool at a time"
        raise InputError.at(f"{where} has driver.useNvidiaDriverCRD: NVIDIADriver objects name the version", hint=hint)
    if driver.upgrade_policy.auto_upgrade is False:
        hint = "set driver.upgradePolicy.autoUpgrade: true; waves are made with labels that hold nodes back"
        raise InputError.at(f"{where} has driver.upgradePolicy.autoUpgrade: false", hint=hint)
    kept = {}
    for node in nodes:
        verdict = next(one for one in operands_of(policy.spec, node.metadata.labels) if one.operand == DRIVER)
        if not verdict.runs:
            kept[node.metadata.name] = f"its driver is not the operator's: {verdict.reason}"
    return RolloutView(nodes, pods, driver.version, kept)


class ClusterRollout:
    """Reads and writes one cluster. Methods raise ClientError where the API fails."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self) -> RolloutView:
        """As it is now; while nodes are at work, of pods only those on them. Raises InputError as :func:`seen` does."""
        nodes = [_node(one) for one in self._client.list(NODES)]
        busy = [node.metadata.name for node in nodes if node.metadata.labels.get(STAGE) in (DRAINING, UPGRADING)]
        listed: list[JsonObject] = []
        for name in busy:
            listed += self._client.list(PODS, field_selector=f"spec.nodeName={name}")
        pods = [msgspec.convert(one, core.Pod, strict=False) for one in (listed if busy else self._client.list(PODS))]
        return seen(nodes, pods, [msgspec.convert(one, ClusterPolicy, strict=False) for one in self._policies()])

    def apply(self, turn: RolloutTurn) -> list[str]:
        """Do what was decided. Returns what was done and what the API refused, in sentences."""
        said = [line for edit in turn.edits if (line := self._edit(edit))]
        if turn.version is not None:
            said.append(self._name(turn.version))
        return said + [line for one in turn.evictions if (line := self._evict(one))]

    def edit(self, edits: Sequence[NodeEdit]) -> list[str]:
        """Only these changes."""
        return [line for edit in edits if (line := self._edit(edit))]

    def _policies(self) -> list[JsonObject]:
        try:
            return self._client.list(CLUSTER_POLICIES)
        except ApiError as error:
            if error.code == 404:
                return []
            raise

    def _edit(self, edit: NodeEdit) -> str:
        """What was done; empty where the node is another by now: it is decided again."""
        try:
            now = self._client.get(NODES, edit.node)
            meta = now["metadata"]
            if (meta.get("labels") or {}).get(STAGE, "") != edit.stage:
                return ""
            guard: JsonObject = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
            patch: JsonObject = {"metadata": {**guard, "labels": edit.labels, "annotations": edit.annotations}}
            if edit.cordon is not None:
                patch["spec"] = {"unschedulable": edit.cordon or None}
            self._client.patch(NODES, edit.node, patch)
        except ApiError as error:
            if error.code in (404, 409):
                return ""
            raise
        return f"{edit.node}: {edit.why}"

    def _name(self, version: str) -> str:
        found = self._policies()[0]["metadata"]
        guard = {"uid": found["uid"], "resourceVersion": found["resourceVersion"]}
        self._client.patch(
            CLUSTER_POLICIES, found["name"], {"metadata": guard, "spec": {"driver": {"version": version}}}
        )
        return f"ClusterPolicy {found['name']}: driver {version}"

    def _evict(self, one: DriverUser) -> str:
        try:
            self._client.evict(one.name, one.namespace, one.uid)
        except ApiError as error:
            if error.code in (404, 409):
                return ""
            return f"{one.key} is not evicted from {one.node} yet: {error.message}"
        except ClientError as error:
            return f"{one.key} is not evicted from {one.node} yet: {error}"
        return f"{one.key} evicted from {one.node}"


def _node(body: JsonObject) -> core.Node:
    return msgspec.convert(body, core.Node, strict=False)
