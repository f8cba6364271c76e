"""How long KV blocks travel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.errors import InputError
from tonnage.facts import models
from tonnage.inference.disaggregation.links import exposed_ns, kv_bytes, kv_link, kv_links, transfer_ns, wire_ns
from tonnage.units import NS_PER_MS

MOONCAKE = ((128, 0.54), (1024, 1.50), (4096, 4.75), (8192, 8.84), (32768, 31.65))
"""(prompt tokens, ms) of Mooncake's vLLM v1 benchmark: Qwen3-8B over 8 x 200 Gb/s RoCE."""
QWEN3_8B_BYTES = 2 * 36 * 8 * 128 * 2


@pytest.mark.parametrize(("tokens", "measured_ms"), MOONCAKE)
def test_transfers_take_what_was_measured_over_eight_nics(tokens: int, measured_ms: float) -> None:
    taken = transfer_ns(kv_link("roce-200"), tokens * QWEN3_8B_BYTES, lanes=8)
    assert taken / NS_PER_MS == pytest.approx(measured_ms, rel=0.08)


def test_the_kinds_of_link_stand_in_their_order() -> None:
    llama = models.get("meta-llama/Llama-3.1-8B-Instruct")
    moved = kv_bytes(256, 16, llama.kv_bytes_per_token(2))
    assert moved == 4096 * 131_072
    times = [transfer_ns(kv_link(name), moved) for name in ("nvlink4", "ib-ndr", "efa-p4d", "tcp-100g", "tcp-25g")]
    assert times == sorted(times) and len(set(times)) == 5
    assert all(link.source and 0 < link.efficiency <= 1 for link in kv_links().values())


def test_an_unknown_link_is_refused_with_a_near_name() -> None:
    with pytest.raises(InputError, match="nvlink4"):
        kv_link("nvlink-4")


def test_nothing_to_move_takes_no_time() -> None:
    link = kv_link("tcp-25g")
    assert transfer_ns(link, 0) == exposed_ns(link, 0, 1_000, 32) == 0


@given(st.integers(1, 10**10), st.integers(0, 10**10), st.integers(1, 80), st.sampled_from(sorted(kv_links())))
def test_sending_each_layer_when_it_is_done_leaves_what_playing_layer_by_layer_leaves(
    moved: int, prefill_ns: int, layers: int, name: str
) -> None:
    link = kv_link(name)
    send = wire_ns(link, moved) / layers
    sent = 0.0
    for layer in range(1, layers + 1):
        sent = max(sent, prefill_ns * layer / layers) + send
    left = exposed_ns(link, moved, prefill_ns, layers)
    assert left == pytest.approx(link.latency_ns + sent - prefill_ns, abs=2)
    assert left <= transfer_ns(link, moved), "overlap never costs"
