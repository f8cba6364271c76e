"""`tonnage size`: which GPUs a model needs, what it does on them and what it costs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from tonnage.cli import answers, files
from tonnage.cli.cluster import read_live
from tonnage.cli.options import Finite, output_option, said_as
from tonnage.cli.piped import FILE
from tonnage.errors import InputError

if TYPE_CHECKING:
    from tonnage.facts.models import ModelShape
    from tonnage.inference.sizing.cards import EngineGpu
    from tonnage.inference.sizing.options import GpuPrices
    from tonnage.inference.sizing.request import Lengths, SizingRequest

_F = TypeVar("_F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
_LONGEST = 1e9
_DEFAULT_INPUT, _DEFAULT_OUTPUT, _DEFAULT_CONCURRENCY = "1024", "256", 16
_SEQUENCE = 4096
"""Tokens of a training sequence unless --context says more."""
_COUNT = click.IntRange(1, 10**9)
_ENCODER = msgspec.json.Encoder(order="deterministic")
_SHAPE_WORDS = {
    "layers": "--layers",
    "hidden": "--hidden",
    "heads": "--heads",
    "kv_heads": "--kv-heads",
    "head_dim": "--head-dim",
    "the head size": "--head-dim",
    "active_params": "--active",
    "params": "--params",
    "check layers, hidden and heads": "check --layers, --hidden and --heads",
    "check layers and hidden, and give the active ones": "check --layers and --hidden, and give --active",
}
"""What the fields of a shape are called here."""


def _count(value: str) -> int:
    """A number like 13B or 850M."""
    from tonnage.inference.estimate.shapes import parameters

    return parameters(value)


def _seconds(value: str) -> float:
    """A time like 50ms, 0.5s or 2m."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)?", value)
    seconds = float(match[1]) * {"ms": 0.001, "m": 60.0}.get(match[2] or "s", 1.0) if match else 0.0
    if not 0 < seconds < _LONGEST:
        raise InputError.at(f"{value!r} is not a time", hint="write it like 50ms, 0.5s or 10m")
    return seconds


