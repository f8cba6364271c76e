"""`tonnage size`: what a person sees first, everything as JSON, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from cli_builders import tonnage

CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}


def size(capfd: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    ran = tonnage(capfd, "size", *arguments)
    assert (ran.code, ran.err) == (code, "")
    return ran.out


def document(capfd: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(size(capfd, *arguments, "-o", "json", code=code))
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ("Qwen/Qwen3-8B",),
        ("Llama-3.1-70B", "--tpot", "40ms", "--concurrency", "200", "--explain", "--rule-of-thumb"),
        ("DeepSeek-V3", "--explain", "--kv-precision", "fp8"),
        ("gpt-oss-120b", "--rate", "30", "--explain"),
        ("Qwen3.5-397B-A17B", "--precision", "fp8", "--explain"),
        ("Llama-3.1-405B", "--gpu", "l4"),
        ("Llama-3.1-8B", "--train", "full"),
    ],
)
def test_everything_printed_fits_eighty_columns(capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    assert max(len(line) for line in tonnage(capfd, "size", *arguments).out.splitlines()) <= 80


def test_the_chosen_row_comes_first_with_its_reason_and_the_next_best_three(
    capfd: pytest.CaptureFixture[str],
) -> None:
    lines = size(capfd, "Qwen/Qwen3-8B").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  GPU"))
    table = lines[start + 1 : start + 5]
    assert [line[0] for line in table] == [">", " ", " ", " "]
    end = lines[start].index("$/h") + len("$/h")
    prices = [float(line[:end].split()[-1].replace(",", "")) for line in table]
    assert prices == sorted(prices)
    assert lines[start + 6].startswith("> is the cheapest of")


def test_json_has_memory_prices_times_and_warnings_of_every_option(capfd: pytest.CaptureFixture[str]) -> None:
    found = document(capfd, "Llama-3.1-8B", "--gpu", "l4", "--gpu", "h100:2g.20gb", "--gpu", "t4")
    assert found["weight_bytes"] == 16_060_522_496
    assert found["kv_bytes_per_token"] == 131_072
    assert {option["card"] for option in found["options"]} == {"l4", "h100:2g.20gb", "t4"}
    first = found["options"][found["chosen"]]
    memory = first["memory"]
    assert memory["requested_bytes"] == sum(p["bytes"] for p in memory["parts"]) + memory["kv_cache_bytes"]
    assert all(part["formula"] for part in memory["parts"])
    assert first["offers"][0]["usd_per_hour"] <= first["offers"][-1]["usd_per_hour"]
    assert {row["storage"] for row in first["loading"]} >= {"gp3", "io2", "instance-store", "fsx", "page-cache"}
    assert first["replica"]["ttft_band_s"][0] < first["replica"]["ttft_s"] < first["replica"]["ttft_band_s"][1]
    assert found["rule_of_thumb"]["advice"]["range"] == "14 to 22 GB"


def test_the_answer_is_the_same_each_time(capfd: pytest.CaptureFixture[str]) -> None:
    assert size(capfd, "Qwen3-8B", "-o", "json") == size(capfd, "Qwen3-8B", "-o", "json")


def test_a_configuration_is_sized_like_the_model_it_describes(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), encoding="utf-8")
    by_file, by_name = document(capfd, file), document(capfd, "Llama-3.1-8B")
    assert by_file["options"] == by_name["options"]
    assert document(capfd, tmp_path)["options"] == by_name["options"]


def test_a_shape_on_the_command_line_is_sized(capfd: pytest.CaptureFixture[str]) -> None:
    shape = ("--params", "13B", "--layers", "40", "--hidden", "5120", "--heads", "40")
    found = document(capfd, *shape, "--gpu", "a100-40")
    assert found["weight_bytes"] == 26_000_000_000
    assert found["kv_bytes_per_token"] == 2 * 40 * 40 * 128 * 2
    grouped = document(capfd, *shape, "--kv-heads", "8", "--kv-precision", "fp8", "--gpu", "a100-40")
    assert grouped["kv_bytes_per_token"] == 2 * 40 * 8 * 128


def test_lengths_may_be_quantiles_or_a_trace(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = document(capfd, "Qwen3-8B", "--gpu", "l4", "--input-tokens", "200,800,3000", "--output-tokens", "50,400")
    assert found["lengths"]["longest"] == 3_400
    trace = tmp_path / "log.jsonl"
    rows = [{"timestamp": n, "input_length": 500 + n, "output_length": 100} for n in range(10)]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = document(capfd, "Qwen3-8B", "--gpu", "l4", "--trace", trace)
    assert found["lengths"]["input_mean"] == 504.5
    assert found["context"] == 609


def test_a_quantized_model_fits_smaller_gpus(capfd: pytest.CaptureFixture[str]) -> None:
    alone = ("Qwen3-32B", "--gpu", "l4", "--tensor-parallel", "1", "--pipeline-parallel", "1")
    plain = document(capfd, *alone, code=1)
    assert plain["chosen"] is None and plain["too_small"][0]["short_bytes"] > 30 * 2**30
    assert document(capfd, *alone, "--precision", "int4")["chosen"] == 0


def test_explain_shows_the_parts_of_a_step_and_of_an_owned_hour(capfd: pytest.CaptureFixture[str]) -> None:
    out = " ".join(size(capfd, "Llama-3.1-70B", "--gpu", "h100", "--explain").split())
    assert "A decode step of 16 sequences, no prompt beside it dense " in out
    assert " + communication " in out
    assert "An owned h100 $30,000 x (1 + 0.35 host) / (4 years x 8,766 h" in out
    assert "Estimate: no measured point of l4" in " ".join(size(capfd, "Qwen3-8B", "--gpu", "l4").split())


def test_adapters_and_owned_gpus_and_prices_are_counted(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with_lora = document(capfd, "Qwen3-8B", "--gpu", "l4", "--lora", "8")
    parts = {part["name"]: part["bytes"] for part in with_lora["options"][0]["memory"]["parts"]}
    assert parts["LoRA adapters"] > 100_000_000
    owned = document(capfd, "Qwen3-8B", "--gpu", "h100", "--own", "h100=20000", "--life-years", "5")
    assert owned["options"][0]["offers"][0]["source"] == "own"
    prices = tmp_path / "prices.csv"
    prices.write_text("instance_type,usd_per_hour\ng6.xlarge,0.10\n", encoding="utf-8")
    cheap = document(capfd, "Qwen3-8B", "--gpu", "l4", "--prices", prices)["options"][0]["offers"][0]
    assert cheap["instance_type"] == "g6.xlarge"
    assert cheap["usd_per_hour"] == pytest.approx(0.10 * cheap["nodes"])


def test_the_plot_is_written(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "plot.svg"
    assert str(file) in size(capfd, "Qwen3-8B", "--plot", file).replace("\n", "")
    assert ElementTree.parse(file).getroot().tag.endswith("svg")


def test_training_says_what_each_gpu_holds(capfd: pytest.CaptureFixture[str]) -> None:
    found = document(capfd, "Llama-3.1-8B", "--train", "full", "--gpu", "h100", "--zero", "2")
    assert found["gpus"][0]["fits"] is True
    assert {part["name"] for part in found["gpus"][0]["parts"]} >= {"gradients", "optimizer states", "activations"}
    assert "ZeRO 2" in size(capfd, "Llama-3.1-8B", "--train", "full", "--gpu", "h100", "--zero", "2")
    lora = document(capfd, "Llama-3.1-70B", "--train", "lora", "--precision", "nf4", "--gpu", "h100", "--zero", "0")
    assert lora["gpus"][0]["gpus"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Llama-3.1-9B",), "unknown model 'Llama-3.1-9B' (did you mean Llama-3.1-8B"),
        (("Qwen3-8B", "--gpu", "h10"), "unknown GPU 'h10' (did you mean h100"),
        (("Qwen3-8B", "--gpu", "h100:1g.12gb"), "unknown MIG profile '1g.12gb' (did you mean"),
        (("Qwen3-8B", "--gpu", "l4/1"), "'l4/1' is not a share of a GPU"),
        (("Qwen3-8B", "--disk", "gp9"), "unknown disk 'gp9'"),
        (("Qwen3-8B", "--precision", "fp9"), "unknown precision 'fp9' (did you mean fp8"),
        (("Qwen3-8B", "--precision", "mxfp4"), "mxfp4 is a format of experts, Qwen/Qwen3-8B has none"),
        (("Qwen3-8B", "--kv-precision", "int4"), "no engine keeps its KV cache in int4"),
        (("Qwen3-8B", "--context", "50000"), "50,000 tokens, but Qwen/Qwen3-8B was made for 40,960"),
        (("Qwen3-8B", "--input-tokens", "60000"), "the longest request has 60,256 tokens"),
        (("Qwen3-8B", "--tensor-parallel", "3"), "tensor parallel size 3 does not divide the 32 attention heads"),
        (("Qwen3-8B", "--pipeline-parallel", "99"), "--pipeline-parallel is 99, but Qwen/Qwen3-8B has 36 layers"),
        (("Qwen3-8B", "--rate", "1", "--concurrency", "2"), "--concurrency and --rate"),
        (("Qwen3-8B", "--params", "8B"), "both MODEL (Qwen3-8B) and --params"),
        (("Qwen3-8B", "--ttft", "soon"), "'soon' is not a time"),
        (("Qwen3-8B", "--layers", "40", "--vocab", "9"), "--layers, --vocab: describes a model that is not known"),
        (("Qwen3-8B", "--zero", "2", "--optimizer", "sgd"), "--optimizer, --zero: is of training"),
        (("Qwen3-8B", "--lora-rank", "8"), "--lora-rank: is of adapters, and none are held"),
        (("Qwen3-8B", "--train", "full", "--plot", "x.svg", "--rate", "1"), "--rate, --plot: is of serving"),
        (("Qwen3-8B", "--train", "full", "--lora-rank", "8"), "full training has none"),
        (("Qwen3-8B", "--plot", "x.png"), "x.png: the drawing is an SVG"),
        (
            ("Qwen3-8B", "--max-num-batched-tokens", "4", "--max-num-seqs", "8"),
            "4 tokens per step for 8 sequences: vLLM does not start",
        ),
        (("Qwen3-8B", "--gpu", "h100:1g.10gb/2"), "would share a MIG instance, which is not sized"),
        (("Qwen3-8B", "--gpu", "h100", "--tensor-parallel", "16"), "no node has 16 of them, TP is at most 8"),
        (("Qwen3-8B", "--gpu", "h100", "--kv-precision", "fp4"), "vLLM keeps no KV cache in fp4 there"),
        (("Qwen3-8B", "--input-tokens", "100,50,200"), "the quantiles 100,50,200 fall"),
        (("",), "no MODEL"),
        (
            ("--params", "1B", "--layers", "4000", "--hidden", "5120", "--heads", "40"),
            "1,000,000,000 parameters, but attention alone of 4,000 layers has 419,430,400,000",
        ),
        (
            ("--params", "120B", "--layers", "36", "--hidden", "2880", "--heads", "64", "--head-dim", "64"),
            "give --active of a mixture of experts",
        ),
        (
            ("--params", "99999999T", "--layers", "1", "--hidden", "8", "--heads", "1"),
            "'99999999T' is not a number of parameters",
        ),
        (("Qwen3-8B", "--own", "l4"), "no price is known of l4"),
        (("Qwen3-8B", "--own", "l4=cheap"), "'l4=cheap' has no price"),
        (("missing.json",), "cannot read missing.json"),
        ((), "no MODEL"),
        (("--params", "13B"), "no MODEL, and --layers, --hidden, --heads not given"),
        (
            ("--params", "many", "--layers", "1", "--hidden", "8", "--heads", "1"),
            "'many' is not a number of parameters",
        ),
        (("--params", "13B", "--layers", "40", "--hidden", "5120", "--heads", "41"), "not divided by 41 heads"),
        (
            ("--params", "13B", "--layers", "40", "--hidden", "5120", "--heads", "40", "--kv-heads", "7"),
            "40 attention heads cannot be shared by 7 KV heads",
        ),
        (
            ("--params", "13B", "--active", "14B", "--layers", "4", "--hidden", "512", "--heads", "4"),
            "--active: 14,000,000,000 active of 13,000,000,000 parameters",
        ),
    ],
)
def test_bad_input_is_refused_with_what_to_do(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    ran = tonnage(capfd, "size", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.startswith("error: ") and "(" in ran.err


def test_a_contradictory_configuration_is_refused_with_file_and_field(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, "num_key_value_heads": 5}), encoding="utf-8")
    ran = tonnage(capfd, "size", file)
    assert ran.code == 2
    assert ran.err.startswith(f"error: {file}:kv_heads: 32 attention heads cannot be shared by 5 KV heads")


def test_a_model_that_fits_nowhere_is_told_how_much_is_missing(capfd: pytest.CaptureFixture[str]) -> None:
    out = size(capfd, "Llama-3.1-405B", "--gpu", "l4", "--gpu", "t4", "--precision", "fp32", code=1)
    assert "Nothing fits. Nearest on each GPU:" in out
    assert "GiB per GPU with one request" in " ".join(out.split())
    trained = size(capfd, "Llama-3.1-405B", "--train", "full", "--zero", "0", "--gpu", "l4", code=1)
    assert "Nothing fits" in trained


def test_a_load_that_nothing_carries_shows_no_row_and_exits_with_1(capfd: pytest.CaptureFixture[str]) -> None:
    out = size(capfd, "Llama-3.1-8B", "--gpu", "h100", "--rate", "1e14", code=1)
    assert "No option sustains this load: it takes" in out and "$/h" not in out
    found = document(capfd, "Llama-3.1-8B", "--gpu", "h100", "--concurrency", "999999999", code=1)
    assert found["options"] == [] and found["replicas_needed_at_least"] > 10_000


def test_a_card_that_is_left_out_is_named_with_its_reason(capfd: pytest.CaptureFixture[str]) -> None:
    out = size(capfd, "Qwen3-8B", "--gpu", "h100", "--gpu", "h100:1g.20gb", "--tensor-parallel", "2")
    text = " ".join(out.split())
    assert "Left out: h100:1g.20gb: a MIG instance has no link to others, TP and PP are 1" in text


def test_gpt_oss_on_one_h100_is_told_what_an_older_vllm_would_do(capfd: pytest.CaptureFixture[str]) -> None:
    text = " ".join(size(capfd, "gpt-oss-120b", "--gpu", "h100", "--tensor-parallel", "1").split())
    assert "! vLLM before 0.16 sorts the logits of 1,024 sequences" in text and "there this does not start" in text
    assert "! only " in text


def test_a_small_rate_keeps_the_table_within_its_columns(capfd: pytest.CaptureFixture[str]) -> None:
    out = size(capfd, "Qwen3-8B", "--rate", "0.000001")
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize(
    "arguments",
    [
        ("--rate", "nan"),
        ("--rate", "inf"),
        ("--rate", "1e308"),
        ("--rate", "1e-300"),
        ("--utilization", "nan"),
        ("--life-years", "nan"),
        ("--usd-per-kwh", "inf"),
        ("--concurrency", "99999999999999999999"),
    ],
)
def test_numbers_that_nobody_can_reckon_with_are_refused(
    capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    ran = tonnage(capfd, "size", "Qwen3-8B", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert f"invalid value for '{arguments[0]}'" in ran.err.lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
        (json.dumps({**CONFIG, "quantization_config": {"quant_method": "weird"}}), "quant_method weird is not known"),
        (json.dumps({**CONFIG, "architectures": ["BertForMaskedLM"]}), "BertForMaskedLM writes no tokens"),
    ],
)
def test_a_configuration_that_is_no_known_decoder_is_refused(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    ran = tonnage(capfd, "size", file)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: {file}") and message in ran.err


def test_a_format_that_is_not_known_is_named_with_precision(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIG, "quantization_config": {"quant_method": "weird"}}), encoding="utf-8")
    assert document(capfd, file, "--precision", "int4", "--gpu", "l4")["precision"]["name"] == "int4"


@pytest.mark.parametrize(
    ("region", "usd"), [("us-east-1", 0.8048), ("us-gov-east-1", 1.0144), ("us-gov-west-1", 1.0144)]
)
def test_a_region_has_its_own_prices(capfd: pytest.CaptureFixture[str], region: str, usd: float) -> None:
    found = document(capfd, "Llama-3.1-8B", "--gpu", "l4", "--region", region)
    assert found["region"] == region
    cheapest = found["options"][0]["offers"][0]
    assert (cheapest["instance_type"], cheapest["usd_per_hour"]) == ("g6.xlarge", usd)


def test_of_a_region_without_prices_it_says_of_which_there_are_some(capfd: pytest.CaptureFixture[str]) -> None:
    ran = tonnage(capfd, "size", "Llama-3.1-8B", "--region", "eu-west-1")
    assert (ran.code, "us-east-1, us-gov-east-1, us-gov-west-1" in ran.err) == (2, True)


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L40S}
      containers:
        - name: vllm
          image: IMAGE
          ARGS
          resources: {limits: {nvidia.com/gpu: 2}}
"""
VLLM_ARGS = "args: [--model=Qwen/Qwen3-8B, --max-model-len=8192, --tensor-parallel-size=2, --quantization=fp8]"
SGLANG_ARGS = "command: [python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --tp-size, '2']"


