"""Time-slicing that does not exist: modes of pods, intervals of nodes; annotations of GPU sharing without effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tonnage.decisions import Finding, Ref
from tonnage.errors import Where
from tonnage.fleet.asks import ANNOTATIONS, FRACTION, FRACTION_MEMORY
from tonnage.health.setting import Pods
from tonnage.machines.cards import INTERVAL_LABEL, LEASE_ANNOTATION
from tonnage.objects import core, karpenter
from tonnage.objects.base import where
from tonnage.objects.load import Manifest
from tonnage.partitioning.leases import FAIR, STRICT
from tonnage.partitioning.turns import INTERVALS_S, interval_named
from tonnage.simulation.scenario import Scenario


def unknown_modes(found: Sequence[Pods]) -> Iterator[Finding]:
    """Pods whose annotation names no mode of time-slicing, and those that have a mode and no part of a GPU."""
    for pods in found:
        notes = pods.template.metadata.annotations
        mode = notes.get(LEASE_ANNOTATION)
        of, place = Ref(pods.object.kind, pods.object.metadata.name, pods.namespace), pods.where("")
        if mode is None:
            continue
        if mode not in (STRICT, FAIR):
            message = f"{LEASE_ANNOTATION} is {mode!r}: expected {STRICT} or {FAIR}; its GPUs are shared in turns"
            yield Finding("gpu-time-slicing-unknown", "warning", of, place, message)
        elif FRACTION not in notes and FRACTION_MEMORY not in notes:
            message = f"{LEASE_ANNOTATION} has no effect: there is no annotation {FRACTION} or {FRACTION_MEMORY}"
            yield Finding("gpu-time-slicing-no-effect", "warning", of, place, message)


def misplaced_annotations(found: Sequence[Pods]) -> Iterator[Finding]:
    """Workloads that have an annotation of GPU sharing in place of their pods: nobody reads it there."""
    for pods in found:
        of = Ref(pods.object.kind, pods.object.metadata.name, pods.namespace)
        for name in (LEASE_ANNOTATION, *ANNOTATIONS):
            rule = "gpu-time-slicing-no-effect" if name == LEASE_ANNOTATION else "gpu-part-no-effect"
            if name in pods.template.metadata.annotations or name not in pods.object.metadata.annotations:
                continue
            message = f"{name} has no effect here: it is read of the pods"
            hint = f"move it to {pods.template.field.removesuffix('spec')}metadata.annotations"
            yield Finding(rule, "warning", of, where(pods.object, f"metadata.annotations.{name}"), message, help=hint)


def unknown_intervals(scenario: Scenario, manifest: Manifest) -> Iterator[Finding]:
    """Nodes, of the scenario, of NodePools or of their own, whose label names no interval: they have the default."""
    for at, group in enumerate(scenario.spec.fleet.nodes):
        place = scenario.document.where(f"fleet.nodes[{at}].labels")
        yield from _unknown(group.labels, Ref("Nodes", group.instance_type), place)
    for pool in manifest.of(karpenter.NodePool):
        at_labels = where(pool, "spec.template.metadata.labels")
        yield from _unknown(pool.spec.template.metadata.labels, Ref("NodePool", pool.name), at_labels)
    for node in manifest.of(core.Node):
        yield from _unknown(node.metadata.labels, Ref("Node", node.name), where(node, "metadata.labels"))


def _unknown(labels: Mapping[str, str], of: Ref, place: Where) -> Iterator[Finding]:
    text = labels.get(INTERVAL_LABEL)
    if text is not None and interval_named(text) is None:
        names = ", ".join(INTERVALS_S)
        message = f"{INTERVAL_LABEL} is {text!r}: expected {names}, or 0 to 3; its GPUs have the default interval"
        yield Finding("gpu-timeslice-unknown", "warning", of, place, message)
