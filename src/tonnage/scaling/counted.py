"""A sum of counters, read again and again, without what is no arrival: a counter that begins again, or that is not
scraped for a while and then is.

The sum falls when one of its counters goes, and rises by all that this one has ever counted when it comes back: the
replicas for such a surge would be all that are allowed. So after a fall the history begins again, and for each fall two
rises (one counter may go while another comes) are not believed that are more than chance makes of the rate before. A
counter that begins again twice within two readings may be no smaller than before, and hides what came in between: so
little is not believed either just after a fall.
"""

from __future__ import annotations

from math import sqrt
from typing import TypeAlias

from tonnage.units import NS_PER_S

Counts: TypeAlias = tuple[tuple[int, float], ...]
"""(time in ns, requests received), oldest first."""

DOUBT_NS = 600 * NS_PER_S
"""How long after a fall a counter may come back."""

HIDDEN_NS = 50 * NS_PER_S
"""How long after a fall another may hide."""

BEYOND_CHANCE = 6.0
"""Standard deviations of a count by which a rise differs that is not believed."""


def continued(
    counts: Counts, falls: tuple[int, ...], rate: float | None, now_ns: int, received: float
) -> tuple[Counts, tuple[int, ...]]:
    """The history with what is read now, and the times of falls, one for each rise that is not believed yet.

    ``rate``: requests/s that came before, where it is known."""
    falls = tuple(at for at in falls if at > now_ns - DOUBT_NS)
    if counts and received < counts[-1][1]:
        return ((now_ns, received),), (*falls, now_ns, now_ns)
    if counts and falls and rate is not None:
        rise, expected = received - counts[-1][1], rate * (now_ns - counts[-1][0]) / NS_PER_S
        chance = BEYOND_CHANCE * sqrt(max(expected, 1.0))
        if rise > expected + chance:
            return ((now_ns, received),), falls[1:]
        if rise < expected - chance and falls[-1] > now_ns - HIDDEN_NS:
            return ((now_ns, received),), falls
    return (*counts, (now_ns, received)), falls
