"""What must hold once all is at rest, whatever went wrong on the way."""

from __future__ import annotations

from live.contract.processes import PLAN, Run
from tonnage.fleet.invariants import violations
from tonnage.kube.resources import DEPLOYMENTS, NODE_CLAIMS, NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.live.annotations import DISRUPTED_TAINT


def check(run: Run) -> None:
    """Nothing doubled, nothing lost, nothing left over."""
    run.history.check()
    cluster = run.made.cluster
    assert [*violations(cluster.fleet), *cluster.records.ledger.check(cluster.now_ns)] == []
    client = Client(run.steps.tracked)
    _pods(client)
    _nodes(run, client)
    _beliefs(run, client)


def _pods(client: Client) -> None:
    pods = client.list(PODS)
    for key, wanted in PLAN[-1][1].items():
        namespace, _, name = key.partition("/")
        assert client.get(DEPLOYMENTS, name, namespace)["spec"]["replicas"] == wanted
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        assert [pod["status"]["phase"] for pod in mine] == ["Running"] * wanted
        assert all("deletionTimestamp" not in pod["metadata"] for pod in mine)


def _nodes(run: Run, client: Client) -> None:
    """Each NodeClaim of a decision has paid for one machine, and machines, Nodes and NodeClaims are the same."""
    cluster = run.made.cluster
    alive = {name for name, node in cluster.nodes.items() if node.ended_ns is None}
    assert alive == set(cluster.records.ledger._open) == {node["metadata"]["name"] for node in client.list(NODES)}
    bought = {name for name, node in cluster.nodes.items() if node.node_pool}
    assert len(bought) <= len(run.history.claims)
    claims = client.list(NODE_CLAIMS)
    assert {claim["status"]["nodeName"] for claim in claims} == alive & bought
    assert not cluster.cloud.claims
    for node in client.list(NODES):
        assert not [t for t in node["spec"].get("taints", []) if t["key"] == DISRUPTED_TAINT], (
            "a return was not finished"
        )
    for name in alive & bought:
        row = cluster.fleet.node_by_name[name]
        assert cluster.fleet.workload_pods(row), f"{name} is empty, and still paid for"


def _beliefs(run: Run, client: Client) -> None:
    """The controllers' world knows what the API says, and remembers nothing else."""
    world = run.steps.world
    assert violations(world.fleet) == []
    stands = {}
    for pod in client.list(PODS):
        stands[pod["metadata"]["namespace"], pod["metadata"]["name"]] = pod["spec"].get("nodeName", "")
    believed = {
        key: world.fleet.node(world.fleet.pod(row).node).spec.name for key, row in world.fleet.pod_by_key.items()
    }
    assert believed == stands
    assert not world.feed.assumed
    assert not world.feed._homeless
    assert len(world.waits) == 0 and not world.binder.tries and len(world._doubts) == 0
    assert world.snapshot().claims == ()
