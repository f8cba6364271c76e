"""Node groups that are only read: nothing is written, and what would have been asked is kept."""

from __future__ import annotations

import pytest

from tonnage.decisions import OBSERVING, Outcome, Refused, Stale
from tonnage.live.clouds.port import NodeGroups
from tonnage.live.clouds.report import KEPT, DryRunGroups, Wish
from tonnage.provisioning.node_groups import NodeGroup

NODE = "aws:///us-east-1a/i-01"


class ReadOnly:
    """Groups that fail the test when something is written."""

    def __init__(self, *groups: NodeGroup) -> None:
        self.groups = groups

    def list(self) -> tuple[NodeGroup, ...]:
        return self.groups

    def set_size(self, name: str, desired: int, expect: int) -> Outcome:
        raise AssertionError("written")

    def remove(self, provider_id: str, group: str, expect: int) -> Outcome:
        raise AssertionError("written")


def report(**changes: object) -> DryRunGroups:
    given = {"name": "gpu", "instance_types": (), "zones": (), "minimum": 1, "desired": 2, "maximum": 4}
    return DryRunGroups(ReadOnly(NodeGroup(**{**given, "nodes": (NODE, NODE + "2"), **changes})))  # type: ignore[arg-type]


def test_a_size_is_recorded_once_and_refused() -> None:
    groups: NodeGroups = report()
    assert isinstance(groups, DryRunGroups)
    for _ in range(2):
        outcome = groups.set_size("gpu", 3, expect=2)
        assert outcome == Refused("only reported: would set the size of gpu from 2 to 3", OBSERVING)
    assert groups.wishes == (Wish("set_size", "gpu", 2, 3),)
    assert groups.list()[0].desired == 2


def test_a_removal_is_recorded_with_its_machine() -> None:
    groups = report()
    outcome = groups.remove(NODE, "gpu", expect=2)
    assert outcome == Refused(f"only reported: would remove {NODE} from gpu and lower its size from 2 to 1", OBSERVING)
    assert groups.wishes == (Wish("remove", "gpu", 2, 1, NODE),)


@pytest.mark.parametrize(
    ("action", "outcome"),
    [
        (lambda groups: groups.set_size("gone", 3, 2), Stale("node group gone is gone")),
        (lambda groups: groups.set_size("gpu", 3, 1), Stale("gpu has size 2, expected 1")),
        (lambda groups: groups.set_size("gpu", 5, 2), Refused("gpu keeps between 1 and 4 nodes, not 5")),
        (lambda groups: groups.remove(NODE, "gone", 2), Stale("node group gone is gone")),
        (lambda groups: groups.remove(NODE, "gpu", 3), Stale("gpu has size 2, expected 3")),
        (lambda groups: groups.remove("aws:///a/i-9", "gpu", 2), Stale("aws:///a/i-9 is not in gpu")),
    ],
)
def test_what_would_fail_anyway_is_not_a_wish(action, outcome: Outcome) -> None:  # type: ignore[no-untyped-def]
    groups = report()
    assert action(groups) == outcome
    assert groups.wishes == ()


def test_a_group_at_its_minimum_keeps_its_machines() -> None:
    groups = report(minimum=2)
    assert groups.remove(NODE, "gpu", 2) == Refused("gpu is at its minimum of 2")


def test_a_held_group_may_still_be_lowered_to_the_machines_it_has() -> None:
    groups = report(desired=4, held="is being deleted")
    assert groups.set_size("gpu", 3, 4) == Refused("only reported: would set the size of gpu from 4 to 3", OBSERVING)
    assert report(held="is being deleted").set_size("gpu", 3, 2) == Refused("gpu is being deleted")


def test_only_the_newest_wishes_are_kept() -> None:
    groups = report(desired=0, minimum=0, maximum=2 * KEPT, nodes=())
    for size in range(1, KEPT + 2):
        groups.set_size("gpu", size, 0)
    assert len(groups.wishes) == KEPT
    assert groups.wishes[0].desired == 2
