"""The layouts of a node as a configuration of mig-parted, and how far an order for them has come."""

from __future__ import annotations

import msgspec
import pytest

from tonnage.facts.labels import MIG_CONFIG
from tonnage.fleet.devices import OPEN
from tonnage.fleet.geometry import geometry
from tonnage.partitioning.documents import read
from tonnage.partitioning.mig_parted import Entry, Spec, parse, render
from tonnage.partitioning.node_cuts import MIG_STATE
from tonnage.partitioning.node_layouts import (
    Order,
    Phase,
    as_mig_parted_makes,
    cuts,
    entries,
    name_of,
    of_cut,
    phase,
    under_way,
)

HALVES = (("3g.40gb", 0), ("3g.40gb", 4))
MIXED = (("1g.10gb", 0), ("1g.10gb", 1), ("3g.40gb", 4))
GPUS = (HALVES, None, MIXED, HALVES, ())
ORDER = Order("new", GPUS, was="old", before={1: HALVES, 2: (("1g.10gb", 0),), 9: None})


def test_gpus_that_are_alike_are_one_entry() -> None:
    assert entries(GPUS) == (
        Entry([0, 3], True, mig_devices={"3g.40gb": 2}),
        Entry([1], False),
        Entry([2], True, mig_devices={"1g.10gb": 2, "3g.40gb": 1}),
        Entry([4], True, mig_devices={}),
    )


def test_what_is_written_is_what_mig_parted_reads() -> None:
    made = entries(GPUS)
    (document,) = read(render(Spec({name_of(made): made})), "file")
    assert parse(document).configs == {name_of(made): made}


def test_equal_layouts_have_one_name_wherever_the_instances_stand() -> None:
    moved = (HALVES, None, (("1g.10gb", 2), ("3g.40gb", 4), ("1g.10gb", 3)), HALVES, ())
    assert name_of(entries(moved)) == name_of(entries(GPUS))
    assert name_of(entries((*GPUS[:4], None))) != name_of(entries(GPUS))
    assert len(name_of(entries(GPUS))) <= 63


def test_mig_parted_places_instances_its_own_way() -> None:
    made = as_mig_parted_makes(entries(GPUS), "h100", 5)
    assert made[:2] == (HALVES, None)
    assert sorted(name for name, _ in made[2] or ()) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    assert made[4] == ()


@pytest.mark.parametrize(
    ("order", "labels", "expected"),
    [
        (None, {MIG_CONFIG: "new", MIG_STATE: "success"}, Phase.VOID),
        (ORDER, {MIG_CONFIG: "new", MIG_STATE: "pending"}, Phase.CUTTING),
        (ORDER, {MIG_CONFIG: "new", MIG_STATE: "rebooting"}, Phase.CUTTING),
        (ORDER, {MIG_CONFIG: "new"}, Phase.CUTTING),
        (ORDER, {MIG_CONFIG: "new", MIG_STATE: "success"}, Phase.DONE),
        (ORDER, {MIG_CONFIG: "new", MIG_STATE: "failed"}, Phase.FAILED),
        (ORDER, {MIG_CONFIG: "old", MIG_STATE: "success"}, Phase.VOID),
        (ORDER, {MIG_CONFIG: "another", MIG_STATE: "success"}, Phase.VOID),
        (msgspec.structs.replace(ORDER, due_ns=1), {MIG_CONFIG: "old", MIG_STATE: "success"}, Phase.WAITING),
        (msgspec.structs.replace(ORDER, due_ns=1), {MIG_CONFIG: "another"}, Phase.VOID),
    ],
)
def test_label_and_state_say_how_far_an_order_has_come(
    order: Order | None, labels: dict[str, str], expected: Phase
) -> None:
    assert phase(order, labels) is expected


def test_of_a_gpu_that_is_being_cut_there_is_what_stays() -> None:
    on = geometry("h100")
    assert on is not None
    changing = under_way(ORDER, Phase.CUTTING)
    assert changing == {1: None, 2: MIXED}
    assert [of_cut(one) for one in cuts(ORDER, changing, on)] == [HALVES, (), (("1g.10gb", 0),), HALVES, ()]
    assert cuts(ORDER, (), on)[1] == OPEN
    assert under_way(ORDER, Phase.CUTTING, {2}) == {2: MIXED}
    assert under_way(ORDER, Phase.DONE) == under_way(ORDER, Phase.FAILED) == under_way(None, Phase.VOID) == {}


def test_an_order_survives_its_annotation() -> None:
    assert msgspec.json.decode(msgspec.json.encode(ORDER), type=Order) == ORDER
