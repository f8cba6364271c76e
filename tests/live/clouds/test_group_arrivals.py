"""Machines on their way: what a group owes, when it is not counted on any more, and readings that writes cross."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

from tonnage.control.nodes import Pools, Provisioner
from tonnage.decisions import Applied, Launch, Outcome, Stale
from tonnage.errors import InputError
from tonnage.fleet.snapshot import ClaimView, Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.live.clouds.arrivals import LATE_NS, GroupNodes
from tonnage.live.clouds.watched import WatchedGroups
from tonnage.objects import core
from tonnage.objects.core import Taint
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.units import GIB, NS_PER_S

GPU = "nvidia.com/gpu"
CATALOGUE = Catalogue.load()
TAINT = Taint(key=GPU, value="true", effect="NoSchedule")


def group(name: str = "gpu", **changes: object) -> NodeGroup:
    """g5.xlarge machines in us-east-1a: none of at most five."""
    given = {"instance_types": ("g5.xlarge",), "zones": ("us-east-1a",), "minimum": 0, "desired": 0, "maximum": 5}
    return msgspec.convert({"name": name, "taints": (TAINT,), **given, **changes}, NodeGroup)


def machine(number: int, zone: str = "us-east-1a") -> str:
    return f"aws:///{zone}/i-{number}"


class Cloud:
    """Groups that do what they are told, but make no machines by themselves."""

    def __init__(self, *groups: NodeGroup) -> None:
        self.groups = {one.name: one for one in groups}
        self.fails: Exception | None = None
        self.before_answer: Callable[[], None] = lambda: None

    def list(self) -> tuple[NodeGroup, ...]:
        if self.fails is not None:
            raise self.fails
        found = tuple(self.groups[name] for name in sorted(self.groups))
        self.before_answer()
        return found

    def set_size(self, name: str, desired: int, expect: int) -> Outcome:
        if self.groups[name].desired != expect:
            return Stale("moved")
        self.change(name, desired=desired)
        return Applied()

    def remove(self, provider_id: str, group: str, expect: int) -> Outcome:
        left = tuple(node for node in self.groups[group].nodes if node != provider_id)
        self.change(group, desired=expect - 1, nodes=left)
        return Applied()

    def change(self, name: str, **changes: object) -> None:
        self.groups[name] = msgspec.structs.replace(self.groups[name], **changes)


class Clock:
    def __init__(self) -> None:
        self.at_ns = 1_700_000_000 * NS_PER_S

    def now_ns(self) -> int:
        return self.at_ns

    def of(self, timestamp: str | None) -> int:
        return self.at_ns


class Site:
    """A fleet with waiting pods over a scripted cloud. Decisions are taken but not carried out."""

    def __init__(self, *groups: NodeGroup, daemon_sets: tuple[core.PodSpec, ...] = ()) -> None:
        self.cloud, self.clock, self.fleet = Cloud(*groups), Clock(), Fleet()
        self.daemon_sets = daemon_sets
        self.start()

    def start(self) -> None:
        self.groups = WatchedGroups(self.cloud)
        self.groups.read()
        self.nodes = GroupNodes(self.groups, CATALOGUE, self.clock)
        self.nodes.attach(self.fleet, self.others)
        self.provisioner = Provisioner(CATALOGUE, lambda: self.nodes.pools(self.others()))

    def others(self) -> Pools:
        return Pools(daemon_sets=self.daemon_sets)

    def change(self, name: str = "gpu", **changes: object) -> None:
        self.cloud.change(name, **changes)
        self.groups.read()

    def node(self, number: int, *, gpus: int = 1, **more: object) -> None:
        amounts = {"cpu": 3900, "memory": 14 * GIB, "pods": 50, GPU: gpus}
        given = {"taints": (TAINT,), "instance_type": "g5.xlarge", "provider_id": machine(number), "node_pool": "gpu"}
        given["created_ns"] = self.clock.at_ns  # type: ignore[assignment]
        row = self.fleet.add_node(FleetNode(f"n{number}", amounts, {}, uid=f"n{number}", **{**given, **more}))  # type: ignore[arg-type]
        self.fleet.node(row).initialized = True

    def unready(self, number: int) -> None:
        row = self.fleet.node_by_name[f"n{number}"]
        self.fleet.set_schedulable(row, False)
        self.fleet.node(row).initialized = False

    def pod(self, *names: str, memory: str = "2Gi") -> None:
        requests = {"cpu": "1", "memory": memory, GPU: "1"}
        container = core.Container(name="m", resources=core.ResourceRequirements(requests=dict(requests)))
        spec = core.PodSpec(containers=[container], tolerations=[core.Toleration(key=GPU, operator="Exists")])
        for name in names:
            self.fleet.add_pod(FleetPod("default", name, name, {}, spec))

    def claims(self) -> tuple[ClaimView, ...]:
        return self.nodes.in_flight()

    def plan(self) -> list[str]:
        """The groups of the machines that would be asked for now."""
        now, claims = self.clock.now_ns(), self.claims()

        class Here:
            def snapshot(_) -> Snapshot:
                return Snapshot(now, self.fleet, claims=claims)

        decided = self.provisioner.decide(Here())  # type: ignore[arg-type]
        return [one.node_pool for one in decided if isinstance(one, Launch)]


def test_what_a_group_owes_is_its_size_less_the_nodes_that_have_joined() -> None:
    site = Site(group(desired=3, nodes=(machine(1), machine(2))))
    site.node(1)
    assert [claim.name for claim in site.claims()] == ["gpu/i-2", "gpu/machine 1"]
    site.node(2)
    site.unready(2)
    assert [(claim.name, claim.node) for claim in site.claims()] == [("gpu/i-2", "n2"), ("gpu/machine 1", "")]
    site.change(desired=2)
    site.fleet.node(site.fleet.node_by_name["n2"]).initialized = True
    assert site.claims() == ()


def test_a_machine_on_its_way_is_like_the_one_that_was_planned() -> None:
    site = Site(group(labels={"team": "ml"}))
    site.pod("a")
    now, claims = site.clock.now_ns(), site.claims()

    class Here:
        def snapshot(_) -> Snapshot:
            return Snapshot(now, site.fleet, claims=claims)

    (planned,) = site.provisioner.decide(Here())  # type: ignore[arg-type]
    assert isinstance(planned, Launch)
    site.change(desired=1)
    (claim,) = site.claims()
    assert claim.launch.allocatable == planned.allocatable
    assert claim.launch.capacity == planned.capacity
    assert claim.launch.taints == planned.taints
    assert claim.launch.labels.items() <= planned.labels.items()
    assert claim.launch.labels["team"] == "ml"


def test_the_zone_of_a_machine_that_was_made_is_its_own() -> None:
    site = Site(group(zones=("us-east-1a", "us-east-1b"), desired=2, nodes=(machine(1, "us-east-1b"),)))
    assert [claim.launch.zone for claim in site.claims()] == ["us-east-1b", "us-east-1a"]
    assert site.claims()[0].launch.labels["topology.kubernetes.io/zone"] == "us-east-1b"


def test_daemon_sets_take_their_part_of_a_machine_on_its_way() -> None:
    # A g5.xlarge has 13.5 GiB for pods.
    container = core.Container(name="m", resources=core.ResourceRequirements(requests={"memory": "4Gi"}))
    everywhere = core.PodSpec(containers=[container], tolerations=[core.Toleration(operator="Exists")])
    without, site = Site(group(desired=1)), Site(group(desired=1), daemon_sets=(everywhere,))
    for one in (without, site):
        one.pod("a", memory="10Gi")
    assert without.plan() == []
    assert site.plan() == []  # no machine of the group would do
    assert site.claims()[0].launch.daemons["memory"] == 4 * GIB
    for one in (without, site):
        one.pod("b", memory="9Gi")
    assert (without.plan(), site.plan()) == (["gpu"], [])


@pytest.mark.parametrize("made", [False, True])
def test_a_machine_that_does_not_come_is_not_counted_on_and_its_group_grows_no_further(made: bool) -> None:
    nodes = (machine(1),) if made else ()
    site = Site(group(desired=1, nodes=nodes), group("other", instance_types=("g5.2xlarge",)))
    site.pod("a")
    assert site.plan() == []
    site.clock.at_ns += LATE_NS - 1
    assert site.plan() == []
    assert site.nodes.late == {}
    site.clock.at_ns += 1
    assert site.plan() == ["other"]
    assert site.nodes.late == {"gpu": "1 of its machines have not joined for 15 minutes"}
    site.change(nodes=(machine(1),))
    site.node(1)
    assert site.claims() == ()
    assert site.nodes.late == {}


def test_a_group_that_makes_machines_has_more_time_for_the_rest() -> None:
    site = Site(group(desired=3))
    assert len(site.claims()) == 3
    site.clock.at_ns += LATE_NS - 1
    site.change(nodes=(machine(1),))
    assert len(site.claims()) == 3
    site.clock.at_ns += LATE_NS - 1
    assert [claim.name for claim in site.claims()] == ["gpu/i-1", "gpu/machine 1", "gpu/machine 2"]
    site.clock.at_ns += 1
    assert (site.claims(), site.nodes.late.keys()) == ((), {"gpu"})


def test_a_node_that_was_ready_and_is_not_any_more_is_not_on_its_way() -> None:
    site = Site(group(desired=1, nodes=(machine(1),)))
    site.node(1)
    assert site.claims() == ()
    site.unready(1)
    site.pod("a")
    assert site.claims() == ()
    assert site.plan() == ["gpu"]


def test_after_a_restart_an_old_node_that_is_not_ready_is_not_on_its_way() -> None:
    site = Site(group(desired=1, nodes=(machine(1),)))
    site.node(1, created_ns=site.clock.at_ns - LATE_NS)
    site.unready(1)
    assert site.claims() == ()
    assert site.nodes.late == {}


def test_a_group_that_makes_no_machines_owes_none() -> None:
    site = Site(group(desired=2, nodes=(machine(1),), held="has its Launch process suspended"))
    assert [claim.name for claim in site.claims()] == ["gpu/i-1"]
    site.pod("a", "b")
    assert site.plan() == []


def test_nodes_that_are_not_planned_with_still_count_against_the_maximum() -> None:
    site = Site(group(desired=2, maximum=3, nodes=(machine(1), machine(2))))
    site.node(1)
    site.node(2)
    assert site.claims() == ()
    site.fleet.set_schedulable(site.fleet.node_by_name["n1"], False)  # cordoned
    site.pod("a", "b", "c", "d")
    assert site.plan() == ["gpu"]


# ---- readings ----


def test_groups_are_as_they_were_read_last_and_what_was_written_since() -> None:
    cloud = Cloud(group(desired=1))
    watched = WatchedGroups(cloud)
    watched.read()
    cloud.change("gpu", maximum=9)
    assert watched.list()[0].maximum == 5
    assert watched.set_size("gpu", 2, expect=1) == Applied()
    assert (watched.list()[0].desired, watched.list()[0].maximum) == (2, 5)
    watched.read()
    assert (watched.list()[0].desired, watched.list()[0].maximum) == (2, 9)
    cloud.change("gpu", nodes=(machine(1), machine(2)))
    watched.read()
    assert watched.remove(machine(1), "gpu", expect=2) == Applied()
    assert (watched.list()[0].desired, watched.list()[0].nodes) == (1, (machine(2),))


def test_a_reading_that_a_write_has_crossed_is_read_again() -> None:
    cloud = Cloud(group(desired=1))
    watched = WatchedGroups(cloud)
    watched.read()

    def write() -> None:
        cloud.before_answer = lambda: None
        assert watched.set_size("gpu", 2, expect=1) == Applied()

    cloud.before_answer = write
    watched.read()
    assert watched.list()[0].desired == 2


def test_what_is_known_stays_while_the_cloud_does_not_answer() -> None:
    cloud = Cloud(group(desired=1))
    watched = WatchedGroups(cloud)
    watched.read()
    cloud.fails = InputError.at("AWS does not answer")
    with pytest.raises(InputError):
        watched.read()
    assert watched.list()[0].desired == 1


def test_a_size_that_did_not_hold_is_read_again_at_once() -> None:
    cloud = Cloud(group(desired=1))
    watched = WatchedGroups(cloud, every_s=3600)
    watched.read()
    read = threading.Event()
    cloud.before_answer = read.set
    watched.start()
    cloud.change("gpu", desired=2)
    assert watched.set_size("gpu", 2, expect=1) == Stale("moved")
    assert read.wait(5)
    watched.close()
