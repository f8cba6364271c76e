"""Node groups as NodePools, so that the one planner plans for both.

A group cannot be told which of its instance types and zones comes next. Its NodePool therefore offers one type alone,
and of that only what every type of the group has: what is planned on the node fits whichever machine comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tonnage.decisions import Launch, Reason, Ref
from tonnage.objects import core, karpenter
from tonnage.objects.base import ObjectMeta
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import EPHEMERAL_STORAGE, NO_OFFER, NODES, Catalogue
from tonnage.provisioning.node_groups import MIXED, NodeGroup, node_labels
from tonnage.provisioning.nodeclass import EVICTION_PERCENT, KUBE_RESERVED_STORAGE, NodeStorage
from tonnage.provisioning.pods import PodShape
from tonnage.provisioning.template import compile_pool

NODE_GROUP = "NodeGroup"
"""The kind of node class that stands for a node group."""
IDLE = "10m"
"""How long a node of a group must be without pods before it is returned.

Source: kubernetes/autoscaler cluster-autoscaler/FAQ.md, --scale-down-unneeded-time.
"""
BUDGET = "10%"
"""Share of a group's nodes that may be on their way out at once, rounded up: Karpenter's default budget."""
LEFT_ALONE = "tonnage.dev/buys"
"""A label of a group's nodes: "false" leaves the group as it is."""
HEAVIEST = 100  # a NodePool's weight goes from 1 to 100


@dataclass(frozen=True, slots=True)
class GroupPool:
    """A group with the NodePool that stands for it, which has its name.

    ``instance_type``: the one that is planned with. ``held_back``: what it has more than the group promises, which is
    planned as if a DaemonSet (``reserve``) took it. ``unusable``: why the group is left as it is, empty when it is not.
    """

    group: NodeGroup
    pool: karpenter.NodePool
    instance_type: str
    storage: NodeStorage
    held_back: dict[str, int]
    unusable: str = ""

    @property
    def name(self) -> str:
        return self.group.name

    @property
    def reserve(self) -> core.PodSpec:
        """A DaemonSet's pod that takes ``held_back`` on this pool's nodes and nowhere else."""
        written = {"pods": "0"} | {name: _quantity(name, amount) for name, amount in self.held_back.items()}
        container = core.Container(name="reserve", resources=core.ResourceRequirements(requests=dict(written)))
        return core.PodSpec(
            containers=[container],
            node_selector={labels.NODE_POOL: self.name},
            tolerations=[core.Toleration(operator="Exists")],
        )

    def without_reserve(self, launch: Launch) -> Launch:
        """The launch with what real DaemonSets take."""
        daemons = {name: amount - self.held_back.get(name, 0) for name, amount in launch.daemons.items()}
        return msgspec.structs.replace(launch, daemons={name: amount for name, amount in daemons.items() if amount})

    def machine(self, catalogue: Catalogue, daemon_sets: Sequence[core.PodSpec]) -> Launch:
        """A machine of the group that was asked for, as the plan that asked for it saw it, but without its pods.

        Name and zone are the caller's to fill in.
        """
        shapes = [PodShape.of(spec) for spec in (*daemon_sets, self.reserve)]
        template = compile_pool(self.pool, catalogue, shapes, self.storage)
        index = catalogue.index(self.instance_type)
        allocatable = template.allocatable(index, catalogue)
        daemons = catalogue.as_map(template.daemons[index])
        zone = next(iter(self.group.zones), "")
        return Launch(
            Ref("NodeClaim", self.name),
            self.name,
            self.instance_type,
            zone,
            self.group.capacity_type,
            _price(catalogue, self.group, self.instance_type) or 0,
            Reason("requested from the node group"),
            labels=node_labels(self.group, self.instance_type, zone),
            allocatable={name: amount for name, amount in allocatable.items() if name != NODES},
            daemons=daemons,
            capacity=catalogue.as_map(template.capacity[index]),
            taints=self.group.taints,
        )


def group_pools(
    groups: Iterable[NodeGroup],
    catalogue: Catalogue,
    counted: Mapping[str, int] | None = None,
    closed: Collection[str] = (),
    *,
    idle: str = IDLE,
) -> tuple[GroupPool, ...]:
    """The NodePools of groups, in order of name; groups of which nothing is known to plan with are left out.

    ``counted``: by group, how many nodes planning will count as its own, those on their way included: the limit is
    this many, and what the group may still grow. ``closed`` groups grow no further for now. Cheaper machines go first:
    weights fall with the price. A group's nodes are terminated down to its minimum, after ``idle`` without pods.
    """
    counted = counted or {}
    found = [(group, *_base(group, catalogue)) for group in sorted(groups, key=lambda group: group.name)]
    known = [(group, base, price) for group, base, price in found if base]
    prices = sorted({price for _, _, price in known if price is not None})
    made = []
    for group, base, price in known:
        room = 0 if group.held or group.name in closed else max(0, group.maximum - group.desired)
        limit = counted.get(group.name, 0) + room
        weight = max(1, HEAVIEST - prices.index(price)) if price is not None else 1
        made.append(
            GroupPool(
                group,
                _pool(group, base, limit, weight, idle),
                base,
                _storage(group),
                _held_back(group, base, catalogue),
                _unusable(group, catalogue, price),
            )
        )
    return tuple(made)


