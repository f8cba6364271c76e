"""What is watched for gangs, and who waits for it; what is known of pods' lives."""

from __future__ import annotations

import random
import time

import msgspec
import pytest

from live.gangs.gang_cluster import QUICK, SteppedClock
from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.fleet.snapshot import PodLife
from tonnage.kube.informer import Informers, names_of
from tonnage.kube.resources import NAMESPACES, PDBS, STORAGE_CLASSES, VOLUME_CLAIMS, VOLUMES
from tonnage.kube.verbs import Client
from tonnage.live import assembly
from tonnage.live.annotations import SAVED_AT
from tonnage.live.effects import Observing
from tonnage.live.groups import KINDS
from tonnage.live.lives import Lives
from tonnage.live.recording import Silent
from tonnage.live.watching import watch_world
from tonnage.live.world import ClusterWorld
from tonnage.objects import core
from tonnage.provisioning.catalogue import Catalogue
from tonnage.units import NS_PER_S
from tonnage.workloads.naming import PROJECTS

START = SteppedClock().now_ns()


def test_a_cluster_without_any_kind_of_gang_is_well() -> None:
    transport = InProcess(Api())
    world = ClusterWorld(Observing(), SteppedClock(), price=lambda *_: 0, recorder=Silent())
    informers = Informers(Client(transport), time.time, random.Random(1), delays=QUICK)
    try:
        watch_world(informers, world)
        assert informers.wait_synced(60)
        assert informers.problems() == {}
        assert "jobsets.jobset.x-k8s.io" in informers.absent()
        assert not world.groups.is_served("jobset")
        assert world.groups.absent() == set(PROJECTS)  # who names a pod group here names nothing
        [scheduler] = assembly.controllers(["scheduler"], world, Catalogue.load(), lambda name: None)
        watched = informers.named().keys()
        assert scheduler.asks == {
            *names_of(resource for resource, _ in KINDS),
            *names_of([NAMESPACES, PDBS, VOLUME_CLAIMS, VOLUMES, STORAGE_CLASSES]),
        }
        assert scheduler.asks <= watched
    finally:
        informers.stop()
        transport.close()


def test_versions_of_one_kind_are_informers_of_their_own() -> None:
    names = names_of(resource for resource, _ in KINDS)
    assert len(set(names)) == len(names)
    assert {"podgroups.scheduling.k8s.io", "podgroups.scheduling.k8s.io #3"} <= set(names)


def test_the_scheduler_looks_after_gangs_that_are_held_in_part_from_time_to_time() -> None:
    world = ClusterWorld(Observing(), SteppedClock(), price=lambda *_: 0, recorder=Silent())
    [loop] = assembly.loops_of("scheduler", world, Catalogue.load())
    assert loop.period_ns == 10 * NS_PER_S


