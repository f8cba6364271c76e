"""No rule stands in two rooms: no run of ten lines does that differs in names alone, but for those with a reason."""

from __future__ import annotations

import pytest

from docs_outputs import REPOSITORY
from like_lines import RUN, between_rooms, sources

ONE_PORT = "the signature of `Transport.request`, which each of them implements"
LISTS = "lists of kinds of objects: which are served, and which the controllers watch"
KEPT = {
    ("apiserver/controllers/loop.py", "kube/resources.py"): LISTS,
    ("apiserver/inprocess.py", "hollow/lockstep.py"): ONE_PORT,
    ("apiserver/inprocess.py", "kube/http.py"): ONE_PORT,
    ("apiserver/inprocess.py", "kube/transport.py"): ONE_PORT,
    ("hollow/lockstep.py", "kube/http.py"): ONE_PORT,
    ("hollow/lockstep.py", "kube/transport.py"): ONE_PORT,
}
"""Pairs of files with like runs, and why these stay."""


@pytest.mark.fuzz
def test_no_run_of_like_lines_stands_in_two_rooms() -> None:
    found = between_rooms(sources(REPOSITORY / "src" / "tonnage"))
    strangers = [f"{one} ~ {other}" for one, other in found if (one.file, other.file) not in KEPT]
    assert not strangers, "write it once and ask for it, or list the pair in KEPT with its reason"
    assert {(one.file, other.file) for one, other in found} == set(KEPT), "what is no longer alike is no longer listed"


RULE = """
def free(node, pods):
    left = dict(node.allocatable)
    for pod in pods:
        if pod.phase in ("Succeeded", "Failed"):
            continue
        for name, amount in pod.requests.items():
            left[name] = left.get(name, 0) - amount
        if pod.daemon:
            left["pods"] -= 1
    return left
"""
RENAMED = RULE.replace("node", "machine").replace("pods:", "there:").replace("pods)", "there)").replace("amount", "n")


def _found(one: str, other: str) -> list[str]:
    files = {"fleet/a.py": one, "scaling/b.py": other, "scaling/c.py": "import os"}
    return [f"{here} ~ {there}" for here, there in between_rooms(files)]


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (RULE, True),
        (RENAMED, True),
        (f'"""Of its own."""\nimport os\n{RULE}', True),
        (RULE.replace("    left = ", "    # what is there\n    left = "), True),
        (RULE.replace("amount\n", "2 * amount\n"), False),
        (RULE.replace("daemon", "mirror"), False),
        (RULE.replace("Failed", "Lost"), False),
        (RULE.replace("node.allocatable", "pods.allocatable"), False),
        (RULE.replace("    return left\n", ""), False),
    ],
    ids=[
        "same",
        "renamed",
        "documented",
        "commented",
        "other sum",
        "other field",
        "other text",
        "other name",
        "shorter",
    ],
)
def test_lines_are_alike_that_differ_in_names_alone(other: str, alike: bool) -> None:
    assert len([line for line in RULE.splitlines() if line]) == RUN
    assert bool(_found(RULE, other)) == alike


def test_a_longer_run_is_said_once_and_within_a_room_nothing_is() -> None:
    longer = RULE + "def all_free(nodes, pods):\n    return [free(node, pods.on(node)) for node in nodes]\n"
    (only,) = _found(longer, longer)
    assert only == f"fleet/a.py:2-{RUN + 3} ~ scaling/b.py:2-{RUN + 3}"
    assert between_rooms({"fleet/a.py": RULE, "fleet/b.py": RULE}) == []


def test_lists_of_fields_and_imports_are_not_lines_of_a_rule() -> None:
    fields = "class A:\n" + "".join(f"    field_{n}: int\n" for n in range(20))
    imports = "".join(f"from module import name_{n}\n" for n in range(20))
    assert _found(fields, fields) == _found(imports, imports) == []
