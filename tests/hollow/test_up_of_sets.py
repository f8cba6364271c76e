"""What kubectl shows of sets with one cause each behind `tonnage up`: that cause, where Kubernetes would say it; and Ready
pods of a set that is well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deep_seeds import deep
from health.broken_sets import HERE, BrokenSet, broken, good
from hollow.running_api import Json
from hollow.up_in_step import UpInStep
from tonnage.health.blocker import (
    CRASHING,
    CREATING,
    NO_EFFECT,
    NOT_READY,
    REFUSED,
    UNSCHEDULABLE,
    Blocker,
)
from tonnage.kube.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS
from tonnage.kube.transport import ApiError
from tonnage.live.group_kinds import by_kind
from tonnage.simulation import run, scenario
from tonnage.simulation.findings.unserved import not_running

GROUP_QUOTA = "quota-below-replicas"
"""Of whose pods some are admitted."""
SETTLED_S = 1200.0
"""Seconds after which whatever happens to a pod that never runs has happened."""
SERVING_S = 1500.0
"""Seconds after which a pod that is well serves: a node is launched, an image pulled, an engine started."""


@contextmanager
def behind_up(one: BrokenSet, folder: Path, *, fixed: bool = False) -> Iterator[UpInStep]:
    loaded = scenario.load(one.write(folder, fixed=fixed))
    with UpInStep(run.set_up(loaded, loaded.default_policy)) as up:
        yield up


def pods_of(up: UpInStep, blocker: Blocker) -> list[Json]:
    """Those of the object, as far as their names say; of a group all in its namespace."""
    about, found = blocker.object, []
    for pod in up.list_pods():
        meta = pod["metadata"]
        if meta["namespace"] == (about.namespace or "default") and (
            about.kind == "PodGroup" or meta["name"] == about.name or meta["name"].startswith(f"{about.name}-")
        ):
            found.append(pod)
    return found


def condition(pod: Json, type_: str) -> Json:
    return next((one for one in pod["status"].get("conditions", ()) if one["type"] == type_), {})


def is_ready(pod: Json) -> bool:
    return condition(pod, "Ready").get("status") == "True"


def warnings(up: UpInStep, kind: str, name: str) -> list[tuple[str, str]]:
    return [(one["reason"], one["message"]) for one in up.events(kind, name) if one["type"] == "Warning"]


def said_of(blocker: Blocker) -> str:
    """What is said of the pods, whatever their names are."""
    said = blocker.said.partition("is forbidden: ")[2] or blocker.said.partition("is invalid: ")[2]
    return said or blocker.said


def shows_refused(up: UpInStep, blocker: Blocker, reason: str) -> None:
    about = blocker.object
    if refused := up.machines.errors.get(f"{about.kind} {about.namespace}/{about.name}"):
        assert refused.startswith("Invalid: ") and blocker.said.partition("spec.")[2] in refused
        return  # the object itself
    assert not [pod for pod in pods_of(up, blocker) if pod["status"]["phase"] != "Pending"]
    assert blocker.rule == GROUP_QUOTA or pods_of(up, blocker) == []
    if about.kind == "Pod":  # nobody makes it, and so nobody says that it is refused
        (told,) = [b for b in not_running(up.made.cluster, up.made.recorder(), up.made.known) if b.object == about]
        assert blocker.said in told.event
        return
    owners = [(about.kind, about.name)]
    if about.kind == "Deployment":
        owners = [("ReplicaSet", one["metadata"]["name"]) for one in up.client.list(REPLICA_SETS)]
        deployment = up.client.get(DEPLOYMENTS, about.name, about.namespace or "default")
        failure = condition(deployment, "ReplicaFailure")
        assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
        assert said_of(blocker) in failure["message"]
    said = [text for owner in owners for text in warnings(up, *owner)]
    assert any(why == "FailedCreate" and said_of(blocker) in message for why, message in said), said


def shows_unschedulable(up: UpInStep, blocker: Blocker, reason: str) -> None:
    pods = pods_of(up, blocker)
    if blocker.where.field.endswith("nodeName"):  # no scheduler is asked, and pods of nodes that are not there go
        assert not pods and not up.machines.errors
        return
    if blocker.rule == "host-port-taken":  # one of all who want it has it
        pods = [pod for pod in up.list_pods() if not pod["spec"].get("nodeName")]
    assert pods
    if blocker.rule == "scheduler-not-running":
        assert not any(condition(pod, "PodScheduled") or pod["spec"].get("nodeName") for pod in pods)
        return
    for pod in pods:
        scheduled = condition(pod, "PodScheduled")
        assert pod["status"]["phase"] == "Pending" and not pod["spec"].get("nodeName")
        assert (scheduled["status"], scheduled["reason"]) == ("False", reason or "Unschedulable")
        assert scheduled["message"]


def statuses(pods: Iterable[Json]) -> list[Json]:
    return [one for pod in pods for one in pod["status"]["containerStatuses"]]


def shows_creating(up: UpInStep, blocker: Blocker, reason: str) -> None:
    pods = pods_of(up, blocker)
    assert pods
    event = reason if reason.startswith("Failed") else "Failed"
    for pod in pods:
        assert pod["status"]["phase"] == "Pending" and not is_ready(pod)
        waiting = [one["state"]["waiting"]["reason"] for one in statuses([pod])]
        assert ("ContainerCreating" if reason.startswith("Failed") else reason) in waiting
        told = warnings(up, "Pod", pod["metadata"]["name"])
        assert any(why == event and blocker.said in message for why, message in told), told


def shows_crashing(up: UpInStep, blocker: Blocker, reason: str) -> None:
    pods = pods_of(up, blocker)
    assert pods and not any(map(is_ready, pods))
    if blocker.object.kind == "LeaderWorkerSet":  # which makes all pods of a group again
        told = [message for pod in pods for _, message in warnings(up, "Pod", pod["metadata"]["name"])]
        assert any(blocker.said in message for message in told)
        return
    if all(pod["spec"]["restartPolicy"] == "Never" for pod in pods):
        for pod, one in zip(pods, statuses(pods), strict=True):
            assert (pod["status"]["phase"], blocker.said in one["state"]["terminated"]["message"]) == ("Failed", True)
        return
    container = max(statuses(pods), key=lambda one: int(one["restartCount"]))
    assert container["restartCount"] >= 1
    ended = container["lastState"]["terminated"]
    assert ended["exitCode"] and blocker.said in ended["message"]
    assert container["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" or "running" in container["state"]


def shows_not_ready(up: UpInStep, blocker: Blocker, reason: str) -> None:
    pods = pods_of(up, blocker)
    assert pods
    for pod in pods:
        assert (pod["status"]["phase"], is_ready(pod)) == ("Running", False)
        assert all("running" in one["state"] for one in pod["status"]["containerStatuses"])
        if reason == "ReadinessGatesNotReady":
            assert condition(pod, "Ready")["reason"] == reason
        else:
            assert reason in [why for why, _ in warnings(up, "Pod", pod["metadata"]["name"])]


def shows_no_effect(up: UpInStep, blocker: Blocker, reason: str) -> None:
    """The object is there; what it would do does not happen."""
    about = blocker.object
    one = next(o for o in up.made.configuration.manifest.objects if (o.kind, o.name) == (about.kind, about.name))
    resource = by_kind(one.api_version, one.kind)
    assert resource is None or up.client.get(resource, about.name, about.namespace if resource.namespaced else "")


SHOWS = {
    REFUSED: shows_refused,
    UNSCHEDULABLE: shows_unschedulable,
    CREATING: shows_creating,
    CRASHING: shows_crashing,
    NOT_READY: shows_not_ready,
    NO_EFFECT: shows_no_effect,
}


def refuses_the_object(one: BrokenSet, folder: Path) -> None:
    """The API server says no to what is created, as it says to kubectl."""
    objects, _ = one.parts()
    (folder / "manifests").mkdir(parents=True)
    (folder / "manifests/node.yaml").write_text((HERE / "bases/node.yaml").read_text())
    loaded = scenario.load(folder)
    with UpInStep(run.set_up(loaded, loaded.default_policy)) as up:
        refused = []
        for body in objects:
            try:
                up.apply(body)
            except ApiError as error:
                refused.append(error.reason)
        assert refused == ["Invalid"]


def kubectl_shows_the_cause(one: BrokenSet, folder: Path) -> None:
    assert one.expect is not None
    rule, stage = one.expect["rule"], one.expect["stage"]
    if rule == "input-refused":
        refuses_the_object(one, folder)
        return
    with behind_up(one, folder) as up:
        up.run_for(SETTLED_S)
        known = up.made.known
        blocker = next((b for b in known.blockers if (b.rule, b.stage) == (rule, stage) and not b.some), None)
        if blocker is None:
            assert rule in {found.rule for found in known.findings}  # of a NodePool: its pods wait
            assert all(condition(pod, "PodScheduled")["status"] == "False" for pod in up.list_pods())
            return
        SHOWS[stage](up, blocker, str(one.expect.get("reason", "")))


def runs_in_up(one: BrokenSet, folder: Path, *, fixed: bool = False) -> None:
    """Every pod is Ready or done, unless it is one of which only some have a place; every workload has pods."""
    with behind_up(one, folder, fixed=fixed) as up:
        up.run_for(SERVING_S)
        some = {(b.object.namespace, b.object.name) for b in up.made.known.blockers if b.some}
        assert up.machines.errors == {}
        for deployment in (*up.client.list(DEPLOYMENTS), *up.client.list(STATEFUL_SETS)):
            meta, status = deployment["metadata"], deployment["status"]
            least = min(1, deployment["spec"]["replicas"])
            if (meta["namespace"], meta["name"]) not in some:
                least = deployment["spec"]["replicas"]
            assert status.get("readyReplicas", 0) >= least
        for pod in up.list_pods():
            made_by = next((o["kind"] for o in pod["metadata"].get("ownerReferences", ())), "")
            done = pod["status"]["phase"] == "Succeeded"
            assert made_by == "ReplicaSet" or done or is_ready(pod), pod["metadata"]["name"]


def runs_once_applied(one: BrokenSet, folder: Path) -> None:
    """What mends the set is applied while it is behind the API."""
    before, _ = one.parts()
    after, _ = one.parts(fixed=True)
    with behind_up(one, folder) as up:
        up.run_for(120)
        for body in after:
            if body not in before:
                up.apply(body)
        up.run_for(SERVING_S)
        told = not_running(up.made.cluster, up.made.recorder(), up.made.known)
        assert [(left.object, left.rule) for left in told if left.pods == left.wanted] == []
        pods = up.list_pods()
        assert pods and all(is_ready(pod) or pod["status"]["phase"] == "Succeeded" for pod in pods)


def made_in_up(one: BrokenSet) -> bool:
    """Whether the embedded API has the controllers that it takes: none makes ephemeral claims."""
    objects, _ = one.parts()
    return not any("ephemeral" in volume for body in objects for volume in _volumes(body))


def _volumes(body: Json) -> list[Json]:
    found: list[Json] = body.get("spec", {}).get("template", {}).get("spec", {}).get("volumes", [])
    return found


def in_part(sets: Iterable[BrokenSet]) -> list[BrokenSet]:
    """Of each stage the first of each of its first rules, and of each reason that kubectl shows."""
    found: dict[tuple[str, str], BrokenSet] = {}
    for one in sets:
        assert one.expect is not None
        found.setdefault((one.expect["stage"], str(one.expect.get("reason", ""))), one)
    return list(found.values())


def name(one: BrokenSet) -> str:
    return one.name.replace(" ", "-")


BROKEN = [one for one in broken() if made_in_up(one) and one.expect]
GOOD = [one for one in good() if made_in_up(one)]


@pytest.mark.parametrize("one", in_part(BROKEN)[::2], ids=name)
def test_kubectl_shows_the_cause(one: BrokenSet, tmp_path: Path) -> None:
    kubectl_shows_the_cause(one, tmp_path / "set")


@pytest.mark.parametrize("one", BROKEN[::40], ids=name)
def test_pods_run_once_the_set_is_mended(one: BrokenSet, tmp_path: Path) -> None:
    runs_in_up(one, tmp_path / "set", fixed=True)


@pytest.mark.parametrize("one", GOOD[::20], ids=name)
def test_pods_of_a_good_set_run(one: BrokenSet, tmp_path: Path) -> None:
    runs_in_up(one, tmp_path / "set")


@pytest.mark.parametrize("one", deep(BROKEN), ids=name)
def test_kubectl_shows_the_cause_of_every_set_and_pods_run_once_it_is_mended(one: BrokenSet, tmp_path: Path) -> None:
    kubectl_shows_the_cause(one, tmp_path / "broken")
    runs_in_up(one, tmp_path / "mended", fixed=True)


@pytest.mark.parametrize("one", deep(GOOD), ids=name)
def test_pods_of_every_good_set_run(one: BrokenSet, tmp_path: Path) -> None:
    runs_in_up(one, tmp_path / "set")


APPLIED = (
    "service account missing",
    "quota of gpus below one pod",
    "config map of a volume missing",
    "config map of a training job missing",
    "no such model",
    "readiness probe of a port on which nothing listens",
    "node selector for a GPU that no node has",
    "taint of the NodePool not tolerated",
    "image with capitals",
    "service selects another label value",
)
"""Sets that one can mend without making an object again."""


@pytest.mark.parametrize("one", [one for one in BROKEN if one.name in APPLIED[::3]], ids=name)
def test_pods_run_once_what_mends_the_set_is_applied(one: BrokenSet, tmp_path: Path) -> None:
    runs_once_applied(one, tmp_path / "set")


@pytest.mark.parametrize("one", deep(one for one in BROKEN if one.name in APPLIED), ids=name)
def test_pods_of_every_such_set_run_once_what_mends_it_is_applied(one: BrokenSet, tmp_path: Path) -> None:
    runs_once_applied(one, tmp_path / "set")
