"""What the PagedAttention paper says, beside what was measured here.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", SOSP 2023
(arXiv 2309.06180). 60 to 80 %: figure 2, of the KV memory 20.4 % (max), 26.8 % (power of two) and 38.2 % (exact) hold
tokens. Under 4 %: figure 2, 96.3 % hold tokens in vLLM. Two to four times: the abstract's throughput; the batch is
2.2 times that of Orca with exact and 4.3 times that of Orca with maximal reservation (section 6.2, ShareGPT).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

_WASTE_LEAST, _WASTE_MOST = 0.6, 0.8
_PAGED_WASTE = 0.04
_GAIN_LEAST, _GAIN_MOST = 2.0, 4.0
_NAMES = {"max": "max length", "pow2": "power of two", "exact": "exact"}


class CheckedClaim(msgspec.Struct, frozen=True):
    """``verdict``: ``holds``; ``exceeded`` where more was measured than is claimed; ``does not hold``; ``not
    measured`` where memory was never the limit."""

    claim: str
    claimed: str
    measured: str
    verdict: str


def claims(
    results: Sequence[tuple[str, int, Mapping[str, float | None]]], baseline_block: int
) -> tuple[CheckedClaim, ...]:
    """The claims on ``results``: (kind, block size, measures ``wasted`` 0 to 1, ``batch``, ``rate``) of each scheme.

    A measure is None where memory was never the limit: then it says nothing of how memory is given out.
    """
    contiguous = [(kind, measures) for kind, _, measures in results if kind != "paged"]
    paged = next((m for kind, size, m in results if kind == "paged" and size == baseline_block), None)
    found = [
        _within(f"wasted, contiguous, {_NAMES[kind]}", measures["wasted"], _WASTE_LEAST, _WASTE_MOST, share=True)
        for kind, measures in contiguous
    ]
    if paged is None:
        return tuple(found)
    found.append(_below(f"wasted, paged, blocks of {baseline_block}", paged["wasted"], _PAGED_WASTE))
    for what, title in (("batch", "batch"), ("rate", "throughput")):
        for kind, measures in contiguous:
            name = f"{title}, paged over contiguous, {_NAMES[kind]}"
            found.append(_within(name, _ratio(paged[what], measures[what]), _GAIN_LEAST, _GAIN_MOST, share=False))
    return tuple(found)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def _within(claim: str, value: float | None, least: float, most: float, *, share: bool) -> CheckedClaim:
    claimed = f"{least:.0%} to {most:.0%}" if share else f"{least:.0f}x to {most:.0f}x"
    if value is None:
        return CheckedClaim(claim, claimed, "-", "not measured")
    verdict = "does not hold" if value < least else "exceeded" if value > most else "holds"
    return CheckedClaim(claim, claimed, f"{value:.1%}" if share else f"{value:.2f}x", verdict)


def _below(claim: str, value: float | None, limit: float) -> CheckedClaim:
    claimed = f"below {limit:.0%}"
    if value is None:
        return CheckedClaim(claim, claimed, "-", "not measured")
    return CheckedClaim(claim, claimed, f"{value:.1%}", "holds" if value < limit else "does not hold")
