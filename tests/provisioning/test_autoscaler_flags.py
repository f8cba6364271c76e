"""The autoscaler's options as its Deployment and its ConfigMap have them, and the node groups of a ClusterConfig."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tonnage.errors import InputError
from tonnage.objects import load
from tonnage.objects.eksctl import ClusterConfig
from tonnage.provisioning.cluster_autoscaler import flags
from tonnage.provisioning.cluster_autoscaler.options import AutoscalingOptions
from tonnage.provisioning.eksctl_groups import node_groups
from tonnage.units import GIB, MIB, NS_PER_S

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: cluster-autoscaler, namespace: kube-system}}
spec:
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: a}}}}
    spec:
      containers:
      - name: a
        image: {image}
        command: {command}
        args: {args}
"""
IMAGE = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0"
PRIORITIES = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-autoscaler-priority-expander, namespace: kube-system}
data:
  priorities: |-
"""


def options(
    tmp_path: Path, command: str = "[]", args: str = "[]", image: str = IMAGE, more: str = ""
) -> AutoscalingOptions:
    file = tmp_path / "a.yaml"
    file.write_text(DEPLOYMENT.format(image=image, command=command, args=args) + more)
    return flags.read(load.read([file]).objects)


def test_flags_of_command_and_args_are_read_with_and_without_equals(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        "[./cluster-autoscaler, --cloud-provider=aws, '--expander=least-nodes,least-waste', --v=4]",
        "[--scale-down-unneeded-time, 5m, --skip-nodes-with-local-storage=false, --balance-similar-node-groups,"
        " --scale-down-utilization-threshold=0.65, --max-nodes-total=50, --max-graceful-termination-sec=60]",
    )
    assert found == AutoscalingOptions(
        expanders=("least-nodes", "least-waste"),
        unneeded_ns=300 * NS_PER_S,
        skip_nodes_with_local_storage=False,
        balance_similar_node_groups=True,
        utilization_threshold=0.65,
        max_nodes_total=50,
        max_graceful_termination_ns=60 * NS_PER_S,
        release=(1, 35),
    )


@pytest.mark.parametrize(
    ("image", "release"),
    [
        ("registry.k8s.io/autoscaling/cluster-autoscaler:v1.36.1", (1, 36)),
        ("mirror.example:5000/cluster-autoscaler-amd64:1.34.0@sha256:0a", (1, 34)),
        ("cluster-autoscaler", None),
        ("cluster-autoscaler:latest", None),
    ],
)
def test_the_version_is_that_of_the_image(tmp_path: Path, image: str, release: tuple[int, int] | None) -> None:
    assert options(tmp_path, image=image).release == release


def test_the_program_is_known_by_its_image_or_its_command_and_no_other_is_read(tmp_path: Path) -> None:
    args = "[--expander=random]"
    assert options(tmp_path, "[/cluster-autoscaler]", args, "mirror.example/ca:1").expanders == ("random",)
    assert options(tmp_path, "[]", args).expanders == ("random",)
    assert options(tmp_path, "[/app]", args, "example/app:1") == AutoscalingOptions()


@pytest.mark.parametrize(
    ("flag", "field", "said"),
    [
        ("--expander=cheapest", "args[0]", "--expander=cheapest (expected one or more of least-nodes"),
        ("--scale-down-unneeded-time=10", "args[0]", "--scale-down-unneeded-time=10 (expected a duration such as 10m)"),
        ("--scale-down-utilization-threshold=50", "args[0]", "expected a number from 0 to 1"),
        ("--skip-nodes-with-system-pods=maybe", "args[0]", "expected true or false"),
        ("--max-nodes-total=-1", "args[0]", "expected a whole number from 0"),
        ("--expander=priority", "args[0]", "has no priorities (add the ConfigMap cluster-autoscaler-priority-expander"),
    ],
)
def test_a_flag_that_the_autoscaler_refuses_is_named_with_its_place(
    tmp_path: Path, flag: str, field: str, said: str
) -> None:
    with pytest.raises(InputError) as caught:
        options(tmp_path, args=f"['{flag}']")
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/a.yaml:13:spec.template.spec.containers[0].{field}: ")
    assert said in text


def test_priorities_are_lists_of_regular_expressions_by_number(tmp_path: Path) -> None:
    more = "---\n" + PRIORITIES + textwrap.indent("10:\n  - .*\n50:\n  - .*spot.*\n  - ^gpu-\n", "    ")
    assert options(tmp_path, args="[--expander=priority]", more=more).priorities == (
        (50, (".*spot.*", "^gpu-")),
        (10, (".*",)),
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "priorities is missing or empty"),
        ("- a", "is not a mapping"),
        ("high: [a]", "priority high"),
        ("10: a", "priority 10 is not a list of texts"),
        ("10: ['(']", "priority 10: '(' is no regular expression"),
    ],
)
def test_priorities_that_cannot_be_read_are_errors(tmp_path: Path, written: str, said: str) -> None:
    more = "---\n" + PRIORITIES + textwrap.indent(written + "\n", "    ")
    with pytest.raises(InputError, match=said.replace("(", r"\(")):
        options(tmp_path, more=more)


CONFIG = """\
apiVersion: eksctl.io/v1alpha5
kind: ClusterConfig
metadata: {name: ml, region: us-east-1, version: "1.33"}
availabilityZones: [us-east-1a, us-east-1b]
"""


def config(tmp_path: Path, text: str) -> ClusterConfig:
    file = tmp_path / "cluster.yaml"
    file.write_text(CONFIG + text)
    manifest = load.read([file])
    assert not manifest.problems
    (found,) = manifest.of(ClusterConfig)
    return found


def test_groups_of_a_cluster_config_have_eksctls_defaults(tmp_path: Path) -> None:
    ((group, storage),) = node_groups(config(tmp_path, "managedNodeGroups:\n- {name: a}\n"))
    assert (group.instance_types, group.zones) == (("m5.large",), ("us-east-1a", "us-east-1b"))
    assert (group.minimum, group.desired, group.maximum, group.capacity_type) == (2, 2, 2, "on-demand")
    assert group.labels["eks.amazonaws.com/nodegroup"] == "a"
    assert group.labels["eks.amazonaws.com/capacityType"] == "ON_DEMAND"
    assert storage.volume_bytes == 80 * GIB


def test_what_a_group_says_is_taken(tmp_path: Path) -> None:
    text = """\
