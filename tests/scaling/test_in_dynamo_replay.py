"""The slo policy sets the workers of Dynamo's offline replay, through its scaling callback."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tonnage.units import NS_PER_S

pytestmark = [
    pytest.mark.peer,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("dynamo") is None, reason="ai-dynamo-runtime is not installed in this environment"
    ),
]

PROMPT, OUTPUT, START_S, GRACE_S, MINUTES, SURGE_MIN = 8192, 256, 60, 240, 20, 6
FIRST = 2
"""Workers at the start."""

TTFT_MS, TPOT_MS = 1000.0, 40.0
LOW, HIGH = 1.6, 4.8
"""Replicas' worth of requests before and from ``SURGE_MIN`` on."""

PEER = """
import json, sys
from dynamo._core import run_mocker_trace_replay
from tonnage.control.outside import ReplayScaling
from tonnage.inference.capacity import RequestMix, Slo, capacity, mean_latency_s
from tonnage.inference.engine import EngineConfig
from tonnage.inference.timing import PolynomialTiming
from tonnage.scaling.target import Target

told = json.load(open(sys.argv[1]))
config = EngineConfig(8192, 256, 1 << 30, 16_384, 64)
timing = PolynomialTiming(16_384 * 64)
mix = RequestMix(((told["prompt"], told["output"]),))
rate = capacity(config, timing, mix, Slo(told["ttft_s"], told["tpot_s"]))
held = rate * mean_latency_s(config, timing, mix, rate)
if told["path"] is None:
    json.dump(rate, open(sys.argv[2], "w"))
    sys.exit()
policy = None
if told["fixed"] is None:
    target = Target("chat", rate, held, 1, 32, prior_cold_start_ns=told["start_s"] * 10**9)
    policy = ReplayScaling(target)
result = run_mocker_trace_replay(
    [told["path"]], num_workers=told["fixed"] or told["first"], scaling_policy=policy, capture_per_request=True,
    extra_engine_args={"startup_time": float(told["start_s"])}, trace_block_size=512,
)
rows = [[r["arrival_time_ms"], r["ttft_ms"], r["itl_ms"]] for r in result.per_request]
seconds = result.summary["decode_worker_seconds"]
json.dump({"rows": rows, "hours": seconds / 3600, "asked": policy.asked if policy else []}, open(sys.argv[2], "w"))
"""


def peer(folder: Path, path: Path | None, fixed: int | None = None) -> Any:
    """What Dynamo's replay gives, in a process of its own, with so many workers all along or as the policy asks."""
    told = {
        "path": str(path) if path else None,
        "fixed": fixed,
        "first": FIRST,
        "prompt": PROMPT,
        "output": OUTPUT,
        "start_s": START_S,
        "ttft_s": TTFT_MS / 1000,
        "tpot_s": TPOT_MS / 1000,
    }
    (folder / "told.json").write_text(json.dumps(told))
    command = [sys.executable, "-c", PEER, str(folder / "told.json"), str(folder / "result.json")]
    subprocess.run(command, check=True, env={"DYN_LOG": "error", "PATH": ""}, timeout=300, capture_output=True)
    return json.loads((folder / "result.json").read_text())


@pytest.fixture(scope="module")
def surge(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(a folder, a request log whose rate triples after a while)."""
    folder = tmp_path_factory.mktemp("dynamo")
    rate = peer(folder, None)
    rng = np.random.default_rng(7)
    spans = [(0, SURGE_MIN, LOW), (SURGE_MIN, MINUTES, HIGH)]
    at = np.concatenate(
        [
            np.sort(rng.uniform(begin * 60, end * 60, rng.poisson(load * rate * (end - begin) * 60)))
            for begin, end, load in spans
        ]
    )
    blocks = -(-PROMPT // 512)
    path = folder / "log.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {
                    "timestamp": float(second * 1000),
                    "input_length": PROMPT,
                    "output_length": OUTPUT,
                    "hash_ids": list(range(number * blocks, (number + 1) * blocks)),
                }
            )
            + "\n"
            for number, second in enumerate(at.tolist())
        )
    )
    return folder, path


def within(result: Any) -> float:
    """The share of requests within the SLO, without those that came in the grace after the surge began."""
    begin = SURGE_MIN * 60_000
    judged = [row for row in result["rows"] if not begin <= row[0] < begin + GRACE_S * 1000]
    return sum(ttft <= TTFT_MS and tpot <= TPOT_MS for _, ttft, tpot in judged) / len(judged)


def test_the_slo_policy_keeps_the_slo_in_dynamos_replay_where_the_workers_of_the_start_would_not(
    surge: tuple[Path, Path],
) -> None:
    folder, path = surge
    ours = peer(folder, path)
    asked = [workers for _, workers, _ in ours["asked"]]
    before = [workers for at, workers, _ in ours["asked"] if at < SURGE_MIN * 60 * NS_PER_S]
    assert within(ours) >= 0.99 > within(peer(folder, path, FIRST)), "the surge needs more workers"
    assert set(before) == {FIRST} and asked[-1] < max(asked), "what drained the backlog is given up again"
    assert ours["hours"] * 60 < MINUTES * max(asked) * 0.75
