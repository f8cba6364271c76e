"""A small cluster whose nodes have drivers, on any API, and a rollout on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from live.contract.small import Small, build
from tonnage.cuda_fit.rollout import RolloutSettings, RolloutTurn, decide
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.resources import CLUSTER_POLICIES, NODES, PDBS
from tonnage.kube.transport import Transport
from tonnage.kube.verbs import Client
from tonnage.live.driver_rollout import ClusterRollout
from tonnage.units import NS_PER_S

OLD, NEW = "535.161.08", "580.105.08"
DRIVER, CUDA = "nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.runtime-version.full"
ON = ("base-01", "base-02", "base-03")
SETTINGS = RolloutSettings(first=1, wave=2, pending=True)


@contextmanager
def with_drivers(folder: Path, transport: Transport) -> Iterator[Small]:
    """The small cluster, with a ClusterPolicy and an old driver on its own nodes."""
    define_missing_kinds(Client(transport), [CLUSTER_POLICIES])
    body = {"apiVersion": CLUSTER_POLICIES.api_version, "kind": "ClusterPolicy"}
    body |= {"metadata": {"name": "cluster-policy"}, "spec": {"driver": {"version": OLD}}}
    Client(transport).create(CLUSTER_POLICIES, body)
    made = build(folder, transport)
    for name in ON:
        made.client.patch(NODES, name, {"metadata": {"labels": {DRIVER: OLD}}})
    made.settle()
    yield made
    made.close()


def node(small: Small, name: str) -> dict[str, Any]:
    return small.client.get(NODES, name)


def labels(small: Small, name: str) -> dict[str, str]:
    found: dict[str, str] = node(small, name)["metadata"]["labels"]
    return found


def name_driver(small: Small, version: str) -> None:
    small.client.patch(CLUSTER_POLICIES, "cluster-policy", {"spec": {"driver": {"version": version}}})
    small.settle()


def drivers(small: Small) -> dict[str, str]:
    return {name: labels(small, name)[DRIVER] for name in ON}


def without_budgets(small: Small) -> None:
    for one in small.client.list(PDBS):
        small.client.delete(PDBS, one["metadata"]["name"], one["metadata"]["namespace"])
    small.settle()


def roll(small: Small, seconds: int = 3000, settings: RolloutSettings = SETTINGS, to: str = NEW) -> RolloutTurn:
    """As ``tonnage cuda rollout --apply`` does it, from whatever is there."""
    for _ in range(seconds // 20):
        cluster = ClusterRollout(small.client)  # each look is another process'
        turn = decide(cluster.read(), to, settings, small.made.cluster.now_ns // NS_PER_S)
        if turn.state != "running":
            return turn
        cluster.apply(turn)
        small.settle()
        small.run(20)
    return turn
