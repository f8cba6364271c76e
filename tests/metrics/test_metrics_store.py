from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.metrics.store import NAME, Matcher, MatchOp, Series, SeriesStore
from tonnage.units import NS_PER_S

S = NS_PER_S


def store_of(*rows: tuple[str, dict[str, str], int, float]) -> SeriesStore:
    store = SeriesStore()
    for name, labels, second, value in rows:
        store.append(name, labels, second * S, value)
    return store


def only(store: SeriesStore) -> Series:
    [series] = store
    return series


def test_an_instant_sees_the_newest_sample_within_five_minutes() -> None:
    series = only(store_of(("x", {}, 0, 1.0), ("x", {}, 60, 2.0)))
    assert [series.at(t * S) for t in (59, 60, 359, 360, 361)] == [1.0, 2.0, 2.0, None, None]
    assert series.at(360 * S, left_open=False) == 2.0
    assert series.at(-1) is None


def test_a_stale_marker_ends_a_series_until_it_comes_back() -> None:
    store = store_of(("x", {}, 0, 1.0))
    store.mark_stale("x", {}, 10 * S)
    store.append("x", {}, 20 * S, 3.0)
    assert [only(store).at(t * S) for t in (9, 10, 19, 20)] == [1.0, None, None, 3.0]


def test_stale_markers_are_no_samples_of_a_window() -> None:
    store = store_of(("x", {}, 0, 1.0))
    store.mark_stale("x", {}, 10 * S)
    assert list(only(store).window(-S, 60 * S)[1]) == [1.0]


def test_a_window_leaves_its_left_end_out_or_not() -> None:
    series = only(store_of(*[("x", {}, t, float(t)) for t in (0, 15, 30, 45, 60)]))
    assert list(series.window(0, 60 * S)[1]) == [15, 30, 45, 60]
    assert list(series.window(0, 60 * S, left_open=False)[1]) == [0, 15, 30, 45, 60]


def test_time_only_moves_forward_within_a_series() -> None:
    store = store_of(("x", {}, 10, 1.0))
    with pytest.raises(ValueError, match="not later than"):
        store.append("x", {}, 10 * S, 2.0)
    with pytest.raises(ValueError, match="not later than"):
        store.mark_stale("x", {}, 5 * S)


def test_marking_an_unknown_series_stale_does_nothing() -> None:
    store = SeriesStore()
    store.mark_stale("x", {}, 5 * S)
    assert len(store) == 0


def test_an_empty_label_is_no_label() -> None:
    store = store_of(("x", {"gpu": ""}, 0, 1.0), ("x", {}, 1, 2.0))
    assert len(store) == 1
    assert only(store).labels == {NAME: "x"}


@pytest.mark.parametrize(
    ("op", "value", "pods"),
    [
        ("=", "model-a-1", {"model-a-1"}),
        ("=", "", {""}),
        ("!=", "model-a-1", {"model-a-2", "other", ""}),
        ("=~", "model-a-.*", {"model-a-1", "model-a-2"}),
        ("=~", "model-a", set()),  # anchored at both ends
        ("=~", "model-a-1|other", {"model-a-1", "other"}),
        ("=~", ".*", {"model-a-1", "model-a-2", "other", ""}),
        ("!~", ".+", {""}),
    ],
)
def test_matchers_compare_whole_values_and_take_a_missing_label_for_empty(op: str, value: str, pods: set[str]) -> None:
    rows = [("x", {"pod": pod}, 0, 1.0) for pod in ("model-a-1", "model-a-2", "other", "")]
    found = store_of(*rows).select([Matcher(NAME, MatchOp.EQUAL, "x"), Matcher("pod", MatchOp(op), value)])
    assert {series.labels.get("pod", "") for series in found} == pods


def test_a_bad_regular_expression_is_the_users_error() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Matcher("pod", MatchOp.REGEX, "(").matches("a")


def test_old_samples_and_dead_series_are_forgotten() -> None:
    store = SeriesStore(retention_ns=1_000 * S)
    store.append("gone", {"pod": "a"}, 0, 1.0)
    for t in range(0, 20_000):
        store.append("x", {}, t * S, float(t))
    assert [series.labels[NAME] for series in store] == ["x"]
    assert 1_000 <= len(only(store).times) <= 2_100
    assert store.select([Matcher("pod", MatchOp.EQUAL, "a")]) == []


labels = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "1", "2", "x1"]), max_size=3)
matchers = st.builds(
    Matcher,
    st.sampled_from(["a", "b", NAME]),
    st.sampled_from(list(MatchOp)),
    st.sampled_from(["", "1", "2", "m", ".*", "x?1", "1|2"]),
)


@given(st.lists(st.tuples(st.sampled_from(["m", "n"]), labels), max_size=12), st.lists(matchers, max_size=3))
def test_the_index_finds_what_looking_at_every_series_finds(rows, wanted) -> None:
    store = SeriesStore()
    for second, (name, found) in enumerate(rows):
        store.append(name, found, second * S, 1.0)
    brute = [s for s in store if all(m.matches(s.labels.get(m.label, "")) for m in wanted)]
    assert sorted(map(id, store.select(wanted))) == sorted(map(id, brute))