def deployment(image: str, arguments: str) -> str:
    return DEPLOYMENT.replace("IMAGE", image).replace("ARGS", arguments)


@pytest.mark.parametrize(
    ("image", "arguments", "more"),
    [
        ("vllm/vllm-openai:v0.10.0", VLLM_ARGS, ("--context", "8192", "--precision", "fp8")),
        ("lmsysorg/sglang:v0.5.5", SGLANG_ARGS, ("--system", "sglang")),
    ],
)
def test_a_deployment_is_sized_as_its_options_would_be(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], image: str, arguments: str, more: tuple[str, ...]
) -> None:
    file = tmp_path / "chat.yaml"
    file.write_text(deployment(image, arguments))
    said = document(capfd, "Qwen/Qwen3-8B", "--gpu", "l40s", "--tensor-parallel", "2", *more)
    found = document(capfd, file)
    assert found.pop("notes")[0].startswith("Deployment/chat: Qwen/Qwen3-8B") and said.pop("notes") == []
    assert found == said
    wider = document(capfd, file, "--tensor-parallel", "1")  # what is typed wins
    assert {option["tensor_parallel"] for option in wider["options"]} == {1}


def test_manifests_with_several_engines_ask_for_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    one = deployment("vllm/vllm-openai:v0.10.0", VLLM_ARGS)
    (tmp_path / "all.yaml").write_text(one + "---\n" + one.replace("name: chat", "name: code", 1))
    ran = tonnage(capfd, "size", tmp_path)
    assert ran.code == 2 and "Deployment/chat, Deployment/code (name one with --workload)" in ran.err
    assert size(capfd, tmp_path, "--workload", "code").startswith("Qwen/Qwen3-8B")
    ran = tonnage(capfd, "size", tmp_path, "--workload", "talk")
    assert ran.code == 2 and "no engine of talk (there are Deployment/chat, Deployment/code)" in ran.err


