"""Pods that another controller than a training framework's makes: what it says of them is written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hollow.running_api import Running
from live.contract.training import job, set_up
from tonnage.kube.resources import JOBS, PODS
from tonnage.machines import pods
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import SimulatedPod, Workload
from tonnage.objects import core
from tonnage.workloads.failures import Cause


class Batch:
    """A Controller of one pod, whose work is done when a test says so."""

    key = owner = "research/job/batch"

    def __init__(self) -> None:
        self.done = False
        self.heard: list[str] = []

    def before(self, cluster: SimulatedCluster, pod: SimulatedPod) -> None: ...
    def after(self, cluster: SimulatedCluster, pod: SimulatedPod) -> None:
        self.heard.append("after")

    def lost(self, cluster: SimulatedCluster, pod: SimulatedPod, cause: Cause) -> None: ...
    def paced(self, cluster: SimulatedCluster, pod: SimulatedPod) -> None: ...
    def exits(self, cluster: SimulatedCluster, pod: SimulatedPod, cause: Cause, exit_code: int, said: str) -> None: ...
    def has_succeeded(self, pod: SimulatedPod) -> bool:
        return self.done

    def saved_ns(self, pod: SimulatedPod) -> int:
        return 0

    def settle(self, now_ns: int) -> None: ...


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(set_up(tmp_path, [job("first")], training=[{"workload": "research/job/first", "arrival": "2h"}]))
    yield made
    made.close()


def test_its_pod_is_created_for_its_object_and_stays_when_its_work_is_done(running: Running) -> None:
    controller = Batch()
    owner = running.client.create(JOBS, job("batch", suspend=True), "research")
    running.machines.workloads.adopt(controller.key, JOBS, owner)
    template = core.PodTemplateSpec(spec=core.PodSpec(containers=[core.Container(name="main", image="i")]))
    workload = Workload("research", "batch", template, 1, controller=controller)
    made = pods.create_pod(running.cluster, workload, "batch-0", template, "", "")
    running.settle()
    written = running.client.get(PODS, "batch-0", "research")
    assert written["metadata"]["ownerReferences"][0]["uid"] == owner["metadata"]["uid"]
    assert written["spec"]["schedulerName"] == "tonnage"
    running.place()
    running.later(60)
    assert running.pods() == {"batch-0": "Running"}
    controller.done = True
    pods.end_pod(running.cluster, made)
    running.settle()
    assert running.pods() == {"batch-0": "Succeeded"}
    assert controller.heard[-1] == "after"