def pod(phase: str = "Running", node: str = "n", deleted: bool = False, **conditions: int) -> core.Pod:
    """A pod with these conditions, each true since a second."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml", "uid": "u"},
        "spec": {"nodeName": node, "containers": []},
        "status": {
            "phase": phase,
            "conditions": [
                {"type": name, "status": "True", "lastTransitionTime": f"2026-03-02T09:00:{second:02d}Z"}
                for name, second in conditions.items()
            ],
        },
    }
    if deleted:
        body["metadata"] |= {"deletionTimestamp": "2026-03-02T09:01:00Z"}  # type: ignore[operator]
    return msgspec.convert(body, core.Pod)


def test_lives_say_since_when_a_pod_is_bound_and_works_and_whether_it_leaves() -> None:
    lives = Lives(SteppedClock(), {})
    lives.pod(None, pod("Pending", node=""))
    assert lives.lives == {}
    bound = pod("Pending", PodScheduled=5)
    lives.pod(None, bound)
    at = START + 5 * NS_PER_S
    assert lives.lives == {"ml/p": PodLife(bound_ns=at, ready=False)}
    ready = pod(PodScheduled=5, Ready=9)
    lives.pod(bound, ready)
    assert lives.lives == {"ml/p": PodLife(START + 9 * NS_PER_S, bound_ns=at)}
    lives.pod(ready, pod(PodScheduled=5, deleted=True))
    assert lives.lives == {"ml/p": PodLife(START + 9 * NS_PER_S, ready=False, leaving=True, bound_ns=at)}
    lives.pod(ready, pod("Succeeded", PodScheduled=5))
    assert lives.lives == {}


def test_nominations_are_those_of_pods_status() -> None:
    lives = Lives(SteppedClock(), {})
    waits = pod("Pending", node="")
    named = nominated(waits, "n")
    lives.pod(None, named)
    assert lives.nominations == {"ml/p": "n"}
    lives.pod(named, waits)
    assert lives.nominations == {}


def test_what_was_decided_stands_until_the_api_says_something_new() -> None:
    lives = Lives(SteppedClock(), {})
    first = nominated(pod("Pending", node=""), "first")
    lives.pod(None, first)
    lives.nominations["ml/p"] = "second"  # decided, and not yet seen
    lives.pod(first, nominated(pod("Pending", node="", Other=3), "first"))
    assert lives.nominations == {"ml/p": "second"}
    lives.pod(first, nominated(first, "second"))
    lives.pod(nominated(first, "second"), nominated(first, "third"))
    assert lives.nominations == {"ml/p": "third"}
    lives.pod(nominated(first, "third"), pod(PodScheduled=5))
    assert lives.nominations == {}


def test_a_pod_works_since_its_last_container_began_to_run_again() -> None:
    lives = Lives(SteppedClock(), {})
    states = [running(3), running(5)]
    for change, expected in ((states, 5), ([running(3), running(40)], 40), ([running(3), core.ContainerState()], 3)):
        lives.pod(None, with_containers(pod(PodScheduled=1, Ready=9), change))
        assert lives.lives["ml/p"].started_ns == START + expected * NS_PER_S
    lives.pod(None, with_containers(pod(PodScheduled=1), [core.ContainerState()] * 2))
    assert lives.lives["ml/p"].started_ns is None


@pytest.mark.parametrize(
    ("written", "saved_ns"), [("2026-03-02T09:00:30Z", START + 30 * NS_PER_S), ("half past nine", 0), ("", 0)]
)
def test_what_a_pod_did_before_its_last_checkpoint_is_safe(written: str, saved_ns: int) -> None:
    lives = Lives(SteppedClock(), {})
    one = pod(PodScheduled=1, Ready=9)
    metadata = msgspec.structs.replace(one.metadata, annotations={SAVED_AT: written})
    lives.pod(one, msgspec.structs.replace(one, metadata=metadata))
    assert lives.lives["ml/p"].saved_ns == saved_ns


def test_a_pod_that_is_being_evicted_leaves_before_a_watch_shows_it() -> None:
    lives = Lives(SteppedClock(), {})
    stands = pod(PodScheduled=1, Ready=9)
    lives.pod(None, stands)
    lives.assume_leaving("ml/p", "u")
    assert lives.lives["ml/p"].leaving
    lives.pod(stands, pod(PodScheduled=1, Ready=9, Other=3))  # from before the eviction
    assert lives.lives["ml/p"].leaving
    lives.assume_staying("ml/p", "another")
    assert lives.lives["ml/p"].leaving
    lives.assume_staying("ml/p", "u")
    assert not lives.lives["ml/p"].leaving
    lives.assume_leaving("ml/p", "u")
    lives.pod(stands, pod("Succeeded", PodScheduled=1))
    lives.assume_staying("ml/p", "u")
    assert lives.lives == {}


def nominated(one: core.Pod, node: str) -> core.Pod:
    """The pod, with room being made for it on this node."""
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, nominated_node_name=node))


def running(second: int) -> core.ContainerState:
    """Since this second."""
    return core.ContainerState(running=core.ContainerRunning(started_at=f"2026-03-02T09:00:{second:02d}Z"))


def with_containers(one: core.Pod, states: list[core.ContainerState]) -> core.Pod:
    """The pod with containers in these states."""
    found = [core.ContainerStatus(name=f"c{number}", state=state) for number, state in enumerate(states)]
    return msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, container_statuses=found))
