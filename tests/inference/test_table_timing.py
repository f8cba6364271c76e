"""Step times from measured points: interpolation, the edges, the rows of a file."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.inference.engine import Engine, EngineConfig
from tonnage.inference.table_timing import Grid, TableTiming, from_rows

MS = 1_000_000_000
PREFILL = {(100, 0): 10 * MS, (1000, 0): 40 * MS}
DECODE = {(1, 100): 4 * MS, (1, 1100): 5 * MS, (8, 100): 6 * MS, (8, 1100): 14 * MS}


def table(**changes: object) -> TableTiming:
    return TableTiming(PREFILL, DECODE, **changes)  # type: ignore[arg-type]


def line(points: list[tuple[int, int]], at: Fraction) -> Fraction:
    """Piecewise linear through ``points``, extended by the slope of the last two, flat before the first."""
    if at <= points[0][0] or len(points) == 1:
        return Fraction(points[0][1])
    for (left, low), (right, high) in pairwise(points):
        if at <= right or (right, high) == points[-1]:
            return low + (high - low) * (at - left) / (right - left)
    raise AssertionError


GRIDS = st.dictionaries(
    st.integers(1, 40), st.dictionaries(st.integers(0, 300), st.integers(1, 10**12), min_size=1, max_size=4),
    min_size=1, max_size=4,
)  # fmt: skip


@given(GRIDS, st.integers(1, 60), st.integers(0, 20_000), st.integers(1, 50))
def test_a_ragged_grid_answers_like_exact_fractions(
    rows: dict[int, dict[int, int]], x: int, total: int, parts: int
) -> None:
    grid = Grid({(one, y): ps for one, row in rows.items() for y, ps in row.items()})
    xs = sorted(rows)
    at = Fraction(total, parts)
    low = max([one for one in xs if one <= x], default=xs[0])
    if len(xs) > 1 and low == xs[-1] and x > low:
        low = xs[-2]
    beside = [low] if low >= x or len(xs) == 1 else [low, xs[xs.index(low) + 1]]
    values = [line(sorted(rows[one].items()), at) for one in beside]
    exact = values[0]
    if len(values) == 2:
        exact += (values[1] - values[0]) * Fraction(x - beside[0], beside[1] - beside[0])
    assert grid.at(x, total, parts) == (2 * exact + 1) // 2


@pytest.mark.parametrize(("point", "ps"), DECODE.items())
def test_a_measured_point_is_answered_as_measured(point: tuple[int, int], ps: int) -> None:
    sequences, context = point
    assert table().decode_ps(sequences, sequences * context) == ps


def test_between_points_time_is_linear_in_context_then_in_sequences() -> None:
    timing = table()
    assert timing.prefill_ps(1, 550, 0) == 25 * MS
    assert timing.decode_ps(8, 8 * 600) == 10 * MS
    assert timing.decode_ps(1, 600) == 4.5 * MS
    assert timing.decode_ps(3, 3 * 600) == round(4.5 * MS + 5.5 * MS * 2 / 7)


def test_only_the_mean_of_the_contexts_counts_and_need_not_be_whole() -> None:
    grid = {(2, 0): 1 * MS, (2, 10): 11 * MS}
    assert TableTiming(PREFILL, grid).decode_ps(2, 5) == 3.5 * MS


def test_nothing_takes_no_time() -> None:
    assert table().prefill_ps(0, 0, 0) == table().prefill_ps(1, 500, 500) == table().decode_ps(0, 0) == 0


def test_cached_tokens_are_not_computed_and_count_where_the_table_knows_them() -> None:
    assert table().prefill_ps(1, 1000, 450) == table().prefill_ps(1, 550, 0)
    known = TableTiming({**PREFILL, (100, 1000): 20 * MS, (1000, 1000): 60 * MS}, DECODE)
    assert known.prefill_ps(1, 1050, 500) == 32.5 * MS


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda timing: timing.prefill_ps(1, 99, 0), "prefill of 99 tokens"),
        (lambda timing: timing.prefill_ps(2, 1001, 0), "prefill of 1001 tokens"),
        (lambda timing: timing.decode_ps(9, 900), "decode of 9 sequences with 100 mean"),
        (lambda timing: timing.decode_ps(2, 198), "decode of 2 sequences with 99 mean"),
        (lambda timing: timing.decode_ps(2, 2201), "decode of 2 sequences with 1100 mean"),
    ],
)
def test_what_was_not_measured_is_refused(call: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        call(table())  # type: ignore[operator]


def test_in_a_ragged_grid_the_shorter_row_bounds_what_is_covered() -> None:
    grid = Grid({(1, 0): MS, (1, 1000): 2 * MS, (64, 0): 3 * MS, (64, 100): 4 * MS})
    assert grid.covers(1, 1000) and grid.covers(32, 100) and not grid.covers(32, 101)


def test_what_was_not_measured_is_flagged_where_that_is_asked_for() -> None:
    timing = table(outside="flag")
    assert timing.prefill_ps(1, 10, 0) == 10 * MS  # the smallest point: a step has a floor
    assert timing.prefill_ps(1, 1900, 0) == 70 * MS  # the slope of the last two points
    assert timing.decode_ps(8, 8 * 2100) == 22 * MS
    assert timing.outside_steps == 3
    assert timing.outside_worst == {"prefill": (1900, 0), "decode": (8, 2100)}


def test_a_falling_slope_never_gives_a_step_without_time() -> None:
    falling = TableTiming({(1, 0): 10 * MS, (2, 0): 1 * MS}, DECODE, outside="flag")
    assert falling.prefill_ps(1, 10**6, 0) == 1


def test_equal_tables_are_equal_and_hash_alike() -> None:
    assert table() == table() and hash(table()) == hash(table()) and table() != table(outside="flag")


def test_an_engine_runs_on_a_table() -> None:
    engine = Engine(EngineConfig(2048, 8, 2048, 1000), table(outside="flag"))
    engine.submit(0, 0, 550, 3)
    engine.advance(10**12)
    (finished,) = engine.take_finished()
    first = 25 * MS
    steps = [table().decode_ps(1, context) for context in (551, 552)]
    assert finished.first_token_ns == first // 1000
    assert finished.finish_ns == -(-(first + sum(steps)) // 1000)


ROWS = [
    {"kind": "prefill", "tokens": "100", "ms": "10"},
    {"kind": "prefill", "tokens": "1000", "cached": "", "ms": "40.0"},
    {"kind": "decode", "sequences": "1", "context": "100", "ms": "4"},
    {"kind": "decode", "sequences": "1", "context": "1100", "ms": "5"},
    {"kind": "decode", "sequences": "8", "context": "100", "ms": "6"},
    {"kind": "decode", "sequences": "8", "context": "1100", "ms": "1.4e1"},
]


def test_rows_give_the_table() -> None:
    assert from_rows(enumerate(ROWS, 2)) == table()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"kind": "both"}, "t.csv:9:kind: 'both', expected prefill or decode"),
        ({"kind": "prefill", "tokens": "0", "ms": "1"}, "t.csv:9:tokens: '0', expected a whole number of 1 or more"),
        ({"kind": "decode", "sequences": "1", "ms": "1"}, "t.csv:9:context: '', expected"),
        ({"kind": "prefill", "tokens": "5", "ms": "nan"}, "t.csv:9:ms: 'nan', expected milliseconds above 0"),
        ({"kind": "prefill", "tokens": "5", "ms": "-1"}, "t.csv:9:ms: '-1'"),
        ({"kind": "prefill", "tokens": "5", "ms": None}, "t.csv:9:ms: ''"),
        ({"kind": "prefill", "tokens": "100", "ms": "11"}, "t.csv:9:tokens: '100 with cached 0', expected each point"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_field(row: dict[str, str | None], message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_rows([*enumerate(ROWS, 2), (9, row)], file="t.csv")
    assert message in str(caught.value)


def test_a_table_needs_both_kinds_of_rows() -> None:
    with pytest.raises(InputError, match="no decode row"):
        from_rows(enumerate(ROWS[:2], 2), file="t.csv")
    with pytest.raises(ValueError, match="points"):
        Grid({})
