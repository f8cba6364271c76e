"""Memory and readings of GPUs in MIG mode: an instance has its own, also where its replicas are shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sharing_builders import MIG, SLICE, cut_node, serving
from sim_builders import run_until, world

from tonnage.errors import InputError
from tonnage.facts import mig
from tonnage.objects import load
from tonnage.objects.core import ConfigMap
from tonnage.partitioning import configurations
from tonnage.simulation import loading
from tonnage.simulation.cluster import SimulatedCluster
from tonnage.simulation.objects import EngineSetup, Pod, Workload
from tonnage.simulation.scraping import Scraper

TWO = """
apiVersion: v1
kind: ConfigMap
metadata: {name: plugin}
data:
  two: |
    version: v1
    sharing:
      timeSlicing:
        resources: [{name: nvidia.com/gpu, replicas: 2}]
"""
SHARED = {
    "nvidia.com/mig.config": "all-1g.10gb",
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/device-plugin.config": "two",
}


def shared_instances(folder: Path, count: int, utilization: float) -> tuple[SimulatedCluster, list[Pod]]:
    """Engines on replicas of the sevenths of one H100."""
    cluster = world(start_s=0)
    (folder / "plugin.yaml").write_text(TWO, encoding="utf-8")
    maps = load.read([folder]).of(ConfigMap)
    cluster.physics = replace(cluster.physics, configurations=configurations.read(maps))
    node = cut_node(cluster, SHARED, "p5.4xlarge")
    return cluster, [serving(cluster, node, f"m{i}", utilization=utilization) for i in range(count)]


def test_fourteen_engines_on_shared_sevenths_use_no_more_memory_than_the_card_has(tmp_path: Path) -> None:
    cluster, pods = shared_instances(tmp_path, 14, 0.45)
    run_until(cluster, 3)
    assert all(pod.ready_ns is not None for pod in pods)
    used = [loading.memory_mib(cluster, pod, 0) for pod in pods]
    seventh = mig.get("h100", "1g.10gb").memory_mib
    assert used == [pytest.approx(0.45 * seventh)] * 14


def test_an_engine_that_finds_too_little_left_of_its_instance_names_the_instances_memory(tmp_path: Path) -> None:
    cluster, pods = shared_instances(tmp_path, 14, 0.9)
    run_until(cluster, 3)
    refused = [event.message for event in cluster.events.rows.values() if event.reason == "BackOff"]
    assert len(refused) == 7 and sum(pod.ready_ns is not None for pod in pods) == 7
    assert "/9.75 GiB)" in refused[0]


def test_an_engine_starts_on_an_instance_with_graphics() -> None:
    cluster = world(start_s=0)
    asked = []

    def engine(workload: Workload, gpu: str, utilization: float | None = None) -> EngineSetup | str:
        asked.append(gpu)
        return made(workload, gpu, utilization)

    made = cluster.physics.engine
    cluster.physics = replace(cluster.physics, engine=engine)
    labels = {"nvidia.com/mig.config": "all-1g.24gb.gfx", "nvidia.com/mig.strategy": "mixed"}
    node = cut_node(cluster, labels, "g7e.2xlarge")
    (resource,) = [name for name in node.allocatable if "mig-" in name]
    serving(cluster, node, "a", asks={resource: "1"})
    run_until(cluster, 3)
    assert asked == ["rtx-pro-6000:1g.24gb+gfx"]
    assert mig.resolve(asked[0])[0].memory_mib > 0
    with pytest.raises(InputError):
        mig.resolve("rtx-pro-6000:1g.24gb.gfx")


def test_a_gpu_in_mig_mode_has_no_utilisation() -> None:
    for labels, there in ((MIG, set()), ({}, {"DCGM_FI_DEV_GPU_UTIL"})):
        cluster = world(start_s=0)
        node = cut_node(cluster, labels, "p5.4xlarge")
        serving(cluster, node, "a", 1.0, asks={SLICE: "1"} if labels else None)
        run_until(cluster, 3)
        _, values = Scraper((), False)._device(cluster, node, cluster.fleet.node_by_name[node.name], 0)
        assert {name for name, _ in values} == {"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"} | there
