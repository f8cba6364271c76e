"""What every world does with a decision: the table that all of them are held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from live.contract.claims import allocate_elsewhere, check_allocated, claimed
from live.contract.small import DEPLOYMENT, WHY, Small, returns
from tonnage.decisions import (
    Applied,
    Decision,
    Evict,
    Launch,
    Outcome,
    Ref,
    Refused,
    Relayout,
    Return,
    Scale,
    Stale,
    Wait,
)
from tonnage.facts.labels import MIG_CONFIG
from tonnage.kube.resources import NODES, PDBS, PODS
from tonnage.objects.base import ObjectMeta
from tonnage.objects.core import LabelSelector
from tonnage.objects.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from tonnage.partitioning.fleet_layouts import instances_of

Decide = Callable[[Small], Decision]
HALVES = (("3g.40gb", 0), ("3g.40gb", 4))
SEVENTHS = tuple(("1g.10gb", start) for start in range(7))


@dataclass(frozen=True, slots=True)
class Case:
    """A decision that no longer holds. ``before`` happens between the decision and its effect."""

    decide: Decide
    says: str
    outcome: type[Outcome] = Stale  # type: ignore[valid-type]
    before: Callable[[Small], None] | None = None
    needs_api: bool = False  # the simulated world has nothing of the kind


def _land(small: Small) -> None:
    """A pod lands on the spare node, and the world has not heard of it."""
    pod = small.pod(1)
    if small.steps is None:
        assert small.world.apply(small.bind(pod, small.node("spare"), 0)) == Applied()
    else:
        small.client.bind(pod.name, pod.namespace, pod.uid, "spare")


def _land_on_the_gpu(small: Small) -> None:
    """A pod lands on the node whose GPU is to be partitioned, and the world has not heard of it."""
    pod = small.pod(1)
    if small.steps is None:
        assert small.world.apply(small.bind(pod, small.node("base-03"), 1)) == Applied()
    else:
        small.client.bind(pod.name, pod.namespace, pod.uid, "base-03")


def _cut_elsewhere(small: Small) -> None:
    """Somebody labels the node, and the world has not heard of it."""
    if small.steps is None:
        assert small.world.apply(Relayout(small.node("base-03"), 1, None, SEVENTHS, WHY)) == Applied()
    else:
        small.client.patch(NODES, "base-03", {"metadata": {"labels": {MIG_CONFIG: "all-1g.10gb"}}})


def _bind_elsewhere(small: Small) -> None:
    pod = small.pod(1)
    if small.steps is None:
        assert small.world.apply(small.bind(pod, small.node("base-01"), 3)) == Applied()
    else:
        small.client.bind(pod.name, pod.namespace, pod.uid, "base-01")


def _delete_pod(small: Small) -> None:
    pod = small.pod(1)
    if small.steps is None:
        small.made.cluster.pods[pod.namespace, pod.name].terminating = True
    else:
        small.client.delete(PODS, pod.name, pod.namespace, grace_s=0)


def _evict_already(small: Small) -> None:
    """No watch has shown it yet."""
    assert small.world.apply(Evict(small.pod(0), WHY)) == Applied()


def _scale_elsewhere(small: Small) -> None:
    if small.steps is None:
        small.made.cluster.workloads[f"{DEPLOYMENT.namespace}/{DEPLOYMENT.name}"].replicas = 7
    else:
        from tonnage.kube.resources import DEPLOYMENTS

        scale = small.client.get_scale(DEPLOYMENTS, DEPLOYMENT.name, DEPLOYMENT.namespace)
        scale["spec"]["replicas"] = 7
        small.client.replace(DEPLOYMENTS, scale, DEPLOYMENT.namespace, "scale")


def _budget(small: Small) -> None:
    """No pod of the workload may be evicted."""
    if small.steps is None:
        _budget_in_simulation(small)
        return
    for one in small.client.list(PDBS):
        small.client.delete(PDBS, one["metadata"]["name"], one["metadata"]["namespace"])
    labels = {"matchLabels": small.client.get(PODS, small.pod(0).name, "inference")["metadata"]["labels"]}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "none", "namespace": "inference"},
        "spec": {"maxUnavailable": 0, "selector": labels},
    }
    small.client.create(PDBS, body, "inference")
    small.run(400)  # until the pod is Ready: one that is not needs no budget


def _budget_in_simulation(small: Small) -> None:
    labels = small.made.cluster.pods["inference", small.pod(0).name].template.metadata.labels
    spec = PodDisruptionBudgetSpec(max_unavailable=0, selector=LabelSelector(match_labels=dict(labels)))
    metadata = ObjectMeta(name="none", namespace="inference")
    small.made.cluster.declared.disruption_budgets = (
        PodDisruptionBudget(api_version="policy/v1", kind="PodDisruptionBudget", metadata=metadata, spec=spec),
    )
    small.run(400)


def _registered(small: Small) -> Return:
    """The launched node has registered and is not initialised."""
    small.run(50)
    assert "coming" in small.world.snapshot().fleet.node_by_name
    return returns(small, "coming")


STALE: dict[str, Case] = {
    "bind a pod that is gone": Case(lambda s: s.bind(s.pod(1, name="nobody"), s.node("base-02"), 1), "nobody is gone"),
    "bind a namesake of the pod": Case(lambda s: s.bind(s.pod(1, uid="another"), s.node("base-02"), 1), "is gone"),
    "bind to a missing node": Case(lambda s: s.bind(s.pod(1), Ref("Node", "nowhere"), 1), "node nowhere is gone"),
    "bind to a namesake of the node": Case(
        lambda s: s.bind(s.pod(1), s.node("base-02", uid="another"), 1), "node base-02 is gone"
    ),
    "bind a bound pod": Case(lambda s: s.bind(s.pod(0), s.node("base-02"), 1), "is bound already"),
    "bind to a taken device": Case(lambda s: s.bind(s.pod(1), s.node("base-01"), 0), "is not free"),
    "bind without a device": Case(lambda s: s.bind(s.pod(1), s.node("base-02")), "1 devices requested"),
    "bind to a device that is not there": Case(lambda s: s.bind(s.pod(1), s.node("base-02"), 4), "is not free"),
    "bind a pod whose claim has no devices": Case(claimed, "has no devices any more"),
    "bind a pod with a device that is not there": Case(lambda s: claimed(s, "gpu-7"), "is not published"),
    "bind a pod with a device of another node": Case(lambda s: claimed(s, "gpu-0", node="base-01"), "not published"),
    "bind a pod with the devices of a namesake of its claim": Case(
        lambda s: claimed(s, "gpu-0", uid="another"), "ResourceClaim inference/mine is gone"
    ),
    "scale from another number": Case(lambda s: Scale(DEPLOYMENT, 3, 4, WHY), "has 2 replicas, not 3"),
    "scale a missing workload": Case(lambda s: Scale(Ref("Deployment", "other", "inference"), 2, 4, WHY), "is gone"),
    "scale a namesake": Case(
        lambda s: Scale(msgspec.structs.replace(DEPLOYMENT, uid="another"), 2, 4, WHY), "is gone", needs_api=True
    ),
    "launch a claim that exists": Case(lambda s: s.launch("coming"), "NodeClaim coming exists"),
    "launch the claim of a node": Case(lambda s: s.launch("spare"), "NodeClaim spare exists"),
    "launch from a NodePool that is gone": Case(
        lambda s: s.launch("other", node_pool="gone"), "NodePool gone is gone", needs_api=True
    ),
    "return an occupied node": Case(lambda s: returns(s, "base-01"), "is not empty"),
    "return a namesake": Case(lambda s: returns(s, "spare", uid="another"), "is gone"),
    "return a missing node": Case(lambda s: Return(Ref("Node", "nowhere"), WHY), "is gone"),
    "evict a missing pod": Case(lambda s: Evict(Ref("Pod", "nobody", "inference"), WHY), "is gone"),
    "evict a namesake": Case(lambda s: Evict(s.pod(0, uid="another"), WHY), "is gone"),
    "cut a GPU of a missing node": Case(
        lambda s: Relayout(Ref("Node", "nowhere"), 0, None, (), WHY), "node nowhere is gone"
    ),
    "cut a GPU of a namesake": Case(
        lambda s: Relayout(s.node("base-02", uid="another"), 0, None, (), WHY), "node base-02 is gone"
    ),
    "cut a GPU that nobody can cut": Case(lambda s: Relayout(s.node("base-02"), 0, None, (), WHY), "", Refused),
    "cut a GPU that is not there": Case(lambda s: Relayout(s.node("base-03"), 8, None, HALVES, WHY), "is not there"),
    "cut a GPU that is cut as something else": Case(
        lambda s: Relayout(s.node("base-03"), 0, HALVES, None, WHY), "has layout whole, not 2 x 3g.40gb"
    ),
    "cut a GPU into what it cannot be": Case(
        lambda s: Relayout(s.node("base-03"), 0, None, (("3g.40gb", 1),), WHY), "3g.40gb", Refused
    ),
}
"""What does not hold when it is decided. The cluster is afterwards as it was before."""

MOVED_ON: dict[str, Case] = {
    "bind to a node that is lost": Case(
        lambda s: s.bind(s.pod(1), s.node("base-02"), 1), "node base-02 is gone", before=lambda s: s.lose("base-02")
    ),
    "bind to a node that is cordoned": Case(
        lambda s: s.bind(s.pod(1), s.node("base-02"), 1), "is cordoned", before=lambda s: s.cordon("base-02")
    ),
    "bind a pod that was deleted": Case(
        lambda s: s.bind(s.pod(1), s.node("base-02"), 1), "is gone", before=_delete_pod
    ),
    "bind a pod that another has bound": Case(
        lambda s: s.bind(s.pod(1), s.node("base-02"), 1), "", before=_bind_elsewhere
    ),
    "bind a pod whose claim another has allocated": Case(
        lambda s: claimed(s, "gpu-0"),
        "has been allocated otherwise",
        before=lambda s: allocate_elsewhere(s, "mine", "gpu-1"),
    ),
    "bind a pod with a device that another claim has got": Case(
        lambda s: claimed(s, "gpu-0"), "is allocated", before=lambda s: allocate_elsewhere(s, "other", "gpu-0")
    ),
    "scale what another has scaled": Case(
        lambda s: Scale(DEPLOYMENT, 2, 4, WHY), "has 7 replicas, not 2", before=_scale_elsewhere
    ),
    "return a node that a pod has landed on": Case(lambda s: returns(s, "spare"), "is not empty", before=_land),
    "cut a GPU that a pod has landed on": Case(
        lambda s: Relayout(s.node("base-03"), 1, None, HALVES, WHY), "is in use", before=_land_on_the_gpu
    ),
    "cut a GPU that another has had cut": Case(
        lambda s: Relayout(s.node("base-03"), 1, None, HALVES, WHY), "MIG layout", before=_cut_elsewhere
    ),
    "cut a GPU of a node that is lost": Case(
        lambda s: Relayout(s.node("base-03"), 1, None, HALVES, WHY), "is gone", before=lambda s: s.lose("base-03")
    ),
    "return a node that is not initialised": Case(_registered, "is not empty and initialized"),
    "evict a pod that is being evicted": Case(lambda s: Evict(s.pod(0), WHY), "is gone", before=_evict_already),
    "evict a pod that a budget protects": Case(lambda s: Evict(s.pod(0), WHY), "isruption", Refused, before=_budget),
}
"""What held when it was decided, and then did not."""


def _evicted(small: Small) -> None:
    small.run(60)
    assert small.made.cluster.pods[("inference", "model-a-serving-00003")], "another takes its place"


def _moved(small: Small) -> None:
    """Room is kept where it goes until it is gone, and the pod that takes its place is none other but in name."""
    assert small.nominations() == {"inference/model-a-serving-00001": "base-02"}
    small.run(60)
    assert small.nominations() == {}, "it is gone, and no scheduler has given its place to another"
    assert "model-a-serving-00001" not in small.made.cluster.workloads["inference/model-a-serving"].pods


def _nominated(small: Small) -> None:
    """What the world knows, another world that has read the API knows too."""
    assert small.nominations() == {"inference/model-a-serving-00002": "base-02"}
    assert small.status_of(1).get("nominatedNodeName", "base-02") == "base-02"
    assert small.nominations_after_a_restart() == small.nominations()


def _nominate(small: Small) -> Decision:
    assert small.apply(Wait(small.pod(1), WHY, nominated="base-01")) == Applied()
    assert small.nominations() == {"inference/model-a-serving-00002": "base-01"}
    return Wait(small.pod(1), WHY)  # for the same reason as before


def _not_nominated(small: Small) -> None:
    assert small.nominations() == {}
    assert "nominatedNodeName" not in small.status_of(1)
    assert small.nominations_after_a_restart() == {}


def _nominate_and_bind(small: Small) -> Decision:
    assert small.apply(Wait(small.pod(1), WHY, nominated="base-01")) == Applied()
    return small.bind(small.pod(1), small.node("base-02"), 2)


def _bound_elsewhere(small: Small) -> None:
    _bound(small)
    assert small.nominations() == {}


def _bound(small: Small) -> None:
    fleet = small.world.snapshot().fleet
    pod = fleet.pod(fleet.pod_by_key["inference", "model-a-serving-00002"])
    assert (fleet.node(pod.node).spec.name, pod.devices) == ("base-02", (2,))
    assert small.made.cluster.pods["inference", "model-a-serving-00002"].node == "base-02"


def _scaled(small: Small) -> None:
    snapshot = small.world.snapshot()
    assert snapshot.workloads[f"{DEPLOYMENT.namespace}/{DEPLOYMENT.name}"].replicas == 4
    assert len(small.made.cluster.workloads["inference/model-a-serving"].active) == 4


def _scaled_down(small: Small) -> None:
    """The pod named goes first, though the other is pending, which Kubernetes would prefer."""
    assert [pod.name for pod in small.made.cluster.workloads["inference/model-a-serving"].active] == [
        "model-a-serving-00001"
    ]


def _cut(small: Small) -> None:
    """It is cut so in the end, the others are as they were, and a second change is one of what there is then."""
    assert small.world.snapshot().relayouts == {("base-03", 2): HALVES}
    small.run(200)
    assert small.world.snapshot().relayouts == {}
    assert small.layouts() == [None, None, HALVES, None, None, None, None, None]
    back = (("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4))
    for device, before, after in ((2, HALVES, back), (5, None, SEVENTHS)):
        assert small.apply(Relayout(small.node("base-03"), device, before, after, WHY)) == Applied()
    small.run(300)
    assert small.layouts() == [None, None, back, None, None, SEVENTHS, None, None]
    row = small.made.cluster.fleet.node_by_name["base-03"]
    assert [instances_of(small.made.cluster.fleet, (row, device)) for device in range(8)] == small.layouts()


def _launched(small: Small) -> None:
    assert sorted(claim.name for claim in small.world.snapshot().claims) == ["coming", "more"]
    small.run(400)
    fleet = small.world.snapshot().fleet
    assert fleet.node(fleet.node_by_name["more"]).initialized


def _returned(small: Small) -> None:
    small.run(5)
    assert "spare" not in small.world.snapshot().fleet.node_by_name
    assert small.made.cluster.nodes["spare"].ended_ns is not None
    assert "spare" not in small.made.cluster.records.ledger._open


APPLIED: dict[str, tuple[Decide, Callable[[Small], None]]] = {
    "a bind puts the pod on the node, with the devices": (
        lambda s: s.bind(s.pod(1), s.node("base-02"), 2),
        _bound,
    ),
    "a bind allocates the pod's claim and reserves it": (lambda s: claimed(s, "gpu-1"), check_allocated),
    "a scale makes pods": (lambda s: Scale(DEPLOYMENT, 2, 4, WHY), _scaled),
    "a scale removes pods": (lambda s: Scale(DEPLOYMENT, 2, 1, WHY, (s.pod(1),)), _scaled_down),
    "a launch buys a node": (lambda s: s.launch("more"), _launched),
    "a return ends the node": (lambda s: returns(s, "spare"), _returned),
    "a relayout repartitions one GPU": (lambda s: Relayout(s.node("base-03"), 2, None, HALVES, WHY), _cut),
    "an eviction makes room": (lambda s: Evict(s.pod(0), WHY), _evicted),
    "a wait changes nothing": (lambda s: Wait(s.pod(1), WHY), lambda s: None),
    "a pod that is moved keeps room where it goes": (lambda s: Evict(s.pod(0), WHY, to="base-02"), _moved),
    "a wait keeps the room that is being made": (lambda s: Wait(s.pod(1), WHY, nominated="base-02"), _nominated),
    "a wait for the same reason moves the room": (
        lambda s: (_nominate(s), Wait(s.pod(1), WHY, nominated="base-02"))[1],
        _nominated,
    ),
    "a wait gives up the room that was being made": (_nominate, _not_nominated),
    "a bind anywhere gives up the room that was being made": (_nominate_and_bind, _bound_elsewhere),
}


def check_stale(small: Small, case: Case) -> None:
    """The decision is not carried out, says why, and nothing has changed."""
    decision = case.decide(small)
    before = small.state()
    outcome = small.apply(decision)
    assert isinstance(outcome, case.outcome), outcome
    assert case.says in (outcome.why if isinstance(outcome, Refused) else outcome.changed)  # type: ignore[union-attr]
    assert small.state() == before


def check_moved_on(small: Small, case: Case) -> None:
    """The same, when it has come to be so between decision and effect."""
    decision = case.decide(small)
    if case.before is not None:
        case.before(small)
    before = small.api_state()
    outcome = small.world.apply(decision)
    assert isinstance(outcome, case.outcome), outcome
    assert case.says in (outcome.why if isinstance(outcome, Refused) else outcome.changed)  # type: ignore[union-attr]
    assert small.api_state() == before
    small.settle()


def check_applied(small: Small, decide: Decide, check: Callable[[Small], None]) -> None:
    """The decision is carried out."""
    assert small.apply(decide(small)) == Applied()
    check(small)


__all__ = ["APPLIED", "MOVED_ON", "STALE", "Case", "Launch", "check_applied", "check_moved_on", "check_stale"]
