"""One list of commands against two clusters: the embedded API and a real kube-apiserver, step by step."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

import yaml_text
from kube_programs import QUICK_START
from tonnage.kube.resources import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    EVENTS,
    HPAS,
    NODE_POOLS,
    NODES,
    PDBS,
    PODS,
    REPLICA_SETS,
    SCALED_OBJECTS,
    SERVICES,
    Resource,
)
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client

HERE = Path(__file__).parent
MANIFESTS = HERE / "manifests"
NODE = "gpu-a"
WATCH_S = 1.0
SETTLE_S = 15.0
CLEANED = (
    DEPLOYMENTS,
    DAEMON_SETS,
    REPLICA_SETS,
    HPAS,
    PDBS,
    SERVICES,
    CONFIG_MAPS,
    SCALED_OBJECTS,
    NODE_POOLS,
    PODS,
    NODES,
    EVENTS,
)
Json = dict[str, Any]


def scenarios() -> list[Json]:
    """The list, as it is written."""
    found: list[Json] = yaml_text.load((HERE / "commands.yaml").read_text(encoding="utf-8"))["scenarios"]
    return found


def not_supported() -> list[Json]:
    """What is on the list as not supported."""
    found: list[Json] = yaml_text.load((HERE / "commands.yaml").read_text(encoding="utf-8"))["not_supported"]
    return found


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@dataclass(slots=True)
class Side:
    """One of the clusters."""

    name: str
    kubeconfig: Path
    kubectl: Path
    client: Client

    def environment(self) -> dict[str, str]:
        cache = self.kubeconfig.parent / f"{self.name}-cache"
        return os.environ | QUICK_START | {"KUBECONFIG": str(self.kubeconfig), "HOME": str(cache)}

    def words(self, command: str) -> list[str]:
        first, *rest = shlex.split(command)
        assert first == "kubectl", command
        return [str(self.kubectl), *rest]

    def run(self, command: str) -> Result:
        done = subprocess.run(
            self.words(command),
            check=False,
            cwd=MANIFESTS,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def watch(self, command: str, during: Sequence[str]) -> Result:
        """Run a command that does not end, do something meanwhile, and stop it."""
        running = subprocess.Popen(
            self.words(command),
            cwd=MANIFESTS,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(WATCH_S)
        for one in during:
            self.run(one)
        time.sleep(WATCH_S)
        running.terminate()
        out, err = running.communicate(timeout=10)
        return Result(running.returncode, out, err)

    def clean(self) -> None:
        """Remove what a scenario may have left."""
        deadline = time.monotonic() + SETTLE_S
        while left := list(self._leavings()):
            assert time.monotonic() < deadline, f"{self.name}: cannot be cleaned of {left}"
            for resource, name in left:
                namespace = "default" if resource.namespaced else ""
                with contextlib.suppress(ApiError):  # another may have been faster
                    self.client.delete(resource, name, namespace, grace_s=0, propagation="Background")
            time.sleep(0.2)

    def _leavings(self) -> Iterator[tuple[Resource, str]]:
        for resource in CLEANED:
            for obj in self.client.list(resource, "default" if resource.namespaced else ""):
                if obj["metadata"]["name"] != "kubernetes":
                    yield resource, obj["metadata"]["name"]

    # ---- what nodes and schedulers do ----

    def play(self, action: str) -> None:
        {
            "nodes-ready": self._nodes_ready,
            "run-pods": self._run_pods,
            "stop-pods": self._stop_pods,
            "settle": self._settle,
            "roll": self._roll,
        }[action]()

    def _nodes_ready(self) -> None:
        for node in self.client.list(NODES):
            name = node["metadata"]["name"]
            amounts = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "4", "pods": "110"}
            status = {
                "capacity": amounts,
                "allocatable": amounts,
                "addresses": [{"type": "InternalIP", "address": "10.1.0.1"}, {"type": "Hostname", "address": name}],
                "nodeInfo": {
                    "architecture": "amd64",
                    "bootID": "b",
                    "containerRuntimeVersion": "containerd://2.1.0",
                    "kernelVersion": "6.1.0",
                    "kubeProxyVersion": "",
                    "kubeletVersion": "v1.36.3",
                    "machineID": "m",
                    "operatingSystem": "linux",
                    "osImage": "Linux",
                    "systemUUID": "s",
                },
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "KubeletReady",
                        "message": "ready",
                        "lastHeartbeatTime": now(),
                        "lastTransitionTime": now(),
                    }
                ],
            }
            self._status(NODES, node, lambda old, status=status: {**old, **status})

    def _run_pods(self) -> None:
        """Bind every pod that waits to the node, and start it."""
        for pod in self._pods():
            meta, status = pod["metadata"], pod.get("status", {})
            if meta.get("deletionTimestamp") or status.get("phase") != "Pending" or pod["spec"].get("schedulingGates"):
                continue
            if not pod["spec"].get("nodeName"):
                self.client.bind(meta["name"], meta["namespace"], meta["uid"], NODE)
            containers = [
                {
                    "name": one["name"],
                    "image": one["image"],
                    "imageID": "",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now()}},
                }
                for one in pod["spec"]["containers"]
            ]
            conditions = [
                {"type": type_, "status": "True", "lastTransitionTime": now()}
                for type_ in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ]
            running = {
                "phase": "Running",
                "conditions": conditions,
                "containerStatuses": containers,
                "podIP": "10.2.0.1",
                "podIPs": [{"ip": "10.2.0.1"}],
                "hostIP": "10.1.0.1",
                "hostIPs": [{"ip": "10.1.0.1"}],
                "startTime": now(),
            }
            self._status(PODS, pod, lambda old, running=running: {**old, **running})

    def _stop_pods(self) -> None:
        """Let go of every pod that is to end."""
        for pod in self._pods():
            meta = pod["metadata"]
            if meta.get("deletionTimestamp"):
                self.client.delete(PODS, meta["name"], meta["namespace"], grace_s=0)

    def _pods(self) -> list[Json]:
        return list(self.client.list(PODS, "default"))

    def _status(self, resource: Resource, obj: Json, change: Callable[[Json], Json]) -> None:
        meta = obj["metadata"]
        for _ in range(20):
            current = self.client.get(resource, meta["name"], meta.get("namespace", ""))
            current["status"] = change(current.get("status", {}))
            try:
                self.client.replace(resource, current, meta.get("namespace", ""), "status")
            except ApiError as error:
                if error.code != 409:
                    raise
            else:
                return
        raise AssertionError(f"{self.name}: the status of {meta['name']} cannot be written")

    def _settle(self) -> None:
        """Wait until the controllers have done what they can for now: nothing changes and every spec was seen."""
        deadline, before = time.monotonic() + SETTLE_S, ""
        while time.monotonic() < deadline:
            state, is_seen = self._state()
            if is_seen and state == before:
                return
            before = state
            time.sleep(0.4)
        raise AssertionError(f"{self.name}: the controllers do not settle")

    def _state(self) -> tuple[str, bool]:
        texts, is_seen = [], True
        for resource in (DEPLOYMENTS, REPLICA_SETS, DAEMON_SETS, PDBS, PODS):
            for obj in self.client.list(resource, "default"):
                meta, status = obj["metadata"], obj.get("status", {})
                texts.append(f"{resource.plural} {meta['name']} {meta['resourceVersion']}")
                if resource is not PODS and status.get("observedGeneration") != meta.get("generation"):
                    is_seen = False
                for owner in meta.get("ownerReferences", ()) if resource in (PODS, REPLICA_SETS) else ():
                    is_seen = is_seen and not self._is_gone(owner, meta)
        return "\n".join(sorted(texts)), is_seen

    def _is_gone(self, owner: Json, meta: Json) -> bool:
        """Whether the garbage collector has still to come; what is being deleted waits for its node."""
        if meta.get("deletionTimestamp"):
            return False
        kinds = {"ReplicaSet": REPLICA_SETS, "Deployment": DEPLOYMENTS, "DaemonSet": DAEMON_SETS}
        try:
            self.client.get(kinds[owner["kind"]], owner["name"], meta["namespace"])
        except ApiError as error:
            return error.code == 404
        return False

    def _roll(self) -> None:
        """Run and stop pods until the Deployment has what it wants."""
        deadline = time.monotonic() + 2 * SETTLE_S
        while time.monotonic() < deadline:
            self._settle()
            self._run_pods()
            self._stop_pods()
            self._settle()
            if all(_is_rolled(obj) for obj in self.client.list(DEPLOYMENTS, "default")):
                return
        raise AssertionError(f"{self.name}: the rollout does not end")


def _is_rolled(deployment: Json) -> bool:
    wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
    counts = (status.get(name, 0) for name in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"))
    return all(count == wanted for count in counts)


def now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- comparing ----

_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
_RULES: tuple[tuple[str, str], ...] = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UID"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)", "TIME"),
    (r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d{4}", "TIME"),
    (rf"\b(web|still|made|agent)-{_LETTERS}{{6,10}}-{_LETTERS}{{5}}\b", r"\1-HASH-NAME"),
    (rf"\b(web|still|made|agent)-{_LETTERS}{{6,10}}\b", r"\1-HASH"),
    (rf"(pod-template-hash[=:] ?\"?){_LETTERS}{{6,10}}\b", r"\1HASH"),
    (rf"\b(web|still|made|agent)-{_LETTERS}{{5}}\b", r"\1-NAME"),
    (r"(?i)(resource ?version\"?: +)\"?\d+\"?", r"\1VERSION"),
    (r"(\"?uid\"?: ?)\S+", r"\1UID"),
    (r"\b10\.(0|96)\.\d+\.\d+\b", "ADDRESS"),
    (r"(LIVE|MERGED)-\d+", r"\1-DIR"),
    (r"\b\d+\.\d{9,}\b", "NUMBER"),
    (r"(?<=\s)(\d+[dhms]){1,2}(?=\s|$)", "AGE"),
    (r"AGE \(x\d+ over \w+\)", "AGE (AGAIN)"),
    (r"http(s)?://127\.0\.0\.1:\d+(/[\w-]{20,})?", "SERVER"),
    (r"(?m)^(PodCIDRs?): .*$", r"\1: RANGE"),
)


def normal(text: str, *, unsorted: bool = False) -> list[str]:
    """Output without ids, ages, times, addresses, random names and the width of columns, in lines."""
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    lines = [re.sub(r"(?<=\S) {2,}|\t+", "  ", line).rstrip() for line in text.splitlines()]
    return sorted(lines) if unsorted else lines


def compared(step: Json, left: Result, right: Result) -> list[str]:
    """What differs between two results, in lines to read."""
    found = []
    if left.code != right.code:
        found.append(f"exit code {left.code} / {right.code}")
    if step.get("compare", "output") == "output":
        for name in ("out", "err"):
            ours, theirs = (normal(getattr(side, name), unsorted=bool(step.get("unsorted"))) for side in (left, right))
            found += _differing(name, ours, theirs)
    return found


def _differing(name: str, ours: list[str], theirs: list[str]) -> list[str]:
    if ours == theirs:
        return []
    return [f"std{name}:", *unified_diff(theirs, ours, "kube-apiserver", "embedded", lineterm="", n=1)]


def play(scenario: Json, embedded: Side, real: Side) -> Iterator[str]:
    """Run a scenario against both; what differs, a text for each command."""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda side: side.clean(), (embedded, real)))
        if not scenario.get("empty"):
            list(pool.map(lambda side: side.run("kubectl apply -f nodes.yaml"), (embedded, real)))
            list(pool.map(lambda side: side.play("nodes-ready"), (embedded, real)))
        for step in scenario["commands"]:
            for action in step.get("before", ()):
                list(pool.map(lambda side, action=action: side.play(action), (embedded, real)))
            during = step.get("during")
            left, right = pool.map(
                lambda side, step=step, during=during: (
                    side.watch(step["run"], during) if during is not None else side.run(step["run"])
                ),
                (embedded, real),
            )
            found = compared(step, left, right)
            if found:
                yield "\n".join([f"$ {step['run']}", *found])
