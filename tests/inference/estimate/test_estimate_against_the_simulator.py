"""The closed form and the simulator's engine are one model: same step times, same load, same answer to 10 %."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from inference.estimate.estimate_builders import replica, simulate
from tonnage.inference.estimate import EstimatedTiming, Load, Replica, estimate
from tonnage.inference.estimate.constants import Constants, constants

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


def without_overheads() -> Constants:
    known = constants()
    spent = [name for name in known.__struct_fields__ if name.endswith("_sglang") and not name.startswith("held")]
    spent += ["sequence_s", "request_s", "launch_layer_s", "prompt_token_s"]
    return replace(known, clients_in_step=1.0, **dict.fromkeys(spent, 0.0))


@pytest.mark.parametrize("load", LOADS[::2], ids=lambda load: f"{load.concurrency}x{load.input_tokens}")
@pytest.mark.parametrize("name", ["8B on an H100", "DeepSeek on eight H200"])
def test_clients_with_requests_of_one_length_stay_in_step_where_prompts_are_computed_first(
    name: str, load: Load
) -> None:
    one = bare(REPLICAS[name])
    found = estimate(replace(one, framework="sglang"), replace(load, same_length=True), constants=without_overheads())
    ttft, tpot = simulate(EstimatedTiming(one), load, kv_tokens=ROOM, rounds=2, spread=0.0, mixed_steps=False)
    assert found.ttft_s == pytest.approx(ttft, rel=0.01)
    assert found.tpot_s == pytest.approx(tpot, rel=0.03)


def test_one_prompt_shares_its_step_with_some_where_lengths_are_one_and_none_is_delayed_twice() -> None:
    one, load = replica(), Load(64, 4096, 512)
    known = replace(constants(), prompts_together=2.0)
    drawn, same = (estimate(one, replace(load, same_length=same), constants=known) for same in (False, True))
    assert same.ttft_s > drawn.ttft_s and same.tpot_s < drawn.tpot_s
    alone = (estimate(one, Load(1, 4096, 512, same_length=same), constants=known) for same in (False, True))
    assert len({(found.ttft_s, found.tpot_s) for found in alone}) == 1


def test_where_prompts_fill_the_kv_cache_the_wait_for_room_is_that_of_the_engine() -> None:
    load = Load(64, 4096, 512)
    one = bare(REPLICAS["8B on an H100"], kv_tokens=167_000)
    found = estimate(one, load)
    ttft, tpot = simulate(EstimatedTiming(one), load, kv_tokens=167_000)
    assert ttft > 5 > 8 * simulate(EstimatedTiming(one), load, kv_tokens=ROOM)[0]
    assert found.ttft_s == pytest.approx(ttft, rel=0.1)
    assert found.tpot_s == pytest.approx(tpot, rel=0.1)