def why_unknown(group: NodeGroup, catalogue: Catalogue) -> str:
    """Why nothing of a group is known to plan with; empty when something is."""
    if not group.instance_types:
        return "its instance types are not known: attributes choose them"
    strange = [name for name in group.instance_types if name not in catalogue.names]
    return f"may make {', '.join(strange)}, whose size is not known" if strange else ""


def _unusable(group: NodeGroup, catalogue: Catalogue, price: int | None) -> str:
    if group.labels.get(LEFT_ALONE) == "false":
        return f"its label {LEFT_ALONE} is false"
    if group.capacity_type == MIXED:
        return "makes spot and on-demand machines, and neither can be asked of it"
    if price is None:
        where = ", ".join(group.zones) or "any zone"
        types = ", ".join(group.instance_types)
        return f"no {group.capacity_type} price of {types} is known in {where}: give it with --prices"
    return ""


def _base(group: NodeGroup, catalogue: Catalogue) -> tuple[str, int | None]:
    """The group's cheapest type and its price, None where no price is known; "" for a type when one is not known."""
    if why_unknown(group, catalogue):
        return "", None
    prices = {name: _price(catalogue, group, name) for name in group.instance_types}
    priced = {name: price for name, price in prices.items() if price is not None}
    if not priced:
        return min(group.instance_types), None
    cheapest = min(priced, key=lambda name: (priced[name], name))
    return cheapest, priced[cheapest]


def _price(catalogue: Catalogue, group: NodeGroup, instance_type: str) -> int | None:
    """The lowest price of the type in the group's zones, in micro-USD an hour."""
    rows = [
        row
        for row, (zone, capacity_type) in enumerate(catalogue.pairs)
        if capacity_type == group.capacity_type and (not group.zones or zone in group.zones)
    ]
    least = int(catalogue.prices[rows, catalogue.index(instance_type)].min(initial=NO_OFFER))
    return None if least == NO_OFFER else least


def _held_back(group: NodeGroup, base: str, catalogue: Catalogue) -> dict[str, int]:
    """What ``base`` has more than every machine of the group is sure to have."""
    own = catalogue.allocatable[catalogue.index(base)]
    rows = catalogue.allocatable[[catalogue.index(name) for name in group.instance_types]]
    least = np.minimum(own, rows.min(axis=0))
    for name, declared in group.resources.items():
        column = catalogue.column.get(name)
        if column is not None and name != EPHEMERAL_STORAGE:  # the volume's size is not a matter of the type
            least[column] = min(int(least[column]), declared)
    return catalogue.as_map(own - least)


def _storage(group: NodeGroup) -> NodeStorage:
    """The volume that leaves what is declared as allocatable storage; EC2's default volume without that."""
    declared = group.resources.get(EPHEMERAL_STORAGE)
    if not declared:
        return NodeStorage()
    return NodeStorage(volume_bytes=-(-(declared + KUBE_RESERVED_STORAGE) * 100 // (100 - EVICTION_PERCENT)) + 1)


def is_node_group(pool: karpenter.NodePool) -> bool:
    """Whether a node group stands behind it: what that makes neither drifts nor expires."""
    return pool.spec.template.spec.node_class_ref.kind == NODE_GROUP


def spare(pool: karpenter.NodePool) -> int:
    """How many nodes of the group behind this NodePool may go before it is at its minimum."""
    return int(pool.spec.disruption.budgets[-1].nodes)


def _pool(group: NodeGroup, base: str, limit: int, weight: int, idle: str) -> karpenter.NodePool:
    wanted = {labels.INSTANCE_TYPE: [base], labels.CAPACITY_TYPE: [group.capacity_type], labels.ZONE: list(group.zones)}
    spare = max(0, group.desired - group.minimum)
    return karpenter.NodePool(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        metadata=ObjectMeta(name=group.name),
        spec=karpenter.NodePoolSpec(
            template=karpenter.NodeClaimTemplate(
                metadata=karpenter.TemplateMeta(labels=dict(group.labels)),
                spec=karpenter.NodeClaimTemplateSpec(
                    requirements=[
                        karpenter.NodeRequirement(key=key, operator="In", values=values)
                        for key, values in wanted.items()
                        if values
                    ],
                    node_class_ref=karpenter.NodeClassRef(group="tonnage.dev", kind=NODE_GROUP, name=group.name),
                    taints=list(group.taints),
                ),
            ),
            limits={NODES: limit},
            weight=weight,
            disruption=karpenter.Disruption(
                consolidation_policy="WhenEmpty",
                consolidate_after=idle,
                budgets=[karpenter.Budget(nodes=BUDGET), karpenter.Budget(nodes=str(spare))],
            ),
        ),
    )


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)
