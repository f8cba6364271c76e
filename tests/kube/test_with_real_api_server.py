"""The client against a real kube-apiserver and etcd.

Needs their programs (``kube_programs``)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import pytest
from client_checks import QUICK, Gate, check_election, check_events, names, pod, until

import kube_programs
from e2e.control_plane import UNTOUCHED, ControlPlane, Options
from tonnage.errors import InputError
from tonnage.kube.correlation import About
from tonnage.kube.events import event_object
from tonnage.kube.http import HttpTransport, check_version, open_cluster
from tonnage.kube.informer import Informers
from tonnage.kube.reflector import PAGE, Delays
from tonnage.kube.resources import EVENTS, NAMESPACES, NODE_POOLS, NODES, PODS
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, Ended
from tonnage.objects.core import Node, Pod
from tonnage.objects.karpenter import NodePool

pytestmark = [pytest.mark.peer, pytest.mark.slow]
MANY = 2000


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    options = Options(
        controllers=(), scheduler=False, admission_off=UNTOUCHED, audit=True, users={"reader": [], "nobody": []}
    )
    with ControlPlane(kube_programs.needed(), tmp_path_factory.mktemp("plane"), options) as started:
        yield started


@pytest.fixture(scope="module")
def client(plane: ControlPlane) -> Iterator[Client]:
    made = open_cluster(str(plane.kubeconfig()))
    yield made
    made.transport.close()


@pytest.fixture
def namespace(client: Client, request: pytest.FixtureRequest) -> str:
    name = f"t{abs(hash(request.node.name)) % 10**9}"
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def gate(client: Client) -> Gate:
    assert isinstance(client.transport, HttpTransport)
    return Gate(client.transport)


@pytest.fixture
def informers(gate: Gate) -> Iterator[Informers]:
    made = Informers(Client(gate), time.time, random.Random(1), delays=QUICK)  # type: ignore[arg-type]
    yield made
    gate.cut()
    assert made.stop()


@pytest.mark.e2e
def test_two_thousand_pods_come_by_pages_at_one_version(
    plane: ControlPlane, client: Client, informers: Informers, namespace: str
) -> None:
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda i: client.create(PODS, pod(f"p{i:04}"), namespace), range(MANY)))
    pods = informers.add(PODS, Pod, namespace=namespace)
    assert informers.wait_synced(30)
    assert {item.name for item in pods.items()} == {f"p{i:04}" for i in range(MANY)}
    path = f"/api/v1/namespaces/{namespace}/pods?"
    lists = [e["requestURI"] for e in plane.audit() if e["verb"] == "list" and e["requestURI"].startswith(path)]
    assert len(lists) == MANY // PAGE
    assert sum("continue=" in uri for uri in lists) == MANY // PAGE - 1
    one = pods.get(namespace, "p0007")
    assert one is not None
    assert (one.kind, one.status.phase, one.spec.scheduler_name) == ("Pod", "Pending", "tonnage")
    found = client.patch(PODS, "p0007", {"metadata": {"labels": {"seen": "yes"}}}, namespace)
    assert informers.wait_for(PODS, found["metadata"]["resourceVersion"], 10)
    one = pods.get(namespace, "p0007")
    assert one is not None
    assert one.metadata.labels["seen"] == "yes"


@pytest.mark.e2e
def test_what_nobody_waits_for_is_done_and_refused_as_what_is_waited_for(client: Client, namespace: str) -> None:
    """It goes out in protobuf, and errors come back in it."""

    def told(submit: Callable[[Ended], bool]) -> ClientError | None:
        found: SimpleQueue[ClientError | None] = SimpleQueue()
        assert submit(found.put)
        return found.get(timeout=10)

    uid = client.create(PODS, pod("bound"), namespace)["metadata"]["uid"]
    assert told(lambda done: client.submit_bind("bound", namespace, uid, "a-node", done)) is None
    assert client.get(PODS, "bound", namespace)["spec"]["nodeName"] == "a-node"
    for name, of, code in (("bound", uid, 409), ("other", "", 404)):
        with pytest.raises(ApiError) as waited:
            client.bind(name, namespace, of, "a-node")
        said = told(lambda done, name=name, of=of: client.submit_bind(name, namespace, of, "a-node", done))  # type: ignore[misc]
        assert isinstance(said, ApiError)
        assert (said.code, said.reason, str(said)) == (code, waited.value.reason, str(waited.value))
    about = About("v1", "Pod", "bound", namespace, uid)
    event = event_object("e", namespace, about, ("me", "here"), "Normal", "Tested", "né · 1", "2026-11-30T05:00:07Z")
    assert told(lambda done: client.submit_create(EVENTS, event, namespace, done)) is None
    written = client.get(EVENTS, "e", namespace)
    assert {key: written[key] for key in event if key != "metadata"} == {
        key: value for key, value in event.items() if key != "metadata"
    }
    again = told(lambda done: client.submit_create(EVENTS, event, namespace, done))
    assert isinstance(again, ApiError) and (again.code, again.reason) == (409, "AlreadyExists")


@pytest.mark.e2e
def test_a_bookmark_moves_an_idle_informer_on(gate: Gate, client: Client, namespace: str) -> None:
    """kube-apiserver sends one shortly before a watch times out, and once a minute. It knows only of progress that its
    own cache of the resource has seen; a consistent list brings that up to date."""
    delays = Delays(first=0.05, most=0.5, watch=(6.0, 6.0))
    informers = Informers(Client(gate), time.time, random.Random(1), delays=delays)  # type: ignore[arg-type]
    nodes = informers.add(NODES, Node)
    assert informers.wait_synced(10)
    version = int(client.create(PODS, pod("other"), namespace)["metadata"]["resourceVersion"])
    assert nodes.resource_version < version
    client.page(NODES, limit=1)
    assert informers.wait_for(NODES, version, 15)
    until(informers, lambda: len(gate.taken) >= 2)
    assert int(gate.taken[-1]["resourceVersion"]) >= version
    assert nodes.relists == 0
    assert informers.stop()


@pytest.mark.e2e
def test_a_restart_of_the_server_while_watching_loses_and_doubles_nothing(
    plane: ControlPlane, client: Client, informers: Informers, namespace: str
) -> None:
    for i in range(5):
        client.create(PODS, pod(f"before-{i}"), namespace)
    pods = informers.add(PODS, Pod, namespace=namespace)
    assert informers.wait_synced(10)
    changes: list[tuple[str, str]] = []
    pods.on_change(lambda change, old, new: changes.append((change, (new or old).name)))  # type: ignore[union-attr]
    changes.clear()
    plane.restart()
    for i in range(5):
        client.create(PODS, pod(f"after-{i}"), namespace)
    client.delete(PODS, "before-0", namespace, grace_s=0)
    until(informers, lambda: sorted(item.name for item in pods.items()) == names(client, namespace), 60)
    made = [name for change, name in changes if change == "added"]
    assert made == [f"after-{i}" for i in range(5)]
    assert [name for change, name in changes if change == "deleted"] == ["before-0"]


@pytest.mark.e2e
def test_after_compaction_it_lists_again_and_tells_what_was_missed(
    plane: ControlPlane, client: Client, gate: Gate, informers: Informers, namespace: str
) -> None:
    for name in ("stays", "goes"):
        client.create(PODS, pod(name), namespace)
    pods = informers.add(PODS, Pod, namespace=namespace)
    assert informers.wait_synced(10)
    until(informers, lambda: bool(gate.taken))
    changes: list[tuple[str, str]] = []
    pods.on_change(lambda change, old, new: changes.append((change, (new or old).name)))  # type: ignore[union-attr]
    changes.clear()
    gate.cut()
    client.delete(PODS, "goes", namespace, grace_s=0)
    client.create(PODS, pod("comes"), namespace)
    plane.compact()
    plane.restart()
    gate.shut = False
    until(informers, lambda: pods.relists >= 1, 60)
    assert sorted(changes) == [("added", "comes"), ("deleted", "goes")]
    assert not informers.problems()


def test_election_and_events(client: Client, namespace: str) -> None:
    check_election(client, namespace)
    check_events(client, namespace)


def test_a_bind_is_done_once(client: Client, namespace: str) -> None:
    uid = client.create(PODS, pod("one"), namespace)["metadata"]["uid"]
    client.bind("one", namespace, uid, "node-1")
    assert client.get(PODS, "one", namespace)["spec"]["nodeName"] == "node-1"


def test_a_reader_sends_reading_verbs_only(plane: ControlPlane) -> None:
    verbs = ["get", "list", "watch"]
    plane.grant("reader", [{"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": verbs}])
    client = open_cluster(str(plane.kubeconfig("reader")))
    informers = Informers(client, time.time, random.Random(1), delays=QUICK)
    informers.add(PODS, Pod)
    informers.add(NODES, Node)
    assert informers.wait_synced(20), informers.problems()
    informers.add(NODE_POOLS, NodePool)
    until(informers, lambda: bool(informers.problems()))
    assert informers.problems()["nodepools.karpenter.sh"].startswith("not allowed: list nodepools.karpenter.sh")
    assert informers.stop()
    client.transport.close()
    deadline = time.monotonic() + 10
    while not (seen := {e["verb"] for e in plane.audit() if e["user"]["username"] == "reader"}) >= {"list", "watch"}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert seen <= {"get", "list", "watch"}


def test_a_missing_crd_is_named(informers: Informers) -> None:
    informers.add(NODE_POOLS, NodePool)
    until(informers, lambda: bool(informers.problems()))
    assert informers.problems() == {
        "nodepools.karpenter.sh": "the cluster does not serve nodepools.karpenter.sh (install the CRDs of Karpenter)"
    }


def test_a_token_that_is_not_known_is_one_line(plane: ControlPlane) -> None:
    wrong = plane.write_kubeconfig("wrong", "expired")
    with pytest.raises(InputError, match=r"does not accept the credentials \(log in again") as caught:
        open_cluster(str(wrong))
    assert len(str(caught.value).splitlines()) == 1


def test_the_version_is_read(client: Client) -> None:
    assert check_version(client) >= (1, 31)


def test_stop_ends_watches_that_wait(client: Client) -> None:
    informers = Informers(client, time.time, random.Random(1), delays=QUICK)
    informers.add(PODS, Pod)
    informers.add(NODES, Node)
    assert informers.wait_synced(20)
    time.sleep(0.2)
    begun = time.monotonic()
    assert informers.stop()
    assert time.monotonic() - begun < 1
    assert not [t for t in threading.enumerate() if t.name.startswith("informer-")]
