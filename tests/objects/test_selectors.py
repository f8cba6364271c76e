from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.objects import selectors
from tonnage.objects.core import LabelSelector, PodSpec, Taint, Toleration

LABELS = {"app": "a", "gpus": "8", "empty": "", "word": "x8"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({}, True),
        ({"matchLabels": {"app": "a"}}, True),
        ({"matchLabels": {"app": "b"}}, False),
        ({"matchLabels": {"app": "a", "tier": ""}}, False),
        ({"matchLabels": {"empty": ""}}, True),
        ({"matchExpressions": [expression("app", "In", "b", "a")]}, True),
        ({"matchExpressions": [expression("absent", "In", "a")]}, False),
        ({"matchExpressions": [expression("absent", "In", "")]}, False),
        ({"matchExpressions": [expression("app", "NotIn", "b")]}, True),
        ({"matchExpressions": [expression("app", "NotIn", "a")]}, False),
        ({"matchExpressions": [expression("absent", "NotIn", "a")]}, True),
        ({"matchExpressions": [expression("app", "Exists")]}, True),
        ({"matchExpressions": [expression("absent", "Exists")]}, False),
        ({"matchExpressions": [expression("absent", "DoesNotExist")]}, True),
        ({"matchExpressions": [expression("empty", "DoesNotExist")]}, False),
        ({"matchLabels": {"app": "a"}, "matchExpressions": [expression("app", "NotIn", "a")]}, False),
    ],
)
def test_a_label_selector_wants_all_its_parts(selector: dict[str, Any], expected: bool) -> None:
    assert selectors.matches(msgspec.convert(selector, LabelSelector), LABELS) is expected


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.matches(None, LABELS)
    assert selectors.matches(LabelSelector(), LABELS)
    assert selectors.matches(LabelSelector(), {})


def pod(*terms: dict[str, Any] | None, node_selector: dict[str, str] | None = None) -> PodSpec:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    spec: dict[str, Any] = {"containers": [], "nodeSelector": node_selector or {}}
    if terms:
        spec["affinity"] = {"nodeAffinity": required}
    return msgspec.convert(spec, PodSpec)


def wants(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


def named(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [expression("metadata.name", operator, *values)]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pod(), True),
        (pod(node_selector={"app": "a"}), True),
        (pod(node_selector={"app": "b"}), False),
        (pod(wants(expression("app", "In", "a"))), True),
        (pod(wants(expression("app", "In", "b")), wants(expression("app", "In", "a"))), True),
        (pod(wants(expression("app", "In", "a"), expression("gpus", "In", "4"))), False),
        (pod(wants(expression("app", "In", "a")), node_selector={"app": "b"}), False),
        (pod({}), False),
        (pod({}, wants(expression("app", "Exists"))), True),
        (pod(named("In", "node-1")), True),
        (pod(named("In", "node-2")), False),
        (pod(named("NotIn", "node-1")), False),
        (pod(named("In", "node-1") | wants(expression("app", "In", "b"))), False),
        (pod(wants(expression("gpus", "Gt", "4"))), True),
        (pod(wants(expression("gpus", "Gt", "8"))), False),
        (pod(wants(expression("gpus", "Lt", "10"))), True),
        (pod(wants(expression("gpus", "Lt", "8"))), False),
        (pod(wants(expression("word", "Gt", "4"))), False),
        (pod(wants(expression("absent", "Lt", "4"))), False),
        (pod(wants(expression("gpus", "Gt", "4.5"))), False),
        (pod(wants(expression("gpus", "Gt", "1_0"))), False),
        (pod(wants(expression("gpus", "Gt", "4", "5"))), False),
        (pod(wants(expression("gpus", "Near", "8"))), False),
    ],
)
def test_a_node_must_pass_node_selector_and_one_term(spec: PodSpec, expected: bool) -> None:
    assert selectors.node_selector_matches(spec, LABELS, "node-1") is expected


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        ({"operator": "Exists"}, ("any", "thing", "NoExecute"), True),
        ({"operator": "Exists", "effect": "NoSchedule"}, ("any", "", "NoExecute"), False),
        ({"key": "gpu", "operator": "Exists"}, ("gpu", "x", "NoSchedule"), True),
        ({"key": "gpu", "operator": "Exists"}, ("cpu", "x", "NoSchedule"), False),
        ({"key": "gpu", "value": "x"}, ("gpu", "x", "NoSchedule"), True),
        ({"key": "gpu", "operator": "", "value": "x"}, ("gpu", "x", "NoSchedule"), True),
        ({"key": "gpu", "operator": "Equal", "value": "x"}, ("gpu", "y", "NoSchedule"), False),
        ({"key": "gpu", "operator": "Equal"}, ("gpu", "", "NoSchedule"), True),
        ({"key": "gpu", "value": "x", "effect": "NoSchedule"}, ("gpu", "x", "PreferNoSchedule"), False),
        ({"key": "gpu", "operator": "Near", "value": "x"}, ("gpu", "x", "NoSchedule"), False),
    ],
)
def test_a_toleration_covers_a_taint_by_key_value_and_effect(
    toleration: dict[str, str], taint: tuple[str, str, str], expected: bool
) -> None:
    key, value, effect = taint
    given_ = [msgspec.convert(toleration, Toleration)]
    assert selectors.tolerates(given_, Taint(key=key, value=value, effect=effect)) is expected


def test_the_first_taint_of_the_asked_effects_that_nothing_tolerates_is_found() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    gpu = Taint(key="nvidia.com/gpu", value="true", effect="NoSchedule")
    spot = Taint(key="spot", effect="NoSchedule")
    hard = ("NoSchedule", "NoExecute")
    tolerated = [Toleration(key="nvidia.com/gpu", operator="Exists")]
    assert selectors.untolerated([soft, gpu, spot], [], hard) == gpu
    assert selectors.untolerated([soft, gpu, spot], tolerated, hard) == spot
    assert selectors.untolerated([soft, gpu], tolerated, hard) is None
    assert selectors.untolerated([soft, gpu], tolerated, ["PreferNoSchedule"]) == soft


@given(
    st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz")),
    st.sampled_from("abc"),
    st.lists(st.sampled_from("xyz"), min_size=1),
)
def test_in_and_not_in_are_each_others_contrary(labels: dict[str, str], key: str, values: list[str]) -> None:
    inside, outside = (
        msgspec.convert(wants(expression(key, operator, *values)), LabelSelector) for operator in ("In", "NotIn")
    )
    assert selectors.matches(inside, labels) is not selectors.matches(outside, labels)
