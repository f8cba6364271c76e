"""The gangs that a world keeps current are those of all its objects read at once."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from deep_seeds import part
from live.gangs.gang_objects import GROUPS, PODS, WORKLOADS, anything, bare_pods, place_of, pods_of, referred
from tonnage.facts.labels import JOB_NAME
from tonnage.live import group_kinds, still
from tonnage.live.feed import Changes
from tonnage.live.groups import UNSEEN_NS, Groups
from tonnage.objects import core, groups
from tonnage.objects.base import KubeObject, OwnerReference
from tonnage.units import NS_PER_S
from tonnage.workloads.membership import PRECEDENCE, Member, epoch, gangs_of, member_of, topologies_of
from tonnage.workloads.replicas import WORKLOADS as MAKERS


class Clock:
    """Stands at a second."""

    def __init__(self, second: int = 0) -> None:
        self.second = second

    def now_ns(self) -> int:
        return self.second * NS_PER_S

    def of(self, timestamp: str | None) -> int:
        return epoch(timestamp)


class Kept:
    """Groups, and all that they were told."""

    def __init__(self) -> None:
        self.clock = Clock(10_000)
        self.groups = Groups(self.clock, Changes(set()))
        self.groups.renew = self._renewed
        self.there: dict[tuple[int, str, str], KubeObject] = {}
        self.members: dict[str, Member] = {}
        """By pod, as the fleet would have it."""

    def _renewed(self, pod: core.Pod) -> None:
        self.members[pod.name] = self.groups.member_of(pod)

    def put(self, obj: KubeObject) -> None:
        place = -1 if isinstance(obj, core.Pod) else place_of(obj)
        key = (place, obj.namespace, obj.name)
        old = self.there.get(key)
        self.there[key] = obj
        self._tell(place, old, obj)

    def take(self, key: tuple[int, str, str]) -> None:
        self._tell(key[0], self.there.pop(key), None)

    def _tell(self, place: int, old: KubeObject | None, new: KubeObject | None) -> None:
        if place >= 0:
            self.groups.see(place, old, new)
            return
        assert old is None or isinstance(old, core.Pod)
        assert new is None or isinstance(new, core.Pod)
        self.groups.pod(old, new)
        if new is None:
            assert old is not None
            del self.members[old.name]
        else:
            self.members[new.name] = self.groups.member_of(new)

    def check(self) -> int:
        """Compare with all objects read at once; the number of gangs."""
        self.groups.settle()
        # What pods say counts last; workloads without pods stand for no group that only their template names.
        listed = [obj for key, obj in sorted(self.there.items()) if key[0] >= 0]
        pods = [obj for key, obj in sorted(self.there.items()) if isinstance(obj, core.Pod)]
        wanted = gangs_of([*listed, *pods])
        assert self.groups.gangs == wanted
        assert self.groups.topologies == topologies_of(listed)
        for pod in pods:
            meta = pod.metadata
            assert self.members[pod.name] == member_of(wanted, "ml", meta.labels, meta.annotations, pod.spec), pod.name
        return len(wanted)


def test_kinds_are_watched_in_the_order_in_which_they_count() -> None:
    watched = dict.fromkeys(type_ for _, type_ in (*group_kinds.GROUPS, *group_kinds.WORKLOADS))
    assert tuple(watched) == PRECEDENCE


def test_of_two_groups_of_one_name_the_same_counts_in_files_and_on_a_cluster() -> None:
    kai = msgspec.convert(
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "ml"},
            "spec": {"minMember": 2},
        },
        groups.KaiPodGroup,
    )
    other = msgspec.convert(
        {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "ml"},
            "spec": {"minMember": 5},
        },
        groups.CoschedulingPodGroup,
    )
    for order in ((kai, other), (other, kai)):
        assert gangs_of(order)["ml/g"].min_member == still.snapshot_of(order).gangs["ml/g"].min_member == 2


@pytest.mark.parametrize("seed", part(range(12)))
def test_gangs_kept_current_are_those_of_everything_read_at_once(seed: int) -> None:
    rng, kept, made, most = Random(seed), Kept(), 0, 0
    waiting: list[KubeObject] = []
    for _ in range(150):
        match rng.randrange(6):
            case 0 | 1:
                waiting += anything(rng, made)
                made += 1
            case 2:
                kept.put(referred(rng))
            case 3 if kept.there:
                kept.take(rng.choice(sorted(kept.there)))
            case 4 if kept.there:
                key = rng.choice(sorted(kept.there))
                kept.put(_changed(rng, kept.there[key]))
        rng.shuffle(waiting)
        for _ in range(rng.randrange(4)):
            if waiting:
                kept.put(waiting.pop())
        if rng.random() < 0.4:
            most = max(most, kept.check())
    assert most > 10
    for key in rng.sample(sorted(kept.there), len(kept.there)):
        kept.take(key)
    assert kept.check() == 0


def _changed(rng: Random, obj: KubeObject) -> KubeObject:
    """The same object with another label, or another one of its name."""
    labels = {**obj.metadata.labels, "priorityClassName": f"class-{rng.randrange(3)}"}
    uid = "another" if rng.random() < 0.3 else obj.metadata.uid
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels, uid=uid))


def _at(pod: core.Pod, second: int) -> core.Pod:
    minute = f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}Z"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, creation_timestamp=minute))


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_pod_that_comes_before_its_workload_is_of_a_gang_that_is_not_known(kind: str) -> None:
    kept = Kept()
    kept.clock.second = 100
    workload = WORKLOADS[kind](3, "w")
    first, *others = (_at(pod, 100) for pod in pods_of(workload))
    kept.put(first)
    assert kept.members[first.name].gang, "else it would be bound alone"
    kept.groups.settle()
    assert kept.members[first.name].gang not in kept.groups.gangs
    kept.put(workload)
    for pod in others:
        kept.put(pod)
    kept.groups.settle()
    [gang] = kept.groups.gangs.values()
    members = [kept.members[pod.name] for pod in (first, *others) if "submitter" not in pod.name]
    assert sum(member.gang == gang.key for member in members) == gang.min_member == 3


def test_a_pod_of_a_job_set_without_gangs_does_not_wait_for_the_job_between_them() -> None:
    kept = Kept()
    kept.clock.second = 100
    kept.groups.is_served = lambda word: True
    workload = WORKLOADS["JobSet"](1, "w")
    [pod] = (_at(pod, 100) for pod in pods_of(workload))
    job = pod.metadata.labels[JOB_NAME]
    between = OwnerReference(api_version="batch/v1", kind="Job", name=job, uid="uid-of-it", controller=True)
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=[between]))
    kept.put(pod)
    kept.groups.settle()
    assert kept.members[pod.name].gang == "ml/jobset/w", "its JobSet has not been seen"
    kept.put(workload)
    kept.groups.settle()
    assert kept.members[pod.name] == Member()


def test_a_workload_that_never_comes_is_waited_for_a_while_and_no_longer() -> None:
    kept = Kept()
    kept.clock.second = 100
    pod = _at(pods_of(WORKLOADS["PyTorchJob"](2, "w"))[0], 100)
    kept.put(pod)
    kept.clock.second = 99 + UNSEEN_NS // NS_PER_S
    kept.groups.settle()
    assert kept.members[pod.name] == Member("ml/pytorchjob/w")
    kept.clock.second += 1
    kept.groups.settle()
    assert kept.members[pod.name] == Member()


@pytest.mark.parametrize("kind", ["PyTorchJob", "Job", "LeaderWorkerSet"])
def test_while_nothing_is_heard_of_its_kind_a_pod_waits_for_its_workload(kind: str) -> None:
    kept = Kept()
    kept.clock.second = 100
    behind = {kind.lower()}
    kept.groups.is_behind = lambda word: word in behind
    pod, other = (_at(pod, 100) for pod in pods_of(WORKLOADS[kind](2, "w"))[:2])
    kept.put(pod)
    for _ in range(3):
        kept.clock.second += UNSEEN_NS // NS_PER_S
        kept.groups.settle()
        assert kept.members[pod.name].gang, "else it would be bound alone"
    behind.clear()
    kept.clock.second += UNSEEN_NS // NS_PER_S - 1
    kept.groups.settle()
    assert kept.members[pod.name].gang, "what was created meanwhile may be on its way"
    kept.put(other)
    kept.clock.second += 1
    kept.groups.settle()
    assert kept.members == {pod.name: Member(), other.name: Member()}


def test_labels_of_a_kind_that_the_cluster_does_not_have_keep_nobody_waiting() -> None:
    kept = Kept()
    kept.clock.second = 100
    pod = _at(pods_of(WORKLOADS["JobSet"](2, "w"))[0], 100)
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=[]))
    kept.put(pod)
    assert kept.members[pod.name] == Member()
    kept.take((-1, "ml", pod.name))
    kept.groups.is_served = lambda word: word == "jobset"
    kept.put(pod)
    assert kept.members[pod.name] == Member("ml/jobset/w")


def test_pods_that_have_succeeded_are_counted_for_their_gang() -> None:
    kept = Kept()
    workload = WORKLOADS["PyTorchJob"](3, "w")
    master, *workers = pods_of(workload)
    for obj in (workload, master, *workers):
        kept.put(obj)
    kept.groups.settle()
    over = [msgspec.structs.replace(pod, status=core.PodStatus(phase="Succeeded")) for pod in workers]
    for pod in over:
        kept.put(pod)
    assert kept.groups.done == {"ml/pytorchjob/w": {"worker": 2}}
    kept.take((-1, "ml", workers[0].name))
    assert kept.groups.done == {"ml/pytorchjob/w": {"worker": 1}}
    kept.take((place_of(workload), "ml", "w"))
    kept.groups.settle()
    assert kept.groups.done == {}


def test_every_kind_that_is_watched_is_tried_here() -> None:
    names = {type(make(2, "w")) for make in WORKLOADS.values()}
    by_others = {"TrainJob", "RayService"}  # whose pods are those of the JobSet or RayCluster that they make
    assert {kind.__name__ for kind in MAKERS} - by_others == {kind.__name__ for kind in names}
    assert GROUPS.keys() <= PODS.keys()
    assert len(bare_pods("Kueue", 2, "w")) == 2
