"""Scenarios whose GPUs are cut as labels say, and repartitioned while they run."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml_text
from live.contract.faulty import Faulty, Rates
from live.contract.processes import STORM
from live.contract.same import played
from live.contract.small import QUICK
from tonnage.decisions import Instances
from tonnage.fleet.state import Fleet
from tonnage.hollow.lockstep import Lockstep, loops_of
from tonnage.kube.transport import Transport
from tonnage.partitioning.fleet_layouts import devices, instances_of
from tonnage.simulation import run, scenario
from tonnage.simulation.driver import LoopDriver
from tonnage.units import NS_PER_S

EXAMPLES = Path(__file__).parents[3] / "examples"
CUT_NODES = Path(__file__).parents[3] / "docs" / "files" / "partitioned-nodes"
SEVENTH, HALF = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: NAME, namespace: research}
spec:
  template:
    spec:
      restartPolicy: OnFailure
      containers:
        - {name: work, image: "registry.example/work:1", resources: {limits: {cpu: "CPU", memory: 8Gi, RESOURCE: 1}}}
"""
POLICY = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata: {name: cluster-policy}
spec:
  mig: {strategy: mixed}
  migManager: {config: {name: custom-mig-config}}
  devicePlugin: {config: {name: device-plugin-config, default: default}}
"""


SHORT_DAY = {
    "{start: 10m, duration: 60m, ramp: 20m,": "{start: 10m, duration: 20m, ramp: 10m,",
    "arrival: [80m, 85m]": "arrival: [40m, 45m]",
    "arrival: [72m, 74m]": "arrival: [32m, 34m]",
    "profile: traffic/": f"profile: {EXAMPLES}/mig-day-night/traffic/",
    "manifests: manifests": f"manifests: {EXAMPLES}/mig-day-night/manifests",
}
"""The day of mig-day-night is 40 minutes shorter, and so is a run until its night: requests are not what is looked at."""


def example(name: str, policy: str, minutes: int, transport: Transport | None) -> LoopDriver:
    """This many minutes of an example under one of its policies."""
    return (
        _simulated(name, policy, minutes) if transport is None else _played(_set_up(name, policy), minutes, transport)
    )


def short_day(minutes: int, transport: Transport | None, *, by_manager: bool = False) -> LoopDriver:
    """This many minutes of examples/mig-day-night with its :data:`SHORT_DAY`, whose layouts follow the load."""
    if transport is None:
        return _simulated_short_day(minutes)
    return _played(_set_up_short_day(), minutes, transport, by_manager=by_manager)


def _played(made: run.SetUp, minutes: int, transport: Transport | None, *, by_manager: bool = False) -> LoopDriver:
    return played(made, minutes * 60 * NS_PER_S, transport, by_manager=by_manager)


def _set_up(name: str, policy: str) -> run.SetUp:
    return run.set_up(scenario.load(EXAMPLES / name), policy, run.RunOptions(seed=3))


def _set_up_short_day() -> run.SetUp:
    written = (EXAMPLES / "mig-day-night" / "scenario.yaml").read_text(encoding="utf-8")
    for was, is_now in SHORT_DAY.items():
        assert was in written, was
        written = written.replace(was, is_now)
    with TemporaryDirectory() as folder:
        (Path(folder) / "scenario.yaml").write_text(written, encoding="utf-8")
        return run.set_up(scenario.load(Path(folder)), "relayout", run.RunOptions(seed=3))


@cache
def _simulated(name: str, policy: str, minutes: int) -> LoopDriver:
    return _played(_set_up(name, policy), minutes, None)


@cache
def _simulated_short_day(minutes: int) -> LoopDriver:
    return _played(_set_up_short_day(), minutes, None)


def under_faults(transport: Transport, seed: int, minutes: int, rest: int) -> Lockstep:
    """This many minutes of the short day with controllers whose calls fail, and then this many in which none does. Close
    what is returned."""
    made = _set_up_short_day()
    rates = Rates({kind: rate for kind, rate in STORM.write.items() if not kind.startswith("crash")}, STORM.read)
    faulty: list[Faulty] = []

    def fails(tracked: Transport) -> Transport:
        faulty.append(Faulty(tracked, seed, rates))
        return faulty[0]

    steps = Lockstep(made, transport, controllers=fails, delays=QUICK)
    machine = LoopDriver(made.cluster, made.recorder(), False, world=steps.world, settle=steps.settle)
    made.start_training()
    machine.start(loops_of(made, steps.world), made.scraper())
    machine.play(minutes * 60 * NS_PER_S, None)
    assert len(faulty[0].made) > 20
    faulty[0].calm()
    machine.play((minutes + rest) * 60 * NS_PER_S, None)
    assert sum(d.kind == "Relayout" and d.outcome != "Applied" for d in machine.recorder.decisions) > 3
    return steps


def layouts(fleet: Fleet, node: str = "base-01") -> list[Instances]:
    """How the GPUs of a node are partitioned."""
    row = fleet.node_by_name[node]
    return [instances_of(fleet, (row, device)) for device in range(devices(fleet, row))]


def bought(folder: Path, transport: Transport | None, *, operator: bool) -> LoopDriver:
    """A NodePool that offers cut nodes, that of the documentation, and work for several of its layouts. ``operator``:
    a ClusterPolicy names the ConfigMaps."""
    minutes = 20
    return played(_cut_nodes(folder, operator=operator), minutes * 60 * NS_PER_S, transport)


def _cut_nodes(folder: Path, *, operator: bool) -> run.SetUp:
    manifests = folder / "manifests"
    manifests.mkdir(exist_ok=True)
    asks = {"small": (SEVENTH, 1), "large": (HALF, 2)} | ({} if operator else {"whole": ("nvidia.com/gpu", 4)})
    documents = [(CUT_NODES / name).read_text(encoding="utf-8") for name in ("configurations.yaml", "nodepool.yaml")]
    jobs = [JOB.replace("NAME", n).replace("RESOURCE", r).replace("CPU", str(cpu)) for n, (r, cpu) in asks.items()]
    written = "---\n".join([*documents, *jobs])
    written += f"---\n{POLICY}" if operator else ""
    written = written.replace(", eighths, third", "").replace("all-disabled, " if operator else "\0", "")
    (manifests / "all.yaml").write_text(written, encoding="utf-8")
    work = [
        {"workload": f"research/job/{name}", "copies": copies, "arrival": ["10s", "3m"], "work": {"duration": "4m"}}
        for name, copies in {"small": 9, "large": 3, "whole": 2}.items()
        if name in asks
    ]
    document = {
        "kind": "Scenario",
        "name": "cut-nodes",
        "duration": "20m",
        "training": work,
        "policies": {"only": {"manifests": "manifests"}},
    }
    (folder / "scenario.yaml").write_text(yaml_text.dump(document), encoding="utf-8")
    return run.set_up(scenario.load(folder), "only", run.RunOptions(seed=1))
