"""The live scheduler under weight, on a real API server: pods that wait, bindings with their events, a quiet cluster
and a large one. What is measured is the program that users run, ``tonnage controller``, beside kube-scheduler where it
does the same. Times are those of a watch: when the API server said so.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from e2e.api import MERGE, Api, Json
from e2e.build import built
from e2e.control_plane import API_SERVER, SCHEDULER, UNTOUCHED, ControlPlane
from e2e.control_plane import Options as PlaneOptions
from e2e.processes import LOCAL, Program, free_ports, until

QPS = 10_000
GPU = "nvidia.com/gpu"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
STALLED_S = 60.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
UNLIMITED = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=0",
    "--max-mutating-requests-inflight=0",
)
"""The API server takes every request at once. By default, without priority and fairness, it refuses what comes beside
200 others that write: kube-scheduler, which has more under way in a burst, would wait a second each time."""
ELECTION = ("=true", "-retry-period=50ms", "-renew-deadline=60s", "-lease-duration=90s")
AMOUNTS = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
SECTIONS = ("waiting", "told", "quiet", "large")


@dataclass(frozen=True)
class Size:
    """How much of everything. ``rate``: pods per second."""

    waiting: int = 3_000
    joining: int = 40
    burst: int = 2_000
    burst_nodes: int = 200
    bursts: int = 3
    quiet_nodes: int = 1_000
    quiet_pods: int = 200
    large_nodes: int = 5_000
    large_pods: int = 50_000
    rate: int = 100
    seconds: int = 10


FULL = Size()
QUICK = Size(150, 4, 200, 40, 1, 50, 30, 100, 1_000, 50, 2)


# ---- what is watched ----


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _About(msgspec.Struct):
    name: str = ""


class _Object(msgspec.Struct, rename="camel"):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    reason: str = ""
    involved_object: _About = msgspec.field(default_factory=_About)


class _Line(msgspec.Struct):
    type: str
    object: _Object


@dataclass
class Seen:
    """When the API server said what of each pod, in seconds of the monotonic clock. ``writes``: changes of pods that
    have no node, by name."""

    api: Api
    made: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    events: int = 0
    over: bool = False

    def __enter__(self) -> Seen:
        for path, take in ((PODS, self._pod), (EVENTS, self._event)):
            version = self.api.get(path, limit=1)["metadata"]["resourceVersion"]
            threading.Thread(target=self._follow, args=(path, version, take), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over = True

    def _follow(self, path: str, version: str, take: Callable[[_Line, float], None]) -> None:
        decode = msgspec.json.Decoder(_Line).decode
        while not self.over:
            try:
                for line in self.api.watch(path, resourceVersion=version):
                    now = time.monotonic()
                    found = decode(line)
                    version = found.object.metadata.resource_version or version
                    take(found, now)
            except OSError:
                time.sleep(0.1)  # the API server is busy, or has ended

    def _pod(self, line: _Line, now: float) -> None:
        name = line.object.metadata.name
        if line.type == "ADDED":
            self.made[name] = now
        elif line.object.spec.node_name:
            self.bound.setdefault(name, now)
        elif line.type == "MODIFIED":
            self.writes[name] = self.writes.get(name, 0) + 1

    def _event(self, line: _Line, now: float) -> None:
        if line.object.reason == "Scheduled":
            self.told.setdefault(line.object.involved_object.name, now)
        elif line.type != "DELETED":
            self.events += 1


def await_count(what: str, count: Callable[[], int], wanted: int) -> None:
    """Wait until there are this many. Raises TimeoutError when no more came for STALLED_S seconds."""
    last, since = -1, time.monotonic()
    while (now := count()) < wanted:
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > STALLED_S:
            raise TimeoutError(f"{now} of {wanted} {what}, and none more for {STALLED_S:g} s")
        time.sleep(0.02)


# ---- what is run ----


@contextmanager
def plane(**options: Any) -> Iterator[ControlPlane]:
    """An API server without limits of requests, and nobody else."""
    there = built()
    assert there is not None
    given: dict[str, Any] = {
        "controllers": (),
        "scheduler": False,
        "admission_off": UNTOUCHED,
        "client_qps": QPS,
        "flags": {
            API_SERVER: UNLIMITED,
            SCHEDULER: tuple(f"--leader-elect{rest}" for rest in ELECTION),
        },
    }
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        ControlPlane(there, Path(folder), PlaneOptions(**given | options)) as found,
    ):
        yield found


def controller(of: ControlPlane, *more: str) -> Program:
    """``tonnage controller`` as a process, not started yet; ready when ``/readyz`` says so."""
    (port,) = free_ports(1)
    words = [sys.executable, "-m", "tonnage", "controller", "--only", "scheduler", "--mode", "apply"]
    words += ["--listen", f"{LOCAL}:{port}", "-o", "json", *(more or ("--no-leader-elect",))]
    found = Program("tonnage", words, of.folder / "tonnage.log", environment={"KUBECONFIG": str(of.kubeconfig())})
    found.ready = lambda: _readyz(port)
    return found


def _readyz(port: int) -> bool:
    import urllib.request

    with urllib.request.urlopen(f"http://{LOCAL}:{port}/readyz", timeout=5) as reply:
        return bool(reply.status == 200)


def cpu_s(program: Program) -> float:
    """Seconds of CPU that a running program has used."""
    assert program.process is not None
    fields = Path(f"/proc/{program.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def peak_mib(program: Program) -> float:
    """The most memory that it has had, in MiB resident."""
    assert program.process is not None
    status = Path(f"/proc/{program.process.pid}/status").read_text(encoding="ascii")
    return int(next(row for row in status.splitlines() if row.startswith("VmHWM")).split()[1]) / 1024


def node(name: str, *, ready: bool = True) -> Json:
    """Before it is Ready it has no room yet, as before its kubelet has counted."""
    condition = {"type": "Ready", "status": str(ready), "reason": "Benchmark", "message": ""}
    amounts = AMOUNTS if ready else {}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status}


def pod(name: str, scheduler: str = "tonnage", gpus: int = 0, **spec: Any) -> Json:
    limits = {GPU: str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": limits}
    containers = [{"name": "main", "image": "none", "resources": resources}]
    meta = {"name": name, "labels": {"app": "benchmark"}}
    return {"metadata": meta, "spec": {"schedulerName": scheduler, "containers": containers, **spec}}


def make_nodes(api: Api, count: int) -> None:
    api.each(lambda number: api.create(NODES, node(f"node-{number:05}")), range(count))


# ---- pods that wait ----


def waiting(size: Size) -> dict[str, float]:
    """Pods that fit nowhere, of 16 kinds, each with labels of its own, while nodes join one after another, each of
    which is what one more pod has waited for: ``bound_s``, from the node's Ready to that pod's binding, the longest;
    ``writes``, of status and events, for each pod that waits. The nodes bring no other kind of reason."""
    with plane() as of, Seen(of.api()) as seen:
        api = of.api()
        make_nodes(api, 1)
        program = controller(of)
        program.start()

        def make(number: int) -> Json:
            one = pod(f"waits-{number:05}", gpus=9 + number % 16)
            one["metadata"]["labels"]["job"] = f"job-{number // 4}"
            return api.create(PODS, one)

        api.each(make, range(size.waiting))
        await_count("pods told that they wait", lambda: len(seen.writes), size.waiting)
        took = [_join(api, seen, number) for number in range(size.joining)]
        time.sleep(2.0)
        writes = sum(seen.writes.values()) + seen.events - size.joining * 2
        program.stop()
    return {"bound_s": max(took), "median_s": sorted(took)[len(took) // 2], "writes": writes / size.waiting}


def _join(api: Api, seen: Seen, number: int) -> float:
    """Seconds from the Ready of a node that joins to the binding of the pod that waits for it."""
    name = f"joins-{number:03}"
    api.create(PODS, pod(name, gpus=1, nodeSelector={"kubernetes.io/hostname": name}))
    api.create(NODES, node(name, ready=False))
    time.sleep(0.3)
    begun = time.monotonic()
    api.patch(f"{NODES}/{name}/status", {"status": node(name)["status"]}, MERGE)
    await_count(f"pods on {name}", lambda: int(name in seen.bound), 1)
    return seen.bound[name] - begun


# ---- bindings and their events ----


def told(size: Size, who: str) -> dict[str, float]:
    """A burst of pods that all fit, found pending by a scheduler that has been started before: ``seconds`` until all
    are bound and their events written, ``first_s`` to the first binding, ``lag_s`` from a pod's binding to its event at
    most, ``cpu_s`` of the scheduler meanwhile."""
    ours = who == "tonnage"
    with plane(scheduler=not ours, held=() if ours else (SCHEDULER,)) as of, Seen(of.api()) as seen:
        api = of.api()
        make_nodes(api, size.burst_nodes)
        name = "tonnage" if ours else "default-scheduler"
        makes = [pod(f"pod-{number:05}", name, number % 2) for number in range(size.burst)]
        api.each(lambda one: api.create(PODS, one), makes)
        lease = f"{LEASES}/{'tonnage-scheduler' if ours else SCHEDULER}"
        now = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
        held = {"holderIdentity": "benchmark", "leaseDurationSeconds": 3_600, "acquireTime": now, "renewTime": now}
        if not ours:
            api.create(LEASES, {"metadata": {"name": SCHEDULER}, "spec": held})
        program = controller(of, "--namespace-of-lease", "kube-system") if ours else of.programs[SCHEDULER]
        if ours:
            api.create(LEASES, {"metadata": {"name": "tonnage-scheduler"}, "spec": held})
            program.start()
        else:
            program.start()
            until(
                "all pods in the scheduler's queue",
                lambda: of.metric(SCHEDULER, "scheduler_pending_pods", 'queue="active"') == size.burst,
            )
        time.sleep(2.0)
        before = cpu_s(program)
        begun = _let_go(api, lease, ours=ours)
        await_count("pods bound", lambda: len(seen.bound), size.burst)
        await_count("pods told", lambda: len(seen.told), size.burst)
        used = cpu_s(program) - before
        program.stop()
    first = min(seen.bound.values())
    lag = max(at - seen.bound[name] for name, at in seen.told.items())
    done = max(*seen.told.values(), *seen.bound.values())
    return {
        "seconds": done - begun,
        "from_first_s": done - first,
        "bound_s": max(seen.bound.values()) - begun,
        "first_s": first - begun,
        "lag_s": lag,
        "cpu_s": used,
    }


def _let_go(api: Api, lease: str, *, ours: bool) -> float:
    """Let the scheduler have the lease that it waits for; when it had it. kube-scheduler asks every 50 ms; ours, which
    minds a lease that is gone until it has run out, every 2 s."""
    if not ours:
        api.delete(lease)
        return time.monotonic()
    version = api.patch(lease, {"spec": {"holderIdentity": ""}}, MERGE)["metadata"]["resourceVersion"]
    for line in api.watch(LEASES, resourceVersion=version):
        if json.loads(line)["object"]["spec"].get("holderIdentity"):
            return time.monotonic()
    raise TimeoutError("the lease was not taken")


# ---- one pod after another ----


def quiet(size: Size) -> dict[str, float]:
    """``p50_ms`` and ``p99_ms`` from a pod's creation to its binding, one pod at a time."""
    with plane() as of, Seen(of.api()) as seen:
        api = of.api()
        make_nodes(api, size.quiet_nodes)
        program = controller(of)
        program.start()
        for number in range(size.quiet_pods):
            name = f"pod-{number:05}"
            api.create(PODS, pod(name, gpus=number % 2))
            await_count("pods bound", lambda: len(seen.bound), number + 1)
            time.sleep(0.02)
        program.stop()
    return _spread(seen, "pod-")


