"""Node groups of AWS against moto: what is read of them, sizes, one machine removed, and what is said when AWS says no."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed (pip install boto3)")
pytest.importorskip("moto", reason="moto is not installed (pip install 'moto[autoscaling,ec2]')")

from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError  # noqa: E402
from fake_aws import CLUSTER, Aws, ec2_error, error, mocked, template_tags  # noqa: E402

from tonnage.decisions import Applied, Outcome, Refused, Stale  # noqa: E402
from tonnage.errors import InputError  # noqa: E402
from tonnage.live.clouds.aws import AwsNodeGroups  # noqa: E402
from tonnage.live.clouds.port import NodeGroups  # noqa: E402
from tonnage.objects.core import Taint  # noqa: E402

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def shared() -> Iterator[Aws]:
    with mocked() as made:
        yield made


@pytest.fixture
def aws(shared: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _: None)  # back-off
    monkeypatch.setattr("botocore.retries.bucket.TokenBucket.acquire", lambda *_, **__: True)  # adaptive mode's pace
    yield shared
    shared.clear()


def why(outcome: Outcome) -> str:
    return outcome.why if isinstance(outcome, Refused) else outcome.changed if isinstance(outcome, Stale) else ""


# ---- reading ----


def test_a_group_is_read_with_its_sizes_zones_and_nodes(aws: Aws) -> None:
    aws.group(zones=("us-east-1b", "us-east-1a"), minimum=1, desired=2, maximum=7)
    (group,) = aws.groups().list()
    assert (group.name, group.instance_types, group.zones) == ("gpu", ("g5.xlarge",), ("us-east-1a", "us-east-1b"))
    assert (group.minimum, group.desired, group.maximum) == (1, 2, 7)
    assert (group.capacity_type, group.micro_usd_per_hour, group.held) == ("on-demand", None, "")
    instances = aws.size()[1]
    assert {node.rpartition("/")[2] for node in group.nodes} == {*instances}
    assert all(node.startswith("aws:///us-east-1") for node in group.nodes)


def test_only_the_groups_of_the_cluster_are_read_in_order_of_name(aws: Aws) -> None:
    aws.group("b")
    aws.group("other", cluster="staging")
    aws.group("a", cluster="staging", tags={f"k8s.io/cluster-autoscaler/{CLUSTER}": "owned"})
    assert [group.name for group in aws.groups().list()] == ["a", "b"]


def test_more_groups_than_a_page_holds_are_read(aws: Aws) -> None:
    identity = aws.template("shared", InstanceType="g5.xlarge")
    for number in range(60):  # moto and AWS give 50 a page
        aws.group(f"g{number:02d}", desired=0, LaunchTemplate={"LaunchTemplateId": identity, "Version": "$Latest"})
    assert [group.name for group in aws.groups().list()] == [f"g{number:02d}" for number in range(60)]


def policy(aws: Aws, *types: str, base: int = 0, percent: int = 100) -> dict[str, Any]:
    launch = {
        "LaunchTemplateSpecification": {
            "LaunchTemplateId": aws.template("mixed-template", InstanceType="g5.xlarge"),
            "Version": "$Latest",
        },
        "Overrides": [{"InstanceType": name} for name in types],
    }
    spread = {"OnDemandBaseCapacity": base, "OnDemandPercentageAboveBaseCapacity": percent}
    return {"MixedInstancesPolicy": {"LaunchTemplate": launch, "InstancesDistribution": spread}}


@pytest.mark.parametrize(
    ("base", "percent", "desired", "capacity_type"),
    [
        (0, 100, 0, "on-demand"),
        (0, 0, 0, "spot"),
        (2, 0, 2, "spot"),
        (2, 0, 1, "mixed"),
        (0, 50, 3, "mixed"),
        (3, 100, 0, "on-demand"),
    ],
)
def test_a_mixed_policy_says_what_the_next_machine_is(
    aws: Aws, base: int, percent: int, desired: int, capacity_type: str
) -> None:
    aws.group(desired=desired, **policy(aws, "g5.2xlarge", "g5.xlarge", base=base, percent=percent))
    (group,) = aws.groups().list()
    assert group.instance_types == ("g5.2xlarge", "g5.xlarge")
    assert group.capacity_type == capacity_type


def test_a_mixed_policy_without_overrides_has_the_type_of_its_template(aws: Aws) -> None:
    aws.group(**policy(aws))
    assert aws.groups().list()[0].instance_types == ("g5.xlarge",)


def test_a_template_that_asks_for_spot_makes_spot(aws: Aws) -> None:
    aws.group(market={"MarketType": "spot"})
    assert aws.groups().list()[0].capacity_type == "spot"


def test_a_launch_configuration_is_read_too(aws: Aws) -> None:
    aws.scaling.create_launch_configuration(
        LaunchConfigurationName="old", ImageId="ami-12c6146b", InstanceType="p3.2xlarge", SpotPrice="1.0"
    )
    aws.group(LaunchConfigurationName="old")
    (group,) = aws.groups().list()
    assert (group.instance_types, group.capacity_type) == (("p3.2xlarge",), "spot")


def test_a_numbered_template_version_is_asked_for_once_and_the_latest_each_time(aws: Aws) -> None:
    identity = aws.template("latest", InstanceType="g5.xlarge")
    aws.group("numbered")
    aws.group("latest", LaunchTemplate={"LaunchTemplateId": identity, "Version": "$Latest"})
    asked = aws.intercept("ec2.DescribeLaunchTemplateVersions")
    groups = aws.groups()
    groups.list()
    assert asked.count == 2
    aws.ec2.create_launch_template_version(
        LaunchTemplateId=identity, LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "g5.2xlarge"}
    )
    assert [group.instance_types for group in groups.list()] == [("g5.2xlarge",), ("g5.xlarge",)]
    assert asked.count == 3


def test_the_tags_of_an_empty_group_say_what_its_nodes_will_have(aws: Aws) -> None:
    tags = template_tags(
        label={"team": "ml", "k8s.amazonaws.com/accelerator": "nvidia-a10g"},
        taint={"nvidia.com/gpu": "true:NoSchedule", "dedicated": ":NoExecute"},
        resources={"nvidia.com/gpu": "4", "ephemeral-storage": "100Gi", "cpu": "3900m"},
    )
    aws.group(desired=0, tags=tags)
    groups = aws.groups()
    (group,) = groups.list()
    assert group.labels == {"team": "ml", "k8s.amazonaws.com/accelerator": "nvidia-a10g"}
    assert set(group.taints) == {
        Taint(key="nvidia.com/gpu", value="true", effect="NoSchedule"),
        Taint(key="dedicated", effect="NoExecute"),
    }
    assert group.resources == {"nvidia.com/gpu": 4, "ephemeral-storage": 100 << 30, "cpu": 3900}
    assert groups.warnings == {}


def test_a_tag_that_cannot_be_understood_is_a_warning(aws: Aws) -> None:
    aws.group(tags=template_tags(taint={"gpu": "NoSchedule"}, resources={"cpu": "much"}))
    groups = aws.groups()
    (group,) = groups.list()
    assert (group.taints, group.resources) == ((), {})
    (resources, taint) = groups.warnings["gpu"]
    assert "'much' is not a quantity" in resources
    assert "expected VALUE:EFFECT" in taint


EKS = b"""{"nodegroup": {"nodegroupName": "ng", "capacityType": "SPOT", "labels": {"team": "eks"},
"taints": [{"key": "gpu", "value": "yes", "effect": "NO_SCHEDULE"}]}}"""


def test_labels_and_taints_of_a_managed_group_come_from_eks_and_win(aws: Aws) -> None:
    tags = template_tags(label={"team": "tag", "more": "1"}, taint={"gpu": "no:NoExecute"})
    aws.group(tags={"eks:nodegroup-name": "ng", **tags})
    asked = aws.intercept("eks.DescribeNodegroup", EKS, EKS, status=200)
    now = [1000.0]
    groups = aws.groups(clock=lambda: now[0])
    (group,) = groups.list()
    assert group.labels == {
        "team": "eks",
        "more": "1",
        "eks.amazonaws.com/nodegroup": "ng",
        "eks.amazonaws.com/capacityType": "SPOT",
    }
    assert group.taints == (Taint(key="gpu", value="yes", effect="NoSchedule"),)
    now[0] += 299
    groups.list()
    assert asked.count == 1
    now[0] += 1
    groups.list()
    assert asked.count == 2


def test_without_leave_to_ask_eks_the_tags_are_used_and_it_is_said(aws: Aws) -> None:
    aws.group(tags={"eks:nodegroup-name": "ng", **template_tags(label={"team": "tag"})})
    aws.intercept("eks.DescribeNodegroup", b'{"__type": "AccessDeniedException", "message": "no"}', status=403)
    groups = aws.groups()
    assert groups.list()[0].labels == {"team": "tag"}
    assert "AWS denies eks:DescribeNodegroup" in groups.warnings["gpu"][0]


# ---- sizes ----


def test_it_is_a_port_of_node_groups(aws: Aws) -> None:
    groups: NodeGroups = aws.groups()
    assert groups.list() == ()


def test_a_size_is_set_when_the_group_is_as_expected(aws: Aws) -> None:
    aws.group(desired=2)
    assert aws.groups().set_size("gpu", 4, expect=2) == Applied()
    assert aws.size()[0] == 4


def test_a_decision_that_is_applied_twice_takes_effect_once(aws: Aws) -> None:
    aws.group(desired=2)
    groups = aws.groups()
    assert groups.set_size("gpu", 4, expect=2) == Applied()
    assert groups.set_size("gpu", 4, expect=2) == Stale("gpu has size 4, expected 2")
    assert aws.size()[0] == 4


@pytest.mark.parametrize(
    ("name", "desired", "expect", "outcome", "says"),
    [
        ("gpu", 4, 3, Stale, "gpu has size 2, expected 3"),
        ("gone", 4, 2, Stale, "node group gone is gone"),
        ("gpu", 6, 2, Refused, "between 1 and 5 nodes, not 6"),
        ("gpu", 0, 2, Refused, "between 1 and 5 nodes, not 0"),
        ("gpu", 1, 2, Refused, "its cloud would choose which of them go"),
        ("other", 4, 2, Refused, "has no tag of cluster prod"),
    ],
)
def test_a_size_that_may_not_be_set_is_left(
    aws: Aws, name: str, desired: int, expect: int, outcome: type, says: str
) -> None:
    aws.group(minimum=1, desired=2)
    aws.group("other", cluster="staging")
    asked = aws.intercept("autoscaling.SetDesiredCapacity")
    found = aws.groups().set_size(name, desired, expect)
    assert isinstance(found, outcome)
    assert says in why(found)
    assert asked.count == 0
    assert aws.size()[0] == 2


def test_a_group_that_launches_nothing_does_not_grow(aws: Aws) -> None:
    aws.group(desired=2)
    aws.scaling.suspend_processes(AutoScalingGroupName="gpu", ScalingProcesses=["Launch"])
    groups = aws.groups()
    assert groups.list()[0].held == "has its Launch process suspended"
    assert groups.set_size("gpu", 3, expect=2) == Refused("gpu has its Launch process suspended")


# ---- one machine ----


def test_that_very_machine_goes_and_the_size_falls_by_one(aws: Aws) -> None:
    aws.group(desired=3)
    groups = aws.groups()
    before = aws.size()[1]
    node = next(node for node in groups.list()[0].nodes if node.endswith(before[1]))
    assert groups.remove(node, "gpu", expect=3) == Applied()
    desired, after = aws.size()
    assert desired == 2
    assert sorted(after) == sorted([before[0], before[2]])
    assert groups.remove(node, "gpu", expect=3) == Stale("gpu has size 2, expected 3")
    assert groups.remove(node, "gpu", expect=2) == Stale(f"{before[1]} is not in gpu, or terminating")
    assert aws.size()[0] == 2


def test_a_machine_stays_where_the_group_is_at_its_minimum(aws: Aws) -> None:
    aws.group(minimum=2, desired=2)
    groups = aws.groups()
    assert groups.remove(groups.list()[0].nodes[0], "gpu", expect=2) == Refused("gpu is at its minimum of 2")
    assert len(aws.size()[1]) == 2


@pytest.mark.parametrize("provider_id", ["i-0123", "gce://project/zone/name", "kwok://a", "aws:///us-east-1a/", ""])
def test_a_node_of_another_cloud_is_refused(aws: Aws, provider_id: str) -> None:
    aws.group()
    assert "is not the provider id of an EC2 instance" in why(aws.groups().remove(provider_id, "gpu", expect=2))


# ---- what is said when AWS says no ----

DENIED = "User: arn:aws:sts::1:assumed-role/tonnage/x is not authorized to perform: autoscaling:SetDesiredCapacity"


@pytest.mark.parametrize(
    ("answer", "outcome", "says"),
    [
        (
            error("AccessDenied", DENIED),
            Refused,
            "AWS denies autoscaling:SetDesiredCapacity (allow that IAM action to arn:aws:sts::1:assumed-role/tonnage/x)",
        ),
        (error("AccessDenied"), Refused, "allow that IAM action to the role of this controller"),
        (error("ScalingActivityInProgress", "busy"), Stale, "does not do autoscaling:SetDesiredCapacity now (Scal"),
        (error("ResourceContention"), Stale, "now (ResourceContention)"),
        (error("ValidationError", "New value\nis above max"), Refused, "(ValidationError): New value is above max"),
        (error("ExpiredToken", "too old"), Refused, "does not take the credentials (ExpiredToken): too old (renew"),
    ],
)
def test_a_size_that_aws_does_not_set(aws: Aws, answer: bytes, outcome: type, says: str) -> None:
    aws.group(desired=2)
    aws.intercept("autoscaling.SetDesiredCapacity", answer)
    found = aws.groups().set_size("gpu", 3, expect=2)
    assert isinstance(found, outcome)
    assert says in why(found)
    assert "\n" not in why(found)


def test_a_throttled_size_is_asked_for_again(aws: Aws) -> None:
    aws.group(desired=2)
    asked = aws.intercept("autoscaling.SetDesiredCapacity", error("Throttling"), error("Throttling"))
    assert aws.groups().set_size("gpu", 3, expect=2) == Applied()
    assert asked.count == 3
    assert aws.size()[0] == 3


def test_throttling_without_end_is_stale(aws: Aws) -> None:
    aws.group(desired=2)
    asked = aws.intercept("autoscaling.SetDesiredCapacity", *[error("Throttling", "Rate exceeded")] * 9)
    found = aws.groups().set_size("gpu", 3, expect=2)
    assert isinstance(found, Stale)
    assert "now (Throttling): Rate exceeded (it is asked again)" in found.changed
    assert asked.count == 5


@pytest.mark.parametrize(
    "answer",
    [
        ReadTimeoutError(endpoint_url="https://autoscaling"),
        ConnectTimeoutError(endpoint_url="https://autoscaling"),
        error("Throttling"),
        error("InternalFailure"),
    ],
)
def test_a_removal_is_sent_once_because_it_could_act_twice(aws: Aws, answer: bytes | Exception) -> None:
    aws.group(desired=3)
    asked = aws.intercept("autoscaling.TerminateInstanceInAutoScalingGroup", answer)
    groups = aws.groups()
    found = groups.remove(groups.list()[0].nodes[0], "gpu", expect=3)
    assert isinstance(found, Stale)
    assert "autoscaling:TerminateInstanceInAutoScalingGroup" in found.changed
    assert asked.count == 1


@pytest.mark.parametrize(
    ("operation", "answer", "says"),
    [
        ("autoscaling.DescribeAutoScalingGroups", error("AccessDenied"), "AWS denies autoscaling:DescribeAutoScalingG"),
        ("ec2.DescribeLaunchTemplateVersions", ec2_error("UnauthorizedOperation"), "denies ec2:DescribeLaunchTemplate"),
        (
            "autoscaling.DescribeAutoScalingGroups",
            error("InvalidClientTokenId", "bad"),
            "not take the credentials (Inv",
        ),
        ("ec2.DescribeLaunchTemplateVersions", ec2_error("AuthFailure", "bad"), "does not take the credentials (Auth"),
    ],
)
def test_groups_that_cannot_be_read_are_an_error_in_one_line(
    aws: Aws, operation: str, answer: bytes, says: str
) -> None:
    aws.group()
    aws.intercept(operation, answer)
    with pytest.raises(InputError) as caught:
        aws.groups().list()
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_decision_on_groups_that_cannot_be_read_has_an_outcome(aws: Aws) -> None:
    aws.group()
    timeouts = [ConnectTimeoutError(endpoint_url="https://autoscaling")] * 5
    aws.intercept("autoscaling.DescribeAutoScalingGroups", error("AccessDenied"), *timeouts)
    groups = aws.groups()
    denied = groups.set_size("gpu", 3, expect=2)
    assert isinstance(denied, Refused)
    assert denied.why.startswith("AWS denies autoscaling:DescribeAutoScalingGroups")
    assert isinstance(groups.set_size("gpu", 3, expect=2), Stale)


# ---- the environment ----


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No credentials, no region, no configuration file."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_without_credentials_it_says_how_to_give_them(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"there are no AWS credentials \(set AWS_PROFILE or"):
        AwsNodeGroups(CLUSTER, region="us-east-1")


def test_without_a_region_it_says_how_to_give_it(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", "key")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(InputError, match=r"the AWS region is not known \(set AWS_REGION"):
        AwsNodeGroups(CLUSTER)
    bare.setenv("AWS_REGION", "eu-west-1")
    assert AwsNodeGroups(CLUSTER)._scaling.meta.region_name == "eu-west-1"


def test_a_profile_that_is_not_there_is_named(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"The config profile \(nobody\) could not be found"):
        AwsNodeGroups(CLUSTER, profile="nobody", region="us-east-1")


def test_half_of_the_credentials_are_said_to_be_half(bare: pytest.MonkeyPatch) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", "key")
    with pytest.raises(InputError, match="Partial credentials"):
        AwsNodeGroups(CLUSTER, region="us-east-1")


def test_without_boto3_it_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(InputError, match=r"needs the package boto3 \(pip install 'tonnage\[aws\]'\)"):
        AwsNodeGroups(CLUSTER, region="us-east-1")
