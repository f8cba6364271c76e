"""A NodePool made ready for planning: its requirements, and what each instance type has left once its
DaemonSets run.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field

from tonnage.errors import InputError, Problem
from tonnage.facts.labels import EC2_NODE_CLASS, GPU
from tonnage.fleet.asks import Ask
from tonnage.fleet.ports import Port
from tonnage.objects import core, karpenter, load, quantity, selectors
from tonnage.partitioning.node_cuts import CHOICES, OWN, STATED, Configurations
from tonnage.provisioning import labels
from tonnage.provisioning.auto_mode import granted as auto_granted
from tonnage.provisioning.auto_mode import is_auto
from tonnage.provisioning.catalogue import Amounts, Catalogue, TypeMask
from tonnage.provisioning.devices import NewNodeDevices, beyond_counting
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.provisioning.pods import PodShape, strict_requirements
from tonnage.provisioning.requirements import Requirement, Requirements

ALL_EFFECTS = (*selectors.HARD_EFFECTS, "PreferNoSchedule")
"""Karpenter treats PreferNoSchedule as binding until a pod has been relaxed that far."""


class PoolTemplate(Struct, frozen=True, eq=False):
    """What nodes of one NodePool are like.

    ``requirements``: the NodePool's, with its labels and its name as further requirements. ``types``:
    instance types that meet them. ``free`` and ``daemons`` (types × resources): allocatable left for pods,
    and what DaemonSets take. ``capacity`` is charged against ``limits``. ``ports``: of the node, that DaemonSets take
    where they run. ``taken_for_granted``: labels that every node of the NodePool has once it is there, which pods may
    ask for and no NodeClaim says. ``auto``: EKS Auto Mode launches its nodes. ``columns``: ``free`` by resource.
    ``reservations``: the capacity reservations that its nodes may be launched in.
    """

    name: str
    weight: int
    requirements: Requirements
    labels: dict[str, str]
    taints: tuple[core.Taint, ...]
    startup_taints: tuple[core.Taint, ...]
    limits: dict[str, int]
    types: TypeMask
    capacity: Amounts
    free: Amounts
    daemons: Amounts
    machines: NewNodeDevices
    ports: tuple[tuple[TypeMask, tuple[Port, ...]], ...] = ()
    taken_for_granted: Requirements = field(default_factory=Requirements)
    auto: bool = False
    columns: tuple[Amounts, ...] = ()
    reservations: frozenset[str] = frozenset()

    def parts(self, ask: Ask) -> bool:
        """Whether it takes more than counting to see which new nodes give this."""
        return beyond_counting(ask) or self.machines.cut

    def allocatable(self, index: int, catalogue: Catalogue, layout: int = 0) -> dict[str, int]:
        """What a new node of the type with this index, cut in this way, has for pods and DaemonSets, parts of its
        devices included."""
        found = catalogue.as_map(self.free[index] + self.daemons[index])
        if not self.machines.cut:
            return found
        found.pop(GPU, None)
        return {**found, **self.machines.outfits[layout][index].allocatable}

    def within(self, remaining: dict[str, int], catalogue: Catalogue) -> TypeMask:
        """Types whose whole capacity does not exceed what remains of the limits."""
        mask = self.types.copy()
        for resource, left in remaining.items():
            column = catalogue.column.get(resource)
            if column is None:
                continue
            mask &= self.capacity[:, column] <= left
        return mask


def compile_pool(
    pool: karpenter.NodePool,
    catalogue: Catalogue,
    daemon_sets: Sequence[PodShape] = (),
    storage: NodeStorage | None = None,
    configurations: Configurations = OWN,
) -> PoolTemplate:
    """The template of one NodePool. ``storage`` is that of its EC2NodeClass (EC2's default volume when not
    known), ``configurations`` are those that labels of its nodes may name.
    """
    spec = pool.spec.template.spec
    own_labels = {**pool.spec.template.metadata.labels, labels.NODE_POOL: pool.metadata.name}
    requirements = pool_requirements(pool)
    taints = tuple(spec.taints)
    capacity, allocatable = catalogue.with_storage(storage or NodeStorage())
    types = _types(catalogue, requirements)
    ways = [{**own_labels, **one} for one in layouts_of(requirements)]
    machines = NewNodeDevices(catalogue.types, types, ways, configurations)
    if machines.cut and GPU in catalogue.column:
        allocatable = allocatable.copy()
        allocatable[:, catalogue.column[GPU]] = machines.most(GPU)
    granted = Requirements.of_labels(
        {labels.REGISTERED: "true", labels.INITIALIZED: "true", EC2_NODE_CLASS: spec.node_class_ref.name}
    )
    if is_auto(pool):
        granted = granted.without((EC2_NODE_CLASS,)).merged(auto_granted().without(requirements))
    daemons = np.zeros_like(allocatable)
    ports = []
    for shape in daemon_sets:
        runs_on = _daemon_types(shape, requirements, granted, taints, catalogue)
        daemons[runs_on] += catalogue.amounts({"pods": 1, **shape.requests})
        if shape.host_ports:
            ports.append((runs_on, shape.host_ports))
    return PoolTemplate(
        name=pool.metadata.name,
        weight=pool.spec.weight or 0,
        requirements=requirements,
        labels=own_labels,
        taints=taints,
        startup_taints=tuple(spec.startup_taints),
        limits=limits_of(pool),
        types=types,
        capacity=capacity,
        free=allocatable - daemons,
        daemons=daemons,
        machines=machines,
        ports=tuple(ports),
        taken_for_granted=granted,
        auto=is_auto(pool),
        reservations=storage.reservations if storage is not None else frozenset(),
        columns=tuple(np.ascontiguousarray(allocatable[:, at] - daemons[:, at]) for at in range(allocatable.shape[1])),
    )


def layouts_of(requirements: Requirements) -> list[dict[str, str]]:
    """The labels of each way to cut GPUs that a NodePool with these requirements offers, by name: every combination of
    the values that it lists. Where it lists none, or several of the strategy, nodes do without the label."""
    listed: list[list[tuple[tuple[str, str], ...]]] = []
    for key in STATED:
        one = requirements.get(key)
        values = sorted(one.values) if one is not None and not one.complement else []
        values = values if key in CHOICES or len(values) == 1 else []
        without = [()] if one is None or one.absent or not values else []
        listed.append([*without, *(((key, value),) for value in values)])
    return [dict(itertools.chain.from_iterable(chosen)) for chosen in itertools.product(*listed)]


def _types(catalogue: Catalogue, requirements: Requirements) -> TypeMask:
    """Types that meet the requirements. Two that contradict each other on a label of the user's leave no node with that
    label, which is not looked at here.
    """
    return catalogue.select(requirements)


def pool_requirements(pool: karpenter.NodePool) -> Requirements:
    """A NodePool's requirements with its template's labels and its own name.

    Raises :class:`InputError`, with file and line, for a requirement that cannot be read.
    """
    template = pool.spec.template
    written = []
    for i, one in enumerate(template.spec.requirements):
        try:
            written.append(Requirement.of(one.key, one.operator, one.values, one.min_values))
        except InputError as error:
            where = load.where(pool, f"spec.template.spec.requirements[{i}]")
            raise InputError(*(Problem(where, it.message, it.hint) for it in error.problems)) from None
    own_labels = {**template.metadata.labels, labels.NODE_POOL: pool.metadata.name}
    return Requirements(written).merged(Requirements.of_labels(own_labels))


def limits_of(pool: karpenter.NodePool) -> dict[str, int]:
    """A NodePool's limits: cpu in millicores, memory and storage in bytes, all else in units.

    Raises :class:`InputError`, with file and line, for a quantity that cannot be read.
    """
    limits = {}
    for resource, written in pool.spec.limits.items():
        try:
            limits[resource] = quantity.amount(resource, written)
        except ValueError as error:
            raise InputError(Problem(load.where(pool, f"spec.limits.{resource}"), str(error))) from None
    return limits


def _daemon_types(
    shape: PodShape,
    requirements: Requirements,
    granted: Requirements,
    taints: Sequence[core.Taint],
    catalogue: Catalogue,
) -> TypeMask:
    """Types of the pool on which this DaemonSet runs; its preferences and PreferNoSchedule taints do not
    matter. ``granted``: labels that its nodes have though it does not name them.
    """
    runs_on = np.zeros(len(catalogue.types), dtype=np.bool_)
    if selectors.untolerated(taints, shape.tolerations, selectors.HARD_EFFECTS) is not None:
        return runs_on
    for wanted in strict_requirements(shape):
        if requirements.merged(granted).compatible(wanted, labels.well_known()):
            runs_on |= catalogue.select(requirements.merged(wanted))
    return runs_on
