"""Compute instances: parts of a GPU instance, which mig-parted and the device plugin name like ``4c.7g.80gb``."""

from __future__ import annotations

from collections import Counter

import pytest

from tonnage.errors import InputError
from tonnage.facts import mig
from tonnage.fleet.compute import divided
from tonnage.fleet.devices import Cut, DeviceState, How, instances
from tonnage.fleet.outfit import laid_out
from tonnage.partitioning import notation
from tonnage.partitioning.fit import fits
from tonnage.partitioning.labels import NodeGpu, predict
from tonnage.partitioning.layouts import Placement, card, kind_of, mask_of, place
from tonnage.partitioning.mig_cards import RefusedLayout, try_on
from tonnage.partitioning.mig_parted import Entry, Spec
from tonnage.partitioning.node_cuts import Configurations, cut_node

GOOD = [
    ("h100", {"4c.7g.80gb": 1, "3c.7g.80gb": 1}, {"7g.80gb": 1}),
    ("h100", {"1c.7g.80gb": 7}, {"7g.80gb": 1}),
    ("h100", {"2c.3g.40gb": 1, "1c.3g.40gb": 1}, {"3g.40gb": 1}),
    ("h100", {"2c.7g.80gb": 3, "1c.7g.80gb": 1}, {"7g.80gb": 1}),
    ("a100-40", {"3c.7g.40gb": 1, "2c.7g.40gb": 2}, {"7g.40gb": 1}),
    ("a100-80", {"1c.3g.40gb": 6}, {"3g.40gb": 2}),
    ("h200", {"2c.4g.71gb": 2, "3g.71gb": 1}, {"4g.71gb": 1, "3g.71gb": 1}),
    ("a30", {"1c.2g.12gb": 4}, {"2g.12gb": 2}),
    ("h100", {"1c.2g.20gb": 2, "2g.20gb": 2, "1g.10gb": 1}, {"2g.20gb": 3, "1g.10gb": 1}),
]


@pytest.mark.report(305)
@pytest.mark.parametrize(("gpu", "counts", "needed"), GOOD)
def test_compute_instances_share_the_fewest_gpu_instances_that_hold_them(
    gpu: str, counts: dict[str, int], needed: dict[str, int]
) -> None:
    on, wanted = card(gpu), [name for name, n in counts.items() for _ in range(n)]
    made = try_on(on, 0, wanted)
    assert not isinstance(made, RefusedLayout)
    assert Counter(one.profile for one in made) == counts
    resources = [mig.get(gpu, name).resource for name in wanted]
    whole, shared = divided(on, resources)
    assert Counter(on.named(one).name for one in (*whole, *(one.resource for one in shared))) == needed
    spans = [on.span(mig.get(gpu, one.profile).resource, one.start) for one in made]
    assert sum(spans) == sum(1 << bit for bit in range(8) if any(span >> bit & 1 for span in spans))  # no two overlap
    owners = {on.owner(mig.get(gpu, one.profile).resource, one.start) for one in made}
    assert Counter(on.named(name).name for name, _ in owners) == needed
    assert mask_of(on, made) == sum(on.span(*owner) & 0xFF for owner in owners)


@pytest.mark.report(305)
@pytest.mark.parametrize(
    ("gpu", "counts", "why"),
    [
        ("h100", {"4c.7g.80gb": 2}, "its compute instances need 2 x 7g.80gb; at most 1 x 7g.80gb fit"),
        ("h100", {"1c.7g.80gb": 8}, "need 2 x 7g.80gb"),
        ("h100", {"1c.7g.80gb": 1, "1g.10gb": 1}, "there is no place for 1g.10gb"),
        ("a100-80", {"2c.3g.40gb": 3}, "need 3 x 3g.40gb"),
        ("a30", {"4c.7g.80gb": 1}, "it has no profile 4c.7g.80gb"),
        ("h100", {"5c.7g.80gb": 1}, "it has no profile 5c.7g.80gb"),
        ("h100", {"1c.1g.10gb": 1}, "it has no profile 1c.1g.10gb"),
    ],
)
def test_compute_instances_that_no_card_holds(gpu: str, counts: dict[str, int], why: str) -> None:
    made = try_on(card(gpu), 0, [name for name, n in counts.items() for _ in range(n)])
    assert isinstance(made, RefusedLayout)
    assert why in made.why


