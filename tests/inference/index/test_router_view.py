"""From the bytes that engines publish to the worker that a request goes to."""

from __future__ import annotations

from random import Random

import pytest
from index_models import BLOCK, CLEARED, flat, frames, removed, stored

from tonnage.inference.index import CacheView, KvIndex, RouterView, TrustSettings, path_of
from tonnage.inference.routing import (
    Overlap,
    Router,
    RouteRequest,
    RoutingPolicy,
    Tonnage,
    TonnageSettings,
    Worker,
    make_policy,
)

S = 1_000_000_000


class PlainCosts:
    """A millisecond a token."""

    def prefill_s(self, tokens: int, context: int) -> float:
        return tokens * 1e-3

    def decode_s(self, sequences: int, context: int) -> float:
        return 0.01 if sequences else 0.0


class Gateway:
    """What a gateway does with its workers' events and its clients' prompts."""

    def __init__(self, policy: RoutingPolicy, names: str = "abc", **trust: int) -> None:
        view = CacheView(KvIndex(BLOCK), settings=TrustSettings(**trust))
        self.view = RouterView(view, recent=getattr(policy, "_expected", None) is None)
        self.router = Router(
            policy, [Worker(self.view.join(name), name, block_size=BLOCK) for name in names], Random(0)
        )
        self.sent = dict.fromkeys(names, 0)
        self.count = 0

    def events(self, name: str, *events: dict[str, object], now_ns: int = 0) -> None:
        number = self.sent[name]
        self.view.view.receive(name, frames(number, *events), now_ns)
        self.sent[name] += 1
        for worker in self.view.take_cleared():
            self.router.cache_cleared(worker)

    def ask(self, labels: list[int], now_ns: int = 0) -> tuple[str, Overlap]:
        tokens = [*flat(labels), 1]
        keys = self.view.view.index.prompt_keys(tokens)
        overlap = self.view.overlap(keys, now_ns)
        request = RouteRequest(self.count, now_ns, len(tokens), len(keys), path_of(keys))
        self.count += 1
        receipt = self.router.route(request, overlap, now_ns)
        self.view.dispatched(receipt.worker, keys, now_ns)
        return self.view.name(receipt.worker), overlap


def plain(**more: bool) -> Tonnage:
    weights = TonnageSettings(later_weight=0, decode_weight=0, evict_weight=0, tie_s=0, tie_share=0, event_lag_s=1)
    return Tonnage(PlainCosts(), weights, **more)


@pytest.mark.parametrize("name", ["dynamo", "llm-d", "sglang", "tonnage"])
def test_a_prompt_goes_where_events_say_that_it_is_cached(name: str) -> None:
    for holder in "abc":
        gateway = Gateway(make_policy(name, PlainCosts()))
        gateway.events(holder, stored([1, 2, 3]))
        gateway.events(holder, stored([1, 2, 3, 4], 3, medium="CPU"))
        for other in set("abc") - {holder}:
            gateway.events(other, stored([7]))
        chosen, overlap = gateway.ask([1, 2, 3, 4, 5])
        number = gateway.view.join(holder)
        assert overlap == Overlap({number: 3}, {number: 1})
        assert chosen == holder


def test_requests_in_flight_share_the_hashed_blocks_of_their_prompts() -> None:
    gateway = Gateway(make_policy("dynamo"), "a")
    gateway.ask([1, 2, 3, 4])
    gateway.ask([1, 2, 9])
    book = gateway.router.book
    assert book.load(0).blocks == 5
    keys = gateway.view.view.index.prompt_keys(flat([1, 2, 3, 8]))
    assert book.shared_blocks(path_of(keys)) == {0: 3}
    for request_id in (0, 1):
        gateway.router.ended(request_id, 0)
    assert book.load(0).blocks == 0


def test_without_events_dispatches_count_and_without_either_load_alone() -> None:
    gateway = Gateway(plain(predicts=False), "ab", proof=1)
    first, overlap = gateway.ask([1, 2, 3])
    assert overlap == Overlap()
    gateway.router.first_token(0, 0)
    gateway.router.ended(0, 0)
    again, overlap = gateway.ask([1, 2, 3, 4], 60 * S)
    assert again == first
    assert overlap == Overlap({gateway.view.join(first): 3}), "the approximate index, two minutes long"
    view = gateway.view.view
    keys = view.index.prompt_keys(flat([1, 2, 3]))
    for _ in range(5):
        view.reported(first, keys, said=view.index.overlap(keys).get(first, (0, 0, 0)), predicted=3, cached_blocks=0)
    assert view.verdict(first, 61 * S).source == "load"
    assert gateway.view.overlap(keys, 61 * S) == Overlap()


@pytest.mark.parametrize("predicts", [True, False])
def test_a_prompt_just_sent_is_expected_by_the_policy_or_by_the_view_and_not_by_both(predicts: bool) -> None:
    gateway = Gateway(plain(predicts=predicts), "ab")
    for name in "ab":
        gateway.events(name, stored([7]))
    first, _ = gateway.ask([1, 2, 3])
    gateway.router.first_token(0, 0)
    gateway.router.ended(0, 0)
    second, overlap = gateway.ask([1, 2, 3, 4], S // 2)
    assert second == first
    assert overlap == (Overlap() if predicts else Overlap({gateway.view.join(first): 3}))
    assert gateway.router.book.load(gateway.view.join(first)).prefill_tokens == BLOCK + 1


@pytest.mark.parametrize("predicts", [True, False])
def test_a_cache_that_was_cleared_is_expected_to_hold_nothing(predicts: bool) -> None:
    gateway = Gateway(plain(predicts=predicts), "a")
    gateway.events("a", stored([1, 2, 3]))
    gateway.ask([1, 2, 3])
    gateway.router.first_token(0, 0)
    gateway.router.ended(0, 0)
    gateway.events("a", CLEARED)
    _, overlap = gateway.ask([1, 2, 3])
    assert overlap == Overlap()
    assert gateway.router.book.load(0).prefill_tokens == 3 * BLOCK + 1


def test_removed_blocks_and_workers_are_gone_and_numbers_are_not_given_again() -> None:
    gateway = Gateway(plain(predicts=False), "ab")
    gateway.events("a", stored([1, 2]))
    gateway.events("a", removed([1, 2]))
    keys = gateway.view.view.index.prompt_keys(flat([1, 2]))
    assert gateway.view.overlap(keys, 0) == Overlap({0: 1})
    assert gateway.view.leave("a") == 0
    assert gateway.view.leave("a") is None
    assert gateway.view.overlap(keys, 0) == Overlap()
    assert [gateway.view.join(name) for name in "ba"] == [1, 2]
    gateway.view.view.receive("stranger", frames(0, stored([1, 2])), 0)
    assert gateway.view.overlap(keys, 0) == Overlap(), "no requests go to a worker that has not joined"
