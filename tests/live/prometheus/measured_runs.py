"""A run of a few minutes and what Prometheus has scraped of it, as a store of series and as text in OpenMetrics form."""

from __future__ import annotations

from pathlib import Path

from tonnage.metrics.store import NAME, SeriesStore
from tonnage.simulation import run, scenario
from tonnage.simulation.run import SetUp
from tonnage.units import NS_PER_S

SERVICE = "serving/chat"
SCENARIO = """\
kind: Scenario
name: held
duration: {minutes}m
slo: {{ttft: 1s, tpot: 50ms}}
fleet: {{nodes: [{{instanceType: g6e.12xlarge, count: 1}}]}}
traffic:
  - {{service: serving/chat, profile: traffic.yaml, balancing: {balancing}, rate: {rate}{prefixes}}}
policies:
  fixed: {{manifests: fixed}}
"""
PROFILE = """\
kind: TrafficProfile
source: {name: made}
requests: 1000
interval_s: 60
arrivals: [60, 60, 120, 120, 30, 90, 60, 60, 180, 60]
lengths:
  prompt_levels: [0, 0.5, 0.9, 1]
  prompt_tokens: [30, 300, 900, 3000]
  output_levels: [0, 0.5, 1]
  output_tokens: [[5, 40, 120], [20, 60, 200], [10, 30, 90]]
"""
MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: chat, namespace: serving}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: chat}}}}
  template:
    metadata: {{labels: {{app: chat}}}}
    spec:
      containers:
        - name: engine
          image: {image}
          command: {command}
          ports: [{{name: http, containerPort: 8000}}]
          resources: {{limits: {{nvidia.com/gpu: 1}}}}
---
apiVersion: v1
kind: Service
metadata: {{name: chat, namespace: serving, labels: {{app: chat}}}}
spec:
  selector: {{app: chat}}
  ports: [{{name: http, port: 80, targetPort: http}}]
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {{name: chat, namespace: serving}}
spec:
  selector: {{matchLabels: {{app: chat}}}}
  endpoints: [{{port: http, interval: 15s}}]
"""
VLLM = ("vllm/vllm-openai:v0.10.0", '["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct", "--max-model-len=8192"]')
SGLANG = (
    "lmsysorg/sglang:v0.5.5",
    '["python3", "-m", "sglang.launch_server", "--model-path", "meta-llama/Llama-3.1-8B-Instruct"]',
)
TENSORRT_LLM = (
    "nvcr.io/nvidia/tensorrt-llm/release:1.1.0",
    '["trtllm-serve", "meta-llama/Llama-3.1-8B-Instruct"]',
)


def write(
    folder: Path,
    engine: tuple[str, str] = VLLM,
    *,
    minutes: int = 10,
    rate: float = 1.0,
    balancing: str = "least-requests",
    prefixes: str = "",
) -> Path:
    """A scenario of one Service with two engines; behind ``random`` balancing no gateway counts."""
    (folder / "fixed").mkdir(parents=True)
    given = {"minutes": minutes, "rate": rate, "balancing": balancing, "prefixes": prefixes}
    (folder / "scenario.yaml").write_text(SCENARIO.format(**given))
    (folder / "traffic.yaml").write_text(PROFILE)
    (folder / "fixed" / "all.yaml").write_text(MANIFESTS.format(image=engine[0], command=engine[1]))
    return folder


def played(folder: Path, seed: int = 0) -> SetUp:
    """The run, played to its end with all that engines export scraped."""
    made = run.set_up(scenario.load(folder), "fixed", run.RunOptions(seed=seed))
    run.play(made, engines=True)
    return made


def openmetrics(store: SeriesStore, start_s: int) -> str:
    """The store as text, its time 0 at ``start_s``. Markers of staleness cannot be said in it."""
    families: dict[str, list[str]] = {}
    for series in store:
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(series.labels.items()) if name != NAME)
        family = families.setdefault(series.labels[NAME], [])
        for t_ns, value in zip(series.times, series.values, strict=True):
            family.append(f"{series.labels[NAME]}{{{labels}}} {value!r} {start_s + t_ns / NS_PER_S:.3f}")
    lines = [line for name, rows in families.items() for line in (f"# TYPE {name} unknown", *rows)]
    return "\n".join([*lines, "# EOF", ""])
