"""Scenarios whose GPUs are cut, and cut otherwise: short enough for the embedded API."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.contract.same import played
from tonnage.cluster.client.transport import Transport
from tonnage.simulation import run, scenario
from tonnage.simulation.machine import Machine
from tonnage.units import NS_PER_S

EXAMPLES = Path(__file__).parents[3] / "examples"
MINUTES = 24
SHORT: dict[str, Any] = {"duration": f"{MINUTES}m"}


def day_night(folder: Path, transport: Transport | None) -> Machine:
    """examples/mig-day-night with its day in a few minutes and a quarter of its jobs."""
    made = run.set_up(scenario.load(_shortened(folder)), "relayout", run.Options(seed=1))
    return played(made, MINUTES * 60 * NS_PER_S, transport)


def _shortened(folder: Path) -> Path:
    at = folder / "mig-day-night"
    if not at.exists():
        shutil.copytree(EXAMPLES / "mig-day-night", at)
        document = yaml.safe_load((at / "scenario.yaml").read_text(encoding="utf-8")) | SHORT
        document["traffic"][0] |= {"rate": 0.1, "surges": [{"start": "2m", "duration": "6m", "ramp": "1m", "factor": 20}]}
        finetune, evaluation = document["training"]
        finetune |= {"copies": 9, "arrival": ["1m", "3m"], "work": {"duration": "4m"}}
        evaluation |= {"copies": 4, "arrival": ["5m", "6m"], "work": {"duration": "3m"}}
        (at / "scenario.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return at / "scenario.yaml"
