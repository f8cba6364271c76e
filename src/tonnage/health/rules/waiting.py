"""Pods that no scheduler takes up: held by a gate, meant for a scheduler that nobody runs, or with claims that are
not there.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/schedulinggates and pkg/scheduler/eventhandlers.go
(responsibleForPod); kubernetes-sigs/kueue pkg/controller/jobs/pod (gates and the label of the queue).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tonnage.fleet.claim_needs import pod_claims
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.inventory import Inventory
from tonnage.health.setting import Setting
from tonnage.objects import dra
from tonnage.objects.base import KubeObject, where
from tonnage.objects.compute_domains import ComputeDomain

KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job")
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
GATED = "SchedulingGated"
NOT_CREATED = "ResourceClaim not created yet"


def gates(setting: Setting) -> Iterator[Blocker]:
    """Scheduling gates that nobody removes."""
    for pods in setting.pods:
        queue = pods.template.metadata.labels.get(KUEUE_QUEUE) or pods.object.metadata.labels.get(KUEUE_QUEUE, "")
        for index, gate in enumerate(pods.spec.scheduling_gates):
            kueue = gate.name in KUEUE_GATES
            if kueue and queue and setting.inventory.has("LocalQueue", queue, pods.namespace):
                continue
            queue_label = f"a LocalQueue, and its name as the label {KUEUE_QUEUE}"
            yield Blocker(
                "scheduling-gate",
                UNSCHEDULABLE,
                pods.ref,
                pods.where(f"schedulingGates[{index}].name"),
                f"nothing removes the scheduling gate {gate.name}: no scheduler looks at the pods",
                f"give the pods {queue_label}: Kueue admits them then"
                if kueue
                else "remove the gate, or run the controller that removes it",
                GATED,
                "Scheduling is blocked due to non-empty scheduling gates",
            )


def scheduler_name(setting: Setting) -> Iterator[Blocker]:
    """Schedulers that nobody runs."""
    known = setting.schedulers
    for pods in setting.pods:
        name = pods.spec.scheduler_name
        if not name or name in known:
            continue
        near = difflib.get_close_matches(name, known, 1, 0.8)
        meant = f"did you mean {near[0]}?" if near else "remove schedulerName: the default scheduler takes them then."
        yield Blocker(
            "scheduler-not-running",
            UNSCHEDULABLE,
            pods.ref,
            pods.where("schedulerName"),
            f"no scheduler {name} is running: the pods stay Pending without an event",
            f"{meant} Else run a scheduler of the name {name}",
        )


def device_claims(setting: Setting) -> Iterator[Blocker]:
    """ResourceClaims and templates of them that pods name, and classes that these ask for, which are not there."""
    inventory = setting.inventory
    for pods in setting.pods:
        for index, one in enumerate(pod_claims(pods.spec.resource_claims)):
            kind, name = ("ResourceClaim", one.claim) if one.claim else ("ResourceClaimTemplate", one.template)
            if not name:
                continue
            field = "resourceClaimName" if one.claim else "resourceClaimTemplateName"
            where_ = pods.where(f"resourceClaims[{index}].{field}")
            found = inventory.find(kind, name, pods.namespace)
            if found is None and (
                inventory.has(kind, name, pods.namespace) or name in channels(inventory, pods.namespace)
            ):
                continue
            if found is None:
                said = f'resourceclaim.resource.k8s.io "{name}" not found' if one.claim else NOT_CREATED
                missing = f"{kind} {pods.namespace}/{name} is not in the files: the pods stay Pending"
                add = f"add it, or name one that is there: {known(inventory, kind, pods.namespace)}"
                yield Blocker(
                    "resource-claim-not-found", UNSCHEDULABLE, pods.ref, where_, missing, add, "Unschedulable", said
                )
                continue
            for wanted in asked_classes(found):
                if not inventory.has("DeviceClass", wanted, ""):
                    why = (
                        f"DeviceClass {wanted}, which {kind} {name} asks for, is not in the files: nothing is allocated"
                    )
                    yield Blocker(
                        "device-class-not-found",
                        UNSCHEDULABLE,
                        pods.ref,
                        where(found, "spec"),
                        why,
                        f"install the driver that brings it, or ask for a class that is there: "
                        f"{known(inventory, 'DeviceClass', '')}",
                        "Unschedulable",
                        f"could not retrieve device class {wanted}",
                    )
                    break


def channels(inventory: Inventory, namespace: str) -> set[str]:
    """The templates that NVIDIA's controller makes of the ComputeDomains of a namespace, by name."""
    domains = inventory.of_kind("ComputeDomain", namespace)
    return {one.spec.channel.resource_claim_template.name for one in domains if isinstance(one, ComputeDomain)}


def asked_classes(one: KubeObject) -> list[str]:
    """The classes that a claim or a template asks for, each once; of a request that has several ways, where there is
    no other, those of all."""
    spec = one.spec.spec if isinstance(one, dra.ResourceClaimTemplate) else getattr(one, "spec", None)
    if not isinstance(spec, dra.ResourceClaimSpec):
        return []
    found: dict[str, None] = {}
    for request in spec.devices.requests:
        if request.exactly is not None:
            found[request.exactly.device_class_name] = None
        found.update(dict.fromkeys(way.device_class_name for way in request.first_available))
    return list(found)


def known(inventory: Inventory, kind: str, namespace: str) -> str:
    """The names of such objects that are there."""
    found = sorted(one.name for one in inventory.of_kind(kind, namespace or None))
    return ", ".join(found) or "there is none"
