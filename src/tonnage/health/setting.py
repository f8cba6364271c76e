"""A set of objects as the rules look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.facts.models import ModelShape
from tonnage.fleet.outfit import splits_gpus
from tonnage.health.counting import ONE, Count, count
from tonnage.health.inventory import DEFAULT, Inventory
from tonnage.health.landing import Landing, Machine, Place
from tonnage.health.schedulers import running
from tonnage.inference import servers
from tonnage.inference.servers import EngineServer
from tonnage.objects import apps, core, karpenter, training
from tonnage.objects.base import KubeObject, ObjectMeta, Unknown, where
from tonnage.objects.needs import ContainerNeeds
from tonnage.objects.storage import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
)
from tonnage.objects.templates import PodTemplate, templates
from tonnage.partitioning.node_cuts import OWN, Configurations
from tonnage.provisioning import nodeclass
from tonnage.provisioning.catalogue import Catalogue
from tonnage.workloads import stateful
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.replicas import runtime_of
from tonnage.workloads.stateful import CLAIM
from tonnage.workloads.variables import Variables
from tonnage.workloads.volumes.book import Volumes

_NONE: Mapping[str, ModelShape] = {}
_COMPARE = frozenset(
    {
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "constraints.gatekeeper.sh",
        "kyverno.io",
        "mutations.gatekeeper.sh",
        "policies.kyverno.io",
        "templates.gatekeeper.sh",
    }
)
"""API groups whose objects hold parts of pods to compare others with, or to change them by."""


def requested(spec: core.PodSpec, resource: str) -> str:
    """The field of the container that asks for most of the resource."""
    best, field = -1, "containers[0].resources"
    for part, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            amount = core.container_requests(container).get(resource, 0)
            if amount > best and amount:
                kind = "requests" if resource in container.resources.requests else "limits"
                best, field = amount, f"{part}[{index}].resources.{kind}.{resource}"
    return field


@dataclass(frozen=True)
class Pods:
    """The pods that one template of an object stands for. ``inside``: their namespace, where it is not the object's."""

    object: KubeObject
    template: PodTemplate
    inside: str = ""
    counted: Count = ONE
    """How many there are, and how many only run together."""
    shapes: Mapping[str, ModelShape] = field(default_factory=dict, repr=False, compare=False)
    """Of models beside those in the table, by their names."""

    @property
    def ref(self) -> Ref:
        """The object."""
        return Ref(self.object.kind, self.object.name, self.namespace)

    @property
    def namespace(self) -> str:
        return self.inside or self.object.namespace or DEFAULT

    @property
    def spec(self) -> core.PodSpec:
        return self.template.spec

    @cached_property
    def engine(self) -> EngineServer | None:
        """The vLLM server in one of the containers."""
        return servers.find(self.spec, self.shapes)

    @property
    def is_daemon(self) -> bool:
        """Whether every node has one, rather than any."""
        return isinstance(self.object, apps.DaemonSet)

    def containers(self) -> Iterator[tuple[str, ContainerNeeds]]:
        """(field, needs) of each container, in the order in which they start."""
        for index, one in enumerate(self.template.needs.init_containers):
            yield f"initContainers[{index}]", one
        for index, one in enumerate(self.template.needs.containers):
            yield f"containers[{index}]", one

    def where(self, field: str) -> Where:
        """The place of a field of the pod's spec, or of the innermost part of its path that was written."""
        return where(self.object, f"{self.template.field}.{field}" if field else self.template.field)


