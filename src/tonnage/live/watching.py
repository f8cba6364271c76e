"""Which resources a world watches, and whom they are told to."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tonnage.kube.informer import Informer, Informers, names_of
from tonnage.kube.resources import (
    CLUSTER_POLICIES,
    CONFIG_MAPS,
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    EC2_NODE_CLASSES,
    HPAS,
    NAMESPACES,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PDBS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SCALED_OBJECTS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Resource,
)
from tonnage.live.groups import KINDS
from tonnage.live.world import ClusterWorld
from tonnage.objects import apps, autoscaling, core, dra, karpenter, keda, policy, storage
from tonnage.objects.base import KubeObject
from tonnage.objects.gpu_operator import OWN_MIG_CONFIG_MAP, ClusterPolicy
from tonnage.workloads.membership import MAKERS
from tonnage.workloads.naming import PROJECTS

VOLUME_KINDS: tuple[tuple[Resource, type[KubeObject]], ...] = (
    (VOLUME_CLAIMS, storage.PersistentVolumeClaim),
    (VOLUMES, storage.PersistentVolume),
    (STORAGE_CLASSES, storage.StorageClass),
    (CSI_NODES, storage.CSINode),
)
DEVICE_KINDS: tuple[tuple[Resource, type[KubeObject]], ...] = (
    (DEVICE_CLASSES, dra.DeviceClass),
    (RESOURCE_SLICES, dra.ResourceSlice),
    (DEVICE_TAINT_RULES, dra.DeviceTaintRule),
    (RESOURCE_CLAIMS, dra.ResourceClaim),
)
T = TypeVar("T", bound=KubeObject)
See = Callable[[T | None, T | None], None]


def watch(
    informers: Informers, resource: Resource, type_: type[T], see: See[T], *, optional: bool = False
) -> Informer[T]:
    """Tell ``see`` (old, new) of every change of a resource. ``optional``: a cluster may do without it."""
    informer = informers.add(resource, type_, optional=optional)
    informer.on_change(lambda change, old, new: see(old, new))
    return informer


def watch_world(
    informers: Informers, world: ClusterWorld, config_maps: Iterable[tuple[str, str]] = ()
) -> list[Informer[Any]]:
    """Watch all that the world looks at; returns the informers without which nothing can be decided.

    Kinds that a CRD defines may be missing from a cluster, and appear later. ``config_maps``: (namespace, name) of
    further ones that may have configurations of the GPU operator.
    """
    informers.on_restored = world.restored
    watch_configurations(informers, world, config_maps)
    nodes = watch(informers, NODES, core.Node, world.state.see_node)
    pods = watch(informers, PODS, core.Pod, world.see_pod)
    deployments = watch(informers, DEPLOYMENTS, apps.Deployment, world.workloads.deployment)
    daemon_sets = watch(informers, DAEMON_SETS, apps.DaemonSet, world.state.see_daemon_set)
    hpas = watch(informers, HPAS, autoscaling.HorizontalPodAutoscaler, world.workloads.autoscaler)
    watch(informers, SCALED_OBJECTS, keda.ScaledObject, world.workloads.autoscaler)
    watch(informers, NODE_POOLS, karpenter.NodePool, world.state.see_node_pool)
    watch(informers, EC2_NODE_CLASSES, karpenter.EC2NodeClass, world.state.see_node_class)
    watch(informers, NODE_CLAIMS, karpenter.NodeClaim, world.see_claim)
    watch(informers, NAMESPACES, core.Namespace, world.state.see_namespace, optional=True)
    for resource, type_ in VOLUME_KINDS:
        watch(informers, resource, type_, world.state.see_volumes, optional=True)
    for resource, type_ in DEVICE_KINDS:
        watch(informers, resource, type_, world.state.see_devices, optional=True)
    watch(informers, PDBS, policy.PodDisruptionBudget, world.state.see_budget)
    watch_groups(informers, world)
    return [nodes, pods, deployments, daemon_sets, hpas]


def watch_configurations(informers: Informers, world: ClusterWorld, more: Iterable[tuple[str, str]] = ()) -> None:
    """Watch what says how GPUs are partitioned: the ClusterPolicy, and each ConfigMap that it names, by name."""
    state, cutter = world.state, world.state.cutting.cutter
    watched: set[tuple[str, str]] = set()

    def follow(namespace: str, name: str) -> None:
        if namespace and name and (namespace, name) not in watched:
            watched.add((namespace, name))
            one = informers.add(
                CONFIG_MAPS, core.ConfigMap, field_selector=f"metadata.name={name}", namespace=namespace
            )
            one.on_change(lambda change, old, new: state.configurations.config_map(old, new))

    def policy(old: ClusterPolicy | None, new: ClusterPolicy | None) -> None:
        state.configurations.cluster_policy(old, new)
        if new is not None:
            for name in (new.mig_config_map, new.spec.device_plugin.config.name):
                follow(cutter.namespace, name)

    own = {cutter.config_map} if cutter.config_map is not None else set()
    for namespace, name in sorted({(cutter.namespace, OWN_MIG_CONFIG_MAP), *own, *more}):
        follow(namespace, name)
    watch(informers, CLUSTER_POLICIES, ClusterPolicy, policy, optional=True)


def watch_groups(informers: Informers, world: ClusterWorld) -> None:
    """Watch all of which gangs are read. Few clusters have more than some of it."""
    named: dict[str, list[str]] = {}
    names = names_of(resource for resource, _ in KINDS)
    for place, ((resource, type_), name) in enumerate(zip(KINDS, names, strict=True)):
        watch(informers, resource, type_, world.groups.seer(place), optional=True)
        named.setdefault(MAKERS.get(type_, ""), []).append(name)

    def is_served(word: str) -> bool:
        absent = informers.absent()
        return any(name not in absent for name in named.get(word, ()))

    def is_behind(word: str) -> bool:
        return not informers.behind().isdisjoint(named.get(word, ()))

    def absent() -> frozenset[str]:
        gone = informers.absent()
        there = {type_ for name, (_, type_) in zip(names, KINDS, strict=True) if name not in gone}
        return frozenset(project for project, type_ in PROJECTS.items() if type_ not in there)

    world.groups.is_served, world.groups.is_behind, world.groups.absent = is_served, is_behind, absent
