"""What must hold after every step. Derived tables are rebuilt from the bindings and compared."""

from __future__ import annotations

import numpy as np

from tonnage.fleet.state import FREE_DEVICE, HOSTNAME, NO_DEVICE, Fleet


def violations(fleet: Fleet) -> list[str]:
    """Every broken invariant as one sentence; empty when all hold."""
    return [*_resources(fleet), *_devices(fleet), *_pods(fleet), *_nodes(fleet)]


def _resources(fleet: Fleet) -> list[str]:
    found = []
    free = fleet.allocatable.copy()
    for pod in fleet.pods:
        if pod is not None and pod.node >= 0:
            for column, amount in fleet.requests(fleet.classes.rows[pod.class_id].shape):
                free[pod.node, column] -= amount
    for row in np.flatnonzero((free != fleet.free).any(axis=1)):
        found.append(f"node row {row}: free resources differ from a rebuild")
    for row in np.flatnonzero((free < 0).any(axis=1)):
        short = [fleet.resources[c] for c in np.flatnonzero(free[row] < 0)]
        found.append(f"node row {row}: more allocated than allocatable: {', '.join(short)}")
    return found


def _devices(fleet: Fleet) -> list[str]:
    found = []
    rebuilt = np.where(fleet.devices == NO_DEVICE, NO_DEVICE, FREE_DEVICE).astype(np.int32)
    for row, pod in enumerate(fleet.pods):
        if pod is None or pod.node < 0:
            continue
        for device in pod.devices:
            if rebuilt[pod.node, device] != FREE_DEVICE:
                found.append(f"node row {pod.node}: device {device} is held twice or does not exist")
            rebuilt[pod.node, device] = row
        resource = fleet.node(pod.node).spec.device_resource
        wanted = fleet.classes.rows[pod.class_id].requests.get(resource, 0) if resource else 0
        if len(pod.devices) != wanted:
            found.append(f"pod row {row}: holds {len(pod.devices)} devices, requests {wanted}")
    if (rebuilt != fleet.devices).any():
        found.append("the device table differs from a rebuild")
    there = (fleet.devices != NO_DEVICE).sum(axis=1)
    for row, node in enumerate(fleet.nodes):
        allocatable = fleet.allocatable_of(row).get(node.spec.device_resource, 0) if node else 0
        if there[row] != allocatable:
            found.append(f"node row {row}: {there[row]} devices, {allocatable} allocatable")
    return found


def _pods(fleet: Fleet) -> list[str]:
    found = []
    keys: dict[tuple[str, str], int] = {}
    pending: set[int] = set()
    bound: dict[int, dict[int, int]] = {}
    for row, pod in enumerate(fleet.pods):
        if pod is None:
            continue
        keys[pod.spec.namespace, pod.spec.name] = row
        if pod.node < 0:
            pending.add(row)
        else:
            on_nodes = bound.setdefault(pod.class_id, {})
            on_nodes[pod.node] = on_nodes.get(pod.node, 0) + 1
    if keys != fleet.pod_by_key:
        found.append("the pod index differs from the pod table")
    if pending != set(fleet.pending):
        found.append("the pending pods differ from the pods without a node")
    if bound != {class_id: on_nodes for class_id, on_nodes in fleet.bound.items() if on_nodes}:
        found.append("the pods of a class per node differ from the pod table")
    return found


def _nodes(fleet: Fleet) -> list[str]:
    found = []
    held: dict[int, set[int]] = {}
    for row, pod in enumerate(fleet.pods):
        if pod is not None and pod.node >= 0:
            held.setdefault(pod.node, set()).add(row)
    names = {node.spec.name: row for row, node in enumerate(fleet.nodes) if node is not None}
    if names != fleet.node_by_name:
        found.append("the node index differs from the node table")
    if set(np.flatnonzero(fleet.alive).tolist()) != set(names.values()):
        found.append("the nodes that are alive differ from the node table")
    if (fleet.schedulable & ~fleet.alive).any():
        found.append("a row without a node is schedulable")
    for name, row in names.items():
        node = fleet.node(row)
        if held.get(row, set()) != node.pods:
            found.append(f"node {name}: its pods differ from the pod table")
        if {HOSTNAME: node.labels[HOSTNAME], **fleet.label_sets.rows[fleet.label_set[row]]} != node.labels:
            found.append(f"node {name}: its label set is not its labels")
        if fleet.taint_sets.rows[fleet.taint_set[row]] != node.taints:
            found.append(f"node {name}: its taint set is not its taints")
    return found
