"""The nodes that are assumed where manifests say nothing of nodes: of any instance type, launched as pods need them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from tonnage.decisions import Finding, Ref
from tonnage.errors import InputError, Where
from tonnage.facts import gpus
from tonnage.facts.labels import GPU_PRODUCT, HOSTNAME
from tonnage.objects import core, eksctl, karpenter, load
from tonnage.objects.base import KubeObject
from tonnage.objects.load import Manifest
from tonnage.objects.templates import templates
from tonnage.provisioning import labels

NAME = "assumed"
"""With it the names of all that is assumed begin: of the NodePools, those with CPUs alone are used first, then those
with GPUs that hold most models."""
LAUNCHED = (
    "nodes of any on-demand type are launched as pods need,"
    " those with GPUs of 80 GB and more before those with smaller ones"
)
_SOME_NODES = (
    "engine-exceeds-gpu-memory",
    "format-not-on-gpu",
    "image-cuda-not-supported",
    "image-wrong-architecture",
    "kv-cache-below-max-model-len",
)
"""Rules that warn where pods would fail on some of the nodes on which they may land."""
_HOSTNAME, _GPU_NAME = HOSTNAME, "karpenter.k8s.aws/instance-gpu-name"


def with_nodes(manifest: Manifest) -> Manifest:
    """The manifests with NodePools of any instance type, unless they have Nodes, NodePools or node groups. Their nodes
    have whatever labels of their own the pods ask for."""
    if any(isinstance(one, core.Node | karpenter.NodePool | eksctl.ClusterConfig) for one in manifest.objects):
        return manifest
    file = Path(str(resources.files("tonnage.simulation").joinpath("data/assumed-nodes.yaml")))
    node_class, *pools = load.read([file]).objects
    asked: dict[str, list[str]] = {}
    for key, values in _labels(manifest.objects):
        asked.setdefault(key, []).extend(values)
    products = dict.fromkeys(asked.pop(GPU_PRODUCT, ()))
    exists = [{"key": key, "operator": "Exists"} for key in asked]
    made = [_pool(one, one.name, exists) for one in pools]
    for product in products:
        name = _karpenter_name(product)
        if name:
            of_gpu = {"key": _GPU_NAME, "operator": "In", "values": [name]}
            made.append(_pool(pools[-1], f"{NAME}-{name}", [*exists, of_gpu], {GPU_PRODUCT: product}))
    return replace(manifest, objects=(*manifest.objects, node_class, *made))


def are_assumed(pools: Iterable[karpenter.NodePool]) -> bool:
    """Whether these NodePools are assumed."""
    return any(pool.name == NAME for pool in pools)


def _pool(base: KubeObject, name: str, more: list[dict[str, Any]], has: dict[str, str] | None = None) -> KubeObject:
    """A NodePool like ``base`` with ``more`` requirements, whose nodes ``has`` these labels."""
    content = copy.deepcopy(base.written)
    content["metadata"]["name"] = name
    template = content["spec"]["template"]
    template["spec"]["requirements"] += more
    template["metadata"] = {"labels": dict(has or {})}
    return msgspec.convert(content, karpenter.NodePool).remember(base.origin, base.lines, content)


def _karpenter_name(product: str) -> str:
    try:
        return gpus.get(product).karpenter_name
    except InputError:
        return ""


def said(manifest: Manifest, findings: Iterable[Finding], folder: str) -> Iterator[Finding]:
    """The findings without those about what is assumed, which is said instead."""
    for one in findings:
        if one.severity == "warning" and one.rule in _SOME_NODES:
            continue  # of nodes that are assumed others will do
        if one.object.kind not in ("NodePool", "EC2NodeClass") or not one.object.name.startswith(NAME):
            yield one
    if any(isinstance(one, karpenter.NodePool) and one.name == NAME for one in manifest.objects):
        message = f"the manifests have neither Nodes nor NodePools: {LAUNCHED}"
        help_ = "add the cluster's Nodes or NodePools, or a scenario.yaml with a fleet"
        yield Finding("nodes-assumed", "info", Ref("Folder", folder), Where(folder), message, help=help_)


def _labels(objects: Iterable[KubeObject]) -> Iterator[tuple[str, list[str]]]:
    """(key, values) of labels that pods ask nodes for and that no instance type has."""
    known = labels.well_known() | {_HOSTNAME}
    for template in (template for one in objects for template in templates(one)):
        spec = template.spec
        node = spec.affinity.node_affinity if spec.affinity is not None else None
        must = node.required_during_scheduling_ignored_during_execution if node is not None else None
        terms = must.node_selector_terms if must is not None else []
        asked = [(key, [value]) for key, value in spec.node_selector.items()]
        asked += [(e.key, e.values) for term in terms for e in term.match_expressions if e.operator == "In"]
        yield from (pair for pair in asked if pair[0] not in known)
