"""What is written so that a MIG manager cuts a node's GPUs: a configuration, then an order and a label on the node."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tonnage.cluster.annotations import MIG_LAYOUTS
from tonnage.cluster.client.transport import ApiError
from tonnage.cluster.client.verbs import Client, JsonObject
from tonnage.cluster.cutting import Wanted, read_order, written_order
from tonnage.cluster.resources import CONFIG_MAPS, NODES
from tonnage.decisions import Ref, Stale
from tonnage.objects.core import ConfigMap
from tonnage.partitioning import documents, mig_parted
from tonnage.partitioning.mig_parted import Entry, Spec
from tonnage.partitioning.node_cuts import MIG_CONFIG, MIG_STATE
from tonnage.partitioning.node_layouts import PENDING

FILE = "config.yaml"
"""The key that mig-manager reads (NVIDIA/gpu-operator assets/state-mig-manager)."""


def put_configuration(client: Client, at: tuple[str, str], name: str, entries: Sequence[Entry]) -> None:
    """Let the ConfigMap have the configuration under this name. Raises ClientError, and InputError where the file in it
    is not one that mig-parted reads."""
    namespace, config_map = at
    try:
        found = client.get(CONFIG_MAPS, config_map, namespace)
    except ApiError as error:
        if error.code != 404:
            raise
        text = mig_parted.render(Spec({name: tuple(entries)}))
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": config_map, "namespace": namespace}}
        client.create(CONFIG_MAPS, {**body, "data": {FILE: text}}, namespace)
        return
    configs = _configs(found)
    if configs.get(name) != tuple(entries):
        found["data"] = {**found.get("data", {}), FILE: mig_parted.render(Spec({**configs, name: tuple(entries)}))}
        client.replace(CONFIG_MAPS, found, namespace)


def _configs(found: JsonObject) -> dict[str, tuple[Entry, ...]]:
    one = msgspec.convert({**found, "data": found.get("data") or {}}, ConfigMap, strict=False)
    one.data = {FILE: one.data[FILE]} if one.data.get(FILE) else {}
    return {
        name: made for document in documents.inside(one) for name, made in mig_parted.parse(document).configs.items()
    }


def put_order(client: Client, node: Ref, wanted: Wanted) -> Stale | None:
    """Let the node have the order and, once mig-manager can know the configuration, the label; or say why it has moved
    on. Raises ClientError."""
    found = client.get(NODES, node.name)
    meta = found["metadata"]
    if node.uid and meta["uid"] != node.uid:
        return Stale(f"node {node.name} is gone")
    label = meta.get("labels", {}).get(MIG_CONFIG, "")
    if label != wanted.label or read_order(meta.get("annotations", {})) != wanted.now:
        return Stale(f"the GPUs of node {node.name} are to be cut otherwise meanwhile: {MIG_CONFIG}={label}")
    order = wanted.order
    patch: JsonObject = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    patch["annotations"] = {MIG_LAYOUTS: written_order(order)}
    if not order.due_ns:
        patch["labels"] = {MIG_CONFIG: order.config, MIG_STATE: PENDING}
    client.patch(NODES, node.name, {"metadata": patch})
    return None
