"""SGLang and TensorRT-LLM servers: recognised, read, and started by their own rules; uneven pipeline stages."""

from __future__ import annotations

import pytest

from tonnage.errors import InputError
from tonnage.facts import gpus, models
from tonnage.inference import memory, servers
from tonnage.inference.config import engine_config, replica
from tonnage.inference.memory.engines import engine_memory
from tonnage.inference.other_engines import replica_of
from tonnage.inference.servers import engine_flags, other_servers
from tonnage.inference.servers.exposition import ExpositionSample, of_kind
from tonnage.inference.vllm_args import VllmArgs
from tonnage.objects import core
from tonnage.units import GIB

MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def pod(*command: str, args: tuple[str, ...] = (), env: dict[str, str] | None = None, image: str = "x") -> core.PodSpec:
    variables = [core.EnvVar(name=name, value=value) for name, value in (env or {}).items()]
    return core.PodSpec(
        containers=[core.Container(name="c", image=image, command=list(command), args=list(args), env=variables)]
    )


@pytest.mark.parametrize(
    ("command", "args", "engine"),
    [
        (("python3", "-m", "sglang.launch_server"), ("--model-path", MODEL), "sglang"),
        (("python", "-m", "sglang.launch_server", f"--model={MODEL}"), (), "sglang"),
        (("sglang", "serve"), ("--model-path", MODEL), "sglang"),
        (("bash", "-c", f"pip list; exec python3 -m sglang.launch_server --model-path {MODEL} --tp 2"), (), "sglang"),
        (("trtllm-serve", MODEL), (), "tensorrt-llm"),
        (("trtllm-serve", "serve", MODEL), ("--host", "0.0.0.0"), "tensorrt-llm"),
        (("mpirun", "-n", "2", "trtllm-llmapi-launch", "trtllm-serve", MODEL), (), "tensorrt-llm"),
    ],
)
def test_a_server_is_known_by_what_its_container_runs(
    command: tuple[str, ...], args: tuple[str, ...], engine: str
) -> None:
    found = other_servers.find(pod(*command, args=args))
    assert found is not None
    assert (found.engine, found.line.args.model, found.line.unknown) == (engine, MODEL, ())
    assert found.known == models.get(MODEL)
    assert servers.find(pod(*command, args=args)) is None


@pytest.mark.parametrize(
    ("command", "image"),
    [(("vllm", "serve", MODEL), "vllm/vllm-openai:v0.20.0"), (("sleep", "1"), "lmsysorg/sglang:v0.5.5"), ((), "x")],
)
def test_other_containers_are_no_such_server(command: tuple[str, ...], image: str) -> None:
    assert other_servers.find(pod(*command, image=image)) is None


@pytest.mark.parametrize(
    ("engine", "words", "wanted"),
    [
        (
            "sglang",
            "--tp 4 --dp-size=2 --context-length 8192",
            {"tensor_parallel_size": 4, "data_parallel_size": 2, "max_model_len": 8192},
        ),
        ("sglang", "--mem-fraction-static 0.8 --page-size 64", {"gpu_memory_utilization": 0.8, "block_size": 64}),
        (
            "sglang",
            "--chunked_prefill_size=4096 --max-running-requests 32",
            {"max_num_batched_tokens": 4096, "max_num_seqs": 32},
        ),
        ("sglang", "--chunked-prefill-size -1", {"max_num_batched_tokens": None}),
        ("sglang", "--kv-cache-dtype fp8_e5m2 --enable-mixed-chunk", {"kv_cache_dtype": "fp8", "mixed_steps": True}),
        (
            "tensorrt-llm",
            "--tp_size 2 --pp_size 2 --max_batch_size 64",
            {"tensor_parallel_size": 2, "pipeline_parallel_size": 2, "max_num_seqs": 64},
        ),
        (
            "tensorrt-llm",
            "--max_num_tokens=4096 --max_seq_len 8192",
            {"max_num_batched_tokens": 4096, "max_model_len": 8192},
        ),
        ("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction 0.7", {"gpu_memory_utilization": 0.7}),
    ],
)
def test_flags_become_the_settings_of_an_engine(engine: str, words: str, wanted: dict[str, object]) -> None:
    line = engine_flags.read(engine, words.split())
    assert {name: getattr(line.args, name) for name in wanted} == wanted
    assert line.problem is None
    assert (line.unread, line.unknown) == ((), ())


