"""Node groups of AWS: the EC2 Auto Scaling groups of an EKS (or self-managed) cluster. Needs the ``aws`` extra.

Actions needed: autoscaling:DescribeAutoScalingGroups, ec2:DescribeLaunchTemplateVersions to read (and
autoscaling:DescribeLaunchConfigurations where a group has one, eks:DescribeNodegroup for the labels and taints of
managed groups); autoscaling:SetDesiredCapacity, autoscaling:TerminateInstanceInAutoScalingGroup to write.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from tonnage.decisions import Applied, Outcome, Refused, Stale
from tonnage.errors import InputError, NotAnswered, Problem, Where
from tonnage.live.clouds import aws_groups
from tonnage.live.clouds.aws_groups import Declared, LaunchTemplate
from tonnage.live.clouds.port import moved, refusal
from tonnage.provisioning.node_groups import NodeGroup

DENIED: Final = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
NOT_KNOWN: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Error codes for credentials that AWS does not take (Common Error Types of the API references)."""

FOR_NOW: Final = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "RequestLimitExceeded",
        "ResourceContention",
        "ScalingActivityInProgress",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "Unavailable",
    }
)
"""Error codes after which the same request may be taken later."""

EKS_KEPT_S: Final = 300.0
"""How long what EKS says of a managed node group is kept: its labels and taints seldom change."""

_PROVIDER_ID = re.compile(r"aws:///[a-z0-9-]*/(i-[0-9a-f]+)")
_CREDENTIALS = "set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give the pod's service account an IAM role"


