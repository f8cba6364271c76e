"""The default policy: devices keep the worth that the recent mix gives them, and no pod that fits is refused."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from value_cases import MODEL, random_fleet, share

from benchmarks import openb, openb_data, openb_variants
from builders import decide, fleet, node, pod
from tonnage.decisions import Bind, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.place import Cache
from tonnage.scheduling.policies import POLICIES
from tonnage.scheduling.value.mix import Mix
from tonnage.scheduling.value.view import PRECISION
from tonnage.scheduling.view import NEVER, TIE_BITS

DATA = openb_data.folder(Path(__file__).resolve().parents[3] / "shared" / "data")


def _chosen(made: Fleet, name: str = "p", mix: Fleet | None = None, policy: str = "tonnage") -> str:
    cache = Cache(made, Mix.of(mix) if mix else None)
    decisions = place.decide(Snapshot(0, made), place.Settings(policy), cache)
    (node_name,) = [d.node.name for d in decisions if isinstance(d, Bind) and d.pod.name == name]
    return node_name


def test_it_is_the_default() -> None:
    assert place.Settings().policy == "tonnage"
    assert "tonnage" in POLICIES


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pod_that_fits_somewhere_is_never_refused_and_never_put_where_it_does_not_fit(policy: str) -> None:
    for seed in range(60):
        made = random_fleet(Random(seed), pending=8)
        for decision in place.decide(Snapshot(0, made), place.Settings(policy)):
            if not isinstance(decision, Bind):
                continue
            row, there = made.pod_by_key["default", decision.pod.name], made.node_by_name[decision.node.name]
            assert there in place.feasible(made, row)
            assert made.bind(row, there, decision.devices) == decision.devices
        waiting = list(made.pending)
        assert all(not place.feasible(made, row) for row in waiting)


def test_the_same_fleet_gets_the_same_decisions_in_whatever_order_it_came_about() -> None:
    for seed in range(20):
        made = random_fleet(Random(seed), pending=8)
        again = Fleet()
        for row in reversed(made.node_rows()):
            again.add_node(made.node(row).spec)
        for one in reversed(made.pods):
            if one is not None:
                copy = again.add_pod(one.spec)
                if one.node >= 0:
                    again.bind(copy, again.node_by_name[made.node(one.node).spec.name], one.devices)
        assert _decided(made) == _decided(again) == _decided(made)


def _decided(made: Fleet) -> list[tuple[str, str, tuple[int, ...]]]:
    found = place.decide(Snapshot(0, made))
    return [(d.pod.name, d.node.name, d.devices) if isinstance(d, Bind) else (d.target.name, "", ()) for d in found]


def test_a_share_fills_up_the_device_that_the_mix_can_use_least() -> None:
    """With halves and 300s only, 300 free beside a 700 is of use, 200 beside an 800 is not."""
    mix = fleet(
        node("a", gpus=1), pods=[share(f"h{i}", 500) for i in range(5)] + [share(f"t{i}", 300) for i in range(5)]
    )
    made = fleet(
        node("one", gpus=1), node("two", gpus=1), bound={"one": [share("x", 500)], "two": [share("y", 600)]},
        pods=[share("p", 300)],
    )  # fmt: skip
    assert _chosen(made, mix=mix) == "two"


def test_a_pod_with_many_cores_keeps_off_the_node_where_cores_are_short() -> None:
    mix = fleet(node("a", gpus=1), pods=[share(f"s{i}", 500, cpu=4) for i in range(9)])
    made = fleet(node("lean", cpu=32, gpus=4), node("rich", cpu=128, gpus=4), pods=[share("p", 500, cpu=16)])
    assert _chosen(made, mix=mix) == "rich"


def test_a_pod_that_any_model_serves_leaves_the_scarce_one_alone() -> None:
    tied = [pod(f"t{i}", gpus=1, nodeSelector={MODEL: "A"}) for i in range(9)]
    machines = [node("a", gpus=2, labels={MODEL: "A"}), *(node(f"b{i}", gpus=2, labels={MODEL: "B"}) for i in range(4))]
    mix = fleet(*machines, pods=[*tied, *(share(f"s{i}", 500) for i in range(20))])
    assert _chosen(fleet(*machines, pods=[share("p", 500)]), mix=mix) == "b0"


def test_a_single_gpu_pod_leaves_a_whole_set_of_gpus_to_those_who_ask_for_sets() -> None:
    mix = fleet(
        node("a", gpus=8), pods=[pod(f"e{i}", gpus=8) for i in range(4)] + [share(f"s{i}", 500) for i in range(9)]
    )
    made = fleet(node("a", cpu=64, gpus=8), node("b", cpu=64, gpus=8), bound={"b": [pod("x", gpus=1)]},
                 pods=[pod("p", cpu=2, gpus=1)])  # fmt: skip
    assert _chosen(made, mix=mix) == "b"


def test_what_the_user_prefers_comes_before_what_a_device_is_worth() -> None:
    wish = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    nodes = (node("a", gpus=4), node("b", gpus=4, labels={"zone": "z"}))
    bound = {"a": [share("x", 500)]}
    assert _chosen(fleet(*nodes, bound=bound, pods=[share("p", 500)])) == "a"
    assert _chosen(fleet(*nodes, bound=bound, pods=[share("p", 500, affinity=affinity)])) == "b"


def test_whole_gpus_fill_the_node_that_is_in_use() -> None:
    made = fleet(node("a", gpus=8), node("b", gpus=8), bound={"b": [pod("x", gpus=5)]}, pods=[pod("p", gpus=1)])
    assert _chosen(made) == _chosen(made, policy="binpack") == "b"


def test_a_pod_without_devices_takes_a_node_without_them_and_fills_it() -> None:
    made = fleet(
        node("a", gpus=8), node("b"), node("c"), bound={"c": [pod("x", cpu=2)]}, pods=[pod("p"), pod("q", gpus=1)]
    )
    assert _chosen(made) == "c"


def test_the_parts_of_a_score_add_up_to_it() -> None:
    for seed in range(40):
        made = random_fleet(Random(seed))
        cache = Cache(made)
        for row in made.pending:
            view = cache.view(made.pod_class(row), "tonnage")
            for n in made.node_rows():
                if view.key[n] != NEVER:
                    parts = dict(view.parts(n))
                    wishes = int(parts.pop("preferred"))
                    points = (int(view.key[n]) >> TIE_BITS) - view.scale * wishes
                    assert points == pytest.approx(PRECISION * sum(parts.values()), abs=0.51)


def test_the_mix_is_read_again_when_the_pods_have_changed_by_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    of = Mix.of
    monkeypatch.setattr(Mix, "of", staticmethod(lambda made: read.append(len(made.pod_by_key)) or of(made)))
    made = fleet(node("a", gpus=8, pods=500), pods=[share(f"p{i}", 100) for i in range(40)])
    cache = Cache(made)
    for i in range(30):
        place.decide(Snapshot(0, made), cache=cache)
        made.add_pod(share(f"q{i}", 100))
    assert read == [40, 51, 64]


def test_a_node_of_a_kind_not_seen_before_is_weighed_at_once() -> None:
    made = fleet(node("a", gpus=1), pods=[share("p", 500)])
    cache = Cache(made)
    place.decide(Snapshot(0, made), cache=cache)
    made.add_node(node("b", gpus=8, cpu=64))
    made.add_pod(pod("eight", gpus=8))
    found = place.decide(Snapshot(0, made), cache=cache)
    assert [d.node.name for d in found if isinstance(d, Bind) and d.pod.name == "eight"] == ["b"]


def test_a_share_larger_than_what_any_device_has_left_waits() -> None:
    made = fleet(node("a", gpus=1), bound={"a": [share("x", 600)]}, pods=[share("p", 500)])
    (decision,) = decide(made)
    assert isinstance(decision, Wait)


# ---- the public trace ----


@pytest.mark.fuzz
@pytest.mark.trace
@pytest.mark.skipif(DATA is None, reason="the openb files are not there (../shared/data/openb)")
def test_one_seed_of_the_public_trace_reaches_the_published_allocation_and_more() -> None:
    assert DATA is not None
    listed, machines = openb_data.pods(DATA, "default"), openb_data.nodes(DATA)
    told = float(openb.published("default")["fgd"]["130"])
    assert abs(openb.once(listed, machines, 42, "fgd")[0] - told) < 0.3
    ours = openb.once(listed, machines, 42, "tonnage")
    assert ours[0] > told + 0.5
    assert ours[3] < 5


@pytest.mark.trace
@pytest.mark.skipif(DATA is None, reason="the openb files are not there (../shared/data/openb)")
def test_lists_made_in_place_of_the_others_have_the_demand_that_their_name_says() -> None:
    assert DATA is not None
    shares = openb_variants.make(DATA, "gpushare80")
    total = sum(one.gpu_milli for one in shares)
    assert sum(one.gpu_milli for one in shares if one.milli < openb_data.FULL) / total == pytest.approx(0.8, abs=0.01)
    named = openb_variants.make(DATA, "gpuspec33")
    assert sum(bool(o.models) for o in named) / sum(bool(o.gpus) for o in named) == pytest.approx(0.33, abs=0.03)
    with pytest.raises(FileNotFoundError, match="gpushareNN"):
        openb_variants.make(DATA, "gpuspec")
    with pytest.raises(FileNotFoundError, match="default"):
        openb_data.pods(DATA, "nothing")
