"""What `tonnage share` prints for people: at most 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tonnage.cli import terminal
from tonnage.cli.lines import say, show_table
from tonnage.partitioning.share import FilledGpus, Question, Way, cost, offers, reasons
from tonnage.simulation.report import formats

_HEAD = ("Way", "GPUs", "$/hour", "bought", "idle", "slower", "kept", "isolation")


def show(asked: Question, found: Sequence[Way], best: Way | None) -> None:
    """A row a way; then why some do not work, who is where, and the recommendation."""
    count = sum(one.count for one in asked.workloads)
    processes = f"{count} process{'es' if count != 1 else ''}"
    _say(f"{processes} on {asked.gpu.name}, load {asked.load:,.1f} GPUs; {_price(asked)}")
    terminal.echo()
    rows = [_HEAD, *(_row(way) for way in found if not way.why)]
    if len(rows) > 1:
        show_table(rows, (0, len(_HEAD) - 1))
    for way in found:
        if way.why:
            _say(f"{way.name}: no, {way.why}")
    terminal.echo()
    if best is None:
        _say("No option meets the requirements.")
        return
    for way in found:
        if way is best or (way.name in ("mig", "smaller") and not way.why):
            _say(f"{way.name}: {_cards(asked, way)}")
    terminal.echo()
    _say(f"Recommended: {best.name}" + (f" ({best.setting})" if best.setting else ""))
    for line in reasons(asked, found, best):
        _say(f"- {line}")


def _row(way: Way) -> tuple[str, ...]:
    parts = (way.isolation.memory, way.isolation.fault, way.isolation.speed)
    return (
        way.name,
        str(way.gpus),
        formats.dollars(way.hourly),
        formats.dollars(way.bought),
        f"{1 - way.busy:.0%}",
        f"{way.slowest:.3g}x",
        f"{way.kept:.0%}",
        "/".join(parts),
    )


def _price(asked: Question) -> str:
    of = offers(asked.prices).get(asked.gpu.name.partition(":")[0], ())
    one = cost(of, 1)
    if one is None:
        return "no price known"
    many = f"{of[0].instance} with {of[0].gpus}" if of[0].gpus > 1 else of[0].instance
    return f"{formats.dollars(one[0])} per hour and card ({many})"


def _cards(asked: Question, way: Way) -> str:
    """Like: 2 × a100-80 with 4 chat (25%), …"""
    return ", ".join(f"{card.count} x {card.gpu} with {_holds(asked, card)}" for card in way.cards)


def _holds(asked: Question, card: FilledGpus) -> str:
    counts = Counter(
        asked.workloads[i].name + (f" ({got.piece})" if got.piece and got.piece != card.gpu else "")
        for i, got in zip(card.holds, card.got, strict=True)
    )
    return " + ".join(f"{n} {name}" for name, n in counts.items())


def _say(text: str) -> None:
    say(text, "  ")
