"""The closed form and the simulator's engine are one model: same step times, same load, same answer to 10 %."""

from __future__ import annotations

import pytest

from inference.estimate.estimate_builders import replica, simulate
from tonnage.inference.estimate import EstimatedTiming, Load, Replica, estimate

ROOM = 10**7

REPLICAS = {
    "8B on an H100": replica(),
    "70B in FP8 on four H100": replica("Llama-3.1-70B", precision="fp8", tensor_parallel=4),
    "DeepSeek on eight H200": replica("DeepSeek-V3", "h200", "fp8", tensor_parallel=8),
    "MiniMax on four B200": replica("MiniMax-M2.5", "b200", "fp8", tensor_parallel=4),
    "32B on two A100": replica("Qwen3-32B", "a100-80", tensor_parallel=2),
}
LOADS = [
    Load(1, 1024, 256),
    Load(4, 1024, 1024),
    Load(16, 1024, 256),
    Load(64, 1024, 1024),
    Load(16, 8192, 1024),
    Load(64, 4096, 512),
    Load(128, 2048, 128),
    Load(32, 128, 1024),
    Load(200, 1024, 512),
]


def bare(of: Replica, kv_tokens: int = ROOM) -> Replica:
    return Replica(
        of.shape, of.gpu, of.precision, tensor_parallel=of.tensor_parallel, framework="", kv_tokens=kv_tokens
    )


@pytest.mark.parametrize("load", LOADS, ids=lambda load: f"{load.concurrency}x{load.input_tokens}/{load.output_tokens}")
@pytest.mark.parametrize("name", REPLICAS)
def test_ttft_and_tpot_are_those_of_the_engine_with_the_same_step_times(name: str, load: Load) -> None:
    one = bare(REPLICAS[name])
    found = estimate(one, load)
    ttft, tpot = simulate(EstimatedTiming(one), load, kv_tokens=ROOM)
    assert found.ttft_s == pytest.approx(ttft, rel=0.1)
    assert found.tpot_s == pytest.approx(tpot, rel=0.05)


def test_where_prompts_fill_the_kv_cache_the_wait_for_room_is_that_of_the_engine() -> None:
    load = Load(64, 4096, 512)
    one = bare(REPLICAS["8B on an H100"], kv_tokens=167_000)
    found = estimate(one, load)
    ttft, tpot = simulate(EstimatedTiming(one), load, kv_tokens=167_000)
    assert ttft > 5 > 8 * simulate(EstimatedTiming(one), load, kv_tokens=ROOM)[0]
    assert found.ttft_s == pytest.approx(ttft, rel=0.1)
    assert found.tpot_s == pytest.approx(tpot, rel=0.1)
