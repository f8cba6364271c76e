"""Training on GPUs that it shares: with other training, and with engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from training_builders import entry, exact, job, load, play, work

import yaml_text
from tonnage.simulation.result import Result

pytestmark = pytest.mark.usefixtures("exact")
__all__ = ["exact"]
ONE_GPU = {"fleet": {"nodes": [{"instanceType": "g6e.8xlarge"}]}}
SLICED = {"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}


def fraction(name: str, share: str) -> dict[str, Any]:
    return job(name, None, pod={"meta": {"annotations": {"gpu-fraction": share}}})


def hours(result: Result, name: str) -> float:
    """From the start of the work to its end."""
    found = work(result, f"job/{name}")
    assert found.started_s is not None and found.finished_s is not None
    return (found.finished_s - found.started_s) / 3600


def test_two_jobs_with_half_a_gpu_each_get_on_as_with_what_they_asked_for(tmp_path: Path) -> None:
    jobs = [fraction("a", "0.5"), fraction("b", "0.5")]
    result = play(load(tmp_path, jobs, [entry("job/a"), entry("job/b")], **ONE_GPU))
    assert [hours(result, name) for name in "ab"] == [pytest.approx(1.0, rel=1e-3)] * 2


def test_a_job_that_asked_for_more_than_its_turn_is_slower_until_its_neighbour_is_done(tmp_path: Path) -> None:
    jobs = [fraction("a", "0.7"), fraction("b", "0.3")]
    result = play(load(tmp_path, jobs, [entry("job/a"), entry("job/b")], **ONE_GPU))
    assert hours(result, "b") == pytest.approx(1.0, rel=1e-3)
    assert hours(result, "a") == pytest.approx(1 + 0.2 / 0.7, rel=1e-3)  # half a GPU for an hour, then all of its 0.7


def test_a_replica_on_a_gpu_that_is_otherwise_idle_is_as_fast_as_a_gpu_and_charged_as_a_quarter(tmp_path: Path) -> None:
    fleet = {"fleet": {"nodes": [{"instanceType": "g6e.8xlarge", "labels": SLICED}]}}
    result = play(load(tmp_path, [job("a", 1)], [entry("job/a")], **fleet))
    assert hours(result, "a") == pytest.approx(1.0, rel=1e-3)
    assert result.gpu_hours.allocated == pytest.approx(0.25, rel=0.02)
    assert result.gpu_hours.busy == pytest.approx(0.25, rel=0.02)  # of what it holds; nobody else wants the GPU


ENGINE = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: ml}
spec:
  replicas: 1
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}, annotations: {gpu-fraction: "0.3"}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v1
          args: [--model=Qwen/Qwen3-4B, --max-model-len=4096, --gpu-memory-utilization=0.3]
          resources: {requests: {cpu: "1"}}
---
apiVersion: v1
kind: Service
metadata: {name: chat, namespace: ml}
spec: {selector: {app: chat}, ports: [{port: 8000}]}
"""


def beside_an_engine(folder: Path, rate: float, **more: Any) -> Result:
    """A job with 0.7 of a GPU, and an engine on the same one."""
    profile = Path(__file__).parents[2] / "examples/shared-gpus/traffic/office.yaml"
    chat: list[Mapping[str, Any]] = yaml_text.load_all(ENGINE)
    traffic = [{"service": "ml/chat", "profile": str(profile), "rate": rate}]
    made = load(
        folder,
        [fraction("a", "0.7"), *chat],
        [entry("job/a", **more)],
        traffic=traffic,
        slo={"ttft": "1s", "tpot": "100ms"},
        duration="90m",
        **ONE_GPU,
    )
    return play(made)


def test_a_job_beside_an_engine_loses_what_the_engine_takes_of_the_gpu(tmp_path: Path) -> None:
    result = beside_an_engine(tmp_path, 1)
    heat = [busy for row in result.heatmap.rows for busy in row.busy]
    assert max(heat) == 100
    lost = hours(result, "a") - 1
    assert 0.02 < lost < 0.43  # at most half of the GPU, of the 0.7 that it asked for


def test_the_more_requests_an_engine_has_the_slower_is_the_job_beside_it_and_checkpoints_come_in_time(
    tmp_path: Path,
) -> None:
    checkpoint = {"every": "10m", "write": "30s"}
    little, much = (beside_an_engine(tmp_path, rate, checkpoint=checkpoint) for rate in (0.2, 2))
    assert 1.04 < hours(little, "a") < hours(much, "a")
    for result in (little, much):
        written = int((hours(result, "a") * 3600) // 630)
        assert work(result, "job/a").gpu_hours.checkpoints == pytest.approx(0.7 * 30 / 3600 * written, rel=0.01)
