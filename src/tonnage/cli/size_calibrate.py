"""`tonnage size --calibrate` and `--prometheus`: one factor from a person's own measurements, kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tonnage.cli import files
from tonnage.errors import InputError
from tonnage.facts.tables import PIPED, is_csv
from tonnage.inference.estimate import FRAMEWORKS, Load, Replica, calibrate
from tonnage.metrics.promql import Vector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tonnage.inference.estimate.calibrate import Calibration
    from tonnage.inference.sizing.request import SizingRequest
    from tonnage.live.prometheus import Prometheus
    from tonnage.metrics.promql import Result

WINDOW = "1h"
"""What Prometheus is asked for: the mean of so long."""
KEPT = "calibration.json"
_RUNNING = "vllm:num_requests_running"
_QUERIES = {
    "tpot": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "ttft": ("vllm:time_to_first_token_seconds",),
    "input_tokens": ("vllm:request_prompt_tokens",),
    "output_tokens": ("vllm:request_generation_tokens",),
}


def calibration(request: SizingRequest, given: Mapping[str, Any]) -> Calibration | None:
    """The calibration that --calibrate or --prometheus give; None without both. That of measurements is kept in
    ``calibration.json`` beside their file, or in the working directory."""
    file, url = given["calibrate"], given["prometheus"]
    if file is None and not url:
        return None
    if file is not None and url:
        raise InputError.at("--calibrate and --prometheus", field="--prometheus", hint="give one of them")
    if file is not None and file.suffix == ".json":
        return _kept(file, request)
    if file is not None:
        text = files.text(file, "expected a CSV file of measurements")
        if file == PIPED and not is_csv(file, text):
            return _kept(file, request)
        readings = calibrate.parse(text, str(file), plain(request, given))
        found, beside = calibrate.fit(readings, str(file)), Path() if file == PIPED else file.parent
    else:
        found, beside = calibrate.fit([_served(request, given, url)], url), Path()
    files.write(beside / KEPT, msgspec.json.format(msgspec.json.encode(found, order="deterministic")).decode() + "\n")
    return found


def plain(request: SizingRequest, given: Mapping[str, Any]) -> Replica:
    """What is sized, on the first card."""
    return Replica(
        shape=request.shape,
        gpu=request.cards[0].gpu,
        precision=request.stored.name,
        kv_precision=request.kv.name,
        tensor_parallel=given["tensor_parallel"] or 1,
        pipeline_parallel=given["pipeline_parallel"] or 1,
        framework=request.system if request.system in FRAMEWORKS else FRAMEWORKS[0],
    )


def _kept(file: Path, request: SizingRequest) -> Calibration:
    try:
        found = msgspec.json.decode(files.text(file, "expected a calibration").encode(), type=calibrate.Calibration)
    except msgspec.DecodeError as error:
        hint = "give a CSV file of measurements, or the calibration.json that one left"
        raise InputError.at(f"not a calibration: {error}", file=str(file), hint=hint) from error
    if found.model != request.shape.name:
        hint = f"measure {request.shape.name}, or size {found.model}"
        raise InputError.at(f"a calibration of {found.model}, not of {request.shape.name}", file=str(file), hint=hint)
    if not (0 < found.factor < float("inf") and found.spread > 0 and found.rows >= 1):
        message = f"factor {found.factor}, spread {found.spread}, rows {found.rows}"
        raise InputError.at(message, file=str(file), field="factor", hint="expected numbers above 0")
    return found


def _served(request: SizingRequest, given: Mapping[str, Any], url: str) -> calibrate.MeasuredLatency:
    """The mean of what vLLM's engines of the model did for the last hour, as one measurement."""
    from tonnage.live.prometheus import Prometheus

    if len(given["gpu_names"]) != 1:
        raise InputError.at(
            f"{len(given['gpu_names'])} GPUs named",
            field="--gpu",
            hint="name the one that serves: Prometheus does not say which",
        )
    with Prometheus(url) as server:
        values = {name: _mean(server, metrics, request, url) for name, metrics in _QUERIES.items()}
        running = f"sum by (model_name) (avg_over_time({_RUNNING}[{WINDOW}])) / count by (model_name) ({_RUNNING})"
        flying = _of_model(server.query(running).result, request, url) or 1.0
    load = Load(max(flying, 1.0), max(values["input_tokens"], 1.0), max(values["output_tokens"], 1.0))
    return calibrate.MeasuredLatency(plain(request, given), load, values["ttft"], values["tpot"])


def _mean(server: Prometheus, metrics: tuple[str, ...], request: SizingRequest, url: str) -> float:
    """The mean of a histogram over the window: of the first of ``metrics`` that has a value."""
    for metric in metrics:
        total, count = (f"sum by (model_name) (rate({metric}_{end}[{WINDOW}]))" for end in ("sum", "count"))
        value = _of_model(server.query(f"{total} / {count}").result, request, url)
        if value is not None:
            return value
    raise InputError.at(
        f"{url} has no {' and no '.join(metrics)} of the last {WINDOW}",
        field="--prometheus",
        hint=f"scrape the vLLM engines that serve {request.shape.name}, and send them requests",
    )


def _of_model(result: Result, request: SizingRequest, url: str) -> float | None:
    """The value of the model that is sized, or of the only one that is served; None for no data."""
    served = (
        {sample.labels.get("model_name", ""): sample.value for sample in result} if isinstance(result, Vector) else {}
    )
    known = {name: value for name, value in served.items() if 0 < value < float("inf")}
    short = request.shape.name.rpartition("/")[2]
    for name, value in sorted(known.items()):
        if name.rpartition("/")[2].lower() == short.lower():
            return value
    if len(known) > 1:
        raise InputError.at(
            f"{url} has engines of {', '.join(sorted(known))}, none of {short}",
            field="--prometheus",
            hint="name as MODEL one that is served there",
        )
    return next(iter(known.values()), None)
