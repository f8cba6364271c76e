"""Restarts, kills and changes of leader while the controllers work: nothing bound twice, bought twice or lost."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sampling
from e2e_builders import GPU, HOSTNAME, node, pod_spec
from e2e_controllers import LEASES, USERS, Process, controller
from e2e_karpenter import IN_POOL, node_pool
from e2e_surge import CLAIMS, Live, changed, ready, running

from e2e.api import MERGE, Api, Json
from e2e.control_plane import ADMIN, API_SERVER, UNTOUCHED, ControlPlane
from e2e.processes import until
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.http import open_cluster

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
GPUS = 8
NODE_COUNT = 30
ROOM = NODE_COUNT * GPUS
BIG = 200
SIZES = {"big": BIG}
"""Nodes with another number of GPUs."""
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
TAKEN_OVER_S = 25.0
"""From a leader's stop to the last pod placed by another: the lease lasts 15 s, is looked at every 2 s, and the second
may have seen it 2 s late; the rest is the work itself on a busy machine."""
SEEN_AGAIN_S = 30.0
"""From the restored API server's being ready to the last of 220 pods placed: 3 s on two busy cores, and 15 s more where
the server was away for longer than a lease lasts, as another may have led meanwhile."""
ROUND = 11.0
"""Once round the loop of the nodes controller."""
POOLS = "/apis/karpenter.sh/v1/nodepools"


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    """Without anybody who makes, places or removes anything; 30 nodes of 8 GPUs, and the kinds of Karpenter."""
    found: ControlPlane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED, audit=True)
    client = open_cluster(str(found.kubeconfig()))
    define_missing_kinds(client)
    client.transport.close()
    if found.api().raw("GET", f"/api/v1/namespaces/{LEASES}")[0] == 404:
        found.namespace(LEASES)
    return found


@dataclass
class Cluster:
    """Thirty nodes, and the pods that a test makes on them."""

    plane: ControlPlane
    heard: int
    """How much of the audit log is older than the test."""

    @property
    def api(self) -> Api:
        return self.plane.api()

    def make(self, prefix: str, count: int, gpus: int = 1, first: int = 0, **fields: Any) -> None:
        """Pods PREFIX-FIRST and following, for our scheduler."""
        spec = pod_spec(gpus=gpus, schedulerName="tonnage", **fields)
        names = [f"{prefix}-{i:03}" for i in range(first, first + count)]
        self.api.each(lambda name: self.api.create(PODS, {"metadata": {"name": name}, "spec": spec}), names)

    def placed(self) -> dict[str, str]:
        """Node by pod."""
        pods = self.api.items(PODS)
        return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["spec"].get("nodeName")}

    def await_placed(self, count: int, limit_s: float = 60.0, every_s: float = 0.1) -> None:
        until(f"{count} pods are placed", lambda: len(self.placed()) >= count, limit_s, every_s)

    def claims(self) -> list[Json]:
        return self.api.items(CLAIMS)

    def check(self, count: int) -> None:
        """This many pods of one GPU are placed, none was bound twice, and no node has more than its GPUs.

        A binding whose caller or server was killed meanwhile may be missing in the audit log, or be there as failed."""
        where = self.placed()
        assert len(where) == count
        assert {name: held for name, held in Counter(where.values()).items() if held > SIZES.get(name, GPUS)} == {}
        events = [e for e in self.plane.audit()[self.heard :] if e.get("objectRef", {}).get("subresource") == "binding"]
        bound = Counter(e["objectRef"]["name"] for e in events if e["responseStatus"]["code"] == 201)
        assert bound.keys() <= where.keys()
        assert max(bound.values()) == 1


@pytest.fixture
def cluster(plane: ControlPlane) -> Iterator[Cluster]:
    """Thirty empty nodes at the start, nothing at the end."""
    found = Cluster(plane, len(plane.audit()))
    fresh = [
        node(f"n-{i:02}", {"cpu": "64", "memory": "256Gi", "pods": "50", GPU: str(GPUS)}) for i in range(NODE_COUNT)
    ]
    found.api.each(lambda body: found.api.create(NODES, body), fresh)
    found.api.create(POOLS, node_pool())
    yield found
    for path in (PODS, NODES, CLAIMS, POOLS):
        found.api.delete(path)
    until("nothing left", lambda: not any(found.api.items(path) for path in (PODS, NODES, CLAIMS)), 30)


Start = Callable[..., Process]


@pytest.fixture
def start(plane: ControlPlane) -> Iterator[Start]:
    """Starts controllers of these names; whatever happens they end with the test."""
    running: list[Process] = []

    def begin(*names: str, more: tuple[str, ...] = (), wait: bool = True) -> Process:
        process = controller(plane, *names, user=ADMIN, more=more)
        running.append(process)
        process.start(wait=wait)
        return process

    yield begin
    for process in running:
        process.stop(signal.SIGKILL)


def relists(process: Process) -> float:
    """How often it has listed the pods again."""
    return of_pods(process, "relists")


def histories(process: Process) -> float:
    """How often the pods' list was of another history than the one before."""
    return of_pods(process, "histories")


