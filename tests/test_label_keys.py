"""A key of a label, an annotation, a taint or a resource stands once in the source: what several modules read or write
in `facts/labels.py`, what one alone knows in that one."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping

import pytest

from docs_outputs import REPOSITORY
from tonnage.facts import labels

KEY = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\.[a-z]{2,}/[A-Za-z0-9_./-]*")
"""A domain and a name, or a domain and what names begin with."""
VERSION = re.compile(r"[^/]+/(.*/)?v\d+((alpha|beta)\d+)?")
"""Of an API, and of our own results."""

KEPT = {
    "nvidia.com/gpu": {
        "node/cdi.py": "the kind of CDI devices of NVIDIA's toolkit, which has the name of the resource",
        "cli/agent_labels.py": "the default of an option, which is read without what the command does",
    },
}
"""Keys that are written again, where, and why."""


def literals(text: str) -> Iterator[tuple[int, str]]:
    """Line and value of every text that is no docstring."""
    tree = ast.parse(text)
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def repeated(files: Mapping[str, str], known: Container[str]) -> dict[str, list[str]]:
    """Keys that stand in several places → the places. ``known``: keys that need no domain."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, text in sorted(files.items()):
        for line, value in literals(text):
            is_key = value in known or (KEY.fullmatch(value) and not VERSION.fullmatch(value))
            if is_key and file not in KEPT.get(value, ()):
                places[value].append(f"{file}:{line}")
    return {key: found for key, found in places.items() if len(found) > 1}


@pytest.fixture(scope="module")
def ours() -> dict[str, str]:
    root = REPOSITORY / "src" / "tonnage"
    return {str(path.relative_to(root)): path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}


@pytest.mark.fuzz
def test_a_key_stands_once_in_the_source(ours: dict[str, str]) -> None:
    well_known = {value for name, value in vars(labels).items() if name.isupper()}
    assert repeated(ours, well_known) == {}, "name it in facts/labels.py, or import it from where it stands"


def test_what_is_kept_apart_is_still_written_there(ours: dict[str, str]) -> None:
    stands = {
        (key, file)
        for key, files in KEPT.items()
        for file in files
        if key in dict.fromkeys(v for _, v in literals(ours[file]))
    }
    assert stands == {(key, file) for key, files in KEPT.items() for file in files}


def test_the_default_kind_of_cdi_devices_is_that_of_the_node() -> None:
    from tonnage.cli import agent_labels
    from tonnage.node import cdi

    (kind,) = [one.default for one in agent_labels.cdi.params if one.name == "kind"]
    assert kind == cdi.KIND == labels.GPU


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ('A = "topology.kubernetes.io/zone"', 'x = labels.get("topology.kubernetes.io/zone")', True),
        ('A = "karpenter.k8s.aws/instance-"', 'x = f"karpenter.k8s.aws/instance-{name}"', True),
        ('A = "job-name"', 'x = labels["job-name"]', True),
        ('A = "karpenter.sh/v1"', 'B = "karpenter.sh/v1"', False),
        ('A = "topology.kubernetes.io/zone"', 'x = "no topology.kubernetes.io/zone there"', False),
        ('A = "topology.kubernetes.io/zone"', '"""topology.kubernetes.io/zone"""', False),
        ('A = "linux/amd64"', 'B = "linux/amd64"', False),
    ],
)
def test_a_key_is_seen_wherever_it_is_written(one: str, other: str, found: bool) -> None:
    assert bool(repeated({"a.py": one, "b.py": other}, {"job-name"})) is found
