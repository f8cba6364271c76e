"""The real kube-scheduler and the live scheduler of Tonnage before the same API, each asked for one pod at a time."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from e2e_builders import condition
from filter_worlds import CLAIMS, CLASSES, DRIVER, GATES, HOLD, NAMESPACES, RUNTIMES, TEAMS, ZONE, World

from e2e.api import Api, Json
from e2e.control_plane import SCHEDULER, ControlPlane
from e2e.processes import LOCAL, until
from tonnage.decisions import Bind, Wait
from tonnage.live.feed import Changes
from tonnage.live.groups import Groups
from tonnage.live.observed import Observed
from tonnage.objects import core, dra, storage
from tonnage.objects.base import KubeObject
from tonnage.scheduling import place
from tonnage.scheduling.explain import CONFLICT
from tonnage.workloads.membership import epoch

GATED = "SchedulingGated"
GATES_FLAG = f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}"
STRATEGIC = "application/strategic-merge-patch+json"
V1 = "resource.k8s.io/v1"
DEVICES = f"/apis/{V1}"
NO_SCORE = "running PreScore plugin"
"""How kube-scheduler begins to say that it cannot compare the nodes that fit."""
_MESSAGE = re.compile(
    r"0/\d+ nodes are available: (.*?)\.? ?(?:no new claims to deallocate, |still not schedulable, )?(?:preemption: .*)?"
)


@dataclass
class Answer:
    """``node``: where the pod goes, empty when it is refused for ``reasons`` (text → nodes); ``feasible``: the nodes
    that take it."""

    node: str = ""
    reasons: dict[str, int] = field(default_factory=dict)
    feasible: set[str] = field(default_factory=set)


class Extender:
    """Asked by kube-scheduler for the nodes that passed all of its filters: it notes them, and agrees."""

    def __init__(self) -> None:
        self.feasible: dict[str, set[str]] = {}
        """By the pod's uid."""
        noted = self.feasible

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                names = asked.get("NodeNames") or asked.get("nodenames") or []
                pod = asked.get("Pod") or asked["pod"]
                noted[pod["metadata"]["uid"]] = set(names)
                answer = json.dumps({"NodeNames": names, "nodenames": names}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing: it is asked for every pod."""

        self._server = ThreadingHTTPServer((LOCAL, 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def config(self, kubeconfig: Path) -> Json:
        """Of a scheduler that asks this extender, and looks at every node."""
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 2000, "burst": 4000},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "extenders": [
                {
                    "urlPrefix": f"http://{LOCAL}:{self._server.server_address[1]}",
                    "filterVerb": "filter",
                    "nodeCacheCapable": True,
                    "httpTimeout": "10s",
                }
            ],
        }

    def stop(self) -> None:
        self._server.shutdown()


class Theirs:
    """The API, with the real scheduler behind it: what became of a pod."""

    def __init__(self, plane: ControlPlane, extender: Extender) -> None:
        self.plane, self.extender = plane, extender
        self.api: Api = plane.api()
        self._held: dict[str, Json] = {}

    def prepare(self) -> None:
        """What all worlds have in common: namespaces, runtimes, volumes and claims."""
        for name in NAMESPACES[1:]:
            self.plane.namespace(name)
        for name, labels in TEAMS.items():
            if labels:
                self.api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": labels}})
        for name, more in RUNTIMES.items():
            body = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": "x"}
            self.api.create("/apis/node.k8s.io/v1/runtimeclasses", body | more)
        for namespace in NAMESPACES:
            for name in CLAIMS:
                _bound(self.api, namespace, name)
        for name, resource in CLASSES.items():
            text = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].kind == '{name}'"
            spec: Json = {"selectors": [{"cel": {"expression": text}}]}
            spec |= {"extendedResourceName": resource} if resource else {}
            body = {"apiVersion": V1, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
            self.api.create(f"{DEVICES}/deviceclasses", body)

    def begin(self, world: World) -> list[Json]:
        """The nodes of the world, and nothing else, in the API and in the scheduler's cache; as they are stored."""
        for path in list(self._held):
            self.let_go(path)
        self.api.each(lambda ns: self.api.delete(f"/api/v1/namespaces/{ns}/pods"), NAMESPACES)
        for claim in self.claims():
            meta = claim["metadata"]
            at = f"{DEVICES}/namespaces/{meta['namespace']}/resourceclaims/{meta['name']}"
            self.api.patch(at, {"metadata": {"finalizers": None}})
            self.api.delete(at)
        self.api.delete(f"{DEVICES}/resourceslices")
        self.api.delete("/api/v1/nodes")
        self._await_cache(0)
        self.api.each(lambda one: self.api.create(f"{DEVICES}/resourceslices", one), world.slices)
        self.api.each(lambda node: self.api.create("/api/v1/nodes", node), world.nodes)
        self._await_cache(len(world.nodes))
        return self.api.items("/api/v1/nodes")

    def claims(self) -> list[Json]:
        """The claims that there are: those that the scheduler has made for extended resources of pods."""
        return self.api.items(f"{DEVICES}/resourceclaims")

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
        created = self.api.create(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods", pod)
        if HOLD in (pod["metadata"].get("finalizers") or ()):
            self._held[path(pod)] = created
        return created

    def delete(self, pod: Json) -> None:
        self.api.delete(path(pod))
        if path(pod) in self._held:
            self.let_go(path(pod))

    def let_go(self, of: str) -> None:
        """Take the finalizer away: a pod that is being deleted is gone then."""
        del self._held[of]
        status, _ = self.api.raw(
            "PATCH", of, {"metadata": {"finalizers": None}}, content_type="application/merge-patch+json"
        )
        assert status in (200, 404), status

    def answer(self, pod: Json) -> Answer:
        """Wait until the pod is bound or refused."""
        found: Json = {}

        def decided() -> bool:
            nonlocal found
            found = self.api.get(path(pod))
            said = condition(found, "PodScheduled")
            return bool(found["spec"].get("nodeName")) or (
                said.get("status") == "False" and (said["reason"] != GATED or "schedulingGates" in found["spec"])
            )

        until(f"an answer for {pod['metadata']['name']}", decided, 30, 0.004)
        if node := found["spec"].get("nodeName"):
            return Answer(node, feasible=self.extender.feasible[found["metadata"]["uid"]])
        said = condition(found, "PodScheduled")
        message = said["message"]
        if message.startswith(NO_SCORE):
            return Answer(reasons={message: 1}, feasible=self.extender.feasible[found["metadata"]["uid"]])
        return Answer(reasons={GATED: 1} if said["reason"] == GATED else _reasons(message))


def _bound(api: Api, namespace: str, name: str) -> None:
    """A claim that is bound to a volume, as the volume controller leaves both."""
    volume, mode = f"{namespace}-{name}", "ReadWriteOncePod" if name == "alone" else "ReadWriteMany"
    zone = {"key": ZONE, "operator": "In", "values": [name.removeprefix("in-")]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}}}
    spec: Json = {
        "capacity": {"storage": "1Gi"},
        "accessModes": [mode],
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": name},
        "csi": {"driver": "csi.example.com", "volumeHandle": volume},
        **(affinity if name != "alone" else {}),
    }
    meta = {"name": volume}
    api.create(
        "/api/v1/persistentvolumes",
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec | {"storageClassName": ""}},
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {
            "accessModes": [mode],
            "volumeName": volume,
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    made = api.create(claims, claim)
    api.patch(f"/api/v1/persistentvolumes/{volume}", {"spec": {"claimRef": {"uid": made["metadata"]["uid"]}}})
    for at in (f"/api/v1/persistentvolumes/{volume}", f"{claims}/{name}"):
        api.patch(f"{at}/status", {"status": {"phase": "Bound"}})


class _Clock:
    def now_ns(self) -> int:
        return 0

    def of(self, timestamp: str | None) -> int:
        return epoch(timestamp)


_TYPES: Mapping[str, type[KubeObject]] = {
    "Node": core.Node,
    "Pod": core.Pod,
    "Namespace": core.Namespace,
    "PersistentVolume": storage.PersistentVolume,
    "PersistentVolumeClaim": storage.PersistentVolumeClaim,
    "DeviceClass": dra.DeviceClass,
    "ResourceSlice": dra.ResourceSlice,
    "ResourceClaim": dra.ResourceClaim,
}


class Ours:
    """The same cluster as the live scheduler sees it: told what watches would report."""

    def __init__(self, *objects: Json) -> None:
        changes = Changes(set())
        self.state = Observed(_Clock(), Groups(_Clock(), changes), price=lambda *_: 0, changes=changes)
        self.fleet = self.state.fleet
        self.cache = place.Cache(self.fleet)
        self._there: dict[str, KubeObject] = {}
        for one in objects:
            self.see(one)

    def see(self, written: Json) -> None:
        """An object as the API has it now."""
        self._tell(written, msgspec.convert(written, _TYPES[written["kind"]], strict=False))

    def gone(self, written: Json) -> None:
        self._tell(written, None)

    def _tell(self, written: Json, new: Any) -> None:
        key = f"{written['kind']} {path(written)}"
        old: Any = self._there.pop(key, None)
        if new is not None:
            self._there[key] = new
        state = self.state
        match written["kind"]:
            case "Pod":
                state.see_pod(old, new)
            case "Node":
                state.see_node(old, new)
            case "Namespace":
                state.see_namespace(old, new)
            case "DeviceClass" | "ResourceSlice" | "ResourceClaim":
                state.see_devices(old, new)
            case _:
                state.see_volumes(old, new)

    def claim_for(self, pod: Json) -> tuple[list[Json], list[Json]]:
        """The requests of the claim for the extended resources of a pod on its node, and which container has what."""
        spec, asks = msgspec.convert(pod["spec"], core.PodSpec, strict=False), self.fleet.device_claims.asks
        served = self.fleet.served(self.fleet.node_by_name[pod["spec"]["nodeName"]])
        meta = pod["metadata"]
        need = asks.need(meta["namespace"], meta["name"], meta["uid"], spec)
        made = asks.extended_claim(meta["namespace"], meta["name"], meta["uid"], need.asks, served)
        requests = [_defaulted(msgspec.to_builtins(one)) for one in made.spec.devices.requests] if made else []
        return requests, [msgspec.to_builtins(one) for one in asks.mappings(spec, served)]

    def answer(self, pod: Json) -> Answer:
        """What is decided for the pod, the only one that is pending, and the nodes that it may go to."""
        meta = pod["metadata"]
        snapshot = self.state.snapshot(0)
        if not self.cache.fits(self.fleet):
            self.cache = place.Cache(self.fleet)
        row = self.fleet.pod_by_key[meta["namespace"], meta["name"]]
        feasible = {self.fleet.node(n).spec.name for n in place.feasible(self.fleet, row, self.cache)}
        match place.decide(snapshot, place.Settings(strict=True), self.cache):
            case [Bind(node=node)]:
                return Answer(node.name, feasible=feasible)
            case [Wait(reason=reason)]:
                return Answer(reasons=_in_general(reason.evidence), feasible=feasible)
            case []:
                return Answer(reasons={GATED: 1})
        raise AssertionError("one pod is pending")


def _defaulted(request: Json) -> Json:
    """A request as the API server stores it."""
    defaults = {"allocationMode": "ExactCount", "count": 1}
    return {**request, "exactly": {**defaults, **request["exactly"]}}


def path(one: Json) -> str:
    """Of a pod in the API; of what has no namespace, its name."""
    meta = one["metadata"]
    return f"/api/v1/namespaces/{meta.get('namespace', '')}/pods/{meta['name']}"


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
