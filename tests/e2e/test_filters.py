"""The filters agree with the real kube-scheduler, pod by pod: the same placed, the same refused, for the same reasons."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field

import msgspec
import pytest
import sampling
from e2e_builders import condition
from filter_worlds import NAMESPACES, World

from e2e.api import Api, Json
from e2e.control_plane import SCHEDULER, UNTOUCHED, ControlPlane
from e2e.processes import until
from tonnage.decisions import Bind, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, NodeSpec, PodSpec
from tonnage.objects import core
from tonnage.scheduling import place
from tonnage.scheduling.explain import CONFLICT

PAIRS = range(30)
"""Of worlds: a narrow one and a roomy one."""
SAMPLED = (3, 12)
"""Pairs in a sampled run: at least so many, and more, up to the second, until enough of everything was seen."""
PODS_EACH = 50
ENOUGH = {"placed": 30, "refused": 30, "gated": 3, "bound by name": 3}
"""Of each outcome, in three pairs of worlds; ten times that in all."""
REASONS = (
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient nvidia.com/gpu",
    "Insufficient example.com/nic",
    "Too many pods",
    "node(s) were unschedulable",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
)
GATED = "SchedulingGated"
_MESSAGE = re.compile(r"0/\d+ nodes are available: (.*?)\.? ?(?:no new claims to deallocate, )?(?:preemption: .*)?")


@dataclass
class Answer:
    """``node``: where the pod goes, empty when it is refused for ``reasons`` (text → nodes)."""

    node: str = ""
    reasons: dict[str, int] = field(default_factory=dict)


class Theirs:
    """The real scheduler: what became of a pod."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.api: Api = plane.api()

    def begin(self, world: World) -> None:
        """The nodes of the world, and nothing else, in the API and in the scheduler's cache."""
        self.api.each(lambda ns: self.api.delete(f"/api/v1/namespaces/{ns}/pods"), NAMESPACES)
        self.api.delete("/api/v1/nodes")
        self._await_cache(0)
        self.api.each(lambda node: self.api.create("/api/v1/nodes", node), world.nodes)
        self._await_cache(len(world.nodes))

    def _await_cache(self, nodes: int) -> None:
        """It is counted once a second."""
        for kind, count in (("nodes", nodes), ("pods", 0)):
            wanted = f'type="{kind}"'
            until(
                f"{count} {kind} in the cache",
                lambda wanted=wanted, count=count: (
                    self.plane.metric(SCHEDULER, "scheduler_cache_size", wanted) == count
                ),
            )

    def create(self, pod: Json) -> Json:
        return self.api.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)

    def delete(self, pod: Json) -> None:
        self.api.delete(_path(pod))

    def open_gate(self, pod: Json) -> None:
        self.api.patch(_path(pod), {"spec": {"schedulingGates": None}})

    def answer(self, pod: Json) -> Answer:
        """Wait until the pod is bound or refused."""
        found: Json = {}

        def decided() -> bool:
            nonlocal found
            found = self.api.get(_path(pod))
            said = condition(found, "PodScheduled")
            return bool(found["spec"].get("nodeName")) or (
                said.get("status") == "False" and (said["reason"] != GATED or "schedulingGates" in found["spec"])
            )

        until(f"an answer for {pod['metadata']['name']}", decided, 30, 0.004)
        if node := found["spec"].get("nodeName"):
            return Answer(node)
        said = condition(found, "PodScheduled")
        return Answer(reasons={GATED: 1} if said["reason"] == GATED else _reasons(said["message"]))


class Ours:
    """The same cluster as a fleet."""

    def __init__(self, world: World) -> None:
        self.fleet = Fleet()
        self.cache = place.Cache(self.fleet)
        for written in world.nodes:
            node = msgspec.convert(written, core.Node)
            allocatable = core.amounts(node.status.allocatable)
            spec = NodeSpec(node.metadata.name, allocatable, node.metadata.labels, tuple(node.spec.taints))
            self.fleet.add_node(spec, schedulable=not node.spec.unschedulable)

    def create(self, written: Json) -> int:
        """Add a pod as the API server returned it."""
        pod = msgspec.convert(written, core.Pod)
        meta = pod.metadata
        return self.fleet.add_pod(PodSpec(meta.namespace, meta.name, meta.uid, meta.labels, pod.spec))

    def answer(self, row: int) -> tuple[Answer, set[str]]:
        """What is decided for the pod, and the nodes that it may go to."""
        rows = place.feasible(self.fleet, row, self.cache)
        feasible = {self.fleet.node(n).spec.name for n in rows}
        match place.decide(Snapshot(0, self.fleet), cache=self.cache):
            case [Bind(node=node)]:
                return Answer(node.name), feasible
            case [Wait(reason=reason)]:
                return Answer(reasons=_in_general(reason.evidence)), feasible
            case []:
                return Answer(reasons={GATED: 1}), feasible
        raise AssertionError("one pod is pending")


