"""The GPU operator's upgrades of drivers, on simulated nodes: one after another, and those that are cordoned.

It does what the operator's upgrade controller does with the same labels: a node whose driver is not the ClusterPolicy's
is ``upgrade-required``, and begun with unless it has ``nvidia.com/gpu-driver-upgrade.skip=true``. It is cordoned, and
its driver changed once no pod with a GPU is left there. A GPU that is unhealthy then makes the upgrade fail. Only nodes
whose labels name a driver take part.

Source: NVIDIA/k8s-operator-libs pkg/upgrade (upgrade_inplace.go, common_manager.go).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tonnage.cuda_fit import host as hosts
from tonnage.facts.gpu_stack import DONE, IN_PROGRESS, REQUIRED, STAYS_CORDONED, UPGRADE_FAILED
from tonnage.facts.labels import DRIVER_UPGRADE_SKIP, DRIVER_UPGRADE_STATE
from tonnage.kube.resources import NODES
from tonnage.kube.transport import ClientError
from tonnage.kube.verbs import Client
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.events import Later
from tonnage.objects import core
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.partitioning.labels import driver_labels
from tonnage.units import NS_PER_S

AT_ONCE = 1
"""maxParallelUpgrades by default. Nodes that are cordoned already do not count (upgrade_inplace.go)."""
CORDON, WAIT_FOR_PODS, LOAD = IN_PROGRESS[0], "pod-deletion-required", "pod-restart-required"
UNTIL_GONE_NS = 10 * NS_PER_S
"""How often it is looked whether a node's pods have gone."""


class DriverUpgrades:
    """Those of all simulated nodes. ``changed`` is told of nodes whose labels are others than before; ``event`` of what
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
        self._wanted = ""  # the version that the ClusterPolicy has; empty: nothing is upgraded
        self._nodes: dict[str, core.Node] = {}  # with a driver, as they were seen last
        self._drivers: dict[str, str] = {}  # by node: what was loaded here
        self._states: dict[str, str] = {}
        self._look = False

    def labels(self, node: str) -> dict[str, str]:
        """Those that a node has by its upgrades; none where there was none."""
        state = self._states.get(node, "")
        driver = driver_labels(self._drivers[node]) if node in self._drivers else {}
        return driver | ({DRIVER_UPGRADE_STATE: state} if state else {})

    def policy(self, new: ClusterPolicy | None) -> None:
        """The ClusterPolicy is this; None: it is gone."""
        driver = new.spec.driver if new is not None else None
        on = driver is not None and driver.enabled is not False and driver.upgrade_policy.auto_upgrade is not False
        self._wanted = driver.version if driver is not None and on else ""
        self._look = True

    def see(self, node: core.Node) -> None:
        """A node is like this in the API."""
        name = node.metadata.name
        if name in self._cluster.nodes and hosts.of_labels(node.metadata.labels).written:
            self._nodes[name] = node
            self._look = True
            if node.metadata.labels.get(DRIVER_UPGRADE_STATE) == REQUIRED and self._states.get(name) == UPGRADE_FAILED:
                self._states[name] = REQUIRED  # somebody wants it tried again

    def gone(self, node: str) -> None:
        """The machine is no more."""
        for known in (self._nodes, self._drivers, self._states):
            known.pop(node, None)

    def catch_up(self) -> None:
        """Go on with each node as far as it goes."""
        if not self._look or not self._wanted:
            return
        self._look = False
        for name in sorted(self._nodes):
            self._advance(name)

    def _advance(self, name: str) -> None:
        node, state = self._nodes[name], self._states.get(name, "")
        there = self._drivers.get(name) or hosts.of_labels(node.metadata.labels).written
        if state in ("", DONE):
            state = REQUIRED if there != self._wanted else DONE
            self._set(name, state)
        if state == REQUIRED and self._may_begin(node):
            self._set(name, CORDON)
            state = CORDON
        if state == CORDON and self._cordoned(name, unschedulable=True):
            self._set(name, WAIT_FOR_PODS)
            self._cluster.queue.push(self._cluster.now_ns, _Look(self, name))

    def _may_begin(self, node: core.Node) -> bool:
        if node.metadata.labels.get(DRIVER_UPGRADE_SKIP) == "true":
            return False
        begun = sum(state in IN_PROGRESS for state in self._states.values())
        return node.spec.unschedulable or begun < AT_ONCE

    def look(self, name: str) -> Later:
        """Load the driver once the pods with GPUs have gone."""
        cluster, row = self._cluster, self._cluster.fleet.node_by_name.get(name)
        if row is None or self._states.get(name) != WAIT_FOR_PODS:
            return
        if any(cluster.fleet.pod(pod).devices for pod in cluster.fleet.node(row).pods):
            yield cluster.now_ns + UNTIL_GONE_NS, _Look(self, name)
            return
        self._set(name, LOAD)
        seconds = cluster.physics.durations.driver_upgrade_s
        yield cluster.now_ns + cluster.vary("driver-upgrade", seconds), _Loaded(self, name, self._wanted)

    def loaded(self, name: str, version: str) -> None:
        """The time that it takes is over."""
        machine, row = self._cluster.nodes.get(name), self._cluster.fleet.node_by_name.get(name)
        if machine is None or row is None or self._states.get(name) != LOAD:
            return
        bad = [index for index in range(machine.gpus) if not machine.health.healthy(machine.gpu_uuid(index))]
        if bad:
            self._event(f"Node {name}", "Warning", "GPUDriverUpgrade", f"driver {version}: GPU {bad[0]} is unhealthy")
            self._set(name, UPGRADE_FAILED)
            return
        self._drivers[name] = version
        fleet = self._cluster.fleet
        fleet.set_labels(row, {**fleet.node(row).labels, **driver_labels(version)})
        self._event(f"Node {name}", "Normal", "GPUDriverUpgrade", f"driver {version} is loaded")
        if STAYS_CORDONED not in self._nodes[name].metadata.annotations:
            self._cordoned(name, unschedulable=False)
        self._set(name, DONE)
        self._look = True  # the next node's turn

    def _cordoned(self, name: str, *, unschedulable: bool) -> bool:
        """Whether the node is cordoned, or not, now; else it is tried again."""
        if self._nodes[name].spec.unschedulable == unschedulable:
            return True
        try:
            self._client.patch(NODES, name, {"spec": {"unschedulable": unschedulable or None}})
        except ClientError:
            self._look = True
            return False
        return True

    def _set(self, name: str, state: str) -> None:
        if self._states.get(name) != state:
            self._states[name] = state
            self._changed(name)


@dataclass(slots=True)
class _Look:
    """It is looked whether the node's pods have gone."""

    upgrades: DriverUpgrades
    node: str

    def handle(self, cluster: SimulatedCluster) -> Later:
        return self.upgrades.look(self.node)


@dataclass(slots=True)
class _Loaded:
    """The driver is loaded, or fails."""

    upgrades: DriverUpgrades
    node: str
    version: str

    def handle(self, cluster: SimulatedCluster) -> Later:
        self.upgrades.loaded(self.node, self.version)
        return ()
