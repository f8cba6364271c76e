"""One scenario, played by the simulator's clock in the simulated world and on an API: the same decisions."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from sim_builders import EXAMPLE, variant

import yaml_text
from live.contract import managed
from live.contract.processes import END_S, set_up
from tonnage.hollow import lockstep
from tonnage.kube.transport import Transport
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
from tonnage.units import NS_PER_S

NIGHT = EXAMPLE.parent / "night-and-day"
BREAKS: tuple[dict[str, Any], ...] = (
    {"kind": "spot-interruption", "at": "7m"},
    {"kind": "node-failure", "at": "14m", "nodePool": "gpu-inference-pool"},
)
SPOT = {"instanceType": "g6e.2xlarge", "capacityType": "spot", "count": 2}
NONE_LEFT: tuple[dict[str, Any], ...] = (
    {"kind": "out-of-stock", "at": "2m", "instanceType": "g6e.12xlarge", "duration": "1m"},
)


def played(made: run.SetUp, until_ns: int, transport: Transport | None, *, by_manager: bool = False) -> LoopDriver:
    """Run it in the simulated world, or on the API behind ``transport``. ``by_manager``: the loops are run by who runs
    them on a cluster."""
    if transport is not None:
        play = managed.play if by_manager else lockstep.play
        machine, steps = play(made, transport, until_ns)
        steps.close()
        assert steps.machines.errors == {}
        return machine
    machine = LoopDriver(made.cluster, made.recorder(), False)
    made.start_training()
    machine.start(made.loops(), made.scraper())
    made.break_things()
    machine.play(until_ns, None)
    return machine


def broken(folder: Path, transport: Transport | None, *, by_manager: bool = False) -> LoopDriver:
    """A small cluster with DaemonSets, of which a spot node is taken back and another node fails."""
    made = set_up(folder, 1, faults=BREAKS, nodes=[SPOT])
    return played(made, END_S * NS_PER_S, transport, by_manager=by_manager)


def sold_out(folder: Path, transport: Transport | None) -> LoopDriver:
    """Of the cheapest instance type there is none for a while."""
    return played(set_up(folder, 1, faults=NONE_LEFT), 600 * NS_PER_S, transport)


def surge(policy: str, minutes: int, transport: Transport | None) -> LoopDriver:
    """This many minutes of the traffic surge of the example."""
    made = run.set_up(scenario.load(EXAMPLE), policy, run.RunOptions(seed=3))
    return played(made, minutes * 60 * NS_PER_S, transport)


def short_surge(folder: Path, policy: str, transport: Transport | None) -> LoopDriver:
    """The traffic surge in 25 minutes: nodes are launched for it and terminated after it."""
    made = run.set_up(variant(folder), policy, run.RunOptions(seed=3))
    return played(made, made.scenario.duration_ns, transport)


def short_night(folder: Path, transport: Transport | None) -> LoopDriver:
    """The day and the night of the example in an hour: underused nodes go, what replaces them is launched first."""
    document = copy.deepcopy(yaml_text.load((NIGHT / "scenario.yaml").read_text(encoding="utf-8")))
    document |= {
        "duration": "60m",
        "policies": {"short": {"manifests": str(NIGHT / "manifests/consolidation")}},
        "default": "short",
    }
    (traffic,) = document["traffic"]
    traffic["profile"] = str(NIGHT / traffic["profile"])
    traffic["surges"] = [{"start": "5m", "duration": "15m", "ramp": "5m", "factor": 8}]
    path = folder / "scenario.yaml"
    path.write_text(yaml_text.dump(document, sort_keys=False), encoding="utf-8")
    made = run.set_up(scenario.load(path), "short", run.RunOptions(seed=3))
    return played(made, made.scenario.duration_ns, transport)


def check_same(simulated: LoopDriver, played: LoopDriver, *, outcomes: bool = True, more_than: int = 10) -> None:
    """Every decision with its time, its reason and its numbers; and the same machines, launched and terminated.

    ``outcomes`` False: what became of them is left out. A cloud says no at once in the simulated world, and after the
    NodeClaim was made on a cluster. ``more_than``: decisions, without which there is nothing to compare."""
    assert len(simulated.recorder.decisions) > more_than
    for one, other in zip(_log(simulated, outcomes), _log(played, outcomes), strict=False):
        assert other == one
    assert len(played.recorder.decisions) == len(simulated.recorder.decisions)
    assert _lives(played) == _lives(simulated)
    bills = [
        machine.cluster.records.ledger.settle(machine.cluster.now_ns).total_micro_usd for machine in (simulated, played)
    ]
    assert bills[0] == bills[1]


def _log(machine: LoopDriver, outcomes: bool) -> list[tuple[Any, ...]]:
    fields = ("t_s", "loop", "kind", "target", "summary", "verdict", "evidence", "alternatives")
    fields += ("outcome",) if outcomes else ()
    return [tuple(getattr(one, field) for field in fields) for one in machine.recorder.decisions]


def _lives(machine: LoopDriver) -> dict[str, tuple[int, int | None]]:
    return {name: (node.launched_ns, node.ended_ns) for name, node in machine.cluster.nodes.items()}
