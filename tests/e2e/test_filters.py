"""The filters agree with the real kube-scheduler, pod by pod: the same nodes take it, or all refuse it for the same
reasons."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import sampling
from filter_sides import DEVICES, GATED, GATES_FLAG, STRATEGIC, V1, Extender, Ours, Theirs, path
from filter_worlds import HOLD, VERSIONS, World

from e2e.api import Json
from e2e.control_plane import API_SERVER, SCHEDULER, UNTOUCHED
from e2e.processes import until

PAIRS = range(36)
"""Of worlds: a narrow one and a roomy one, drawn by the seed of the run."""
SAMPLED = (3, 5)
"""Pairs in a sampled run: at least this many, and more, up to the second, until enough of everything was seen."""
PODS_EACH = 50
MISSING = 4
"""Reasons that a sampled run may not come across."""
LONG_RUN = 3000
"""Pods that a long run compares at least."""
EXCEPTIONS = 10
"""Pods of a long run of which the schedulers may say different things, though never that Tonnage places what the other
refuses."""
ENOUGH = {
    "placed": 30,
    "refused": 30,
    "gated": 3,
    "bound by name": 2,
    "relabelled": 1,
    "being deleted": 1,
    "resized": 1,
    "served by a claim": 2,
}
"""Of each, in three pairs of worlds; ten times that in all."""
REASONS = (
    "Insufficient cpu",
    "Insufficient memory",
    "Insufficient ephemeral-storage",
    "Insufficient nvidia.com/gpu",
    "Insufficient nvidia.com/mig-3g.40gb",
    "Insufficient example.com/nic",
    "cannot allocate all claims",
    "Too many pods",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't have free ports for the requested pod ports",
    "node(s) had no available disk",
    "node(s) didn't match PersistentVolume's node affinity",
    "node(s) didn't match pod affinity rules",
    "node(s) didn't match pod anti-affinity rules",
    "node(s) didn't satisfy existing pods anti-affinity rules",
    "node(s) didn't match pod topology spread constraints",
    "node(s) didn't match pod topology spread constraints (missing required label)",
    "node(s) didn't match Pod's required features",
)


@dataclass
class Tally:
    """What has been compared. ``wrong``: one text for each disagreement; ``dangerous``: those where Tonnage takes a
    node that kube-scheduler refuses."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    dangerous: list[str] = field(default_factory=list)
    pairs: int = 0

    def seen(self, outcome: str) -> bool:
        """Whether there was enough of an outcome for the number of worlds."""
        return self.outcomes[outcome] >= ENOUGH[outcome] * max(1, self.pairs // SAMPLED[0])

    def complete(self) -> bool:
        """Whether every kind of outcome and most reasons were among what has been compared."""
        return all(map(self.seen, ENOUGH)) and self.missing() <= MISSING

    def missing(self) -> int:
        """How many reasons nobody has given yet."""
        return sum(not self.reasons[reason] for reason in REASONS)


@pytest.fixture(scope="module")
def tally(start_plane, tmp_path_factory: pytest.TempPathFactory) -> Tally:
    """Worlds drawn by the seed, all of them in a long run, before both schedulers."""
    config: Path = tmp_path_factory.mktemp("scheduler") / "config.json"
    extender = Extender()
    flags = {API_SERVER: [GATES_FLAG], SCHEDULER: [f"{GATES_FLAG},OpportunisticBatching=false", f"--config={config}"]}
    plane = start_plane(controllers=(), admission_off=UNTOUCHED, held=(SCHEDULER,), flags=flags)
    config.write_text(json.dumps(extender.config(plane.kubeconfig(SCHEDULER))))
    plane.programs[SCHEDULER].start()
    result, theirs = Tally(), Theirs(plane, extender)
    theirs.prepare()
    for pair in PAIRS:
        if not sampling.LONG and result.pairs >= SAMPLED[0] and (result.complete() or result.pairs >= SAMPLED[1]):
            break
        for number in (2 * pair, 2 * pair + 1):
            world = World(f"{sampling.SEED}/{number}", roomy=number % 2 == 1)
            _Comparison(number, world, theirs, result).run()
        result.pairs += 1
    extender.stop()
    sampling.counts["filters: worlds"] = 2 * result.pairs
    sampling.counts["filters: pods compared"] = result.outcomes["placed"] + result.outcomes["refused"]
    sampling.counts["filters: pods judged differently"] = len(result.wrong)
    print(f"\n{dict(result.outcomes)}\n{json.dumps(result.reasons, indent=1)}")
    return result


class _Comparison:
    """One world before both schedulers; ours is told whatever theirs has done."""

    def __init__(self, number: int, world: World, theirs: Theirs, tally: Tally) -> None:
        self.number, self.world, self.theirs, self.tally = number, world, theirs, tally
        self.draw = random.Random(f"changes/{sampling.SEED}/{number}")
        listed = [("Namespace", "namespaces"), ("PersistentVolume", "persistentvolumes")]
        listed.append(("PersistentVolumeClaim", "persistentvolumeclaims"))
        there = [
            one | {"apiVersion": "v1", "kind": kind}
            for kind, plural in listed
            for one in theirs.api.items(f"/api/v1/{plural}")
        ]
        nodes = [node | {"apiVersion": "v1", "kind": "Node"} for node in theirs.begin(world)]
        devices = [
            one | {"apiVersion": V1, "kind": kind}
            for kind, plural in (("DeviceClass", "deviceclasses"), ("ResourceSlice", "resourceslices"))
            for one in theirs.api.items(f"{DEVICES}/{plural}")
        ]
        self.ours = Ours(*there, *devices, *nodes)

    def run(self) -> None:
        """Ask for every pod of the world."""
        for pod in self.world.pods(PODS_EACH):
            if pod["spec"].get("nodeName"):
                self._bound_by_name(pod)
                continue
            wrong = self._ask(pod)
            if wrong:  # what the real one did not know yet (a pod bound by name just now) is known a second later
                self._drop(pod)
                until("a second look", lambda: True, every_s=1.5)
                wrong = self._ask(pod, again=True)
            if wrong:
                name = pod["metadata"]["name"]
                text = f"world {self.number}, pod {name}: {wrong[1]}\n{json.dumps(pod)}"
                (self.tally.dangerous if wrong[0] else self.tally.wrong).append(text)
                if wrong[0]:
                    self.tally.wrong.append(text)
                self._drop(pod)

    def _bound_by_name(self, pod: Json) -> None:
        """A pod that names its node never comes before a scheduler; it takes its room all the same."""
        bare = pod | {"spec": {key: value for key, value in pod["spec"].items() if key != "nodeName"}}
        node, draft = pod["spec"]["nodeName"], bare | {"metadata": pod["metadata"] | {"uid": "draft"}}
        self.ours.see(draft)
        fits = node in self.ours.answer(draft).feasible
        self.ours.gone(draft)
        if fits:  # else a kubelet would refuse it
            self.ours.see(self.theirs.create(pod))
            self.tally.outcomes["bound by name"] += 1

    def _ask(self, pod: Json, *, again: bool = False) -> tuple[bool, str] | None:
        """Ask both, and follow the real one: whether the disagreement is a danger, and what it is; None: there is
        none."""
        tally = Tally() if again else self.tally
        self.ours.see(self.theirs.create(pod))
        said, we_say = self.theirs.answer(pod), self.ours.answer(pod)
        if said.reasons == {GATED: 1}:
            tally.outcomes["gated"] += 1
            if we_say.reasons != said.reasons:
                return True, f"gated, but we say {we_say}"
            if "LabelKeys" in json.dumps(pod):
                version = {"labels": {"version": self.draw.choice((*VERSIONS, None))}}
                self.theirs.api.patch(path(pod), {"metadata": version})
                tally.outcomes["relabelled"] += 1
            self.theirs.api.patch(path(pod), {"spec": {"schedulingGates": None}})
            said = self.theirs.answer(pod)
            now = self.theirs.api.get(path(pod))
            now["spec"].pop("nodeName", None)
            self.ours.see(now)
            we_say = self.ours.answer(pod)
        if we_say.feasible - said.feasible or (we_say.node and we_say.node not in said.feasible):
            return True, f"they take {sorted(said.feasible)}, we {sorted(we_say.feasible)}; they say {said.reasons}"
        if said.feasible - we_say.feasible:
            return False, f"they take {sorted(said.feasible)}, we {sorted(we_say.feasible)}, {we_say.reasons}"
        if said.node:
            tally.outcomes["placed"] += 1
            self._follow(pod, tally)
            return None
        tally.outcomes["refused"] += 1
        tally.reasons.update(said.reasons.keys())
        if said.reasons != we_say.reasons:
            return False, f"refused: {said.reasons}\nwe say:  {we_say.reasons}"
        self._drop(pod)
        return None

    def _follow(self, pod: Json, tally: Tally) -> None:
        """The pod is bound; some are resized, some are being deleted from now on."""
        if self.draw.random() < 0.1:
            self.theirs.api.patch(f"{path(pod)}/status", {"status": self._resized(pod)}, STRATEGIC)
            tally.outcomes["resized"] += 1
        if HOLD in (pod["metadata"].get("finalizers") or ()):
            self.theirs.api.delete(path(pod))
            tally.outcomes["being deleted"] += 1
        claims = self.theirs.claims()
        for one in claims:
            self.ours.see(one | {"apiVersion": V1, "kind": "ResourceClaim"})
        mine = [one for one in claims if one["metadata"]["ownerReferences"][0]["name"] == pod["metadata"]["name"]]
        tally.outcomes["served by a claim"] += len(mine)
        now = self.theirs.api.get(path(pod))
        for one in mine:
            self._compare_claim(one, now)
        self.ours.see(now)

    def _compare_claim(self, claim: Json, pod: Json) -> None:
        """Ours would have made the same claim for the pod on that node."""
        made = self.ours.claim_for(pod)
        theirs = (claim["spec"]["devices"]["requests"], pod["status"]["extendedResourceClaimStatus"]["requestMappings"])
        if made != theirs:
            self.tally.wrong.append(f"claim of {path(pod)}: they made {theirs}, we {made}")

    def _resized(self, pod: Json) -> Json:
        """A kubelet that is at work on the pod: it has and was granted other amounts than are asked for."""
        own = pod["spec"]["containers"][0]["resources"]
        own = {**own["limits"], **own["requests"]}
        amounts = [own | {"cpu": self.draw.choice(("50m", "2", "5")), "memory": "64Mi"} for _ in range(2)]
        main = {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 0}
        main |= {"resources": {"requests": amounts[0]}, "allocatedResources": amounts[1]}
        reason = self.draw.choice(("Deferred", "Infeasible", ""))
        pending = {"type": "PodResizePending", "status": "True", "reason": reason}
        return {"containerStatuses": [main], "conditions": [pending] if reason else []}

    def _drop(self, pod: Json) -> None:
        self.theirs.delete(pod)
        self.ours.gone(pod)


def test_nothing_is_placed_where_kube_scheduler_refuses_it(tally: Tally) -> None:
    assert not tally.dangerous, "\n\n".join([f"{len(tally.dangerous)} placed", *tally.dangerous[:40]])


def test_both_schedulers_find_the_same_nodes_or_the_same_reasons(tally: Tally) -> None:
    allowed = EXCEPTIONS if sampling.LONG else EXCEPTIONS // 10
    assert len(tally.wrong) <= allowed, "\n\n".join([f"{len(tally.wrong)} disagreements", *tally.wrong[:40]])


def test_a_long_run_compares_thousands_of_pods(tally: Tally) -> None:
    compared = tally.outcomes["placed"] + tally.outcomes["refused"]
    assert compared >= (LONG_RUN if sampling.LONG else 200)


@pytest.mark.parametrize("outcome", ENOUGH)
def test_enough_pods_of_every_outcome_were_compared(tally: Tally, outcome: str) -> None:
    assert tally.seen(outcome), tally.outcomes


@pytest.mark.parametrize("reason", REASONS)
def test_every_reason_was_among_those_compared(tally: Tally, reason: str) -> None:
    assert tally.reasons[reason] >= 3 if sampling.LONG else tally.reasons[reason] or tally.missing() <= MISSING