@dataclass
class Tally:
    """What has been compared. ``wrong``: one text for each disagreement."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    pairs: int = 0

    def seen(self, outcome: str) -> bool:
        """Whether there was enough of an outcome for the number of worlds."""
        return self.outcomes[outcome] >= ENOUGH[outcome] * max(1, self.pairs // SAMPLED[0])

    def complete(self) -> bool:
        """Whether every kind of outcome and every reason was among what has been compared."""
        return all(map(self.seen, ENOUGH)) and all(self.reasons[reason] for reason in REASONS)


@pytest.fixture(scope="module")
def tally(start_plane) -> Tally:
    """Worlds drawn by the seed, all of them in a long run, before both schedulers."""
    plane = start_plane(controllers=(), admission_off=UNTOUCHED, client_qps=2000)
    plane.namespace("other")
    result, theirs = Tally(), Theirs(plane)
    for pair in sampling.shuffled("pairs of worlds", PAIRS):
        if not sampling.LONG and result.pairs >= SAMPLED[0] and (result.complete() or result.pairs >= SAMPLED[1]):
            break
        for number in (2 * pair, 2 * pair + 1):
            world = World(number, roomy=number % 2 == 1)
            theirs.begin(world)
            _compare(number, world, theirs, result)
        result.pairs += 1
    sampling.counts["filters: worlds"] = 2 * result.pairs
    sampling.counts["filters: pods compared"] = result.outcomes["placed"] + result.outcomes["refused"]
    print(f"\n{dict(result.outcomes)}\n{json.dumps(result.reasons, indent=1)}")
    return result


def _compare(number: int, world: World, theirs: Theirs, tally: Tally) -> None:
    ours = Ours(world)
    for pod in world.pods(PODS_EACH):
        if pod["spec"].get("nodeName"):
            _bound_by_name(pod, theirs, ours, tally)
            continue
        row, wrong = _ask(pod, theirs, ours, tally)
        if wrong:  # what the real one did not know yet (a pod bound by name just now) is known a second later
            _drop(pod, row, theirs, ours)
            until("a second look", lambda: True, every_s=1.5)
            row, wrong = _ask(pod, theirs, ours, Tally())
        if wrong:
            name = pod["metadata"]["name"]
            tally.wrong.append(f"world {number}, pod {name}: {wrong}\n{json.dumps(pod['spec'])}")
            _drop(pod, row, theirs, ours)


def _bound_by_name(pod: Json, theirs: Theirs, ours: Ours, tally: Tally) -> None:
    """A pod that names its node never comes before a scheduler; it takes its room all the same."""
    row = ours.create(pod)
    node = ours.fleet.node_by_name[pod["spec"]["nodeName"]]
    requests = ours.fleet.requests(ours.fleet.pod_class(row).shape)
    fits = all(ours.fleet.free[node][column] >= amount for column, amount in requests)
    ours.fleet.remove_pod(row)
    if not fits:
        return  # a kubelet would refuse it
    ours.fleet.bind(ours.create(theirs.create(pod)), node)
    tally.outcomes["bound by name"] += 1


def _ask(pod: Json, theirs: Theirs, ours: Ours, tally: Tally) -> tuple[int, str]:
    """Ask both, and follow the real one. Returns our row of the pod and what is wrong, empty when they agree."""
    created = theirs.create(pod)
    row = ours.create(created)
    said, (we_say, feasible) = theirs.answer(pod), ours.answer(row)
    if said.reasons == {GATED: 1}:
        tally.outcomes["gated"] += 1
        if we_say.reasons != said.reasons:
            return row, f"gated, but we say {we_say}"
        theirs.open_gate(pod)
        ours.fleet.remove_pod(row)
        row = ours.create(theirs.api.get(_path(pod)) | {"spec": created["spec"] | {"schedulingGates": []}})
        said, (we_say, feasible) = theirs.answer(pod), ours.answer(row)
    if said.node:
        tally.outcomes["placed"] += 1
        if said.node not in feasible or we_say.node not in feasible:
            return row, f"bound to {said.node}, we say {we_say}, feasible {sorted(feasible)}"
        ours.fleet.bind(row, ours.fleet.node_by_name[said.node])
        return row, ""
    tally.outcomes["refused"] += 1
    tally.reasons.update(said.reasons.keys())
    if said.reasons != we_say.reasons:
        return row, f"refused: {said.reasons}\nwe say:  {we_say.reasons or we_say.node}"
    _drop(pod, row, theirs, ours)
    return row, ""


def _drop(pod: Json, row: int, theirs: Theirs, ours: Ours) -> None:
    theirs.delete(pod)
    ours.fleet.remove_pod(row)


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _in_general(evidence: tuple[tuple[str, object], ...]) -> dict[str, int]:
    """We name each taint, as kube-scheduler did before 1.36; it now counts the nodes with any. Of terms that conflict it
    gives no count."""
    if evidence[0][0] == CONFLICT:
        return {CONFLICT: 1}
    reasons: Counter[str] = Counter()
    for text, count in evidence:
        reasons[re.sub(r"untolerated taint {.*}", "untolerated taint(s)", text)] += int(str(count))
    return dict(reasons)


def _reasons(message: str) -> dict[str, int]:
    found = _MESSAGE.fullmatch(message)
    assert found, message
    if found[1].startswith(CONFLICT):
        return {CONFLICT: 1}
    return {text: int(count) for count, text in (part.split(" ", 1) for part in found[1].split(", "))}


def test_both_schedulers_place_and_refuse_the_same_pods_for_the_same_reasons(tally: Tally) -> None:
    assert not tally.wrong, "\n\n".join([f"{len(tally.wrong)} disagreements", *tally.wrong[:40]])


@pytest.mark.parametrize("outcome", ENOUGH)
def test_enough_pods_of_every_outcome_were_compared(tally: Tally, outcome: str) -> None:
    assert tally.seen(outcome), tally.outcomes


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_was_among_those_compared(tally: Tally, reason: str) -> None:
    assert tally.reasons[reason] >= (3 if sampling.LONG else 1)
