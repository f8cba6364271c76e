"""What has lived through a full collection is not looked at by the next, but for one in ten minutes."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from tonnage.live.pauses import ALL_S, ShortPauses


class Node:
    """Refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def at() -> Iterator[list[float]]:
    now = [0.0]
    before = gc.get_freeze_count()
    with ShortPauses(lambda: now[0]):
        yield now
    assert gc.get_freeze_count() <= before


def test_what_a_full_collection_leaves_is_set_aside(at: list[float]) -> None:
    before = gc.get_freeze_count()
    kept = [Node() for _ in range(1_000)]
    gc.collect()
    assert gc.get_freeze_count() >= before + len(kept)
    assert not {id(node) for node in kept} & {id(one) for one in gc.get_objects()}


def test_younger_collections_set_nothing_aside(at: list[float]) -> None:
    gc.disable()  # a full collection of its own accord would set them aside
    try:
        before = gc.get_freeze_count()
        kept = [Node() for _ in range(1_000)]
        gc.collect(1)
        assert {id(node) for node in kept} <= {id(one) for one in gc.get_objects()}
        assert gc.get_freeze_count() <= before, "other threads may free what was set aside before"
    finally:
        gc.enable()


def test_garbage_that_was_set_aside_goes_when_all_is_looked_at(at: list[float]) -> None:
    node = Node()
    seen = weakref.ref(node)
    gc.collect()
    del node
    at[0] = ALL_S - 1
    gc.collect()
    assert seen() is not None
    at[0] = ALL_S
    gc.collect()
    assert seen() is None
    assert gc.get_freeze_count() > 0
