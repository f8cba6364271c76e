"""Expressions on devices, with the results, errors and costs that Kubernetes 1.36 gives."""

from __future__ import annotations

from typing import Any

import pytest

from tonnage.cel.device import Device, compile_selector
from tonnage.cel.failures import CompileError, CostExceeded, EvaluationError
from tonnage.cel.values import Semver

FULL = Device(
    "d.example.com",
    {"model": "A100-40", "index": 3, "ok": True, "ver": Semver.parse("1.2.3"), "other.com/x": "y"},
    {"memory": "40Gi", "cores": "1500m"},
    allow_multiple_allocations=True,
)
BARE = Device("e.example.com")
D = 'device.attributes["d.example.com"]'
C = 'device.capacity["d.example.com"]'
CASES = [
    ("true", True, 0),
    ('device.driver == "d.example.com"', True, 4),
    (f'{D}.model == "A100-40"', True, 5),
    (f'{D}.model.lowerAscii().matches("^a.*")', True, 6),
    (f"has({D}.missing)", False, 3),
    (f'"model" in {D}', True, 4),
    (f"{D}.ok", True, 4),
    (f"{D}.index > 2.5", True, 5),
    (f'{D}.ver.isGreaterThan(semver("1.2.0"))', True, 6),
    (f'{D}.ver != "1.2.3"', True, 5),
    (f'{D}.model in ["A100-40", "b"]', True, 4),
    (f'{C}.memory.compareTo(quantity("40Gi")) >= 0', True, 7),
    (f'{C}.memory == quantity("40960Mi")', True, 6),
    (f"{C}.cores.isInteger()", False, 5),
    ("device.allowMultipleAllocations", True, 2),
    (f'cel.bind(a, {D}, a.ok && a.model == "A100-40")', True, 8),
    (f"cel.bind(a, {D}.missing, true)", True, 0),
    (f'{D}.?missing.orValue("none") == "none"', True, 4),
    (f"{D}.exists_one(k, k == 'ok')", True, 15),
    (f"{D}.map(k, k.upperAscii()).size() == 4", True, 62),
    (f"{D}.transformMap(k, v, 1).size() == 4", True, 18),
    ("1/0 == 1 || true", True, 2),
    ("false && 1/0 == 1", False, 0),
    ("1/0 == 1 && false", False, 2),
    ("[3,1,2].sort() == [1,2,3]", True, 30),
    ('"a,b,c".split(",").join("-") == "a-b-c"', True, 3),
    ('semver("v1.2", true).major() == 1', True, 3),
    ("1.0 == dyn(1)", True, 1),
    ("9223372036854775807 > 0 && -9223372036854775808 < 0", True, 2),
    (f"{D}.index.includes(3)", True, 5),
    ('timestamp("2024-01-01T00:00:00Z") + duration("1h") == timestamp("2024-01-01T01:00:00Z")', True, 2),
    ('device.attributes["x"].exists(k, true)', False, 4),
]


@pytest.mark.parametrize(("text", "expected", "cost"), CASES, ids=[text for text, _, _ in CASES])
def test_a_selector_gives_what_kubernetes_gives(text: str, expected: bool, cost: int) -> None:
    selector = compile_selector(text)
    assert selector.selects(FULL) is expected
    assert selector.evaluate(FULL) == (expected, cost)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f'{D}.missing == "x"', "no such key"),
        (f"{D}.index", "result is no bool"),
        (f'{D}.ver == "1.2.3"', "no such overload"),
        (f"{D}.index / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "overflow"),
        ("[1,2][5] == 1", "index out of bounds"),
        (f"{C}.cores.asInteger() == 1", "conversion"),
        ("'abc'.substring(5) == ''", "out of range"),
        (f"{D}.model.matches({D}.model + '(')", "invalid regular expression"),
        (f"{D}.model && true", "no such overload"),
        (f'{D}.ver in ["1.2.3"]', "internal error"),
    ],
)
def test_an_error_is_not_no_match(text: str, kind: str) -> None:
    selector = compile_selector(text)
    with pytest.raises(EvaluationError) as plain:
        selector.selects(FULL)
    with pytest.raises(EvaluationError) as counted:
        selector.evaluate(FULL)
    assert plain.value.kind == counted.value.kind == kind


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("foo", "undeclared reference", (1, 1)),
        ("true &&\n  foo()", "undeclared reference", (2, 3)),
        ("device.foo", "undefined field", (1, 7)),
        ("device", "result type", (1, 1)),
        ('1 + "a" == 2', "no matching overload", (1, 3)),
        ('[1, "a"].size() == 2', "type mismatch", (1, 5)),
        ('int("x") == 1', "invalid argument", (1, 1)),
        ('"a".matches("(?=b)")', "invalid argument", (1, 5)),
        ("dyn(2)[[1]] == 1", "invalid argument", (1, 7)),
        ("1 == 1u", "no matching overload", (1, 3)),
        ("true &&", "syntax", (1, 8)),
        ("'a", "syntax", (1, 1)),
        ("has(1)", "macro", (1, 5)),
        ('isURL("x")', "unsupported function", (1, 1)),
        ("(" * 100 + "true" + ")" * 100, "nesting", (1, 65)),
        ("true || " * 2000 + "true", "too long", (1, 1)),
    ],
)
def test_what_kubernetes_would_not_store_is_refused_with_its_place(
    text: str, kind: str, place: tuple[int, int]
) -> None:
    with pytest.raises(CompileError) as refused:
        compile_selector(text)
    assert (refused.value.kind, (refused.value.line, refused.value.column)) == (kind, place)
    assert refused.value.exit_code == 2


