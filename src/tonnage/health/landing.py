"""On which GPUs the pods of a template may land: on the nodes that there are, on those that NodePools make, else, where
neither is known, on any GPU that there is a table entry of.

What is free is not looked at: a pod that waits for room lands in the end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from msgspec import Struct

from tonnage.cuda_fit import host as hosts
from tonnage.cuda_fit.host import Host
from tonnage.errors import InputError
from tonnage.facts import gpus, instances, mig
from tonnage.facts.labels import (
    ARCH,
    GPU,
    GPU_COUNT,
    GPU_PRODUCT,
    INSTANCE_TYPE,
    MIG_PREFIX,
    MIG_PRODUCT,
    OS,
    SHARED_PRODUCT,
    product_of,
)
from tonnage.fleet.asks import FULL, SHARED_GPU, Ask, Kind, as_numbers
from tonnage.fleet.devices import Cut, How
from tonnage.fleet.filters import NO_CUDA, OPEN, refusal, shape_of
from tonnage.fleet.outfit import counts_parts
from tonnage.fleet.rows import FleetNode, NodeRow
from tonnage.objects import core, karpenter
from tonnage.partitioning.node_cuts import OWN, Configurations, cut_node
from tonnage.provisioning import labels as known_labels
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.load import ClaimLoad, Market, Stage
from tonnage.provisioning.pods import PREFER_NO_SCHEDULE, PodShape, RelaxationStep, strict_requirements
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import PoolTemplate, compile_pool

ACCELERATOR = "cloud.google.com/gke-accelerator"
NO_HOST = Host()


@dataclass(frozen=True, slots=True)
class Machine:
    """A node that is there. ``allocatable``: amounts as in :func:`tonnage.objects.core.amounts`; empty: not known.
    ``splits``: as :class:`~tonnage.fleet.rows.FleetNode` has it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[core.Taint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    splits: bool = False


class PodGpu(Struct, frozen=True):
    """What a pod gets of a GPU. ``name``: of the GPU or the MIG instance, as in :func:`tonnage.facts.mig.resolve`.
    ``sharers``: how many pods may be on it. ``part``: the most of its memory that the pod can have, 1 where nothing
    stops it."""

    name: str
    sharers: int = 1
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Place:
    """A node, or a kind of nodes, on which a pod may land. ``name``: of the node, the NodePool or, in ``anywhere``, the
    GPU. ``card``: None where it has no GPU that is known. ``cards``: how many of them the node has. ``pool``: the
    NodePool of its nodes. ``bought``: they are still to be launched."""

    name: str
    card: PodGpu | None
    cards: int = 0
    host: Host = NO_HOST
    instance_type: str = ""
    anywhere: bool = False
    bought: bool = False
    pool: str = ""


class Landing:
    """Answers for one set of objects."""

    def __init__(
        self,
        machines: Sequence[Machine],
        node_pools: Sequence[karpenter.NodePool],
        catalogue: Catalogue,
        cuts: Configurations = OWN,
    ) -> None:
        self.machines, self.catalogue, self.cuts = tuple(machines), catalogue, cuts
        self._pools = node_pools
        self._stages = 0

    @cached_property
    def templates(self) -> tuple[PoolTemplate, ...]:
        """The NodePools that can be read."""
        made = []
        for pool in self._pools:
            try:
                made.append(compile_pool(pool, self.catalogue, configurations=self.cuts))
            except InputError:
                continue  # reading the NodePool says so
        return tuple(made)

    @cached_property
    def _market(self) -> Market:
        return Market(self.catalogue, self.catalogue.available(), strict_min_values=False)

    def places(self, spec: core.PodSpec, annotations: Mapping[str, str]) -> tuple[Place, ...]:
        """Every place, without doubles; none where nothing takes the pod."""
        shape = PodShape.of(spec, annotations)
        if shape.ask.refused:
            return ()
        found = [*self._on_machines(spec, annotations, shape)]
        for template in self.templates:
            found += self._on_pool(template, shape)
        if not self.machines and not self._pools:
            found += self._anywhere(shape)
        return tuple(dict.fromkeys(found))

    def admitting(self, spec: core.PodSpec, annotations: Mapping[str, str]) -> Iterator[Machine]:
        """The nodes that are there and let the pod in whatever room they have, those too that do not run its CUDA: what
        says so is a rule of its own. Nobody asks them of a pod that names its node."""
        shape = shape_of(spec, annotations)
        for machine in self.machines:
            node = FleetNode(machine.name, machine.allocatable, machine.labels, machine.taints)
            row = NodeRow(node, dict(machine.labels), machine.taints, set())
            named = spec.node_name == machine.name
            if named or (not spec.node_name and refusal(shape, row) in (OPEN, NO_CUDA)):
                yield machine

    def _on_machines(self, spec: core.PodSpec, annotations: Mapping[str, str], shape: PodShape) -> Iterator[Place]:
        for machine in self.admitting(spec, annotations):
            has = machine.allocatable
            numbers = counts_parts(machine.labels, has, splits=machine.splits)
            ask, counted = (as_numbers(shape.ask), core.pod_requests(spec)) if numbers else (shape.ask, shape.requests)
            wanted = {name: n for name, n in counted.items() if n and name != "pods"}
            if has and any(n > has.get(name, 0) for name, n in wanted.items()):
                continue
            type_, pool = machine.labels.get(INSTANCE_TYPE, ""), machine.labels.get(known_labels.NODE_POOL, "")
            gpu, count = _gpu_of(machine.labels, type_)
            count = count or has.get(GPU, 0)
            host = hosts.of_labels(_with_product(machine.labels, gpu))
            for card in self._cards(gpu, count, machine.labels, ask):
                yield Place(machine.name, card, count, host, type_, pool=pool)

    def _on_pool(self, template: PoolTemplate, shape: PodShape) -> Iterator[Place]:
        catalogue = self.catalogue
        amounts = {"pods": 1, **shape.requests}
        cut = {SHARED_GPU, *dict(shape.ask.profiles)}
        counted = {name: amount for name, amount in amounts.items() if name not in cut}
        for wanted in strict_requirements(shape):
            self._stages += 1
            step = RelaxationStep((*shape.tolerations, PREFER_NO_SCHEDULE), wanted)
            requests, unknown = catalogue.amounts(counted), tuple(catalogue.unknown(counted))
            stage = Stage(self._stages, step, amounts, requests, unknown, shape.ask)
            load = ClaimLoad.empty(self._market, template, template.types).join(stage)
            if load is None:
                continue
            for layout, index in zip(*np.nonzero(load.choices & load.types), strict=True):
                of = catalogue.types[int(index)]
                labels = {**template.labels, **template.machines.layouts[int(layout)]}
                host = hosts.of_labels(_with_product(labels, of.gpu))
                for card in self._cards(of.gpu, of.gpu_count, labels, shape.ask):
                    yield Place(template.name, card, of.gpu_count, host, of.name, bought=True, pool=template.name)

    def _anywhere(self, shape: PodShape) -> Iterator[Place]:
        for wanted in strict_requirements(shape):
            sold = self._sold(wanted)
            for gpu in gpus.all():
                if sold is not None and gpu.name not in sold:
                    continue
                if not _allows(wanted, gpu):
                    continue
                host = hosts.of_labels({GPU_PRODUCT: gpu.product})
                for card in self._cards(gpu.name, 0, {}, shape.ask):
                    yield Place(gpu.name, card, 0, host, anywhere=True)

    def _sold(self, wanted: Requirements) -> frozenset[str] | None:
        """The GPUs of the instance types that labels of theirs select; None where none is asked for."""
        own = known_labels.of_instance_type() & set(wanted)
        if not own - {ARCH, OS}:
            return None
        chosen = np.flatnonzero(self.catalogue.select(wanted))
        return frozenset(self.catalogue.types[int(index)].gpu for index in chosen)

    def _cards(self, gpu: str, count: int, labels: Mapping[str, str], ask: Ask) -> Iterator[PodGpu | None]:
        """What the pod may get of the node's GPUs."""
        if not gpu or ask.kind is Kind.NONE:
            yield None
        elif ask.kind is Kind.MIG:
            for resource, _ in ask.profiles:
                yield _instance(gpu, resource)
        else:
            _, profile = product_of(labels.get(GPU_PRODUCT, ""))
            made = cut_node(self.cuts, labels, gpu, max(1, count))
            cuts = made.cuts or (Cut(),)
            if not made.cuts and profile:
                yield _instance(gpu, MIG_PREFIX + profile)
                return
            for cut in dict.fromkeys(cuts):
                yield from _of_cut(gpu, cut, ask)


def _of_cut(gpu: str, cut: Cut, ask: Ask) -> Iterator[PodGpu | None]:
    name = gpus.get(gpu).name
    if cut.how is How.REPLICAS and cut.instances is not None:
        for resource in dict.fromkeys(resource for resource, _ in cut.instances):
            card = _instance(gpu, resource)
            each = cut.replicas // max(1, len(cut.instances))
            yield card and PodGpu(card.name, each)
    elif cut.how is How.REPLICAS:
        part = ask.count / cut.replicas if cut.isolated else 1.0
        yield PodGpu(name, cut.replicas, min(1.0, part))
    elif cut.how is How.MIG:
        return  # whole GPUs are not offered
    elif ask.kind is Kind.MEMORY and ask.separate:
        part = ask.mib / gpus.get(gpu).memory_mib if ask.mib else ask.percent / 100
        yield PodGpu(name, math.floor(1 / part) if 0 < part < 1 else 1, min(1.0, part or 1.0))
    elif ask.kind is Kind.SHARE and ask.milli:
        yield PodGpu(name, max(1, FULL // ask.milli))
    else:
        yield PodGpu(name)


def _instance(gpu: str, resource: str) -> PodGpu | None:
    """The MIG instance that the device plugin offers by this name on the GPU; None where the GPU has none such."""
    for profile in mig.profiles(gpu, plain=False):
        if profile.resource == resource:
            return PodGpu(f"{gpu}:{profile.name}")
    return None


def _gpu_of(labels: Mapping[str, str], instance_type: str) -> tuple[str, int]:
    """(name among the GPUs, how many) of a node, by what its labels say; empty where they do not."""
    type_ = instances.get(instance_type) if instances.known(instance_type) else None
    written, _ = product_of(labels.get(GPU_PRODUCT, ""))
    count = labels.get(GPU_COUNT, "")
    number = int(count) if count.isascii() and count.isdigit() and len(count) < 4 else 0
    for name in (written, labels.get(ACCELERATOR, "")):
        if name and (found := _known_gpu(name)):
            return found, number or (type_.gpu_count if type_ else 1)
    return (type_.gpu, type_.gpu_count) if type_ else ("", number)


def _known_gpu(name: str) -> str:
    try:
        return gpus.get(name).name
    except InputError:
        return ""


def _with_product(labels: Mapping[str, str], gpu: str) -> Mapping[str, str]:
    return labels if GPU_PRODUCT in labels or not gpu else {**labels, GPU_PRODUCT: gpus.get(gpu).product}


def _allows(wanted: Requirements, gpu: gpus.Gpu) -> bool:
    product = wanted.get(GPU_PRODUCT)
    if product is not None and not product.has(gpu.product) and not product.has(gpu.product + SHARED_PRODUCT):
        slices = {f"{gpu.product}{MIG_PRODUCT}{one.name}" for one in mig.profiles(gpu.name)}
        if not any(product.has(one) for one in slices):
            return False
    accelerator = wanted.get(ACCELERATOR)
    if accelerator is None or accelerator.complement:
        return True
    return any(_known_gpu(value) == gpu.name for value in accelerator.values)