def of_pods(process: Process, counter: str) -> float:
    head = f'tonnage_informer_{counter}_total{{resource="pods"}} '
    return next(float(line.removeprefix(head)) for line in process.metrics().splitlines() if line.startswith(head))


def test_an_api_server_that_is_killed_is_waited_for_and_an_expired_watch_is_listed_again(
    plane: ControlPlane, cluster: Cluster, start: Start
) -> None:
    process = start("scheduler", "nodes")
    made = 0
    while made == 0 or (relists(process) == 0 and made < 200):  # on a busy machine all may be seen when it is killed
        cluster.make("killed", 50, first=made)
        cluster.await_placed(made + 1, every_s=0.002)
        plane.kill(API_SERVER)
        until("it says that it is degraded", lambda: process.readyz()[0] == 503, 30)
        assert "no connection to the API server" in process.readyz()[1]
        assert process.healthz()[0] == 200
        plane.compact()
        plane.programs[API_SERVER].start()
        made += 50
        cluster.await_placed(made, 90)
        until("it is well again", lambda: process.readyz()[0] == 200, 60)
    cluster.make("killed", 40, first=made)
    cluster.await_placed(made + 40, 90)
    cluster.check(made + 40)
    assert relists(process) >= 1
    assert process.end() == 0


@pytest.mark.parametrize("under_api_server", [False, True], ids=["as documented", "under a running API server"])
def test_when_etcd_is_restored_from_a_backup_new_pods_are_seen_at_once(
    plane: ControlPlane, cluster: Cluster, start: Start, under_api_server: bool
) -> None:
    """The revisions of the backup are lower than those that were seen: a watch from there would be silent until the
    server has caught up, with nothing wrong to be seen. Pods that the backup shows unbound are bound again. An API
    server that nobody restarts lists what was: then /readyz asks for it."""
    process = start("scheduler")
    assert process.process is not None
    cluster.make("bound", 20)
    cluster.await_placed(20)
    process.process.send_signal(signal.SIGSTOP)
    cluster.make("unbound", 20)
    backup = plane.backup()
    process.process.send_signal(signal.SIGCONT)
    cluster.make("lost", 200)
    cluster.await_placed(ROOM)
    plane.restore(backup, under_api_server=under_api_server)
    if under_api_server:
        try:
            until("it says what to do", lambda: "restart the API server, whose cache" in process.readyz()[1], 90)
        finally:  # the tests that come need one that sees its etcd
            plane.restart(API_SERVER)
    cluster.heard = len(plane.audit())
    begun = time.monotonic()
    cluster.make("new", 200)
    cluster.await_placed(ROOM, SEEN_AGAIN_S)
    took = time.monotonic() - begun
    until("it is well", lambda: process.readyz()[0] == 200, 30)
    cluster.check(ROOM)
    assert took < SEEN_AGAIN_S
    assert histories(process) >= 1
    assert process.end() == 0


