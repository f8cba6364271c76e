"""The schedule of a public trace against Dynamo's offline replay, request by request."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from deep_seeds import deep
from tonnage.inference.engine import Engine, EngineConfig, Finished
from tonnage.inference.prompts import BlockNames
from tonnage.inference.timing import PolynomialTiming

DATA = Path(os.environ.get("TONNAGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACE = DATA / "traces" / "mooncake_synthetic_trace.jsonl.gz"
PEER = """
import json, sys
from dynamo._core import run_mocker_trace_replay
path, workers = sys.argv[1], int(sys.argv[2])
report = run_mocker_trace_replay(
    [path], router_mode="round_robin", num_workers=workers, trace_block_size=512, capture_per_request=True
)
json.dump(report.per_request, open(sys.argv[3], "w"))
"""

pytestmark = [
    pytest.mark.trace,
    pytest.mark.peer,
    pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is absent; set TONNAGE_DATA to the folder with traces/"),
    pytest.mark.skipif(
        importlib.util.find_spec("dynamo") is None, reason="ai-dynamo-runtime is not installed in this environment"
    ),
]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace as the peer reads it."""
    path = tmp_path_factory.mktemp("peer") / "trace.jsonl"
    path.write_bytes(gzip.decompress(TRACE.read_bytes()))
    return path


def ours(rows: list[dict[str, Any]], workers: int) -> list[Finished]:
    """What the requests were served like, in the order of the trace, each by the next worker."""
    names = BlockNames(64, 512)
    config = EngineConfig(8192, 256, 1 << 30, 16_384, 64, reserve_full_prompt=True)
    engines = [Engine(config, PolynomialTiming(16_384 * 64), prefix_caching=True) for _ in range(workers)]
    for number, row in enumerate(rows):
        path = names.path(row["hash_ids"], row["input_length"])
        arrival = row["timestamp"] * 1_000_000
        engines[number % workers].submit(number, arrival, row["input_length"], row["output_length"], path=path)
    for engine in engines:
        engine.advance(10**18)
    return sorted((one for engine in engines for one in engine.take_finished()), key=lambda one: one.request_id)


def theirs(trace: Path, workers: int) -> list[dict[str, Any]]:
    answer = trace.with_name(f"answer-{workers}.json")
    subprocess.run(
        [sys.executable, "-c", PEER, str(trace), str(workers), str(answer)],
        check=True,
        timeout=300,
        env={**os.environ, "DYN_LOG": "error"},
    )
    found: list[dict[str, Any]] = json.loads(answer.read_text())
    return found


@pytest.mark.parametrize("workers", [4, *deep([1, 16])])
def test_admissions_first_tokens_and_ends_are_those_of_the_replay(trace: Path, workers: int) -> None:
    rows = [json.loads(line) for line in trace.read_text().splitlines()]
    replayed: dict[tuple[float, int, int, int], list[dict[str, Any]]] = defaultdict(list)
    for one in theirs(trace, workers):
        key = (one["arrival_time_ms"], one["input_length"], one["output_length"], one["decode_worker_idx"])
        replayed[key].append(one)
    equal = 0
    for number, (row, done) in enumerate(zip(rows, ours(rows, workers), strict=True)):
        key = (float(row["timestamp"]), row["input_length"], row["output_length"], number % workers)
        peer = replayed[key].pop(0)
        pairs = (
            (peer["first_admit_ms"], done.admitted_ns),
            (peer["first_token_ms"], done.first_token_ns),
            (peer["last_token_ms"], done.finish_ns),
        )
        assert done.state == "finished"
        equal += all(at_ns is not None and abs(ms * 1e6 - at_ns) <= 1_000 for ms, at_ns in pairs)
    assert equal >= 0.99 * len(rows), f"{len(rows) - equal} of {len(rows)} requests differ by more than 1 µs"
    assert not any(replayed.values())
