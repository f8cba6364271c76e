"""Puts controllers together: what each of them runs, watches and may do."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import msgspec

from tonnage.cluster import resources
from tonnage.cluster.annotations import PREFIX
from tonnage.cluster.client.informer import name_of, names_of
from tonnage.cluster.client.leases import Elector
from tonnage.cluster.client.verbs import Client
from tonnage.cluster.groups import KINDS
from tonnage.cluster.manager import Controller
from tonnage.cluster.world import ClusterWorld
from tonnage.controllers.nodes import Pools, node_loops
from tonnage.controllers.opt_in import Refusal, opted_in
from tonnage.controllers.policy import DEFAULT, Policy
from tonnage.controllers.replicas import Planned, SloPlanner
from tonnage.decisions import Ref
from tonnage.fleet.snapshot import Snapshot
from tonnage.loops import Loop
from tonnage.objects import karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scheduling.gangs.release import Patience
from tonnage.scheduling.place import SCHEDULER_NAME

SCHEDULER, REPLICAS, NODES = "scheduler", "replicas", "nodes"
CONTROLLERS = (SCHEDULER, REPLICAS, NODES)

_NEEDS = {
    SCHEDULER: (resources.NODES, resources.PODS),
    REPLICAS: (resources.NODES, resources.PODS, resources.DEPLOYMENTS, resources.HPAS),
    NODES: (resources.NODES, resources.PODS, resources.DAEMON_SETS, resources.NODE_POOLS, resources.NODE_CLAIMS),
}
_VOLUMES = (resources.VOLUME_CLAIMS, resources.VOLUMES, resources.STORAGE_CLASSES)
_ASKS = {
    SCHEDULER: (*_VOLUMES, resources.PDBS, *(resource for resource, _ in KINDS)),
    REPLICAS: (resources.SCALED_OBJECTS,),
    NODES: (*_VOLUMES, resources.EC2_NODE_CLASSES),
}
"""Kinds that a cluster may do without: the nodes controller cannot buy without NodePools, but with another's class.
Without a kind of which gangs are read, the scheduler places as if nobody used it."""

BUYS = f"{PREFIX}/buys"
"""On a NodePool: ``true`` lets the nodes controller buy and return its nodes."""
LIMITS = f"{PREFIX}/limits"
"""On such a NodePool: the limits that the nodes controller keeps, as JSON. ``spec.limits`` is Karpenter's own: with
``nodes: 0`` there, Karpenter launches what the nodes controller asks for and nothing of its own accord."""


@dataclass(slots=True)
class OptedIn:
    """Workloads under the slo policy by their annotations; says once why another is left alone."""

    world: ClusterWorld
    _told: dict[str, str]

    def __call__(self, snapshot: Snapshot) -> Sequence[Planned]:
        planned, refused = opted_in(snapshot)
        for one in refused:
            self._tell(one)
        return planned

    def _tell(self, one: Refusal) -> None:
        view = one.workload
        if self._told.get(view.key) != one.message:
            self._told[view.key] = one.message
            self.world.note(Ref(view.kind, view.name, view.namespace, view.uid), one.reason, one.message)


def bought_here(pools: Pools) -> Pools:
    """The NodePools whose nodes the nodes controller buys, with the limits meant for it."""
    mine = tuple(_limited(pool) for pool in pools.node_pools if pool.metadata.annotations.get(BUYS) == "true")
    return replace(pools, node_pools=mine)


def _limited(pool: karpenter.NodePool) -> karpenter.NodePool:
    written = pool.metadata.annotations.get(LIMITS)
    try:
        limits = json.loads(written) if written else {}
    except json.JSONDecodeError:
        limits = pool.spec.limits  # not JSON: buy nothing beyond what Karpenter may
    if not isinstance(limits, dict):
        limits = pool.spec.limits
    return karpenter.NodePool(
        api_version=pool.api_version,
        kind=pool.kind,
        metadata=pool.metadata,
        spec=msgspec.structs.replace(pool.spec, limits=limits),
    )


def loops_of(
    name: str,
    world: ClusterWorld,
    catalogue: Catalogue,
    *,
    policy: Policy = DEFAULT,
    pools: Callable[[Pools], Pools] = bought_here,
    epoch_ns: int = 0,
) -> tuple[Loop, ...]:
    """The loops of one controller."""
    if name == SCHEDULER:
        return tuple(policy.scheduling_loops(policy.settings((SCHEDULER_NAME,), strict=True), Patience()))
    if name == REPLICAS:
        return (SloPlanner(OptedIn(world, {})).loop(),)
    return node_loops(catalogue, lambda: pools(world.pools()), epoch_ns)


def controllers(
    names: Sequence[str],
    world: ClusterWorld,
    catalogue: Catalogue,
    elector: Callable[[str], Elector | None],
    *,
    policy: Policy = DEFAULT,
    pools: Callable[[Pools], Pools] = bought_here,
    epoch_ns: int = 0,
    not_needed: Sequence[resources.Resource] = (),
) -> list[Controller]:
    """The controllers of these names, each with its lease. ``not_needed``: kinds that they do without here."""
    return [
        Controller(
            name,
            loops_of(name, world, catalogue, policy=policy, pools=pools, epoch_ns=epoch_ns),
            elector(name),
            frozenset(name_of(kind) for kind in _NEEDS[name] if kind not in not_needed),
            frozenset(names_of(_ASKS.get(name, ()))),
        )
        for name in names
    ]


def elector(client: Client, name: str, namespace: str, clock: Callable[[], float]) -> Elector:
    """A candidate for the lease ``tonnage-NAME``, with an identity that no other process has."""
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    return Elector(client, f"tonnage-{name}", namespace, identity, clock)