class AwsNodeGroups:
    """The Auto Scaling groups that are tagged with the cluster's name; implements :class:`NodeGroups`.

    Reads and SetDesiredCapacity, which sets an absolute number, are repeated by boto3's adaptive mode when throttled.
    TerminateInstanceInAutoScalingGroup has no client token and lowers the size each time, so it is sent once.
    There is no conditional write: ``expect`` is compared just before, and a change within that moment is overwritten.

    ``region`` and ``profile`` default to the environment's. ``clock``: Unix time in seconds. ``warnings``: by group,
    what could not be read of it in the last :meth:`list`.

    Raises InputError without boto3, credentials or a region.
    """

    def __init__(
        self,
        cluster: str,
        *,
        region: str = "",
        profile: str = "",
        session: Any = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.cluster = cluster
        self.warnings: dict[str, tuple[str, ...]] = {}
        self._clock = clock
        used = session or _session(region, profile)
        adaptive = {"mode": "adaptive", "total_max_attempts": 5}
        self._scaling = _client(used, "autoscaling", adaptive)
        self._once = _client(used, "autoscaling", {"mode": "standard", "total_max_attempts": 1})
        self._ec2 = _client(used, "ec2", adaptive)
        self._eks = _client(used, "eks", adaptive)
        self._templates: dict[tuple[str, str], LaunchTemplate] = {}  # numbered versions never change
        self._managed: dict[str, tuple[float, Declared]] = {}

    # ---- NodeGroups ----

    def list(self) -> tuple[NodeGroup, ...]:
        """Every group, in order of name. Raises InputError when AWS cannot be asked or denies it."""
        wanted = [{"Name": "tag-key", "Values": [*aws_groups.owned_by(self.cluster)]}]
        raws = self._described(Filters=wanted)
        templates = self._all_templates(raws)
        found, warnings = [], {}
        for raw in sorted(raws, key=lambda raw: str(raw["AutoScalingGroupName"])):
            declared = self._declared(raw)
            found.append(aws_groups.node_group(raw, templates[raw["AutoScalingGroupName"]], declared))
            if declared.unread:
                warnings[found[-1].name] = declared.unread
        self.warnings = warnings
        return tuple(found)

    def set_size(self, name: str, desired: int, expect: int) -> Outcome:
        """Set a group's desired capacity; see :class:`NodeGroups`."""
        group = self._now(name, expect)
        if not isinstance(group, NodeGroup):
            return group
        if why := refusal(group, desired):
            return Refused(why)
        return self._write(
            "SetDesiredCapacity",
            lambda: self._scaling.set_desired_capacity(
                AutoScalingGroupName=name, DesiredCapacity=desired, HonorCooldown=False
            ),
        )

    def remove(self, provider_id: str, group: str, expect: int) -> Outcome:
        """Terminate one instance and lower the desired capacity by one; see :class:`NodeGroups`."""
        named = _PROVIDER_ID.fullmatch(provider_id)
        if named is None:
            return Refused(
                f"{provider_id!r} is not the provider id of an EC2 instance, such as aws:///us-east-1a/i-0ab1"
            )
        found = self._now(group, expect)
        if not isinstance(found, NodeGroup):
            return found
        if not any(node.endswith(f"/{named[1]}") for node in found.nodes):
            return Stale(f"{named[1]} is not in {group}, or terminating")
        if found.desired <= found.minimum:
            return Refused(f"{group} is at its minimum of {found.minimum}")
        return self._write(
            "TerminateInstanceInAutoScalingGroup",
            lambda: self._once.terminate_instance_in_auto_scaling_group(
                InstanceId=named[1], ShouldDecrementDesiredCapacity=True
            ),
        )

    # ---- reading ----

    def _now(self, name: str, expect: int) -> NodeGroup | Outcome:
        """The group as it is, without templates; or why a decision taken at size ``expect`` cannot take effect."""
        try:
            raws = self._described(AutoScalingGroupNames=[name])
        except AwsError as error:
            return error.outcome()
        if not raws:
            return Stale(f"node group {name} is gone")
        if not set(aws_groups.owned_by(self.cluster)) & aws_groups.tags_of(raws[0]).keys():
            return Refused(f"Auto Scaling group {name} has no tag of cluster {self.cluster}")
        group = aws_groups.node_group(raws[0], LaunchTemplate(), Declared())
        changed = moved(group, expect)
        return Stale(changed) if changed else group

    def _described(self, **arguments: Any) -> Sequence[Mapping[str, Any]]:
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(**arguments)
        found: Sequence[Mapping[str, Any]] = self._read(
            "autoscaling:DescribeAutoScalingGroups",
            lambda: [group for page in pages for group in page["AutoScalingGroups"]],
        )
        return found

    def _all_templates(self, raws: Iterable[Mapping[str, Any]]) -> dict[str, LaunchTemplate]:
        """The template of every group, by the group's name; each one is asked for once."""
        found, fresh = {}, dict(self._templates)
        for raw in raws:
            used = aws_groups.specification(raw)
            if used is None:
                found[raw["AutoScalingGroupName"]] = self._launch_configuration(raw)
                continue
            if used not in fresh:
                fresh[used] = self._template(*used)
            found[raw["AutoScalingGroupName"]] = fresh[used]
        self._templates = {key: template for key, template in fresh.items() if key[1].isdigit()}
        return found

    def _template(self, identity: str, version: str) -> LaunchTemplate:
        reply = self._read(
            "ec2:DescribeLaunchTemplateVersions",
            lambda: self._ec2.describe_launch_template_versions(LaunchTemplateId=identity, Versions=[version]),
        )
        versions = reply["LaunchTemplateVersions"]
        return aws_groups.template_of(versions[0]["LaunchTemplateData"]) if versions else LaunchTemplate()

    def _launch_configuration(self, raw: Mapping[str, Any]) -> LaunchTemplate:
        name = raw.get("LaunchConfigurationName")
        if not name:
            return LaunchTemplate()
        reply = self._read(
            "autoscaling:DescribeLaunchConfigurations",
            lambda: self._scaling.describe_launch_configurations(LaunchConfigurationNames=[name]),
        )
        found = reply["LaunchConfigurations"]
        return LaunchTemplate(found[0]["InstanceType"], bool(found[0].get("SpotPrice"))) if found else LaunchTemplate()

    def _declared(self, raw: Mapping[str, Any]) -> Declared:
        """What the group's tags say and, of a managed group, what EKS says: the latter wins."""
        tags = aws_groups.tags_of(raw)
        by_tags = aws_groups.declared_by_tags(tags)
        name = tags.get(aws_groups.EKS_NODE_GROUP)
        return by_tags.under(self._by_eks(name)) if name else by_tags

    def _by_eks(self, name: str) -> Declared:
        kept_s, declared = self._managed.get(name, (float("-inf"), Declared()))
        if self._clock() - kept_s < EKS_KEPT_S:
            return declared
        try:
            reply = self._read(
                "eks:DescribeNodegroup",
                lambda: self._eks.describe_nodegroup(clusterName=self.cluster, nodegroupName=name),
            )
            declared = aws_groups.declared_by_eks(reply["nodegroup"])
        except AwsError as error:
            declared = Declared(unread=(f"labels and taints of managed node group {name} are not known: {error}",))
        self._managed[name] = (self._clock(), declared)
        return declared

    # ---- what AWS answers ----

    def _read(self, action: str, call: Callable[[], Any]) -> Any:
        """The answer to a read; every way to fail is an AwsError in one line."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except (ClientError, BotoCoreError) as error:
            raise explain(error, action) from error

    def _write(self, operation: str, call: Callable[[], Any]) -> Outcome:
        """The outcome of a write."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            call()
        except (ClientError, BotoCoreError) as error:
            return explain(error, f"autoscaling:{operation}").outcome()
        return Applied()


class AwsError(InputError):
    """A request that AWS did not take."""

    def outcome(self) -> Outcome:
        """What it means to a decision."""
        return Refused(str(self))


class AwsSilent(AwsError, NotAnswered):
    """AWS may take the request later, or may even have done it."""

    def outcome(self) -> Outcome:
        return Stale(str(self))


def explain(error: Exception, action: str) -> AwsError:
    """An error of botocore in one line: what was asked (as an IAM action), what happened, what to do."""
    from botocore import exceptions

    if isinstance(error, exceptions.ClientError):
        return _of_code(error.response.get("Error", {}), action)
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return _error("there are no AWS credentials", _CREDENTIALS)
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        hint = "check the region, the network and any proxy"
        return _error(f"AWS does not answer {action}: {error}", hint, passing=True)
    return _error(f"AWS cannot be asked for {action}: {error}", _CREDENTIALS)


def _of_code(said: Mapping[str, Any], action: str) -> AwsError:
    code, message = str(said.get("Code", "")), str(said.get("Message", ""))
    if code in DENIED:
        who = re.search(r"(?:User|user): (\S+)", message)
        role = who[1] if who else "the role of this controller"
        return _error(f"AWS denies {action}", f"allow that IAM action to {role}")
    if code in NOT_KNOWN:
        return _error(f"AWS does not take the credentials ({code}): {message}", f"renew them, or {_CREDENTIALS}")
    if code in FOR_NOW:
        return _error(f"AWS does not do {action} now ({code}): {message}", "it is asked again", passing=True)
    return _error(f"AWS refuses {action} ({code}): {message}", "")


def _error(what: str, hint: str, *, passing: bool = False) -> AwsError:
    return (AwsSilent if passing else AwsError)(Problem(Where(), " ".join(what.split()), hint))


def _session(region: str, profile: str) -> Any:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        raise InputError.at("AWS needs the package boto3", hint="pip install 'tonnage[aws]'") from None
    try:
        region = region or os.environ.get("AWS_REGION", "")
        session = boto3.session.Session(region_name=region or None, profile_name=profile or None)
        known = session.get_credentials() is not None
    except BotoCoreError as error:
        raise InputError.at(f"the AWS configuration cannot be used: {error}", hint=_CREDENTIALS) from None
    if not known:
        raise InputError.at("there are no AWS credentials", hint=_CREDENTIALS)
    if not session.region_name:
        raise InputError.at("the AWS region is not known", hint="set AWS_REGION, such as us-east-1")
    return session


def _client(session: Any, service: str, retries: dict[str, Any]) -> Any:
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    config = Config(retries=retries, connect_timeout=5, read_timeout=20, user_agent_extra="tonnage")
    try:
        return session.client(service, config=config)
    except (BotoCoreError, ValueError) as error:
        raise InputError.at(f"AWS {service} cannot be reached: {error}", hint="check AWS_REGION") from None
