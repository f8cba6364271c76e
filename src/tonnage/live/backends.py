"""How a world acts on its cluster: through which effects, and on which NodePools or node groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tonnage.control.choices import OBSERVE, REPORT
from tonnage.control.nodes import Pools
from tonnage.errors import InputError
from tonnage.kube.clock import Clock
from tonnage.kube.resources import NODE_CLAIMS, NODE_POOLS, Resource
from tonnage.kube.verbs import Client
from tonnage.live.api_effects import ApiEffects
from tonnage.live.assembly import bought_here
from tonnage.live.clouds.arrivals import GroupNodes
from tonnage.live.clouds.group_effects import GroupEffects, GroupObserving, GroupReporting
from tonnage.live.clouds.port import NodeGroups
from tonnage.live.clouds.report import DryRunGroups
from tonnage.live.clouds.watched import WatchedGroups
from tonnage.live.cutting import Cutter
from tonnage.live.effects import Effects, NoNodes, Observing
from tonnage.live.feed import karpenter_pool
from tonnage.live.recording import EventSink
from tonnage.live.world import ClusterWorld, Measure
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.group_pools import IDLE

PARALLEL = 16
"""Binding calls under way at once."""


class Reporting(NoNodes, ApiEffects):
    """Places and scales, but launches and terminates nothing: that is only said."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Nodes come from node groups: as they were last read, and what they have made of themselves."""

    groups: WatchedGroups
    nodes: GroupNodes
    unread: Callable[[], Mapping[str, tuple[str, ...]]] = dict
    """By group, what could not be read of it."""

    @classmethod
    def of(cls, groups: NodeGroups, catalogue: Catalogue, clock: Clock, *, idle: str = IDLE) -> Sizing:
        """Reads the groups once. Raises InputError when the cloud cannot be asked."""
        watched = WatchedGroups(groups)
        watched.read()
        return cls(watched, GroupNodes(watched, catalogue, clock, idle=idle))

    def notes(self) -> list[str]:
        """What a person should know of groups that are not, or not wholly, understood."""
        found = [f"node group {name}: {why}" for name, whys in sorted(self.unread().items()) for why in whys]
        return found + [f"node group {name} is left as it is: {why}" for name, why in self.nodes.unusable().items()]

    def degraded(self) -> dict[str, str]:
        """What is not as it should be, by name, for ``/readyz``."""
        found = {"node groups": self.groups.problem} if self.groups.problem else {}
        return found | {f"node group {name}": why for name, why in self.nodes.late.items()}


def aws_sizing(cluster: str, region: str, catalogue: Catalogue, clock: Clock) -> Sizing:
    """The Auto Scaling groups of an EKS cluster.

    Raises InputError without boto3, credentials, a region, the right to read, or any group of that cluster.
    """
    from tonnage.live.clouds.aws import AwsNodeGroups
    from tonnage.live.clouds.aws_groups import owned_by

    groups = AwsNodeGroups(cluster, region=region)
    sizing = replace(Sizing.of(groups, catalogue, clock), unread=lambda: groups.warnings)
    if not sizing.groups.list():
        hint = f"check --aws-cluster and the region; groups are known by the tag {' or '.join(owned_by(cluster))}"
        raise InputError.at(f"AWS has no Auto Scaling group of a cluster {cluster}", hint=hint)
    return sizing


@dataclass(frozen=True, slots=True)
class Backend:
    """``pools``: what the nodes controller plans with, of all NodePools that there are. ``sizing``: where nodes come
    from node groups."""

    effects: Effects
    clock: Clock
    recorder: EventSink
    pools: Callable[[Pools], Pools] = bought_here
    sizing: Sizing | None = None

    @classmethod
    def of(
        cls, name: str, client: Client, clock: Clock, recorder: EventSink, *, sizing: Sizing | None = None
    ) -> Backend:
        """``observe``, ``nodeclaims``, ``report`` or ``aws``; with ``sizing``, nodes are those of its node groups, and
        ``report`` and ``observe`` say which group would get which size."""
        if sizing is not None:
            return cls(_sized(name, client, clock, sizing), clock, recorder, sizing.nodes.pools, sizing)
        if name == OBSERVE:
            return cls(Observing(), clock, recorder)
        if name == REPORT:
            return cls(Reporting(client, clock), clock, recorder)
        return cls(ApiEffects(client, clock), clock, recorder)

    @property
    def not_needed(self) -> tuple[Resource, ...]:
        """Kinds that the nodes controller can do without: node groups need no Karpenter."""
        return (NODE_POOLS, NODE_CLAIMS) if self.sizing is not None else ()

    def world(self, catalogue: Catalogue, measure: Measure, cutter: Cutter | None = None) -> ClusterWorld:
        """The world that acts so; ``cutter``: who partitions its GPUs."""
        nodes = self.sizing.nodes if self.sizing is not None else None
        world = ClusterWorld(
            self.effects,
            self.clock,
            price=catalogue.book.price,
            recorder=self.recorder,
            measure=measure,
            parallel=PARALLEL,
            in_flight=nodes.in_flight if nodes is not None else tuple,
            pool_of=nodes.pool_of if nodes is not None else karpenter_pool,
            cutter=cutter,
        )
        if nodes is not None:
            nodes.attach(world.fleet, world.pools)
        return world


def _sized(name: str, client: Client, clock: Clock, sizing: Sizing) -> Effects:
    if name == OBSERVE:
        return GroupObserving(DryRunGroups(sizing.groups), sizing.nodes)
    if name == REPORT:
        return GroupReporting(client, clock, DryRunGroups(sizing.groups), sizing.nodes)
    return GroupEffects(client, clock, sizing.groups, sizing.nodes)
