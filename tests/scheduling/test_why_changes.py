"""The smallest change that makes a waiting pod fit: that it does, and that none is smaller."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from builders import GPU, HOSTNAME, ZONE, affinity_term, away, expression, fleet, node, on_nodes, pod, spread
from deep_seeds import deep
from tonnage.fleet.devices import Cut, How
from tonnage.fleet.outfit import offered
from tonnage.fleet.state import Fleet, FleetPod
from tonnage.objects import core
from tonnage.scheduling import place
from tonnage.scheduling.why.changes import PodChange, apply
from tonnage.scheduling.why.gang import LowerMinimum, MorePlaces, RelaxLevel
from tonnage.scheduling.why.search import EVERY, smallest
from why_checks import check_change, check_gang, check_none_smaller, waiting
from why_oracle import fits


def change(made: Fleet, one: FleetPod, may: frozenset[str] = EVERY) -> PodChange:
    """The smallest change for the pod, which makes it fit."""
    row = made.pod_by_key[one.namespace, one.name]
    found = smallest(made, row, place.Cache(made), may)
    assert found.proved
    assert found.change is not None
    assert fits(made, row, found.change)
    return found.change


def texts(made: Fleet, one: FleetPod, may: frozenset[str] = EVERY) -> list[str]:
    return [edit.text() for edit in change(made, one, may).edits]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "tolerate taint dedicated=ml:NoSchedule"),
        ({"nodeName": "elsewhere", "tolerations": [{"operator": "Exists"}]}, "drop nodeName elsewhere"),
        (
            {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
            "drop node selector disk=ssd",
        ),
        (
            {
                "affinity": on_nodes({"matchExpressions": [expression("disk", "In", "ssd", "nvme")]}),
                "tolerations": [{"operator": "Exists"}],
            },
            "drop node affinity disk in (ssd, nvme)",
        ),
    ],
)
def test_one_obstacle_is_one_edit(fields: dict[str, object], text: str) -> None:
    one = pod("waiting", **fields)
    made = fleet(node("n", taints=["dedicated=ml:NoSchedule"], labels={"disk": "hdd"}), pods=[one])
    assert texts(made, one) == [text]


def test_a_cordoned_node_is_made_schedulable_rather_than_a_request_lowered() -> None:
    one = pod("waiting", gpus=4)
    made = fleet(node("small", gpus=3), pods=[one])
    made.add_node(node("large", gpus=8), schedulable=False)
    assert texts(made, one) == ["make node large schedulable: it is cordoned or not ready"]


def test_requests_are_lowered_to_what_is_free_on_the_node_where_that_is_least() -> None:
    one = pod("waiting", cpu=8, gpus=8)
    made = fleet(node("a", gpus=4, cpu=16), node("b", gpus=6, cpu=16), pods=[one])
    assert texts(made, one) == [f"request 6 {GPU} instead of 8, 2 less"]


def test_the_fewest_pods_that_hold_least_go_where_the_pod_stays_as_it_is() -> None:
    one = pod("waiting", gpus=4)
    held = {"a": [pod("a1", gpus=2), pod("a2", gpus=2)], "b": [pod("b1", gpus=4)], "c": [pod("c1", gpus=8)]}
    made = fleet(node("a", gpus=4), node("b", gpus=4), node("c", gpus=8), pods=[one], bound=held)
    assert texts(made, one, frozenset({"leave"})) == ["evict default/b1 from node b"]


def test_a_node_comes_where_nothing_less_helps() -> None:
    one = pod("waiting", gpus=4)
    held = {"a": [pod("a1", gpus=2), pod("a2", gpus=2)]}
    made = fleet(node("a", gpus=4), pods=[one], bound=held)
    assert texts(made, one) == ["add one node like a"]


def test_nothing_is_offered_where_no_node_has_the_device() -> None:
    one = pod("waiting", gpus=1)
    made = fleet(node("a"), pods=[one])
    assert smallest(made, made.pod_by_key["default", "waiting"], place.Cache(made)).change is None


def test_a_rule_about_other_pods_is_given_up_or_the_pod_in_the_way_goes() -> None:
    one = pod("waiting", labels={"app": "web"}, affinity=away(affinity_term(HOSTNAME, app="web")))
    made = fleet(node("a"), pods=[one], bound={"a": [pod("there", labels={"app": "web"})]})
    assert texts(made, one) == [f"drop pod anti-affinity over {HOSTNAME}"]
    assert texts(made, one, frozenset({"leave"})) == ["evict default/there from node a"]


def test_a_spread_is_given_up_where_only_it_refuses() -> None:
    one = pod("waiting", labels={"app": "web"}, topologySpreadConstraints=[spread(ZONE)])
    there = {"a": [pod("there", labels={"app": "web"})], "b": [pod("full", cpu=8)]}
    made = fleet(node("a", zone="x"), node("b", zone="y", cpu=8), pods=[one], bound=there)
    assert texts(made, one) == [f"drop topology spread over {ZONE}"]


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"gpu-fraction": "0.9"}, "request 0.5 gpu-fraction instead of 0.9, 0.4 less"),
        ({"gpu-memory": "70000"}, "request 40000 gpu-memory instead of 70000, 30000 less"),
    ],
)
def test_shares_of_devices_are_lowered_to_what_a_device_has_left(annotations: dict[str, str], text: str) -> None:
    one = pod("waiting", annotations=annotations)
    made = fleet(
        node("a", gpus=1, labels={"nvidia.com/gpu.memory": "80000"}),
        pods=[one],
        bound={"a": [pod("there", annotations={"gpu-fraction": "0.5"})]},
    )
    assert texts(made, one) == [text]


@pytest.mark.parametrize("block", [0, *deep(range(1, 4))])
@pytest.mark.parametrize("shared", [False, True])
def test_the_change_found_makes_the_pod_fit(block: int, shared: bool) -> None:
    each = 100 if shared else 250
    seeds = range(each * block, each * block + each)
    found = [check_change(*waiting(Random(seed), shared=shared)) for seed in seeds]
    assert sum(one is not None and one.change is not None for one in found) >= each // 10


@pytest.mark.slow
def test_no_smaller_change_makes_the_pod_fit() -> None:
    for seed in range(8):
        made, row = waiting(Random(f"brute-{seed}"), nodes=4, pods=6)
        found = check_change(made, row)
        if found is not None:
            check_none_smaller(made, row, found)


def test_no_smaller_change_makes_a_pod_that_shares_devices_fit() -> None:
    for seed in range(20):
        made, row = waiting(Random(f"shared-{seed}"), nodes=2, pods=4, shared=True)
        found = check_change(made, row)
        if found is not None:
            check_none_smaller(made, row, found, most=1)


def test_less_of_two_mig_profiles_is_asked_for_where_both_are_short() -> None:
    small, large = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
    one = pod("waiting", resources={small: "4", large: "2"})
    cuts = (Cut(How.MIG, isolated=True, gpu="h100"),)
    made = fleet(node("a", resources=offered(cuts, GPU), device_resource=GPU, cuts=cuts), pods=[one])
    assert texts(made, one) == [f"request 1 {large} instead of 2, 1 less"]


def test_the_smallest_change_for_a_gang_is_of_each_kind_and_makes_it_fit() -> None:
    found = [check_gang(Random(seed), nodes=4, pods=4) for seed in range(80)]
    edits = [one.change.edits for one in found if one is not None and one.change is not None]
    singles = {type(only) for only, *more in edits if not more}
    assert singles == {LowerMinimum, RelaxLevel, MorePlaces}
    assert sum(len(pair) == 2 for pair in edits) > 2


# ---- node affinity of several terms ----

V100, A100, ZONE_B = expression("gpu", "In", "V100"), expression("gpu", "In", "A100"), expression("zone", "In", "b")


def with_terms(*terms: dict[str, object]) -> FleetPod:
    return pod("waiting", affinity=on_nodes(*terms))


@pytest.mark.report(205)
@pytest.mark.parametrize(
    ("terms", "text"),
    [
        pytest.param(
            [{"matchExpressions": [V100]}, {"matchExpressions": [A100, ZONE_B]}],
            "drop all 2 terms of node affinity: gpu in (V100), or gpu in (A100) and zone in (b)",
            id="an empty term would match no node, and the other term asks for more",
        ),
        pytest.param(
            [{"matchExpressions": [V100]}, {"matchExpressions": [expression("gpu", "In", "A10"), ZONE_B]}],
            "drop node affinity zone in (b) from term 2 of 2",
            id="a term of which something matches is left",
        ),
        pytest.param(
            [{"matchFields": [expression("metadata.name", "In", "other")]}, {"matchExpressions": [V100]}],
            "drop all 2 terms of node affinity: metadata.name in (other), or gpu in (V100)",
            id="names of nodes are requirements too",
        ),
        pytest.param(
            [
                {"matchFields": [expression("metadata.name", "In", "other")], "matchExpressions": [V100]},
                {"matchFields": [expression("metadata.name", "In", "n")], "matchExpressions": [V100]},
            ],
            "drop node affinity gpu in (V100) from term 2 of 2",
            id="the term that names the node is the nearest",
        ),
        pytest.param(
            [{"matchExpressions": [V100, ZONE_B]}],
            "drop node affinity gpu in (V100) and zone in (b)",
            id="of one term of which nothing matches all goes at once",
        ),
    ],
)
def test_what_is_to_be_dropped_of_node_affinity_is_enough_as_it_is_written(
    terms: list[dict[str, object]], text: str
) -> None:
    one = with_terms(*terms)
    made = fleet(node("n", labels={"gpu": "A10", "zone": "a"}), pods=[one])
    assert texts(made, one) == [text]


# ---- resources that no node has, cards that are repartitioned ----

A100_LABELS = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu-memory", "nvidia.com/vgpu", "example.com/licences"])
def test_a_resource_that_no_node_has_is_dropped(resource: str) -> None:
    one = pod("waiting", gpus=1, resources={resource: 40})
    made = fleet(node("n", gpus=2), pods=[one])
    assert texts(made, one) == [f"drop resource {resource}: no node has it"]


PARTS = [
    pytest.param({"nvidia.com/gpumem": 40960}, {}, 1, id="HAMi's memory alone is of one GPU"),
    pytest.param({GPU: 2, "nvidia.com/gpumem": 40960}, {}, 2, id="of as many GPUs as it names"),
    pytest.param({GPU: 1, "nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 20}, {}, 1, id="cores go too"),
    pytest.param({}, {"gpu-memory": "40960"}, 1, id="Run:ai's annotation"),
    pytest.param({}, {"gpu-memory": "40960", "gpu-fraction-num-devices": "2"}, 2, id="on two GPUs"),
]


@pytest.mark.parametrize(("resources", "annotations", "count"), PARTS)
def test_where_no_node_says_its_gpu_memory_whole_gpus_are_asked_for_in_its_place(
    resources: dict[str, int], annotations: dict[str, str], count: int
) -> None:
    one = pod("waiting", resources=resources, annotations=annotations)
    made = fleet(node("n", gpus=2), pods=[one])
    found = change(made, one)
    assert [edit.text() for edit in found.edits] == [
        f"request {count} whole {GPU} instead of GPU memory: node n does not say how much its GPUs have"
    ]
    with made.what_if():
        after = apply(made, made.pod_by_key["default", "waiting"], found)
        spec = made.pod(after).spec
        assert (core.pod_requests(spec.spec)[GPU], spec.annotations) == (count, {})
        assert made.bind(after, 0) == tuple(range(count))


@pytest.mark.parametrize(("resources", "annotations", "count"), PARTS)
def test_whole_gpus_are_not_proposed_where_too_few_are_free(
    resources: dict[str, int], annotations: dict[str, str], count: int
) -> None:
    one = pod("waiting", resources=resources, annotations=annotations)
    made = fleet(node("n", gpus=2), pods=[one], bound={"n": [pod("user", gpus=3 - count)]})
    row = made.pod_by_key["default", "waiting"]
    assert smallest(made, row, place.Cache(made), frozenset({"pod", "lower"})).change is None


def test_where_another_node_says_its_gpu_memory_a_node_like_it_is_tried_before_whole_gpus() -> None:
    one = pod("waiting", resources={GPU: 1, "nvidia.com/gpumem": 40960})
    labelled = node("labelled", gpus=1, labels={"nvidia.com/gpu.memory": "81559"})
    made = fleet(labelled, node("n", gpus=1), pods=[one], bound={"labelled": [pod("user", gpus=1)]})
    assert texts(made, one, frozenset({"pod", "lower", "add"})) == ["add one node like labelled"]
    (text,) = texts(made, one, frozenset({"pod", "lower"}))
    assert text.startswith(f"request 1 whole {GPU} instead of GPU memory: node n")


def test_the_container_that_asked_for_gpu_memory_asks_for_the_gpu() -> None:
    small, large = {"cpu": "1"}, {"cpu": "1", "nvidia.com/gpumem": "4096"}
    containers = [{"name": name, "resources": {"limits": limits}} for name, limits in (("a", small), ("b", large))]
    one = pod("waiting", spec=msgspec.convert({"containers": containers}, core.PodSpec))
    made = fleet(node("n", gpus=1), pods=[one])
    with made.what_if():
        after = made.pod(apply(made, made.pod_by_key["default", "waiting"], change(made, one))).spec.spec
    assert [dict(one.resources.limits) for one in after.containers] == [small, {"cpu": "1", GPU: "1"}]


def test_what_some_node_has_is_never_dropped() -> None:
    one = pod("waiting", resources={"example.com/licences": 2})
    made = fleet(node("full", resources={"example.com/licences": 1}), pods=[one])
    made.bind(made.add_pod(pod("holder", resources={"example.com/licences": 1})), 0)
    may = frozenset({"pod", "lower", "uncordon"})
    assert smallest(made, made.pod_by_key["default", "waiting"], place.Cache(made), may).change is None


@pytest.mark.parametrize(
    ("profiles", "cut"),
    [
        ({"nvidia.com/mig-3g.20gb": 1}, "change the MIG layout of GPU 0 on node n to 3g.20gb, with MIG strategy mixed"),
        (
            {"nvidia.com/mig-1g.5gb": 3},
            "change the MIG layout of GPU 0 on node n to 3 x 1g.5gb, with MIG strategy mixed",
        ),
        (
            {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 1},
            "change the MIG layout of GPU 0 on node n to 2g.10gb + 3g.20gb, with MIG strategy mixed",
        ),
    ],
)
def test_an_uncut_card_is_cut_for_mig_instances(profiles: dict[str, int], cut: str) -> None:
    one = pod("waiting", resources=profiles)
    made = fleet(node("n", gpus=2, labels=A100_LABELS), pods=[one])
    assert texts(made, one) == [cut]


def test_instances_that_nobody_uses_make_room_for_others_and_those_in_use_stay() -> None:
    one = pod("waiting", resources={"nvidia.com/mig-3g.20gb": 1})
    cut = Cut(How.MIG, isolated=True, gpu="a100-40", instances=tuple(("nvidia.com/mig-1g.5gb", i) for i in range(7)))
    spec = node(
        "n", labels={**A100_LABELS, "nvidia.com/mig.strategy": "mixed"}, resources=offered([cut], GPU), cuts=(cut,)
    )
    made = fleet(spec, pods=[one], bound={"n": [pod("user", resources={"nvidia.com/mig-1g.5gb": 1})]})
    (text,) = texts(made, one, frozenset({"recut"}))
    assert text == "change the MIG layout of GPU 0 on node n to 3g.20gb + 3 x 1g.5gb"


def test_a_whole_gpu_is_made_of_instances_that_nobody_uses() -> None:
    one = pod("waiting", gpus=1)
    cut = Cut(How.MIG, isolated=True, gpu="a100-40", instances=(("nvidia.com/mig-3g.20gb", 0),))
    spec = node("n", labels=A100_LABELS, resources=offered([cut], GPU), cuts=(cut,), device_resource=GPU)
    made = fleet(spec, pods=[one])
    assert texts(made, one, frozenset({"recut"})) == ["change the MIG layout of GPU 0 on node n to whole"]


@pytest.mark.parametrize(
    ("label", "used", "text"),
    [
        ("40400", {"gpus": 1}, "change the MIG layout of GPU 1 on node n to 3g.20gb, with MIG strategy mixed"),
        (
            "40400",
            {"gpu-fraction": "0.5"},
            "change the MIG layout of GPU 1 on node n to 3g.20gb, with MIG strategy mixed",
        ),
        ("41000", {"gpus": 1}, "change the MIG layout of GPU 1 on node n to 3g.20gb, with MIG strategy mixed"),
        ("41000", {"gpu-fraction": "0.5"}, "drop resource nvidia.com/mig-3g.20gb: no node has it"),
    ],
)
def test_a_card_is_cut_beside_one_in_use_though_its_label_says_another_memory_than_its_instances_have(
    label: str, used: dict[str, Any], text: str
) -> None:
    one = pod("waiting", resources={"nvidia.com/mig-3g.20gb": 1})
    user = pod("user", gpus=1) if "gpus" in used else pod("user", annotations=used)
    made = fleet(
        node("n", gpus=2, labels={**A100_LABELS, "nvidia.com/gpu.memory": label}), pods=[one], bound={"n": [user]}
    )
    assert texts(made, one) == [text]


@pytest.mark.parametrize(
    ("labels", "profile"),
    [
        ({}, "1g.5gb"),
        ({"nvidia.com/gpu.product": "Tesla-T4"}, "1g.5gb"),
        (A100_LABELS, "3g.40gb"),
    ],
    ids=["a GPU that no label names", "a GPU without MIG", "another GPU's profile"],
)
def test_a_profile_that_the_cards_cannot_be_cut_to_is_dropped(labels: dict[str, str], profile: str) -> None:
    one = pod("waiting", resources={f"nvidia.com/mig-{profile}": 1})
    made = fleet(node("n", gpus=2, labels=labels), pods=[one])
    assert texts(made, one) == [f"drop resource nvidia.com/mig-{profile}: no node has it"]


def test_a_card_is_cut_though_no_label_says_its_memory_and_others_are_in_use() -> None:
    one = pod("waiting", resources={"nvidia.com/mig-3g.40gb": 2})
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    made = fleet(node("n", gpus=2, labels=labels), pods=[one], bound={"n": [pod("user", gpus=1)]})
    assert texts(made, one) == ["change the MIG layout of GPU 1 on node n to 2 x 3g.40gb, with MIG strategy mixed"]


def test_a_card_in_use_is_not_cut() -> None:
    one = pod("waiting", resources={"nvidia.com/mig-3g.20gb": 1})
    made = fleet(node("n", gpus=1, labels=A100_LABELS), pods=[one], bound={"n": [pod("user", gpus=1)]})
    assert texts(made, one) == ["drop resource nvidia.com/mig-3g.20gb: no node has it"]
