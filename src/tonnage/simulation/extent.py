"""How much of a cluster is played at most: more is refused before anything is made of it.

Source: https://kubernetes.io/docs/setup/best-practices/cluster-large/, which has 5,000 nodes and 150,000 pods; managed
clusters go to 65,000 nodes (https://cloud.google.com/kubernetes-engine/docs/concepts/gke-large-clusters).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tonnage.errors import InputError, Problem
from tonnage.health.counting import at_most
from tonnage.objects import core, quantity
from tonnage.objects.autoscaling import HorizontalPodAutoscaler
from tonnage.objects.base import KubeObject, where
from tonnage.objects.buffers import CapacityBuffer
from tonnage.objects.keda import ScaledObject
from tonnage.objects.templates import templates
from tonnage.provisioning import headroom
from tonnage.simulation.scenario import Scenario

NODES = 65_000
PODS = 150_000
DEVICES = 1_024
"""Of one resource on one node: no machine has as many GPUs, shared ones counted as often as they are shared."""


def refuse_too_much(scenario: Scenario, objects: Iterable[KubeObject]) -> None:
    """Raises InputError where there are more nodes or pods than a cluster has, with the number that says so."""
    given = tuple(objects)
    problems = [*_nodes(scenario), *_pods(given), *_buffers(given), *_devices(given)]
    if problems:
        raise InputError(*problems)


def refuse_too_many_pods(objects: Iterable[KubeObject]) -> None:
    """The same of objects alone."""
    given = tuple(objects)
    problems = (*_pods(given), *_buffers(given), *_devices(given))
    if problems:
        raise InputError(*problems)


def _nodes(scenario: Scenario) -> Iterator[Problem]:
    groups = scenario.spec.fleet.nodes
    total = sum(group.count for group in groups)
    if total > NODES:
        most = max(range(len(groups)), key=lambda index: groups[index].count)
        message = f"{total} nodes, expected at most {NODES:,}: no cluster has more"
        yield scenario.document.problem(f"fleet.nodes[{most}].count", message, "is it a typing error?")


def _devices(objects: Iterable[KubeObject]) -> Iterator[Problem]:
    """Nodes whose devices would fill the memory; amounts that cannot be read are refused where they are."""
    for one in (each for each in objects if isinstance(each, core.Node)):
        for part, amounts in (("allocatable", one.status.allocatable), ("capacity", one.status.capacity)):
            for name, written in amounts.items():
                try:
                    amount = quantity.parse(written) if name.endswith(("/gpu", "/gpu.shared")) else 0
                except ValueError:
                    continue
                if amount > DEVICES:
                    message = f"{written} of {name}, expected at most {DEVICES:,}: no machine has more"
                    yield Problem(where(one, f"status.{part}.{name}"), message, "is it a typing error?")


def _pods(objects: Iterable[KubeObject]) -> Iterator[Problem]:
    """Of a running cluster, whose objects have uids, workloads and their pods are both there: each counts alone."""
    total = 0
    for one in objects:
        if isinstance(one, core.Pod):
            pods, field = 1, "spec"
        elif isinstance(one, HorizontalPodAutoscaler | ScaledObject) or next(templates(one), None) is not None:
            pods, field = at_most(one)
        else:
            continue
        total = pods if one.metadata.uid else total + pods
        if total > PODS:
            message = f"{total} pods, expected at most {PODS:,}: no cluster has more"
            yield Problem(where(one, field), message, "is it a typing error?")
            return


def _buffers(objects: Sequence[KubeObject]) -> Iterator[Problem]:
    """CapacityBuffers, whose limits and percentages make pods too."""
    written = {(one.namespace or "default", one.name): one for one in objects if isinstance(one, CapacityBuffer)}
    for buffer in headroom.read(objects) if written else ():
        pods = buffer.count(buffer.replicas)
        if pods > PODS:
            message = f"room for {pods} pods, expected at most {PODS:,}: no cluster has more"
            yield Problem(
                where(written[buffer.ref.namespace, buffer.ref.name], "spec"), message, "is it a typing error?"
            )
