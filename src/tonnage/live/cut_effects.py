"""What is written so that a MIG manager partitions a node's GPUs: a configuration, then an order and a label on the
node."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.decisions import UNABLE, Ref, Refused, Stale
from tonnage.errors import InputError
from tonnage.facts.labels import MIG_CONFIG, NVIDIA
from tonnage.kube.resources import CONFIG_MAPS, NODES, PODS
from tonnage.kube.transport import ApiError, LostReply
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.annotations import MIG_LAYOUTS
from tonnage.live.cutting import NodeWrite, read_order, written_order
from tonnage.objects.core import ConfigMap
from tonnage.partitioning import documents, mig_parted
from tonnage.partitioning.mig_parted import Entry, Spec
from tonnage.partitioning.node_cuts import MIG_STATE
from tonnage.partitioning.node_layouts import PENDING, Order

FILE = "config.yaml"
"""The key that mig-manager reads (NVIDIA/gpu-operator assets/state-mig-manager)."""


def prepare(client: Client, node: Ref, wanted: NodeWrite) -> JsonObject | Stale | Refused:
    """Let the configuration be there that the order names, if there is one to write: without it mig-manager fails. One
    whose order is not written then does nothing. The metadata of the node as it is now, or
    why nothing is to be ordered. Raises ClientError."""
    seen = see_node(client, node, wanted)
    if isinstance(seen, Stale) or not wanted.entries:
        return seen
    try:
        put_configuration(client, wanted.config_map, wanted.order.config, wanted.entries)
    except InputError as error:
        return Refused(f"ConfigMap {'/'.join(wanted.config_map)}: {error.problems[0].message}", UNABLE)
    return seen


def put_configuration(client: Client, at: tuple[str, str], name: str, entries: Sequence[Entry]) -> None:
    """Let the ConfigMap have the configuration under this name. Raises ClientError, and InputError where the file in it
    is not one that mig-parted reads."""
    found, made = _read(client, at), tuple(entries)
    configs = _configs(found) if found is not None else {}
    if configs.get(name) == made:
        return
    try:
        _write(client, at, found, Spec({**configs, name: made}))
    except LostReply:
        found = _read(client, at)
        if found is None or _configs(found).get(name) != made:
            raise


def _read(client: Client, at: tuple[str, str]) -> JsonObject | None:
    try:
        return client.get(CONFIG_MAPS, at[1], at[0])
    except ApiError as error:
        if error.code != 404:
            raise
        return None


def _write(client: Client, at: tuple[str, str], found: JsonObject | None, spec: Spec) -> None:
    text = mig_parted.render(spec)
    if found is None:
        meta = {"name": at[1], "namespace": at[0]}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {FILE: text}}
        client.create(CONFIG_MAPS, body, at[0])
    else:
        client.replace(CONFIG_MAPS, {**found, "data": {**found.get("data", {}), FILE: text}}, at[0])


def _configs(found: JsonObject) -> dict[str, tuple[Entry, ...]]:
    one = msgspec.convert({**found, "data": found.get("data") or {}}, ConfigMap, strict=False)
    one.data = {FILE: one.data[FILE]} if one.data.get(FILE) else {}
    return {
        name: made for document in documents.inside(one) for name, made in mig_parted.parse(document).configs.items()
    }


def see_node(client: Client, node: Ref, wanted: NodeWrite) -> JsonObject | Stale:
    """The metadata of the node as it is now, or why it has moved on. Raises ClientError."""
    meta: JsonObject = client.get(NODES, node.name)["metadata"]
    if node.uid and meta["uid"] != node.uid:
        return Stale(f"node {node.name} is gone")
    label = meta.get("labels", {}).get(MIG_CONFIG, "")
    if label != wanted.label or read_order(meta.get("annotations", {})) != wanted.now:
        return Stale(f"another MIG layout was requested for node {node.name} meanwhile: {MIG_CONFIG}={label}")
    if wanted.pods is not None:
        there = client.list(PODS, field_selector=f"spec.nodeName={node.name}")
        if came := [pod for pod in there if pod["metadata"]["uid"] not in wanted.pods and _has_gpus(pod)]:
            return Stale(f"a GPU of {node.name} is in use: {came[0]['metadata']['name']} was bound meanwhile")
    return meta


def put_order(client: Client, meta: JsonObject, order: Order) -> None:
    """Let the node have the order and, once mig-manager can know the configuration, the label; unless it has changed
    since it was seen like this. Raises ClientError."""
    patch: JsonObject = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    patch["annotations"] = {MIG_LAYOUTS: written_order(order)}
    if not order.due_ns:
        patch["labels"] = {MIG_CONFIG: order.config, MIG_STATE: PENDING}
    client.patch(NODES, meta["name"], {"metadata": patch})


def _has_gpus(pod: JsonObject) -> bool:
    """Whether the pod holds a GPU, or a part of one."""
    containers = [*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ())]
    limits = (name for one in containers for name in one.get("resources", {}).get("limits", {}))
    over = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not over and any(name.startswith(NVIDIA) for name in limits)
