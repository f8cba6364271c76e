"""eksctl's ClusterConfig, as far as node groups go.

Source: eksctl-io/eksctl pkg/apis/eksctl.io/v1alpha5 (validation.go, types.go).
"""

from __future__ import annotations

from tonnage.objects.api.errors import INT32_MAX
from tonnage.objects.api.placing import EFFECTS
from tonnage.objects.eksctl import ClusterConfig, EksctlGroup
from tonnage.objects.validate.common import Report


def cluster_config(obj: ClusterConfig, report: Report) -> None:
    names = [one.name for one in (*obj.managed_node_groups, *obj.node_groups)]
    first = len(obj.managed_node_groups)
    report.unique("managedNodeGroups[{}].name", names[:first], "node group")
    for number, name in enumerate(names[first:]):
        if name in names[: first + number]:
            report.add(f"nodeGroups[{number}].name", f'"{name}": node group appears twice', "rename or remove one")
    for number, one in enumerate(obj.managed_node_groups):
        path = f"managedNodeGroups[{number}]"
        _group(path, one, report)
        if one.instance_type and one.instance_types:
            report.add(f"{path}.instanceTypes", "instanceType is given too", "list all types, or name the one")
        if one.instances_distribution is not None:
            report.add(f"{path}.instancesDistribution", "managed groups have none", "use instanceTypes and spot")
    for number, one in enumerate(obj.node_groups):
        path = f"nodeGroups[{number}]"
        _group(path, one, report)
        for field, given in (("instanceTypes", one.instance_types), ("spot", one.spot)):
            if given:
                report.add(f"{path}.{field}", "only managed groups have it", "use instancesDistribution")


def _group(path: str, one: EksctlGroup, report: Report) -> None:
    report.not_empty(f"{path}.name", one.name, "eksctl requires it")
    for field, size in (
        ("minSize", one.min_size),
        ("maxSize", one.max_size),
        ("desiredCapacity", one.desired_capacity),
    ):
        report.within(f"{path}.{field}", size, 0, INT32_MAX)
    least, most, wanted = one.min_size, one.max_size, one.desired_capacity
    if least is not None and most is not None and least > most:
        report.refuse(f"{path}.minSize", least, f"at most maxSize, {most}")
    elif wanted is not None and least is not None and wanted < least:
        report.refuse(f"{path}.desiredCapacity", wanted, f"at least minSize, {least}")
    elif wanted is not None and most is not None and wanted > most:
        report.refuse(f"{path}.desiredCapacity", wanted, f"at most maxSize, {most}")
    if isinstance(one.taints, dict):
        for key, written in one.taints.items():
            if written.rpartition(":")[2] not in EFFECTS:
                report.refuse(f"{path}.taints.{key}", written, f"VALUE:EFFECT with one of {', '.join(EFFECTS)}")
    else:
        for number, taint in enumerate(one.taints):
            report.one_of(f"{path}.taints[{number}].effect", taint.effect, EFFECTS)
