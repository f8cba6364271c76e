"""What is said around an option: loading, warnings, rules of thumb, training, the drawing."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from sizing_builders import answer, asked, market

from tonnage.errors import InputError
from tonnage.facts import gpus, instances, models
from tonnage.inference import memory
from tonnage.inference.sizing import cards, fit, loading, options, plot, point, rules, training, warnings
from tonnage.inference.sizing.options import SizingOption
from tonnage.inference.sizing.training import TrainingRecipe, training_memory
from tonnage.units import GIB


def loadings(size: float, kind: str | None, gpus_read: int = 1) -> dict[str, loading.Loading]:
    found = loading.loadings(int(size), instances.get(kind) if kind else None, gpus_read)
    return {row.storage: row for row in found}


def said(option: SizingOption, wanted: object, probe_s: float = 600, disk: str = "gp3") -> dict[str, str]:
    assert isinstance(wanted, type(asked("Qwen3-0.6B", "l4")))
    kind = instances.get(option.best.instance_type) if option.best else None
    size = memory.weight_bytes(wanted.shape, wanted.stored)
    load = next(row for row in loading.loadings(size, kind, option.plan.gpus) if row.storage == disk)
    return {one.about: one.text for one in warnings.warnings(wanted, option, load, probe_s)}


def test_loading_is_as_slow_as_the_slowest_of_disk_instance_and_loader() -> None:
    found = loadings(140e9, "g5.xlarge")
    assert (found["gp3"].limit, found["gp3"].load_s) == ("disk", pytest.approx(140e9 / 131_072_000))
    assert found["gp3"].load_s / 60 == pytest.approx(17.8, abs=0.1)
    assert (found["io2"].limit, found["io2"].load_s) == ("instance", pytest.approx(140e9 / 437.5e6))
    assert found["page-cache"].limit == "loader"
    large = loadings(140e9, "p4d.24xlarge", 8)
    assert large["io2"].load_s == pytest.approx(140e9 / 2.375e9)
    assert large["page-cache"].load_s == pytest.approx(140e9 / 1.85e9 / 8)
    assert loadings(1e9, "g7e.2xlarge")["instance-store"].load_s is not None
    assert loadings(1e9, "g5g.xlarge")["instance-store"].limit == "none"


def test_the_engine_starts_after_the_weights_and_the_probe_waits_longer() -> None:
    found = loadings(16e9, None)["gp3"]
    assert found.start_s == pytest.approx(16e9 / 131_072_000 + 202)
    assert found.start_cached_s == pytest.approx(16e9 / 131_072_000 + 66)
    assert loading.threshold(300) == 40
    assert loading.threshold(301) == 41


def test_an_a100_of_40_gb_is_not_one_of_80() -> None:
    wanted = asked("Qwen2.5-32B", "a100-80", context=4_096)
    option = answer("Qwen2.5-32B", "a100-80", context=4_096).options[-1]
    plan = fit.plan(wanted, cards.get("a100-80"), 1)
    single = SizingOption(plan, 1, option.point, 0, 1, 1, 1, option.offers)
    text = said(single, wanted)["memory"]
    assert "p4d has A100 of 40 GB, p4de of 80 GB" in text
    short = fit.plan(wanted, cards.get("a100-40"), 1).short / GIB
    assert f"lacks {short:.1f} GiB" in text


def test_tp_over_pcie_is_warned_of_and_nvlink_is_not() -> None:
    wanted = asked("Llama-3.1-70B", "l40s", "h100")
    found = {option.plan.label: option for option in options.answer(wanted, market()).options}
    assert "over PCIe (32 GB/s, no NVLink)" in said(found["l40s TP 4"], wanted)["links"]
    assert "links" not in said(found["h100 TP 2"], wanted)
    parts = point.decode_step(wanted, found["l40s TP 4"].plan, found["l40s TP 4"].point.concurrency)
    sent = 2 * 80 * 8192 * 2 * 2 * 3 / 4 * found["l40s TP 4"].point.concurrency
    assert parts["communication"] > sent / gpus.get("l40s").pcie_bytes_per_s
    assert f"{parts['communication'] * 1000:.1f} ms of a decode step" in said(found["l40s TP 4"], wanted)["links"]


def test_single_gpu_instances_are_not_a_node_of_several() -> None:
    wanted = asked("Llama-3.1-70B", "a10g", stored="int4")
    option = next(o for o in options.answer(wanted, market()).options if o.plan.tensor_parallel == 4)
    text = said(option, wanted)["boxes"]
    assert text.startswith("4 x g5.xlarge are not 4 GPUs of one node")
    assert "0.31 GB/s where the link inside a node gives 32, 102 times more" in text


@pytest.mark.parametrize(
    ("model", "card", "tensor_parallel", "stored", "about", "text"),
    [
        ("Qwen3-30B-A3B", "h100", 8, "bf16", "kv", "TP 8 is above the 4 KV heads"),
        ("DeepSeek-V3", "h200", 8, "fp8", "kv", "is not divided by TP: each of the 8 GPUs holds all of it"),
        ("Llama-3.1-8B", "a100-80", 1, "fp8", "format", "a100-80 has no FP8 tensor cores"),
        ("Llama-3.1-405B", "h100", 8, "fp8", "checkpoint", "attention in 16 bits takes 8.4 GiB per GPU more"),
        ("gpt-oss-120b", "h100", 1, "mxfp4", "sampler", "there this does not start"),
        ("Qwen3-0.6B", "t4", 1, "bf16", "format", "t4 has no BF16"),
        ("Llama-3.1-8B", "h100:3g.40gb", 1, "bf16", "sharing", "2 instances of 3g.40gb fit a h100"),
        ("Llama-3.1-8B", "l40s/2", 1, "bf16", "sharing", "--gpu-memory-utilization 0.46"),
    ],
)
def test_the_surprises_of_an_option_are_told(
    model: str, card: str, tensor_parallel: int, stored: str, about: str, text: str
) -> None:
    wanted = asked(model, card, stored=stored, tensor_parallel=tensor_parallel)
    option = options.answer(wanted, market()).options[0]
    assert text in said(option, wanted)[about]


def test_a_slow_disk_is_held_against_the_startup_probe() -> None:
    wanted = asked("Llama-3.1-70B", "h100")
    option = options.answer(wanted, market()).options[0]
    assert "141 GB of weights from gp3 take 1077 s" in said(option, wanted)["disk"]
    assert "disk" not in said(option, wanted, disk="io2")
    assert "disk" not in said(option, wanted, probe_s=1_800)


def test_spot_and_idle_gpus_are_told() -> None:
    wanted = asked("Llama-3.1-70B", "h200", tensor_parallel=2)
    option = options.answer(wanted, market()).options[0]
    texts = said(option, wanted)
    assert "two minutes' notice" in texts["spot"]
    assert option.best is not None and option.best.idle_gpus == 6
    assert texts["idle"].startswith("6 of 8 GPUs are paid for and not used")


@pytest.mark.parametrize(
    ("model", "stored", "branch", "starts"),
    [
        ("Qwen2.5-7B", "int4", "0 to 14 GB", {"t4": True}),
        ("Qwen2.5-7B", "bf16", "14 to 22 GB", {"a10g": True, "l4": True}),
        ("Llama-2-13b", "bf16", "22 to 38 GB", {"a100-40": True}),
        ("Llama-3.1-70B", "int4", "38 to 75 GB", {"a100-80": True}),
        ("Llama-3.1-70B", "bf16", "above 75 GB", {"2 x a100-80": True}),
        ("Llama-3.1-405B", "fp8", "above 75 GB", {"2 x a100-80": False}),
        ("Qwen2.5-14B", "int4", "0 to 14 GB", {"t4": True}),
        ("Llama-2-13b", "fp8", "0 to 14 GB", {"t4": False}),
    ],
)
def test_the_decision_tree_is_applied_and_its_outcome_told(
    model: str, stored: str, branch: str, starts: dict[str, bool]
) -> None:
    found = rules.advise(asked(model, "l4", stored=stored))
    assert found.range == branch
    assert {line.partition(":")[0]: "starts" in line for line in found.outcomes} == starts


def test_the_instance_guide_is_held_against_the_facts() -> None:
    found = {guide.gpu: " ".join(guide.differs) for guide in rules.guides()}
    assert "70 TFLOPS without sparsity, not 125" in found["a10g"]
    assert "an hour now, not $32.77" in found["a100-40"]
    assert "an hour now, not $98.32" in found["h100"]
    assert "TFLOPS" not in found["t4"] + found["l4"] + found["h100"]
    assert len(rules.faults()) >= 10


GUIDED = {
    "p5e.48xlarge": None,
    "p5.48xlarge": 55.04,
    "p4d.24xlarge": 21.96,
    "g5.48xlarge": 16.29,
    "trn2.48xlarge": None,
    "p5en.48xlarge": 63.30,
    "p6-b200.48xlarge": 113.93,
    "p6-b300.48xlarge": 142.42,
}


@pytest.mark.parametrize(
    ("model", "stored", "meant"),
    [
        ("Qwen2.5-7B", "bf16", {"g5.48xlarge"}),
        ("Llama-3.1-8B", "bf16", set()),  # between the sizes that the guides name
        ("Llama-2-13b", "bf16", {"p4d.24xlarge", "g6e.48xlarge"}),
        ("Llama-3.1-70B", "bf16", {"p5.48xlarge", "p4d.24xlarge", "g6e.48xlarge"}),
        ("Llama-3.1-405B", "fp8", {"p5e.48xlarge", "p5.48xlarge"}),
    ],
)
def test_guides_by_model_size_are_held_against_what_their_instances_do(
    model: str, stored: str, meant: set[str]
) -> None:
    found = rules.by_size(asked(model, "l4", stored=stored))
    assert {row.instance_type for row in found if row.meant} == meant
    assert len({row.source for row in found if row.meant is not None}) == 2
    prices = {row.instance_type: row.price for row in found}
    for name, dollars in GUIDED.items():
        known = prices[name]
        assert (known is None) == (dollars is None), name
        assert known is None or dollars is None or known / 1e6 == pytest.approx(dollars, abs=0.01)


def test_the_fewest_gpus_of_a_guides_instance_that_serve_are_told() -> None:
    by_type = {row.instance_type: row.outcome for row in rules.by_size(asked("Llama-3.1-70B", "l4", stored="bf16"))}
    assert by_type["p5.48xlarge"].startswith("2 of 8 GPUs are enough (2 x h100)")
    assert by_type["p6-b200.48xlarge"].startswith("one of 8 GPUs is enough (b200)")
    assert by_type["g5.48xlarge"].startswith("8 of 8 GPUs are enough (8 x a10g)")
    large = {row.instance_type: row.outcome for row in rules.by_size(asked("Llama-3.1-405B", "l4", stored="bf16"))}
    assert large["g5.48xlarge"].startswith("does not start on its 8 x a10g, ")
    assert by_type["trn2.48xlarge"] == "no GPUs: engines for it are not sized"


def test_full_training_takes_sixteen_bytes_a_parameter() -> None:
    shape, gpu = models.get("Llama-3.1-8B"), gpus.get("h100")
    bf16 = memory.precision("bf16")
    found = training_memory(shape, gpu, TrainingRecipe("full", bf16, 4_096))
    sizes = {part.name: part.bytes for part in found.parts}
    assert sizes["weights"] + sizes["gradients"] + sizes["optimizer states"] == 16 * shape.params
    assert sizes["activations"] == 4_096 * 4_096 * (2 * 32 + 34)
    assert sizes["logits and their gradient"] == 4_096 * 128_256 * 8
    assert not found.fits
    kept = training_memory(shape, gpu, TrainingRecipe("full", bf16, 4_096, recompute="none"))
    assert {p.name: p.bytes for p in kept.parts}["activations"] == 4_096 * 4_096 * 34 * 32


@pytest.mark.parametrize(("zero", "divided"), [(0, 0), (1, 12), (2, 14), (3, 16)])
def test_a_zero_stage_divides_its_states_over_the_ranks(zero: int, divided: int) -> None:
    shape = models.get("Llama-3.1-8B")
    asked_for = TrainingRecipe("full", memory.precision("bf16"), 4_096, zero=zero, data_parallel=8)
    sizes = {part.name: part.bytes for part in training_memory(shape, gpus.get("h100"), asked_for).parts}
    states = sizes["weights"] + sizes["gradients"] + sizes["optimizer states"]
    assert states == pytest.approx(shape.params * (16 - divided + divided / 8), abs=8)


def test_a_quantized_base_is_trained_by_adapters_only() -> None:
    shape, gpu = models.get("Llama-3.1-70B"), gpus.get("h100")
    nf4 = memory.precision("nf4")
    found = training_memory(shape, gpu, TrainingRecipe("lora", nf4, 2_048))
    assert found.fits
    assert {p.name: p.bytes for p in found.parts}["weights: base model"] == memory.weight_bytes(shape, nf4)
    with pytest.raises(InputError, match="full training of weights in nf4"):
        training_memory(shape, gpu, TrainingRecipe("full", nf4, 2_048))
    with pytest.raises(InputError, match="no ZeRO stage 4"):
        training_memory(shape, gpu, TrainingRecipe("lora", nf4, 2_048, zero=4))


def test_the_fewest_gpus_that_train_are_found() -> None:
    shape, bf16 = models.get("Llama-3.1-8B"), memory.precision("bf16")
    for gpu, count in (("l40s", 4), ("h100", 2), ("h200", 1)):
        found, used = training.smallest(shape, gpus.get(gpu), TrainingRecipe("full", bf16, 4_096, zero=3))
        assert found.fits and used == count
        if count > 1:
            half = TrainingRecipe("full", bf16, 4_096, zero=3, data_parallel=count // 2)
            assert not training_memory(shape, gpus.get(gpu), half).fits


def test_the_drawing_is_an_svg_with_a_line_for_each_option() -> None:
    wanted = asked("Llama-3.1-8B", "l4", "l40s", "h100", tpot_s=0.05)
    found = options.shown(options.answer(wanted, market()).options, 3)
    lines = plot.curves(wanted, found)
    root = ElementTree.fromstring(plot.svg("a < b & c", lines, 50))
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("polyline") == len(found) == 3
    assert tags.count("circle") == 3
    for line in lines:
        assert [count for _, _, count in line.points] == sorted({count for _, _, count in line.points})
        assert [x for x, _, _ in line.points] == sorted(x for x, _, _ in line.points)
