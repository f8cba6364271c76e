"""Which workloads of a scenario no node will ever take, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Protocol

import msgspec

from tonnage.control.nodes import Pools
from tonnage.control.policy import Policy
from tonnage.decisions import Ref
from tonnage.fleet import asks
from tonnage.fleet.gangs import Gang
from tonnage.fleet.rows import FleetPod
from tonnage.fleet.volumes import NO_VOLUMES
from tonnage.health.blocker import NO_NODE, UNSCHEDULABLE, Blocker
from tonnage.health.outlook import MOST, Outlook, WorkloadPods
from tonnage.health.rules import ports, volumes
from tonnage.health.setting import Pods, Setting, requested
from tonnage.machines.claiming import devices, need
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.training.workload import Training
from tonnage.objects import core
from tonnage.scheduling import place
from tonnage.scheduling.explain import NO_NODES
from tonnage.simulation import assumed
from tonnage.simulation.configure import Configuration, bounds
from tonnage.workloads import daemons, stateful

POD_GROUP = "PodGroup"


class Beginning(Protocol):
    """A scenario under one policy, before time begins."""

    @property
    def cluster(self) -> SimulatedCluster: ...

    @property
    def configuration(self) -> Configuration: ...

    @property
    def controls(self) -> Policy:
        """How pods are placed and GPUs partitioned."""
        ...

    def placing(self) -> place.Settings:
        """The scheduler's settings."""
        ...

    def pools(self) -> Pools:
        """The NodePools that can launch nodes."""
        ...


def prospects(made: Beginning, setting: Setting) -> Iterator[Blocker]:
    """A blocker for each workload of which pods are unschedulable and will stay so. GPUs that the policy partitions as
    pods ask for them are no reason to say so of pods that ask for parts."""
    pools = made.pools()
    if not made.cluster.fleet.node_by_name and not pools.node_pools:
        yield from _without_nodes(made, setting)
        return
    catalogue, unknown = made.configuration.catalogue, assumed.are_assumed(pools.node_pools)
    outlook = Outlook(made.cluster.snapshot(), made.placing(), pools, catalogue, sizes=unknown)
    templates = setting.by_object()
    said = {one.object for one in made.configuration.blockers if one.stage == UNSCHEDULABLE and not one.some}
    recut = made.controls.partitioning != "static" or unknown
    for ref, workload, gangs in _workloads(made):
        parts = _templates_of(ref, workload, templates)
        if parts and ref not in said and not (recut and any(map(_in_parts, workload))):
            known = WorkloadPods(parts, tuple(workload), gangs)
            for blocker in list(outlook.never(known)):
                better = _by_volumes(made, outlook, known, blocker) or ports.of_daemons(blocker, setting) or blocker
                yield msgspec.structs.replace(better, object=ref)
    yield from _of_daemons(made, setting, recut=recut)
    if not pools.node_pools:
        yield from ports.taken(setting, len(made.cluster.fleet.node_by_name))


def _of_daemons(made: Beginning, setting: Setting, *, recut: bool) -> Iterator[Blocker]:
    """DaemonSets that some of their nodes have no room for, were there no other pods."""
    fleet = made.cluster.fleet
    given = {(namespace, name): template for namespace, name, template in made.cluster.declared.daemon_sets}
    for pods in setting.pods if fleet.node_by_name else ():
        template = given.get((pods.namespace, pods.object.name)) if pods.is_daemon else None
        if template is None:
            continue
        asked = core.pod_requests(template.spec)
        if recut and asks.read(template.spec, asked, template.metadata.annotations).shares:
            continue
        admitted, left = 0, []
        for row in fleet.node_rows():
            node = fleet.node(row)
            if daemons.fit(template.spec, node.labels, node.taints, node.spec.name).run:
                admitted += 1
                lacks = _lacking(asked, fleet.allocatable_of(row))
                left += [(node.spec.name, lacks)] if lacks else []
        if left:
            node_name, lacks = left[0]
            some = len(left) < admitted
            said = f"0/{admitted} nodes are available: {len(left)} Insufficient {lacks}"
            message = f"node {node_name} cannot hold the pod of this DaemonSet: Insufficient {lacks}"
            help_ = "ask for less, or select nodes that have it"
            place = pods.where(requested(pods.spec, lacks))
            yield Blocker("pods-fit-no-node", UNSCHEDULABLE, pods.ref, place, message, help_, NO_NODE, said, some)


def _lacking(asked: Mapping[str, int], has: Mapping[str, int]) -> str:
    """The first resource of which a node without pods has less than is asked for; empty for none."""
    return next((name for name, amount in sorted(asked.items()) if amount > has.get(name, 0)), "")


