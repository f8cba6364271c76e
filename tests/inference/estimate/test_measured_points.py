"""Measured points: what their rows mean, and how far the estimates are from them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import estimator_layers, estimator_rows
from benchmarks.common import Options, data_folder
from benchmarks.estimator import interval_score, run
from tonnage.errors import InputError
from tonnage.inference import tables
from tonnage.inference.estimate import estimate_many

FOLDER = data_folder(os.environ.get("TONNAGE_DATA"))
FILE = FOLDER / estimator_rows.SILICON if FOLDER else Path("absent")
measured = pytest.mark.skipif(not FILE.exists(), reason="no measured points (TONNAGE_DATA or ../shared/data)")

CELLS = {
    "silicon_data_source": "silicon_concurrency=64; measured=2026-01-01",
    "backend": "trtllm",
    "model_path": "deepseek-ai/DeepSeek-R1",
    "system": "h200_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "512",
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


@pytest.mark.parametrize(
    ("tp", "dp", "moe_tp", "moe_ep", "meant"),
    [
        ("8", "1", "8", "1", (8, 1)),
        ("1", "8", "1", "8", (1, 8)),
        ("64", "1", "8", "8", (8, 1)),
        ("1", "64", "8", "8", (1, 8)),
        ("4", "4", "1", "16", (4, 1)),
    ],
)
def test_gpus_that_a_row_counts_twice_are_counted_once(
    tp: str, dp: str, moe_tp: str, moe_ep: str, meant: tuple[int, int]
) -> None:
    found = row(
        system="b200_sxm", tp_size=tp, attention_dp_size=dp, moe_tp_size=moe_tp, moe_ep_size=moe_ep
    ).replica  # fmt: skip
    assert (found.tensor_parallel, found.data_parallel) == meant
    assert not found.separate_prefill


def test_gpu_counts_that_no_tensor_parallelism_allows_are_whole_systems() -> None:
    found = row(system="gb200", tp_size="36", moe_tp_size="36").replica
    assert (found.tensor_parallel, found.data_parallel, found.separate_prefill) == (1, 36, True)


def test_concurrency_is_that_of_the_source_else_batch_times_ranks() -> None:
    assert row().load.concurrency == 64
    ranks = {"tp_size": "1", "attention_dp_size": "8", "moe_tp_size": "1", "moe_ep_size": "8"}
    assert row(silicon_data_source="", batch_size="16", **ranks).load.concurrency == 128


@pytest.mark.parametrize(
    ("cells", "precision"),
    [
        ({}, "fp8"),
        ({"moe_quant_mode": "nvfp4"}, "fp4"),
        ({"moe_quant_mode": "", "gemm_quant_mode": "", "precision": "fp4"}, "fp4"),
        ({"moe_quant_mode": "w4a16_mxfp4", "gemm_quant_mode": "bfloat16"}, "mxfp4"),
        ({"model_path": "Qwen/Qwen3-32B", "gemm_quant_mode": "bfloat16"}, "bf16"),
        ({"model_path": "Qwen/Qwen3-32B", "gemm_quant_mode": "", "precision": ""}, "bf16"),
        ({"model_path": "Qwen/Qwen3-32B-FP8"}, "fp8"),
    ],
)
def test_the_precision_is_that_of_most_weights(cells: dict[str, str], precision: str) -> None:
    assert row(**cells).replica.precision == precision


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ({"mode": "disagg"}, "apart"),
        ({"silicon_tpot_ms": ""}, "no TPOT"),
        ({"model_path": "none/Such-Model"}, "unknown model none/Such-Model"),
        ({"system": "z900"}, "unknown system z900"),
        ({"backend": "mine"}, "unknown backend mine"),
        ({"moe_quant_mode": "int3"}, "unknown precision int3"),
        ({"tp_size": "1", "moe_tp_size": "1"}, "do not fit"),
        ({"isl": "163000", "osl": "1024"}, "longer than the context"),
        ({"isl": ""}, "no lengths"),
    ],
)
def test_a_row_that_cannot_be_scored_says_why(cells: dict[str, str], why: str) -> None:
    found = estimator_rows.one({**CELLS, **cells})
    assert isinstance(found, str)
    assert why in found


def test_a_model_whose_kind_of_configuration_is_not_known_is_refused_by_name() -> None:
    pytest.importorskip("aiconfigurator_core", reason="needs aiconfigurator-core's configurations")
    found = estimator_rows.one({**CELLS, "model_path": "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"})
    assert found == "model nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 of unknown type nemotron_h"
    assert isinstance(estimator_rows.one({**CELLS, "model_path": "nvidia/GLM-5-NVFP4"}), estimator_rows.Row)


def test_a_file_of_other_columns_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "points.csv"
    file.write_text("model,ttft\nx,1\n")
    with pytest.raises(InputError, match="no column backend"):
        estimator_rows.read(file)
    with pytest.raises(SystemExit) as left:
        run(Options(quick=True, data=None, own={"test": str(file)}))
    assert left.value.code == 2
    assert "no column backend" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "has no column backend"),
        (b"\x1f\x8bno such thing", "cannot read"),
        (bytes(range(128, 256)), "cannot read"),
        (b"backend,isl\n" + b"x" * 200_000, "cannot read"),
    ],
)
def test_what_is_no_table_of_points_is_refused_with_its_name(tmp_path: Path, raw: bytes, said: str) -> None:
    for name in ("points.csv", "points.csv.gz"):
        (tmp_path / name).write_bytes(raw)
    with pytest.raises(InputError, match=said) as error:
        estimator_rows.read(tmp_path / "points.csv")
    assert error.value.problems[0].where.file.endswith("points.csv")
    for name in ("points.csv.gz", "nothing.csv", "."):
        with pytest.raises(InputError, match=r"cannot read|has no column"):
            estimator_rows.read(tmp_path / name)


def test_the_same_measurement_under_the_names_of_two_models_of_one_shape_is_one_point(tmp_path: Path) -> None:
    other = {**CELLS, "model_path": "deepseek-ai/DeepSeek-V3", "tp_size": "64", "moe_ep_size": "8"}
    lines = [CELLS, other, {**CELLS, "silicon_ttft_ms": "301"}, {**CELLS, "silicon_ttft_ms": ""}]
    lines += [lines[-1], {**CELLS, "model_path": "MiniMaxAI/MiniMax-M2.5"}]
    file = tmp_path / "points.csv"
    file.write_text("\n".join(",".join(values) for values in ([*CELLS], *(line.values() for line in lines))))
    found = estimator_rows.read(file)
    assert found.left_out == {"same measurement from another source": 2}
    assert [(one.family, one.ttft) for one in found.rows[:2]] == [("DeepSeek", 0.3), ("DeepSeek", 0.301)]
    assert np.isnan(found.rows[2].ttft) and found.rows[3].family == "MiniMax-M2"


@pytest.mark.parametrize("value", ["many", "inf", "nan", "1,5", "-inf"])
@pytest.mark.parametrize("field", ["isl", "tp_size", "silicon_ttft_ms", "batch_size"])
def test_a_cell_that_is_no_number_is_told_with_its_line_and_column(tmp_path: Path, field: str, value: str) -> None:
    file = tmp_path / "points.csv"
    lines = [[*CELLS], [*CELLS.values()], [f'"{cell}"' for cell in {**CELLS, field: value}.values()]]
    file.write_text("\n".join(",".join(line) for line in lines))
    found = estimator_rows.read(file)
    assert (len(found.rows), found.left_out) == (1, {"a cell that is not a number": 1})
    assert str(found.problems[0]) == f"{file}:3:{field}: {field} is {value!r} (expected a number)"


def test_a_file_to_test_is_scored_without_fitting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.estimator_peer.available", lambda: False)
    file = tmp_path / "points.csv"
    lines = [{**CELLS, "isl": str(512 * n), "silicon_tpot_ms": str(18 + n)} for n in (1, 2, 3)]
    lines.append({**CELLS, "isl": "many"})
    lines += [{**CELLS, "model_path": "none/Such-Model"}, {**CELLS, "system": "z900"}] * 2
    text = "\n".join(",".join(values) for values in ([*CELLS], *(line.values() for line in lines)))
    file.write_text(text + "\nsilicon_concurrency=64,trtllm")
    report = run(Options(quick=True, data=None, own={"test": str(file)}))
    assert report.rows[-1]["split"] == "all rows"
    assert report.rows[-1]["rows"] == 3
    assert 0 < report.rows[-1]["tpot_median"] < 1
    for said in ("1 a cell that is not a number", "2 unknown model none/Such-Model", "2 unknown system z900"):
        assert said in report.notes[0]
    assert "1 no TPOT" in report.notes[0]
    assert {bar.id for bar in report.bars} >= {"band-tpot-contains-at-least", "band-ttft-worst-system"}


def test_no_fit_starts_from_constants_that_saw_the_rows_it_leaves_out() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.estimator_fit import FORMS, PRIORS, LeftOut

    given = [row(isl=str(256 * n), silicon_tpot_ms=str(15 + n), silicon_ttft_ms=str(200 + 30 * n)) for n in range(1, 7)]
    other = [one._replace(tpot=one.tpot * 3, family="other") for one in given]
    constants = LeftOut(given + other, [one.family for one in given + other]).without(frozenset({"other"}), FORMS[1])
    assert constants == LeftOut(given, [one.family for one in given]).without(frozenset(), FORMS[1])
    kept = {entry["name"]: entry["source"] for entry in tables.rows("estimator.csv") if entry["name"] not in PRIORS}
    assert kept and not any("fit" in source for source in kept.values())


def test_a_form_has_values_of_priors_of_its_own() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.estimator_fit import fit
    from benchmarks.estimator_priors import FORMS, PRIORS

    firm = FORMS[-1]._replace(firmness=1e6)
    found = fit([row()], firm)
    assert firm.values and all(getattr(found, name) == pytest.approx(0.75, rel=1e-3) for name in firm.values)
    assert found.compute == pytest.approx(PRIORS["compute"].value, rel=1e-3)
    assert all(getattr(found, name) == value for name, value in firm.kept.items())


def test_layers_of_real_gpus_move_constants_that_few_points_tell_only_where_their_card_is_not_left_out() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.estimator_fit import fit
    from benchmarks.estimator_priors import FORMS

    wrong = FORMS[1]._replace(values={"attention_compute": 0.3, "weight_bandwidth": 0.6}, firmness=0.1)
    known, blind = (fit([row(system=system)], wrong) for system in ("h200_sxm", "b200_sxm"))
    off, aim = estimator_layers.medians(known)["dense-layers-h200"]
    assert off <= aim < 2 * aim < estimator_layers.medians(blind)["dense-layers-h200"][0]


@pytest.mark.fuzz
def test_the_form_of_a_split_is_chosen_without_the_group_that_is_left_out() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.estimator_fit import FORMS, LeftOut

    given = [
        row(isl=str(256 * n))._replace(family=name, tpot=0.02 * factor, ttft=0.2 * factor)
        for name, factor in (("a", 1.0), ("b", 1.1), ("c", 0.9), ("d", 1.0))
        for n in (1, 2, 3)
    ]
    moved = [one._replace(tpot=one.tpot * 7, ttft=one.ttft / 5) if one.family == "d" else one for one in given]
    names = [one.family for one in given]
    forms = FORMS[:3]
    one, other = (LeftOut(rows, names, forms) for rows in (given, moved))
    assert one.form_without("d") == other.form_without("d")
    np.testing.assert_array_equal(one.residuals().amounts[9:], other.residuals().amounts[9:])
    for form in forms:
        np.testing.assert_array_equal(one.residuals("d", form).tpot, other.residuals("d", form).tpot)


def test_nothing_but_the_two_files_of_the_data_folder_is_opened_to_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in estimator_rows.FITTED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(
            gzip.compress(",".join(CELLS).encode() + b"\n" + ",".join(CELLS.values()).encode())
        )
    opened: list[Path] = []
    plain = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: opened.append(path) or plain(path))
    assert len(estimator_rows.fitted(tmp_path).rows) == 2
    assert opened == [tmp_path / "silicon" / f"silicon_{name}.csv.gz" for name in ("sample", "gptoss_hopper")]
    for file in Path(estimator_rows.__file__).parent.glob("estimator*.py"):
        assert '"systems"' not in file.read_text(), (
            f"{file.name}: the sample of aiconfigurator's package is to test with"
        )


def test_a_hidden_group_is_seen_neither_by_constants_nor_by_residuals() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.estimator_fit import FORMS, LeftOut

    given = [
        row(isl=str(256 * n))._replace(family=name, tpot=0.02 * factor)
        for name, factor in (("a", 1.0), ("b", 1.1), ("c", 5.0))
        for n in (1, 2, 3)
    ]
    names = [one.family for one in given]
    hidden = LeftOut(given, names, FORMS[:1]).residuals(hidden="c")
    alone = LeftOut(given[:6], names[:6], FORMS[:1]).residuals()
    np.testing.assert_array_equal(hidden.tpot[:6], alone.tpot)
    assert np.isnan(hidden.tpot[6:]).all()


def test_a_narrow_band_scores_better_until_it_misses() -> None:
    truths = np.linspace(-1, 1, 201)
    scores = [interval_score(truths, np.full(201, -width), np.full(201, width)) for width in (1.5, 0.95, 0.3)]
    assert scores[1] < scores[0] < scores[2]


@pytest.mark.trace
@measured
def test_the_shipped_constants_are_as_near_as_documented() -> None:
    assert FOLDER is not None
    rows = estimator_rows.fitted(FOLDER).rows
    assert len(rows) > 2250
    found = estimate_many([(one.replica, one.load) for one in rows])
    ttft, tpot = estimator_rows.truth(rows)
    assert np.median(np.abs(found.tpot_s / tpot - 1)) < 0.105
    assert np.nanmedian(np.abs(found.ttft_s / ttft - 1)) < 0.23
    for band, truth in ((found.tpot_band_s, tpot), (found.ttft_band_s, ttft)):
        use = np.isfinite(truth)
        assert 0.85 <= np.mean((band[use, 0] <= truth[use]) & (truth[use] <= band[use, 1])) <= 0.97


@pytest.mark.trace
@measured
def test_constants_fitted_without_a_model_are_near_its_points() -> None:
    pytest.importorskip("scipy", reason="fitting needs scipy")
    from benchmarks.estimator_fit import FORMS, LeftOut

    assert FOLDER is not None
    rows = estimator_rows.fitted(FOLDER).rows
    out = [one for one in rows if one.family == "Llama-70B"]
    fitted = LeftOut(rows, [one.family for one in rows]).without(frozenset({"Llama-70B"}), FORMS[1])
    found = estimate_many([(one.replica, one.load) for one in out], constants=fitted)
    _, tpot = estimator_rows.truth(out)
    assert np.median(np.abs(found.tpot_s / tpot - 1)) < 0.14
