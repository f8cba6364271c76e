"""The scenario file: what it says, and that everything wrong in it is told with its file, line and field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sim_builders import EXAMPLE, variant

from tonnage.errors import InputError, Problem
from tonnage.simulation import run
from tonnage.simulation.scenario import Scenario, duration_ns, load
from tonnage.units import NS_PER_MS, NS_PER_S

GOOD = """\
kind: Scenario
name: small
duration: 10m
region: us-east-1
slo:
  ttft: 2s
  tpot: 50ms
  grace: 1m
fleet:
  nodes:
    - instanceType: g6e.12xlarge
      count: 3
      zone: us-east-1a
      capacityType: on-demand
traffic:
  - service: inference/model-a
    profile: PROFILE
    rate: 0.4
    speed: 1.5
    balancing: least-requests
    surges:
      - start: [2m, 3m]
        duration: 4m
        ramp: 1m
        factor: [4, 6]
  - service: inference/model-b
    trace: trace.csv
policies:
  corrected:
    manifests: MANIFESTS
    scaling: slo
default: corrected
faults:
  - kind: node-failure
    at: 5m
    count: 2
  - kind: out-of-stock
    at: 1m
    instanceType: g6e.2xlarge
    duration: 3m
""".replace("PROFILE", str(EXAMPLE / "traffic" / "azure-2023-conv.yaml")).replace(
    "MANIFESTS", str(EXAMPLE / "manifests" / "corrected")
)


def _written(folder: Path, text: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _problems(folder: Path, text: str) -> tuple[Problem, ...]:
    with pytest.raises(InputError) as caught:
        load(_written(folder, text))
    return caught.value.problems


def test_a_scenario_reads_as_it_is_written(tmp_path: Path) -> None:
    found = load(_written(tmp_path, GOOD))
    assert found.spec.name == "small"
    assert found.duration_ns == 600 * NS_PER_S
    assert (found.ttft_ns, found.tpot_ns, found.grace_ns) == (2 * NS_PER_S, 50 * NS_PER_MS, 60 * NS_PER_S)
    (group,) = found.spec.fleet.nodes
    assert (group.instance_type, group.count, group.node_pool) == ("g6e.12xlarge", 3, "")
    first, second = found.traffic
    (surge,) = first.surges
    assert (surge.start_s, surge.duration_s, surge.ramp_s, surge.factor) == ((120, 180), 240, 60, (4, 6))
    assert not first.is_trace and second.is_trace
    assert second.path == tmp_path / "trace.csv", "paths start at the scenario's folder"
    assert second.spec.balancing == "random"
    assert found.default_policy == "corrected"
    assert [fault.kind for fault in found.spec.faults] == ["node-failure", "out-of-stock"]


def test_a_folder_stands_for_its_scenario(tmp_path: Path) -> None:
    _written(tmp_path, GOOD)
    assert load(tmp_path).spec == load(tmp_path / "scenario.yaml").spec


def test_without_a_default_the_first_policy_runs(tmp_path: Path) -> None:
    assert load(_written(tmp_path, GOOD.replace("default: corrected\n", ""))).default_policy == "corrected"


WRONG_DURATION = "is not a duration, expected e.g."
MISTAKES = [
    # what stands there, what is written instead, the field, the message; the line is that of the changed text
    ("duration: 10m", "duration: soon", "duration", '"soon" is not a duration, expected e.g. 90m'),
    ("duration: 10m", "duration: 0s", "duration", '"0s" is not above 0'),
    ("duration: 10m", "duration: 10", "duration", "expected str, got int"),
    ("name: small", "name: [small]", "name", "expected str, got array"),
    ("  ttft: 2s", "  ttft: fast", "slo.ttft", WRONG_DURATION),
    ("  ttft: 2s", "  ttft: 0ms", "slo.ttft", "is not above 0"),
    ("  tpot: 50ms", "  tpot: -50ms", "slo.tpot", WRONG_DURATION),
    ("  grace: 1m", "  grace: a while", "slo.grace", WRONG_DURATION),
    ("  grace: 1m", "  patience: 1m", "slo.patience", "unknown field"),
    ("instanceType: g6e.12xlarge", "instanceType: g6e.12xl", "fleet.nodes[0].instanceType", "g6e.12xl"),
    ("count: 3", "count: 0", "fleet.nodes[0].count", "0 nodes, expected at least 1"),
    ("count: 3", "count: many", "fleet.nodes[0].count", '"many": expected int, got str'),
    (
        "capacityType: on-demand",
        "capacityType: cheap",
        "fleet.nodes[0].capacityType",
        "expected one of on-demand, spot",
    ),
    ("service: inference/model-a", "service: model-a", "traffic[0].service", "expected namespace/name of a Service"),
    ("service: inference/model-b", "service: inference/model-a", "traffic[1].service", "appears twice"),
    ("rate: 0.4", "rate: 0", "traffic[0].rate", "0.0, expected a finite number above 0"),
    ("rate: 0.4", "rate: .nan", "traffic[0].rate", "nan, expected a finite number above 0"),
    ("speed: 1.5", "speed: .inf", "traffic[0].speed", "inf, expected a finite number above 0"),
    ("speed: 1.5", "speed: -1", "traffic[0].speed", "-1.0, expected a finite number above 0"),
    (
        "balancing: least-requests",
        "balancing: fair",
        "traffic[0].balancing",
        '"fair", expected one of random, round-robin, least-requests',
    ),
    ("start: [2m, 3m]", "start: [2m, later]", "traffic[0].surges[0].start", '"later" is not a duration'),
    ("start: [2m, 3m]", "start: [3m, 2m]", "traffic[0].surges[0].start", "the smaller first"),
    ("duration: 4m", "duration: long", "traffic[0].surges[0].duration", '"long" is not a duration'),
    ("duration: 4m", "duration: 0m", "traffic[0].surges[0].duration", "expected more than 0"),
    ("ramp: 1m", "ramp: steep", "traffic[0].surges[0].ramp", '"steep" is not a duration'),
    ("ramp: 1m", "ramp: 3m", "traffic[0].surges[0].ramp", "180.0, expected 0 to 120 s"),
    ("factor: [4, 6]", "factor: [6, 4]", "traffic[0].surges[0].factor", "the smaller first"),
    ("factor: [4, 6]", "factor: -1", "traffic[0].surges[0].factor", "a number of at least 0"),
    ("factor: [4, 6]", "factor: big", "traffic[0].surges[0].factor", "expected"),
    ("    trace: trace.csv", "    # no trace", "traffic[1]", "either a profile or a trace"),
    ("    trace: trace.csv", "    trace: a\n    profile: b", "traffic[1]", "either a profile or a trace"),
    ("scaling: slo", "scaling: magic", "policies.corrected.scaling", '"magic", expected one of manifests, slo'),
    ("scaling: slo", "scaler: slo", "policies.corrected.scaler", "unknown field"),
    ("default: corrected", "default: other", "default", '"other" is not among the policies: corrected'),
    ("- kind: node-failure", "- kind: meteor", "faults[0].kind", '"meteor", expected one of spot-interruption, '),
    ("at: 5m", "at: dawn", "faults[0].at", WRONG_DURATION),
    ("count: 2", "count: 0", "faults[0].count", "0 nodes, expected at least 1"),
    ("instanceType: g6e.2xlarge", "instanceType: g6e.3xlarge", "faults[1].instanceType", "g6e.3xlarge"),
    ("duration: 3m", "duration: 0s", "faults[1].duration", "is not above 0"),
    ("duration: 3m", "duration: brief", "faults[1].duration", WRONG_DURATION),
]


@pytest.mark.parametrize(("good", "bad", "field", "message"), MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_is_told_with_its_file_line_and_field(
    tmp_path: Path, good: str, bad: str, field: str, message: str
) -> None:
    assert GOOD.count(good) == 1
    (problem,) = _problems(tmp_path, GOOD.replace(good, bad))
    assert problem.where.file == str(tmp_path / "scenario.yaml")
    assert problem.where.field == field
    assert message in problem.message
    assert problem.hint
    changed = GOOD[: GOOD.index(good)].count("\n") + 1
    item = field.endswith("]")  # said of the whole item, which begins a line above
    assert problem.where.line == changed - item


@pytest.mark.parametrize(
    ("line", "field", "within"),
    [
        ("name: small\n", "name", 1),
        ("duration: 10m\n", "duration", 1),
        ("  ttft: 2s\n", "slo.ttft", 6),
        ("    - instanceType: g6e.12xlarge\n      count: 3\n", "fleet.nodes[0].instanceType", 12),
        ("    instanceType: g6e.2xlarge\n", "faults[1].instanceType", 37),
        ("    manifests: MANIFESTS\n", "policies.corrected.manifests", 30),
    ],
)
def test_a_missing_field_is_told_at_the_place_where_it_should_be(
    tmp_path: Path, line: str, field: str, within: int
) -> None:
    line = line.replace("MANIFESTS", str(EXAMPLE / "manifests" / "corrected"))
    rest = "    -\n" if line.startswith("    -") else ""
    (problem,) = _problems(tmp_path, GOOD.replace(line, rest, 1))
    assert problem.where.field == field
    assert problem.where.line == within


def test_a_scenario_without_policies_says_so_and_may_do_without_traffic(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("traffic:")] + "traffic: []\npolicies: {}\n"
    assert [(p.where.field, p.message) for p in _problems(tmp_path, text)] == [
        ("policies", "no policy, expected at least one"),
    ]


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("ttft: 2s", "ttft: x").replace("rate: 0.4", "rate: -1").replace("count: 3", "count: -3")
    assert {p.where.field for p in _problems(tmp_path, text)} == {"slo.ttft", "traffic[0].rate", "fleet.nodes[0].count"}


def test_a_missing_manifest_folder_is_told_by_its_path(tmp_path: Path) -> None:
    text = GOOD.replace(str(EXAMPLE / "manifests" / "corrected"), "nowhere")
    (problem,) = _problems(tmp_path, text)
    assert problem.where.field == "policies.corrected.manifests"
    assert problem.message == f"no such folder: {tmp_path / 'nowhere'}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty, expected a scenario"),
        ("kind: Pod\n", "not a scenario, expected the line kind: Scenario"),
        ("- a list\n", "not a scenario, expected the line kind: Scenario"),
        ("kind: Scenario\n  bad: [\n", "not valid YAML"),
        ("kind: Scenario\nname: !python/name:os.system x\n", "not valid YAML"),
        ("kind: Scenario\nname: a\nname: b\n", "the field appears twice"),
        ("kind: Scenario\n? [a]\n: b\n", "not valid YAML"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (problem,) = _problems(tmp_path, text)
    assert message in problem.message
    assert problem.where.file == str(tmp_path / "scenario.yaml")


def test_a_scenario_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such scenario"):
        load(tmp_path)


def test_an_unknown_policy_is_answered_with_a_near_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="did you mean corrected"):
        load(_written(tmp_path, GOOD)).policy("correct")


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("90m", 5400 * NS_PER_S),
        ("1h30m", 5400 * NS_PER_S),
        ("2s", 2 * NS_PER_S),
        ("50ms", 50 * NS_PER_MS),
        ("1.5h", 5400 * NS_PER_S),
        ("1m500ms", 60_500 * NS_PER_MS),
        (" 3s ", 3 * NS_PER_S),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_in_hours_minutes_seconds_and_milliseconds(text: str, ns: int) -> None:
    assert duration_ns(text) == ns


@pytest.mark.parametrize("text", [" ", "10", "m", "-5m", "5d", "1m 30s", "30s1m", "1e3s", "∞"])
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        duration_ns(text)


# ---- what only shows with the manifests ----


def _refused(scenario: Scenario, policy: str = "slo") -> Problem:
    with pytest.raises(InputError) as caught:
        run.run(scenario, policy)
    (problem,) = caught.value.problems
    return problem


TRAFFIC = {"profile": str(EXAMPLE / "traffic" / "azure-2023-conv.yaml"), "balancing": "least-requests"}
BASE = {"instanceType": "g6e.12xlarge", "zone": "us-east-1a"}


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        (
            {"traffic": [TRAFFIC | {"service": "inference/model-c"}]},
            "traffic[0].service",
            "no such Service in the manifests",
        ),
        (
            {"traffic": [TRAFFIC | {"service": "inference/model-a", "balancing": "random"}]},
            "traffic[0].balancing",
            "the slo policy counts the requests of inference/model-a at a gateway",
        ),
        ({"fleet": {"nodes": [BASE | {"zone": "us-east-1z"}]}}, "fleet.nodes[0].zone", "is not offered in us-east-1z"),
        ({"fleet": {"nodes": [BASE | {"nodePool": "nobody's"}]}}, "fleet.nodes[0].nodePool", "no NodePool"),
        (
            {"fleet": {"nodes": [BASE | {"instanceType": "p5.48xlarge", "capacityType": "spot", "zone": "x"}]}},
            "fleet.nodes[0].",
            "p5.48xlarge",
        ),
        ({"region": "eu-west-1"}, "region", "no prices of this region are bundled"),
        ({"slo": {"ttft": "1ms", "tpot": "1ms"}}, "slo", "cannot meet the SLO at any rate"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_the_manifests_is_told_with_its_place(
    tmp_path: Path, changes: dict[str, object], field: str, message: str
) -> None:
    problem = _refused(variant(tmp_path, **changes))
    assert problem.where.field.startswith(field)
    assert problem.where.file == str(tmp_path / "scenario.yaml") and problem.where.line > 0
    assert message in problem.message
    assert problem.hint
