"""How measured points were run, where public scripts say it and the columns do not."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from benchmarks import estimator_peer, estimator_rows
from benchmarks.estimator_runs import Decoders, Point, decoders_of, drafted, drafted_days, run_of

SCRIPTED = "db-dump/2026-04-27; config_id=691; silicon_concurrency=64; measured=2026-04-22"
EXACT = "source_file=/Users/someone/aic-auto-gap-analysis/data/h100_sxm/vllm/0.12.0/Qwen_Qwen3-32B.csv"
CELLS = {
    "id": "one",
    "silicon_data_source": SCRIPTED,
    "backend": "sglang",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "b200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "8192",
    "gemm_quant_mode": "fp8_block",
    "moe_quant_mode": "fp8_block",
    "batch_size": "64",
    "tp_size": "8",
    "pp_size": "1",
    "attention_dp_size": "1",
    "moe_tp_size": "8",
    "moe_ep_size": "1",
    "silicon_ttft_ms": "300",
    "silicon_tpot_ms": "20",
}


def row(**cells: str) -> estimator_rows.Row:
    found = estimator_rows.one({**CELLS, **cells})
    assert not isinstance(found, str), found
    return found


def point(**changed: object) -> Point:
    plain = Point(SCRIPTED, "deepseek-ai/DeepSeek-R1", "b200_sxm", "sglang", "fp8", 1024, 1024, 64, 8, 1, 8)
    return plain._replace(**changed)  # type: ignore[arg-type]


def test_lengths_of_inferencex_are_drawn_between_80_and_100_percent() -> None:
    load = row().load
    assert (load.input_tokens, load.output_tokens) == (922, 7373)


def test_other_measurements_send_exactly_the_lengths_of_the_columns() -> None:
    for source in (EXACT, ""):
        load = row(silicon_data_source=source).load
        assert (load.input_tokens, load.output_tokens) == (1024, 8192)


def test_sweeps_over_powers_of_two_send_requests_of_one_length() -> None:
    sweep = {"silicon_data_source": EXACT + "; silicon_concurrency=64", "osl": "128"}
    assert row(**sweep).load.same_length
    for other in ({"isl": "1000"}, {"osl": "500"}, {"silicon_data_source": EXACT + "; silicon_concurrency=20"}):
        assert not row(**{**sweep, **other}).load.same_length
    assert not row().load.same_length


def test_several_replicas_behind_one_frontend_have_each_its_part_of_the_requests() -> None:
    cells = {"batch_size": "13", "attention_dp_size": ""}
    behind = f"{EXACT}; silicon_concurrency=416; image=nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:0.8.1"
    assert row(**cells, silicon_data_source=behind).load.concurrency == 13
    assert row(**cells, silicon_data_source=behind.partition("; image")[0]).load.concurrency == 416
    assert row(**cells, silicon_data_source=EXACT).load.concurrency == 13
    ranks = {"batch_size": "8", "tp_size": "1", "attention_dp_size": "4", "moe_tp_size": "1", "moe_ep_size": "4"}
    assert row(**ranks, silicon_data_source=behind.replace("416", "64")).load.concurrency == 32


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ({}, 14.5),
        ({"concurrency": 15.0}, 4.5),
        ({"tensor_parallel": 4}, 4.5),
        ({"system": "b300_sxm", "precision": "fp4"}, 14.5),
        ({"model": "zai-org/GLM-5-FP8"}, 0.0),
        ({"system": "h200_sxm"}, 0.0),
        ({"source": EXACT}, 0.0),
        ({"backend": "trtllm"}, 0.0),
        ({"backend": "trtllm", "data_parallel": 8, "concurrency": 128.0}, 30.0),
        ({"backend": "trtllm", "data_parallel": 8, "concurrency": 1024.0}, 4.0),
        ({"model": "meta-llama/Llama-3.1-70B", "backend": "trtllm", "tensor_parallel": 4}, 8.0),
        ({"model": "meta-llama/Llama-3.1-70B", "backend": "trtllm", "tensor_parallel": 4, "concurrency": 4.0}, 10.0),
        ({"model": "meta-llama/Llama-3.1-70B", "backend": "trtllm"}, 0.0),
    ],
)
def test_requests_wait_for_as_many_steps_as_the_scripts_of_the_engine_say(
    changed: dict[str, object], steps: float
) -> None:
    assert run_of(point(**changed)).wait_steps == steps


def test_what_the_scripts_say_of_an_engine_is_in_the_replica() -> None:
    found = row().replica
    assert (found.kv_precision, found.max_num_batched_tokens, found.wait_steps) == ("fp8", 32768, 14.5)
    other = row(silicon_data_source=EXACT).replica
    assert (other.kv_precision, other.max_num_batched_tokens, other.wait_steps) == ("bf16", 8192, 0.0)


def test_of_a_whole_system_what_decodes_is_estimated_with_its_share_of_the_requests() -> None:
    whole = {"system": "gb200", "backend": "trtllm", "precision": "fp4", "osl": "1024", "moe_quant_mode": "nvfp4"}
    source = "source_file=2026-04-06.csv; silicon_concurrency={}"
    found = row(**whole, tp_size="36", moe_tp_size="36", silicon_data_source=source.format(64))
    assert (found.replica.tensor_parallel, found.replica.data_parallel, found.replica.gpus) == (8, 1, 8)
    assert found.replica.separate_prefill and found.replica.expert_parallel and found.load.concurrency == 16
    wide = row(**whole, tp_size="36", moe_tp_size="36", silicon_data_source=source.format(1075))
    assert (wide.replica.tensor_parallel, wide.replica.data_parallel, wide.load.concurrency) == (1, 32, 1075)
    drafted = {**CELLS, **whole, "tp_size": "36", "moe_tp_size": "36", "silicon_data_source": source.format(144)}
    assert estimator_rows.one(drafted) == "speculative decoding"
    assert decoders_of(point(source=EXACT, gpus=36)) is None
    middle = point(system="gb200", gpus=72, concurrency=4096.0)
    assert decoders_of(middle) == Decoders(1, 1, 48, 0)
    assert decoders_of(middle._replace(inputs=8192)) == Decoders(1, 1, 24, 0)


def test_what_only_configurations_with_drafts_have_was_run_with_them_and_so_was_all_of_its_day() -> None:
    plain = point(
        system="h200_sxm", backend="trtllm", expert_parallel=8, source=SCRIPTED.replace("-22", "-14"), version="1.1"
    )
    many = plain._replace(concurrency=128.0, data_parallel=8)
    other = plain._replace(source=SCRIPTED)
    days = drafted_days([plain, many, other])
    assert days == {many.day}
    assert drafted(many, frozenset()) and drafted(plain, days)
    assert not drafted(plain, frozenset()) and not drafted(other, days)
    assert not drafted(many._replace(source=EXACT), days) and not drafted(many._replace(backend="sglang"), days)
    without = plain._replace(inputs=8192.0, concurrency=64.0, system="b200_sxm")
    assert drafted_days([without, without._replace(concurrency=128.0, data_parallel=8)]) == frozenset()


def test_the_sample_in_the_package_of_the_peer_is_never_opened(tmp_path: Path) -> None:
    opened: list[str] = []
    watching = [True]
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if watching and event == "open" else None)
    text = ",".join(CELLS).encode() + b"\n" + ",".join(CELLS.values()).encode()
    for name in estimator_rows.FITTED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(text))
    rows = estimator_rows.fitted(tmp_path).rows
    estimator_rows.shape_of.cache_clear()
    assert isinstance(estimator_rows.shape_of("someone/Never-Heard-Of-7B"), str)
    estimator_peer.recorded(rows)
    watching.clear()
    samples = [name for name in opened if "silicon_sample" in name]
    assert samples and all(name.startswith(str(tmp_path)) for name in samples)


def test_the_list_of_the_peer_is_the_same_however_often_it_is_drawn_up_and_takes_groups_in_turn() -> None:
    rows = [row(id=f"r{n}", isl=str(512 + n), backend=("sglang", "trtllm")[n % 2]) for n in range(12)]
    names = [rows[index].cells["id"] for index in estimator_peer.order(rows)]
    turned = list(reversed(rows))
    assert names == [turned[index].cells["id"] for index in estimator_peer.order(turned)]
    frameworks = [rows[index].replica.framework for index in estimator_peer.order(rows)]
    assert frameworks[::2] == ["sglang"] * 6 and frameworks[1::2] == ["tensorrt-llm"] * 6


def test_rows_that_the_peer_refused_are_in_the_list_without_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = tmp_path / "peer.csv"
    listed.write_text("# seconds\nid,ttft_s,tpot_s\na,0.5,0.02\nb,,\n")
    monkeypatch.setattr(estimator_peer, "RECORDED", listed)
    found = estimator_peer.recorded([row(id=name) for name in ("c", "b", "a")])
    assert found == estimator_peer.PeerResult({2: (0.5, 0.02)}, 2, 1)
