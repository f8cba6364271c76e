"""What the embedded API refuses: the causes and words of kube-apiserver v1.36.3, recorded from it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from look_checks import base, named, put, recorded, resource_of

from tonnage.apiserver import defaults

ALONE = recorded("alone.jsonl")
"""What is refused for what stands beside it: not to be joined with other changes."""
BAD = [case for case in (*recorded("refusals.jsonl"), *ALONE) if case["status"] == 422]
UNREADABLE = [case for case in recorded("refusals.jsonl") if case["status"] == 400]
UPDATES = recorded("update_refusals.jsonl")
BEFORE: dict[str, dict[str, Any]] = {"configmap": {"immutable": True}, "node": {"spec.providerID": "a"}}
"""What stood in the object that an update changes, where the base says nothing."""
BY_OWN_WORDS = {"nodepool", "ec2nodeclass"}
"""Kinds whose rules in CEL are refused in words of ours."""


def causes(case: dict[str, Any], old: dict[str, Any] | None = None) -> list[list[str]]:
    obj = base(case["of"], case["set"])
    defaults.apply_defaults(resource_of(obj), obj)
    return [
        [cause.reason, cause.field, cause.message.partition("\n")[0]]
        for cause in defaults.invalid(resource_of(obj), obj, old)
    ]


def in_own_words(case: dict[str, Any]) -> bool:
    """Whether kube-apiserver's answer came from a CEL rule: it says neither what the schema says nor <nil>."""
    return case["of"] in BY_OWN_WORDS and any(
        " in body " not in message and reason == "FieldValueInvalid" and field != "<nil>"
        for reason, field, message in case["causes"]
    )


@pytest.mark.parametrize("case", [case for case in BAD if not in_own_words(case)], ids=named)
def test_a_bad_object_is_refused_with_the_causes_of_kube_apiserver(case: dict[str, Any]) -> None:
    assert causes(case) == case["causes"]


@pytest.mark.parametrize("case", [case for case in BAD if in_own_words(case)], ids=named)
def test_what_a_crd_refuses_by_an_expression_is_refused_too(case: dict[str, Any]) -> None:
    found = causes(case)
    assert found
    assert all(field.startswith(("spec", "<nil>")) for _, field, _ in found)


@pytest.mark.parametrize("case", recorded("accepted.jsonl"), ids=named)
def test_what_kube_apiserver_takes_is_taken(case: dict[str, Any]) -> None:
    assert causes(case) == []


@pytest.mark.parametrize("case", UNREADABLE, ids=named)
def test_what_cannot_be_decoded_is_said_in_the_words_of_kube_apiserver(case: dict[str, Any]) -> None:
    obj = base(case["of"], case["set"])
    resource = resource_of(obj)
    unknown = defaults.unknown_fields(resource, obj)
    said = defaults.wrong_type(resource, obj) or f"strict decoding error: {', '.join(unknown)}"
    kind, version = obj["kind"], obj["apiVersion"].rpartition("/")[2]
    assert f'{kind} in version "{version}" cannot be handled as a {kind}: {said}' == case["message"]


@pytest.mark.parametrize("case", UPDATES, ids=named)
def test_an_update_may_not_change_what_is_immutable(case: dict[str, Any]) -> None:
    old = base(case["of"], BEFORE.get(case["of"]))
    defaults.apply_defaults(resource_of(old), old)
    new = copy.deepcopy(old)
    for path, value in case["set"].items():
        put(new, path, value)
    defaults.apply_defaults(resource_of(new), new)
    found = [
        [cause.reason, cause.field, cause.message.partition("\n")[0]]
        for cause in defaults.invalid(resource_of(new), new, old)
    ]
    assert found == case["causes"]


@pytest.mark.parametrize("name", ["pod", "deployment", "service", "hpa", "nodepool", "scaledobject", "event"])
def test_a_good_object_is_not_refused(name: str) -> None:
    obj = base(name)
    defaults.apply_defaults(resource_of(obj), obj)
    assert defaults.invalid(resource_of(obj), obj) == []
    assert defaults.unknown_fields(resource_of(obj), obj) == []
    assert defaults.wrong_type(resource_of(obj), obj) == ""


def test_pruning_removes_what_the_kind_does_not_have_and_says_so() -> None:
    obj = base("pod", {"spec.foo": 1, "spec.containers.0.imge": "x"})
    said = defaults.prune(resource_of(obj), obj)
    assert said == ['unknown field "spec.containers[0].imge"', 'unknown field "spec.foo"']
    assert obj == base("pod")
