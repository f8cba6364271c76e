"""Puts controllers together: what each of them runs, watches and may do."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tonnage.control import idle
from tonnage.control.choices import NODES, REPLICAS, SCHEDULER
from tonnage.control.idle import BUYS, LIMITS, Idle
from tonnage.control.loops import Loop
from tonnage.control.nodes import Pools
from tonnage.control.opt_in import OptInRefusal, opted_in
from tonnage.control.policy import DEFAULT, Policy
from tonnage.control.replicas import Planned, ReplicaPlanner
from tonnage.control.world import World
from tonnage.decisions import Decision
from tonnage.fleet.snapshot import Snapshot
from tonnage.kube import resources
from tonnage.kube.informer import name_of, names_of
from tonnage.kube.leases import Elector
from tonnage.kube.verbs import Client
from tonnage.live.groups import KINDS
from tonnage.live.idling import IdleReasons
from tonnage.live.manager import Controller
from tonnage.live.world import ClusterWorld
from tonnage.objects import karpenter
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scaling.policies import POLICIES
from tonnage.scheduling.gangs.release import Patience
from tonnage.scheduling.place import SCHEDULER_NAME

_NEEDS = {
    SCHEDULER: (resources.NODES, resources.PODS),
    REPLICAS: (resources.NODES, resources.PODS, resources.DEPLOYMENTS, resources.HPAS),
    NODES: (resources.NODES, resources.PODS, resources.DAEMON_SETS, resources.NODE_POOLS, resources.NODE_CLAIMS),
}
_VOLUMES = (resources.VOLUME_CLAIMS, resources.VOLUMES, resources.STORAGE_CLASSES)
_ASKS = {
    SCHEDULER: (*_VOLUMES, resources.NAMESPACES, resources.PDBS, *(resource for resource, _ in KINDS)),
    REPLICAS: (resources.SCALED_OBJECTS,),
    NODES: (*_VOLUMES, resources.EC2_NODE_CLASSES, resources.PDBS),
}
"""Kinds that a cluster may do without: the nodes controller cannot launch nodes without NodePools, but with another's
class. Without a kind of which gangs are read, the scheduler places as if nobody used it."""


@dataclass(slots=True)
class OptedIn:
    """Workloads under a policy by their annotations, and those that asked in vain."""

    planned: Sequence[Planned] = ()
    refused: Sequence[OptInRefusal] = ()

    def __call__(self, snapshot: Snapshot) -> Sequence[Planned]:
        self.planned, self.refused = opted_in(snapshot)
        return self.planned


def bought_here(pools: Pools) -> Pools:
    """The NodePools whose nodes the nodes controller launches, with the limits meant for it."""
    mine = tuple(_limited(pool) for pool in pools.node_pools if pool.metadata.annotations.get(BUYS) == "true")
    return replace(pools, node_pools=mine)


def _limited(pool: karpenter.NodePool) -> karpenter.NodePool:
    written = pool.metadata.annotations.get(LIMITS)
    try:
        limits = json.loads(written) if written else {}
    except json.JSONDecodeError:
        limits = pool.spec.limits  # not JSON: launch nothing beyond what Karpenter may
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
    standing: IdleReasons | None = None,
) -> tuple[Loop, ...]:
    """The loops of one controller, which tell ``standing`` why they do nothing."""
    said = standing or IdleReasons()
    if name == SCHEDULER:
        loops = policy.scheduling_loops(policy.settings((SCHEDULER_NAME,), strict=True), Patience())
        return (_telling(loops[0], name, said, lambda: idle.of_scheduler(SCHEDULER_NAME, _names(world))), *loops[1:])
    if name == REPLICAS:
        asked = OptedIn()
        planners = [ReplicaPlanner(one, asked) for one in POLICIES]
        *others, last = [one.loop() for one in planners]

        def found() -> Iterator[Idle]:
            silent = {ref: why for one in planners for ref, why in one.silent.items()}
            return idle.of_replicas(len(asked.planned), asked.refused, silent)

        return (*others, _telling(last, name, said, found))
    first, *others = policy.node_loops(catalogue, lambda: pools(world.pools()), epoch_ns)
    if pools is bought_here:
        first = _telling(first, name, said, lambda: idle.of_nodes(world.node_pools(), _readable(world)))
    return (first, *others)


def _telling(loop: Loop, controller: str, standing: IdleReasons, found: Callable[[], Iterable[Idle]]) -> Loop:
    """The loop, which after each tick says what keeps its controller from acting."""

    def decide(world: World) -> Sequence[Decision]:
        decisions = loop.decide(world)
        standing.say(controller, found(), world)
        return decisions

    return replace(loop, decide=decide)


def _names(world: ClusterWorld) -> Iterator[str]:
    """The scheduler names of the pods, one after another: whoever looks for one ends there."""
    fleet = world.fleet
    return (fleet.pod(row).spec.spec.scheduler_name for row in fleet.pod_by_key.values())


def _readable(world: ClusterWorld) -> list[str]:
    return [pool.name for pool in world.pools().node_pools]


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
    standing: IdleReasons | None = None,
) -> list[Controller]:
    """The controllers of these names, each with its lease. ``not_needed``: kinds that they do without here."""
    return [
        Controller(
            name,
            loops_of(name, world, catalogue, policy=policy, pools=pools, epoch_ns=epoch_ns, standing=standing),
            elector(name),
            frozenset(name_of(kind) for kind in _NEEDS[name] if kind not in not_needed),
            frozenset(names_of(_ASKS.get(name, ()))),
        )
        for name in names
    ]


def elector(
    client: Client, name: str, namespace: str, clock: Callable[[], float], begins: Callable[[], object]
) -> Elector:
    """A candidate for the lease ``tonnage-NAME``, with an identity that no other process has. ``begins`` is called, in
    a thread of its own, when it has come to lead."""
    identity = f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"
    return Elector(client, f"tonnage-{name}", namespace, identity, clock, begins=begins)
