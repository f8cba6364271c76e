"""An hour of real conversation requests (Azure LLM inference trace 2023) over a few replicas."""

from __future__ import annotations

import csv
import gzip
import os
from datetime import datetime
from pathlib import Path

import pytest

from deep_seeds import deep
from tonnage.inference.engine import Engine, EngineConfig, Finished
from tonnage.inference.timing import LinearTiming

DATA = Path(os.environ.get("TONNAGE_DATA", Path(__file__).parents[3] / "shared" / "data"))
TRACE = DATA / "traces" / "azure2023_conv.csv.gz"
TIMING = LinearTiming(base_ps=7_000_000_000, token_ps=60_000_000, cached_ps=40_000, pair_ps=1_000)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.trace,
    pytest.mark.skipif(not TRACE.exists(), reason=f"{TRACE} is absent; set TONNAGE_DATA to the folder with traces/"),
]


def requests() -> list[tuple[int, int, int, int]]:
    with gzip.open(TRACE, "rt") as lines:
        rows = list(csv.DictReader(lines))
    start = datetime.fromisoformat(rows[0]["TIMESTAMP"][:26])
    arrivals = [(datetime.fromisoformat(row["TIMESTAMP"][:26]) - start).total_seconds() for row in rows]
    return [
        (index, round(at * 1e9), int(row["ContextTokens"]), max(1, int(row["GeneratedTokens"])))
        for index, (at, row) in enumerate(zip(arrivals, rows, strict=True))
    ]


def serve(
    arrivals: list[tuple[int, int, int, int]], replicas: int, config: EngineConfig, macro: bool
) -> list[list[Finished]]:
    """Each request goes to the replica with the fewest; only replicas that can have changed are advanced."""
    engines = [Engine(config, TIMING, macro=macro) for _ in range(replicas)]
    changes: list[int | None] = [None] * len(engines)
    for request in arrivals:
        now = request[1]
        for index, engine in enumerate(engines):
            change = changes[index]
            while change is not None and change <= now:
                engine.advance(now)
                change = engine.next_change_ns()
            changes[index] = change
        chosen = min(range(len(engines)), key=lambda index: engines[index].running + engines[index].waiting)
        engines[chosen].submit(*request)
        changes[chosen] = engines[chosen].next_change_ns()
    for engine in engines:
        engine.advance(10**15)
        assert (engine.running, engine.waiting, engine.blocks_used) == (0, 0, 0)
    return [engine.take_finished() for engine in engines]


@pytest.mark.parametrize("minutes", [12, *deep([60])])
@pytest.mark.parametrize(("replicas", "blocks", "preempts"), [(10, 12_000, False), (3, 700, True)])
def test_the_hour_is_served_alike_in_closed_form_and_step_by_step(
    replicas: int, blocks: int, preempts: bool, minutes: int
) -> None:
    arrivals = [one for one in requests() if one[1] < minutes * 60 * 10**9]
    assert len(arrivals) > 3_000
    config = EngineConfig(max_num_batched_tokens=8192, max_num_seqs=1024, max_model_len=131_072, kv_blocks=blocks)
    jumping = serve(arrivals, replicas, config, macro=True)
    ended = [request for replica in jumping for request in replica]
    served = [request for request in ended if request.state == "finished"]
    assert len(ended) == len(arrivals)
    assert len(served) >= 0.99 * len(arrivals)
    assert sum(r.output_tokens for r in served) == sum(arrivals[r.request_id][3] for r in served)
    assert (sum(request.preemptions for request in served) > 0) == preempts
    assert jumping == serve(arrivals, replicas, config, macro=False)
