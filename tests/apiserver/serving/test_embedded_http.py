"""The embedded API over HTTP: who may enter, streams, and protobuf bodies; kubectl itself where there is one."""

from __future__ import annotations

import http.client
import json
import socket
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from embedded import config, pod

import kube_programs
import yaml_text
from protobuf_wire import envelope, field
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.apiserver.request import decode_protobuf
from tonnage.apiserver.status import StatusError
from tonnage.errors import InputError
from tonnage.kube.resources import CONFIG_MAPS, NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.objects.api import protobuf


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(Api(bookmark_s=0.2)) as server:
        yield server


def call(server: Server, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, bytes]:
    """One request on a connection of its own; ``path`` as it is, the token not added."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_tokens_path_or_a_bearer_opens_the_door_and_nothing_else(server: Server) -> None:
    token = server.token
    assert urlsplit(server.url).path == f"/{token}"
    assert len(token) >= 32
    assert call(server, "GET", f"/{token}/version")[0] == 200
    assert call(server, "GET", "/version", Authorization=f"Bearer {token}")[0] == 200
    for path, headers in (
        ("/version", {}),
        ("/", {}),
        ("/healthz", {}),
        (f"/{token}x/version", {}),
        (f"/{token[:-1]}/version", {}),
        (f"/x/{token}/version", {}),
        ("/version", {"Authorization": f"Basic {token}"}),
        ("/version", {"Authorization": "Bearer wrong"}),
        (f"/version?token={token}", {}),
    ):
        code, body = call(server, "GET", path, **headers)
        assert (code, json.loads(body)["reason"]) == (401, "Unauthorized"), path


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "10.0.0.1"])
def test_a_name_that_was_bound_to_loopback_elsewhere_is_refused(server: Server, host: str) -> None:
    code, body = call(server, "GET", f"/{server.token}/version", Host=host)
    assert code in (400, 403), body


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:1", "LOCALHOST:8080", "[::1]:80"])
def test_loopback_names_are_let_in(server: Server, host: str) -> None:
    assert call(server, "GET", f"/{server.token}/version", Host=host)[0] == 200


def test_it_listens_on_loopback_only(server: Server) -> None:
    mine = socket.gethostbyname(socket.gethostname())
    if mine.startswith("127."):
        pytest.skip("this machine has no other address")
    with socket.socket() as other:
        other.settimeout(2)
        assert other.connect_ex((mine, server.port)) != 0


def test_a_body_that_is_too_large_is_refused(server: Server) -> None:
    path = f"/{server.token}{CONFIG_MAPS.path('default')}"
    code, body = call(server, "POST", path, b"x" * (3 * 2**20 + 1))
    assert (code, json.loads(body)["reason"]) == (413, "RequestEntityTooLarge")


def test_a_port_that_is_taken_is_said_so(server: Server) -> None:
    with pytest.raises(InputError, match=r"cannot listen on 127\.0\.0\.1"):
        Server(Api(), port=server.port).start()


def test_a_kubeconfig_is_for_its_owner_only(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "config"
    for url in ("http://127.0.0.1:1/old", server.url):
        kubeconfig.write(path, url, namespace="team")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = yaml_text.load(path.read_text())
    assert found["clusters"][0]["cluster"] == {"server": server.url}
    assert found["contexts"][0]["context"]["namespace"] == "team"
    assert [one.name for one in path.parent.iterdir()] == ["config"]


class Stream:
    """A watch over HTTP, read line by line."""

    def __init__(self, server: Server, query: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        self.connection.request("GET", f"/{server.token}{CONFIG_MAPS.path('default')}?watch=true&{query}")
        self.answer = self.connection.getresponse()

    def next(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.answer.readline())
        return found


def test_a_watch_streams_changes_as_they_come() -> None:
    api = Api()
    inside = Client(InProcess(api))
    with Server(api) as server:
        streams = [Stream(server, "resourceVersion=0") for _ in range(60)]  # more than a pool of threads
        for i in range(3):
            inside.create(CONFIG_MAPS, config(f"c{i}"), "default")
        for stream in streams:
            names = [stream.next()["object"]["metadata"]["name"] for _ in range(3)]  # type: ignore[index]
            assert names == ["c0", "c1", "c2"]
        server.stop()
        assert all(stream.answer.read() == b"" for stream in streams), "each was ended in order"


def test_a_client_that_goes_away_ends_its_watch() -> None:
    api = Api()
    with Server(api) as server:
        stream = Stream(server, "resourceVersion=0")
        followed = api.store._subscriptions
        deadline = time.monotonic() + 5
        while not followed.get(CONFIG_MAPS) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(followed[CONFIG_MAPS]) == 1
        stream.answer.close()
        stream.connection.close()
        while followed[CONFIG_MAPS] and time.monotonic() < deadline:
            time.sleep(0.01)
        assert followed[CONFIG_MAPS] == []


def test_many_clients_at_once_all_get_through(server: Server) -> None:
    codes: list[int] = []

    def work(worker: int) -> None:
        for i in range(10):
            body = json.dumps(config(f"many-{worker}-{i}")).encode()
            codes.append(call(server, "POST", f"/{server.token}{CONFIG_MAPS.path('default')}", body)[0])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert codes == [201] * 80


# ---- protobuf ----


def test_protobuf_bodies_become_the_json_that_they_stand_for() -> None:
    requests = field(1, b"cpu") + field(2, field(1, b"500m"))  # an entry of map<string, Quantity>
    container = field(1, b"main") + field(2, b"app:1") + field(8, field(2, requests))
    meta = field(1, b"web") + field(2, b"") + field(11, field(1, b"app") + field(2, b"web"))
    spec = field(2, container) + field(4, 0) + field(5, -1) + field(11, 0)
    template = field(1, field(11, field(1, b"app") + field(2, b"web"))) + field(2, spec)
    rolling = field(1, field(1, 1) + field(2, 0) + field(3, b"25%")) + field(
        2, field(1, 0) + field(2, 3) + field(3, b"")
    )
    deploy = field(1, meta) + field(
        2, field(1, 0) + field(3, template) + field(4, field(1, b"RollingUpdate") + field(2, rolling))
    )
    assert protobuf.decode(envelope(b"apps/v1", b"Deployment", deploy)) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {
            "replicas": 0,
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "containers": [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "500m"}}}],
                    "terminationGracePeriodSeconds": 0,
                    "activeDeadlineSeconds": -1,
                },
            },
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": 3}},
        },
    }


def test_times_and_bytes_of_protobuf_are_read() -> None:
    lease = field(1, field(1, b"l")) + field(
        2, field(1, b"me") + field(2, 15) + field(4, field(1, 1_800_000_000) + field(2, 5_000))
    )
    found = protobuf.decode(envelope(b"coordination.k8s.io/v1", b"Lease", lease))
    assert found["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "renewTime": "2027-01-15T08:00:00.000005Z",
    }
    binary = field(1, field(1, b"c")) + field(3, field(1, b"k") + field(2, b"\x00\xff"))
    assert protobuf.decode(envelope(b"v1", b"ConfigMap", binary))["binaryData"] == {"k": "AP8="}


def test_strings_that_kubernetes_writes_when_they_are_empty_are_kept() -> None:
    spec = field(1, 2) + field(5, b"") + field(6, b"")  # replicas, serviceName, podManagementPolicy
    found = protobuf.decode(envelope(b"apps/v1", b"StatefulSet", field(1, field(1, b"s")) + field(2, spec)))
    assert found["spec"] == {"replicas": 2, "serviceName": ""}


def test_fields_of_a_later_release_are_skipped() -> None:
    raw = field(1, field(1, b"c") + field(900, b"new")) + field(901, 7)
    assert protobuf.decode(envelope(b"v1", b"ConfigMap", raw))["metadata"] == {"name": "c"}


@pytest.mark.parametrize("cut", range(1, 30, 3))
def test_protobuf_that_is_cut_short_is_a_bad_request(cut: int) -> None:
    whole = envelope(b"v1", b"ConfigMap", field(1, field(1, b"name")) + field(2, field(1, b"k") + field(2, b"v")))
    with pytest.raises(StatusError) as refused:
        decode_protobuf(whole[:-cut])
    assert refused.value.code == 400


# ---- kubectl ----


class Kubectl:
    """kubectl with the kubeconfig of a server of its own."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.api = Api()
        self.inside = Client(InProcess(self.api))
        self.server = Server(self.api).start()
        self.path, self.folder = path, folder
        self.config = kubeconfig.write(folder / "config", self.server.url)

    def command(self, *words: str) -> list[str]:
        return [str(self.path), "--kubeconfig", str(self.config), f"--cache-dir={self.folder}/cache", *words]

    def __call__(self, *words: str, stdin: str = "", code: int = 0) -> str:
        done = subprocess.run(
            self.command(*words), input=stdin, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == code, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    made = Kubectl(kube_programs.kubectl(), tmp_path_factory.mktemp("kubectl"))
    yield made
    made.server.stop()


MANIFEST = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "registry.example/app:1", env: [{name: A, value: "1"}]}
"""


@pytest.mark.peer
def test_kubectl_applies_changes_scales_and_deletes(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=MANIFEST) == "deployment.apps/web created\n"
    assert kubectl("apply", "-f", "-", stdin=MANIFEST) == "deployment.apps/web unchanged\n"
    changed = MANIFEST.replace("env: [{name: A", "env: [{name: B").replace("app:1", "app:2")
    assert "app:2" in kubectl("diff", "-f", "-", stdin=changed, code=1)
    assert kubectl("apply", "-f", "-", stdin=changed) == "deployment.apps/web configured\n"
    env = kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.template.spec.containers[0].env[*].name}")
    assert env == "B", "what the manifest no longer names is gone"
    assert kubectl("scale", "deploy/web", "--replicas=5") == "deployment.apps/web scaled\n"
    conflict = kubectl("apply", "--server-side", "-f", "-", stdin=changed, code=1)
    assert ".spec.replicas" in conflict
    forced = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=changed)
    assert forced == "deployment.apps/web serverside-applied\n"
    assert kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "2"
    assert "web    0/2" in kubectl("get", "deployments")
    assert kubectl("set", "image", "deploy/web", "main=registry.example/app:3") == "deployment.apps/web image updated\n"
    assert kubectl("delete", "deploy", "web") == 'deployment.apps "web" deleted from default namespace\n'
    assert "NotFound" in kubectl("get", "deploy", "web", code=1)


@pytest.mark.peer
def test_kubectl_makes_objects_that_it_sends_as_protobuf(kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "made", "--image=registry.example/app", "--replicas=3")
    kubectl("create", "configmap", "made", "--from-literal=a=b")
    kubectl("create", "priorityclass", "made", "--value=7")
    kubectl("create", "poddisruptionbudget", "made", "--selector=app=made", "--min-available=50%")
    kubectl("create", "namespace", "made")
    assert kubectl("get", "deploy", "made", "-o", "jsonpath={.spec.replicas}") == "3"
    assert kubectl("get", "pdb", "made", "-o", "jsonpath={.spec.minAvailable}") == "50%"
    assert kubectl("get", "cm", "made", "-o", "jsonpath={.data.a}") == "b"


@pytest.mark.peer
def test_kubectl_validates_and_explains(kubectl: Kubectl) -> None:
    typo = MANIFEST.replace("replicas: 2", "replcas: 2")
    assert 'unknown field "spec.replcas"' in kubectl("apply", "-f", "-", stdin=typo, code=1)
    assert 'unknown field "spec.replcas"' in kubectl("apply", "--validate=warn", "-f", "-", stdin=typo)
    kubectl("delete", "deploy", "web")
    assert "nodeName" in kubectl("explain", "pod.spec.nodeName")


@pytest.mark.peer
def test_kubectl_watches(kubectl: Kubectl) -> None:
    kubectl.inside.create(PODS, pod("watched"), "default")
    command = kubectl.command("get", "pods", "-w", "--field-selector=metadata.name=watched", "--no-headers")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            assert "Pending" in running.stdout.readline()
            status = {"status": {"phase": "Running"}}
            kubectl.inside.patch(PODS, "watched", status, "default", subresource="status")
            assert "Running" in running.stdout.readline()
        finally:
            running.terminate()


@pytest.mark.peer
def test_kubectl_drains_under_a_budget(kubectl: Kubectl) -> None:
    kubectl.inside.create(NODES, {"metadata": {"name": "n1"}})
    made = kubectl.inside.create(PODS, pod("guarded", labels={"app": "guarded"}), "default")
    kubectl.inside.bind("guarded", "default", made["metadata"]["uid"], "n1")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kubectl.inside.patch(PODS, "guarded", {"status": ready}, "default", subresource="status")
    kubectl("create", "pdb", "guard", "--selector=app=guarded", "--min-available=1")
    refused = kubectl("drain", "n1", "--force", "--timeout=1s", code=1)
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused
    kubectl("delete", "pdb", "guard")
    running = subprocess.Popen(kubectl.command("drain", "n1", "--force"), stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 20
    while "deletionTimestamp" not in kubectl.inside.get(PODS, "guarded", "default")["metadata"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kubectl.inside.delete(PODS, "guarded", "default", grace_s=0)  # as its kubelet does
    output, _ = running.communicate(timeout=20)
    assert (running.returncode, "node/n1 drained" in output) == (0, True)
    assert kubectl("get", "node", "n1", "-o", "jsonpath={.spec.unschedulable}") == "true"
    assert kubectl("uncordon", "n1") == "node/n1 uncordoned\n"


@pytest.mark.peer
@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("logs", "plain"), "logs of containers are not supported here"),
        (("exec", "plain", "--", "ls"), "kubectl exec is not supported here"),
        (("get", "secrets"), "the server doesn't have a resource type"),
        (("create", "cronjob", "c", "--image=x", "--schedule=@daily"), "cronjobs are not supported here"),
        (("create", "secret", "generic", "s"), "secrets are not supported here"),
        (("auth", "can-i", "get", "pods"), "access reviews (kubectl auth can-i) are not supported here"),
        (("delete", "namespace", "default"), "this namespace may not be deleted"),
    ],
)
def test_kubectl_says_what_is_not_there(kubectl: Kubectl, words: tuple[str, ...], part: str) -> None:
    kubectl("apply", "-f", "-", stdin=json.dumps(pod("plain")))
    assert part in kubectl(*words, code=1)
