"""The HPA's replica calculator beside the controller's own, linked into a small program (e2e/modules/calculator)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import sampling
from calculator_rows import KINDS, Row, ours, row, theirs

from e2e.build import Built

ROWS = 20_000
SAMPLED = 2_000
KNOWN_DIFFERENCES: dict[str, str] = {}
"""Kind of case → what differs and why. A case of a kind that stands here need not agree; none does so far."""

MEANINGS = (
    "no metrics returned from resource metrics API",
    "no metrics returned from custom metrics API",
    "no metrics returned from external metrics API",
    "no pods returned by selector",
    "did not receive metrics for targeted pods",
    "no metrics returned matched known pods",
    "missing pod-level request",
    "missing request",
    "not found in Pod",
)


def meaning(error: str) -> str:
    """The kind of an error. Which of several pods it names is a matter of chance on the controller's side."""
    if not error:
        return ""
    found = [one for one in MEANINGS if one in error]
    assert found, error
    return found[0]


def agree(case: Row, answer: dict[str, Any]) -> bool:
    found = ours(case)
    problem, expected = meaning(found.error), meaning(answer["error"])
    if "request" in problem or "not found" in problem:  # several pods may be to blame, each for a reason of its own
        return "request" in expected or "not found" in expected
    utilization = found.utilization if case["kind"] == "resource" else None
    same = (found.replicas, utilization or 0, found.milli) == (
        answer["replicas"],
        answer["utilization"] or 0,
        answer["milli"],
    )
    return same and problem == expected


def test_counts_are_those_of_the_controllers_own_calculator(programs: Built) -> None:
    draw = random.Random(0) if sampling.LONG else sampling.draw("replica calculator")
    cases = [row(draw) for _ in range(sampling.often("replica calculator rows", ROWS, SAMPLED))]
    answers = theirs(programs.program("replica-calculator"), cases)
    assert len(answers) == len(cases)
    different = [
        (case, ours(case), answer)
        for case, answer in zip(cases, answers, strict=True)
        if case["kind"] not in KNOWN_DIFFERENCES and not agree(case, answer)
    ]
    assert not different, f"{len(different)} of {len(cases)} differ, the first: {different[0]}"
    counted = Counter(case["kind"] for case, answer in zip(cases, answers, strict=True) if not answer["error"])
    assert min(counted[kind] for kind in KINDS) > len(cases) // 30, counted


def test_a_known_difference_is_still_one(programs: Built) -> None:
    """What stands on the list and agrees by now is taken off it."""
    draw = random.Random(1)
    cases = [row(draw) for _ in range(SAMPLED)]
    answers = theirs(programs.program("replica-calculator"), cases)
    differing = {case["kind"] for case, answer in zip(cases, answers, strict=True) if not agree(case, answer)}
    assert differing == set(KNOWN_DIFFERENCES)
