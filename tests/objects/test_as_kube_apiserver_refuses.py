"""Manifests beside what kube-apiserver v1.36.3 said of the same objects: the same verdict at the same fields."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import yaml_text
from tonnage.errors import InputError
from tonnage.objects import load

sys.path.insert(0, str(Path(__file__).parents[1] / "apiserver" / "look"))
from look_checks import base, named, recorded

NOT_FILES = {"event", "lease", "namespace", "nodeclaim", "serviceaccount"}
"""Kinds that nobody keeps in a file, or of which a manifest is not held to all rules."""
CUSTOM = {"nodepool", "ec2nodeclass", "scaledobject", "servicemonitor"}
"""Kinds whose rules here are worded by us: the verdict is compared, not the field."""
REFUSED = [one for one in recorded("refusals.jsonl") if one["of"] not in NOT_FILES]
TAKEN = list(recorded("accepted.jsonl"))
DIFFERENT = {
    '{"spec.minReplicas": 0, "spec.metrics": [{"type": "External"': "1.37 takes it",
    '{"metadata.namespace"': "a path of the API has one namespace",
}
"""What is judged otherwise, and why."""


_OWN = {
    "^metadata.taints": "spec.taints",
    r"template\.(labels|annotations)": "template.metadata",
    r"spec\.template\.metadata\.labels": "spec",
    "overhead.limits": "overhead",
    "securityContext.shareProcessNamespace": "shareProcessNamespace",
    r"resources\.limits$": "resources",
    r"(tolerations\[\d+\])\.operator": r"\1",
}
"""What the API names otherwise than where it stands, or than where the reason stands."""


def problems(case: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """(field, message) of everything that is wrong with the object, and of unknown fields."""
    file = folder / "x.yaml"
    file.write_text(yaml_text.dump(base(case["of"], case["set"])))
    try:
        read = load.read([file])
    except InputError as error:
        return [(problem.where.field, problem.message) for problem in error.problems]
    if case["status"] == 400:
        return [(problem.where.field, problem.message) for problem in read.problems]
    return []


def fields_of(case: dict[str, Any]) -> set[str]:
    """The fields of the recorded causes, as far as they are in the object: names of maps' keys, sides and structs go."""
    found = set()
    for _, field, _ in case["causes"]:
        plain = re.sub(r"\[([^\[\]]*[^\[\]\d][^\[\]]*)\]", r".\1", field)
        for said, own in _OWN.items():
            plain = re.sub(said, own, plain)
        found.add(plain)
    return found


def same_part(one: str, other: str) -> bool:
    """Whether one path is the other's, or leads to it."""
    shorter, longer = sorted((re.sub(r"\[\d+\]", "", one).lower(), re.sub(r"\[\d+\]", "", other).lower()), key=len)
    return longer.startswith(shorter)


@pytest.mark.parametrize("case", REFUSED, ids=named)
def test_what_kube_apiserver_refuses_is_refused_at_its_field(case: dict[str, Any], tmp_path: Path) -> None:
    if any(json.dumps(case["set"]).startswith(part) for part in DIFFERENT):
        pytest.skip("judged otherwise")
    found = problems(case, tmp_path)
    assert found, case.get("causes", case.get("message"))
    if case["status"] == 422 and case["of"] not in CUSTOM:
        wanted = fields_of(case)
        for field, message in found:
            assert any(same_part(field, one) for one in wanted), (field, message, wanted)


@pytest.mark.parametrize("case", TAKEN, ids=named)
def test_what_kube_apiserver_takes_is_taken(case: dict[str, Any], tmp_path: Path) -> None:
    assert problems({**case, "status": 201}, tmp_path) == []


def test_there_are_many() -> None:
    assert len(REFUSED) + len(TAKEN) >= 300
    assert sum(any(json.dumps(one["set"]).startswith(part) for part in DIFFERENT) for one in REFUSED) <= 10
