"""One decision, one call that goes wrong: what becomes of the decision, and of what the world believes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from live.contract.cases import HALVES, Decide
from live.contract.faulty import STATUS, Rates
from live.contract.small import DEPLOYMENT, WHY, Small, build, returns
from live.contract.worlds import opened
from tonnage.control.disruption import NodeDisruption
from tonnage.control.nodes import Provisioner
from tonnage.control.partitioner import AGAIN
from tonnage.decisions import Applied, Evict, Refused, Relayout, Scale, Stale
from tonnage.kube.resources import CONFIG_MAPS, NODE_CLAIMS, NODES, PODS
from tonnage.kube.transport import Unreachable
from tonnage.live.annotations import COST_WAS, DISRUPTED_TAINT
from tonnage.objects.base import POD_DELETION_COST
from tonnage.simulation.run import EPOCH_NS
from tonnage.units import NS_PER_S


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Small]:
    with opened("faulty") as transport:
        made = build(tmp_path, transport, faulty=True)
        yield made
        made.close()


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """A cluster that no test changes."""
    with opened("faulty") as transport:
        made = build(tmp_path_factory.mktemp("world"), transport, faulty=True)
        yield made
        made.close()


DECISIONS: dict[str, Decide] = {
    "bind": lambda s: s.bind(s.pod(1), s.node("base-02"), 1),
    "scale": lambda s: Scale(DEPLOYMENT, 2, 1, WHY, (s.pod(1),)),
    "launch": lambda s: s.launch("more"),
    "return": lambda s: returns(s, "spare"),
    "evict": lambda s: Evict(s.pod(0), WHY),
    "relayout": lambda s: Relayout(s.node("base-03"), 2, None, HALVES, WHY),
}
NOT_DONE = (*STATUS, "unreachable", "lost-undone")
WRITES_BEFORE = {"scale": 1}
"""The mark on the pod that goes first."""


@pytest.mark.parametrize("fault", NOT_DONE)
@pytest.mark.parametrize("kind", DECISIONS)
def test_a_call_that_was_not_done_changes_nothing(unchanged: Small, kind: str, fault: str) -> None:
    assert unchanged.faulty is not None
    decision = DECISIONS[kind](unchanged)
    before = unchanged.state()
    unchanged.faulty.next_write(*[""] * WRITES_BEFORE.get(kind, 0), fault)
    outcome = unchanged.apply(decision)
    assert isinstance(outcome, Stale | Refused)
    assert unchanged.state() == before


@pytest.mark.parametrize("kind", [kind for kind in DECISIONS if kind != "return"])
def test_a_call_that_was_done_counts_though_its_answer_was_lost(small: Small, kind: str) -> None:
    assert small.faulty is not None
    small.faulty.next_write(*[""] * WRITES_BEFORE.get(kind, 0), "lost-done")
    assert small.apply(DECISIONS[kind](small)) == Applied()


@pytest.mark.parametrize("fault", NOT_DONE)
def test_a_layout_that_was_written_down_and_not_ordered_is_ordered_by_the_next_decision(
    small: Small, fault: str
) -> None:
    assert small.faulty is not None
    decision, before = DECISIONS["relayout"](small), small.client.get(NODES, "base-03")["metadata"]
    small.faulty.next_write("", fault)
    assert isinstance(small.apply(decision), Stale | Refused)
    assert small.client.get(NODES, "base-03")["metadata"] == before
    (written,) = small.client.list(CONFIG_MAPS, "gpu-operator")
    assert small.world.snapshot().relayouts == {}
    small.world.woken()
    small.run(6)
    assert AGAIN in small.world.woken()
    assert small.apply(decision) == Applied()
    assert small.client.list(CONFIG_MAPS, "gpu-operator") == [written], "equal layouts are one configuration"
    small.run(200)
    assert small.layouts()[2] == HALVES


@pytest.mark.parametrize("fault", ["lost-undone", "lost-done"])
def test_an_order_of_which_nobody_knows_counts_until_somebody_does(small: Small, fault: str) -> None:
    assert small.faulty is not None
    decision = DECISIONS["relayout"](small)
    assert small.apply(Relayout(small.node("base-03"), 3, None, HALVES, WHY)) == Applied()
    small.run(200)
    small.faulty.next_write("", fault)
    mends = _cannot_read_after_writes(small)
    assert isinstance(small.world.apply(decision), Stale)
    assert small.world.snapshot().relayouts == {("base-03", 2): HALVES}, "or a pod might be bound to it"
    assert small.layouts()[2] == (), "nothing of it is given away"
    mends()
    small.settle()
    small.run(5)
    small.world.woken()
    assert (("base-03", 2) in small.world.snapshot().relayouts) is (fault == "lost-done")
    assert small.layouts()[2] == (() if fault == "lost-done" else None)


def _cannot_read_after_writes(small: Small) -> Callable[[], None]:
    """Reads fail once two writes were made; call what is returned to mend them."""
    assert small.faulty is not None
    faulty, inner, writes = small.faulty, small.faulty.request, [0]

    def request(method: str, path: str, **how: Any) -> Any:
        writes[0] += method != "GET"
        if method == "GET" and writes[0] > 1:
            raise Unreachable("the network is gone")
        return inner(method, path, **how)

    faulty.request = request  # type: ignore[method-assign]

    def mend() -> None:
        del faulty.request

    return mend


def _cannot_read(small: Small) -> Callable[[], None]:
    """Reads fail from now on; call what is returned to mend them."""
    assert small.faulty is not None
    small.faulty.rates = Rates(read={"unreachable": 1.0})
    return small.faulty.calm


def test_a_binding_of_which_nobody_knows_keeps_its_devices_until_somebody_does(small: Small) -> None:
    assert small.faulty is not None
    pod = small.pod(1)
    small.faulty.next_write("lost-undone")
    mend = _cannot_read(small)
    assert isinstance(small.apply(small.bind(pod, small.node("base-02"), 1)), Stale)
    fleet = small.world.snapshot().fleet
    row = fleet.pod_by_key[pod.namespace, pod.name]
    assert fleet.pod(row).devices == (1,), "another pod on the same GPU would be turned away"
    small.run(2)
    small.world.woken()
    assert fleet.pod(row).node >= 0, "it still cannot be read"
    mend()
    small.run(30)
    small.world.woken()
    assert fleet.pod(row).node < 0, "it was not done: the pod is pending"
    small.run(2)
    assert "pod" in small.world.woken(), "and tried again"


def test_a_binding_of_which_nobody_knew_is_believed_once_it_is_seen(small: Small) -> None:
    assert small.faulty is not None
    pod = small.pod(1)
    small.faulty.next_write("lost-done")
    mend = _cannot_read(small)
    assert isinstance(small.world.apply(small.bind(pod, small.node("base-02"), 1)), Stale)
    mend()
    small.settle()
    small.run(60)
    small.world.woken()
    fleet = small.world.snapshot().fleet
    assert fleet.node(fleet.pod(fleet.pod_by_key[pod.namespace, pod.name]).node).spec.name == "base-02"


def test_a_pod_that_cannot_be_bound_is_tried_again_later_and_later(small: Small) -> None:
    """A server that always says no must not be asked all the time."""
    assert small.faulty is not None
    decision = small.bind(small.pod(1), small.node("base-02"), 1)
    small.world.woken()
    for seconds in (1, 2, 4, 8, 10, 10):
        small.faulty.next_write("error")
        assert isinstance(small.apply(decision), Refused)
        assert "pod" not in small.world.woken(), "not at once"
        small.made.cluster.now_ns += seconds * NS_PER_S - 1
        assert "pod" not in small.world.woken()
        small.made.cluster.now_ns += 1
        assert "pod" in small.world.woken()


@pytest.mark.parametrize("fault", ["lost-undone", "lost-done"])
def test_a_node_of_whose_purchase_nobody_knows_counts_until_somebody_does(small: Small, fault: str) -> None:
    assert small.faulty is not None
    small.faulty.next_write(fault)
    mend = _cannot_read(small)
    assert isinstance(small.world.apply(small.launch("more")), Stale)
    assert "more" in [claim.name for claim in small.world.snapshot().claims], "or it might be launched twice"
    assert isinstance(small.world.apply(small.launch("more")), Stale)
    mend()
    small.settle()
    small.run(5)
    small.world.woken()
    assert ("more" in [claim.name for claim in small.world.snapshot().claims]) is (fault == "lost-done")


def test_a_node_that_was_just_bought_counts_before_a_watch_shows_it(small: Small) -> None:
    assert small.world.apply(small.launch("more")) == Applied()
    assert [claim.name for claim in small.world.snapshot().claims] == ["coming", "more"]


def test_a_purchase_that_went_before_it_was_seen_is_forgotten(small: Small) -> None:
    """Created, answered, and deleted by the cloud while the watch was broken: the pods must not wait for it for ever."""
    assert small.steps is not None
    assert small.world.apply(small.launch("more")) == Applied()
    small.steps.informers.stop()
    small.client.delete(NODE_CLAIMS, "more")
    small.made.cluster.now_ns += 31 * NS_PER_S
    small.world.woken()
    assert [claim.name for claim in small.world.snapshot().claims] == ["coming"]


# ---- marks ----


def _costs(small: Small) -> dict[str, tuple[str | None, str | None]]:
    pods = [pod["metadata"] for pod in small.client.list(PODS, "inference")]
    annotations = {meta["name"]: meta.get("annotations", {}) for meta in pods if meta["name"].startswith("model-a")}
    return {name: (a.get(POD_DELETION_COST), a.get(COST_WAS)) for name, a in annotations.items()}


def test_marks_are_taken_off_when_the_scale_fails_and_costs_are_as_they_were(small: Small) -> None:
    assert small.faulty is not None
    name = small.pod(1).name
    small.client.patch(PODS, name, {"metadata": {"annotations": {POD_DELETION_COST: "7"}}}, "inference")
    small.settle()
    small.faulty.next_write("", "conflict")
    assert isinstance(small.apply(Scale(DEPLOYMENT, 2, 1, WHY, (small.pod(1),))), Stale)
    assert _costs(small) == {"model-a-serving-00001": (None, None), "model-a-serving-00002": ("7", None)}


def test_marks_that_a_dead_process_has_left_are_taken_off_by_the_next_decision(small: Small) -> None:
    left = {POD_DELETION_COST: "-100", COST_WAS: ""}
    small.client.patch(PODS, small.pod(0).name, {"metadata": {"annotations": left}}, "inference")
    small.settle()
    assert small.apply(Scale(DEPLOYMENT, 2, 1, WHY, (small.pod(1),))) == Applied()
    assert _costs(small) == {"model-a-serving-00001": (None, None)}


def test_marks_on_pods_that_live_on_are_taken_off_later(small: Small) -> None:
    """The pending pod goes before the marked one that runs, as a ReplicaSet has it."""
    small.run(400)
    assert small.apply(Scale(DEPLOYMENT, 2, 1, WHY, (small.pod(0),))) == Applied()
    assert _costs(small) == {"model-a-serving-00001": ("-100", "")}
    small.run(31)
    small.world.woken()
    assert _costs(small) == {"model-a-serving-00001": (None, None)}


# ---- returns that were begun ----


def _tainted(small: Small, name: str) -> bool:
    return any(t["key"] == DISRUPTED_TAINT for t in small.client.get(NODES, name)["spec"].get("taints", []))


@pytest.mark.parametrize("faults", [("lost-done",), ("", "error"), ("", "lost-undone"), ("", "unreachable")])
def test_a_return_that_was_begun_is_finished(small: Small, faults: tuple[str, ...]) -> None:
    assert small.faulty is not None
    assert small.steps is not None
    small.faulty.next_write(*faults)
    assert not isinstance(small.apply(returns(small, "spare")), Applied)
    assert _tainted(small, "spare")
    _disrupt(small)
    small.run(2)
    assert "spare" not in small.world.snapshot().fleet.node_by_name


def test_a_return_that_was_begun_is_taken_back_when_a_pod_has_come(small: Small) -> None:
    assert small.faulty is not None
    small.faulty.next_write("lost-done")
    assert isinstance(small.apply(returns(small, "spare")), Stale)
    pod = small.pod(1)
    small.client.bind(pod.name, pod.namespace, pod.uid, "spare")
    small.settle()
    _disrupt(small)
    assert not _tainted(small, "spare")
    fleet = small.world.snapshot().fleet
    assert not fleet.node(fleet.node_by_name["spare"]).leaving
    assert small.made.cluster.nodes["spare"].ended_ns is None


def test_a_return_that_a_dead_process_has_begun_is_finished_by_the_next(small: Small) -> None:
    assert small.faulty is not None
    assert small.steps is not None
    small.faulty.next_write("lost-done")
    small.apply(returns(small, "spare"))
    small.world = small.steps.restart()
    _disrupt(small)
    small.run(2)
    assert "spare" not in small.world.snapshot().fleet.node_by_name


def test_a_return_under_way_is_left_alone(small: Small) -> None:
    """The NodeClaim is being deleted, Karpenter drains and ends the instance: there is nothing more to do."""
    assert small.steps is not None
    client = small.client
    client.create(
        NODE_CLAIMS,
        {
            "apiVersion": "karpenter.sh/v1",
            "kind": "NodeClaim",
            "metadata": {"name": "of-spare", "finalizers": ["somebody.else/finalizer"]},
            "spec": {"nodeClassRef": {"group": "a", "kind": "b", "name": "c"}, "requirements": []},
        },
    )
    client.patch(NODE_CLAIMS, "of-spare", {"status": {"nodeName": "spare"}}, subresource="status")
    assert small.apply(returns(small, "spare")) == Applied()
    assert _decided(small) == []
    assert isinstance(small.apply(returns(small, "spare")), Stale)


def _decided(small: Small) -> list[object]:
    assert small.steps is not None
    world = small.steps.world
    provisioner = Provisioner(small.made.configuration.catalogue, world.pools)
    return [d for d in NodeDisruption(world.pools, provisioner, EPOCH_NS).decide(small.world) if d.node.name == "spare"]  # type: ignore[union-attr]


def _disrupt(small: Small) -> None:
    """One tick of the nodes controller, long before the node has been empty for long enough."""
    (decision,) = _decided(small)
    small.apply(decision)  # type: ignore[arg-type]
