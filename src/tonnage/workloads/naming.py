"""Which pod groups a pod names, and whose they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tonnage.objects import core, groups
from tonnage.objects.base import KubeObject
from tonnage.objects.group_names import WorkloadReference
from tonnage.workloads import marks

KUBERNETES, KAI, VOLCANO, COSCHEDULING, KUEUE, YUNIKORN = (
    "kubernetes",
    "kai",
    "volcano",
    "coscheduling",
    "kueue",
    "yunikorn",
)
"""Whose pod groups pods name."""
PROJECTS: Mapping[str, type[KubeObject] | None] = {
    KUBERNETES: groups.KubePodGroup,
    KAI: groups.KaiPodGroup,
    VOLCANO: groups.VolcanoPodGroup,
    COSCHEDULING: groups.CoschedulingPodGroup,
    KUEUE: None,
    YUNIKORN: None,
}
"""Each with the kind of its groups; None where a group is there by what its pods say, or not at all."""


def named(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], spec: core.PodSpec
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(key, names of the pod's subgroup) of every pod group that the pod names."""
    for _, key, names in named_by(namespace, labels, annotations, spec):
        yield key, names


def named_by(
    namespace: str, labels: Mapping[str, str], annotations: Mapping[str, str], spec: core.PodSpec
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(project, key, names of the pod's subgroup) of the same."""
    if spec.scheduling_group is not None:
        yield KUBERNETES, f"{namespace}/{spec.scheduling_group.pod_group_name}", ()
    if spec.workload_ref is not None:
        yield KUBERNETES, workload_key(namespace, spec.workload_ref), ()
    if marks.KAI_GROUP in annotations:
        yield KAI, f"{namespace}/{annotations[marks.KAI_GROUP]}", (labels.get(marks.KAI_SUBGROUP, ""),)
    for name in marks.VOLCANO_GROUP:
        if name in annotations:
            task = annotations.get(marks.VOLCANO_TASK, labels.get(marks.VOLCANO_TASK, ""))
            yield VOLCANO, f"{namespace}/{annotations[name]}", (task,)
    for name in (*marks.COSCHEDULING_GROUP, marks.OLD_GROUP, marks.KUEUE_GROUP):
        if name in labels:
            yield KUEUE if name == marks.KUEUE_GROUP else COSCHEDULING, f"{namespace}/{labels[name]}", ()
    for name in marks.YUNIKORN_APP:
        if name in labels and marks.YUNIKORN_GROUP in annotations:
            yield YUNIKORN, f"{namespace}/{labels[name]}", (annotations[marks.YUNIKORN_GROUP],)


def workload_key(namespace: str, reference: WorkloadReference) -> str:
    """The gang of one replica of a group of a Workload."""
    parts = (namespace, "workload", reference.name, reference.pod_group, reference.pod_group_replica_key)
    return "/".join(part for part in parts if part)