managedNodeGroups:
- {name: a, instanceTypes: [g5.xlarge, g5.2xlarge], spot: true, minSize: 0, maxSize: 4, availabilityZones: [us-east-1b],
   volumeSize: 200, volumeThroughput: 500, taints: [{key: nvidia.com/gpu, value: "true", effect: NoSchedule}]}
nodeGroups:
- {name: b, instanceType: p5.48xlarge, minSize: 1, desiredCapacity: 2, maxSize: 3, labels: {team: ml},
   taints: {gpu: "yes:NoExecute"}}
- name: c
  instancesDistribution: {instanceTypes: [m5.large, m5a.large], onDemandBaseCapacity: 0,
    onDemandPercentageAboveBaseCapacity: 0}
- name: d
  instancesDistribution: {instanceTypes: [m5.large, m5a.large], onDemandPercentageAboveBaseCapacity: 40}
"""
    found = {one.name: (one, storage) for one, storage in node_groups(config(tmp_path, text))}
    a, storage = found["a"]
    assert (a.instance_types, a.capacity_type, a.zones) == (("g5.xlarge", "g5.2xlarge"), "spot", ("us-east-1b",))
    assert (a.minimum, a.desired, a.maximum) == (0, 0, 4)
    assert (storage.volume_bytes, storage.throughput_bytes_per_s) == (200 * GIB, 500 * MIB)
    b, _ = found["b"]
    assert (b.minimum, b.desired, b.maximum, b.labels["team"]) == (1, 2, 3, "ml")
    assert "eks.amazonaws.com/nodegroup" not in b.labels
    assert [(t.key, t.value, t.effect) for t in b.taints] == [("gpu", "yes", "NoExecute")]
    assert (found["c"][0].capacity_type, found["d"][0].capacity_type) == ("spot", "mixed")


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("{name: a, minSize: 3, maxSize: 2}", "minSize", "3: expected at most maxSize, 2"),
        ("{name: a, desiredCapacity: 5, maxSize: 2}", "desiredCapacity", "5: expected at most maxSize, 2"),
        ("{name: a, desiredCapacity: 1, minSize: 2}", "desiredCapacity", "1: expected at least minSize, 2"),
        ("{name: a, instanceType: m5.large, instanceTypes: [m5.large]}", "instanceTypes", "instanceType is given too"),
        ("{name: a, taints: [{key: k, effect: Never}]}", "taints[0].effect", "expected one of NoSchedule"),
        ("{name: a, taints: {k: NoWhere}}", "taints.k", "expected VALUE:EFFECT"),
        ('{name: ""}', "name", "expected a name"),
    ],
)
def test_what_eksctl_refuses_is_refused_with_its_place(tmp_path: Path, text: str, field: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        config(tmp_path, f"managedNodeGroups:\n- {text}\n")
    assert f"cluster.yaml:6:managedNodeGroups[0].{field}: " in str(caught.value)
    assert said in str(caught.value)


def test_two_groups_of_one_name_and_fields_of_the_other_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        config(tmp_path, "managedNodeGroups:\n- {name: a}\nnodeGroups:\n- {name: a, spot: true}\n")
    assert "nodeGroups[0].name" in str(caught.value) and "nodeGroups[0].spot" in str(caught.value)


def test_an_instance_type_that_is_not_known_is_an_error(tmp_path: Path) -> None:
    one = config(tmp_path, "managedNodeGroups:\n- {name: a, instanceType: m5.huge}\n")
    with pytest.raises(InputError, match=r"cluster.yaml:6:managedNodeGroups\[0\]: m5.huge: expected instance types"):
        node_groups(one)
