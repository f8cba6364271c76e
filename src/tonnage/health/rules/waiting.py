"""Pods that no scheduler takes up: held by a gate, meant for a scheduler that nobody runs, or with claims on devices.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/schedulinggates and pkg/scheduler/eventhandlers.go
(responsibleForPod); kubernetes-sigs/kueue pkg/controller/jobs/pod (gates and the label of the queue).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.setting import Setting

KUEUE_GATES = ("kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology", "kueue.x-k8s.io/elastic-job")
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
GATED = "SchedulingGated"


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
            f"nobody runs the scheduler {name}: the pods stay Pending without an event",
            f"{meant} Else run a scheduler of the name {name}",
        )


def device_claims(setting: Setting) -> Iterator[Blocker]:
    """Claims on devices (DRA), which are not placed here."""
    for pods in setting.pods:
        if pods.spec.resource_claims:
            yield Blocker(
                "resource-claims-not-placed",
                UNSCHEDULABLE,
                pods.ref,
                pods.where("resourceClaims"),
                "resource claims (dynamic resource allocation) are not allocated by this scheduler: the pods wait",
                "request the devices as resources (nvidia.com/gpu), or leave the pods to kube-scheduler",
                "Unschedulable",
                "resource claims are not placed by this scheduler",
            )
