"""A set of objects as the rules look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.health.counting import ONE, Count, count
from tonnage.health.inventory import DEFAULT, Inventory
from tonnage.health.schedulers import running
from tonnage.objects import apps, core, training
from tonnage.objects.base import KubeObject, Unknown, where
from tonnage.objects.needs import ContainerNeeds
from tonnage.objects.templates import Template, templates
from tonnage.provisioning.catalogue import Catalogue
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.replicas import runtime_of
from tonnage.workloads.volumes.book import Volumes

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


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods that one template of an object stands for. ``inside``: their namespace, where it is not the object's."""

    object: KubeObject
    template: Template
    inside: str = ""
    counted: Count = ONE
    """How many there are, and how many only run together."""

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
    """Objects, those that stand for pods apart, and what can be bought."""

    def __init__(self, objects: Iterable[KubeObject], catalogue: Catalogue) -> None:
        self.objects = tuple(objects)
        self.inventory = Inventory(self.objects)
        self.catalogue = catalogue
        self.admission = Admission(self.objects)
        self.volumes = Volumes(self.objects, binds=True)
        self.schedulers = running(self.objects)
        self.pods: tuple[Pods, ...] = tuple(self._pods())

    def _pods(self) -> Iterator[Pods]:
        for one in self.objects:
            if _makes_none(one):
                continue
            found = tuple(templates(one))
            for namespace in self._namespaces(one) if found else ():
                for template in found:
                    yield Pods(one, template, namespace, count(one, template, self.objects))

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
