"""The bundled surge scenario, by numbers: what each policy must achieve, whatever the seed draws."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from sim_builders import EXAMPLE, SHORT_RUN, Golden, line_of, variant

import shared_runs
from deep_seeds import deep
from tonnage.decisions import Ref
from tonnage.simulation import run
from tonnage.simulation.result import DecisionRecord, Result, ServiceResult, ServiceSeries

WHICH = (SHORT_RUN, *deep((0, 1)))
"""The surge in 25 minutes, and the whole of it by seed."""
FIRST = (SHORT_RUN, *deep((0,)))
AS_WRITTEN = EXAMPLE / "manifests" / "as-written"
A, B = "inference/model-a", "inference/model-b"
SCALE_A, SCALE_B = "Deployment inference/model-a-serving", "Deployment inference/model-b-serving"
GRACE_S: Mapping[int | str, int] = {SHORT_RUN: 3 * 60}
"""After which more replicas serve; in the whole of it after 8 minutes."""


def _service(result: Result, name: str) -> ServiceResult:
    return next(s for s in result.services if s.name == name)


def _series(result: Result, name: str) -> ServiceSeries:
    return next(s for s in result.series.services if s.name == name)


def _share(result: Result, name: str) -> float:
    share = _service(result, name).overall.share
    assert share is not None
    return share


def _during(result: Result, which: int | str) -> slice:
    """The samples of the surge of A once the grace is over."""
    ((start_s, end_s, _),) = _service(result, A).surges
    times = result.series.t_s
    return slice(sum(t < start_s + GRACE_S.get(which, 8 * 60) for t in times), sum(t < end_s for t in times))


def _scales(result: Result, target: str) -> list[DecisionRecord]:
    return [d for d in result.decisions if d.kind == "Scale" and d.target == target and d.outcome == "Applied"]


def _steps(result: Result, name: str) -> set[int]:
    """The signs of the changes of the replicas wanted."""
    wanted = _series(result, name).replicas_wanted
    return {(b > a) - (b < a) for a, b in pairwise(wanted)} - {0}


# ---- slo ----


@pytest.mark.parametrize("which", WHICH)
def test_slo_keeps_both_models_within_the_slo_outside_the_grace(golden: Golden, which: int | str) -> None:
    result = golden("slo", which)
    assert _share(result, A) >= 0.99
    assert _share(result, B) >= 0.99
    for service in result.services:
        assert service.overall.unfinished == 0


@pytest.mark.parametrize("which", WHICH)
def test_slo_never_takes_model_b_below_its_minimum(golden: Golden, which: int | str) -> None:
    service = _service(golden("slo", which), B)
    assert service.min_replicas_allowed == 2
    assert service.min_ready_replicas >= 2


@pytest.mark.parametrize("which", WHICH)
def test_slo_scales_model_a_out_and_model_b_gives_up_what_it_does_not_need(golden: Golden, which: int | str) -> None:
    result = golden("slo", which)
    surge = _during(result, which)
    assert max(_series(result, A).replicas_ready[surge]) > 4
    assert min(_series(result, B).replicas_ready[surge]) == 2
    assert _series(result, A).replicas_wanted[0] == _series(result, B).replicas_wanted[0] == 4


@pytest.mark.parametrize("which", WHICH)
def test_slo_buys_nodes_for_the_surge_and_returns_them_all(golden: Golden, which: int | str) -> None:
    result = golden("slo", which)
    ((start_s, *_),) = _service(result, A).surges
    bought = [node for node in result.nodes if node.node_pool]
    assert bought
    assert all(node.launched_s > start_s for node in bought)
    assert all(node.ended_s is not None and node.ended_s < result.duration_s for node in bought)
    assert [node.ended_s for node in result.nodes if not node.node_pool] == [None] * 3


@pytest.mark.parametrize("which", WHICH)
def test_slo_pays_for_fewer_gpu_hours_than_keda(golden: Golden, which: int | str) -> None:
    slo, keda = golden("slo", which), golden("corrected", which)
    assert slo.gpu_hours.paid < keda.gpu_hours.paid
    assert slo.cost.total_micro_usd < keda.cost.total_micro_usd


@pytest.mark.parametrize("which", WHICH)
def test_every_scale_decision_of_slo_carries_the_numbers_that_it_was_made_from(
    golden: Golden, which: int | str
) -> None:
    decisions = [*_scales(golden("slo", which), SCALE_A), *_scales(golden("slo", which), SCALE_B)]
    assert decisions
    for decision in decisions:
        evidence = dict(decision.evidence)
        assert {"arrivals_per_s", "forecast_per_s", "horizon_s", "capacity_per_replica", "needed"} <= evidence.keys()
        assert decision.alternatives


# ---- corrected ----


@pytest.mark.parametrize("which", WHICH)
def test_keda_scales_model_a_out_and_in(golden: Golden, which: int | str) -> None:
    result = golden("corrected", which)
    wanted = _series(result, A).replicas_wanted
    assert _steps(result, A) == {1, -1}
    assert max(wanted) > 4 and wanted[-1] < max(wanted)
    assert {d.loop for d in _scales(result, SCALE_A)} == {"hpa"}
    assert _share(result, A) >= 0.99 and _share(result, B) >= 0.99


@pytest.mark.parametrize("policy", ["corrected", "slo"])
def test_the_corrected_manifests_have_no_error(golden: Golden, policy: str) -> None:
    assert [f for f in golden(policy, SHORT_RUN).findings if f.severity == "error"] == []


# ---- as written ----


@pytest.mark.parametrize("which", FIRST)
def test_as_written_model_a_never_has_more_than_two_replicas(golden: Golden, which: int | str) -> None:
    result = golden("as-written", which)
    assert max(_series(result, A).replicas_wanted) == 2
    assert _service(result, A).max_ready_replicas == 2
    (scale,) = _scales(result, SCALE_A)
    assert scale.summary == f"scale {SCALE_A} from 1 to 2", "the HPA's minReplicas is all that acts"


@pytest.mark.parametrize("which", FIRST)
def test_as_written_most_requests_of_model_a_miss_the_slo(golden: Golden, which: int | str) -> None:
    assert _share(golden("as-written", which), A) < 0.5


@pytest.mark.parametrize("which", FIRST)
def test_as_written_no_node_is_bought(golden: Golden, which: int | str) -> None:
    result = golden("as-written", which)
    assert [node.node_pool for node in result.nodes] == ["", "", ""]
    assert "Launch" not in result.decision_counts


@pytest.mark.parametrize("which", FIRST)
def test_as_written_the_hpa_says_that_it_gets_no_metric(golden: Golden, which: int | str) -> None:
    result = golden("as-written", which)
    (event,) = [e for e in result.events if e.object.startswith("HorizontalPodAutoscaler")]
    assert (event.reason, event.type) == ("FailedGetExternalMetric", "Warning")
    assert event.count > 0.9 * result.duration_s / 15, "every 15 s, all the time"


SCALED = Ref("ScaledObject", "model-a-gpu-scaler", "inference")
FINDINGS = [
    ("double-autoscaler", SCALED, "scaledobject.yaml", "name: model-a-serving", "is already managed by the HPA"),
    (
        "external-metric-not-served",
        Ref("HorizontalPodAutoscaler", "model-a-hpa", "inference"),
        "hpa.yaml",
        "name: gpu_utilization",
        "FailedGetExternalMetric",
    ),
    ("trigger-never-scales-out", SCALED, "scaledobject.yaml", 'threshold: "70"', "never scales out beyond 2 replicas"),
    ("exported-pod-label", SCALED, "scaledobject.yaml", "query: |", "exported_pod"),
    (
        "pods-fit-no-nodepool",
        Ref("Deployment", "model-a-serving", "inference"),
        "deployment-model-a.yaml",
        "    spec:",
        "did not tolerate taint nvidia.com/gpu=true:NoSchedule",
    ),
    (
        "pods-fit-no-nodepool",
        Ref("Deployment", "model-b-serving", "inference"),
        "deployment-model-b.yaml",
        "    spec:",
        "did not tolerate taint nvidia.com/gpu=true:NoSchedule",
    ),
    (
        "pods-fit-no-nodepool",
        Ref("Deployment", "model-serving-spot", "inference"),
        "deployment-spot.yaml",
        "tolerations:",
        "gpu-spot-pool: did not tolerate taint nvidia.com/gpu=true:NoSchedule",
    ),
    (
        "servicemonitor-selects-no-service",
        Ref("ServiceMonitor", "dcgm-exporter", "gpu-monitoring"),
        "monitoring.yaml",
        "kind: ServiceMonitor >   selector:",
        "nothing is scraped",
    ),
    (
        "nodepool-nodeclass-missing",
        Ref("NodePool", "gpu-spot-pool"),
        "nodepool-spot.yaml",
        "name: gpu-spot-nodeclass",
        "never launches a node",
    ),
]


@pytest.mark.parametrize(("rule", "ref", "file", "text", "message"), FINDINGS)
def test_as_written_every_mistake_is_found_where_it_stands(
    golden: Golden, rule: str, ref: Ref, file: str, text: str, message: str
) -> None:
    (finding,) = [f for f in golden("as-written", SHORT_RUN).findings if f.rule == rule and f.object == ref]
    here = rule == "pods-fit-no-nodepool"  # the fleet takes these pods, only launched nodes would not
    assert finding.severity == ("warning" if here else "error")
    assert shared_runs.REPOSITORY / finding.where.file == AS_WRITTEN / file
    after, _, wanted = text.rpartition(" > ")
    assert finding.where.line == line_of(AS_WRITTEN / file, wanted, after)
    assert message in finding.message


# ---- the same objects, applied in the other order ----


@pytest.fixture(scope="module")
def reordered(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The ScaledObject is applied first, so KEDA's webhook sees no HPA; nobody checks an HPA."""
    folder = tmp_path_factory.mktemp("reordered")
    shutil.copytree(AS_WRITTEN, folder / "manifests")
    (folder / "manifests" / "hpa.yaml").rename(folder / "manifests" / "zz-hpa.yaml")
    scenario = variant(folder, policies={"reordered": {"manifests": "manifests"}}, default="reordered")
    return run.run(scenario, "reordered", run.RunOptions(seed=1))


def test_applied_in_the_other_order_both_autoscalers_exist(reordered: Result) -> None:
    (finding,) = [f for f in reordered.findings if f.rule == "double-autoscaler"]
    assert finding.object == Ref("HorizontalPodAutoscaler", "model-a-hpa", "inference")
    assert Path(finding.where.file).name == "zz-hpa.yaml"
    assert finding.where.line == line_of(AS_WRITTEN / "hpa.yaml", "name: model-a-serving")
    assert "AmbiguousSelector" in finding.message


def test_applied_in_the_other_order_neither_autoscaler_reads_a_metric(reordered: Result) -> None:
    stuck = {e.object for e in reordered.events if e.reason == "AmbiguousSelector"}
    assert stuck == {
        "HorizontalPodAutoscaler inference/model-a-hpa",
        "HorizontalPodAutoscaler inference/keda-hpa-model-a-gpu-scaler",
    }


def test_applied_in_the_other_order_nothing_scales_beyond_the_minimum(reordered: Result) -> None:
    assert [d.summary for d in _scales(reordered, SCALE_A)] == [f"scale {SCALE_A} from 1 to 2"]
    assert _service(reordered, A).max_ready_replicas == 2
    assert _share(reordered, A) < 0.99
