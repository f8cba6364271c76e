"""How the GPUs of a cluster's nodes are partitioned, and which of them are being repartitioned, as nodes and their pods
say.

The layouts of a node are those that its labels name. Beside the label an annotation has an Order
(:mod:`tonnage.partitioning.node_layouts`): what is wanted of each GPU, and what was there before. So another process
knows as much as this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tonnage.decisions import Instances, Relayout
from tonnage.errors import InputError
from tonnage.facts import instances
from tonnage.facts.labels import GPU, INSTANCE_TYPE, MIG_CONFIG, NVIDIA
from tonnage.fleet.devices import Cut
from tonnage.fleet.geometry import geometry
from tonnage.fleet.state import Fleet
from tonnage.kube.clock import Clock
from tonnage.live.annotations import GPUS, MIG_AT_WORK, MIG_LAYOUTS
from tonnage.live.configurations import OPERATOR_NAMESPACE, WatchedConfigurations
from tonnage.live.places import places
from tonnage.objects import core, quantity
from tonnage.objects.gpu_operator import OWN_MIG_CONFIG_MAP
from tonnage.partitioning import node_layouts
from tonnage.partitioning.fleet_layouts import busy_in, devices, has_layout, may_change
from tonnage.partitioning.mig_parted import Entry
from tonnage.partitioning.node_cuts import MIG_STATE, PLUGIN_CONFIG, cut_node
from tonnage.partitioning.node_layouts import Order, Phase
from tonnage.units import NS_PER_S

MIG_CONFIG_MAP = "tonnage-mig-configs"
"""Where configurations are written when no ClusterPolicy names another ConfigMap."""
KUBELET_NS = 120 * NS_PER_S
"""By then a kubelet has brought a changed ConfigMap to the pods that mount it: it looks once a minute or so
(kubernetes.io, Configure a Pod to Use a ConfigMap: sync period 1 min, and the delay of its cache)."""
FIRST_RETRY_NS = 300 * NS_PER_S
"""After a failure nothing is tried for this long on that node, then for twice as long, …"""
MOST_DOUBLINGS = 8
RESET = ("a100", "a30")
"""GPUs whose MIG mode changes by a reset: where that fails, mig-manager may restart the node (WITH_REBOOT). Hopper and
later need none (NVIDIA MIG user guide)."""


Key = tuple[str, str]
"""(namespace, name)."""


@dataclass(frozen=True, slots=True)
class Cutter:
    """Who partitions the GPUs of nodes. ``keeps``: it leaves instances alone that stay. ``reads_after_ns``: how long it
    may take until it knows a new configuration. ``config_map``: (namespace, name) of the ConfigMap that it reads where
    no ClusterPolicy names one; None: it reads none then.

    By default NVIDIA's mig-manager: mig-parted destroys every instance on a GPU that is to be repartitioned, and reads
    a file that the kubelet keeps up to date."""

    keeps: bool = False
    reads_after_ns: int = KUBELET_NS
    config_map: Key | None = None
    namespace: str = OPERATOR_NAMESPACE


SIMULATED = Cutter(keeps=True, reads_after_ns=0, config_map=(OPERATOR_NAMESPACE, MIG_CONFIG_MAP))
"""That of simulated machines."""


@dataclass(frozen=True, slots=True)
class NodeWrite:
    """What is to be written on a node: the order, where the order ``now`` stands, beside the label that names
    ``label``; and before that the configuration that it names, if there are ``entries``. ``pods``: the uids of the pods
    that were known to be on the node; None: it does not matter who is."""

    order: Order
    now: Order | None
    label: str
    entries: tuple[Entry, ...] = ()
    config_map: Key = ("", "")
    pods: frozenset[str] | None = None


class Cutting:
    """Told of nodes and pods before the fleet is."""

    def __init__(self, clock: Clock, configurations: WatchedConfigurations, cutter: Cutter) -> None:
        self._clock, self._configurations, self.cutter = clock, configurations, cutter
        self.nodes: dict[str, core.Node] = {}
        """Those with GPUs that labels may cut."""
        self._assumed: dict[str, Order] = {}
        """Orders that were written here and have not been seen."""
        self._orders: dict[str, Order] = {}
        self._allowed: set[str] = set()
        """Those of the nodes that allow their MIG layout to be changed."""
        self._unknown: dict[str, dict[Key, None]] = {}
        """By node, its pods of which nobody has said the GPUs."""
        self._stands: dict[Key, str] = {}
        """The same: pod → node."""

    # ---- what is reported ----

    def node(self, old: core.Node | None, new: core.Node | None) -> None:
        """A node was added, changed or deleted."""
        name = (new or old).metadata.name  # type: ignore[union-attr]
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            for known in (self.nodes, self._orders, self._assumed):
                known.pop(name, None)
            self._allowed.discard(name)
        if new is None or _gpus(new) is None:
            return
        self.nodes[name] = new
        (self._allowed.add if may_change(new.metadata.labels) else self._allowed.discard)(name)
        order = read_order(new.metadata.annotations)
        if order is None:
            self._orders.pop(name, None)
        else:
            self._orders[name] = order
        if order == self._assumed.get(name):
            self._assumed.pop(name, None)

    def pod(self, old: core.Pod | None, new: core.Pod | None) -> None:
        """A pod was added, changed or deleted."""
        one = new or old
        assert one is not None
        key = (one.namespace, one.name)
        node = self._stands.pop(key, None)
        if node is not None:
            self._unknown[node].pop(key)
            if not self._unknown[node]:
                del self._unknown[node]
        if new is not None and new.spec.node_name and not places(new.metadata.annotations):
            self._stands[key] = new.spec.node_name
            self._unknown.setdefault(new.spec.node_name, {})[key] = None

    def assume(self, node: str, order: Order) -> None:
        """This was written on the node, or may have been; no watch has shown it yet."""
        self._assumed[node] = order

    def forget(self, node: str) -> None:
        """It was not written."""
        self._assumed.pop(node, None)

    def assumes(self, node: str, order: Order) -> bool:
        """Whether this is still waited for."""
        return self._assumed.get(node) == order

    # ---- what is asked ----

    def open(self) -> list[str]:
        """The nodes with an order, by name."""
        return sorted({*self._orders, *self._assumed})

    def order(self, node: str) -> Order | None:
        """What is wanted of the node's GPUs."""
        return self._assumed.get(node) or self._orders.get(node)

    def phase(self, node: str) -> Phase:
        """How far it has come."""
        order, labels = self._assumed.get(node), self.nodes[node].metadata.labels if node in self.nodes else {}
        if order is not None:  # the labels are written with it
            return Phase.WAITING if order.due_ns else Phase.CUTTING
        return node_layouts.phase(self._orders.get(node), labels)

    def changing(self, node: str) -> dict[int, Instances]:
        """The GPUs of the node whose MIG layout is being changed, by index, and what they will be."""
        order = self.order(node)
        left = (
            at_work(self.nodes[node].metadata.annotations, order) if order is not None and node in self.nodes else None
        )
        return node_layouts.under_way(order, self.phase(node), left)

    def relayouts(self) -> dict[tuple[str, int], Instances]:
        """The same of all nodes."""
        return {(node, device): goal for node in self.open() for device, goal in self.changing(node).items()}

    def cuts(self, node: core.Node) -> tuple[Cut, ...]:
        """How the GPUs of a node are partitioned; empty where its labels do not say it, or what it offers is something
        else."""
        known = _gpus(node)
        if known is None:
            return ()
        name, labels = node.metadata.name, node.metadata.labels
        on, order, at = geometry(known.gpu), self.order(name), self.phase(name)
        ordered = order is not None and len(order.gpus) == known.resource_count
        if on is not None and order is not None and ordered and at in (Phase.WAITING, Phase.CUTTING, Phase.DONE):
            return node_layouts.cuts(order, self.changing(name).keys(), on)
        current = self._configurations.current
        named = labels.get(MIG_CONFIG) or labels.get(PLUGIN_CONFIG) or current.default
        if not named or labels.get(MIG_STATE, node_layouts.SUCCESS) != node_layouts.SUCCESS:
            return ()
        made = cut_node(current, labels, known.gpu, known.resource_count)
        return () if made.problems or _contradicts(node, made.offers) else made.cuts

    def fixed(self, fleet: Fleet) -> dict[tuple[str, int], str]:
        """GPUs that cannot be repartitioned now, of nodes that allow it, and why."""
        found: dict[tuple[str, int], str] = {}
        for name in sorted(self._allowed):
            row = fleet.node_by_name.get(name)
            if row is None:
                continue
            held = [key for key in self._unknown.get(name, ()) if _holds(fleet, key)]
            why = self._why_not(name) or (_not_known(min(held)) if held else "")
            for device in range(devices(fleet, row)):
                if reason := why or self._in_use(fleet, (row, device)):
                    found[name, device] = reason
        return found

    def _why_not(self, node: str) -> str:
        """Why no GPU of the node can be repartitioned now; empty: nothing is in the way."""
        order, at = self.order(node), self.phase(node)
        state = self.nodes[node].metadata.labels.get(MIG_STATE, "")
        if self._config_map() is None:
            return _NO_CONFIG_MAP
        if node not in self._assumed and state == node_layouts.FAILED:
            return "mig-manager has failed on this node, and its log says why"
        if order is not None and order.retry_ns > self._clock.now_ns():
            return f"mig-manager has failed on this node ({order.failures} in a row): nothing is tried for a while"
        busy = at in (Phase.WAITING, Phase.CUTTING) or state in (node_layouts.PENDING, node_layouts.REBOOTING)
        if busy and not self.cutter.keeps:
            return "mig-manager is at work on this node"
        return ""

    def _in_use(self, fleet: Fleet, at: tuple[int, int]) -> str:
        if self.cutter.keeps or not has_layout(fleet.cards.cut_of(*at)) or not busy_in(fleet, at):
            return ""
        return "an instance on it is in use, and mig-manager destroys every instance of a GPU whose layout it changes"

    def _config_map(self) -> Key | None:
        """Where mig-manager reads configurations that others may write; None: nowhere."""
        policy = self._configurations.policy
        if policy is None:
            return self.cutter.config_map
        own = policy.mig_config_map == OWN_MIG_CONFIG_MAP or not self.cutter.namespace
        return None if own else (self.cutter.namespace, policy.mig_config_map)

    def wanted(self, fleet: Fleet, decision: Relayout) -> NodeWrite | str:
        """What to write so that the decision's GPU is partitioned so and all others of its node are as they are, or
        will be; or why that cannot be said."""
        name, row = decision.node.name, fleet.node_by_name[decision.node.name]
        where, node = self._config_map(), self.nodes.get(name)
        known = _gpus(node) if node is not None else None
        if where is None or node is None or known is None:
            return _NO_CONFIG_MAP if where is None else "how many GPUs its instance type has is not known"
        now, label = self.order(name), node.metadata.labels.get(MIG_CONFIG, "")
        changing = self.changing(name)
        label = now.config if name in self._assumed and now is not None and not now.due_ns else label
        gpus = [self._goal(fleet, row, device, changing) for device in range(known.resource_count)]
        gpus[decision.device] = decision.after
        made = node_layouts.entries(gpus)
        if not self.cutter.keeps:
            mode = (decision.before is None) != (decision.after is None)
            if mode and known.gpu.startswith(RESET) and any(fleet.pod(pod).devices for pod in fleet.node(row).pods):
                return "its MIG mode changes with a reset, or with the node's restart, and pods are on the node's GPUs"
            try:
                placed = node_layouts.as_mig_parted_makes(made, known.gpu, known.resource_count)
            except InputError as error:
                return error.problems[0].message
            gpus[decision.device] = placed[decision.device]
        before = {device: now.before[device] for device in changing} if now is not None else {}
        delay = self.cutter.reads_after_ns
        order = Order(
            node_layouts.name_of(made),
            tuple(gpus),
            was=now.was if now is not None and changing else label,
            before={**before, decision.device: decision.before},
            due_ns=self._clock.now_ns() + delay if delay else 0,
            failures=now.failures if now is not None and now.retry_ns else 0,
        )
        pods = frozenset(fleet.pod(pod).spec.uid for pod in fleet.node(row).pods)
        return NodeWrite(order, now, label, made, where, pods)

    @staticmethod
    def _goal(fleet: Fleet, row: int, device: int, changing: Mapping[int, Instances]) -> Instances:
        """What a GPU is, or will be; one that is missing comes back as it was."""
        if device in changing:
            return changing[device]
        if device < devices(fleet, row):
            return node_layouts.of_cut(fleet.cards.cut_of(row, device))
        cuts = fleet.node(row).cuts
        return node_layouts.of_cut(cuts[device]) if device < len(cuts) else None