def test_a_scheduler_that_is_killed_over_and_over_binds_every_pod_once(cluster: Cluster, start: Start) -> None:
    draw = sampling.draw("when a scheduler dies")
    kills = sampling.often("schedulers killed", 20, 3)
    each = ROOM // kills
    for first in range(0, kills * each, each):
        cluster.make("burst", each, first=first)
        more = draw.randint(1, each * 3 // 4)
        before = len(cluster.placed())
        process = start("scheduler", more=("--no-leader-elect",), wait=False)
        cluster.await_placed(before + more, every_s=0.002)
        process.stop(signal.SIGKILL)
    process = start("scheduler", more=("--no-leader-elect",))
    cluster.await_placed(kills * each)
    cluster.check(kills * each)
    assert process.end() == 0


def test_a_nodes_controller_that_is_killed_over_and_over_buys_no_node_twice(cluster: Cluster, start: Start) -> None:
    """Pods of four GPUs, and a NodePool whose machines have four: a NodeClaim for each, whoever is killed when."""
    draw = sampling.draw("when a nodes controller dies")
    nodes = sampling.often("nodes controllers killed", 12, 2)
    for i in range(nodes):
        cluster.make("bought", 1, gpus=4, first=i, nodeSelector=IN_POOL)
        process = start("scheduler", "nodes", more=("--no-leader-elect",), wait=False)
        until("it has launched", lambda i=i: len(cluster.claims()) > i, 60, 0.002)
        time.sleep(draw.uniform(0, 0.05))
        process.stop(signal.SIGKILL)
    process = start("scheduler", "nodes", more=("--no-leader-elect",))
    time.sleep(ROUND)
    assert len(cluster.claims()) == nodes
    assert process.end() == 0


def test_a_leader_that_was_paused_beyond_its_lease_does_nothing_more(cluster: Cluster, start: Start) -> None:
    """It is stopped in the middle of 200 bindings to one node. The next leader fills that node with more urgent pods;
    what the first had still to do would put more on it than it has."""
    first = start("scheduler", "nodes")
    cluster.make("early", 20)
    cluster.await_placed(20)
    second = start("scheduler", "nodes")
    assert first.process is not None
    on_big = {HOSTNAME: "big"}
    cluster.make("low", BIG, nodeSelector=on_big)
    cluster.api.create(PRIORITIES, {"metadata": {"name": "urgent"}, "value": 1000, "preemptionPolicy": "Never"})
    cluster.api.create(NODES, node("big", {"cpu": "64", "memory": "256Gi", "pods": "500", GPU: str(BIG)}))
    first_few = {"fieldSelector": "spec.nodeName=big", "limit": "5"}  # a whole list takes longer than the bindings
    until("the first are bound", lambda: len(cluster.api.get(PODS, **first_few)["items"]) == 5, 60, 0.001)
    first.process.send_signal(signal.SIGSTOP)
    begun, done = time.monotonic(), len(cluster.placed()) - 20
    assert done < BIG, "it was stopped too late to show anything"
    cluster.make("urgent", BIG, nodeSelector=on_big, priorityClassName="urgent")
    cluster.make("bought", 3, gpus=4, nodeSelector=IN_POOL)
    cluster.await_placed(20 + BIG)
    took = time.monotonic() - begun
    until("the second buys", lambda: len(cluster.claims()) == 3, 60)
    first.process.send_signal(signal.SIGCONT)
    cluster.make("late", 60)
    cluster.await_placed(20 + BIG + 60)
    until("the first knows", lambda: 'tonnage_leader{lease="tonnage-scheduler"} 0.0' in first.metrics(), 10)
    time.sleep(ROUND)
    cluster.check(20 + BIG + 60)
    assert len(cluster.claims()) == 3
    assert took < TAKEN_OVER_S
    late = {d["decision"]["pod"]["name"] for d in first.decided("Bind") if "late" in d["decision"]["pod"]["name"]}
    assert late == set()
    assert first.end() == 0
    assert second.end() == 0


# ---- a rolling update while replicas are set ----

RESTARTED = "example.com/restarted"
INFERENCE = "/api/v1/namespaces/inference/pods"
SOON = {
    "duration: 90m": "duration: 20m",
    "start: [20m, 30m]": "start: [1m, 2m]",
    "duration: 30m\n        ramp": "duration: 12m\n        ramp",
    "factor: [4, 6]": "factor: [5, 5.2]",
}


@pytest.fixture(scope="module")
def live(start_plane: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder: Path = tmp_path_factory.mktemp("rolling") / "scenario"
    surge = changed(folder, SOON)
    with running(start_plane(scheduler=False, users=USERS), folder, surge) as found:
        yield found


def test_a_rolling_update_ends_complete_and_with_the_right_count_while_replicas_are_set(live: Live) -> None:
    name, api = "model-a-serving", live.api
    path = f"/apis/apps/v1/namespaces/inference/deployments/{name}"
    until("model A scales out", lambda: live.controllers["replicas"].decided("Scale"), 90, 0.1)
    began = len(live.controllers["replicas"].decided("Scale"))
    stamp = {"spec": {"template": {"metadata": {"annotations": {RESTARTED: "1"}}}}}
    api.patch(path, stamp, MERGE)
    said = live.plane.kubectl("rollout", "status", "deployment", name, "-n", "inference", "--timeout=120s").stdout
    assert "successfully rolled out" in said
    until("replicas are set meanwhile", lambda: len(live.controllers["replicas"].decided("Scale")) > began, 60, 0.1)

    def settled() -> bool:
        """The pods are as many as wanted, all Ready and of the new template; nothing changed while they were read."""
        before = api.get(path)
        pods = [
            p for p in api.items(INFERENCE, labelSelector="app=model-a") if "deletionTimestamp" not in p["metadata"]
        ]
        status, wanted = before["status"], before["spec"]["replicas"]
        same = {status.get(key) for key in ("replicas", "updatedReplicas", "readyReplicas")} == {wanted}
        new = all(ready(p) and p["metadata"].get("annotations", {}).get(RESTARTED) == "1" for p in pods)
        return same and new and len(pods) == wanted and api.get(path) == before

    until("as many as wanted, all new", settled, 90, 0.2)
    for process in live.controllers.values():
        assert process.complaints() == [], process.tail()
