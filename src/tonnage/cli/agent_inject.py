"""`tonnage agent inject`: what happens to simulated cards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tonnage.cli.agent_machine import PATH, simulated_machine
from tonnage.cli.options import Finite, at_option
from tonnage.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tonnage.node.simulated import SimulatedMachine

_LANES = (1, 2, 4, 8, 12, 16)


@click.command()
@click.option("--simulated", required=True, metavar="TYPE", help="The simulated cards: p5.48xlarge, or 2xh100,l4.")
@click.option("--state", type=PATH, required=True, metavar="FILE", help="Where they keep their state.")
@click.option("--card", type=click.IntRange(min=0), required=True, metavar="N", help="The card's index.")
@click.option("--xid", type=click.IntRange(1, 999), metavar="N", help="The driver reports this Xid.")
@click.option("--gpu-instance", type=click.IntRange(min=0), metavar="N", help="Of this GPU instance alone.")
@click.option("--recovery", default="", metavar="ACTION", help="What the driver wants done: gpu-reset, node-reboot, …")
@click.option("--lost", is_flag=True, help="It falls off the bus.")
@click.option(
    "--load", type=Finite(0, 1), metavar="PART", help="No fault: a process uses it for this share of the time."
)
@click.option(
    "--throttle", multiple=True, metavar="REASON", help="No fault: clocks are throttled (sw_power_cap); repeatable."
)
@click.option("--pcie-width", type=click.IntRange(1, 16), metavar="LANES", help="No fault: the link is narrower.")
@click.option("--reboot", is_flag=True, help="No fault: the machine reboots.")
@click.option("--reset", is_flag=True, help="No fault: the card is reset.")
@click.option(
    "--mig", default="", metavar="LAYOUT", help="No fault: MIG on, with 3g.40gb@4,1g.10gb@0; off switches it off."
)
def inject(
    simulated: str,
    state: Path,
    card: int,
    xid: int | None,
    gpu_instance: int | None,
    recovery: str,
    lost: bool,
    load: float | None,
    throttle: tuple[str, ...],
    pcie_width: int | None,
    reboot: bool,
    reset: bool,
    mig: str,
) -> None:
    """Inject an event into a simulated card: a fault, a reset, another MIG layout.

    Other parts of the agent that run on the same --state see it, as they would on real cards. A driver reports an Xid
    once, to the processes that run at that time; --recovery and --lost are reported whenever it is asked.

    \b
    tonnage agent inject --simulated h100 --state cards.json --card 0 --xid 79
    """
    from tonnage.facts import names
    from tonnage.node.devices import GpuProcess, RecoveryAction

    disturbed = bool(throttle) or pcie_width is not None
    faulty = xid is not None or bool(recovery) or lost
    if not (faulty or disturbed or load is not None or reboot or reset or mig):
        raise InputError.at("nothing to inject", hint="give --xid, --recovery, --lost, --reset, --mig or another")
    if gpu_instance is not None and xid is None:
        raise InputError.at("only an Xid is of a GPU instance", field="--gpu-instance", hint="give --xid too")
    cards = simulated_machine(simulated, state, "")
    if card >= len(cards.cards()):
        raise InputError.at(f"{simulated} has {len(cards.cards())} cards", field="--card", hint="the first is 0")
    known = {one.name.lower().replace("_", "-"): one for one in RecoveryAction}
    if recovery and recovery not in known:
        from tonnage.errors import Where

        raise names.unknown("recovery action", recovery, known, where=Where(field="--recovery"))
    _check_disturbance(throttle, pcie_width)
    if mig:
        if not cards.profiles(card):
            hint = "tonnage mig layouts GPU says which have"
            raise InputError.at(
                f"card {card}, of model {cards.cards()[card].gpu}, has no MIG", field="--mig", hint=hint
            )
        with at_option("--mig"):
            _partition(cards, card, mig)
    if reboot:
        cards.reboot()
    if reset:
        cards.reset(card)
    if load is not None:
        cards.occupy(card, [GpuProcess(1, "compute", 1024)] if load else [], load)
    if disturbed:
        cards.disturb(card, throttle=throttle, pcie_width=pcie_width)
    if gpu_instance is not None:
        _check_instance(cards, card, gpu_instance)
    if faulty:
        action = known.get(recovery)
        cards.fault(card, xid=xid, gpu_instance=gpu_instance, recovery=action, lost=lost)


def _check_disturbance(throttle: Sequence[str], pcie_width: int | None) -> None:
    """Raises InputError for what no card says of its clocks or its link."""
    from tonnage.errors import Where
    from tonnage.facts import names
    from tonnage.node.nvml_readings import REASONS

    for reason in throttle:
        if reason not in REASONS.values():
            raise names.unknown("reason", reason, sorted(REASONS.values()), where=Where(field="--throttle"))
    if pcie_width is not None and pcie_width not in _LANES:
        hint = f"expected one of {', '.join(map(str, _LANES))}"
        raise InputError.at(f"no link has {pcie_width} lanes", field="--pcie-width", hint=hint)


def _check_instance(cards: SimulatedMachine, card: int, gpu_instance: int) -> None:
    """Raises InputError for a GPU instance that the card does not have."""
    there = cards.mig(card)
    known = [one.id for one in there.instances] if there is not None else []
    if gpu_instance not in known:
        hint = f"it has {', '.join(map(str, sorted(known)))}" if known else "it has none: --mig makes some"
        raise InputError.at(f"card {card} has no GPU instance {gpu_instance}", field="--gpu-instance", hint=hint)


def _partition(cards: SimulatedMachine, card: int, layout: str) -> None:
    """Bring a card straight to a layout."""
    from tonnage.partitioning import notation

    wanted = None if layout == "off" else notation.layout(layout, cards.cards()[card].gpu, "--mig").layout
    there = cards.mig(card)
    for one in there.instances if there is not None else ():
        if wanted is None or (one.start, one.profile) not in wanted:
            cards.destroy(card, one.id)
    if there is None or there.enabled != (wanted is not None):
        cards.set_mode(card, wanted is not None)
        if cards.needs_reset(card):
            cards.reset(card)
    left = cards.mig(card)
    kept = {(one.start, one.profile) for one in left.instances} if left is not None else set()
    for placed in wanted or ():
        if tuple(placed) not in kept:
            cards.create(card, placed.profile, placed.start)