def test_the_labels_of_a_compute_instance_tell_its_slices_from_those_of_its_gpu_instance() -> None:
    node = predict([NodeGpu("h100", ("4c.7g.80gb", "3c.7g.80gb")), NodeGpu("h100", ("7g.80gb",))], "mixed")
    assert node.resources == {
        "nvidia.com/mig-3c.7g.80gb": 1,
        "nvidia.com/mig-4c.7g.80gb": 1,
        "nvidia.com/mig-7g.80gb": 1,
    }
    found = {key.removeprefix("nvidia.com/mig-"): value for key, value in node.labels.items()}
    assert (found["4c.7g.80gb.slices.gi"], found["4c.7g.80gb.slices.ci"]) == ("7", "4")
    assert (found["3c.7g.80gb.slices.gi"], found["3c.7g.80gb.slices.ci"]) == ("7", "3")
    assert (found["7g.80gb.slices.gi"], found["7g.80gb.slices.ci"]) == ("7", "7")
    assert found["4c.7g.80gb.memory"] == found["7g.80gb.memory"]
    assert found["4c.7g.80gb.product"] == "NVIDIA-H100-80GB-HBM3-MIG-4c.7g.80gb"


def test_the_instances_of_a_node_are_spread_over_its_cards() -> None:
    counts = {"nvidia.com/mig-4c.7g.80gb": 8, "nvidia.com/mig-3c.7g.80gb": 8}
    found = laid_out("h100", tuple(sorted(counts.items())))
    assert found == ((("nvidia.com/mig-3c.7g.80gb", 4), ("nvidia.com/mig-4c.7g.80gb", 0)),) * 8


@pytest.mark.parametrize(
    ("layout", "profile", "start"),
    [
        ("4c.7g.80gb@0,2c.7g.80gb@4", "1c.7g.80gb", 6),
        ("4c.7g.80gb@0", "3c.7g.80gb", 4),
        ("3g.40gb@4", "2c.3g.40gb", 0),
        ("2c.3g.40gb@4", "1c.3g.40gb", 6),
        ("2c.3g.40gb@4", "4g.40gb", 0),
        ("1c.7g.80gb@0", "1g.10gb", None),
        ("4c.7g.80gb@0,2c.7g.80gb@4", "2c.7g.80gb", None),
        ("2c.3g.40gb@0", "4g.40gb", None),
    ],
)
def test_what_fits_beside_compute_instances(layout: str, profile: str, start: int | None) -> None:
    typed = notation.layout(f"h100:{layout}")
    found = fits(typed.on, typed.layout, profile)
    assert found == (None if start is None else Placement(start, profile))


@pytest.mark.parametrize("layout", ["4c.7g.80gb@0,2c.7g.80gb@2", "4c.7g.80gb@0,1g.10gb@4", "7g.80gb@0,1c.7g.80gb@0"])
def test_instances_that_overlap_compute_instances_are_refused(layout: str) -> None:
    with pytest.raises(InputError, match=r"overlaps another instance|cannot start"):
        notation.layout(f"h100:{layout}")


def test_places_leave_room_around_what_is_there() -> None:
    on = card("h100")
    there = place(on, ["2c.3g.40gb", "1c.3g.40gb"])
    assert there is not None
    whole = place(on, ["4g.40gb"], there)
    assert whole is not None
    assert dict(kind_of(on, (one.profile for one in whole))) == {"4g.40gb": 1, "1c.3g.40gb": 1, "2c.3g.40gb": 1}


def test_a_pod_gets_a_compute_instance_where_one_was_made_and_never_one_on_demand() -> None:
    four, three = "nvidia.com/mig-4c.7g.80gb", "nvidia.com/mig-3c.7g.80gb"
    made, free = Cut(How.MIG, gpu="h100", instances=((three, 4), (four, 0))), DeviceState(1000, 81_920)
    assert made.offers("") == {four: 1, three: 1}
    (piece,) = instances(made, free, 0, four)
    assert (piece.mask, piece.milli) == (0b1111, 571)
    after = free.without(piece)
    assert list(instances(made, after, 0, four)) == []
    (other,) = instances(made, after, 0, three)
    assert after.without(other).mib >= 0
    assert list(instances(Cut(How.MIG, gpu="h100"), free, 0, four)) == []


def test_a_node_whose_label_names_such_a_configuration_offers_its_compute_instances() -> None:
    entry = Entry("all", True, mig_devices={"4c.7g.80gb": 1, "3c.7g.80gb": 1})
    of = Configurations(mig={"parts": Spec({"parts": (entry,)})}, complete=True)
    made = cut_node(of, {"nvidia.com/mig.config": "parts", "nvidia.com/mig.strategy": "mixed"}, "h100", 2)
    assert made.problems == ()
    assert made.offers == {"nvidia.com/mig-4c.7g.80gb": 2, "nvidia.com/mig-3c.7g.80gb": 2}
    assert [len(cut.instances or ()) for cut in made.cuts] == [2, 2]
