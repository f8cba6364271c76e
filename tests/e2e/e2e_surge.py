"""The traffic surge in real time: simulated machines on a real API server, and one process for each controller."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e_controllers import CONTROLLERS, ROOT, Process, controller, grant, tonnage

import yaml_text
from e2e.api import Api, Json
from e2e.control_plane import ControlPlane
from e2e.processes import LOCAL, free_ports
from tonnage.control.opt_in import as_annotations
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.http import open_cluster
from tonnage.live.assembly import BUYS, LIMITS
from tonnage.simulation import run, scenario
from tonnage.simulation.planned import planned
from tonnage.simulation.scenario import Scenario

SURGE = ROOT / "examples/traffic-surge"
SPEED = 20
SEED = 1
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
DEPLOYMENTS = "/apis/apps/v1/namespaces/inference/deployments"
PODS = "/api/v1/namespaces/inference/pods"


@dataclass
class Live:
    """A cluster on which a surge runs."""

    plane: ControlPlane
    machines: Process
    controllers: dict[str, Process]

    @property
    def api(self) -> Api:
        return self.plane.api()

    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.api.items("/api/v1/nodes"))

    def placed(self) -> Counter[tuple[str, str]]:
        """Serving pods by node and workload."""
        pods = self.api.items(PODS)
        return Counter((pod["spec"].get("nodeName", ""), workload(pod)) for pod in pods if ready(pod))

    def wanted(self) -> dict[str, int]:
        found = self.api.items(DEPLOYMENTS)
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}


def workload(pod: Json) -> str:
    """namespace/name of the Deployment that a pod is of."""
    meta = pod["metadata"]
    replica_set: str = meta["ownerReferences"][0]["name"]
    return f"{meta['namespace']}/{replica_set.removesuffix('-' + meta['labels']['pod-template-hash'])}"


def ready(pod: Json) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def changed(folder: Path, words: Mapping[str, str]) -> Scenario:
    """The surge with some lines of its scenario changed, in files of its own."""
    shutil.copytree(SURGE, folder)
    text = (folder / "scenario.yaml").read_text()
    for old, new in words.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / "scenario.yaml").write_text(text)
    return scenario.load(folder)


def annotated(folder: Path, surge: Scenario) -> None:
    """Let the manifests ask our controllers, by annotations alone; KEDA's objects are left out."""
    made = run.set_up(surge, "slo", run.RunOptions(seed=SEED))
    asked = planned(surge, made.configuration, made.cluster, made.sources, "slo")
    asks = {one.target.workload: as_annotations(one) for one in asked}
    bodies = []
    for one in made.configuration.manifest.objects:
        body: Json = json.loads(json.dumps(one.written))
        key = f"{body['metadata'].get('namespace', 'default')}/{body['metadata']['name']}"
        if one.kind == "ScaledObject":
            continue
        if one.kind == "Deployment":
            body["metadata"].setdefault("annotations", {}).update(asks.pop(key, {}))
        if one.kind == "NodePool":
            notes = {BUYS: "true", LIMITS: json.dumps(body["spec"].get("limits", {}))}
            body["metadata"].setdefault("annotations", {}).update(notes)
        bodies.append(body)
    assert asks == {}
    for old in (folder / "manifests/corrected").glob("*.yaml"):
        old.unlink()
    (folder / "manifests/corrected/all.yaml").write_text(yaml_text.dump_all(bodies))


@contextmanager
def running(plane: ControlPlane, folder: Path, surge: Scenario) -> Iterator[Live]:
    """Machines by `tonnage up`, twenty times as fast as real ones; pods by kube-controller-manager; and one process for
    each of our controllers, which sees nothing but the API server and the Prometheus API."""
    annotated(folder, surge)
    client = open_cluster(str(plane.kubeconfig()))
    define_missing_kinds(client)
    client.transport.close()
    (port,) = free_ports(1)
    more = ["--prometheus", f"http://{LOCAL}:{port}", "--speed", str(SPEED)]
    controllers = {}
    for name in CONTROLLERS:
        grant(plane, name)
        controllers[name] = controller(plane, name, more=more)
    words = ["up", str(folder), "--on", "e2e", "--no-controllers", "--seed", str(SEED), "--policy", "slo"]
    words += ["--kubeconfig", str(plane.kubeconfig()), "--speed", str(SPEED), "--prometheus-port", str(port)]
    machines = tonnage(plane.folder, words, plane.kubeconfig())
    everything = [*controllers.values(), machines]
    try:
        for process in everything:
            process.start(wait=False)
        for process in controllers.values():
            process.wait_ready(60)
        yield Live(plane, machines, controllers)
    finally:
        for process in everything:
            process.stop()
