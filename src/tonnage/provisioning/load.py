"""What planned NodeClaims carry. Claims that took the same pods in the same order share one :class:`Load`,
so that a question is answered once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tonnage.fleet.asks import NOTHING, Ask, Kind
from tonnage.objects import selectors
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Amounts, Catalogue, Offers, TypeMask
from tonnage.provisioning.devices import Devices, Mask
from tonnage.provisioning.launch import short_of_values
from tonnage.provisioning.pods import Step
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import ALL_EFFECTS, Template


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """What can be launched now, and whether minValues is binding."""

    catalogue: Catalogue
    offers: Offers
    strict_min_values: bool = True


@dataclass(slots=True, eq=False)
class Stage:
    """A class of pods at one step of relaxing, with how far it has been refused already.

    ``amounts`` are the requests by name, ``requests`` the same as a row of the catalogue; ``unknown`` are
    requested resources that no instance type has; ``ask`` is what the pod wants of devices. ``node`` is the
    first existing node, and ``claims`` the heap of planned NodeClaims (by order of trial) among the first
    ``seen``, that may still take such a pod.
    """

    id: int
    step: Step
    amounts: dict[str, int]
    requests: Amounts
    unknown: tuple[str, ...]
    ask: Ask = NOTHING
    node: int = 0
    claims: list[tuple[int, int, int]] = field(default_factory=list)
    seen: int = 0


@dataclass(slots=True, eq=False)
class Load:
    """The pods of a planned NodeClaim taken together: requirements, summed requests, types that still fit.

    ``devices``: those of the types with what the pods have of them; None while it is whole ones that count.
    ``choices``: the ways to partition GPUs (rows, :class:`Machines`) that still fit, of each type (columns). ``asked``:
    the resources of devices that its pods ask for, where there are several ways."""

    market: Market
    template: Template
    requirements: Requirements
    types: TypeMask
    requests: Amounts
    choices: Mask
    pods: int = 0
    devices: Devices | None = None
    asked: frozenset[str] = frozenset()
    _joined: dict[int, Load | None] = field(default_factory=dict)

    @classmethod
    def empty(cls, market: Market, template: Template, types: TypeMask) -> Load:
        """A NodeClaim of this NodePool without pods, with these types to choose from."""
        nothing = np.zeros(len(market.catalogue.resources), dtype=np.int64)
        choices = template.machines.allowed(template.requirements)
        buyable = types & market.offers.open_to(template.requirements) & choices.any(axis=0)
        return cls(market, template, template.requirements, buyable, nothing, choices)

    def join(self, stage: Stage) -> Load | None:
        """The load with one more pod, or ``None`` if the NodeClaim cannot take it."""
        if stage.id not in self._joined:
            self._joined[stage.id] = self._join(stage)
        return self._joined[stage.id]

    def largest(self) -> Amounts:
        """Per resource, the capacity of the largest remaining type: what limits are charged."""
        most: Amounts = self.template.capacity[self.types].max(axis=0)
        return most

    def _join(self, stage: Stage) -> Load | None:
        template, step = self.template, stage.step
        if stage.unknown or selectors.untolerated(template.taints, step.tolerations, ALL_EFFECTS) is not None:
            return None
        if not self.requirements.compatible(step.requirements, labels.well_known()):
            return None
        requirements = self.requirements.merged(lasting(step.requirements, self.requirements))
        requests = self.requests + stage.requests
        catalogue = self.market.catalogue
        types = self.types & (template.free >= requests).all(axis=1)
        choices, asked = self.choices, self.asked
        if requirements != self.requirements:
            types &= catalogue.select(requirements) & self.market.offers.open_to(requirements)
            choices = choices & template.machines.allowed(requirements)
            types &= choices.any(axis=0)
        if not types.any():
            return None
        devices = self.devices
        if stage.ask.kind is not Kind.NONE and (devices is not None or template.parts(stage.ask)):
            before = devices or template.machines.held(catalogue.column, self.requests, choices & types)
            devices, choices = template.machines.joined(before, stage.ask, stage.amounts, choices & types)
            types &= choices.any(axis=0)
            if not types.any():
                return None
        if len(choices) > 1:
            asked = asked | device_resources(stage.ask)
        if self.market.strict_min_values and short_of_values(catalogue, requirements, np.flatnonzero(types)):
            return None
        return Load(self.market, template, requirements, types, requests, choices, self.pods + 1, devices, asked)

    def layout(self, index: int) -> int:
        """In which of the ways that fit a node of the type with this index is cut: that which offers the most of what
        the pods ask, so that it holds more of them."""
        choices = [int(at) for at in np.flatnonzero(self.choices[:, index])]
        return self.template.machines.best(choices, index, self.asked)


def device_resources(ask: Ask) -> frozenset[str]:
    """The resources of devices that a pod asks for."""
    return frozenset(name for name in (ask.resource, *(name for name, _ in ask.profiles)) if name)


def lasting(incoming: Requirements, own: Requirements) -> Requirements:
    """The part of a pod's requirements that binds the NodeClaim: not the custom labels whose absence it
    accepts and that the NodePool does not set.
    """
    known = labels.well_known()
    return Requirements(
        requirement for key, requirement in incoming.items() if key in own or key in known or not requirement.absent
    )
