"""GPUs whose MIG layout is being changed: instance by instance, in time, with a journal that can turn back.

An instance that goes is withdrawn from the node's resources when its destruction begins. What is made is offered when
all is made and the device plugin has registered again (NVIDIA/k8s-device-plugin issue 992: it has to be restarted after
a change); what stays is offered all the while. Durations are those of :mod:`tonnage.facts.durations`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.decisions import Applied, Instances, Outcome, Relayout, layout_text
from tonnage.facts.labels import MIG_PREFIX
from tonnage.fleet.cards import NO_DEVICE
from tonnage.fleet.geometry import geometry
from tonnage.gate import in_order
from tonnage.machines.events import Event, Later
from tonnage.machines.layout_change import LayoutChange
from tonnage.machines.site import Site
from tonnage.partitioning.fleet_layouts import (
    as_instances,
    as_layout,
    busy_in,
    has_layout,
    instances_of,
    lay,
    layout_of,
)
from tonnage.partitioning.labels import NodeGpu, predict
from tonnage.partitioning.relayout import Step
from tonnage.partitioning.steps import Journal, TurnBack, Waiting, next_step


def _over(cluster: Site, change: LayoutChange) -> bool:
    """Whether there is nothing left to do, because the machine is gone; then it is forgotten."""
    if change.node.ended_ns is None:
        return False
    cluster.gpus.relayouts.pop(change.key, None)
    return True


def begin(cluster: Site, decision: Relayout) -> Outcome:
    """Begin to do what a decision says that has passed the gate."""
    node = cluster.nodes[decision.node.name]
    on = geometry(node.gpu)
    assert on is not None
    before, after = as_layout(decision.before), as_layout(decision.after)
    journal = Journal(f"{node.name}/{decision.device}", before, after)
    shown = in_order(decision.before), in_order(decision.after)
    change = LayoutChange(node, decision.device, on, *shown, journal, before)
    cluster.gpus.relayouts[change.key] = change
    _tell(cluster, change, "RelayoutStarted", decision.summary())
    mode = 0
    if decision.before is None:
        _offer(cluster, change, ())
        mode = cluster.vary("mig-mode", cluster.physics.durations.mig_mode_s)
    cluster.queue.push(cluster.now_ns + mode, Next(change))
    return Applied()


@dataclass(slots=True)
class Next:
    """The next step of a change is looked for, from what there is now."""

    change: LayoutChange

    def handle(self, cluster: Site) -> Later:
        change = self.change
        if _over(cluster, change):
            return
        now, seconds = cluster.now_ns, cluster.physics.durations
        row = cluster.fleet.node_by_name[change.node.name]
        at = row, change.device
        if cluster.fleet.devices[at] == NO_DEVICE:  # it has failed: what is to be done is done when it is back
            yield now + cluster.vary("mig-plugin", seconds.mig_plugin_s), self
            return
        step = next_step(change.on, change.journal, change.there, busy_in(cluster.fleet, at))
        if isinstance(step, TurnBack):
            change.journal = change.journal.turned()
            held = ", ".join(f"{one.profile} at {one.start}" for one in step.instances)
            _tell(cluster, change, "RelayoutRolledBack", f"{held} is in use now", "Warning")
            yield now, self
        elif isinstance(step, Waiting):
            yield now + cluster.vary("mig-plugin", seconds.mig_plugin_s), self
        elif step is not None:
            if step.action == "destroy":
                shown = as_layout(instances_of(cluster.fleet, at))
                _offer(cluster, change, as_instances(tuple(one for one in shown if one != step.placement)))
            yield now + cluster.vary("mig-instance", seconds.mig_instance_s), Done(change, step)
        else:
            yield self._register(cluster, instances_of(cluster.fleet, at))

    def _register(self, cluster: Site, shown: Instances) -> tuple[int, Event]:
        """When all instances are as they should be, the device plugin has to see it, unless it shows them already."""
        change, seconds = self.change, cluster.physics.durations
        later = 0
        if change.goal != shown:
            mode = seconds.mig_mode_s if change.goal is None else 0
            later = cluster.vary("mig-mode", mode) + cluster.vary("mig-plugin", seconds.mig_plugin_s)
        return cluster.now_ns + later, Registered(change)


@dataclass(slots=True)
class Done:
    """An instance was made, or is no more."""

    change: LayoutChange
    step: Step

    def handle(self, cluster: Site) -> Later:
        change, one = self.change, self.step.placement
        if _over(cluster, change):
            return
        made = self.step.action == "create"
        left = tuple(other for other in change.there if other != one)
        change.there = tuple(sorted((*left, one))) if made else left
        _tell(cluster, change, "InstanceCreated" if made else "InstanceDestroyed", f"{one.profile} at {one.start}")
        yield cluster.now_ns, Next(change)


@dataclass(slots=True)
class Registered:
    """The device plugin offers what there is now: the change is over."""

    change: LayoutChange

    def handle(self, cluster: Site) -> Later:
        change = self.change
        if _over(cluster, change):
            return
        row = cluster.fleet.node_by_name[change.node.name]
        if cluster.fleet.devices[row, change.device] == NO_DEVICE:
            yield cluster.now_ns, Next(change)
            return
        _offer(cluster, change, change.goal)
        _relabel(cluster, change, row)
        del cluster.gpus.relayouts[change.key]
        _tell(cluster, change, "RelayoutDone", layout_text(change.goal))
        cluster.wake("node")


def _relabel(cluster: Site, change: LayoutChange, row: int) -> None:
    """GPU feature discovery labels the node again with what it has of each profile."""
    fleet = cluster.fleet
    cuts = [fleet.cards.cut_of(row, device) for device in range(change.node.gpus)]
    layouts = [layout_of(cut) if has_layout(cut) else None for cut in cuts]
    cards = [NodeGpu(change.on.gpu, None if one is None else tuple(made.profile for made in one)) for one in layouts]
    labels = {key: value for key, value in fleet.node(row).labels.items() if not key.startswith(MIG_PREFIX)}
    predicted = predict(cards, "mixed").labels
    fleet.set_labels(row, labels | {key: value for key, value in predicted.items() if key.startswith(MIG_PREFIX)})


def _offer(cluster: Site, change: LayoutChange, instances: Instances) -> None:
    """Let the device plugin offer these instances of the GPU."""
    lay(cluster.fleet, (cluster.fleet.node_by_name[change.node.name], change.device), instances)
    cluster.mirror.node_changed(change.node)


def _tell(cluster: Site, change: LayoutChange, reason: str, message: str, type_: str = "Normal") -> None:
    text = f"GPU {change.device}: {message}"
    cluster.events.add(cluster.now_ns, f"Node {change.node.name}", type_, reason, text)
