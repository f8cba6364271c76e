"""What planned NodeClaims carry. Claims that took the same pods in the same order share one :class:`ClaimLoad`,
so that a question is answered once for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tonnage.fleet.asks import NOTHING, Ask, Kind
from tonnage.fleet.ports import Port, clash
from tonnage.objects import selectors
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Amounts, Catalogue, Offers, TypeMask
from tonnage.provisioning.devices import FreeDevices, Mask
from tonnage.provisioning.launch import short_of_values
from tonnage.provisioning.pods import RelaxationStep
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.provisioning.template import ALL_EFFECTS, PoolTemplate


@dataclass(frozen=True, slots=True, eq=False)
class Market:
    """What can be launched now, and whether minValues is binding."""

    catalogue: Catalogue
    offers: Offers
    strict_min_values: bool = True


@dataclass(slots=True, eq=False)
class Stage:
    """A class of pods at one step of relaxing.

    ``amounts`` are the requests by name, ``requests`` the same as a row of the catalogue; ``unknown`` are
    requested resources that no instance type has; ``ask`` is what the pod wants of devices; ``ports`` those of the node
    that it takes. ``moved``: it is on a node that may be taken back. ``columns``: of the catalogue, those of
    ``requests``.
    """

    id: int
    step: RelaxationStep
    amounts: dict[str, int]
    requests: Amounts
    unknown: tuple[str, ...]
    ask: Ask = NOTHING
    ports: tuple[Port, ...] = ()
    moved: bool = False
    columns: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.columns = tuple(np.flatnonzero(self.requests).tolist())


@dataclass(slots=True, eq=False)
class ClaimLoad:
    """The pods of a planned NodeClaim taken together: requirements, summed requests, types that still fit.

    ``devices``: those of the types with what the pods have of them; None while it is whole ones that count.
    ``choices``: the ways to partition GPUs (rows, :class:`NewNodeDevices`) that still fit, of each type (columns).
    ``asked``: the resources of devices that its pods ask for, where there are several ways. ``ports``: those that
    its pods take.
    """

    market: Market
    template: PoolTemplate
    requirements: Requirements
    types: TypeMask
    requests: Amounts
    choices: Mask
    pods: int = 0
    devices: FreeDevices | None = None
    asked: frozenset[str] = frozenset()
    ports: tuple[Port, ...] = ()
    _joined: dict[tuple[int, tuple[Requirement, ...]], ClaimLoad | None] = field(default_factory=dict)
    _wanted: dict[int, Requirements | None] = field(default_factory=dict)

    @classmethod
    def empty(cls, market: Market, template: PoolTemplate, types: TypeMask) -> ClaimLoad:
        """A NodeClaim of this NodePool without pods, with these types to choose from."""
        nothing = np.zeros(len(market.catalogue.resources), dtype=np.int64)
        choices = template.machines.allowed(template.requirements)
        buyable = types & market.offers.open_to(template.requirements) & choices.any(axis=0)
        requirements = template.requirements.merged(template.taken_for_granted)
        return cls(market, template, requirements, buyable, nothing, choices)

    def wanted(self, stage: Stage) -> Requirements | None:
        """Its requirements with such a pod's, or ``None`` if taints or labels keep the pod off."""
        if stage.id not in self._wanted:
            self._wanted[stage.id] = self._with(stage)
        return self._wanted[stage.id]

    def join(self, stage: Stage, narrowed: tuple[Requirement, ...] = ()) -> ClaimLoad | None:
        """The load with one more pod, or ``None`` if the NodeClaim cannot take it. ``narrowed``: what rules about other
        pods leave of its labels."""
        wanted = self.wanted(stage) if narrowed else None
        if wanted is not None and all(wanted.get(one.key) == one for one in narrowed):
            narrowed = ()
        key = (stage.id, narrowed)
        if key not in self._joined:
            self._joined[key] = self._join(stage, narrowed)
        return self._joined[key]

    def largest(self) -> Amounts:
        """Per resource, the capacity of the largest remaining type: what limits are charged."""
        most: Amounts = self.template.capacity[self.types].max(axis=0)
        return most

    def _with(self, stage: Stage) -> Requirements | None:
        step = stage.step
        if selectors.untolerated(self.template.taints, step.tolerations, ALL_EFFECTS) is not None:
            return None
        incoming = step.requirements
        host = incoming.get(labels.HOSTNAME)
        if host is not None:  # of a new node nobody knows the name, so only what excludes names can hold
            if not host.complement or host.gte is not None or host.lte is not None:
                return None
            incoming = incoming.without((labels.HOSTNAME,))
        if not self.requirements.compatible(incoming, labels.well_known()):
            return None
        return self.requirements.merged(incoming)

    def _join(self, stage: Stage, narrowed: tuple[Requirement, ...]) -> ClaimLoad | None:
        template, catalogue = self.template, self.market.catalogue
        requirements = self.wanted(stage)
        if stage.unknown or requirements is None or clash(stage.ports, self.ports):
            return None
        if narrowed:
            extra = Requirements(narrowed)
            if not requirements.compatible(extra, labels.well_known()):
                return None
            requirements = requirements.merged(extra)
        requests = self.requests + stage.requests
        if self.pods:  # its types hold what it has: what the pod asks for may be too much for them, and nothing else
            types = self.types.copy()
            for column in stage.columns:
                types &= template.columns[column] >= requests[column]
        else:
            types = self.types & (template.free >= requests).all(axis=1)
        for runs_on, taken in template.ports:
            if clash(stage.ports, taken):
                types &= ~runs_on
        choices, asked = self.choices, self.asked
        if requirements is not self.requirements:
            types &= catalogue.select(requirements.changed(self.requirements))
            types &= self.market.offers.open_to(requirements)
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
        short = {}
        if requirements.has_min_values():
            short = short_of_values(catalogue, requirements, np.flatnonzero(types))
        if short and (self.pods or self.market.strict_min_values):
            return None
        requirements = requirements.with_min_values(short)
        ports = self.ports + stage.ports
        pods = self.pods + 1
        return ClaimLoad(self.market, template, requirements, types, requests, choices, pods, devices, asked, ports)

    def layout(self, index: int) -> int:
        """In which of the ways that fit a node of the type with this index is cut: that which offers the most of what
        the pods ask, so that it holds more of them."""
        choices = [int(at) for at in np.flatnonzero(self.choices[:, index])]
        return self.template.machines.best(choices, index, self.asked)


def device_resources(ask: Ask) -> frozenset[str]:
    """The resources of devices that a pod asks for."""
    return frozenset(name for name in (ask.resource, *(name for name, _ in ask.profiles)) if name)