class Setting:
    """Objects, those that stand for pods apart, what can be launched, and the nodes that there are: ``machines`` beside
    the Node objects. ``cuts``: what labels of nodes may say of how GPUs are partitioned. ``shapes``: of models beside
    those in the table, by their names."""

    def __init__(
        self,
        objects: Iterable[KubeObject],
        catalogue: Catalogue,
        machines: Sequence[Machine] = (),
        cuts: Configurations = OWN,
        shapes: Mapping[str, ModelShape] = _NONE,
    ) -> None:
        self.objects = tuple(objects)
        self.shapes = shapes
        self.variables = Variables(self.objects)
        self.inventory = Inventory(self.objects)
        self.catalogue = catalogue
        self.admission = Admission(self.objects)
        self.volumes = Volumes((*self.objects, *stateful.claims_to_come(self.objects)), binds=True)
        for machine in machines:
            self.volumes.note_node(machine.labels)
        self.schedulers = running(self.objects)
        self.pods: tuple[Pods, ...] = tuple(self._pods())
        nodes = [_machine(one) for one in self.objects if isinstance(one, core.Node) and not one.spec.unschedulable]
        pools = [one for one in self.objects if isinstance(one, karpenter.NodePool)]
        self.nodes = (*machines, *nodes)
        self.landing = Landing(self.nodes, pools, catalogue, cuts)
        classes = {one.name: one for one in self.objects if isinstance(one, karpenter.EC2NodeClass)}
        of_pool = ((pool.name, classes.get(pool.spec.template.spec.node_class_ref.name)) for pool in pools)
        self.storage = {name: nodeclass.read(one) for name, one in of_pool if one is not None}
        self._places: dict[int, tuple[Place, ...]] = {}

    def by_object(self) -> dict[Ref, tuple[Pods, ...]]:
        """The templates of each object that has some, as they stand in it."""
        found: dict[Ref, tuple[Pods, ...]] = {}
        for one in self.pods:
            found[one.ref] = (*found.get(one.ref, ()), one)
        return found

    def places(self, pods: Pods) -> tuple[Place, ...]:
        """Where these pods may land; none where nothing takes them."""
        if id(pods) not in self._places:
            self._places[id(pods)] = self.landing.places(pods.spec, pods.template.metadata.annotations)
        return self._places[id(pods)]

    def made_claims(self) -> Iterator[PersistentVolumeClaim]:
        """Claims that pods name and that a controller makes of something else: bound, to nobody knows what."""
        for pods in self.pods:
            for volume in pods.template.needs.volumes:
                name = volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim else ""
                found = self.inventory.find(CLAIM, name, pods.namespace) if name else None
                if found is not None and not isinstance(found, PersistentVolumeClaim):
                    made = PersistentVolumeClaim(
                        api_version="v1",
                        kind=CLAIM,
                        metadata=ObjectMeta(name=name, namespace=pods.namespace),
                        spec=PersistentVolumeClaimSpec(volume_name=found.name),
                        status=PersistentVolumeClaimStatus(phase="Bound"),
                    )
                    yield made

    def _pods(self) -> Iterator[Pods]:
        for one in self.objects:
            if _makes_none(one):
                continue
            found = tuple(templates(one))
            for namespace in self._namespaces(one) if found else ():
                for template in found:
                    pods = Pods(one, template, namespace, count(one, template, self.objects), self.shapes)
                    spec = self.variables.filled(pods.namespace, template.spec, template.needs)
                    yield pods if spec is template.spec else replace(pods, template=replace(template, spec=spec))

    def _namespaces(self, one: KubeObject) -> tuple[str, ...]:
        """Where its pods are: in its own namespace, those of a runtime where the TrainJobs are that name it."""
        if not isinstance(one, training.TrainingRuntime):
            return ("",)
        jobs = [job for job in self.objects if isinstance(job, training.TrainJob) and runtime_of(job, (one,)) is one]
        return tuple(sorted({job.namespace or DEFAULT for job in jobs}))


def _makes_none(one: KubeObject) -> bool:
    """Whether no pods come of its templates: its owner is here or made it from what stands there, it only compares."""
    if isinstance(one, Unknown):
        metadata = one.content.get("metadata")
        owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
        owned = any(isinstance(o, dict) and o.get("controller") for o in (owners if isinstance(owners, list) else ()))
        return (
            owned or one.api_version.rpartition("/")[0] in _COMPARE or one.kind in ("PodTemplate", "ControllerRevision")
        )
    return any(owner.controller for owner in one.metadata.owner_references)


def _machine(node: core.Node) -> Machine:
    try:
        has = core.amounts(node.status.allocatable or node.status.capacity)
    except ValueError:
        has = {}
    meta = node.metadata
    return Machine(node.name, meta.labels, tuple(node.spec.taints), has, splits_gpus(meta.annotations))
