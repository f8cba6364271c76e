"""A set of objects as the rules look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.health.inventory import DEFAULT, Inventory
from tonnage.health.landing import Landing, Machine, Place
from tonnage.inference import servers
from tonnage.inference.servers import EngineServer
from tonnage.objects import apps, core, karpenter
from tonnage.objects.base import KubeObject, where
from tonnage.objects.templates import Template, templates
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning import nodeclass
from tonnage.provisioning.catalogue import Catalogue


@dataclass(frozen=True)
class Pods:
    """The pods that one template of an object stands for."""

    object: KubeObject
    template: Template

    @property
    def ref(self) -> Ref:
        """The object."""
        return Ref(self.object.kind, self.object.name, self.namespace)

    @property
    def namespace(self) -> str:
        return self.object.namespace or DEFAULT

    @property
    def spec(self) -> core.PodSpec:
        return self.template.spec

    @cached_property
    def engine(self) -> EngineServer | None:
        """The vLLM server in one of the containers."""
        return servers.find(self.spec)

    @property
    def is_daemon(self) -> bool:
        """Whether every node has one, rather than any."""
        return isinstance(self.object, apps.DaemonSet)

    def where(self, field: str) -> Where:
        """The place of a field of the pod's spec, or of the innermost part of its path that was written."""
        return where(self.object, f"{self.template.field}.{field}" if field else self.template.field)


class Setting:
    """Objects, those that stand for pods apart, what can be bought, and the nodes that there are: ``machines`` beside
    the Node objects. ``cuts``: what labels of nodes may say of how GPUs are cut."""

    def __init__(
        self,
        objects: Iterable[KubeObject],
        catalogue: Catalogue,
        machines: Sequence[Machine] = (),
        cuts: Configurations = OWN,
    ) -> None:
        self.objects = tuple(objects)
        self.inventory = Inventory(self.objects)
        self.catalogue = catalogue
        self.pods: tuple[Pods, ...] = tuple(self._pods())
        nodes = [_machine(one) for one in self.objects if isinstance(one, core.Node) and not one.spec.unschedulable]
        pools = [one for one in self.objects if isinstance(one, karpenter.NodePool)]
        self.landing = Landing([*machines, *nodes], pools, catalogue, cuts)
        classes = {one.name: one for one in self.objects if isinstance(one, karpenter.EC2NodeClass)}
        of_pool = ((pool.name, classes.get(pool.spec.template.spec.node_class_ref.name)) for pool in pools)
        self.storage = {name: nodeclass.read(one) for name, one in of_pool if one is not None}
        self._places: dict[int, tuple[Place, ...]] = {}

    def places(self, pods: Pods) -> tuple[Place, ...]:
        """Where these pods may land; none where nothing takes them."""
        if id(pods) not in self._places:
            self._places[id(pods)] = self.landing.places(pods.spec, pods.template.metadata.annotations)
        return self._places[id(pods)]

    def _pods(self) -> Iterator[Pods]:
        for one in self.objects:
            if any(owner.controller for owner in one.metadata.owner_references):
                continue  # its owner is here, or made it from what stands there
            for template in templates(one):
                yield Pods(one, template)


def _machine(node: core.Node) -> Machine:
    try:
        has = core.amounts(node.status.allocatable or node.status.capacity)
    except ValueError:
        has = {}
    return Machine(node.name, node.metadata.labels, tuple(node.spec.taints), has)
