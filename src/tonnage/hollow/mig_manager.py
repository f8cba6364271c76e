"""NVIDIA's MIG manager on simulated nodes: it follows the label of a node, and says how far it has come.

It looks when the label changes, and then at the ConfigMap, as the real one does. Where the node has an Order beside the
label, instances are made where that says: mig-parted's files do not say it. What it does takes the steps and the time
of the simulator, so what stays on a GPU stays in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from tonnage.decisions import Instances, Reason, Ref, Relayout
from tonnage.errors import InputError
from tonnage.facts.labels import MIG_CONFIG
from tonnage.fleet.geometry import geometry
from tonnage.kube.resources import CLUSTER_POLICIES, CONFIG_MAPS
from tonnage.kube.transport import ApiError, ClientError
from tonnage.kube.verbs import Client, JsonObject
from tonnage.live.configurations import read_all
from tonnage.live.cutting import SIMULATED, read_order
from tonnage.machines import relayouts
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects import core
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.partitioning.fleet_layouts import as_layout, busy_in, devices, instances_of
from tonnage.partitioning.node_cuts import Configurations, cut_node, known_names, unknown_name
from tonnage.partitioning.node_layouts import FAILED, PENDING, SUCCESS, entries, of_cut

Key = tuple[str, str]
"""(namespace, name)."""


@dataclass(slots=True)
class _Work:
    """What is to become of one node's GPUs, and those of them that were begun with."""

    goal: tuple[Instances, ...]
    begun: set[int] = field(default_factory=set)


class MigManagers:
    """That of all simulated nodes. ``changed`` is told of nodes whose state is another than before; ``event`` of what
    people should know."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        client: Client,
        changed: Callable[[str], None],
        event: Callable[[str, str, str, str], None],
    ) -> None:
        self._cluster, self._client = cluster, client
        self._changed, self._event = changed, event
        self.config_maps: set[Key] = {SIMULATED.config_map} if SIMULATED.config_map else set()
        """Those that may have configurations where no ClusterPolicy names one."""
        self._labels: dict[str, str] = {}  # by node: the label that was followed last
        self._todo: dict[str, core.Node] = {}
        self._work: dict[str, _Work] = {}
        self._states: dict[str, str] = {}

    def state(self, node: str) -> str:
        """How far the node's last change of label has come; empty: there was none."""
        return PENDING if node in self._todo else self._states.get(node, "")

    def at_work(self, node: str) -> str:
        """The GPUs with which it has not finished, as the node's annotation says them; empty: no label has changed."""
        if node not in self._states or node in self._todo:
            return ""
        left = sorted(device for name, device in self._cluster.gpus.relayouts if name == node)
        return f"{self._labels[node]}:{','.join(map(str, left))}"

    def see(self, node: core.Node) -> None:
        """A node is like this in the API."""
        name, label = node.metadata.name, node.metadata.labels.get(MIG_CONFIG, "")
        cluster = self._cluster
        machine, row = cluster.nodes.get(name), cluster.fleet.node_by_name.get(name)
        if machine is None or row is None or machine.ready_ns is None or geometry(machine.gpu) is None:
            return
        if self._labels.setdefault(name, cluster.fleet.node(row).labels.get(MIG_CONFIG, "")) != label:
            self._labels[name] = label
            if label:  # without one it leaves the node as it is
                self._todo[name] = node

    def gone(self, node: str) -> None:
        """The machine is no more."""
        for known in (self._labels, self._todo, self._work, self._states):
            known.pop(node, None)

    def catch_up(self) -> None:
        """Do what the labels say, as far as the API can be asked."""
        for name, node in list(self._todo.items()):
            try:
                goal = self._goal(node)
            except InputError as error:
                self._fail(name, error.problems[0].message)
            except ClientError:
                continue  # it is asked again
            else:
                self._work[name] = _Work(goal)
                self._set(name, PENDING)
            self._todo.pop(name)
        for name in list(self._work):
            self._advance(name)

    def _goal(self, node: core.Node) -> tuple[Instances, ...]:
        """The layouts that the node's label names. Raises InputError and ClientError."""
        name, label = node.metadata.name, node.metadata.labels.get(MIG_CONFIG, "")
        itype = self._cluster.nodes[name].kind
        configurations = self._configurations()
        if label not in known_names(configurations, MIG_CONFIG):
            raise InputError(unknown_name(configurations, MIG_CONFIG, label))
        made = cut_node(configurations, node.metadata.labels, itype.gpu, itype.resource_count)
        if made.problems:
            raise InputError(*made.problems)
        named = tuple(map(of_cut, made.cuts)) or (None,) * itype.resource_count
        order = read_order(node.metadata.annotations)
        ordered = order is not None and order.config == label and entries(order.gpus) == entries(named)
        return order.gpus if ordered and order is not None else named

    def _configurations(self) -> Configurations:
        policies = [msgspec.convert(one, ClusterPolicy, strict=False) for one in self._policies()]
        maps = set(self.config_maps)
        for policy in policies:
            names = (policy.mig_config_map, policy.spec.device_plugin.config.name)
            maps |= {(SIMULATED.namespace, name) for name in names if name}
        return read_all(filter(None, map(self._config_map, sorted(maps))), policies)

    def _policies(self) -> Iterable[JsonObject]:
        try:
            return self._client.list(CLUSTER_POLICIES)
        except ApiError as error:
            if error.code != 404:
                raise
            return ()

    def _config_map(self, key: Key) -> core.ConfigMap | None:
        try:
            found = self._client.get(CONFIG_MAPS, key[1], key[0])
        except ApiError as error:
            if error.code != 404:
                raise
            return None
        return msgspec.convert(found, core.ConfigMap, strict=False)

    def _advance(self, name: str) -> None:
        """Begin what can be begun; say so when there is nothing left to do."""
        cluster, work = self._cluster, self._work[name]
        row = cluster.fleet.node_by_name.get(name)
        if row is None:
            self.gone(name)
            return
        open_ = False
        for device in range(min(devices(cluster.fleet, row), len(work.goal))):
            at, goal = (row, device), work.goal[device]
            if (name, device) in cluster.gpus.relayouts:
                open_ = True
                if cluster.gpus.relayouts[name, device].goal == goal:
                    work.begun.add(device)
                continue
            now = instances_of(cluster.fleet, at)
            if now == goal:
                continue
            if device in work.begun or self._in_use(at, now, goal):
                self._fail(name, f"GPU {device}: an instance that is to go is in use")
                return
            work.begun.add(device)
            self._begin(name, device, now, goal)
            open_ = True
        if not open_:
            del self._work[name]
            self._set(name, SUCCESS)

    def _in_use(self, at: tuple[int, int], now: Instances, goal: Instances) -> bool:
        fleet = self._cluster.fleet
        if now is None:
            return bool(fleet.holders(*at))
        return any(one not in as_layout(goal) for one in busy_in(fleet, at))

    def _begin(self, name: str, device: int, now: Instances, goal: Instances) -> None:
        why = Reason(f"{MIG_CONFIG}={self._labels[name]}")
        relayouts.begin(self._cluster, Relayout(Ref("Node", name), device, now, goal, why))
        self._changed(name)

    def _fail(self, name: str, why: str) -> None:
        self._work.pop(name, None)
        self._event(f"Node {name}", "Warning", "MigManagerFailed", why)
        self._set(name, FAILED)

    def _set(self, name: str, state: str) -> None:
        self._states[name] = state
        self._changed(name)
