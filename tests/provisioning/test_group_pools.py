"""Node groups as NodePools: what may be planned on them, and how much."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.objects.core import Taint
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.group_pools import GroupPool, group_pools, why_unknown
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.units import GIB

CATALOGUE = Catalogue.load()
GPU = "nvidia.com/gpu"


def group(name: str = "gpu", **changes: object) -> NodeGroup:
    given = {"instance_types": ("g5.xlarge",), "zones": ("us-east-1a",), "minimum": 1, "desired": 2, "maximum": 5}
    return msgspec.convert({"name": name, **given, **changes}, NodeGroup)


def pool(**changes: object) -> GroupPool:
    (found,) = group_pools([group(**changes)], CATALOGUE)
    return found


def requirements(one: GroupPool) -> dict[str, list[str]]:
    return {r.key: r.values for r in one.pool.spec.template.spec.requirements}


def test_a_group_is_a_pool_of_its_type_zones_labels_and_taints() -> None:
    taint = Taint(key=GPU, value="true", effect="NoSchedule")
    one = pool(zones=("us-east-1a", "us-east-1b"), labels={"team": "ml"}, taints=(taint,))
    assert one.pool.metadata.name == "gpu"
    assert requirements(one) == {
        "node.kubernetes.io/instance-type": ["g5.xlarge"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "topology.kubernetes.io/zone": ["us-east-1a", "us-east-1b"],
    }
    assert one.pool.spec.template.metadata.labels == {"team": "ml"}
    assert one.pool.spec.template.spec.taints == [taint]
    assert (one.held_back, one.unusable) == ({}, "")


@pytest.mark.parametrize(
    ("changes", "counted", "closed", "limit"),
    [
        ({}, 0, (), 3),
        ({}, 2, (), 5),
        ({"desired": 5}, 5, (), 5),
        ({"desired": 7}, 7, (), 7),  # above its maximum: somebody lowered that
        ({"held": "is being deleted"}, 2, (), 2),
        ({}, 2, ("gpu",), 2),
    ],
)
def test_no_more_is_planned_than_the_group_may_grow(
    changes: dict[str, object], counted: int, closed: tuple[str, ...], limit: int
) -> None:
    (one,) = group_pools([group(**changes)], CATALOGUE, {"gpu": counted}, closed)
    assert one.pool.spec.limits == {"nodes": limit}


def test_nodes_are_returned_down_to_the_minimum_and_a_tenth_at_a_time() -> None:
    assert [budget.nodes for budget in pool(minimum=1, desired=4).pool.spec.disruption.budgets] == ["10%", "3"]
    assert [budget.nodes for budget in pool(minimum=3, desired=2).pool.spec.disruption.budgets] == ["10%", "0"]


def test_cheaper_groups_weigh_more_and_equal_prices_the_same() -> None:
    groups = [
        group("a-dear", instance_types=("g5.12xlarge",)),
        group("b-cheap", instance_types=("m5.xlarge",)),
        group("c-middle", instance_types=("g5.xlarge",)),
        group("d-cheap", instance_types=("m5.xlarge",)),
    ]
    weights = {one.name: one.pool.spec.weight for one in group_pools(groups, CATALOGUE)}
    assert weights == {"b-cheap": 100, "d-cheap": 100, "c-middle": 99, "a-dear": 98}


def test_of_several_types_only_what_all_have_is_offered() -> None:
    one = pool(instance_types=("g5.2xlarge", "g4dn.xlarge"))
    assert one.instance_type == "g4dn.xlarge"  # the cheaper one
    small, large = (CATALOGUE.allocatable[CATALOGUE.index(name)] for name in ("g4dn.xlarge", "g5.2xlarge"))
    offered = CATALOGUE.as_map(small)
    for name, amount in one.held_back.items():
        offered[name] -= amount
    for name, amount in offered.items():
        column = CATALOGUE.column[name]
        assert amount == min(small[column], large[column]), name


def test_what_is_declared_bounds_what_is_offered() -> None:
    one = pool(resources={"cpu": 3000, "ephemeral-storage": 100 * GIB, GPU: 1})
    own = CATALOGUE.as_map(CATALOGUE.allocatable[CATALOGUE.index("g5.xlarge")])
    assert one.held_back == {"cpu": own["cpu"] - 3000}
    instance = CATALOGUE.types[CATALOGUE.index("g5.xlarge")]
    assert 0 <= one.storage.allocatable_bytes(instance) - 100 * GIB <= 2
    assert pool().storage == NodeStorage()


def test_what_is_held_back_is_no_part_of_what_daemon_sets_take() -> None:
    one = pool(resources={"cpu": 3000})
    machine = one.machine(CATALOGUE, ())
    assert machine.daemons == one.held_back
    assert one.without_reserve(machine).daemons == {}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"capacity_type": "mixed"}, "makes spot and on-demand machines, and neither can be asked of it"),
        (
            {"zones": ("mars-north-1a",)},
            "no on-demand price of g5.xlarge is known in mars-north-1a: give it with --prices",
        ),
        ({"labels": {"tonnage.dev/buys": "false"}}, "its label tonnage.dev/buys is false"),
    ],
)
def test_a_group_that_cannot_be_planned_with_says_why(changes: dict[str, object], why: str) -> None:
    assert pool(**changes).unusable == why


def test_a_group_of_types_that_are_not_known_is_no_pool() -> None:
    groups = [group("a", instance_types=()), group("b", instance_types=("g5.xlarge", "p9.xlarge"))]
    assert group_pools(groups, CATALOGUE) == ()
    assert [why_unknown(one, CATALOGUE) for one in groups] == [
        "its instance types are not known: attributes choose them",
        "may make p9.xlarge, whose size is not known",
    ]
