"""The number behind a priorityClassName."""

from __future__ import annotations

import pytest

from builders import pod_spec
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta
from tonnage.workloads.priority import Priorities


def priority_class(name: str, value: int, *, default: bool = False) -> core.PriorityClass:
    return core.PriorityClass(
        api_version="scheduling.k8s.io/v1",
        kind="PriorityClass",
        metadata=ObjectMeta(name=name),
        value=value,
        global_default=default,
    )


HIGH, LOW = priority_class("high", 1000), priority_class("low", -5)
DEFAULTS = (priority_class("usual", 7, default=True), priority_class("lesser", 3, default=True))


@pytest.mark.parametrize(
    ("classes", "fields", "expected"),
    [
        ((), {}, 0),
        ((HIGH, LOW), {}, 0),
        ((HIGH, LOW), {"priorityClassName": "high"}, 1000),
        ((HIGH, LOW), {"priorityClassName": "low"}, -5),
        ((HIGH, DEFAULTS[0]), {}, 7),
        ((HIGH, *DEFAULTS), {}, 3),
        ((HIGH, *DEFAULTS), {"priorityClassName": "high"}, 1000),
        ((), {"priorityClassName": "system-cluster-critical"}, 2_000_000_000),
        ((), {"priorityClassName": "system-node-critical"}, 2_000_001_000),
        ((HIGH,), {"priorityClassName": "missing"}, None),
        ((HIGH,), {"priorityClassName": "high", "priority": 5}, 5),
    ],
    ids=str,
)
def test_a_pod_has_the_priority_of_its_class_or_of_the_global_default(
    classes: tuple[core.PriorityClass, ...], fields: dict[str, str], expected: int | None
) -> None:
    assert Priorities(classes).of(pod_spec(**fields)) == expected
