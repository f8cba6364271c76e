"""NodeOverlays: other prices and further resources that planning takes instance types to have.

Overlays are taken by weight, then by name, both descending; what one says of an offering or a resource, no lighter one
changes. Two of equal weight that say something of the same are a conflict: the later one has no effect at all. The
feature gate NodeOverlay is taken to be on where there are overlays.

Source: kubernetes-sigs/karpenter pkg/controllers/nodeoverlay, pkg/apis/v1alpha1/nodeoverlay.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tonnage.decisions import Finding, Ref
from tonnage.errors import InputError, Problem
from tonnage.objects import karpenter, load, quantity
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import NO_OFFER, Amounts, Catalogue, TypeMask
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.units import micro_usd


def overlaid(catalogue: Catalogue, overlays: Iterable[karpenter.NodeOverlay]) -> Catalogue:
    """The catalogue as planning sees it under these overlays; those that have no effect are left out.

    Raises :class:`InputError`, with file and line, for a requirement that cannot be read."""
    return _apply(catalogue, list(overlays))[0]


def findings(catalogue: Catalogue, overlays: Iterable[karpenter.NodeOverlay]) -> list[Finding]:
    """What overlays do not do that they say: those in conflict, those that select nothing, and those that depend on
    labels of NodePools, which are not looked at here."""
    return [
        Finding("nodeoverlay-no-effect", "warning", Ref("NodeOverlay", one.name), load.where(one, field), message)
        for one, field, message in _apply(catalogue, list(overlays))[1]
    ]


_Idle = tuple[karpenter.NodeOverlay, str, str]


@dataclass(slots=True)
class _Said:
    """What heavier overlays have said: of which offerings the price (pairs × types), of which resources the amount,
    each with the weight of the overlay; -1: nothing."""

    prices: Amounts
    resources: dict[str, Amounts]


def _apply(catalogue: Catalogue, overlays: Sequence[karpenter.NodeOverlay]) -> tuple[Catalogue, list[_Idle]]:
    if not overlays:
        return catalogue, []
    prices = catalogue.prices.copy()
    extra: dict[str, Amounts] = {}
    said = _Said(np.full_like(prices, -1), {})
    idle: list[_Idle] = []
    for one in sorted(overlays, key=lambda o: (o.spec.weight or 0, o.name), reverse=True):
        requirements = _requirements(one)
        if foreign := [key for key in requirements if key not in labels.well_known() or key == labels.NODE_POOL]:
            idle.append((one, "spec.requirements", f"requirements on {', '.join(foreign)} are not looked at in plans"))
            continue
        if own := [name for name in one.spec.capacity if name in catalogue.column]:
            idle.append((one, f"spec.capacity.{own[0]}", f"machines have {own[0]} themselves: it cannot be changed"))
            continue
        matched = _matched(catalogue, requirements)
        types: TypeMask = np.asarray(matched.any(axis=0))
        if not types.any():
            idle.append((one, "spec.requirements", "no instance type has an offering that meets them"))
            continue
        weight = one.spec.weight or 0
        if clash := list(_clashes(one, matched, types, weight, said)):
            idle.append((one, "spec.weight", f"another overlay of weight {weight} gives {', '.join(clash)} too"))
            continue
        if one.spec.price is not None or one.spec.price_adjustment is not None:
            mine = matched & (said.prices < 0)
            prices[mine] = _adjusted(one, catalogue.prices[mine])
            said.prices[mine] = weight
        for name, written in one.spec.capacity.items():
            amounts = extra.setdefault(name, np.zeros(len(types), dtype=np.int64))
            weights = said.resources.setdefault(name, np.full(len(types), -1, dtype=np.int64))
            mine = types & (weights < 0)
            amounts[mine] = quantity.amount(name, written)
            weights[mine] = weight
    return _with(catalogue, prices, extra), idle


def _requirements(one: karpenter.NodeOverlay) -> Requirements:
    written = []
    for number, each in enumerate(one.spec.requirements):
        try:
            written.append(Requirement.of(each.key, each.operator, each.values))
        except InputError as error:
            where = load.where(one, f"spec.requirements[{number}]")
            raise InputError(*(Problem(where, it.message, it.hint) for it in error.problems)) from None
    return Requirements(written)


def _matched(catalogue: Catalogue, requirements: Requirements) -> TypeMask:
    """Offerings (pairs × types) that the requirements allow."""
    found = np.zeros(catalogue.prices.shape, dtype=np.bool_)
    found[list(catalogue.available().rows(requirements))] = True
    found &= catalogue.prices != NO_OFFER
    found &= catalogue.select(requirements)
    return found


def _clashes(one: karpenter.NodeOverlay, matched: TypeMask, types: TypeMask, weight: int, said: _Said) -> Iterator[str]:
    priced = one.spec.price is not None or one.spec.price_adjustment is not None
    if priced and (said.prices[matched] == weight).any():
        yield "prices"
    for name in one.spec.capacity:
        if name in said.resources and (said.resources[name][types] == weight).any():
            yield name


def _adjusted(one: karpenter.NodeOverlay, prices: Amounts) -> Amounts:
    if one.spec.price is not None:
        return np.full_like(prices, micro_usd(float(one.spec.price)))
    written = one.spec.price_adjustment or "+0"
    if written.endswith("%"):
        found = prices * (1 + float(written[:-1]) / 100)
    else:
        found = prices + float(written) * 1e6
    rounded: Amounts = np.maximum(np.rint(found), 0).astype(np.int64)
    return rounded


def _with(catalogue: Catalogue, prices: Amounts, extra: dict[str, Amounts]) -> Catalogue:
    """The same with these prices and further resources."""
    made = copy.copy(catalogue)
    made.prices = prices
    made.resources = (*catalogue.resources, *extra)
    made.column = {name: at for at, name in enumerate(made.resources)}
    columns = np.array(list(extra.values()), dtype=np.int64).reshape(len(extra), len(catalogue.types)).T
    made.capacity = np.hstack([catalogue.capacity, columns])
    made.allocatable = np.hstack([catalogue.allocatable, columns])
    made.forget()
    return made
