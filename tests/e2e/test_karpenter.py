"""The real Karpenter launches what our nodes controller asks for, and nothing of its own accord.

Its provider is kwok, with the machines of our facts. What keeps it from buying for the same pods is a NodePool whose own
limits leave no room: it checks them before it plans a node, and never for a NodeClaim that somebody else has made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from e2e_builders import GPU, await_running, deployment, pod_spec, pods_of
from e2e_controllers import USERS, Process, controller, grant
from e2e_karpenter import IN_POOL, MACHINE, POOL, machines, node_pool

from e2e import simulators
from e2e.api import Json
from e2e.control_plane import ControlPlane
from e2e.processes import until

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOLS = "/apis/karpenter.sh/v1/nodepools"
NODES = "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> Iterator[ControlPlane]:
    """With kwok and Karpenter; a NodePool that our controller buys for."""
    found: ControlPlane = start_plane(scheduler=False, users=USERS)
    programs = [simulators.kwok(found), simulators.karpenter(found, machines((MACHINE, "g6e.2xlarge")))]
    try:
        for program in programs:
            program.start()
        found.api().create("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", CLASS)
        yield found
    finally:
        for program in programs:
            program.stop()


@pytest.fixture(scope="module")
def ours(plane: ControlPlane) -> Iterator[dict[str, Process]]:
    """Our scheduler and our nodes controller."""
    found = {}
    try:
        for name in ("scheduler", "nodes"):
            grant(plane, name)
            found[name] = controller(plane, name)
            found[name].start()
        yield found
    finally:
        for process in found.values():
            process.stop()


@pytest.fixture
def pool(plane: ControlPlane) -> Iterator[Json]:
    yield plane.api().create(POOLS, node_pool(limits={GPU: 8}))
    plane.api().delete(f"{POOLS}/{POOL}", {})
    until("no NodePool", lambda: not plane.api().items(POOLS), 60)


def spec(gpus: int) -> Json:
    return pod_spec(gpus=gpus, schedulerName="tonnage", nodeSelector=IN_POOL)


def nodes(plane: ControlPlane) -> list[Json]:
    return plane.api().items(NODES)


def test_karpenter_launches_exactly_what_was_planned_and_it_goes_when_it_is_empty(
    plane: ControlPlane, ours: dict[str, Process], pool: Json
) -> None:
    api = plane.api()
    api.create(DEPLOYMENTS, deployment("served", 1, spec(4)))
    await_running(api, "served", 1, limit_s=90)
    assert ours["nodes"].end() == 0
    ours["nodes"].start()  # it has to find out again which names are taken: the cloud names the nodes
    api.patch(f"{DEPLOYMENTS}/served", {"spec": {"replicas": 2}})
    running = await_running(api, "served", 2, limit_s=90)
    claims = {claim["status"]["nodeName"]: claim for claim in api.items(CLAIMS)}
    planned = {line["decision"]["claim"]["name"] for line in ours["nodes"].decided("Launch")}
    assert planned == {f"{POOL}-00001", f"{POOL}-00002"}
    assert sorted(claim["metadata"]["name"] for claim in claims.values()) == sorted(planned)
    assert ours["nodes"].decided("Launch", "Stale") == []
    assert {pod["spec"]["nodeName"] for pod in running} == set(claims)
    for node in nodes(plane):
        labels = node["metadata"]["labels"]
        assert labels["node.kubernetes.io/instance-type"] == MACHINE
        assert labels["karpenter.sh/initialized"] == "true"
        assert int(node["status"]["allocatable"][GPU]) == 4
    api.create(DEPLOYMENTS, deployment("refused", 1, spec(4)))
    until("it waits", lambda: [p for p in pods_of(api, "refused") if p["status"].get("conditions")], 30)
    time.sleep(12)  # once round everybody's loop
    assert len(api.items(CLAIMS)) == 2, "the limit of eight GPUs is ours to keep, and Karpenter buys nothing"
    api.delete(f"{DEPLOYMENTS}/refused", {})
    api.delete(f"{DEPLOYMENTS}/served", {})
    until("the nodes are returned", lambda: not api.items(CLAIMS) and not nodes(plane), 90, 0.2)
    returned = [line["decision"]["node"]["name"] for line in ours["nodes"].decided("Return")]
    assert set(returned) <= set(claims), "Karpenter takes back empty nodes too, and whoever is first is not fought"
    assert {line["decision"]["claim"]["name"] for line in ours["nodes"].decided("Launch")} == planned
    assert [process.complaints() for process in ours.values()] == [[], []]


def test_without_that_limit_karpenter_would_buy_for_the_same_pods(plane: ControlPlane) -> None:
    """What the first test shows is the limit's doing: with room of its own Karpenter buys, and ours has none here."""
    api = plane.api()
    api.create(POOLS, node_pool(limits={GPU: 0}, own={"nodes": "1"}))
    api.create(DEPLOYMENTS, deployment("karpenters", 1, spec(4)))
    names = {f"{POOL}-": "by the API server, not by a plan of ours"}
    until("Karpenter's own", lambda: [c for c in api.items(CLAIMS) if c["metadata"].get("generateName") in names], 60)
