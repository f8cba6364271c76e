"""The versions of the GPU stack on a cluster's nodes: where they differ, and where they are not of one release.

What is installed is told by the images of the operator's pods; the driver by the node's labels, which GPU feature
discovery reads off the driver itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from tonnage.cuda_fit import host as hosts
from tonnage.facts import cuda, gpu_stack
from tonnage.objects import core

_TAG = re.compile(r"v?([0-9]+(?:\.[0-9]+)+(?:-[0-9]+(?:\.[0-9]+)*)?)(?![0-9.])")
"""The version at the front of a tag: 1.18.1 of v1.18.1-ubuntu22.04, 4.4.2-4.7.0 of 4.4.2-4.7.0-ubuntu22.04."""

SKEW, RELEASE, POLICY, LABELS = "skew", "release", "policy", "labels"
"""Kinds of what is found: nodes differ; a version is not of the operator's release; a node has not what the
ClusterPolicy says; labels contradict each other."""


class StackFinding(Struct, frozen=True):
    """``kind``: one of those above. ``nodes``: whom it concerns, by name; empty: the cluster."""

    kind: str
    component: str
    message: str
    nodes: tuple[str, ...] = ()


class Stack(Struct, frozen=True):
    """``versions``: component → version → the nodes that have it (none for the operator itself)."""

    versions: dict[str, dict[str, tuple[str, ...]]]

    @property
    def operator(self) -> str:
        """The operator's release; empty where none is known, or several are."""
        found = list(self.versions.get(gpu_stack.OPERATOR, {}))
        return found[0] if len(found) == 1 else ""


def stack_of(nodes: Iterable[core.Node], pods: Iterable[core.Pod]) -> Stack:
    """What is installed, components and versions by name."""
    found: dict[str, dict[str, set[str]]] = {}
    for node in nodes:
        driver = hosts.of_labels(node.metadata.labels).written
        if driver:
            found.setdefault(gpu_stack.DRIVER, {}).setdefault(driver, set()).add(node.metadata.name)
    for pod in pods:
        if pod.status.phase in core.FINISHED:
            continue
        for container in pod.spec.containers:
            component, version = component_of(container.image)
            if version and component != gpu_stack.DRIVER:  # its pod has the version that is to be
                there = found.setdefault(component, {}).setdefault(version, set())
                if component != gpu_stack.OPERATOR and pod.spec.node_name:
                    there.add(pod.spec.node_name)
    return Stack(
        {name: {v: tuple(sorted(on)) for v, on in sorted(each.items())} for name, each in sorted(found.items())}
    )


def component_of(image: str) -> tuple[str, str]:
    """Component and version of one of the operator's images; both empty for any other, the version where the tag has
    none."""
    repository, _, tag = image.partition("@")[0].rpartition(":")
    path = repository.split("/")
    component = gpu_stack.images().get(path[-1], "")
    if not component or not any("nvidia" in part for part in path[:-1]):
        return "", ""
    found = _TAG.match(tag)
    return component, found[1] if found else ""


def findings(stack: Stack, nodes: Sequence[core.Node], driver: str = "") -> list[StackFinding]:
    """What is wrong with it. ``driver``: the version that the ClusterPolicy has; empty: not known."""
    found = []
    for component, versions in stack.versions.items():
        if len(versions) > 1:
            counts = ", ".join(f"{version} ({_nodes(on)})" if on else version for version, on in versions.items())
            every = tuple(sorted({node for on in versions.values() for node in on}))
            found.append(StackFinding(SKEW, component, f"{component} has several versions: {counts}", every))
    found += _of_release(stack)
    if driver:
        for version, on in stack.versions.get(gpu_stack.DRIVER, {}).items():
            if version != driver:
                message = f"the ClusterPolicy says driver {driver}, not {version} as on {_nodes(on)}"
                found.append(StackFinding(POLICY, gpu_stack.DRIVER, message, on))
    return found + [one for node in nodes if (one := _labels(node)) is not None]


def _of_release(stack: Stack) -> list[StackFinding]:
    release = stack.operator
    if not release:
        return []
    known: Mapping[str, tuple[str, ...]] | None = gpu_stack.releases().get(release)
    if known is None:
        names = ", ".join(gpu_stack.releases())
        message = f"which versions belong to operator {release} is not known; known releases: {names}"
        return [StackFinding(RELEASE, gpu_stack.OPERATOR, message)]
    found = []
    for component, wanted in known.items():
        if component == gpu_stack.DRIVER:
            continue  # the operator goes with every data center driver that NVIDIA supports, beside those it comes with
        for version, on in stack.versions.get(component, {}).items():
            if version not in wanted:
                message = f"{component} {version} is not of operator {release}, which has {' or '.join(wanted)}"
                found.append(StackFinding(RELEASE, component, message, on))
    return found


def _labels(node: core.Node) -> StackFinding | None:
    """The CUDA version that the driver is said to report, beside the one that it reports by its release."""
    host = hosts.of_labels(node.metadata.labels)
    by_driver = cuda.driver_cuda(host.driver) if host.driver is not None else None
    if host.cuda is None or by_driver is None or host.cuda[:2] == by_driver[:2]:
        return None
    text = f"{node.metadata.name}: labels say CUDA {cuda.cuda_text(host.cuda)}, driver {host.written} reports "
    text += f"{cuda.cuda_text(by_driver)}: GPU feature discovery has not looked since the driver changed"
    return StackFinding(LABELS, "cuda", text, (node.metadata.name,))


def _nodes(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} nodes"