def _spread(seen: Seen, prefix: str) -> dict[str, float]:
    took = sorted(at - seen.made[name] for name, at in seen.bound.items() if name.startswith(prefix))
    return {"p50_ms": took[len(took) // 2] * 1e3, "p99_ms": took[int(len(took) * 0.99)] * 1e3}


# ---- a large cluster ----


def large(size: Size) -> dict[str, float]:
    """Nodes without heartbeats, pods that stand on them: ``start_s`` from the scheduler's start to its first binding;
    then pods at a rate, ``p99_ms`` from creation to binding; ``mib`` of the scheduler at most."""
    with plane() as of, Seen(of.api()) as seen:
        api = of.api()
        make_nodes(api, size.large_nodes)

        def make(number: int) -> Json:
            return api.create(PODS, pod(f"stands-{number:05}", nodeName=f"node-{number % size.large_nodes:05}"))

        api.each(make, range(size.large_pods))
        api.create(PODS, pod("first", gpus=1))
        program = controller(of)
        begun = time.monotonic()
        program.start(wait=False)
        await_count("pods bound", lambda: int("first" in seen.bound), 1)
        start_s = seen.bound["first"] - begun
        time.sleep(1.0)
        before, due = cpu_s(program), time.monotonic()
        wanted = size.rate * size.seconds
        for number in range(wanted):
            time.sleep(max(0.0, due + number / size.rate - time.monotonic()))
            api.create(PODS, pod(f"pod-{number:05}", gpus=number % 2))
        await_count("pods bound", lambda: len(seen.bound), wanted + 1)
        used = cpu_s(program) - before
        mib = peak_mib(program)
        program.stop()
    return {"start_s": start_s, "mib": mib, "cpu_s": used} | _spread(seen, "pod-")


def _beside(size: Size) -> dict[str, dict[str, float]]:
    """Bursts of both schedulers in turn; the median of each figure."""
    runs: dict[str, list[dict[str, float]]] = {"kube-scheduler": [], "tonnage": []}
    for _ in range(size.bursts):
        for who, some in runs.items():
            some.append(told(size, who))
    return {
        f"told/{who}": {key: statistics.median(run[key] for run in some) for key in some[0]}
        for who, some in runs.items()
    }


def measure(scale: str, sections: str = ",".join(SECTIONS)) -> dict[str, dict[str, float]]:
    """What each section found; in namespaces of their own. ``scale``: ``full`` or ``quick``."""
    size = QUICK if scale == "quick" else FULL
    found: dict[str, dict[str, float]] = {}
    for name in sections.split(","):
        if name == "told":
            found |= _beside(size)
        elif name.startswith("told/"):
            found[name] = told(size, name.partition("/")[2])
        else:
            found[name] = {"waiting": waiting, "quiet": quiet, "large": large}[name](size)
    return found
