"""ai-dynamo-runtime's offline replay, in a Python of its own; run as a script it is that Python's side.

The script needs nothing of this project, so the peer may live in another virtual environment: TONNAGE_PEER_PYTHON names
its interpreter.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HASH_BLOCK = 512
_FIELDS = (
    "arrival_time_ms",
    "input_length",
    "output_length",
    "decode_worker_idx",
    "first_admit_ms",
    "first_token_ms",
    "last_token_ms",
    "reused_input_tokens",
)


@dataclass(frozen=True)
class PeerRun:
    """One replay of ``count`` requests.

    Seconds: ``own_s`` as the peer itself counts (the simulation alone); ``call_s`` and ``cpu_s`` are of the whole call,
    which reads the file too. ``requests``: one row each, with the cells of ``_FIELDS``."""

    count: int
    own_s: float
    call_s: float
    cpu_s: float
    reuse: float
    ttft_ms: float
    ttft_p99_ms: float
    tpot_ms: float
    requests: tuple[tuple[float, ...], ...] = ()

    @property
    def own_cpu_s(self) -> float:
        """Processor time of the simulation: as much of the call's as of its wall time."""
        return self.cpu_s * self.own_s / self.call_s


@functools.cache
def python() -> str | None:
    """The interpreter that has the peer: TONNAGE_PEER_PYTHON, or this one; None when neither has."""
    for candidate in (os.environ.get("TONNAGE_PEER_PYTHON"), sys.executable):
        if candidate and Path(candidate).exists():
            tried = subprocess.run([candidate, "-c", "import dynamo._core"], capture_output=True, check=False)
            if tried.returncode == 0:
                return candidate
    return None


ABSENT = "ai-dynamo-runtime is not installed here, nor where TONNAGE_PEER_PYTHON points"


def replay(trace: str, mode: str, workers: int, lag_ms: float = 0.0, keep_requests: bool = False) -> PeerRun:
    """Replay ``trace`` (JSON lines, not compressed). ``mode``: ``round_robin`` or ``kv_router``."""
    interpreter = python()
    if interpreter is None:
        raise RuntimeError(ABSENT)
    asked = {"trace": trace, "mode": mode, "workers": workers, "lag_ms": lag_ms, "keep_requests": keep_requests}
    done = subprocess.run(
        [interpreter, __file__, json.dumps(asked)],
        env=os.environ | {"DYN_LOG": "error"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    found["requests"] = tuple(tuple(row) for row in found["requests"])
    return PeerRun(**found)


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    from dynamo._core import run_mocker_trace_replay  # type: ignore[import-not-found,unused-ignore]

    cpu, begin = time.process_time(), time.perf_counter()
    result = run_mocker_trace_replay(
        [asked["trace"]],
        num_workers=asked["workers"],
        trace_block_size=HASH_BLOCK,
        router_mode=asked["mode"],
        capture_per_request=asked["keep_requests"],
        kv_event_lag_ms=asked["lag_ms"] or None,
    )
    call_s, cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    summary = getattr(result, "summary", result)
    rows = result.per_request if asked["keep_requests"] else []
    return {
        "count": summary["completed_requests"],
        "own_s": summary["wall_time_ms"] / 1000,
        "call_s": call_s,
        "cpu_s": cpu_s,
        "reuse": summary["prefix_cache_reused_ratio"],
        "ttft_ms": summary["mean_ttft_ms"],
        "ttft_p99_ms": summary["p99_ttft_ms"],
        "tpot_ms": summary["mean_tpot_ms"],
        "requests": [[row[field] for field in _FIELDS] for row in rows],
    }


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(sys.argv[1]))))
