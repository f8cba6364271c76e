"""Node repair: which unhealthy nodes go, and when."""

from __future__ import annotations

import pytest

from tonnage.decisions import Ref
from tonnage.facts.repair_policies import repair_policies
from tonnage.provisioning.repair import NodeHealth, StandingCondition, repairs, unhealthy
from tonnage.units import NS_PER_S

MINUTE = 60 * NS_PER_S
GPUS = "AcceleratedHardwareReady"


def node(name: str, *conditions: tuple[str, str, int], pool: str = "gpu", deleted: bool = False) -> NodeHealth:
    said = tuple(StandingCondition(kind, status, since * MINUTE) for kind, status, since in conditions)
    return NodeHealth(Ref("Node", name), pool, said, deleted)


def gone(nodes: list[NodeHealth], minute: float) -> list[str]:
    return [ref.name for ref, _ in repairs(nodes, round(minute * MINUTE))]


@pytest.mark.parametrize(
    ("kind", "status", "minutes"),
    [
        (GPUS, "False", 10),
        ("Ready", "False", 30),
        ("Ready", "Unknown", 30),
        ("StorageReady", "False", 30),
        ("NetworkingReady", "False", 30),
        ("KernelReady", "False", 30),
        ("ContainerRuntimeReady", "False", 30),
    ],
)
def test_a_node_goes_once_its_condition_has_said_so_for_long_enough(kind: str, status: str, minutes: int) -> None:
    nodes = [node("sick", (kind, status, 5)), node("well", (kind, "True", 0))]
    assert gone(nodes, 5 + minutes - 0.01) == []
    assert gone(nodes, 5 + minutes) == ["sick"]


def test_conditions_that_no_policy_names_keep_a_node_healthy() -> None:
    assert unhealthy(node("a", ("Ready", "True", 0), (GPUS, "Unknown", 0), ("MemoryPressure", "True", 0))) is None
    assert len(repair_policies()) == 7


def test_of_several_conditions_that_counts_which_is_due_first() -> None:
    found = unhealthy(node("a", ("Ready", "False", 0), (GPUS, "False", 15)))
    assert found is not None
    assert found[1].condition == GPUS
    assert gone([node("a", ("Ready", "False", 0), (GPUS, "False", 15))], 25) == ["a"]
    assert gone([node("a", ("Ready", "False", 0), (GPUS, "False", 25))], 30) == ["a"]


@pytest.mark.parametrize(
    ("nodes", "sick", "go"), [(1, 1, True), (3, 1, True), (5, 1, True), (5, 2, False), (6, 2, True), (10, 3, False)]
)
def test_none_goes_where_more_than_a_fifth_of_the_nodepool_rounded_up_is_unhealthy(
    nodes: int, sick: int, go: bool
) -> None:
    made = [node(f"n{n}", *([(GPUS, "False", 0)] if n < sick else [])) for n in range(nodes)]
    others = [node(f"other{n}", pool="other") for n in range(20)]
    assert gone(made + others, 60) == ([f"n{n}" for n in range(sick)] if go else [])


def test_what_has_only_begun_to_be_unhealthy_counts_against_the_fifth_and_what_goes_already_is_not_named_again() -> (
    None
):
    made = [node("a", (GPUS, "False", 0)), node("b", (GPUS, "False", 59)), node("c"), node("d")]
    assert gone(made, 60) == []
    assert gone([node("a", (GPUS, "False", 0), deleted=True), node("c")], 60) == []


def test_the_reason_says_what_was_weighed() -> None:
    ((_, reason),) = repairs([node("a", (GPUS, "False", 0))], 11 * MINUTE)
    said = dict(reason.evidence)
    assert (said["condition"], said["unhealthy_s"], said["toleration_s"]) == (f"{GPUS}=False", 660.0, 600.0)
