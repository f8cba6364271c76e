"""What the thresholds of published guides do with a model whose load rises and falls, and two that share free GPUs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

import yaml_text
from tonnage.errors import InputError
from tonnage.scaling.thresholds import DECISION_TABLE, presets, profile, profiles
from tonnage.simulation.result import DecisionRecord, Result
from tonnage.simulation.run import run
from tonnage.simulation.scenario import load
from tonnage.units import NS_PER_S

ROOT = Path(__file__).parents[2]
BOUNDS = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 1
  maxReplicas: 5
"""
RISE_S, FALL_S = 60, 420


def _simulated(folder: Path, scaling: str, nodes: int = 2, *, exporter: bool = True) -> Result:
    """Chats on nodes of four GPUs each: few of them, many for six minutes, few again."""
    (folder / "manifests").mkdir()
    chat = ROOT / "examples" / "kv-routing" / "manifests" / "chat.yaml"
    deployment, service = yaml_text.load_all(chat.read_text(encoding="utf-8"))
    deployment["spec"]["replicas"] = 2
    others = yaml_text.load_all((ROOT / "benchmarks" / "data" / "scaling.yaml").read_text(encoding="utf-8"))
    dcgm = [one for one in others if exporter and one["metadata"]["name"] == "dcgm-exporter"]
    text = yaml_text.dump_all([deployment, service, yaml_text.load(BOUNDS), *dcgm])
    (folder / "manifests" / "all.yaml").write_text(text, encoding="utf-8")
    profile = ROOT / "examples" / "traffic-surge" / "traffic" / "azure-2023-conv.yaml"
    surge = {"start": f"{RISE_S}s", "duration": f"{FALL_S - RISE_S}s", "ramp": "10s", "factor": 60}
    document = {
        "kind": "Scenario",
        "name": "thresholds",
        "duration": "16m",
        "slo": {"ttft": "3s", "tpot": "80ms"},
        "fleet": {"nodes": [{"instanceType": "g6e.12xlarge", "count": nodes}]},
        "traffic": [{"service": "inference/chat", "profile": str(profile), "rate": 0.02, "surges": [surge]}],
        "policies": {"own": {"manifests": "manifests", "scaling": scaling}},
    }
    (folder / "scenario.yaml").write_text(yaml_text.dump(document), encoding="utf-8")
    return run(load(folder), "own")


def _scaled(result: Result) -> list[DecisionRecord]:
    return [one for one in result.decisions if one.kind == "Scale"]


def _evidence(one: DecisionRecord, name: str) -> float:
    return float(dict(one.evidence)[name])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(profiles()))
def test_replicas_follow_the_load_one_by_one_outside_the_thresholds_and_rest_between(name: str, tmp_path: Path) -> None:
    rule, scaled = profile(name), _scaled(_simulated(tmp_path, name))
    for one in scaled:
        used, more = _evidence(one, "utilization %"), one.verdict == "above the upper threshold"
        assert used > rule.up if more else used < rule.down
        before = int(_evidence(one, "replicas"))
        assert one.summary.endswith(f"from {before} to {before + (1 if more else -1)}")
    assert all(after.t_s - before.t_s >= rule.cooldown_ns / NS_PER_S for before, after in pairwise(scaled))
    out = [one.t_s for one in scaled if one.verdict == "above the upper threshold"]
    fall = [one.t_s for one in scaled if one.verdict == "below the lower threshold" and one.t_s > FALL_S]
    assert RISE_S <= min(out) < FALL_S <= min(fall)


def test_the_lower_the_thresholds_and_the_shorter_the_rest_the_more_replicas_change(tmp_path: Path) -> None:
    names = ("interactive-service", "realtime-inference", "conservative-start")
    folders = {name: tmp_path / name for name in names}
    for folder in folders.values():
        folder.mkdir()
    first, second, third = (len(_scaled(_simulated(folders[name], name))) for name in names)
    assert first > second > third > 0


@pytest.mark.parametrize(("nodes", "most"), [(2, 5), (1, 4)])
def test_the_decision_table_gives_replicas_while_gpus_are_free(nodes: int, most: int, tmp_path: Path) -> None:
    result = _simulated(tmp_path, DECISION_TABLE, nodes)
    assert max(result.series.services[0].replicas_wanted) == most
    for one in _scaled(result):
        if "out" in one.verdict:
            assert _evidence(one, "utilization %") > 80 and _evidence(one, "free GPUs in the pool") > 0
        else:
            assert _evidence(one, "utilization %") < 30


def test_without_an_exporter_nothing_changes(tmp_path: Path) -> None:
    assert _scaled(_simulated(tmp_path, "realtime-inference", exporter=False)) == []


def test_another_name_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"expected one of manifests, slo, {', '.join(presets())} "):
        _simulated(tmp_path, "fast")
