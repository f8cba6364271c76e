"""The setup in which PagedAttention was measured, as far as it is published.

Source: Kwon et al., SOSP 2023. Table 1: OPT-13B on an A100 with 40 GB, 12 GB of KV cache, 15.7 thousand token slots.
Section 6.1 and figure 11: longest sequence 2,048 tokens; mean prompt and output 161.31 and 337.99 tokens (ShareGPT),
19.31 and 58.45 (Alpaca). Of the lengths only the means are published as numbers, so they are drawn here from geometric
distributions with these means, which assume nothing more; sequences over 2,048 tokens are drawn again. Limits: the
defaults of vLLM 0.1 (engine/arg_utils.py).
"""

from __future__ import annotations

from math import ceil, log, log1p
from random import Random
from typing import Final

from tonnage.facts import gpus
from tonnage.inference.estimate import EstimatedTiming, Replica
from tonnage.inference.estimate.shapes import plain_shape
from tonnage.inference.paged.contiguous import Sized
from tonnage.inference.paged.schemes import PagedEngine
from tonnage.units import NS_PER_S

KV_TOKENS = 15_700
LONGEST = 2_048
MEANS: Final = {"sharegpt": (161.31, 337.99), "alpaca": (19.31, 58.45)}
"""Mean tokens of prompt and output, by workload."""

OPT_13B = plain_shape(
    name="facebook/opt-13b",
    params=12_853_473_280,
    layers=40,
    hidden=5120,
    heads=40,
    vocab=50272,
    context_tokens=LONGEST,
    source="config.json of facebook/opt-13b; parameters of the published checkpoint",
)


def paper_setting() -> PagedEngine:
    """OPT-13B on one A100 with 40 GB."""
    return PagedEngine(
        kv_tokens=KV_TOKENS,
        max_model_len=LONGEST,
        max_num_batched_tokens=2560,
        max_num_seqs=256,
        timing=EstimatedTiming(Replica(OPT_13B, gpus.get("a100-40"))),
    )


def paper_requests(workload: str, count: int, random: Random) -> list[Sized]:
    """``count`` requests of ``workload`` (a key of MEANS), Poisson arrivals in ns at one a second."""
    means = MEANS[workload]
    made: list[Sized] = []
    arrival = 0
    while len(made) < count:
        prompt, output = (_geometric(mean, random) for mean in means)
        if prompt + output <= LONGEST:
            arrival += round(random.expovariate(1.0) * NS_PER_S)
            made.append(Sized(arrival, prompt, output))
    return made


def _geometric(mean: float, random: Random) -> int:
    """1 or more, by inversion."""
    return max(1, ceil(log(1.0 - random.random()) / log1p(-1.0 / mean)))
