"""Pod groups and topologies.

Sources: kai-scheduler/KAI-Scheduler pkg/apis/scheduling/v2alpha2/podgroup_webhook.go, kubernetes/kubernetes
pkg/apis/scheduling/validation, kubernetes-sigs/kueue apis/kueue/v1beta2/topology_types.go, volcano-sh/volcano
pkg/webhooks/admission/podgroups, kubernetes-sigs/scheduler-plugins apis/scheduling/v1alpha1/types.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from tonnage.facts.labels import HOSTNAME
from tonnage.objects.api.errors import label_faults, qualified_faults
from tonnage.objects.groups import (
    CoschedulingPodGroup,
    GroupSchedulingPolicy,
    KaiPodGroup,
    KaiSubGroup,
    KubePodGroup,
    KubeWorkload,
    Topology,
    VolcanoNetworkTopology,
    VolcanoPodGroup,
)
from tonnage.objects.validate.common import Report

_MAX_LEVELS = 16


def kai_pod_group(obj: KaiPodGroup, report: Report) -> None:
    spec = obj.spec
    report.within("spec.minMember", spec.min_member, 1)
    if spec.preemptibility:
        report.one_of("spec.preemptibility", spec.preemptibility, ("preemptible", "non-preemptible"))
    report.unique("spec.subGroups[{}].name", [group.name for group in spec.sub_groups], "a subgroup of this name")
    children: dict[str, list[str]] = {}
    for group in spec.sub_groups:
        children.setdefault(group.parent, []).append(group.name)
    _minimum("spec", spec.min_member, spec.min_sub_group, children.get("", []), report)
    known = {group.name: group for group in spec.sub_groups}
    for index, group in enumerate(spec.sub_groups):
        path = f"spec.subGroups[{index}]"
        report.not_empty(f"{path}.name", group.name)
        inside = children.get(group.name, [])
        _minimum(path, group.min_member, group.min_sub_group, inside, report)
        if group.parent and group.parent not in known:
            names = ", ".join(known)
            report.refuse(f"{path}.parent", group.parent, f"one of {names}", "the parent is a subgroup of this group")
        elif _is_its_own_ancestor(group, known):
            report.refuse(f"{path}.parent", group.parent, "a parent outside this subgroup", "break the cycle")
        elif inside and group.min_member:
            report.refuse(f"{path}.minMember", group.min_member, "none, as it has subgroups", "use minSubGroup")
        elif not inside and group.min_member is None:
            report.add(f"{path}.minMember", "the field is missing", "a subgroup without subgroups needs it")


def _minimum(path: str, pods: int | None, groups: int | None, children: list[str], report: Report) -> None:
    report.within(f"{path}.minMember", pods, 0)
    report.within(f"{path}.minSubGroup", groups, 1)
    if groups is not None and pods:
        report.add(f"{path}.minSubGroup", "is set together with minMember", "set one of them")
    if groups is not None and groups > len(children):
        report.refuse(f"{path}.minSubGroup", groups, f"at most the {len(children)} subgroups inside")


def _is_its_own_ancestor(group: KaiSubGroup, known: Mapping[str, KaiSubGroup]) -> bool:
    seen = {group.name}
    while group.parent in known:
        group = known[group.parent]
        if group.name in seen:
            return True
        seen.add(group.name)
    return False


def topology(obj: Topology, report: Report) -> None:
    levels = [level.node_label for level in obj.spec.levels]
    if not 1 <= len(levels) <= _MAX_LEVELS:
        report.add("spec.levels", f"has {len(levels)} levels: expected 1 to {_MAX_LEVELS}", "list the outermost first")
    report.unique("spec.levels[{}].nodeLabel", levels, "a level of this label")
    for index, label in enumerate(levels):
        report.matches(f"spec.levels[{index}].nodeLabel", label, qualified_faults)
        if label == HOSTNAME and index != len(levels) - 1:
            report.refuse(f"spec.levels[{index}].nodeLabel", label, "to be the last level", "hosts are the innermost")


def volcano_pod_group(obj: VolcanoPodGroup, report: Report) -> None:
    report.within("spec.minMember", obj.spec.min_member, 0)
    for name, count in obj.spec.min_task_member.items():
        report.within(f"spec.minTaskMember.{name}", count, 0)
    volcano_topology("spec.networkTopology", obj.spec.network_topology, report)
    policies = obj.spec.sub_group_policy
    report.unique("spec.subGroupPolicy[{}].name", [policy.name for policy in policies], "a policy of this name")
    for index, policy in enumerate(policies):
        path = f"spec.subGroupPolicy[{index}]"
        report.within(f"{path}.subGroupSize", policy.sub_group_size, 1)
        report.within(f"{path}.minSubGroups", policy.min_sub_groups, 0)
        report.selector(f"{path}.labelSelector")
        volcano_topology(f"{path}.networkTopology", policy.network_topology, report)


def volcano_topology(path: str, wanted: VolcanoNetworkTopology | None, report: Report) -> None:
    if wanted is not None:
        report.one_of(f"{path}.mode", wanted.mode, ("hard", "soft"))
        report.within(f"{path}.highestTierAllowed", wanted.highest_tier_allowed, 0)


def coscheduling_pod_group(obj: CoschedulingPodGroup, report: Report) -> None:
    report.within("spec.minMember", obj.spec.min_member, 1)


def kube_pod_group(obj: KubePodGroup, report: Report) -> None:
    _policy("spec.schedulingPolicy", obj.spec.scheduling_policy, report)
    constraints = obj.spec.scheduling_constraints
    for index, constraint in enumerate(constraints.topology if constraints else []):
        report.matches(f"spec.schedulingConstraints.topology[{index}].key", constraint.key, qualified_faults)


def kube_workload(obj: KubeWorkload, report: Report) -> None:
    groups = obj.spec.pod_groups
    report.unique("spec.podGroups[{}].name", [group.name for group in groups], "a group of this name")
    for index, group in enumerate(groups):
        report.matches(f"spec.podGroups[{index}].name", group.name, label_faults)
        _policy(f"spec.podGroups[{index}].policy", group.policy, report)


def _policy(path: str, policy: GroupSchedulingPolicy, report: Report) -> None:
    if (policy.basic is None) == (policy.gang is None):
        report.add(path, "expected either basic or gang", "set exactly one of them")
    if policy.gang is not None:
        report.within(f"{path}.gang.minCount", policy.gang.min_count, 1)
