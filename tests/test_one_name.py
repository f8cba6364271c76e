"""A class's name means one thing: words that stood for several are one's own now, and no other comes to mean two."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping

import pytest

from docs_outputs import REPOSITORY

ONE = {
    "Change": "partitioning/relayout.py",
    "Fault": "simulation/faults.py",
    "Load": "inference/estimate/case.py",
    "Node": "objects/core/nodes.py",
    "Plan": "provisioning/plans.py",
    "Policy": "control/policy.py",
    "Queue": "scheduling/queue.py",
    "Refusal": "scheduling/refusals.py",
    "Refused": "decisions.py",
    "Replica": "inference/estimate/replica.py",
    "Report": "objects/validate/common.py",
    "Request": "inference/engine/requests.py",
    "Rule": "objects/monitoring.py",
    "Setting": "health/setting.py",
    "Settings": "scheduling/place.py",
    "Site": "machines/site.py",
    "State": "fleet/cluster_state.py",
    "Target": "scaling/target.py",
    "Trial": "scheduling/trial.py",
    "Workload": "machines/objects.py",
}
"""Names that had several meanings, and the module that has kept each."""

TWO = {
    "Device": (
        ["cel/device.py", "objects/dra.py"],
        "Kubernetes' own two: k8s.io/dynamic-resource-allocation/cel has a Device for what a selector sees of that of "
        "resource.k8s.io, and callers from outside import ours from `tonnage.cel.device`",
    ),
}
"""Names that stand for two classes: the modules, and why."""

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


def test_no_name_stands_for_two_classes(ours: dict[str, list[str]]) -> None:
    found = {name: files for name, files in ours.items() if len(files) > 1}
    assert found == {name: files for name, (files, _) in TWO.items()}, "give the new one a name of its own"


def test_what_runs_controllers_is_a_manager_and_nothing_else_is(ours: dict[str, list[str]]) -> None:
    assert {name for name in ours if name.endswith("Manager")} == set(MANAGERS)


def test_classes_are_found_by_their_names() -> None:
    one, other = "class A: pass\nclass _B: pass", "class A:\n    class C: pass"
    assert classes({"x.py": one, "y.py": other, "z.py": "A = 1"}) == {"A": ["x.py", "y.py"]}
