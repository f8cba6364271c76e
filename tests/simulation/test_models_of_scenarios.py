"""Models that a scenario brings along: a shape or a config.json, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.simulation import run
from tonnage.simulation.scenario import load

SCENARIO = """\
kind: Scenario
name: own
duration: 3m
slo: {ttft: 2s, tpot: 100ms}
fleet: {nodes: [{instanceType: g6e.12xlarge}]}
traffic: [{service: serving/chat, profile: traffic.yaml}]
policies: {one: {manifests: manifests}}
models:
  our-org/chat-9b: MODEL
"""
TRAFFIC = """\
kind: TrafficProfile
source: {name: made}
requests: 10
interval_s: 60
arrivals: [30]
lengths:
  {prompt_levels: [0, 1], prompt_tokens: [50, 500], output_levels: [0, 1], output_tokens: [[5, 50]]}
"""
MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: serving}
spec:
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.10.0
          args: [--model=our-org/chat-9b, --max-model-len=4096]
          resources: {limits: {nvidia.com/gpu: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: chat, namespace: serving}
spec: {selector: {app: chat}, ports: [{port: 80, targetPort: 8000}]}
"""
SHAPE = "{params: 9B, layers: 36, hidden: 4096, heads: 32, kvHeads: 8}"
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 36,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
}


def written(folder: Path, model: str) -> Path:
    (folder / "manifests").mkdir()
    (folder / "manifests" / "all.yaml").write_text(MANIFESTS)
    (folder / "traffic.yaml").write_text(TRAFFIC)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "scenario.yaml").write_text(SCENARIO.replace("MODEL", model))
    return folder


@pytest.mark.parametrize("model", [SHAPE, "{config: config.json}", "{config: .}"])
def test_a_model_of_the_scenario_serves(model: str, tmp_path: Path) -> None:
    result = run.run(load(written(tmp_path, model)), "one")
    (service,) = result.services
    assert service.model == "our-org/chat-9b" and service.overall.met == service.overall.requests > 50


def test_a_larger_shape_takes_longer(tmp_path: Path) -> None:
    tpot = []
    for name, model in (("small", SHAPE), ("large", SHAPE.replace("9B", "18B").replace("36", "64"))):
        (tmp_path / name).mkdir()
        tpot.append(run.run(load(written(tmp_path / name, model)), "one").services[0].tpot_ms.p50 or 0.0)
    assert tpot[1] > 1.5 * tpot[0] > 0


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("{params: 9B, layers: 36}", r"scenario.yaml:9:models.our-org/chat-9b: hidden, heads not given"),
        (
            SHAPE.replace("9B", "nine"),
            r"scenario.yaml:9:models.our-org/chat-9b.params: 'nine' is not a number of param",
        ),
        (SHAPE.replace("36", "4000"), r"scenario.yaml:9:models.our-org/chat-9b.params: 9,000,000,000 parameters, but"),
        (SHAPE.replace("kvHeads: 8", "kvHeads: 7"), r"scenario.yaml:9:models.our-org/chat-9b.\S*[hH]eads"),
        (SHAPE.replace("}", ", config: config.json}"), r"models.our-org/chat-9b.config: a config and a shape"),
        ("{config: nowhere.json}", r"nowhere.json: cannot read"),
        (SHAPE.replace("layers", "layer"), r"scenario.yaml:9:models"),
    ],
)
def test_what_is_wrong_with_a_model_is_said_at_its_line(model: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=says):
        load(written(tmp_path, model))
