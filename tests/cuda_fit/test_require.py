"""NVIDIA_REQUIRE_* expressions: grammar, three-valued answers, and a naive evaluator as the oracle."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_requirements import holds

from deep_seeds import examples
from tonnage.cuda_fit import host, require
from tonnage.cuda_fit.host import Host
from tonnage.errors import InputError
from tonnage.facts import cuda as facts

BRANDS = ("tesla", "nvidia", "geforce", "unknown")
CUDA = ("11.4", "12.0", "12.4", "13")
DRIVERS = ("470.57.02", "525.60.13", "535", "550.54.14", "550.54.15")
ARCHS = ("7.0", "8.0", "9.0", "10.3")

versions = st.sampled_from(
    ("0", "7", "8.0", "9", "11.4", "12", "12.4", "12.4.0", "13.0", "470", "535.0", "550.54", "551")
)
signs = st.sampled_from(("=", "!=", "<", "<=", ">", ">="))
rules = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from(("cuda", "driver", "arch")), signs, versions),
    st.builds("brand{}{}".format, st.sampled_from(("=", "!=")), st.sampled_from(BRANDS)),
    st.just(""),
)
expressions = st.lists(st.lists(rules, max_size=4).map(",".join), max_size=5).map(" ".join)


def node(cuda: str = "", driver: str = "", arch: str = "", brands: tuple[str, ...] = ()) -> Host:
    read = [facts.parse_version(text) if text else None for text in (driver, cuda, arch)]
    return Host(read[0], read[1], read[2], brands=frozenset(brands))


@given(expressions, st.sampled_from(CUDA), st.sampled_from(DRIVERS), st.sampled_from(ARCHS), st.sampled_from(BRANDS))
@settings(max_examples=examples(600), deadline=None)
def test_on_a_node_that_is_known_the_answer_is_the_naive_one(
    expression: str, cuda: str, driver: str, arch: str, brand: str
) -> None:
    found = require.evaluate(expression, node(cuda, driver, arch, (brand,)))
    assert found == require.RequirementResult(holds(expression, cuda, driver, arch, brand))


@given(
    expressions,
    st.sampled_from((*CUDA, "")),
    st.sampled_from((*DRIVERS, "")),
    st.sampled_from((*ARCHS, "")),
    st.lists(st.sampled_from(BRANDS), max_size=3, unique=True).map(tuple),
)
@settings(max_examples=examples(400), deadline=None)
def test_an_answer_about_a_node_that_is_half_known_holds_whatever_the_rest_is(
    expression: str, cuda: str, driver: str, arch: str, brands: tuple[str, ...]
) -> None:
    answers = {
        holds(expression, *completed)
        for completed in itertools.product(
            (cuda,) if cuda else CUDA,
            (driver,) if driver else DRIVERS,
            (arch,) if arch else ARCHS,
            brands or BRANDS,
        )
    }
    found = require.evaluate(expression, node(cuda, driver, arch, brands)).holds
    assert found is None or answers == {found}


@given(expressions, st.sampled_from(CUDA), st.sampled_from(DRIVERS), st.lists(st.sampled_from(BRANDS), min_size=1))
@settings(max_examples=examples(200), deadline=None)
def test_brands_that_agree_about_an_expression_give_an_answer(
    expression: str, cuda: str, driver: str, brands: list[str]
) -> None:
    answers = {holds(expression, cuda, driver, "9.0", brand) for brand in brands}
    found = require.evaluate(expression, node(cuda, driver, "9.0", tuple(brands))).holds
    assert found is (answers.pop() if len(answers) == 1 else None)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("", True),
        ("cuda>=12.2", True),
        ("cuda>=12.4", False),
        ("cuda>=12.4 driver>=535", True),
        ("cuda>=12.2,driver<535", False),
        ("driver<=535", False),  # 535.161.08 is later than 535
        ("driver>=535,driver<536", True),
        ("CUDA>=12.2,Brand=NVIDIA", True),
        ("brand!=tesla", True),
        ("arch>=9,arch<9.1", True),
        ("arch=9.0.0", True),
        ("cuda=12.02", True),
        ("cuda>=12..2.", True),
        ("cuda!12.4", True),
        (", cuda>=99", True),  # commas alone end the reading with the answer so far
        ("cuda>=99 ,", False),
        ("cuda>=12.2 nonsense", True),  # not read so far
    ],
)
def test_an_h100_with_535_161_08_satisfies(expression: str, expected: bool) -> None:
    known = node("12.2", "535.161.08", "9.0", ("nvidia",))
    assert require.evaluate(expression, known).holds is expected


@pytest.mark.parametrize("rule", ["cuda>=12..4", "cuda>=12.4.", "driver<535..1"])
def test_a_version_with_a_point_too_many_is_refused_where_it_is_typed(rule: str) -> None:
    with pytest.raises(InputError, match="is not a version"):
        require.parse_strictly(rule, "WHAT")
    assert not require.parse(rule)[0][0].problem  # a container with it starts


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("foo=1", "no key 'foo'"),
        ("cuda", "expected a key, an operator and a value"),
        (">=12", "expected a key"),
        ("cuda>=", "expected a key"),
        ("cuda==12", "no operator '=='"),
        ("cuda=>12", "no operator '=>'"),
        ("cuda>=12.x", "is not a version"),
        ("cuda>=.5", "is not a version"),
        ("brand>tesla", "equal (=) or not (!=) only"),
    ],
)
def test_a_faulty_condition_is_told_apart_from_one_that_does_not_hold(rule: str, said: str) -> None:
    found = require.evaluate(f"cuda>=99 {rule}", node("12.2", "535"))
    assert found.holds is False
    assert found.invalid is not None
    assert said in found.invalid.problem
    with pytest.raises(InputError) as error:
        require.parse_strictly(f"cuda>=12 {rule}", "WHAT")
    assert rule in str(error.value)
    assert "WHAT" in str(error.value)


def test_whether_a_faulty_condition_is_reached_can_be_unknown() -> None:
    assert require.evaluate("cuda>=12 foo=1", node()) == require.RequirementResult(None)
    assert require.evaluate("cuda>=12,foo=1", node()) == require.RequirementResult(None)


def test_a_driver_newer_than_the_tables_runs_what_the_newest_known_driver_runs() -> None:
    newer = host.of(f"{facts.newest_branch() + 20}.10")
    assert newer.cuda is None
    assert require.evaluate("cuda>=12.8", newer).holds is True
    assert require.evaluate("cuda<12.8", newer).holds is False
    assert require.evaluate("cuda>=99", newer).holds is None
