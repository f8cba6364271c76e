"""Whether a prefill is worth sending away: the rule against the same rule written down once more, in whole numbers."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tonnage.inference.disaggregation.conditional import (
    POLICIES,
    ConditionalRule,
    DecodeLoad,
    PrefillLoad,
    effective_isl,
    skips_remote_prefill,
)


def _oracle(
    rule: ConditionalRule, prompt: int, overlap: int, size: int, prefill: PrefillLoad | None, decode: DecodeLoad | None
) -> bool:
    """The published rule clause by clause, in exact fractions; a missing load is calm."""
    left = prompt
    for _ in range(overlap):
        left -= size
        if left <= 0:
            left = 0
            break
    short = left < rule.isl_threshold and Fraction(left, prompt or 1) < Fraction(rule.ratio_threshold)
    busy = False
    if prefill is not None and rule.prefill_busy_threshold is not None:
        busy = Fraction(prefill.active_tokens) > Fraction(rule.prefill_busy_threshold) * prefill.max_num_batched_tokens
    verdict = {"isl_bounding": short, "prefill_load": busy, "isl_or_load": short or busy}[rule.policy]
    veto = False
    if decode is not None and rule.decode_busy_threshold is not None:
        veto = Fraction(decode.active_blocks) > Fraction(rule.decode_busy_threshold) * decode.total_blocks
    return rule.enabled and verdict and not veto


def _case(rng: random.Random) -> tuple[ConditionalRule, int, int, int, PrefillLoad | None, DecodeLoad | None]:
    """A case near the edges: thresholds that a few blocks more or less cross. Shares are exact in binary."""
    size = rng.choice((1, 16, 64))
    rule = ConditionalRule(
        policy=rng.choice(POLICIES),
        enabled=rng.random() < 0.9,
        isl_threshold=rng.choice((0, 1, 64, 512, 2048)),
        ratio_threshold=rng.choice((0.0, 0.25, 0.5, 0.75, 1.0, 1.5)),
        prefill_busy_threshold=rng.choice((None, 0.0, 0.5, 1.0, 4.0)),
        decode_busy_threshold=rng.choice((None, 0.0, 0.5, 0.75, 1.0)),
    )
    prompt = rng.choice((0, 1, size, rule.isl_threshold, rng.randrange(4096), 64 * rng.randrange(64)))
    overlap = rng.choice((0, prompt // size, prompt // size + 3, rng.randrange(prompt // size + 1)))
    prefill = decode = None
    if rng.random() < 0.8:
        budget = rng.choice((512, 2048))
        prefill = PrefillLoad(
            rng.choice((0, budget // 2, budget, budget + 1, 4 * budget, rng.randrange(10_000))), budget
        )
    if rng.random() < 0.8:
        total = rng.choice((8, 1000))
        decode = DecodeLoad(rng.choice((0, total // 2, total * 3 // 4, total * 3 // 4 + 1, total)), total)
    return rule, prompt, overlap, size, prefill, decode


def test_verdicts_equal_the_published_rule_on_a_thousand_cases_near_its_edges() -> None:
    rng = random.Random(5)
    verdicts = []
    for _ in range(1_000):
        case = _case(rng)
        verdicts.append(skips_remote_prefill(*case))
        assert verdicts[-1] == _oracle(*case), case
    assert 200 < sum(verdicts) < 800, "the cases must tell the verdicts apart"


@pytest.mark.parametrize(
    ("prompt", "overlap", "skipped"),
    [(1000, 14, True), (100_000, 1000, False), (200, 0, False), (0, 0, True), (500, 10, True)],
    ids=[
        "short and cached",
        "long though mostly cached",
        "short, nothing cached",
        "no prompt",
        "more cached than asked",
    ],
)
def test_by_length_a_prefill_is_skipped_when_it_is_short_and_mostly_cached(
    prompt: int, overlap: int, skipped: bool
) -> None:
    assert skips_remote_prefill(ConditionalRule(), prompt, overlap, 64) is skipped


def test_both_thresholds_of_the_length_are_strict() -> None:
    assert not skips_remote_prefill(ConditionalRule(ratio_threshold=2), 2048, 0, 64)
    assert skips_remote_prefill(ConditionalRule(ratio_threshold=2), 2047, 0, 64)
    assert not skips_remote_prefill(ConditionalRule(ratio_threshold=0.5), 128, 1, 64)
    assert skips_remote_prefill(ConditionalRule(ratio_threshold=0.5), 127, 1, 64)


def test_by_load_a_prefill_is_skipped_when_it_would_queue_and_not_when_the_load_is_unknown() -> None:
    rule = ConditionalRule(policy="prefill_load", prefill_busy_threshold=2.0)
    assert not skips_remote_prefill(rule, 9000, 0, 64, PrefillLoad(4096, 2048))
    assert skips_remote_prefill(rule, 9000, 0, 64, PrefillLoad(4097, 2048))
    assert not skips_remote_prefill(rule, 9000, 0, 64, None)
    assert not skips_remote_prefill(rule, 0, 0, 64, None), "this policy does not look at the prompt"


def test_a_full_decode_engine_vetoes_every_reason_to_skip() -> None:
    rule = ConditionalRule(policy="isl_or_load", prefill_busy_threshold=0.0, decode_busy_threshold=0.5)
    busy = PrefillLoad(1, 2048)
    assert skips_remote_prefill(rule, 100, 1, 64, busy, DecodeLoad(500, 1000))
    assert not skips_remote_prefill(rule, 100, 1, 64, busy, DecodeLoad(501, 1000))


def test_overlap_beyond_the_prompt_leaves_nothing_to_compute() -> None:
    assert effective_isl(500, 10, 64) == 0


def test_a_rule_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="isl_bounding"):
        ConditionalRule(policy="round-robin")  # type: ignore[arg-type]
    for wrong in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="threshold"):
            ConditionalRule(ratio_threshold=wrong)
