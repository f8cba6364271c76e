"""Examples with training, cut short: everything arrives within an hour, and all of it comes to its end. Nothing fails but
what a disturbance lets fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml_text
from live.contract.training import EXAMPLES
from tonnage.simulation import run, scenario

Json = dict[str, Any]
SEED = 5
END_S = 6 * 3600


def training_cluster(folder: Path) -> run.SetUp:
    """The training cluster with a fifth of its Jobs and a third of its work. Small work comes first, so that what comes later takes its room."""
    document = _document("training-cluster")
    for entry in document["training"]:
        if entry.get("copies", 1) > 1:
            entry["copies"] = max(2, entry["copies"] // 5)
        first, last = (0, 40) if "/job/" in entry["workload"] else (30, 60)
        entry["arrival"] = [f"{first}m", f"{last}m"]
        work = entry["work"]
        work |= {"duration": "30m"} if "duration" in work else {}
        work |= {what: work[what] // 3 for what in ("steps", "gpuHours") if what in work}
    return _set_up(folder, document | {"faults": [], "duration": "6h"}, "tonnage")


def mixed(folder: Path) -> run.SetUp:
    """The surge comes when the gangs are at work, and takes their room; half of the work."""
    document = _document("mixed")
    document["traffic"][0]["surges"] = [{"start": "10m", "duration": "15m", "ramp": "1m", "factor": 5}]
    pretrain, elastic, jobs = document["training"]
    pretrain["work"]["steps"] = 240
    elastic["work"] = {"gpuHours": 4}
    jobs |= {"copies": 8, "arrival": ["5m", "40m"], "work": {"duration": "8m"}}
    return _set_up(folder, document | {"duration": "70m"}, "preemption")


def mig_day_night(folder: Path) -> run.SetUp:
    """A day of half an hour, and a night in which both kinds of work take turns."""
    document = _document("mig-day-night")
    document["traffic"][0]["surges"] = [{"start": "5m", "duration": "20m", "ramp": "5m", "factor": 12}]
    finetune, evaluation = document["training"]
    finetune |= {"copies": 12, "arrival": ["35m", "38m"], "work": {"duration": "10m"}}
    evaluation |= {"copies": 4, "arrival": ["30m", "31m"], "work": {"duration": "10m"}}
    return _set_up(folder, document | {"duration": "70m"}, "relayout")


def _document(name: str) -> Json:
    """The scenario of an example, with the paths of its files."""
    folder = EXAMPLES / name
    document: Json = yaml_text.load((folder / "scenario.yaml").read_text(encoding="utf-8"))
    for entry in document.get("traffic", ()):
        entry["profile"] = str((folder / entry["profile"]).resolve())
    for policy in document["policies"].values():
        policy["manifests"] = str(folder / policy["manifests"])
    return document


def _set_up(folder: Path, document: Json, policy: str) -> run.SetUp:
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(document), encoding="utf-8")
    return run.set_up(scenario.load(path), policy, run.RunOptions(seed=SEED))
