"""Gangs whose pods each carry a number of their own, as Jobs, JobSets and their kin label them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import fleet, node
from gang_builders import gang, members, placed
from tonnage.fleet.snapshot import Snapshot
from tonnage.scheduling import place
from tonnage.scheduling.gangs.plan import GangPlan, plan
from tonnage.scheduling.gangs.room import Sheet


def test_pods_that_differ_in_a_number_of_their_own_are_planned_as_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    numbered = [replace(one, labels={"index": str(i)}) for i, one in enumerate(members(12))]
    made = fleet(node("a", gpus=8), node("b", gpus=8), pods=numbered)
    counted = []
    whole = Sheet._of
    monkeypatch.setattr(
        Sheet, "_of", lambda self, class_id, free: (counted.append(class_id), whole(self, class_id, free))[1]
    )
    found = plan(Snapshot(0, made, gangs={"default/g": gang(12)}), "default/g", list(made.pending), place.Cache(made))
    assert isinstance(found, GangPlan)
    assert len(found.minimum) == 12
    assert len(set(counted)) == 1
    assert len(placed(made, gang(12))) == 12
