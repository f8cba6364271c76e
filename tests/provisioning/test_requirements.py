"""The requirement algebra against a brute-force oracle over a small universe of label values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.provisioning.labels import well_known
from tonnage.provisioning.requirements import Requirement, Requirements

# Every value that the strategies below can name, numbers with leading zeros, and one value that nobody names.
NAMED = ["a", "b", "c", "0", "1", "2", "3", "4", "5"]
UNIVERSE: list[str | None] = [
    None,
    *NAMED,
    "6",
    "00",
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "unnamed",
    "-1",
    "1.5",
]

terms = st.one_of(
    st.tuples(st.just("In"), st.lists(st.sampled_from(NAMED), min_size=1, max_size=4)),
    st.tuples(st.just("NotIn"), st.lists(st.sampled_from(NAMED), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["Exists", "DoesNotExist"]), st.just([])),
    st.tuples(st.sampled_from(["Gt", "Gte", "Lte"]), st.integers(0, 5).map(lambda n: [str(n)])),
    st.tuples(st.just("Lt"), st.integers(1, 5).map(lambda n: [str(n)])),
)


def allows(term: tuple[str, list[str]], value: str | None) -> bool:
    """What Kubernetes says of one node affinity expression and a node's label (None: the node lacks it)."""
    operator, values = term
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None or not value.isdigit():
        return False
    number, bound = int(value), int(values[0])
    return {"Gt": number > bound, "Gte": number >= bound, "Lt": number < bound, "Lte": number <= bound}[operator]


def conjunction(parts: list[tuple[str, list[str]]]) -> Requirement:
    result = Requirement.of("key", *parts[0])
    for part in parts[1:]:
        result = result.intersection(Requirement.of("key", *part))
    return result


@given(st.lists(terms, min_size=1, max_size=5))
def test_an_intersection_allows_exactly_the_values_that_every_part_allows(parts: list[tuple[str, list[str]]]) -> None:
    together = conjunction(parts)
    for value in UNIVERSE[1:]:
        assert together.has(value) == all(allows(part, value) for part in parts), (value, parts)


@pytest.mark.parametrize(
    ("one", "other", "written"),
    [
        (("Exists", []), ("NotIn", ["a"]), (("NotIn", ("a",)),)),
        (("In", ["a"]), ("In", ["b"]), (("DoesNotExist", ()),)),
        (("In", ["a"]), ("NotIn", ["a"]), (("DoesNotExist", ()),)),
        (("In", ["a", "b"]), ("NotIn", ["a"]), (("In", ("b",)),)),
        (("In", ["a"]), ("DoesNotExist", []), (("DoesNotExist", ()),)),
        (("Exists", []), ("DoesNotExist", []), (("DoesNotExist", ()),)),
        (("Gt", ["5"]), ("Lt", ["3"]), (("DoesNotExist", ()),)),
        (("Gt", ["5"]), ("NotIn", ["3", "9"]), (("Gte", ("6",)), ("NotIn", ("9",)))),
        (("NotIn", ["a"]), ("NotIn", ["b"]), (("NotIn", ("a", "b")),)),
        (("Gte", ["2"]), ("In", ["1", "2", "x"]), (("In", ("2",)),)),
    ],
)
def test_a_label_may_be_missing_by_what_is_left_of_a_requirement(
    one: tuple[str, list[str]], other: tuple[str, list[str]], written: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    both = conjunction([one, other])
    assert both.operators == written
    assert both.absent == (written[-1][0] in ("NotIn", "DoesNotExist"))
    assert both.has(None) == both.absent


@given(st.lists(terms, min_size=1, max_size=5))
def test_a_requirement_is_empty_exactly_when_nothing_satisfies_it(parts: list[tuple[str, list[str]]]) -> None:
    witness = any(all(allows(part, value) for part in parts) for value in UNIVERSE)
    assert conjunction(parts).is_empty() == (not witness)


@given(st.lists(terms, min_size=1, max_size=5))
def test_any_gives_an_allowed_value_or_none(parts: list[tuple[str, list[str]]]) -> None:
    together = conjunction(parts)
    value = together.any()
    if value is None:
        assert not together.has_values()
        assert not any(together.has(other) for other in UNIVERSE if other is not None)
    else:
        assert together.has(value)


@given(st.lists(terms, min_size=1, max_size=3), st.lists(terms, min_size=1, max_size=3))
def test_intersection_commutes_and_intersects_agrees_with_it(
    left: list[tuple[str, list[str]]], right: list[tuple[str, list[str]]]
) -> None:
    one, other = conjunction(left), conjunction(right)
    assert one.intersection(other) == other.intersection(one)
    assert one.intersects(other) == any(one.has(value) and other.has(value) for value in UNIVERSE)


@given(st.lists(terms, min_size=1, max_size=4))
def test_operators_write_the_same_set_again(parts: list[tuple[str, list[str]]]) -> None:
    together = conjunction(parts)
    if not together.is_empty():
        again = conjunction([(operator, list(values)) for operator, values in together.operators])
        assert [again.has(value) for value in UNIVERSE] == [together.has(value) for value in UNIVERSE]


@given(
    st.dictionaries(st.sampled_from(["x", "y", "z"]), terms, max_size=3),
    st.dictionaries(st.sampled_from(["x", "y", "z"]), terms, max_size=3),
    st.frozensets(st.sampled_from(["x", "y", "z"])),
)
def test_compatible_means_that_one_node_can_satisfy_both(
    pool: dict[str, tuple[str, list[str]]], pod: dict[str, tuple[str, list[str]]], undefined: frozenset[str]
) -> None:
    existing = Requirements(Requirement.of(key, *term) for key, term in pool.items())
    incoming = Requirements(Requirement.of(key, *term) for key, term in pod.items())

    def satisfiable(key: str) -> bool:
        # A label that the pool does not name is absent from its nodes, unless Karpenter knows it and will set it.
        values = UNIVERSE if key in pool or key in undefined else [None]
        return any((key not in pool or allows(pool[key], v)) and allows(pod[key], v) for v in values)

    assert existing.compatible(incoming, undefined) == all(satisfiable(key) for key in pod)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
        ("beta.kubernetes.io/os", "kubernetes.io/os"),
        ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
        ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
        ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
        ("topology.ebs.csi.aws.com/zone", "topology.kubernetes.io/zone"),
        ("example.com/team", "example.com/team"),
    ],
)
def test_old_label_keys_are_normalised(old: str, new: str) -> None:
    assert Requirement.of(old, "Exists").key == new