def failed(order: Order, now_ns: int) -> Order:
    """The order to turn back, after mig-manager has failed: what was there before, and nothing new for a while."""
    gpus = tuple(order.before.get(device, now) for device, now in enumerate(order.gpus))
    failures = order.failures + 1
    pause = FIRST_RETRY_NS << min(failures - 1, MOST_DOUBLINGS)
    nothing: dict[int, Instances] = dict.fromkeys(order.before, ())  # until it says so, none of them counts
    return Order(order.was, gpus, before=nothing, failures=failures, retry_ns=now_ns + pause)


def read_order(annotations: Mapping[str, str]) -> Order | None:
    """The order on a node; one that is not to be read is none."""
    written = annotations.get(MIG_LAYOUTS)
    if not written:
        return None
    try:
        return msgspec.json.decode(written, type=Order)
    except msgspec.DecodeError:
        return None


def at_work(annotations: Mapping[str, str], order: Order) -> frozenset[int] | None:
    """The GPUs with which whoever follows the order has not finished; None: it does not say."""
    config, _, devices_ = annotations.get(MIG_AT_WORK, "").rpartition(":")
    if config != order.config:
        return None
    return frozenset(int(device) for device in devices_.split(",") if device.isdecimal())


def written_order(order: Order) -> str:
    """As the annotation has it."""
    return msgspec.json.encode(order).decode()


_NO_CONFIG_MAP = (
    "no ConfigMap is known that mig-manager reads and others may write: name one of your own in the ClusterPolicy, "
    "spec.migManager.config.name"
)


def _not_known(pod: Key) -> str:
    return f"which GPUs pod {'/'.join(pod)} is on is not known: it has no annotation {GPUS}"


def _holds(fleet: Fleet, key: Key) -> bool:
    """Whether the pod has a GPU, or a part of one."""
    row = fleet.pod_by_key.get(key)
    return row is not None and bool(fleet.pod(row).devices)


def _gpus(node: core.Node) -> instances.InstanceType | None:
    """The instance type of a node that has NVIDIA GPUs."""
    type_ = node.metadata.labels.get(INSTANCE_TYPE, "")
    found = instances.get(type_) if instances.known(type_) else None
    return found if found is not None and found.resource == GPU else None


def _contradicts(node: core.Node, offers: Mapping[str, int]) -> bool:
    """Whether the node offers GPUs, or parts of them, beyond these."""
    amounts = {n: quantity.amount(n, v) for n, v in node.status.allocatable.items() if n.startswith(NVIDIA)}
    return any(amount > offers.get(name, 0) for name, amount in amounts.items())
