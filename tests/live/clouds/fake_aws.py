"""Auto Scaling groups in moto, and answers put between botocore and the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from moto import mock_aws

from tonnage.live.clouds.aws import AwsNodeGroups
from tonnage.live.clouds.aws_groups import TEMPLATE

REGION = "us-east-1"
CLUSTER = "prod"


class Aws:
    """A session with credentials that are not real, and the groups made in it. Making one takes long: share it."""

    def __init__(self) -> None:
        self.session = boto3.session.Session("key", "secret", region_name=REGION)
        self.scaling = self.session.client("autoscaling")
        self.ec2 = self.session.client("ec2")
        subnets = self.ec2.describe_subnets()["Subnets"]
        self.intercepted: list[Intercepted] = []
        self.subnets = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets}

    def clear(self) -> None:
        """Forget groups, templates and interceptions."""
        for raw in self.scaling.get_paginator("describe_auto_scaling_groups").paginate().build_full_result().values():
            for group in raw:
                self.scaling.delete_auto_scaling_group(
                    AutoScalingGroupName=group["AutoScalingGroupName"], ForceDelete=True
                )
        for configuration in self.scaling.describe_launch_configurations()["LaunchConfigurations"]:
            self.scaling.delete_launch_configuration(LaunchConfigurationName=configuration["LaunchConfigurationName"])
        for template in self.ec2.describe_launch_templates()["LaunchTemplates"]:
            self.ec2.delete_launch_template(LaunchTemplateId=template["LaunchTemplateId"])
        for intercepted in self.intercepted:
            intercepted.stop()
        self.intercepted.clear()

    def intercept(self, operation: str, *answers: bytes | Exception, status: int = 400) -> Intercepted:
        """Put answers before an operation, for clients that are made from now on."""
        self.intercepted.append(Intercepted(self.session, operation, *answers, status=status))
        return self.intercepted[-1]

    def template(self, name: str, **data: Any) -> str:
        made = self.ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData={"ImageId": IMAGE, **data})
        identity: str = made["LaunchTemplate"]["LaunchTemplateId"]
        return identity

    def group(
        self,
        name: str = "gpu",
        *,
        instance_type: str = "g5.xlarge",
        zones: tuple[str, ...] = ("us-east-1a",),
        minimum: int = 0,
        desired: int = 2,
        maximum: int = 5,
        tags: dict[str, str] | None = None,
        cluster: str = CLUSTER,
        market: dict[str, Any] | None = None,
        **other: Any,
    ) -> None:
        """One group of ``cluster``; ``other`` replaces its launch template."""
        if not other:
            data = {"InstanceType": instance_type} | ({"InstanceMarketOptions": market} if market else {})
            other = {"LaunchTemplate": {"LaunchTemplateId": self.template(f"{name}-template", **data), "Version": "1"}}
        owned = {f"kubernetes.io/cluster/{cluster}": "owned", **(tags or {})}
        self.scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            VPCZoneIdentifier=",".join(self.subnets[zone] for zone in zones),
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in owned.items()],
            **other,
        )

    def groups(self, **options: Any) -> AwsNodeGroups:
        return AwsNodeGroups(CLUSTER, session=self.session, **options)

    def size(self, name: str = "gpu") -> tuple[int, list[str]]:
        """Desired capacity and instance ids, as AWS has them."""
        raw = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"][0]
        return raw["DesiredCapacity"], [instance["InstanceId"] for instance in raw["Instances"]]


IMAGE = "ami-12c6146b"  # one that moto has


def template_tags(**kinds: dict[str, str]) -> dict[str, str]:
    """The cluster-autoscaler's tags: label={…}, taint={…}, resources={…}."""
    return {f"{TEMPLATE}{kind}/{name}": value for kind, named in kinds.items() for name, value in named.items()}


@contextmanager
def mocked() -> Iterator[Aws]:
    with mock_aws():
        yield Aws()


class Intercepted:
    """Answers given to one operation, in order; then its own come through. ``count``: requests.

    moto does what is asked all the same, as if its answer was lost; under an exception it does nothing.
    """

    def __init__(self, session: Any, operation: str, *answers: bytes | Exception, status: int = 400) -> None:
        self.count = 0
        self.answers, self._status = list(answers), status
        self._events, self._name = session.events, f"before-send.{operation}"
        self._events.register_first(self._name, self._answer)

    def stop(self) -> None:
        self._events.unregister(self._name, self._answer)

    def _answer(self, request: Any, **_: Any) -> AWSResponse | None:
        self.count += 1
        if not self.answers:
            return None
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return AWSResponse(request.url, self._status, {}, _Body(answer))


class _Body:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self._content


def error(code: str, message: str = "no") -> bytes:
    """An error of the query protocol, which EC2 Auto Scaling speaks."""
    return f"<ErrorResponse><Error><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>".encode()


def ec2_error(code: str, message: str = "no") -> bytes:
    """An error of EC2's own form."""
    return (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>".encode()
    )
