"""Which resources a world watches, and whom they are told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tonnage.cluster.client.informer import Informer, Informers
from tonnage.cluster.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    EC2_NODE_CLASSES,
    HPAS,
    NODE_CLAIMS,
    NODE_POOLS,
    NODES,
    PODS,
    SCALED_OBJECTS,
    Resource,
)
from tonnage.cluster.world import ClusterWorld
from tonnage.objects import apps, autoscaling, core, karpenter, keda
from tonnage.objects.base import KubeObject

T = TypeVar("T", bound=KubeObject)
See = Callable[[T | None, T | None], None]


def watch(informers: Informers, resource: Resource, type_: type[T], see: See[T]) -> Informer[T]:
    """Tell ``see`` (old, new) of every change of a resource."""
    informer = informers.add(resource, type_)
    informer.on_change(lambda change, old, new: see(old, new))
    return informer


def watch_world(informers: Informers, world: ClusterWorld) -> list[Informer[Any]]:
    """Watch all that the world looks at; returns the informers without which nothing can be decided.

    Kinds that a CRD defines may be missing from a cluster, and appear later.
    """
    nodes = watch(informers, NODES, core.Node, world.see_node)
    pods = watch(informers, PODS, core.Pod, world.see_pod)
    deployments = watch(informers, DEPLOYMENTS, apps.Deployment, world.workloads.deployment)
    daemon_sets = watch(informers, DAEMON_SETS, apps.DaemonSet, world.see_daemon_set)
    hpas = watch(informers, HPAS, autoscaling.HorizontalPodAutoscaler, world.workloads.autoscaler)
    watch(informers, SCALED_OBJECTS, keda.ScaledObject, world.workloads.autoscaler)
    watch(informers, NODE_POOLS, karpenter.NodePool, world.see_node_pool)
    watch(informers, EC2_NODE_CLASSES, karpenter.EC2NodeClass, world.see_node_class)
    watch(informers, NODE_CLAIMS, karpenter.NodeClaim, world.see_claim)
    return [nodes, pods, deployments, daemon_sets, hpas]
