"""`tonnage check` and the embedded API give an object the verdict of kube-apiserver v1.36.3, at the same fields.

A real API server is asked about the same objects by ``differential/test_against_a_real_api.py``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from generated_objects import (
    COUNT,
    EXCEPTIONS,
    MOST_EXCEPTIONS,
    NOT_READ,
    OWN_CRDS,
    SEED,
    Answer,
    Case,
    apart,
    checked,
    depends,
    differs,
    excepted,
    generated,
    recorded_cases,
    served,
)

from deep_seeds import examples
from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess

RECORDED = list(recorded_cases())


@pytest.fixture(scope="module")
def embedded() -> Callable[[Case], Answer]:
    transport = InProcess(Api())
    return lambda case: served(transport, case.obj)


@pytest.fixture
def check(tmp_path: Path) -> Callable[[Case], Answer]:
    return lambda case: checked(case.obj, tmp_path)


def _differences(cases: list[Case], ask: Callable[[Case], Answer]) -> list[str]:
    return [f"{case}: {said}" for case in cases if (said := differs(ask(case), case.answer))]


def test_what_was_recorded_is_judged_so_by_the_embedded_api(embedded: Callable[[Case], Answer]) -> None:
    cases = [case for case in RECORDED if not depends(case) and not excepted("embedded", case)]
    assert _differences(cases, embedded) == []


def test_generated_objects_are_judged_alike_by_check_and_the_embedded_api(
    check: Callable[[Case], Answer], embedded: Callable[[Case], Answer]
) -> None:
    cases = generated(SEED, examples(COUNT))
    there = [case for case in cases if not depends(case) and not excepted("embedded", case)]
    assert _differences(there, embedded) == []
    read = [case for case in cases if case.of not in NOT_READ and not excepted("check", case)]
    assert _differences(read, check) == []


def test_there_are_hundreds_and_half_of_them_are_valid() -> None:
    assert len(RECORDED) >= 400
    many = generated(SEED, COUNT)
    assert len({str(case) for case in many}) == COUNT >= 300
    assert sum(case.answer.status == 201 for case in many) == COUNT // 2
    assert {case.of for case in many} == {case.of for case in RECORDED}


def test_exceptions_are_few_and_each_is_one() -> None:
    found = Counter(key for key in EXCEPTIONS for case in RECORDED if key[1] in str(case))
    assert set(found) == set(EXCEPTIONS), "what nothing matches is no longer listed"
    assert sum(found.values()) == 1 <= MOST_EXCEPTIONS
    assert all(EXCEPTIONS.values())


def test_exceptions_do_differ(check: Callable[[Case], Answer]) -> None:
    assert all(differs(check(case), case.answer) for case in RECORDED if excepted("check", case))


def test_what_is_left_out_is_counted() -> None:
    refused = [case for case in RECORDED if case.answer.status != 201]
    assert Counter(case.of for case in refused if case.of in NOT_READ) == {"lease": 3, "event": 1}
    assert Counter(case.of for case in refused if case.of in OWN_CRDS) == {
        "scaledobject": 14,
        "ec2nodeclass": 8,
        "servicemonitor": 4,
    }
    assert sum(depends(case) for case in refused) == 1


@pytest.mark.parametrize(
    ("answer", "expected", "same"),
    [
        (Answer(201), Answer(201), True),
        (Answer(422, ("spec.a",)), Answer(201), False),
        (Answer(201), Answer(422, ("spec.a",)), False),
        (Answer(422, ("spec.a[0].b",)), Answer(422, ("spec.a[1].b", "spec.c")), True),
        (Answer(422, ("spec.a", "spec.d")), Answer(422, ("spec.a", "spec.c")), False),
        (Answer(422), Answer(422, ("spec.a",)), False),
        (Answer(422, ("spec.x",)), Answer(400), True),
    ],
)
def test_answers_are_the_same_in_verdict_and_fields(answer: Answer, expected: Answer, same: bool) -> None:
    assert (differs(answer, expected) == "") is same


def test_paths_are_apart_that_do_not_lead_to_each_other() -> None:
    assert apart("spec.a", "spec.ab") and apart("spec.a.0", "spec.a.1")
    assert not apart("spec", "spec.a") and not apart("spec.a.b", "spec.a") and not apart("spec.a", "spec.a")
