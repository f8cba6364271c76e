"""The same events into ai-dynamo-runtime's RadixTree.

When a worker drops a block, RadixTree may also forget what that worker holds below it (as far as one of its compressed
nodes reaches); an engine does not. So where such a block comes back, RadixTree's answer lies between sets that forget
everything below and plain ones, which the index equals; everywhere else the three are the same.
"""

from __future__ import annotations

import json
import os
import random

import pytest
from index_models import BLOCK, CLEARED, SetModel, batch, engine_hash, flat, removed, stored

from deep_seeds import deep
from tonnage.inference.index import KvIndex

os.environ.setdefault("DYN_LOG", "error")
try:
    from dynamo._core import RadixTree
except ImportError:
    RadixTree = None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.skipif(RadixTree is None, reason="ai-dynamo-runtime is not installed"),
]
WORKERS = 6


class Peer:
    """RadixTree fed with its native events."""

    def __init__(self) -> None:
        self.tree = RadixTree()
        self.events = 0

    def _apply(self, worker: int, data: object) -> None:
        self.events += 1
        try:
            self.tree.apply_event(worker, json.dumps({"event_id": self.events, "dp_rank": 0, "data": data}).encode())
        except RuntimeError as error:
            assert "Failed to find" in str(error)  # a removal below what it forgot

    def store(self, worker: int, labels: list[int], first: int) -> None:
        blocks = [
            {"block_hash": engine_hash(labels[: at + 1]), "tokens_hash": labels[at]} for at in range(first, len(labels))
        ]
        self._apply(
            worker, {"stored": {"parent_hash": engine_hash(labels[:first]) if first else None, "blocks": blocks}}
        )

    def remove(self, worker: int, labels: list[int]) -> None:
        self._apply(worker, {"removed": {"block_hashes": [engine_hash(labels)]}})

    def clear(self, worker: int) -> None:
        self._apply(worker, "cleared")

    def scores(self, labels: list[int]) -> dict[str, int]:
        return {str(worker): depth for (worker, _), depth in self.tree.find_matches(labels).scores.items()}


def play(seed: int, mode: str, tail_first: bool) -> tuple[int, int]:
    """One random history; returns (questions, those where a block that came back made a difference)."""
    rng = random.Random(seed)
    peer, index = Peer(), KvIndex(BLOCK, keys=mode, count_copies=False)
    plain, forgetful = SetModel(), SetModel()
    paths: list[list[int]] = []
    differences = questions = 0
    for _ in range(rng.randrange(10, 60)):
        worker = rng.randrange(WORKERS)
        name, what = str(worker), rng.random()
        base = rng.choice(paths) if paths and rng.random() < 0.7 else []
        labels = base[: rng.randrange(len(base) + 1)] + [rng.randrange(1, 4) for _ in range(rng.randrange(1, 6))]
        if what < 0.55:
            mine = forgetful.copies.get(name, {})
            first = rng.randrange(len(labels))
            while first and tuple(labels[:first]) not in mine:
                first -= 1
            peer.store(worker, labels, first)
            index.apply_batch(name, batch(stored(labels, first)))
            plain.store(name, labels, first, count=False)
            forgetful.store(name, labels, first, count=False)
            paths.append(labels)
        elif what < 0.9 and plain.copies.get(name):
            held = sorted(plain.copies[name])
            gone = rng.choice(held)
            if tail_first:
                gone = rng.choice([one for one in held if not any(o[:-1] == one for o in held)])
            peer.remove(worker, list(gone))
            index.apply_batch(name, batch(removed(gone)))
            plain.remove(name, gone)
            mine = forgetful.copies.get(name, {})
            if gone in mine:
                for path in [one for one in mine if one[: len(gone)] == gone]:
                    del mine[path]
        elif what < 0.94:
            peer.clear(worker)
            index.apply_batch(name, batch(CLEARED))
            plain.clear(name)
            forgetful.clear(name)
        elif what < 0.97:
            peer.tree.remove_worker(worker)
            index.remove_worker(name)
            plain.leave(name)
            forgetful.leave(name)
        for asked in [labels, *rng.sample(paths, min(1, len(paths)))]:
            keys = (
                index.prompt_keys(flat(asked))
                if mode == "tokens"
                else [engine_hash(asked[: at + 1]) for at in range(len(asked))]
            )
            ours, theirs = index.scores(keys), peer.scores(asked)
            assert ours == plain.scores(asked)
            least = forgetful.scores(asked)
            assert theirs == ours or least != ours
            assert all(least.get(one, 0) <= theirs.get(one, 0) <= depth for one, depth in ours.items())
            assert theirs.keys() <= ours.keys()
            differences += ours != theirs
            questions += 1
    return questions, differences


@pytest.mark.parametrize("histories", [50, *deep([500])])
@pytest.mark.parametrize("mode", ["tokens", "engine"])
def test_many_histories_with_evictions_from_the_tail_have_the_same_answers(mode, histories):
    totals = [play(seed, mode, tail_first=True) for seed in range(histories)]
    assert sum(one[0] for one in totals) > 60 * histories and sum(one[1] for one in totals) == 0


@pytest.mark.parametrize("histories", [50, *deep([500])])
@pytest.mark.parametrize("mode", ["tokens", "engine"])
def test_with_holes_the_answers_differ_only_where_a_removed_block_came_back(mode, histories):
    totals = [play(seed, mode, tail_first=False) for seed in range(500, 500 + histories)]
    questions, differences = sum(one[0] for one in totals), sum(one[1] for one in totals)
    assert questions > 60 * histories and 0 < differences < questions * 0.05
