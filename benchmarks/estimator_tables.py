"""Writes what was fitted to the tables of the package: constants, bands, and which points are behind them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT
from benchmarks.estimator_priors import PRIORS, Form
from benchmarks.estimator_rows import Row, group_points
from tonnage.inference import tables
from tonnage.inference.estimate.constants import REGIMES, Band, Constants
from tonnage.inference.estimate.measured import MeasuredGroup

_DATA = ROOT / "src" / "tonnage" / "inference" / "data"
_SAID = {
    "unseen": "chosen: contains 95 % of the points of a system left out; docs/explanation/estimator.md",
    "unlike": "chosen where residuals of models left out say less; docs/explanation/estimator.md",
}


def write(found: Constants, bands: dict[str, Band], given: list[Row], form: Form, date: str) -> None:
    """Write the tables, the sources of the constants that are not fitted unchanged."""
    source = (
        f"fitted {date} in the form '{form.name}' to {len(given)} measured points of aiconfigurator-core 0.12.0 "
        "(H100, H200, B200, GB200; vLLM, SGLang, TensorRT-LLM); benchmarks/estimator_fit.py"
    )
    table: list[dict[str, Any]] = []
    for known in tables.rows("estimator.csv"):
        row: dict[str, Any] = {**known}
        if row["name"] in form.kept:
            row["value"] = f"{form.kept[row['name']]:g}"
        elif row["name"] in PRIORS:
            row |= {"value": f"{getattr(found, row['name']):.4g}", "source": "same fit" if table else source}
        table.append(row)
    _save(_DATA / "estimator.csv", table)
    lines: list[dict[str, Any]] = []
    for of, band in bands.items():
        for name, low, high in zip(REGIMES, band.low, band.high, strict=True):
            said = _SAID.get(name, f"residuals of models left out, {date}; benchmarks/estimator_fit.py")
            lines.append({"of": of, "regime": name, "low": f"{low:.3g}", "high": f"{high:.3g}", "source": said})
    _save(_DATA / "estimator_bands.csv", lines)
    save_measured(given)


def save_measured(given: list[Row]) -> None:
    """Write which points are behind the constants."""
    names = MeasuredGroup._fields[:-1]
    points = [
        {name: getattr(group, name) for name in names}
        | {"concurrency_low": f"{group.concurrency[0]:g}", "concurrency_high": f"{group.concurrency[1]:g}"}
        | {
            "source": "same"
            if index
            else "rows of aiconfigurator-core 0.12.0 as benchmarks/estimator_rows.py reads them"
        }
        for index, (group, _) in enumerate(group_points((row.replica, row.load.concurrency) for row in given))
    ]
    _save(_DATA / "estimator_measured.csv", points)


def _save(file: Path, lines: list[dict[str, Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, fieldnames=list(lines[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
