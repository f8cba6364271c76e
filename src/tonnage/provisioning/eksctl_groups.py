"""The node groups of an eksctl ClusterConfig, as its Auto Scaling groups would describe them.

Source: eksctl-io/eksctl pkg/apis/eksctl.io/v1alpha5 (defaults.go, types.go): sizes of 2, m5.large, 80 GiB of gp3.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.errors import InputError, Problem
from tonnage.facts import instances
from tonnage.facts.labels import EKS_CAPACITY_TYPE, EKS_NODE_GROUP, EKSCTL_NODE_GROUP
from tonnage.objects.base import where
from tonnage.objects.core import Taint
from tonnage.objects.eksctl import ClusterConfig, EksctlGroup
from tonnage.provisioning import labels
from tonnage.provisioning.node_groups import MIXED, NodeGroup
from tonnage.provisioning.nodeclass import GP3_IOPS, GP3_THROUGHPUT, NodeStorage
from tonnage.units import GIB, MIB

CLUSTER_LABEL = "alpha.eksctl.io/cluster-name"
_DEFAULT_TYPE = "m5.large"
_DEFAULT_SIZE = 2
_VOLUME_GIB = 80
_ALL_ON_DEMAND = 100


def node_groups(config: ClusterConfig) -> list[tuple[NodeGroup, NodeStorage]]:
    """Its groups, managed ones first, each with the storage of its nodes; as many nodes are there as are desired.

    Raises :class:`InputError`, with file and line, for instance types that are not known."""
    return [*_groups(config, "managedNodeGroups"), *_groups(config, "nodeGroups")]


def _groups(config: ClusterConfig, field: str) -> Iterator[tuple[NodeGroup, NodeStorage]]:
    managed = field == "managedNodeGroups"
    for number, one in enumerate(config.managed_node_groups if managed else config.node_groups):
        path = f"{field}[{number}]"
        distribution = one.instances_distribution
        listed = one.instance_types or (distribution.instance_types if distribution else [])
        types = tuple(dict.fromkeys(listed or [one.instance_type or _DEFAULT_TYPE]))
        strange = [name for name in types if not instances.known(name)]
        if strange:
            message = f"{', '.join(strange)}: expected instance types that are known"
            raise InputError(Problem(where(config, path), message, "correct the name"))
        desired, least, most = one.desired_capacity, one.min_size, one.max_size
        if desired is None:
            desired = least if least is not None else _DEFAULT_SIZE if most is None else min(most, _DEFAULT_SIZE)
        capacity_type = _capacity_type(one)
        own = {CLUSTER_LABEL: config.name, EKSCTL_NODE_GROUP: one.name}
        if managed:
            kind = "SPOT" if one.spot else "ON_DEMAND"
            own |= {EKS_NODE_GROUP: one.name, EKS_CAPACITY_TYPE: kind}
        group = NodeGroup(
            name=one.name,
            instance_types=types,
            zones=tuple(one.availability_zones or config.availability_zones),
            minimum=desired if least is None else least,
            desired=desired,
            maximum=max(desired, least or 0) if most is None else most,
            capacity_type=capacity_type,
            labels={**own, **one.labels},
            taints=tuple(_taints(one)),
        )
        yield group, _storage(one)


def _capacity_type(one: EksctlGroup) -> str:
    if one.spot:
        return labels.SPOT
    distribution = one.instances_distribution
    share = None if distribution is None else distribution.on_demand_percentage_above_base_capacity
    if distribution is None or share in (None, _ALL_ON_DEMAND):
        return labels.ON_DEMAND
    return labels.SPOT if share == 0 and not distribution.on_demand_base_capacity else MIXED


def _taints(one: EksctlGroup) -> Iterator[Taint]:
    if not isinstance(one.taints, dict):
        yield from one.taints
        return
    for key, written in one.taints.items():
        value, _, effect = written.rpartition(":")
        yield Taint(key=key, value=value, effect=effect)


def _storage(one: EksctlGroup) -> NodeStorage:
    throughput = GP3_THROUGHPUT if one.volume_throughput is None else one.volume_throughput * MIB
    size = (one.volume_size or _VOLUME_GIB) * GIB
    if one.volume_type not in ("", "gp3"):
        return NodeStorage(size, one.volume_type, None, one.volume_iops)
    return NodeStorage(size, "gp3", throughput, one.volume_iops or GP3_IOPS)
