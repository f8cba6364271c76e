"""Which gangs there are on a cluster, and of which each pod is: kept current from what informers report.

A gang comes from a pod group, from a workload, or from what pods alone say; what each object stands for is kept, and
rebuilt when that object changes. TrainJobs are rebuilt with the runtimes, and everything with the PriorityClasses
and topologies. Where several objects stand for one gang, the first in the order of :mod:`tonnage.live.group_kinds`
counts, then by name; what pods say counts last.

A pod may be there before the workload that made it: see :meth:`Groups.member_of`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tonnage.fleet.gangs import Gang
from tonnage.kube.clock import Clock
from tonnage.live.feed import Changes, Key
from tonnage.live.group_kinds import GROUPS, REFERRED, WORKLOADS
from tonnage.objects import core, groups, training
from tonnage.objects.base import KubeObject
from tonnage.objects.group_names import WorkloadReference
from tonnage.units import NS_PER_S
from tonnage.workloads.implied import WORDS
from tonnage.workloads.membership import (
    GangCandidate,
    Maker,
    Member,
    asked,
    first_of,
    maker_key,
    says_a_group,
    stamped,
    topologies_of,
)
from tonnage.workloads.naming import workload_key
from tonnage.workloads.priority import Priorities

UNSEEN_NS = 120 * NS_PER_S
"""For this long from its creation on, and from when its kind was last heard of again, a pod waits for the workload that
made it. A kind that was installed a moment ago is looked for once a minute at least
(:class:`tonnage.kube.reflector.Delays`)."""
KINDS = (*GROUPS, *WORKLOADS, *REFERRED)
"""What is read, in the order in which it counts."""
PLACES = {(resource.api_version, resource.kind): place for place, (resource, _) in enumerate(KINDS)}
"""The place of each kind in :data:`KINDS`, by apiVersion and kind."""

K = TypeVar("K")
V = TypeVar("V")
Source = tuple[int, str, str]
"""An object: its kind's place in :data:`KINDS`, namespace, name."""
ALONE = Member()
_POD = len(KINDS)
_OWNERS = {(resource.group, resource.kind): WORDS[type_] for resource, type_ in WORKLOADS if type_ in WORDS}


@dataclass(slots=True)
class _Pod:
    """A pod that may be of a gang. ``counted``: as what it counts among the pods that have done their work."""

    pod: core.Pod
    asked: tuple[GangCandidate, ...]
    created_ns: int
    owner: str
    member: Member = ALONE
    counted: Member | None = None


@dataclass(slots=True)
class _Touched:
    """What has changed since gangs were last settled. ``keys``: of gangs and workloads."""

    all: bool = False
    runtimes: bool = False
    sources: set[Source] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


