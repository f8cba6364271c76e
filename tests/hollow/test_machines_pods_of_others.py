"""Pods that others made on simulated machines, when the machine goes."""

from __future__ import annotations

from pathlib import Path

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.fleet.invariants import violations
from tonnage.hollow.machines import Machines
from tonnage.kube.verbs import Client
from tonnage.machines import nodes
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta, OwnerReference
from tonnage.simulation import run, scenario
from tonnage.simulation.run import SetUp

SURGE = Path(__file__).resolve().parents[2] / "examples" / "traffic-surge"


def _made() -> tuple[SetUp, Machines]:
    made = run.set_up(scenario.load(SURGE), "slo", run.RunOptions())
    made.cluster.runs_workloads = False
    return made, Machines(made.cluster, Client(InProcess(Api())))


def _daemon(node: str, uid: str = "pod-1") -> core.Pod:
    owner = OwnerReference(api_version="apps/v1", kind="DaemonSet", name="agent", uid="u", controller=True)
    meta = ObjectMeta(name="agent-1", namespace="default", uid=uid, owner_references=[owner])
    return core.Pod(
        api_version="v1",
        kind="Pod",
        metadata=meta,
        spec=core.PodSpec(node_name=node, containers=[core.Container(name="agent", image="agent:1")]),
    )


def test_a_daemon_sets_pod_goes_with_its_machine_and_its_deletion_later_changes_nothing() -> None:
    made, machines = _made()
    cluster, pod = made.cluster, _daemon("base-03")
    machines.see_pod(None, pod)
    assert cluster.pods["default", "agent-1"].node == "base-03"
    nodes.remove_node(cluster, cluster.nodes["base-03"], "returned")
    assert ("default", "agent-1") not in cluster.pods
    machines.see_pod(pod, None)
    assert violations(cluster.fleet) == []
    machines.close()


def test_what_is_heard_late_of_a_pod_that_went_with_its_machine_makes_no_other_until_the_api_has_another() -> None:
    made, machines = _made()
    cluster, pod = made.cluster, _daemon("base-03")
    machines.see_pod(None, pod)
    nodes.remove_node(cluster, cluster.nodes["base-03"], "returned")
    machines.see_pod(pod, pod)
    assert ("default", "agent-1") not in cluster.pods
    machines.see_pod(pod, None)
    machines.see_pod(None, _daemon("base-02", "pod-2"))
    machines.flush()
    assert (cluster.pods["default", "agent-1"].uid, cluster.pods["default", "agent-1"].node) == ("pod-2", "base-02")
    machines.close()