def _templates_of(ref: Ref, pods: Iterable[FleetPod], known: Mapping[Ref, tuple[Pods, ...]]) -> tuple[Pods, ...]:
    """What the pods of a workload are made from; those of a PodGroup are written themselves."""
    if ref.kind != POD_GROUP:
        return known.get(ref, ())
    return tuple(one for pod in pods for one in known.get(Ref("Pod", pod.name, pod.namespace), ()))


def _without_nodes(made: Beginning, setting: Setting) -> Iterator[Blocker]:
    """Nobody has a place: for the same cause as why no NodePool can launch a node, where there are NodePools."""
    broken = next((one for one in made.configuration.blockers if one.object.kind == "NodePool" and not one.some), None)
    found = list(_workloads(made))
    wanted = {ref for ref, _, _ in found} | {pod.ref for ref, pods, _ in found if ref.kind == POD_GROUP for pod in pods}
    for pods in setting.pods:
        if pods.ref not in wanted or pods.is_daemon:
            continue
        if broken is not None:
            message = f"no feasible node for these pods, and no NodePool can launch one: {broken.message}"
            yield msgspec.structs.replace(
                broken, stage=UNSCHEDULABLE, object=pods.ref, message=message, reason=NO_NODE, said=NO_NODES
            )
        else:
            message = "there is no node, and no NodePool that can launch one"
            help_ = "give the scenario's fleet nodes, or add a NodePool to the files"
            yield Blocker(
                "pods-fit-no-node", UNSCHEDULABLE, pods.ref, pods.where(""), message, help_, NO_NODE, NO_NODES
            )


def _by_volumes(made: Beginning, outlook: Outlook, workload: WorkloadPods, blocker: Blocker) -> Blocker | None:
    """The blocker of pods that have a place, but for where their volumes are; None of others."""
    first = next((pod for pod in workload.pods if pod.volumes.reach), None)
    if first is None:
        return None
    freed = tuple(replace(pod, volumes=NO_VOLUMES) for pod in workload.pods)
    if list(outlook.never(replace(workload, pods=freed))):
        return None
    limits = made.cluster.declared.volumes.limits(first.namespace, first.name, first.spec.volumes)
    return volumes.out_of_reach(blocker, limits, made.cluster.declared.volumes)


def _in_parts(pod: FleetPod) -> bool:
    return asks.read(pod.spec, core.pod_requests(pod.spec), pod.annotations).shares


def _workloads(made: Beginning) -> Iterator[tuple[Ref, list[FleetPod], dict[str, Gang]]]:
    """Every workload with the pods that it is to have, and their gangs; one of several copies. One without pods is to
    have some where an autoscaler makes them."""
    scaled = bounds(made.configuration, list(made.cluster.workloads.values()))
    for one in made.cluster.workloads.values():
        wanted = max(one.replicas, int(one.key in scaled))
        if (count := min(wanted - len(one.standing), MOST)) <= 0:
            continue  # all of them stand already
        meta, spec = one.template.metadata, one.template.spec
        pods = [(f"{one.name}-{number:05d}", dict(meta.labels), spec) for number in range(1, count + 1)]
        if one.stateful is not None:
            numbered = (stateful.replica(one.stateful, n) for n in stateful.wanted(one.stateful, wanted))
            left = (replica for replica in numbered if replica.name not in one.standing)
            pods = [(replica.name, replica.labels, replica.spec) for replica in islice(left, count)]
        yield (
            one.ref,
            [
                FleetPod(
                    one.namespace,
                    name,
                    "",
                    labels,
                    of_pod,
                    owner=one.key,
                    priority=spec.priority or 0,
                    annotations=meta.annotations,
                    volumes=need(made.cluster, one.namespace, name, of_pod),
                    claims=devices(made.cluster, one.namespace, name, of_pod),
                )
                for name, labels, of_pod in pods
            ],
            {},
        )
    for training in {one.origin: one for one in made.cluster.training.values()}.values():
        if training.workload.standing:
            continue  # where it has some pods already it has been found a place for the others
        yield (
            _ref(training),
            [
                FleetPod(
                    replica.namespace,
                    replica.name,
                    "",
                    dict(replica.labels),
                    replica.spec,
                    owner=training.owner,
                    priority=replica.spec.priority or 0,
                    annotations=replica.annotations,
                    gang=training.members[replica.name].gang,
                    subgroup=training.members[replica.name].subgroup,
                    volumes=need(made.cluster, replica.namespace, replica.name, replica.spec),
                    claims=devices(made.cluster, replica.namespace, replica.name, replica.spec),
                )
                for replica in training.replicas
            ],
            dict(training.gangs),
        )


def _ref(training: Training) -> Ref:
    """The workload of the manifests; of bare pods in a group that group."""
    namespace, kind, name = training.origin.split("/", 2)
    return Ref(POD_GROUP if kind == POD_GROUP.lower() else training.kind, name, namespace)
