"""Nodes with a GPU that stays unhealthy, in the simulated world."""

from __future__ import annotations

import msgspec
from disruption_stage import ASKED, Stage, pool
from sim_builders import POOL, SOLD, bind, workload
from sim_builders import node as ready_node

from tonnage.control.policy import Policy
from tonnage.decisions import Applied
from tonnage.machines import pods
from tonnage.provisioning.consolidation import Gates
from tonnage.simulation.faults import schedule_faults
from tonnage.simulation.scenario import FaultSpec

TYPE = "g6e.12xlarge"


def stage(*, repair: bool = True, lasts: str = "60m", nodes: int = 2) -> Stage:
    """Two nodes with a pod each that nothing may disrupt, of which the first gets a fault at 100 s."""
    made = Stage(pool(consolidateAfter="Never"), gates=Gates(node_repair=repair))
    for number in range(nodes):
        name = f"n{number + 1}"
        own = workload(made.cluster, f"a{number}", 1, gpus=0, container={"resources": ASKED})
        kept = msgspec.structs.replace(own.template.metadata, annotations={"karpenter.sh/do-not-disrupt": "true"})
        own.template = msgspec.structs.replace(own.template, metadata=kept)
        own.server = None
        target = ready_node(made.cluster, name, TYPE, node_pool=POOL)
        pods.reconcile(made.cluster, own)
        assert all(isinstance(bind(made.cluster, one, target), Applied) for one in own.active)
    schedule_faults([FaultSpec(kind="gpu-failure", at="100s", count=1, duration=lasts)], made.cluster, SOLD)
    return made.begin()


def test_a_node_whose_gpu_stays_unhealthy_goes_after_ten_minutes_with_all_on_it() -> None:
    made = stage().until(690)
    assert made.done("Disrupt", "Evict", "Return") == []
    made.until(800)
    done = made.done("Disrupt", "Evict", "Return")
    assert [what.split()[0] for _, what in done] == ["disrupt", "evict", "terminate"]
    assert all("n1" in what for _, what in done)
    assert 700 <= done[0][0] <= 710
    assert made.cluster.nodes["n1"].ended_ns is not None
    assert made.cluster.nodes["n2"].ended_ns is None


def test_a_gpu_that_is_reset_in_time_keeps_its_node() -> None:
    assert stage(lasts="9m").until(1500).done("Disrupt", "Return") == []


def test_without_the_gate_it_stays() -> None:
    assert stage(repair=False).until(1500).done("Disrupt", "Return") == []


def test_the_gate_comes_from_the_policy() -> None:
    from disruption_stage import MARKET

    from tonnage.control.nodes import Pools

    for chosen in (False, True):
        loop = next(one for one in Policy(node_repair=chosen).node_loops(MARKET, Pools) if one.name == "disruption")
        assert loop.decide.__self__.gates.node_repair is chosen  # type: ignore[attr-defined]