class Groups:
    """``renew`` is called with every pod whose gang is another one now.

    ``unseen_ns``: how long a pod waits for a workload that is not there. ``is_served`` says of the word of a workload's
    kind (``jobset``) whether the cluster has it, ``is_behind`` whether nothing is heard of it at the moment."""

    def __init__(self, clock: Clock, changes: Changes, unseen_ns: int = UNSEEN_NS) -> None:
        self.gangs: dict[str, Gang] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.done: dict[str, Counter[str]] = {}
        """Of each gang, how many pods of each subgroup have succeeded."""
        self.is_served: Callable[[str], bool] = lambda word: False
        self.is_behind: Callable[[str], bool] = lambda word: False
        self.absent: Callable[[], frozenset[str]] = frozenset
        """Projects whose pod groups the cluster has not, so that who names one names nothing."""
        self.renew: Callable[[core.Pod], None] = lambda pod: None
        self._clock, self._changes, self._unseen_ns = clock, changes, unseen_ns
        self._objects: dict[Source, KubeObject] = {}
        self._created: dict[Source, int] = {}
        self._referred: dict[Source, KubeObject] = {}
        self._maker = Maker(Priorities(), {}, clock.of)
        self._made: dict[Source, dict[str, Gang]] = {}
        self._by_key: dict[str, dict[Source, Gang]] = {}
        self._makers: dict[str, set[Source]] = {}  # by how pods know a workload
        self._pods: dict[Key, _Pod] = {}
        self._asking: dict[str, set[Key]] = {}  # the pods that may be of a gang or of a workload's
        self._awaiting: dict[Key, int] = {}  # until when a pod waits for its workload
        self._behind_ns: dict[str, int] = {}  # when a kind that is waited for was last behind
        self._touched = _Touched()

    # ---- what informers report ----

    def seer(self, place: int) -> Callable[[KubeObject | None, KubeObject | None], None]:
        """Who is told of the objects of the kind at this place of :data:`KINDS`."""

        def see(old: KubeObject | None, new: KubeObject | None) -> None:
            self.see(place, old, new)

        return see

    def see(self, place: int, old: KubeObject | None, new: KubeObject | None) -> None:
        """A pod group, a workload or what they refer to was added, changed or deleted."""
        one = new or old
        assert one is not None
        source = (place, one.namespace, one.name)
        if KINDS[place] in REFERRED:
            _keep(self._referred, source, new)
            is_runtime = isinstance(one, training.TrainingRuntime)
            self._touched.runtimes |= is_runtime
            self._touched.all |= not is_runtime
            return
        before = self._objects.get(source)
        for key in {maker_key(each) for each in (before, new) if each is not None} - {""}:
            self._touched.keys.add(key)
        if before is not None:
            _drop(self._makers, maker_key(before), source)
        if new is not None and (key := maker_key(new)):
            self._makers.setdefault(key, set()).add(source)
        if before is None or new is None or before.metadata.uid != new.metadata.uid:
            created = self._clock.of(new.metadata.creation_timestamp) if new is not None else None
            _keep(self._created, source, created)
        _keep(self._objects, source, new)
        self._touched.sources.add(source)

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted. Tell this before its gang is asked for."""
        one = new or old
        assert one is not None
        key = (one.namespace, one.name)
        known = self._pods.get(key)
        if known is not None and (new is None or not _asks_alike(known.pod, new)):
            self._forget(key, known)
            known = None
        if new is None:
            return
        if known is None:
            known = self._begin(key, new)
        if known is not None:
            known.pod = new
            if says_a_group(new):
                self._touched.sources.add((_POD, *key))
                self.settle()
            known.member = self._member(key, known)
            self._count(known)

    def _begin(self, key: Key, pod: core.Pod) -> _Pod | None:
        meta = pod.metadata
        found = asked(meta.namespace, meta.labels, meta.annotations, pod.spec)
        if not found and not says_a_group(pod):
            return None
        owner = next((o for o in meta.owner_references if o.controller), None)
        word = _OWNERS.get((owner.api_version.rpartition("/")[0], owner.kind)) if owner is not None else None
        made_by = f"{meta.namespace}/{word}/{owner.name}" if owner is not None and word else ""
        one = self._pods[key] = _Pod(pod, found, self._clock.of(meta.creation_timestamp), made_by)
        for name in _names(one):
            self._asking.setdefault(name, set()).add(key)
        return one

    def _forget(self, key: Key, known: _Pod) -> None:
        del self._pods[key]
        self._awaiting.pop(key, None)
        for name in _names(known):
            _drop(self._asking, name, key)
        if known.counted is not None:
            self._uncount(known.counted)
        if (_POD, *key) in self._made:
            self._touched.sources.add((_POD, *key))

    # ---- what is asked ----

    def member_of(self, pod: core.Pod) -> Member:
        """The gang of a pod, as of when it was last seen or gangs were settled.

        A pod is taken for one of a gang that is not known, and so waits, while the workload that made it has not been
        seen: its labels name one of a kind that the cluster has, or its controller is one. Where a JobSet made the Job
        that made it, the JobSet says what the gang is, and the Job is not waited for. After ``unseen_ns`` in which
        the kind was heard of that workload counts as gone, and the pod as one on its own."""
        known = self._pods.get((pod.namespace, pod.name))
        return known.member if known is not None else ALONE

    def settle(self) -> None:
        """Make the gangs what all that was reported says."""
        touched, self._touched = self._touched, _Touched()
        if touched.all:
            self._look_at_referred()
            touched.sources |= self._objects.keys() | self._made.keys()
        elif touched.runtimes:
            touched.sources |= {source for source, obj in self._objects.items() if isinstance(obj, training.TrainJob)}
        made = self._make(source for source in touched.sources if source[0] != _POD)
        leaning = {(_POD, *key) for name in made for key in self._asking.get(name, ()) if self._leans(key, name)}
        made |= self._make(leaning | {source for source in touched.sources if source[0] == _POD})
        changed = {name for name in sorted(made) if self._choose(name)}
        if changed:
            self._changes.kinds.add("pod")
        for word in {_word(self._pods[key].member.gang) for key in self._awaiting}:
            self._listen(word)
        now = self._clock.now_ns()
        keys = {key for name in changed | touched.keys for key in self._asking.get(name, ())}
        keys |= {key for key, until in self._awaiting.items() if until <= now}
        for key in sorted(keys):
            self._reassign(key)

    # ---- gangs ----

    def _look_at_referred(self) -> None:
        referred = [one for _, one in sorted(self._referred.items(), key=lambda item: item[0])]
        ranks = Priorities(one for one in referred if isinstance(one, core.PriorityClass))
        self.topologies = topologies_of(one for one in referred if isinstance(one, groups.Topology))
        self._maker = Maker(ranks, self.topologies, self._clock.of)

    def _make(self, sources: Iterable[Source]) -> set[str]:
        """Rebuild what these objects stand for; the keys of the gangs that may be others now."""
        keys: set[str] = set()
        for source in sources:
            made = self._gangs_of(source)
            for key in self._made.get(source, ()):
                self._by_key[key].pop(source, None)
                keys.add(key)
            for key, gang in made.items():
                self._by_key.setdefault(key, {})[source] = gang
                keys.add(key)
            _keep(self._made, source, made or None)
        return keys

    def _gangs_of(self, source: Source) -> dict[str, Gang]:
        if source[0] == _POD:
            known = self._pods.get(source[1:])
            if known is None:
                return {}
            found = self._maker.of_pod(stamped(known.pod, ())[0], self._of_workload(known.pod))
            return {gang.key: gang for gang in found}
        obj = self._objects.get(source)
        if obj is None:
            return {}
        runtimes = (one for _, one in sorted(self._referred.items(), key=lambda item: item[0]))
        found = self._maker.of_object(obj, runtimes if isinstance(obj, training.TrainJob) else ())
        return {gang.key: replace(gang, created_ns=self._created[source]) for gang in found}

    def _of_workload(self, pod: core.Pod) -> dict[str, Gang]:
        """The group of a Workload of which the pod names a replica, if it is there."""
        reference = pod.spec.workload_ref
        key = _like(pod.namespace, reference.name, reference.pod_group) if reference is not None else ""
        made = self._by_key.get(key, {})
        first = min(made, default=(_POD, "", ""))
        return {key: made[first]} if first[0] != _POD else {}

    def _choose(self, key: str) -> bool:
        """Whether another gang has this key now."""
        made = self._by_key[key]
        gang = made[min(made)] if made else None
        if gang is None:
            del self._by_key[key]
        if gang == self.gangs.get(key):
            return False
        _keep(self.gangs, key, gang)
        return True

    def _leans(self, key: Key, name: str) -> bool:
        """Whether the pod makes a replica of the group of a Workload that has this key."""
        reference = self._pods[key].pod.spec.workload_ref
        return reference is not None and _like(key[0], reference.name, reference.pod_group) == name

    # ---- pods ----

    def _member(self, key: Key, known: _Pod) -> Member:
        self._awaiting.pop(key, None)
        outer_is_known = False
        for number, one in enumerate(known.asked):
            if one.key in self.gangs:
                return first_of(self.gangs, known.asked[number:])
            outer_is_known |= one.workload in self._makers
            if one.workload and not outer_is_known and self._is_awaited(known, one.workload):
                self._awaiting[key] = self._until(known, one.workload)
                return Member(one.workload)
        return ALONE

    def _is_awaited(self, known: _Pod, workload: str) -> bool:
        """Whether the pod, which is not bound, waits for this workload, which is not there."""
        if workload in self._makers or known.pod.spec.node_name:
            return False
        self._listen(_word(workload))
        if self._clock.now_ns() >= self._until(known, workload):
            return False
        return known.owner == workload or self.is_served(_word(workload))

    def _listen(self, word: str) -> None:
        """Note whether a kind is behind: of what was created since then nothing may have been heard."""
        if self.is_behind(word):
            self._behind_ns[word] = self._clock.now_ns()

    def _until(self, known: _Pod, workload: str) -> int:
        """Until when the pod waits for this workload to be seen."""
        return max(known.created_ns, self._behind_ns.get(_word(workload), 0)) + self._unseen_ns

    def _reassign(self, key: Key) -> None:
        known = self._pods.get(key)
        if known is None:
            return
        member = self._member(key, known)
        if member != known.member:
            known.member = member
            self._count(known)
            self.renew(known.pod)

    def _count(self, known: _Pod) -> None:
        """Count the pod among those that have done their work, if it has."""
        over = known.pod.status.phase == "Succeeded" and known.pod.metadata.deletion_timestamp is None
        now = known.member if over and known.member.gang else None
        if now == known.counted:
            return
        if known.counted is not None:
            self._uncount(known.counted)
        if now is not None:
            self.done.setdefault(now.gang, Counter())[now.subgroup] += 1
        known.counted = now

    def _uncount(self, member: Member) -> None:
        counts = self.done[member.gang]
        counts[member.subgroup] -= 1
        if not +counts:
            del self.done[member.gang]


def _word(workload: str) -> str:
    """Of which kind a workload is, by its key."""
    return workload.split("/")[1]


def _names(one: _Pod) -> set[str]:
    """Whatever changes the pod's gang when it changes: gangs, workloads, and the group of a Workload that it names."""
    names = {name for each in one.asked for name in (each.key, each.workload) if name}
    reference = one.pod.spec.workload_ref
    if reference is not None:
        names.add(_like(one.pod.namespace, reference.name, reference.pod_group))
    return names


def _like(namespace: str, name: str, group: str) -> str:
    """The key of a Workload's group, of which a pod's replica of it is made."""
    return workload_key(namespace, WorkloadReference(name=name, pod_group=group))


def _asks_alike(old: core.Pod, new: core.Pod) -> bool:
    """Whether both are one pod that says the same of its gang."""
    return (
        old.metadata.uid == new.metadata.uid
        and old.metadata.labels == new.metadata.labels
        and old.metadata.annotations == new.metadata.annotations
        and old.spec.scheduling_group == new.spec.scheduling_group
        and old.spec.workload_ref == new.spec.workload_ref
    )


def _keep(store: dict[K, V], key: K, value: V | None) -> None:
    if value is None:
        store.pop(key, None)
    else:
        store[key] = value


def _drop(store: dict[str, set[K]], name: str, one: K) -> None:
    found = store.get(name, set())
    found.discard(one)
    if not found:
        store.pop(name, None)
