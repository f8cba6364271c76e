"""Machines of node groups in a cluster: which have joined, which are on their way, and what may still be planned.

All of it follows from the groups and the nodes: a group owes as many machines as its size says, and a machine has
joined once the node with its provider id is initialised. A program that restarts loses only for how long it has
waited for a machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from tonnage.control.nodes import Pools
from tonnage.decisions import Launch, Ref
from tonnage.facts.labels import EKS_NODE_GROUP
from tonnage.fleet.rows import NodeRow
from tonnage.fleet.snapshot import ClaimView
from tonnage.fleet.state import Fleet
from tonnage.kube.clock import Clock
from tonnage.live.clouds.port import NodeGroups
from tonnage.live.nodes import has_devices
from tonnage.objects import core
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.group_pools import IDLE, GroupPool, group_pools, why_unknown
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.provisioning.nodeclass import storage_key
from tonnage.provisioning.pods import PodShape
from tonnage.units import NS_PER_S

LATE_NS = 15 * 60 * NS_PER_S
"""A machine that has not joined after this long is not counted on any more.

Source: kubernetes/autoscaler cluster-autoscaler/FAQ.md, --max-node-provision-time.
"""


@dataclass(slots=True)
class _Waited:
    """Since when each machine, and each group's machines that are not made yet, have been waited for."""

    machines: dict[str, int]
    unmade: dict[str, tuple[int, tuple[str, ...]]]  # by group: since when, and the machines that it had then


