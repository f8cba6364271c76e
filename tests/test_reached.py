"""What stands in `src/` is there for a command or for a documented name; what is not is listed with its reason."""

from __future__ import annotations

import ast
from fnmatch import fnmatch
from pathlib import Path

import pytest

from docs_outputs import REPOSITORY
from reached import Reached, read
from test_docs_python import FORMER, STATED
from tonnage.cli import COMMANDS

ENTRIES = (
    ("tonnage.cli", "main"),
    ("tonnage.__main__", ""),
    ("tonnage.cli.plugin", "main"),
    ("tonnage.cli.plugin", "complete"),
)
COMING = "the router and the gateway of a real cluster will ask it"
FACTS = "says of a table of facts what the tests that hold the table read"
STEPS = "steps the controllers and the machines behind an API in tests on one clock"
LOOKED_AT = "lets tests look into an engine or a router"
KEPT = {
    "tonnage.inference.index.*": COMING,
    "tonnage.inference.routing.flow.*": COMING,
    "tonnage.inference.routing.fairness.*": COMING,
    "tonnage.inference.routing.saturation.*": COMING,
    "tonnage.inference.routing.router.Router.worker_state": COMING,
    "tonnage.live.clouds.report.DryRunGroups.wishes": "lets tests look at what would have been written, which the log says",
    "tonnage.facts.counting.TRAITS": FACTS,
    "tonnage.facts.durations.*": FACTS,
    "tonnage.facts.prices.*": FACTS,
    "tonnage.inference.memory.kinds.*": FACTS,
    "tonnage.hollow.lockstep": STEPS,
    "tonnage.hollow.machines.Machines.see_deployment": STEPS,
    "tonnage.apiserver.controllers.meta.stamp_micro": STEPS,
    "tonnage.control.opt_in.as_annotations": STEPS,
    "tonnage.control.outside.ReplayScaling.*": "what Dynamo's replay calls",
    "tonnage.kube.verbs.Client.test_and_set": "a way of writing that tests ask of the embedded API",
    "tonnage.apiserver.openapi.custom_schema": "what tests install on a real API server to compare with",
    "tonnage.inference.disaggregation.*.held_blocks": LOOKED_AT,
    "tonnage.inference.disaggregation.*.next_deadline_ns": LOOKED_AT,
    "tonnage.inference.prompts.numbers": LOOKED_AT,
    "tonnage.inference.timing.LinearTiming": "exact step times, with which tests reckon what an engine does by hand",
    "tonnage.metrics.functions.PROMETHEUS_2": "the dialect of older servers, for whoever evaluates a query by its name",
    "tonnage.scaling.releases.KUBERNETES_1_36": "the release before, for whoever evaluates an HPA by its name",
    "tonnage.objects.podlist.*": "pods of `kubectl get -o json`, measured by benchmarks/main",
    "tonnage.scheduling.why.changes.apply": "makes a proposed change, so that tests can try it",
    "tonnage.scheduling.why.gang.smallest": "one search for one gang; tests compare it with all changes there are",
}
"""What no command reaches, and why it stays."""


@pytest.fixture(scope="module")
def reached() -> Reached:
    documented = [(module, name.partition(".")[0]) for module, name, _ in STATED]
    documented += [(former.rpartition(".")[0], former.rpartition(".")[2]) for former, _ in FORMER]
    commands = [(module, name) for module, name, _ in COMMANDS.values()]
    return Reached(read(REPOSITORY / "src"), [*ENTRIES, *commands, *documented])


@pytest.mark.fuzz
def test_a_command_or_a_documented_name_reaches_all_that_stands_in_src(reached: Reached) -> None:
    assert len(reached.names) > 7_000
    strangers = [one for one in reached.dead if not any(fnmatch(one, kept) for kept in KEPT)]
    assert not strangers, "wire it, remove it, or list it in KEPT with its reason"


@pytest.mark.fuzz
def test_what_is_listed_is_not_reached_and_has_a_reason(reached: Reached) -> None:
    for kept, why in KEPT.items():
        assert any(fnmatch(one, kept) for one in reached.dead), f"{kept} is reached now, or gone"
        assert why


def _of(tmp_path: Path, **files: str) -> Reached:
    folder = tmp_path / "pkg"
    folder.mkdir()
    for name, text in {"__init__": "", **files}.items():
        (folder / f"{name}.py").write_text(text)
    return Reached(read(tmp_path), [("pkg.a", "run")])


@pytest.mark.parametrize(
    ("a", "b", "dead"),
    [
        ("from pkg.b import used\ndef run(): used()", "def used(): pass\ndef idle(): pass", ["pkg.b.idle"]),
        ("from pkg import b\ndef run(): b.used()", "def used(): helps()\ndef helps(): pass", []),
        ("import pkg.b as other\ndef run(): other.used()", "def used(): pass\nLIMIT = 3", ["pkg.b.LIMIT"]),
        ("def run():\n    from pkg.b import Used\n    Used().go()",
         "class Used:\n    def go(self): pass\n    def idle(self): pass", ["pkg.b.Used.idle"]),
        ("def run(): pass", "def used(): pass", ["pkg.b"]),
        ("from pkg import b\ndef run(): pass", "def idle(): idle()", ["pkg.b.idle"]),
        ("from pkg import b\ndef run(): return b.TABLE", "def of_table(): pass\nTABLE = {1: of_table}", []),
        ("from pkg import b\ndef run(): return b", "import click\ngroup = click.Group()\n@group.command()\ndef sub(): pass", []),
        ("from pkg import b\ndef run(): return b.H", "import http\nclass H(http.Handler):\n    def do_GET(self): pass", []),
    ],
)  # fmt: skip
def test_what_is_dead_is_found_in_small_packages(tmp_path: Path, a: str, b: str, dead: list[str]) -> None:
    ast.parse(b)
    assert _of(tmp_path, a=a, b=b).dead == dead
