"""The simulated engine, size, the slo policy and routing give one model on one GPU the same step times and KV blocks."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from deep_seeds import part
from inference.sizing.sizing_builders import asked
from tonnage.facts import mig
from tonnage.inference.capacity import RequestMix, mean_latency_s
from tonnage.inference.engine import Engine
from tonnage.inference.estimate import step_seconds
from tonnage.inference.other_engines import replica_of
from tonnage.inference.routing.costs import EngineCosts
from tonnage.inference.sizing import cards, fit, point, request
from tonnage.inference.vllm_args import VllmArgs

NS = 1e-9


class Case(NamedTuple):
    model: str
    gpu: str
    tensor_parallel: int = 1
    stored: str = "bf16"
    kv: str = "bf16"
    engine: str = "vllm"
    batch: int = 16
    prompt: int = 1024
    output: int = 256
    pipeline_parallel: int = 1

    @property
    def args(self) -> VllmArgs:
        """The engine's settings, with the model's published format where no other is asked for."""
        quantization = None if self.stored in ("bf16", "mxfp4") else self.stored
        return VllmArgs(
            tensor_parallel_size=self.tensor_parallel,
            pipeline_parallel_size=self.pipeline_parallel,
            quantization=quantization,
            kv_cache_dtype="auto" if self.kv == "bf16" else self.kv,
            max_model_len=self.prompt + self.output,
            engine=self.engine,
        )


CASES = [
    Case("Llama-3.1-8B", "l4", prompt=4096, output=64, batch=4),
    Case("Llama-3.1-8B", "l40s", batch=64, prompt=1900, output=200),
    Case("Llama-3.1-8B", "l40s", prompt=4096, output=200, batch=1),
    Case("Llama-3.1-8B", "h100", batch=256),
    Case("Llama-3.1-8B", "h100", stored="fp8", kv="fp8", batch=512, prompt=300, output=900),
    Case("Llama-3.1-8B", "h100:3g.40gb", batch=32),
    Case("Llama-3.1-8B", "a100-40", engine="sglang", batch=40),
    Case("Llama-3.1-8B", "h100", engine="tensorrt-llm", batch=100),
    Case("Llama-3.1-8B", "l40s", 2, batch=8, prompt=30_000, output=10),
    Case("Llama-3.1-8B", "l40s", pipeline_parallel=2, batch=24),
    Case("Llama-3.1-70B", "h100", 4, batch=64, prompt=2000, output=500),
    Case("Llama-3.1-70B", "h200", 8, stored="fp8", batch=300),
    Case("Qwen3-8B", "l40s", batch=12),
    Case("Qwen3-30B-A3B", "h100", batch=64, prompt=2048, output=100),
    Case("Qwen3-30B-A3B", "h200", 2, stored="fp8", engine="sglang", batch=200),
    Case("Qwen3.5-27B", "h200", batch=20, prompt=8000, output=300),
    Case("gpt-oss-20b", "l40s", stored="mxfp4", batch=50, prompt=70, output=50),
    Case("gpt-oss-120b", "h100", 2, stored="mxfp4", batch=128, prompt=3000, output=500),
    Case("gemma-3-27b", "h100", batch=7, prompt=900, output=800),
    Case("DeepSeek-V3", "h200", 8, stored="fp8", batch=96, prompt=6000, output=1000),
]


def say(case: Case, **step: float) -> float:
    """Seconds of a step as the estimator's public call gives them."""
    gpu = mig.resolve(case.gpu)[0]
    formats = {"precision": case.stored, "kv_precision": case.kv, "framework": case.engine}
    wanted = asked(case.model, case.gpu)
    return step_seconds(wanted.shape, gpu, tensor_parallel=case.tensor_parallel, **formats, **step)  # type: ignore[arg-type]


def chunks(case: Case, budget: int) -> float:
    """Seconds of the steps that compute one prompt alone."""
    starts = range(0, case.prompt, budget)
    return sum(
        say(case, prompt_tokens=min(budget, case.prompt - start), prompt_cached=start, batch=0) for start in starts
    )


def test_there_are_twenty_cases() -> None:
    assert len(set(CASES)) == 20


@pytest.mark.parametrize("case", part(CASES), ids=lambda case: "-".join(map(str, case)))
def test_all_agree_on_step_times_and_kv_blocks(case: Case) -> None:
    wanted = asked(
        case.model,
        case.gpu,
        stored=case.stored,
        kv=case.kv,
        lengths=request.fixed(case.prompt, case.output),
        system=case.engine,
        utilization=0.92 if case.engine == "vllm" else 0.0,
    )
    config, timing = replica_of(wanted.shape, mig.resolve(case.gpu)[0], case.args)
    plan = fit.plan(wanted, cards.get(case.gpu), case.tensor_parallel, case.pipeline_parallel)
    assert (config.kv_blocks, config.block_size) == (plan.kv.usable, plan.kv.layout.block_size)
    assert config.max_num_batched_tokens == plan.max_num_batched_tokens

    context = case.prompt + case.output // 2
    decode, prefill = say(case, batch=case.batch, context=context), chunks(case, config.max_num_batched_tokens)
    assert sum(point.decode_step(wanted, plan, case.batch).values()) == pytest.approx(decode, abs=NS), "size"
    costs = EngineCosts(timing, config.max_num_batched_tokens)
    assert costs.decode_s(case.batch, case.batch * context) == pytest.approx(decode, abs=NS), "routing"
    assert costs.prefill_s(case.prompt, 0) == pytest.approx(prefill, abs=NS), "routing"

    engine = Engine(config, timing)
    engine.submit(0, 0, case.prompt, case.output)
    engine.advance(10**14)
    (done,) = engine.take_finished()
    steps = sum(say(case, batch=1, context=case.prompt + at) for at in range(case.output - 1))
    assert done.first_token_ns is not None
    assert done.first_token_ns * NS == pytest.approx(prefill, abs=NS * 1.01), "simulate"
    assert done.finish_ns * NS == pytest.approx(prefill + steps, abs=NS * 1.01), "simulate"
    mix = RequestMix(((case.prompt, case.output),))
    alone = mean_latency_s(config, timing, mix, 1e-4)
    assert alone == pytest.approx(prefill + steps, abs=NS * 1.01), "slo"