def _tokens(value: str) -> tuple[int, ...]:
    """Tokens: one number, or quantiles with commas."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", value) or 0 in (found := tuple(map(int, value.split(",")))):
        raise InputError.at(
            f"{value!r} is not a number of tokens", hint="write it like 1024, or quantiles 200,800,3000"
        )
    if list(found) != sorted(found):
        raise InputError.at(f"the quantiles {value} fall", hint="write them from the shortest to the longest")
    return found


def _group(*options: Callable[[_F], _F]) -> Callable[[_F], _F]:
    """The options as one decorator."""

    def add(command: _F) -> _F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


_SHAPE = _group(
    click.option("--params", type=_count, metavar="13B", help="A model that is not known: its parameters."),
    click.option("--active", type=_count, metavar="3B", help="Of a mixture of experts: active per token."),
    click.option("--layers", type=_COUNT, metavar="N", help="With --params: its layers."),
    click.option("--hidden", type=_COUNT, metavar="N", help="With --params: the hidden size."),
    click.option("--heads", type=_COUNT, metavar="N", help="With --params: attention heads."),
    click.option("--kv-heads", type=_COUNT, metavar="N", help="With --params: KV heads.  [default: as many as heads]"),
    click.option("--head-dim", type=_COUNT, metavar="N", help="With --params.  [default: hidden size over heads]"),
    click.option("--vocab", type=_COUNT, metavar="N", help="With --params.  [default: 128000]"),
)
_FORMATS = _group(
    click.option(
        "--precision", metavar="NAME", help="Format of weights: bf16, fp8, int8, int4, fp4 …  [default: as published]"
    ),
    click.option("--kv-precision", default="bf16", show_default=True, metavar="NAME", help="Format of the KV cache."),
    click.option("--lora", type=click.IntRange(0), default=0, metavar="N", help="LoRA adapters held at once."),
    click.option("--lora-rank", type=_COUNT, default=16, show_default=True, metavar="N"),
)
_LOAD = _group(
    click.option("--context", type=_COUNT, metavar="TOKENS", help="--max-model-len.  [default: the longest request]"),
    click.option(
        "--input-tokens",
        "inputs",
        type=_tokens,
        metavar="TOKENS",
        help="Prompt tokens, or quantiles: 200,800,3000.  [1024]",
    ),
    click.option(
        "--output-tokens", "outputs", type=_tokens, metavar="TOKENS", help="Output tokens, or quantiles.  [256]"
    ),
    click.option("--trace", type=FILE, metavar="FILE", help="Lengths of a request log (Azure or Mooncake format)."),
    click.option("--concurrency", type=_COUNT, metavar="N", help="Requests in flight at once.  [16]"),
    click.option("--rate", type=Finite(1e-6), metavar="R", help="Or requests per second."),
    click.option("--ttft", type=_seconds, metavar="TIME", help="Bound on the mean time to first token: 500ms."),
    click.option("--tpot", type=_seconds, metavar="TIME", help="Bound on the mean time per output token: 50ms."),
)
_PLACE = _group(
    click.option(
        "--gpu", "gpu_names", multiple=True, metavar="NAME", help="h100, h100:1g.10gb, l4/4.  [default: EC2's]"
    ),
    click.option("--tensor-parallel", type=_COUNT, metavar="N", help="[default: 1, 2, 4 and 8]"),
    click.option("--pipeline-parallel", type=_COUNT, metavar="N", help="[default: 1; more where nothing else fits]"),
    click.option(
        "--system",
        type=click.Choice(["vllm", "sglang", "tensorrt-llm", "none"]),
        default="vllm",
        help="Which engine's memory rule.  [vllm]",
    ),
    click.option(
        "--utilization",
        type=Finite(0, 1, min_open=True),
        help="--gpu-memory-utilization, or the engine's own share.  [0.92]",
    ),
    click.option("--max-num-seqs", type=_COUNT, metavar="N", help="[default: vLLM's for the GPU]"),
    click.option("--max-num-batched-tokens", type=_COUNT, metavar="N", help="[default: vLLM's for the GPU]"),
    click.option("--enforce-eager", is_flag=True, help="No CUDA graphs."),
)
_MONEY = _group(
    click.option("--prices", type=FILE, metavar="FILE", help="Your own prices (CSV or YAML)."),
    click.option("--region", default="us-east-1", show_default=True, metavar="REGION", help="Region of the prices."),
    click.option("--own", multiple=True, metavar="GPU[=USD]", help="Also consider GPUs that you own, bought for USD."),
    click.option("--life-years", type=Finite(0, min_open=True), metavar="Y", help="Lifetime of owned GPUs.  [4]"),
    click.option("--usd-per-kwh", type=Finite(0), metavar="USD", help="Energy price for owned GPUs.  [0.12]"),
    click.option("--disk", default="gp3", show_default=True, metavar="NAME", help="Where the weights are stored."),
    click.option("--startup-probe", type=_seconds, default="600", metavar="TIME", help="How long it may take.  [600s]"),
)
_TRAIN = _group(
    click.option("--train", type=click.Choice(["full", "lora"]), help="Size for training instead."),
    click.option("--optimizer", type=click.Choice(["adamw", "adamw-8bit", "sgd"]), default="adamw", show_default=True),
    click.option("--zero", type=click.IntRange(0, 3), default=3, show_default=True, help="ZeRO stage."),
    click.option("--micro-batch", type=_COUNT, default=1, show_default=True, metavar="N", help="Sequences per GPU."),
    click.option("--recompute", type=click.Choice(["full", "none"]), default="full", show_default=True),
)


@click.command()
@click.argument("model", required=False)
@click.option("--workload", metavar="KIND/NAME", help="Of manifests or a cluster with several: whose engine.")
@read_live(context="--kube-context")
@_SHAPE
@_FORMATS
@_LOAD
@_PLACE
@_MONEY
@_TRAIN
@click.option("--calibrate", type=FILE, metavar="FILE", help="Times of your own engine (CSV), or a calibration.json.")
@click.option("--prometheus", default="", metavar="URL", help="Or of vLLM there, the mean of an hour.")
@click.option("--explain", is_flag=True, help="Every part of the memory with its formula; where numbers are from.")
@click.option("--rule-of-thumb", is_flag=True, help="What published rules say, and where they are wrong.")
@click.option("--plot", type=_PATH, metavar="FILE.svg", help="Draw throughput against latency.")
@output_option("form")
def size(model: str | None, **given: Any) -> None:
    """Which GPUs MODEL needs, how many, how fast it is on them, and what that costs.

    MODEL is a name (Qwen/Qwen3-8B), a Hugging Face config.json, a manifest with an engine (- is standard input), or
    left out with --params, --layers, --hidden and --heads, or with --kube-context or --kubeconfig: then it is that of a
    workload of a cluster. Without --gpu all GPUs of EC2 are tried, with their MIG instances and time-sliced shares, and
    the cheapest option that meets --ttft and --tpot is shown first.

    \b
    tonnage size Qwen/Qwen3-8B --gpu h100 --gpu l40s --ttft 500ms --tpot 50ms
    tonnage size --kube-context prod -n inference --workload deployment/chat
    kubectl get deployment chat -o yaml | tonnage size - --ttft 500ms
    """
    from tonnage.cli import size_calibrate, size_checks, size_json, size_report
    from tonnage.facts import storage
    from tonnage.inference.sizing import options

    size_checks.check(model, given)
    shape, notes = _model(model, given)
    if given["plot"] is not None:
        files.check_writable(given["plot"])
    storage.get(given["disk"])
    request = _request(shape, given)
    if given["train"] is not None:
        _train(request, given)
        return
    request = msgspec.structs.replace(request, calibration=size_calibrate.calibration(request, given))
    market = _market(given)
    found = options.answer(request, market)
    if given["plot"] is not None:
        files.write(given["plot"], size_report.drawing(request, found))
    if given["form"] != "table":
        answers.show(_ENCODER.encode(size_json.document(request, found, given, notes, market.book)), given["form"])
    else:
        size_report.show(request, found, given, notes, market.book)
    if not found.options:
        raise SystemExit(1)


def _train(request: SizingRequest, given: dict[str, Any]) -> None:
    from tonnage.cli import size_train
    from tonnage.inference import memory
    from tonnage.inference.sizing import training

    quantized = given["precision"] is not None or given["train"] == "lora"
    asked = training.TrainingRecipe(
        method=given["train"],
        stored=request.stored if quantized else memory.precision("bf16"),
        sequence=given["context"] or min(request.shape.context_tokens or _SEQUENCE, _SEQUENCE),
        micro_batch=given["micro_batch"],
        optimizer=given["optimizer"],
        zero=given["zero"],
        tensor_parallel=request.tensor_parallel or 1,
        recompute=given["recompute"],
        lora_rank=given["lora_rank"],
    )
    found = size_train.fitted(request, asked)
    if given["form"] != "table":
        answers.show(_ENCODER.encode(size_train.document(request, asked, found)), given["form"])
    else:
        size_train.show(request, asked, found)
    if not any(row.memory.fits for row in found):
        raise SystemExit(1)


def _model(model: str | None, given: dict[str, Any]) -> tuple[ModelShape, tuple[str, ...]]:
    from tonnage.cli import size_manifest
    from tonnage.facts import hf_config, models

    if given["kube_context"] or given["kubeconfig"]:
        if model or given["params"] is not None:
            hint = "name the workload with --workload, or leave the cluster out"
            raise InputError.at("a cluster, and a model besides", field="MODEL" if model else "--params", hint=hint)
        return size_manifest.fill("", given["workload"], given)
    if not model:
        return _made(given), ()
    if given["params"] is not None:
        raise InputError.at(
            f"both MODEL ({model}) and --params", field="--params", hint="name a model, or give a shape, not both"
        )
    if size_manifest.is_manifest(model):
        return size_manifest.fill(model, given["workload"], given)
    if given["workload"] is not None:
        raise InputError.at("it is of manifests, and MODEL is none", field="--workload", hint="leave it out")
    path = Path(model)
    if model.endswith(".json") or path.exists():
        file = path / "config.json" if path.is_dir() else path
        reading = hf_config.read(file, precision=given["precision"])
        return reading.shape, reading.notes
    return models.get(model), ()


def _made(given: dict[str, Any]) -> ModelShape:
    """The shape that --params, --layers, --hidden and --heads describe."""
    from tonnage.inference.estimate.shapes import VOCABULARY, plain_shape, plausible

    missing = [f"--{name}" for name in ("params", "layers", "hidden", "heads") if given[name] is None]
    if missing:
        raise InputError.at(
            f"no MODEL, and {', '.join(missing)} not given" if len(missing) < 4 else "no MODEL",
            field="MODEL",
            hint="name a model like Qwen/Qwen3-8B, give a config.json, or --params, --layers, --hidden and --heads",
        )
    with said_as(_SHAPE_WORDS):
        shape = plain_shape(
            name=f"{given['params'] / 1e9:g}B",
            params=given["params"],
            active_params=given["active"] or 0,
            layers=given["layers"],
            heads=given["heads"],
            kv_heads=given["kv_heads"],
            head_dim=given["head_dim"],
            hidden=given["hidden"],
            vocab=given["vocab"] or VOCABULARY,
            source="command line",
        )
        plausible(shape)
    return shape


def _request(shape: ModelShape, given: dict[str, Any]) -> SizingRequest:
    from tonnage.inference import memory, tables
    from tonnage.inference.sizing import request as asked

    lengths = _lengths(given)
    if given["concurrency"] is not None and given["rate"] is not None:
        raise InputError.at("--concurrency and --rate", field="--rate", hint="give one of them")
    concurrency = given["concurrency"]
    if concurrency is None and given["rate"] is None:
        concurrency = _DEFAULT_CONCURRENCY
    usual = {"vllm": tables.vllm_memory()["gpu_memory_utilization"], "none": 1.0}.get(given["system"], 0.0)
    utilization = given["utilization"] or usual
    tp = given["tensor_parallel"]
    if tp is not None:
        from tonnage.inference.timing import check_tensor_parallel

        check_tensor_parallel(shape, tp)
    pp = given["pipeline_parallel"]
    if pp is not None and pp > shape.layers:
        raise InputError.at(
            f"--pipeline-parallel is {pp}, but {shape.name} has {shape.layers} layers",
            field="--pipeline-parallel",
            hint="use the number of layers or less",
        )
    return asked.SizingRequest(
        shape=shape,
        stored=memory.precision(given["precision"] or shape.precision),
        kv=memory.precision(given["kv_precision"], field="--kv-precision", kv=True),
        context=asked.context_of(shape, given["context"], lengths),
        lengths=lengths,
        load=asked.OfferedLoad(concurrency, given["rate"]),
        targets=asked.Targets(given["ttft"], given["tpot"]),
        cards=_cards(given["gpu_names"]),
        utilization=utilization,
        max_num_seqs=given["max_num_seqs"],
        max_num_batched_tokens=given["max_num_batched_tokens"],
        cuda_graphs=given["system"] != "none" and not given["enforce_eager"],
        adapters=given["lora"],
        lora_rank=given["lora_rank"],
        tensor_parallel=tp,
        pipeline_parallel=pp,
        pipeline_layers=given.get("pipeline_layers", ()),
        system=given["system"],
    )


def _lengths(given: dict[str, Any]) -> Lengths:
    from tonnage.inference.sizing import request as asked

    if given["trace"] is not None:
        if given["inputs"] or given["outputs"]:
            raise InputError.at(
                "--trace with --input-tokens or --output-tokens", field="--trace", hint="the trace says both lengths"
            )
        from tonnage.traffic.traces import load_trace

        trace = load_trace(given["trace"])
        return asked.of_trace(trace.prompt, trace.output, given["trace"].name)
    inputs = given["inputs"] or (int(_DEFAULT_INPUT),)
    outputs = given["outputs"] or (int(_DEFAULT_OUTPUT),)
    if len(inputs) == len(outputs) == 1:
        return asked.fixed(inputs[0], outputs[0])
    return asked.of_quantiles(inputs, outputs)


def _cards(names: tuple[str, ...]) -> tuple[EngineGpu, ...]:
    from tonnage.inference.sizing import cards

    if not names:
        return cards.rentable()
    return tuple(cards.get(name) for name in dict.fromkeys(names))


def _market(given: dict[str, Any]) -> GpuPrices:
    from tonnage.facts import gpus, ownership, prices
    from tonnage.inference.sizing.options import GpuPrices

    owning = ownership.get()
    if given["life_years"] is not None:
        owning = msgspec.structs.replace(owning, life_years=given["life_years"])
    if given["usd_per_kwh"] is not None:
        owning = msgspec.structs.replace(owning, usd_per_kwh=given["usd_per_kwh"])
    bought: dict[str, float] = {}
    owned = []
    for entry in given["own"]:
        name, _, price = entry.partition("=")
        gpu = gpus.get(name)
        owned.append(gpu.name)
        if price:
            bought[gpu.name] = _dollars(entry, price)
        elif ownership.price_usd(gpu.name) is None:
            raise InputError.at(
                f"no price is known of {gpu.name}", field="--own", hint=f"give one: --own {gpu.name}=12000"
            )
    return GpuPrices(prices.load(given["prices"], given["region"]), owning, bought, frozenset(owned))


def _dollars(entry: str, price: str) -> float:
    try:
        dollars = float(price)
    except ValueError:
        dollars = 0.0
    if not 0 < dollars < 1e9:
        raise InputError.at(f"{entry!r} has no price", field="--own", hint="write GPU=USD, like h100=28000")
    return dollars
