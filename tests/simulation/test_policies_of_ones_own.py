"""A policy of one's own is one function and its line in the table: scenarios, annotations and controllers know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import yaml_text
from tonnage.control import opt_in
from tonnage.control.choices import REPLICAS
from tonnage.decisions import Reason, Ref, Scale
from tonnage.errors import InputError
from tonnage.fleet.classes import Shape
from tonnage.fleet.snapshot import Snapshot
from tonnage.live.assembly import loops_of
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scaling import policies as scaling
from tonnage.scaling.target import Target, TrafficReading
from tonnage.scaling.waiting import Seats
from tonnage.scheduling import policies as placement
from tonnage.scheduling.handle import Handle
from tonnage.scheduling.view import Ints, ShapeView
from tonnage.simulation.result import Result
from tonnage.simulation.run import RunOptions, run
from tonnage.simulation.scenario import load

EXAMPLES = Path(__file__).parents[2] / "examples"
BOUNDS = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: chat, namespace: inference}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: chat}
  minReplicas: 1
  maxReplicas: 5
"""


class LastView(ShapeView):
    """The later a node's name, the better."""

    def _points(self, rows: NDArray[np.intp]) -> Ints:
        return -self.nodes.tie[rows]


def last(handle: Handle, shape: Shape, before: ShapeView | None) -> ShapeView:
    return before if before is not None else LastView(handle.fleet, shape, handle.nodes)


def one_more(
    snapshot: Snapshot,
    targets: Sequence[Target],
    readings: Mapping[str, TrafficReading],
    memory: Mapping[str, Any],
    seats: Seats,
) -> tuple[list[Scale], dict[str, int]]:
    """One replica more at each tick, up to the maximum; remembers its ticks."""
    found = []
    for target in targets:
        view = snapshot.workloads[target.workload]
        if view.replicas < target.maximum and readings[target.workload].received is not None:
            ref = Ref(view.kind, view.name, view.namespace, view.uid)
            found.append(Scale(ref, view.replicas, view.replicas + 1, Reason(f"tick {memory.get('ticks', 0)}")))
    return found, {"ticks": memory.get("ticks", 0) + 1}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(placement.POLICIES, "last", last)
    monkeypatch.setitem(scaling.POLICIES, "one-more", one_more)


def _simulated(folder: Path, **policy: str) -> Result:
    """Chats on two nodes of four GPUs each."""
    example = EXAMPLES / "kv-routing"
    deployment, service = yaml_text.load_all((example / "manifests" / "chat.yaml").read_text(encoding="utf-8"))
    deployment["spec"]["replicas"] = 2
    (folder / "manifests").mkdir()
    text = yaml_text.dump_all([deployment, service, yaml_text.load(BOUNDS)])
    (folder / "manifests" / "all.yaml").write_text(text, encoding="utf-8")
    profile = EXAMPLES / "traffic-surge" / "traffic" / "azure-2023-conv.yaml"
    document = {
        "kind": "Scenario",
        "name": "own",
        "duration": "3m",
        "slo": {"ttft": "3s", "tpot": "80ms"},
        "fleet": {"nodes": [{"instanceType": "g6e.12xlarge", "count": 2}]},
        "traffic": [{"service": "inference/chat", "profile": str(profile), "rate": 0.5, "balancing": "least-requests"}],
        "policies": {"own": {"manifests": "manifests", **policy}},
    }
    (folder / "scenario.yaml").write_text(yaml_text.dump(document), encoding="utf-8")
    return run(load(folder), "own", RunOptions(seed=1, check=True))


def _bound(result: Result) -> list[str]:
    return [one.summary.rpartition(" to ")[2] for one in result.decisions if one.kind == "Bind"]


def test_both_run_in_a_scenario_that_names_them(own: None, tmp_path: Path) -> None:
    result = _simulated(tmp_path, placement="last", scaling="one-more")
    (service,) = result.series.services
    assert max(service.replicas_wanted) == 5
    scaled = [one for one in result.decisions if one.kind == "Scale"]
    assert [one.loop for one in scaled] == ["one-more"] * 3
    assert [one.verdict for one in scaled] == ["tick 0", "tick 1", "tick 2"]
    nodes = sorted({one.name for one in result.nodes})
    assert _bound(result) == [nodes[-1]] * 4 + [nodes[0]]
    assert result.check.violations == []


@pytest.mark.parametrize(
    ("policy", "known"),
    [
        ({"placement": "first"}, "tonnage, fgd, binpack, spread, bestfit, last"),
        ({"scaling": "one-less"}, "manifests, slo, one-more, realtime-inference, .*, decision-table"),
    ],
)
def test_a_name_that_is_wrong_is_refused_with_all_that_there_are(
    own: None, tmp_path: Path, policy: dict[str, str], known: str
) -> None:
    (field,) = policy
    with pytest.raises(InputError, match=rf"scenario.yaml:\d+:policies.own.{field}: .* expected one of {known} \(see"):
        _simulated(tmp_path, **policy)


@pytest.mark.parametrize(("name", "known"), [("one-more", True), ("slo", True), ("one-less", False)])
def test_an_annotation_asks_for_it(own: None, name: str, known: bool) -> None:
    asks = {
        opt_in.AUTOSCALE: name,
        opt_in.MAX_REPLICAS: "4",
        opt_in.CAPACITY: "2",
        opt_in.CONCURRENCY: "8",
        opt_in.RECEIVED: "received",
        opt_in.IN_FLIGHT: "in_flight",
    }
    view: Any = SimpleNamespace(key="ml/chat", annotations=asks, owner="")
    snapshot: Any = SimpleNamespace(workloads={"ml/chat": view})
    planned, refused = opt_in.opted_in(snapshot)
    assert [one.policy for one in planned] == ([name] if known else [])
    assert [one.message for one in refused] == (
        [] if known else ['tonnage.dev/autoscale: "one-less", expected slo or one-more']
    )
    assert all(opt_in.as_annotations(one)[opt_in.AUTOSCALE] == name for one in planned)


def test_the_replicas_controller_has_a_loop_for_each(own: None) -> None:
    world: Any = None
    assert [one.name for one in loops_of(REPLICAS, world, Catalogue.load())] == ["slo", "one-more"]
