"""The end of a capacity block in the simulated world: its nodes are drained, and what is left of them is terminated."""

from __future__ import annotations

from typing import Any

import msgspec
from disruption_stage import ASKED, MARKET, NOON_NS, Stage, pool
from sim_builders import POOL, bind, launch, workload

from tonnage.decisions import Applied
from tonnage.facts import prices
from tonnage.facts.price_book import Reservation
from tonnage.machines import nodes, pods
from tonnage.machines.objects import SimulatedNodeClaim
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.labels import RESERVATION_ID
from tonnage.simulation.faults import schedule_ends
from tonnage.units import NS_PER_S

HOUR_S = 3600


def stage(*, protected: bool = False, ends_s: int = HOUR_S) -> Stage:
    """A node in a capacity block that ends after an hour and one beside it, with a pod each."""
    block = Reservation("cr-1", "m5.large", "us-east-1a", 2, NOON_NS + ends_s * NS_PER_S, "test")
    own = msgspec.structs.replace(prices.load(), reservations=(block,))
    made = Stage(pool(consolidateAfter="Never"), market=Catalogue(MARKET.types, own))
    for name, labels in (("in-block", {RESERVATION_ID: "cr-1"}), ("beside", {})):
        asked = msgspec.structs.replace(launch(name, "m5.large", POOL), labels=labels)
        target = nodes.start_node(made.cluster, SimulatedNodeClaim(asked, 0))
        nodes.register_node(made.cluster, target)
        nodes.initialize_node(made.cluster, target)
        one = workload(made.cluster, f"on-{name}", 1, gpus=0, container={"resources": ASKED})
        one.server = None
        if protected:
            kept = msgspec.structs.replace(one.template.metadata, annotations={"karpenter.sh/do-not-disrupt": "true"})
            one.template = msgspec.structs.replace(one.template, metadata=kept)
        pods.reconcile(made.cluster, one)
        assert all(isinstance(bind(made.cluster, pod, target), Applied) for pod in one.active)
    schedule_ends(own.reservations, made.cluster, NOON_NS)
    return made.begin()


def ended(made: Stage, name: str) -> float | None:
    at: Any = made.cluster.nodes[name].ended_ns
    return None if at is None else at / NS_PER_S


def test_nodes_of_a_capacity_block_are_drained_forty_minutes_before_it_ends() -> None:
    made = stage().until(1190)
    assert made.done("Disrupt", "Evict", "Return") == []
    made.until(1500)
    done = made.done("Disrupt", "Evict", "Return")
    assert [what.split()[0] for _, what in done] == ["disrupt", "evict", "terminate"]
    assert 1200 <= done[0][0] <= 1205
    assert ended(made, "in-block") is not None
    assert ended(made, "beside") is None


def test_what_keeps_a_pod_does_not_keep_ec2_from_terminating_the_instance_half_an_hour_before_the_end() -> None:
    made = stage(protected=True).until(1790)
    assert [what.split()[0] for _, what in made.done("Disrupt", "Evict", "Return")] == ["disrupt"]
    assert ended(made, "in-block") is None
    made.until(1900)
    assert ended(made, "in-block") == 1800.0
    assert ended(made, "beside") is None


def test_a_block_that_ends_after_the_run_changes_nothing() -> None:
    made = stage(ends_s=4 * HOUR_S).until(3000)
    assert made.done("Disrupt", "Return") == []
