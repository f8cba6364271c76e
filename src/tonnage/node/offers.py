"""What a device plugin offers of a machine's cards: devices by resource, and which of them a container should get.

Names and counts follow the rules of :mod:`tonnage.partitioning.labels`. Source of ids and of the scores of pairs:
NVIDIA/k8s-device-plugin v0.20.0 internal/rm, go-gpuallocator besteffort_policy.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from msgspec import Struct

from tonnage.facts.labels import GPU
from tonnage.node.devices import Ancestor, Devices, Link
from tonnage.node.features import seen_cards
from tonnage.partitioning.device_plugin import Sharing
from tonnage.partitioning.labels import invalid, resources_of
from tonnage.partitioning.mps import too_many

_SCORES = {
    Ancestor.SYSTEM: 10,
    Ancestor.NODE: 20,
    Ancestor.HOSTBRIDGE: 30,
    Ancestor.MULTIPLE: 40,
    Ancestor.SINGLE: 50,
    Ancestor.INTERNAL: 60,
}
_NVLINK = 100
_MOST_SETS = 20_000
"""Sets of devices that are all looked at; beyond it devices are added one by one."""


class OfferedDevice(Struct, frozen=True):
    """One device as the kubelet knows it. ``uuid``: of the card or MIG device; ``index``: as in ``0`` or ``0:1``;
    ``replica``: None where it is not shared. ``part``: of the MIG device its GPU instance and compute instance."""

    id: str
    uuid: str
    index: str
    card: int
    gpu_uuid: str
    numa: int | None = None
    replica: int | None = None
    part: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """``resources``: devices by the name that they are offered under. ``problems``: why something is not offered."""

    resources: Mapping[str, tuple[OfferedDevice, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


def offer(devices: Devices, strategy: str, sharing: Sharing) -> NodeOffer:
    """Everything that the node offers now. Raises InputError where the driver fails."""
    cards = seen_cards(devices)
    why = invalid(cards) if strategy == "single" else ""
    if why:
        return NodeOffer({}, (f"strategy single: {why}; nothing is offered",))
    if sharing.strategy == "mps":
        why = too_many([card.gpu for card in cards if card.gpu], sharing.replicas(GPU))
        if why:
            return NodeOffer({}, (f"{why}; nothing is offered",))
    found: dict[str, list[OfferedDevice]] = {}
    for one, card in zip(devices.cards(), cards, strict=True):
        own = OfferedDevice(one.uuid, one.uuid, str(one.index), one.index, one.uuid, one.numa)
        if card.profiles is None or strategy == "none":
            parts = [own]
        else:
            state = devices.mig(one.index)
            parts = [
                OfferedDevice(
                    each.compute[0].uuid,
                    each.compute[0].uuid,
                    f"{one.index}:{at}",
                    one.index,
                    one.uuid,
                    one.numa,
                    None,
                    (each.id, each.compute[0].id),
                )
                for at, each in enumerate(state.instances if state is not None else ())
                if len(each.compute) == 1
            ]
        for resource, part in zip(resources_of(card, strategy), parts, strict=False):
            replicas = sharing.replicas(resource)
            shared = [part] if replicas < 2 else [_replica(part, number) for number in range(replicas)]
            found.setdefault(sharing.advertised(resource), []).extend(shared)
    return NodeOffer({name: tuple(found[name]) for name in sorted(found)})


def _replica(one: OfferedDevice, number: int) -> OfferedDevice:
    return OfferedDevice(f"{one.id}::{number}", one.uuid, one.index, one.card, one.gpu_uuid, one.numa, number, one.part)


def preferred(
    known: Mapping[str, OfferedDevice],
    available: Collection[str],
    must: Sequence[str],
    size: int,
    links: Sequence[Link] = (),
    *,
    packed: bool = False,
) -> list[str]:
    """The ``size`` devices that suit one container best, with all of ``must`` among them; fewer where there are fewer.

    Whole cards: those that reach each other fastest, then those that leave the others so. Replicas and MIG devices: on
    different cards first, and of equals on the card with the most left; ``packed``: with the least."""
    order = list(known)
    free = sorted((one for one in available if one in known), key=order.index)
    chosen = [one for one in must if one in known]
    rest = [one for one in free if one not in chosen]
    missing = min(size - len(chosen), len(rest))
    if missing <= 0:
        return chosen[:size]
    if any(known[one].replica is not None or known[one].part is not None for one in (*chosen, *rest)):
        return _spread(known, chosen, rest, missing, packed=packed)
    between = {(link.a, link.b): _score(link) for link in links}

    def score(ids: Sequence[str]) -> int:
        cards = sorted(known[one].card for one in ids)
        return sum(between.get(pair, 0) for pair in combinations(cards, 2))

    if comb(len(rest), missing) <= _MOST_SETS:
        sets = combinations(rest, missing)
        best = max(sets, key=lambda more: (score([*chosen, *more]), score([one for one in rest if one not in more])))
        return [*chosen, *best]
    while missing:
        nearest = max(rest, key=lambda one: score([*chosen, one]))
        chosen.append(nearest)
        rest.remove(nearest)
        missing -= 1
    return chosen


def _score(link: Link) -> int:
    level = 0 if link.ancestor is None else _SCORES[link.ancestor]
    return level + _NVLINK * (link.nvlinks + link.switched)


def _spread(
    known: Mapping[str, OfferedDevice], chosen: list[str], rest: list[str], missing: int, *, packed: bool
) -> list[str]:
    left = Counter(known[one].card for one in rest)
    taken = Counter(known[one].card for one in chosen)
    sign = 1 if packed else -1
    for _ in range(missing):
        best = min(rest, key=lambda one: (taken[known[one].card], sign * left[known[one].card], rest.index(one)))
        chosen.append(best)
        rest.remove(best)
        left[known[best].card] -= 1
        taken[known[best].card] += 1
    return chosen