def test_a_domain_that_is_not_there_is_an_empty_map() -> None:
    assert compile_selector('device.attributes["nowhere"].size() == 0').selects(BARE)
    assert compile_selector('cel.bind(all, device.attributes, !("x" in all["nowhere"]))').selects(BARE)
    assert not compile_selector('"nowhere" in device.attributes').selects(BARE)


def test_names_without_a_domain_are_the_drivers_own() -> None:
    selector = compile_selector('device.attributes["d"].a == 1 && device.attributes["e"].a == 2')
    assert selector.matches("d", {"a": 1, "e/a": 2})
    assert not selector.matches("d", {"d/a": 1, "e/a": 3})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dyn(9223372036854775807) < dyn(9223372036854775808.0)", False),
        ("dyn(9223372036854775807) == dyn(9223372036854775808.0)", True),
        ("dyn(9007199254740993u) == dyn(9007199254740992.0)", True),
        ("dyn(9223372036854775807) < dyn(9223372036854775807u)", False),
        ("dyn(9223372036854775807) == dyn(9223372036854775806)", False),
        ("dyn(9007199254740992.0) in [9007199254740993]", True),
        ("dyn(9007199254740993) in [9007199254740992.0]", False),
        ("dyn(1e30) > dyn(9223372036854775807)", True),
    ],
)
def test_an_integer_beside_a_double_counts_as_a_double(text: str, expected: bool) -> None:
    assert compile_selector(text).selects(BARE) is expected


PASSED_ON = f'{D}["at"].orValue'


@pytest.mark.parametrize(
    ("text", "at", "expected"),
    [
        (f'{PASSED_ON}("a").startsWith("3")', "3", True),
        (f'{PASSED_ON}("a").startsWith("3")', 3, None),
        (f"{PASSED_ON}(40) == 3", "3", False),
        (f"{PASSED_ON}(40) == 3", Semver.parse("1.2.3"), None),
        (f'"x y" < string({PASSED_ON}(40))', [1, 2], None),
        (f"double({PASSED_ON}(40)) == 3.0", "3", None),
        (f"{PASSED_ON}(40) + 1 == 4", True, None),
        (f"{PASSED_ON}(40) + 1 == 4", 3, True),
        (f"!{PASSED_ON}(true)", 3, None),
        (f'{PASSED_ON}(semver("1.2.3")).major() == 1', 3, None),
        (f'size({PASSED_ON}("a")) == 2', [1, 2], True),
        (f'size({PASSED_ON}("a")) == 2', 3, None),
        (f"{PASSED_ON}([1]).exists(i, i == 1)", [1, 2], True),
    ],
)
def test_what_is_no_optional_is_passed_on_by_orvalue_whatever_its_type(
    text: str, at: Any, expected: bool | None
) -> None:
    """None: there is no such overload for a value of this type."""
    selector = compile_selector(text, list_attributes=True)
    device = Device("d.example.com", {"at": at})
    if expected is None:
        with pytest.raises(EvaluationError, match="no such overload"):
            selector.selects(device)
    else:
        assert selector.selects(device) is expected


def test_lists_are_looked_into_where_the_feature_is_on() -> None:
    text = 'device.attributes["d"].links.exists(l, l == "nvlink") && device.attributes["d"].links.includes("nvlink")'
    selector = compile_selector(text, list_attributes=True)
    assert selector.matches("d", {"links": ("pcie", "nvlink")})
    assert not selector.matches("d", {"links": ["pcie"]})
    includes = compile_selector('device.attributes["d"].links.includes("nvlink")', list_attributes=True)
    with pytest.raises(EvaluationError):
        includes.matches("d", {"links": [f"link {i}" for i in range(49)]})


def test_an_evaluation_that_costs_too_much_is_stopped() -> None:
    text = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"
    with pytest.raises(CostExceeded):
        compile_selector(text).selects(BARE)
    long = "'" + "a" * 4900 + "'"
    with pytest.raises(CostExceeded):
        compile_selector(f"cel.bind(x, {long}, x.matches({long}) && x.matches(x))").selects(BARE)
    assert compile_selector("lists.range(100).all(x, lists.range(100).all(y, x + y >= 0))").selects(BARE)


def test_long_chains_and_deep_loops_compile() -> None:
    chain = " || ".join(f'device.driver == "{i}"' for i in range(300))
    assert not compile_selector(chain).selects(BARE)
    nested = "x > 0"
    for _ in range(6):
        nested = f"[1].all(x, {nested})"
    assert compile_selector(nested).selects(BARE)