class GroupNodes:
    """What node groups have made of themselves in a fleet. Belongs to one thread, that of the fleet's owner.

    ``idle``: how long a node of a group must be without pods before it is returned. ``late``: by group, how many of its
    machines do not come; such a group is asked for no more until they have.
    """

    def __init__(self, groups: NodeGroups, catalogue: Catalogue, clock: Clock, *, idle: str = IDLE) -> None:
        self.late: dict[str, str] = {}
        self._groups = groups
        self._catalogue = catalogue
        self._clock = clock
        self._idle = idle
        self._fleet = Fleet()
        self._others: Callable[[], Pools] = Pools
        self._adopted: tuple[NodeGroup, ...] = ()
        self._waited = _Waited({}, {})
        self._arrived: set[str] = set()
        self._machines: dict[str, tuple[GroupPool, tuple[core.PodSpec, ...], Launch]] = {}
        self._plain: dict[str, GroupPool] = {}  # what machines are like; no limits
        self._views: tuple[ClaimView, ...] = ()

    def attach(self, fleet: Fleet, pools: Callable[[], Pools]) -> None:
        """Look at this fleet; ``pools`` knows the DaemonSets of its cluster."""
        self._fleet, self._others = fleet, pools

    # ---- what a world asks ----

    def pool_of(self, node: core.Node) -> str:
        """The group that made the node, by its machine or else by its label; "" for another's node."""
        if group := self.group_of(node.spec.provider_id):
            return group.name
        named = node.metadata.labels.get(EKS_NODE_GROUP)
        same = (g.name for g in self._groups.list() if named and g.labels.get(EKS_NODE_GROUP) == named)
        return next(same, "")

    def in_flight(self) -> tuple[ClaimView, ...]:
        """Machines that were asked for and are not initialized nodes yet, by group."""
        groups = self._groups.list()
        if groups is not self._adopted:
            self._adopt(groups)
        rows = self._rows()
        all_late: dict[str, str] = {}
        views: list[ClaimView] = []
        for group in groups:
            coming, late = self._coming(group, rows)
            if late:
                all_late[group.name] = f"{late} of its machines have not joined for {LATE_NS // NS_PER_S // 60} minutes"
            if coming and group.name in self._plain:
                views += self._claims(self._plain[group.name], coming)
        self.late, self._views = all_late, tuple(views)
        return self._views

    def pools(self, others: Pools) -> Pools:
        """The groups as NodePools, to plan with what :meth:`in_flight` said last."""
        usable = [pool for pool in self._pools() if not pool.unusable]
        return Pools(
            tuple(pool.pool for pool in usable),
            {storage_key(pool.pool): pool.storage for pool in usable},
            (*others.daemon_sets, *(pool.reserve for pool in usable if pool.held_back)),
        )

    # ---- what effects ask ----

    def pool(self, name: str) -> GroupPool | None:
        """The group of this name as it is planned with."""
        return next((pool for pool in self._pools() if pool.name == name), None)

    def group_of(self, provider_id: str) -> NodeGroup | None:
        """The group that counts this machine."""
        if not provider_id:
            return None
        return next((group for group in self._groups.list() if provider_id in group.nodes), None)

    def machine_of(self, node: str) -> str:
        """The provider id of a node of the fleet, "" where it is not known."""
        row = self._fleet.node_by_name.get(node)
        return "" if row is None else self._fleet.node(row).spec.provider_id

    def shape_of(self, pod: Ref) -> PodShape | None:
        """What planning sees of a pod of the fleet."""
        row = self._fleet.pod_by_key.get((pod.namespace, pod.name))
        if row is None:
            return None
        spec = self._fleet.pod(row).spec
        return PodShape.of(spec.spec, spec.annotations)

    # ---- what people ask ----

    def unusable(self) -> dict[str, str]:
        """Groups that are left as they are, by name, and why."""
        found = {group.name: why_unknown(group, self._catalogue) for group in self._groups.list()}
        found |= {pool.name: pool.unusable for pool in self._pools()}
        return {name: why for name, why in sorted(found.items()) if why}

    # ---- inside ----

    def _pools(self) -> tuple[GroupPool, ...]:
        groups, counted = self._groups.list(), self._counted()
        return group_pools(groups, self._catalogue, counted, self.late, idle=self._idle)

    def _counted(self) -> Counter[str]:
        """Per group, the nodes and the machines on their way that planning counts against its limit."""
        found = Counter(view.launch.node_pool for view in self._views)
        for row in self._fleet.node_rows():
            node = self._fleet.node(row)
            if node.spec.node_pool and node.initialized and self._fleet.schedulable[row]:
                found[node.spec.node_pool] += node.spec.instance_type in self._catalogue.names
        return found

    def _rows(self) -> dict[str, int]:
        rows = {self._fleet.node(row).spec.provider_id: row for row in self._fleet.node_rows()}
        rows.pop("", None)
        return rows

    def _adopt(self, groups: tuple[NodeGroup, ...]) -> None:
        """Give nodes that joined before their machine was known to their group; forget machines that are gone."""
        owner = {machine: group.name for group in groups for machine in group.nodes}
        for machine, row in self._rows().items():
            node = self._fleet.node(row)
            if machine in owner and node.spec.node_pool != owner[machine]:
                self._fleet.describe(row, node_pool=owner[machine])
                if node.initialized and not self._whole(row, node):
                    self._fleet.note(row, initialized=False)
                    self._fleet.set_schedulable(row, False)
        self._arrived &= owner.keys()
        self._waited.machines = {one: since for one, since in self._waited.machines.items() if one in owner}
        self._plain = {pool.name: pool for pool in group_pools(groups, self._catalogue)}
        self._adopted = groups

    def _whole(self, row: int, node: NodeRow) -> bool:
        return has_devices(node.spec.instance_type, self._fleet.allocatable_of(row))

    def _coming(self, group: NodeGroup, rows: dict[str, int]) -> tuple[list[tuple[str, int, str]], int]:
        """(name, since when, node) of each machine on its way; and how many are late."""
        now = self._clock.now_ns()
        coming, late = [], 0
        for machine in group.nodes:
            row = rows.get(machine)
            node = None if row is None else self._fleet.node(row)
            if node is not None and node.initialized:
                self._arrived.add(machine)
            if machine in self._arrived:
                continue
            since = self._waited.machines.setdefault(machine, now) if node is None else node.spec.created_ns
            if now - since < LATE_NS:
                coming.append((machine, since, node.spec.name if node else ""))
            else:
                late += node is None
        unmade = group.desired - len(group.nodes)
        if unmade <= 0 or group.held:
            self._waited.unmade.pop(group.name, None)
            return coming, late
        since, had = self._waited.unmade.get(group.name, (now, group.nodes))
        if set(group.nodes) - set(had):
            since = now  # it is making machines
        self._waited.unmade[group.name] = since, group.nodes
        if now - since < LATE_NS:
            return coming + [(f"machine {number}", since, "") for number in range(1, unmade + 1)], late
        return coming, late + unmade

    def _claims(self, pool: GroupPool, coming: Sequence[tuple[str, int, str]]) -> Iterator[ClaimView]:
        machine = self._machine(pool)
        for name, since, node in coming:
            zone = name.removeprefix("aws:///").partition("/")[0] if name.startswith("aws:///") else machine.zone
            own = {**machine.labels, labels.ZONE: zone} if zone != machine.zone else machine.labels
            ref = Ref("NodeClaim", f"{pool.name}/{name.rpartition('/')[2]}")
            yield ClaimView(msgspec.structs.replace(machine, claim=ref, zone=zone, labels=own), since, node)

    def _machine(self, pool: GroupPool) -> Launch:
        """What a machine of the group is like; rebuilt only when the group or the DaemonSets have changed."""
        daemon_sets = self._others().daemon_sets
        kept = self._machines.get(pool.name)
        if kept is None or not _alike(kept[0].group, pool.group) or kept[1] != daemon_sets:
            kept = pool, daemon_sets, pool.machine(self._catalogue, daemon_sets)
            self._machines[pool.name] = kept
        return kept[2]


def _alike(one: NodeGroup, other: NodeGroup) -> bool:
    """Whether machines of both are alike."""
    same = {"minimum": 0, "desired": 0, "maximum": 0, "nodes": (), "held": ""}
    return msgspec.structs.replace(one, **same) == msgspec.structs.replace(other, **same)
