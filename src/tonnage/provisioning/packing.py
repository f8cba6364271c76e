"""Where each pod goes before anything is bought, and the plan that comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import Struct

from tonnage.decisions import Launch, Reason, Ref, Wait
from tonnage.provisioning import bought
from tonnage.provisioning.launch import LaunchChoice, choose
from tonnage.provisioning.load import ClaimLoad, Market
from tonnage.provisioning.plans import Nomination, Plan, PlannedClaim, PlanSettings
from tonnage.provisioning.reserving import Reserving


@dataclass(slots=True, eq=False)
class NewNodeClaim:
    """A planned NodeClaim. ``host`` stands for the name that its node will have."""

    load: ClaimLoad
    pods: list[Ref]
    host: str


class Packing(Struct, frozen=True):
    """Where each pod goes, before anything is bought. ``claims`` in the order of planning; ``unplanned`` and ``order``
    as in :class:`Plan`."""

    market: Market
    claims: tuple[NewNodeClaim, ...]
    nominations: tuple[Nomination, ...]
    waits: tuple[Wait, ...]
    unplanned: dict[str, int]
    order: tuple[Ref, ...] = ()
    reserving: Reserving | None = None


def buy(packing: Packing, settings: PlanSettings) -> Plan:
    """Each planned NodeClaim as its cheapest offering. Pods of one that cannot be bought wait."""
    launches: list[Launch] = []
    claims: list[PlannedClaim] = []
    waits = list(packing.waits)
    chosen: dict[object, LaunchChoice | str] = {}
    market = packing.market
    for number, claim in enumerate(packing.claims):
        load, held = claim.load, frozenset[str]()
        if packing.reserving is not None:
            load, held = packing.reserving.settled(number, load)
        same: object = id(load)  # minValues apart, a choice follows from the types and what of them is offered
        if not load.requirements.has_min_values():
            same = (load.types.tobytes(), market.offers.rows(load.requirements), load.template.reservations, held)
        if same not in chosen:
            blocks = packing.reserving.blocks(held) if packing.reserving is not None else frozenset()
            offers, strict = load.market.offers, market.strict_min_values
            chosen[same] = choose(offers, load.requirements, load.types, strict=strict, blocks=blocks)
        choice = chosen[same]
        if isinstance(choice, str):
            reason = Reason(f"NodePool {load.template.name} cannot launch a node: {choice}")
            waits.extend(Wait(pod, reason, "provisioner") for pod in claim.pods)
            continue
        name = f"{load.template.name}-{settings.first_claim + len(claims):05d}"
        reservation = None
        if held and packing.reserving is not None:
            reservation = packing.reserving.chosen(held, choice.offering.instance_type, choice.offering.zone)
        claims.append(bought.planned(Ref("NodeClaim", name), load, claim.pods, choice, reservation))
        launches.append(bought.launch(claims[-1], load, choice))
    waits.sort(key=lambda wait: wait.pod)
    return Plan(
        tuple(launches), tuple(claims), packing.nominations, tuple(waits), packing.unplanned, _placed(packing, waits)
    )


def _placed(packing: Packing, waits: Sequence[Wait]) -> tuple[Ref, ...]:
    waiting = {one.pod for one in waits}
    return tuple(ref for ref in packing.order if ref not in waiting)
