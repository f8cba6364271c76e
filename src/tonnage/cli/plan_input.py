"""What `tonnage plan` is given: pending pods, nodes that are there, NodePools, prices."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from tonnage.cli import plan_occupied
from tonnage.cli.plan_occupied import Going
from tonnage.control.nodes import (
    Pools,
    bound_pods,
    coming_of,
    existing_nodes,
    gang_minima,
    namespaces,
    pending_pods,
    waiting_gangs,
)
from tonnage.control.static_capacity import nodes_of_pools
from tonnage.decisions import Finding, Ref
from tonnage.errors import InputError
from tonnage.fleet.snapshot import Snapshot
from tonnage.health import told
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.rules.nodepools import AWS
from tonnage.live import still
from tonnage.objects import apps, core, karpenter, load
from tonnage.objects.load import Manifest
from tonnage.provisioning import auto_mode, headroom, static
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.devices import beyond_counting
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.reserving import left
from tonnage.scheduling.beyond import beyond, gated
from tonnage.simulation import assumed, groups, scenario
from tonnage.simulation.configure import configure, sorted_findings
from tonnage.simulation.extent import refuse_too_many_pods
from tonnage.workloads.membership import stamped

_MISSING = "nodepool-nodeclass-missing"
_SUPPLY = ("NodePool", "NodeOverlay", "EC2NodeClass", "CapacityBuffer", "File")


@dataclass(frozen=True, slots=True)
class PlanInput:
    """The arguments of a plan, and what was found on the way. ``gangs``: pending pods, by gang; ``minima``: of how
    many of them it needs a place; ``going``: nodes that may go back, and those that may not; ``stuck``: pods for which
    no node is of use, and why; ``static``: what static NodePools launch, which is among ``nodes``.
    """

    pods: tuple[PendingPod, ...]
    nodes: tuple[ExistingNode, ...]
    pools: Pools
    catalogue: Catalogue
    settings: PlanSettings
    gangs: dict[str, tuple[Ref, ...]]
    minima: dict[str, int]
    findings: tuple[Finding, ...]
    going: Going
    stuck: tuple[tuple[Ref, str], ...]
    static: Plan


def read(paths: Sequence[Path], existing: Sequence[Path], prices: Path | None, now_ns: int = 0) -> PlanInput:
    """Read manifests or a dump of a cluster. ``now_ns``: since the Unix epoch. Raises InputError for anything that
    cannot be read."""
    if scenario.is_scenario(paths):
        hint = "give the folder of its manifests, or run it with tonnage simulate"
        raise InputError.at("is a scenario: pods come and go in it", file=str(paths[0]), hint=hint)
    manifest = load.read([*paths, *existing])
    refuse_too_many_pods(manifest.objects)
    catalogue = Catalogue.load(prices, own_types=True)
    snapshot = still.snapshot_of(manifest.objects, completed=True)
    without = tuple(one for one in manifest.objects if not isinstance(one, core.Node))
    supplied = assumed.with_nodes(replace(manifest, objects=without))
    configuration = configure(supplied, catalogue)
    catalogue = configuration.catalogue
    pools = Pools(
        (
            *(one for one in supplied.of(karpenter.NodePool) if one.spec.template.spec.node_class_ref.group == AWS),
            *(one for one in configuration.pools if auto_mode.is_auto(one)),
        ),
        configuration.storage,
        tuple(one.spec.template.spec for one in supplied.of(apps.DaemonSet)),
        configuration.cuts,
        configuration.autoscaler,
        headroom.read(supplied.objects),
    )
    replicas = {key: workload.replicas for key, workload in snapshot.workloads.items()}
    coming = coming_of(snapshot.fleet, groups.with_groups(pools, configuration.groups, catalogue, ()), catalogue)
    waiting = (*pending_pods(snapshot.fleet, coming=coming), *headroom.virtual_pods(pools.buffers, replicas, now_ns))
    parts = any(beyond_counting(pod.shape.ask) for pod in waiting)
    there = existing_nodes(snapshot.fleet, catalogue, parts=parts)
    nodes = tuple(groups.adopted(there, configuration.groups, catalogue))
    pools = groups.with_groups(pools, configuration.groups, catalogue, (one.node_pool for one in nodes))
    found = _said(supplied, configuration.findings, str(paths[0]))
    gangs = waiting_gangs(snapshot, {pod.ref for pod in waiting})
    minima = gang_minima(snapshot, gangs)
    going = plan_occupied.read(snapshot, nodes, pools.node_pools, catalogue)
    reserved = left(catalogue.book.reservations, (one.labels for one in nodes), now_ns)
    settings = msgspec.structs.replace(pools.plan_settings(), reservations=reserved)
    settings = msgspec.structs.replace(
        settings, bound=bound_pods(snapshot.fleet), namespaces=namespaces(snapshot.fleet)
    )
    stuck = tuple(_stuck(snapshot, {pod.ref for pod in waiting}, supplied, configuration.blockers))
    fixed = static.plan(pools.node_pools, *nodes_of_pools(snapshot), catalogue, settings)
    nodes += tuple(one.in_flight(configurations=pools.configurations) for one in fixed.claims)
    said = sorted_findings(found)
    return PlanInput(waiting, nodes, pools, catalogue, settings, gangs, minima, said, going, stuck, fixed)


def _stuck(
    snapshot: Snapshot, planned: Container[Ref], manifest: Manifest, blockers: Sequence[Blocker]
) -> Iterator[tuple[Ref, str]]:
    """Pending pods and for which no nodes are planned, with what `tonnage check` and `tonnage why` say of them."""
    fleet = snapshot.fleet
    specs = [fleet.pod(row).spec for row in fleet.pending]
    left = [one for one in specs if not one.daemon and one.ref not in planned]
    if not left:
        return
    makers = {
        (replica.namespace or "default", replica.name): Ref(one.kind, one.name, one.namespace)
        for one in manifest.objects
        for replica in stamped(one, manifest.objects)
    }
    for spec in left:
        maker = makers.get((spec.namespace, spec.name))
        known = [one for ref in (spec.ref, maker) if ref is not None for one in told.about(ref, blockers)]
        said = next((one.message for one in known if one.stage == UNSCHEDULABLE and not one.some), "")
        why = gated(spec) or beyond(spec, len(fleet.node_by_name), strict=False)
        yield spec.ref, said or why.removeprefix("0/0 nodes are available: ")


def _said(manifest: Manifest, findings: Sequence[Finding], folder: str) -> Iterator[Finding]:
    """Of what was found, warnings and errors about supply; what is assumed is said instead of what is missing."""
    for one in assumed.said(manifest, findings, folder):
        if one.rule == _MISSING:
            message = "its EC2NodeClass is not among the files: nodes are planned with EC2's default volume"
            help_ = "add the EC2NodeClass, whose volumes say how much ephemeral-storage pods find"
            yield Finding("nodeclass-assumed", "warning", one.object, one.where, message, help=help_)
        elif one.rule == "nodes-assumed":
            message = f"no NodePools are among the files: {assumed.LAUNCHED}"
            yield msgspec.structs.replace(one, message=message, help="add the cluster's NodePools")
        elif one.severity != "info" and one.object.kind in _SUPPLY:
            yield one
