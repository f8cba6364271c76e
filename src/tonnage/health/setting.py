"""A set of objects as the rules look at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tonnage.decisions import Ref
from tonnage.errors import Where
from tonnage.health.counting import ONE, Count, count
from tonnage.health.inventory import DEFAULT, Inventory
from tonnage.health.schedulers import running
from tonnage.objects import apps, core
from tonnage.objects.base import KubeObject, where
from tonnage.objects.templates import Template, templates
from tonnage.provisioning.catalogue import Catalogue
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.volumes.book import Volumes


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods that one template of an object stands for."""

    object: KubeObject
    template: Template
    counted: Count = ONE
    """How many there are, and how many only run together."""

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

    @property
    def is_daemon(self) -> bool:
        """Whether every node has one, rather than any."""
        return isinstance(self.object, apps.DaemonSet)

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
            if any(owner.controller for owner in one.metadata.owner_references):
                continue  # its owner is here, or made it from what stands there
            for template in templates(one):
                yield Pods(one, template, count(one, template, self.objects))
