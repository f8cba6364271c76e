"""A scenario of a few minutes in a folder, small enough to run in a second, and ways to spoil it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tonnage.cli import main

SCENARIO = """\
kind: Scenario
name: small
duration: 4m
slo:
  ttft: 2s
  tpot: 100ms
fleet:
  nodes:
    - instanceType: g6e.12xlarge
      count: 1
traffic:
  - service: serving/chat
    profile: traffic.yaml
policies:
  fixed:
    manifests: fixed
  keda:
    manifests: keda
"""

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: chat
  namespace: serving
spec:
  replicas: 2
  selector:
    matchLabels: {app: chat}
  template:
    metadata:
      labels: {app: chat}
    spec:
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.10.0
          args: [--model=meta-llama/Llama-3.1-8B-Instruct, --max-model-len=8192]
          resources:
            limits:
              nvidia.com/gpu: 1
---
apiVersion: v1
kind: Service
metadata:
  name: chat
  namespace: serving
spec:
  selector: {app: chat}
  ports:
    - port: 8000
"""

SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: chat
  namespace: serving
spec:
  scaleTargetRef:
    name: chat
  minReplicaCount: 1
  maxReplicaCount: 3
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://prometheus:9090
        query: sum(vllm:num_requests_waiting{namespace="serving"})
        threshold: "5"
"""

PROFILE = """\
kind: TrafficProfile
source:
  name: made up
requests: 100
interval_s: 10
arrivals: [5, 8, 12, 7, 9, 4, 11, 6]
lengths:
  prompt_levels: [0.0, 1.0]
  prompt_tokens: [50, 400]
  output_levels: [0.0, 1.0]
  output_tokens:
    - [10, 60]
"""

TRACE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:01.2229150,879,55
2023-11-16 18:16:31.1030000,91,16
"""


def make_scenario(folder: Path) -> Path:
    """The scenario and all that it refers to, written into ``folder``. Returns the scenario file."""
    for name, text in {
        "scenario.yaml": SCENARIO,
        "traffic.yaml": PROFILE,
        "trace.csv": TRACE,
        "fixed/chat.yaml": DEPLOYMENT,
        "keda/chat.yaml": DEPLOYMENT,
        "keda/scaler.yaml": SCALED_OBJECT,
    }.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "scenario.yaml"


def replace(path: Path, old: str, new: str) -> int:
    """Change one place of a file. Returns its line."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, f"{old!r} appears {text.count(old)} times in {path}"
    path.write_text(text.replace(old, new), encoding="utf-8")
    return text[: text.index(old)].count("\n") + 1


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Ran:
    """What a command line left behind."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("error: ")]


def tonnage(capfd: pytest.CaptureFixture[str], *arguments: object) -> Ran:
    """Run the command line in this process."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return Ran(ended.value.code, out, err)