PIPELINE = "args: [--model=Qwen/Qwen3-8B, --pipeline-parallel-size=2]"
PARTITION = "env: [{{name: {name}_PP_LAYER_PARTITION, value: '{layers}'}}]"


def staged(tmp_path: Path, layers: str, image: str = "vllm/vllm-openai:v0.11.0", arguments: str = PIPELINE) -> Path:
    file = tmp_path / "staged.yaml"
    name = "SGLANG" if "sglang" in image else "VLLM"
    file.write_text(deployment(image, f"{arguments}\n          {PARTITION.format(name=name, layers=layers)}"))
    return file


def weight_bytes(option: dict[str, Any]) -> int:
    return sum(part["bytes"] for part in option["memory"]["parts"] if part["name"].startswith("weights"))


@pytest.mark.parametrize(("layers", "most"), [("18,18", 18), ("10,26", 26), ("20,16", 20)])
def test_the_stage_with_most_layers_says_what_a_gpu_of_an_uneven_pipeline_holds(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], layers: str, most: int
) -> None:
    """Of Qwen3-8B's 36 layers of 192,946,432 parameters, and of the embedding beside them, 151,936 x 4,096."""
    [option] = document(capfd, staged(tmp_path, layers), "--gpu", "l40s")["options"]
    held = most * 192_946_432 + 151_936 * 4096
    assert weight_bytes(option) == pytest.approx(2 * held, rel=1e-3)
    even = document(capfd, staged(tmp_path, layers), "--gpu", "l40s", "--pipeline-parallel", "3")["options"][0]
    assert weight_bytes(even) == pytest.approx(2 * (12 * 192_946_432 + 151_936 * 4096), rel=1e-3)


