"""Observe mode with the chart's read-only role: it decides, prints what it would do, and writes nothing at all."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from e2e_builders import GPU, node, pod_spec
from e2e_controllers import CONTROLLERS, TRACEBACK, controller, grant
from e2e_karpenter import IN_POOL, MACHINE, node_pool

from e2e.control_plane import UNTOUCHED, ControlPlane
from e2e.processes import until
from tonnage.facts import prices
from tonnage.hollow.definitions import define_missing_kinds
from tonnage.kube.http import open_cluster
from tonnage.kube.resources import DEVICE_TAINT_RULES
from tonnage.live.group_kinds import ONCE_INSTALLED

PODS = "/api/v1/namespaces/default/pods"
CHEAPER = "g6e.xlarge"
USER = "tonnage-scheduler"
"""In observe mode all controllers have the same rights."""
ADDRESSES_REPAIRER = "ipallocator-repair-controller"
"""Of the API server itself; what it tells of its first Service depends on the moment at which it looks."""


@pytest.fixture(scope="module")
def plane(start_plane: Any) -> ControlPlane:
    """Work for the scheduler and the nodes controller: a pod that fits, one for whom a node must be launched, one for
    none, and an empty node of a NodePool."""
    found: ControlPlane = start_plane(
        controllers=(), scheduler=False, admission_off=UNTOUCHED, audit=True, users={USER: []}
    )
    client = open_cluster(str(found.kubeconfig()))
    define_missing_kinds(client)
    client.transport.close()
    api = found.api()
    grant(found, "scheduler", "observe")
    capacity = {"cpu": "48", "memory": "256Gi", "pods": "50"}
    api.create("/api/v1/nodes", node("kept", capacity | {GPU: "1"}))
    pooled = {**IN_POOL, "karpenter.sh/initialized": "true", "karpenter.sh/capacity-type": "on-demand"}
    pooled |= {"node.kubernetes.io/instance-type": MACHINE}
    api.create(
        "/api/v1/nodes", node("idle", capacity | {GPU: "4"}, pooled, [{"key": "e2e/none", "effect": "NoSchedule"}])
    )
    api.create("/apis/karpenter.sh/v1/nodepools", node_pool(consolidate_after="1s"))
    for name, fields in {
        "fits": {"gpus": 1},
        "buys": {"gpus": 4, "nodeSelector": IN_POOL},
        "never": {"gpus": 64},
    }.items():
        spec = pod_spec(schedulerName="tonnage", **fields)  # type: ignore[arg-type]
        api.create(PODS, {"metadata": {"name": name}, "spec": spec})
    return found


def test_it_decides_and_prints_and_the_audit_log_has_reads_alone(plane: ControlPlane) -> None:
    process = controller(plane, mode="observe", user=USER)
    process.start()
    until("a binding", lambda: process.decided("Bind", "Refused"), 30)
    until("a node to buy", lambda: process.decided("Launch", "Refused"), 30)
    until("a node to return", lambda: process.decided("Return", "Refused"), 30)
    until("a pod that waits", lambda: process.decided("Wait", ""), 30)
    (bind,) = process.decided("Bind", "Refused")
    assert (bind["decision"]["pod"]["name"], bind["decision"]["node"]["name"]) == ("fits", "kept")
    assert bind["outcome"]["why"] == "observe mode writes nothing"
    assert process.end() == 0
    seen = [event for event in plane.audit() if event["user"]["username"] == USER]
    assert {event["verb"] for event in seen} == {"get", "list", "watch"}
    assert {event["verb"] for event in seen if event.get("objectRef")} == {"list", "watch"}
    refused = [event for event in seen if event["responseStatus"]["code"] >= 400]
    absent = {resource.plural for resource in (*ONCE_INSTALLED, DEVICE_TAINT_RULES)}  # kinds that this cluster has not
    assert {event["verb"] for event in refused} <= {"list"}
    told = {(event["responseStatus"]["code"], event["objectRef"]["resource"]) for event in refused}
    maps = {(403, "configmaps")}  # of the GPU operator's namespace, where the chart was not told of it
    assert told <= {(404, plural) for plural in absent} | maps
    assert not plane.api().get(f"{PODS}/fits")["spec"].get("nodeName")
    tellers = {e.get("reportingComponent") or e["source"]["component"] for e in plane.api().items("/api/v1/events")}
    assert tellers <= {ADDRESSES_REPAIRER}


@pytest.mark.parametrize("form", ["text", "json"])
def test_once_prints_what_it_would_do_now_and_ends_with_0(plane: ControlPlane, form: str) -> None:
    words = [sys.executable, "-m", "tonnage", "controller", "--once", "-o", form]
    words += ["--kubeconfig", str(plane.kubeconfig(USER))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith(f"{', '.join(CONTROLLERS)}: observe mode, nothing is written\n")
    assert "error" not in done.stderr
    assert TRACEBACK not in done.stderr
    if form == "json":
        kinds = {json.loads(line)["decision"]["type"] for line in done.stdout.splitlines()}
        assert kinds == {"Bind", "Launch", "Wait"}  # the idle node has only just been seen
    else:
        assert "bind Pod default/fits to kept  [Refused: observe mode writes nothing]" in done.stdout


def test_it_prices_what_it_would_save_by_reading_alone(start_plane: Any) -> None:
    """One pod of one GPU on a node of four, where a node of one GPU would do."""
    plane = start_plane(controllers=(), scheduler=False, admission_off=UNTOUCHED, audit=True, users={USER: []})
    client = open_cluster(str(plane.kubeconfig()))
    define_missing_kinds(client)
    client.transport.close()
    grant(plane, "scheduler", "observe")
    api = plane.api()
    labels = {**IN_POOL, "karpenter.sh/initialized": "true", "karpenter.sh/capacity-type": "on-demand"}
    labels |= {"node.kubernetes.io/instance-type": MACHINE, "topology.kubernetes.io/zone": "us-east-1a"}
    api.create("/api/v1/nodes", node("wide", {"cpu": "48", "memory": "256Gi", "pods": "50", GPU: "4"}, labels))
    pool = node_pool(consolidate_after="1s", types=(MACHINE, CHEAPER))
    pool["spec"]["disruption"]["consolidationPolicy"] = "WhenEmptyOrUnderutilized"
    api.create("/apis/karpenter.sh/v1/nodepools", pool)
    api.create(PODS, {"metadata": {"name": "alone"}, "spec": pod_spec(gpus=1, nodeName="wide")})
    process = controller(plane, mode="observe", user=USER)
    process.start()
    until("a node to replace", lambda: process.decided("Disrupt", "Refused"), 60)
    (disrupt,) = process.decided("Disrupt", "Refused")
    assert process.end() == 0
    book = prices.load()
    saved = (book.on_demand(MACHINE) or 0) - (book.on_demand(CHEAPER) or 0)
    assert saved > 8_000_000
    said = dict(disrupt["decision"]["reason"]["evidence"])
    assert (said["launched"], said["saves_usd_per_hour"]) == (CHEAPER, pytest.approx(saved / 1e6))
    seen = [event for event in plane.audit() if event["user"]["username"] == USER]
    assert {event["verb"] for event in seen} == {"get", "list", "watch"}
    assert not api.get("/api/v1/nodes/wide")["spec"].get("taints")