def test_flags_that_matter_and_are_not_read_are_told_from_those_that_nobody_knows() -> None:
    line = engine_flags.read(
        "sglang", ["--schedule-policy", "lpm", "--host", "0.0.0.0", "--no-such-thing", "3", "--trust-remote-code"]
    )
    assert line.unread == (("--schedule-policy", 0),)
    assert line.unknown == (("--no-such-thing", 4),)
    line = engine_flags.read("tensorrt-llm", ["--extra_llm_api_options", "/config.yaml", "--port=8000"])
    assert (line.unread, line.unknown) == ((("--extra_llm_api_options", 0),), ())


@pytest.mark.parametrize("words", ["--tp x", "--mem-fraction-static much", "--page-size 0", "--kv-cache-dtype int3"])
def test_a_value_that_cannot_be_read_is_a_problem(words: str) -> None:
    line = engine_flags.read("sglang", words.split())
    assert line.problem is not None
    assert words.split()[1] in line.problem.message


def started(engine: str, words: str, gpu: str = "h100"):
    return replica_of(models.get(MODEL), gpus.get(gpu), engine_flags.read(engine, words.split()).args)[0]


def test_sglang_has_its_own_pages_steps_and_share_of_memory() -> None:
    config = started("sglang", "--mem-fraction-static 0.5")
    weights, visible = 2 * models.get(MODEL).params, memory.visible_bytes(gpus.get("h100"))
    assert (config.block_size, config.mixed_steps, config.max_num_batched_tokens) == (1, False, 8192)
    assert config.kv_blocks == (visible // 2 - weights) // (128 * 1024)
    assert started("sglang", "--mem-fraction-static 0.5 --enable-mixed-chunk").mixed_steps
    assert started("sglang", "--page-size 64 --max-total-tokens 65536").kv_blocks == 1024
    assert started("sglang", "--max-running-requests 7 --chunked-prefill-size 1024").max_num_seqs == 7


def staged(engine: str, partition: str, *words: str) -> other_servers.OtherServer:
    command = ["sglang", "serve", "--model-path", MODEL] if engine == "sglang" else ["trtllm-serve", MODEL]
    env = {"STAGES": partition, "SGLANG_PP_LAYER_PARTITION": "$(STAGES)"} if partition else {}
    found = other_servers.find(pod(*command, *words, env=env))
    assert found is not None
    return found


def test_sglang_deals_layers_out_to_stages_as_its_environment_says() -> None:
    def config(partition: str):
        args = staged("sglang", partition, "--pp-size", "2").line.args
        return replica_of(models.get(MODEL), gpus.get("h100"), args)[0]

    even, uneven = config("16,16"), config("24,8")
    assert even == config("")
    assert uneven.kv_blocks < 0.7 * even.kv_blocks
    with pytest.raises(InputError, match=r"SGLANG_PP_LAYER_PARTITION is 20,20, .* 2 pipeline stages and 32 layers"):
        config("20,20")
    with pytest.raises(InputError, match=r"is 16,8,8, .*give 2 numbers that add up to 32"):
        config("16,8,8")
    assert staged("tensorrt-llm", "24,8").line.args.pipeline_layers == ()
    for written in ("a,b", "24,", "0,32", "24;8"):
        problem = staged("sglang", written, "--pp-size", "2").line.problem
        assert problem is not None
        assert problem.message == f"SGLANG_PP_LAYER_PARTITION is {written!r}"


def test_tensorrt_llm_takes_a_share_of_what_is_free_and_keeps_room_for_outputs() -> None:
    whole, part = started("tensorrt-llm", ""), started("tensorrt-llm", "--kv_cache_free_gpu_memory_fraction 0.45")
    assert (whole.block_size, whole.reserve_output, whole.max_num_seqs, whole.max_num_batched_tokens) == (
        32,
        True,
        2048,
        8192,
    )
    assert part.kv_blocks == pytest.approx(whole.kv_blocks / 2, rel=0.001)
    assert started("tensorrt-llm", "--max_batch_size 8").max_num_seqs == 8


def test_vllm_goes_its_own_way() -> None:
    args, model, gpu = VllmArgs(model=MODEL), models.get(MODEL), gpus.get("h100")
    assert replica_of(model, gpu, args)[0] == replica(model, gpu, args)[0]


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_a_model_that_does_not_fit_is_refused(engine: str) -> None:
    with pytest.raises(InputError, match="does not fit"):
        started(engine, "", gpu="t4")


def test_metrics_have_the_names_of_the_engine() -> None:
    samples = [
        ExpositionSample("vllm:num_requests_running", (), 1.0),
        ExpositionSample("vllm:time_to_first_token_seconds_bucket", (("le", "1.0"),), 2.0),
        ExpositionSample("vllm:prompt_tokens_total", (), 3.0),
    ]
    assert [one.name for one in of_kind(samples, "sglang")] == [
        "sglang:num_running_reqs",
        "sglang:time_to_first_token_seconds_bucket",
        "sglang:prompt_tokens_total",
    ]
    assert next(one.name for one in of_kind(samples, "tensorrt-llm")) == "trtllm_num_requests_running"
    assert list(of_kind(samples, "vllm")) == samples


@pytest.mark.parametrize(("layers", "largest"), [((20, 12), 20), ((12, 20), 20), ((16, 16), 16), ((), 16)])
def test_the_stage_with_the_most_layers_says_how_much_fits(layers: tuple[int, ...], largest: int) -> None:
    model, gpu = models.get(MODEL), gpus.get("l40s")
    made = engine_config(model, gpu, pipeline_parallel=2, pipeline_layers=layers, max_model_len=4096)
    budget = engine_memory(
        model,
        gpu,
        stored=memory.precision("bf16"),
        kv=memory.precision("bf16", kv=True),
        pipeline_parallel=2,
        pipeline_layers=layers,
        max_num_batched_tokens=2048,
        max_num_seqs=256,
    ).memory
    ends = model.vocab * model.hidden * 2  # the embedding on the first stage, the head on the last
    per_layer = (2 * model.params - 2 * ends) / model.layers
    assert budget.weights == pytest.approx(per_layer * largest + ends, rel=1e-6)
    assert made.kv_blocks == budget.kv_cache * 32 // largest // (16 * 128 * 1024) - 1
    assert budget.kv_cache > 20 * GIB


@pytest.mark.parametrize("layers", [(20, 11), (32,), (10, 12, 10)])
def test_a_partition_that_is_not_of_the_layers_is_refused(layers: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="2 pipeline stages and 32 layers"):
        engine_config(models.get(MODEL), gpus.get("l40s"), pipeline_parallel=2, pipeline_layers=layers)


@pytest.mark.parametrize(("written", "layers"), [("20,12", (20, 12)), (" 10, 11,11", (10, 11, 11)), ("", ())])
def test_the_variable_says_the_partition(written: str, layers: tuple[int, ...]) -> None:
    found = servers.find(pod("vllm", "serve", MODEL, env={"VLLM_PP_LAYER_PARTITION": written}))
    assert found is not None
    assert (found.args.pipeline_layers, found.problem) == (layers, None)


def test_a_partition_that_is_no_list_of_numbers_is_a_problem_of_the_server() -> None:
    found = servers.find(pod("vllm", "serve", MODEL, env={"VLLM_PP_LAYER_PARTITION": "20;12"}))
    assert found is not None
    assert found.problem is not None
    assert "'20;12'" in found.problem.message
