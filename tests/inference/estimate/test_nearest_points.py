"""Which measured points an estimate names, and how the band widens with the distance to them."""

from __future__ import annotations

from math import log

import pytest
from estimate_builders import replica
from msgspec.structs import replace

from tonnage.facts import models
from tonnage.inference.estimate import Load, estimate, plain_shape
from tonnage.inference.estimate.constants import bands
from tonnage.inference.estimate.measured import FARTHEST, MeasuredGroup, MeasuredGroups, measured, nearest

HERE = {"gpu": "h100", "precision": "fp8", "framework": "vllm", "tensor_parallel": 4}


def distance(model: str = "Llama-3.1-70B", **changed: object) -> float:
    only = MeasuredGroups(
        [MeasuredGroup("meta-llama/Llama-3.1-70B", "h100", "fp8", "vllm", 4, 1, 1, 9, (4.0, 64.0))],
        [models.get("Llama-3.1-70B")],
    )
    return only.distance(replica(model, **{**HERE, **changed}))  # type: ignore[arg-type]


def test_what_was_measured_is_at_no_distance() -> None:
    assert distance() == 0


@pytest.mark.parametrize(
    ("changed", "away"),
    [
        ({"gpu": "h200"}, 0.5),
        ({"gpu": "b200"}, 1.0),
        ({"gpu": "a100"}, 1.0),
        ({"precision": "int8"}, 0.5),
        ({"precision": "bf16"}, 1.0),
        ({"framework": "sglang"}, 0.5),
        ({"framework": ""}, 0.5),
        ({"tensor_parallel": 8}, 1 / 3),
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, 0.5),
        ({"gpu": "h200", "framework": "sglang"}, 1.0),
    ],
)
def test_what_differs_adds_up(changed: dict[str, object], away: float) -> None:
    assert distance(**changed) == pytest.approx(away)


def test_shapes_are_the_farther_the_more_kinds_of_layers_and_parameters_differ() -> None:
    dense = distance("Qwen3-32B")
    mixture = distance("Qwen3-235B-A22B")
    latent = distance("DeepSeek-V3", tensor_parallel=8)
    assert 0 < dense < 0.5 < 1 < mixture < latent <= FARTHEST


def test_the_nearest_points_are_of_the_same_model_where_there_are_some() -> None:
    named = nearest(replica("Llama-3.1-70B", "h100", "fp8", tensor_parallel=4))
    assert len(named) == 3
    assert named[0].startswith("meta-llama/Llama-3.1-70B in fp8 on h100, vllm, TP 4: ")
    assert named[0].endswith(" in flight")
    assert all("gpt-oss" in one for one in nearest(replica("gpt-oss-120b", "h200", "mxfp4", tensor_parallel=2)))


def test_a_shape_of_ones_own_has_nearest_points_and_a_distance() -> None:
    shape = plain_shape(layers=8, hidden=2048, heads=16, ffn=8192, vocab=32000, name="mine")
    groups = measured().nearest(replace(replica(), shape=shape))
    assert len(groups) == 3
    assert groups[0][1] <= groups[1][1] <= groups[2][1]


def test_the_band_is_wider_the_less_a_replica_is_like_what_was_measured() -> None:
    load = Load(16, 1024, 512)
    near, far = (
        estimate(replica(model, gpu, precision), load)
        for model, gpu, precision in (("Llama-3.1-8B", "h100", "fp8"), ("gemma-3-27b", "h100", "int4"))
    )
    for of in ("tpot_band_s", "ttft_band_s"):
        widths = [log(getattr(found, of)[1] / getattr(found, of)[0]) for found in (near, far)]
        assert widths[0] < widths[1]
    assert near.nearest != far.nearest


@pytest.mark.parametrize("of", ["tpot", "ttft"])
def test_no_regime_narrows_a_band(of: str) -> None:
    assert all(weight <= 0 for weight in bands()[of].low[1:])
    assert all(weight >= 0 for weight in bands()[of].high[1:])