SGLANG_PIPELINE = "command: [python3, -m, sglang.launch_server, --model-path, Qwen/Qwen3-8B, --pp-size, '2']"


@pytest.mark.parametrize(
    ("layers", "image", "arguments", "said"),
    [
        ("20,20", "vllm/vllm-openai:v0.11.0", PIPELINE, "PARTITION is 20,20, but there are 2 pipeline stages and 36"),
        ("36", "vllm/vllm-openai:v0.11.0", PIPELINE, "PARTITION is 36, but there are 2 pipeline stages and 36 layers"),
        ("20;16", "vllm/vllm-openai:v0.11.0", PIPELINE, "VLLM_PP_LAYER_PARTITION is '20;16'"),
        ("8,8", "lmsysorg/sglang:v0.5.5", SGLANG_PIPELINE, "SGLANG_PP_LAYER_PARTITION is 8,8, but there are 2"),
        ("18,18", "vllm/vllm-openai:v0.11.0", "args: [--model=Qwen/Qwen3-8B, --max-num-seqs=many]", "--max-num-seqs"),
    ],
)
def test_settings_that_an_engine_refuses_are_refused_here(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], layers: str, image: str, arguments: str, said: str
) -> None:
    ran = tonnage(capfd, "size", staged(tmp_path, layers, image, arguments), "--gpu", "l40s")
    assert ran.code == 2 and said in ran.err
