"""Whom the scheduler evicts so that no gang is partially bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders import node
from gang_builders import gang, member, part
from tonnage.decisions import Bind, Decision, Evict
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import PodLife, Snapshot
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place
from tonnage.scheduling.gangs.release import PartialGang, Patience, release
from tonnage.units import NS_PER_S

NAMES = ("tonnage",)
SETTINGS = place.Settings(scheduler_names=NAMES, preemption=False)
SHORT, LONG = Patience().never_whole_ns, Patience().was_whole_ns


class Cluster:
    """A gang ``default/g`` of which some pods stand on node n, and others wait."""

    def __init__(self, known: Gang, gpus: int) -> None:
        self.gang = known
        self.fleet = Fleet()
        self.fleet.add_node(node("n", cpu=32, gpus=gpus))
        self.lives: dict[str, PodLife] = {}
        self.done: dict[str, dict[str, int]] = {}
        self.held: dict[str, PartialGang] = {}

    def pod(self, name: str, *, created: int = 0, bound: int | None = None, **fields: Any) -> None:
        """A member, created in that second; ``bound``: the second since which it stands."""
        scheduler = fields.pop("scheduler", "tonnage")
        spec = member(name, created_ns=created * NS_PER_S, **fields)
        spec = replace(spec, spec=type(spec.spec)(**_fields(spec.spec, scheduler_name=scheduler)))
        row = self.fleet.add_pod(spec)
        if bound is not None:
            self.fleet.bind(row, self.fleet.node_by_name["n"])
            self.lives[f"default/{name}"] = PodLife(bound_ns=bound * NS_PER_S)

    def evicted(self, second: int) -> list[str]:
        """Who is evicted by a look in this second."""
        snapshot = Snapshot(
            second * NS_PER_S,
            self.fleet,
            gangs={self.gang.key: self.gang},
            lives=self.lives,
            done=self.done,
        )
        decisions: list[Decision] = place.decide(snapshot, SETTINGS)
        found, self.held = release(snapshot, decisions, self.held, Patience(), NAMES)
        evictions = [one for one in found if isinstance(one, Evict)]
        assert all(one.by is not None and one.by.name == "g" for one in evictions)
        assert not (evictions and any(isinstance(one, Bind) for one in found))
        return [one.pod.name for one in evictions]


def _fields(spec: Any, **changes: Any) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__} | changes


def begun(**fields: Any) -> Cluster:
    """Two of four were bound in second 10, and there is no room for the others."""
    made = Cluster(gang(4, **fields), gpus=2)
    for index in range(4):
        made.pod(f"p{index}", bound=10 if index < 2 else None)
    return made


def test_a_gang_that_was_never_whole_is_let_go_of_after_a_minute() -> None:
    made = begun()
    assert made.evicted(10) == []
    assert made.evicted(69) == []
    assert made.evicted(70) == ["p0", "p1"]
    assert SHORT == 60 * NS_PER_S


def test_the_minute_begins_when_a_process_first_sees_it() -> None:
    made = begun()
    assert made.evicted(1000) == []
    assert made.evicted(1059) == []
    assert made.evicted(1060) == ["p0", "p1"]


def test_nobody_is_evicted_when_the_rest_finds_room() -> None:
    made = begun()
    assert made.evicted(10) == []
    made.fleet.add_node(node("m", cpu=32, gpus=2))
    assert made.evicted(70) == []
    for name in ("p2", "p3"):
        made.fleet.bind(made.fleet.pod_by_key["default", name], made.fleet.node_by_name["m"])
    assert made.evicted(80) == []
    assert made.held == {}


def test_a_gang_whose_rest_finds_room_and_is_never_bound_is_let_go_of() -> None:
    """Its bindings are refused, each time."""
    made = begun()
    made.evicted(10)
    made.fleet.add_node(node("m", cpu=32, gpus=2))
    assert made.evicted(69) == []
    assert made.evicted(128) == []
    assert made.evicted(129) == ["p0", "p1"]


def test_room_that_appears_for_a_moment_does_not_start_the_minute_anew() -> None:
    made = begun()
    made.evicted(10)
    made.fleet.add_node(node("m", cpu=32, gpus=2))
    assert made.evicted(65) == []
    made.fleet.remove_node(made.fleet.node_by_name["m"])
    assert made.evicted(70) == ["p0", "p1"]


def test_a_gang_that_was_whole_and_lost_a_pod_has_half_an_hour() -> None:
    made = Cluster(gang(3), gpus=2)
    made.pod("p0", bound=10)
    made.pod("p1", bound=10)
    made.pod("p2", created=500)
    assert made.evicted(500) == []
    assert made.evicted(500 + LONG // NS_PER_S - 1) == []
    assert made.evicted(500 + LONG // NS_PER_S) == ["p0", "p1"]


def test_who_is_evicted_already_and_leaves_does_not_hide_that_the_others_are_held_in_part() -> None:
    made = begun()
    made.evicted(10)
    made.lives["default/p0"] = PodLife(bound_ns=10 * NS_PER_S, leaving=True)
    assert made.evicted(80) == ["p1"]


def test_pods_that_have_succeeded_count_as_members() -> None:
    made = begun()
    made.done = {"default/g": {"": 2}}
    made.evicted(10)
    assert made.evicted(5000) == []


def test_a_subgroup_below_its_minimum_is_held_in_part_too() -> None:
    made = Cluster(gang(2, part("a", 1), part("b", 1)), gpus=2)
    made.pod("p0", bound=10, subgroup="a")
    made.pod("p1", bound=10, subgroup="a")
    made.pod("p2", subgroup="b")
    made.evicted(10)
    assert made.evicted(70) == ["p0", "p1"]


def test_pods_beyond_the_minimum_wait_without_harm() -> None:
    made = Cluster(gang(2), gpus=2)
    made.pod("p0", bound=10)
    made.pod("p1", bound=10)
    made.pod("p2")
    made.evicted(10)
    assert made.evicted(9999) == []


def test_a_gang_without_a_pod_that_waits_is_its_frameworks_matter() -> None:
    made = Cluster(gang(3), gpus=2)
    made.pod("p0", bound=10)
    made.pod("p1", bound=10)
    made.evicted(10)
    assert made.evicted(9999) == []


def test_a_gang_in_which_another_scheduler_has_a_part_is_left_alone() -> None:
    made = Cluster(gang(4), gpus=3)
    for index in range(4):
        made.pod(f"p{index}", bound=10 if index < 2 else None, scheduler="other" if index == 0 else "tonnage")
    made.evicted(10)
    assert made.evicted(9999) == []


def test_the_reason_says_what_was_counted() -> None:
    made = begun()
    snapshot = Snapshot(70 * NS_PER_S, made.fleet, gangs={made.gang.key: made.gang}, lives=made.lives)
    found, _ = release(snapshot, place.decide(snapshot, SETTINGS), {"default/g": PartialGang(0)}, Patience(), NAMES)
    reason = found[-1].reason
    assert reason.verdict == "gang default/g is partially bound, and there is no room for the rest"
    assert dict(reason.evidence) == {
        "gang": "default/g",
        "minimum": 4,
        "bound": 2,
        "waiting": 2,
        "was_whole": False,
    }
