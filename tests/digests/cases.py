"""What is recorded: every example under every policy with three seeds, the contract's scenarios, random placements."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

import yaml_text
from digests import placements
from live.contract.same import broken, sold_out, surge
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
SEEDS = (0, 1, 2)

Case = Callable[[], Any]
"""Runs, and gives what came out, made of what JSON has."""


def cases() -> dict[str, Case]:
    """By name, with slashes: ``examples/SCENARIO/POLICY/SEED``, ``contract/SCENARIO``, ``placement/CLUSTERS/SETTINGS``."""
    found: dict[str, Case] = {}
    for path in sorted(EXAMPLES.glob("*/scenario.yaml")):
        for policy in yaml_text.load(path.read_text(encoding="utf-8"))["policies"]:
            for seed in SEEDS:
                found[f"examples/{path.parent.name}/{policy}/{seed}"] = partial(example, path.parent, policy, seed)
    for name, play in _CONTRACT.items():
        found[f"contract/{name}"] = partial(contract, play)
    return found | placements.cases()


def example(folder: Path, policy: str, seed: int) -> Any:
    """The result as a program gets it by ``-o json``, at full length; without the version and the path to here."""
    result = run.run(scenario.load(folder), policy, run.RunOptions(seed=seed))
    text = msgspec.json.Encoder(order="deterministic").encode(result).decode().replace(f"{ROOT}/", "")
    fields: dict[str, Any] = msgspec.json.decode(text)
    del fields["tonnage_version"]
    return fields


def contract(play: Callable[[Path], LoopDriver]) -> Any:
    """The decisions in the simulated world, the machines' lives, and the bill."""
    with tempfile.TemporaryDirectory() as folder:
        machine = play(Path(folder))
    nodes = machine.cluster.nodes.items()
    return {
        "decisions": msgspec.to_builtins(machine.recorder.decisions),
        "lives": [[name, node.launched_ns, node.ended_ns] for name, node in nodes],
        "micro_usd": machine.cluster.records.ledger.settle(machine.cluster.now_ns).total_micro_usd,
    }


_CONTRACT: dict[str, Callable[[Path], LoopDriver]] = {
    "broken": lambda folder: broken(folder, None),
    "sold-out": lambda folder: sold_out(folder, None),
    "surge-slo": lambda _: surge("slo", 90, None),
    "surge-corrected": lambda _: surge("corrected", 40, None),
}
"""The scenarios of `live.contract.same`, played as its tests do."""