def test_an_old_key_and_its_new_name_are_one_requirement() -> None:
    both = Requirements(
        [
            Requirement.of("beta.kubernetes.io/arch", "In", ["amd64", "arm64"]),
            Requirement.of("kubernetes.io/arch", "In", ["arm64"]),
        ]
    )
    assert list(both) == ["kubernetes.io/arch"]
    assert both["kubernetes.io/arch"].values == {"arm64"}


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("In", []),
        ("Gt", []),
        ("Gt", ["1", "2"]),
        ("Lt", ["many"]),
        ("Gte", ["-1"]),
        ("Near", ["1"]),
        ("in", ["a"]),
    ],
)
def test_a_malformed_requirement_is_refused(operator: str, values: list[str]) -> None:
    with pytest.raises(InputError):
        Requirement.of("key", operator, values)


def test_a_misspelt_operator_is_answered_with_the_near_one() -> None:
    with pytest.raises(InputError, match="did you mean NotIn"):
        Requirement.of("key", "Notin", ["a"])


def test_a_custom_label_that_the_pool_does_not_define_is_denied() -> None:
    pool = Requirements([Requirement.of("karpenter.sh/capacity-type", "In", ["spot"])])
    pod = Requirements.of_labels({"nvidia.com/gpu.product": "NVIDIA-L40S"})
    (problem,) = pool.conflicts(pod, well_known())
    assert problem == 'label "nvidia.com/gpu.product" does not have known values'


def test_a_well_known_label_that_the_pool_does_not_define_is_allowed() -> None:
    pod = Requirements.of_labels({"karpenter.k8s.aws/instance-gpu-name": "l40s"})
    assert Requirements().compatible(pod, well_known())
    assert not Requirements().compatible(pod)


def test_a_misspelt_well_known_label_is_answered_with_its_right_name() -> None:
    pod = Requirements.of_labels({"karpenter.k8s.aws/instance-gpu-nam": "l40s"})
    (problem,) = Requirements().conflicts(pod, well_known())
    assert "did you mean karpenter.k8s.aws/instance-gpu-name?" in problem


def test_the_larger_min_values_survives_an_intersection() -> None:
    one = Requirement.of("key", "In", ["a", "b", "c"], min_values=2)
    assert one.intersection(Requirement.of("key", "Exists", min_values=3)).min_values == 3
    assert one.intersection(Requirement.of("key", "Exists")).min_values == 2


def test_a_requirement_reads_as_a_person_would_write_it() -> None:
    assert str(Requirement.of("n", "Gt", ["0"])) == "n Gte 1"
    assert str(Requirement.of("n", "In", ["b", "a"])) == "n In [a, b]"
    both = Requirement.of("n", "Exists").intersection(Requirement.of("n", "NotIn", ["a"]))
    assert str(both) == "n NotIn [a]"


def test_a_node_gets_one_value_of_each_custom_label() -> None:
    requirements = Requirements(
        [
            Requirement.of("example.com/tier", "In", ["gold", "basic"]),
            Requirement.of("example.com/slot", "Gt", ["3"]),
            Requirement.of("topology.kubernetes.io/zone", "In", ["us-east-1a"]),
            Requirement.of("example.com/none", "DoesNotExist"),
        ]
    )
    assert requirements.labels() == {"example.com/tier": "basic", "example.com/slot": "4"}
