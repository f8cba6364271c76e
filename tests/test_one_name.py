"""A class's name means one thing: words that stood for several are one's own now, and no other comes to mean many."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

import pytest

from docs_outputs import REPOSITORY

ONE = {
    "Change": "partitioning/relayout.py",
    "Replica": "inference/estimate/replica.py",
    "Trial": "scheduling/trial.py",
}
"""Names that had several meanings, and the module that has kept each."""

MANY = frozenset(
    [
        *("Answer", "Bounds", "Card", "Choice", "Claim", "Column", "Counts", "Disruption", "Fault", "Found"),
        *("Given", "Group", "Held", "Limits", "Load", "Move", "Node", "Offer", "Option", "Options"),
        *("Outcome", "Part", "Plan", "Policy", "Queue", "Reading", "Recorder", "Refusal"),
        *("Refused", "Report", "Request", "Rule", "Search", "Setting", "Settings", "Site", "Standing"),
        *("State", "Step", "Target", "Template", "Workload"),
    ]
)
"""Names of three classes or more, each in another room: the field's own words, or parts of what their module is about."""

MANAGERS = {
    "ControllerManager": "Kubernetes' own: it runs Kubernetes' controllers",
    "Manager": "controller-runtime's word: it runs our controllers",
    "MigManager": "NVIDIA's program on a node",
}
"""What is called a manager, and whose word that is; what a manager runs is a controller."""


def classes(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Name of each public class at the top of a module → the modules that have one."""
    found: dict[str, list[str]] = defaultdict(list)
    for file, text in sorted(sources.items()):
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(file)
    return found


@pytest.fixture(scope="module")
def ours() -> dict[str, list[str]]:
    root = REPOSITORY / "src" / "tonnage"
    return classes({str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in root.rglob("*.py")})


def test_names_that_had_several_meanings_have_one(ours: dict[str, list[str]]) -> None:
    assert {name: ours[name] for name in ONE} == {name: [file] for name, file in ONE.items()}


def test_no_other_name_comes_to_stand_for_three_classes(ours: dict[str, list[str]]) -> None:
    found = {name for name, files in ours.items() if len(files) > 2}
    assert sorted(found - MANY) == [], "give the new one a name of its own"
    assert sorted(MANY - found) == [], "what has fewer meanings now is no longer listed"


def test_what_runs_controllers_is_a_manager_and_nothing_else_is(ours: dict[str, list[str]]) -> None:
    assert {name for name in ours if name.endswith("Manager")} == set(MANAGERS)


def test_classes_are_found_by_their_names() -> None:
    one, other = "class A: pass\nclass _B: pass", "class A:\n    class C: pass"
    assert classes({"x.py": one, "y.py": other, "z.py": "A = 1"}) == {"A": ["x.py", "y.py"]}
