"""Nodes from Auto Scaling groups, from waiting pods to terminated machines: moto and the embedded API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed (pip install boto3)")
pytest.importorskip("moto", reason="moto is not installed (pip install 'moto[autoscaling,ec2]')")

from botocore.exceptions import ClientError
from fake_aws import Aws, error, mocked, template_tags
from group_cluster import GPU, GroupCluster

from tonnage.decisions import OBSERVING, Applied, Launch, Outcome, Refused, Return, Stale, Wait
from tonnage.kube.resources import NODES, PODS, Resource
from tonnage.kube.transport import Unreachable
from tonnage.kube.verbs import Client
from tonnage.live.annotations import DISRUPTED_TAINT

pytestmark = pytest.mark.peer

GPU_TAINT = template_tags(taint={GPU: "true:NoSchedule"})
Make = Callable[..., GroupCluster]


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


@pytest.fixture
def make(aws: Aws) -> Iterator[Make]:
    made: list[GroupCluster] = []

    def of(**options: Any) -> GroupCluster:
        made.append(GroupCluster(aws, **options))
        return made[-1]

    yield of
    for one in made:
        one.stop()


def outcomes(taken: list[tuple[Any, Outcome]], kind: type) -> list[Outcome]:
    return [outcome for decision, outcome in taken if isinstance(decision, kind)]


def test_pods_that_wait_get_exactly_the_machines_they_need_and_empty_ones_go_one_by_one(aws: Aws, make: Make) -> None:
    aws.group(desired=0, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("a", "b", "c")
    assert outcomes(cluster.place(), Wait) == [Applied()] * 3
    assert outcomes(cluster.buy(), Launch) == [Applied()] * 3
    assert aws.size()[0] == 3

    assert outcomes(cluster.buy(), Launch) == []  # three machines are on their way
    cluster.read()
    assert len(cluster.claims()) == 3
    assert outcomes(cluster.buy(), Launch) == []

    cluster.join(ready=False, devices=False)
    assert outcomes(cluster.buy(), Launch) == []
    cluster.join(devices=False)
    assert len(cluster.claims()) == 3  # Ready, but without GPUs
    assert outcomes(cluster.buy(), Launch) == []
    names = cluster.join()
    assert cluster.claims() == []
    assert [type(outcome) for _, outcome in cluster.place()] == [Applied] * 3
    assert sorted(cluster.bound()) == ["a", "b", "c"]
    assert sorted(cluster.bound().values()) == sorted(names)

    assert cluster.give_back() == []
    kept = cluster.bound()["b"]
    cluster.end("a", "c")
    assert cluster.give_back() == []  # not idle for long enough
    cluster.clock.move(61)
    for left in (2, 1):
        assert outcomes(cluster.give_back(), Return) == [Applied()]
        assert aws.size()[0] == left
        cluster.seen(lambda left=left: len(list(cluster.world.fleet.node_rows())) == left)  # type: ignore[misc]
    assert cluster.give_back() == []
    assert cluster.nodes() == [kept]
    assert [provider_id.rpartition("-")[2] for provider_id in cluster.machines()] == [kept.removeprefix("ip-")]


def test_a_restart_in_the_middle_buys_nothing_twice(aws: Aws, make: Make) -> None:
    aws.group(desired=0, maximum=9, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("a", "b", "c")
    assert len(cluster.buy()) == 3
    cluster.restart()
    assert len(cluster.claims()) == 3
    assert cluster.buy() == []
    cluster.join(devices=False)
    cluster.restart()
    assert cluster.buy() == []
    cluster.join()
    cluster.restart()
    assert cluster.claims() == []
    cluster.place()
    assert len(cluster.bound()) == 3
    assert cluster.buy() == []
    assert aws.size()[0] == 3


def test_a_tick_that_half_took_effect_is_completed_after_a_restart(aws: Aws, make: Make) -> None:
    aws.group(desired=0, maximum=9, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("a", "b", "c")
    decisions = cluster.provisioner.decide(cluster.world)
    assert cluster.world.apply(decisions[0]) == Applied()
    cluster.restart()
    assert outcomes(cluster.buy(), Launch) == [Applied()] * 2
    assert aws.size()[0] == 3


def test_each_pod_gets_a_machine_of_the_group_that_fits_it(aws: Aws, make: Make) -> None:
    aws.group("cpu", instance_type="m5.xlarge", desired=0)
    aws.group("gpu", instance_type="g5.xlarge", desired=0, tags=GPU_TAINT)
    aws.group("large", instance_type="g5.12xlarge", desired=0, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("whole", gpus=4)
    cluster.clock.move(1)  # the older one is placed first
    cluster.pods("web", gpus=0, cpu="3")
    cluster.pods("small", gpus=1)
    assert outcomes(cluster.buy(), Launch) == [Applied()] * 3
    assert [aws.size(name)[0] for name in ("cpu", "gpu", "large")] == [1, 1, 1]
    cluster.join()
    cluster.place()
    assert sorted(cluster.bound()) == ["small", "web", "whole"]
    assert cluster.buy() == []


def test_the_cheapest_group_that_can_take_a_pod_grows(aws: Aws, make: Make) -> None:
    aws.group("z-dear", instance_type="g5.12xlarge", desired=0)
    aws.group("a-cheap", instance_type="m5.xlarge", desired=0)
    cluster = make()
    cluster.pods("web", gpus=0)
    cluster.buy()
    assert (aws.size("a-cheap")[0], aws.size("z-dear")[0]) == (1, 0)


def mixed(aws: Aws, *types: str, base: int = 0, percent: int = 100) -> dict[str, Any]:
    identity = aws.template("mixed", InstanceType=types[0])
    launch = {
        "LaunchTemplateSpecification": {"LaunchTemplateId": identity, "Version": "1"},
        "Overrides": [{"InstanceType": name} for name in types],
    }
    spread = {"OnDemandBaseCapacity": base, "OnDemandPercentageAboveBaseCapacity": percent}
    return {"MixedInstancesPolicy": {"LaunchTemplate": launch, "InstancesDistribution": spread}}


def test_of_a_group_of_several_types_no_more_is_planned_than_each_of_them_has(aws: Aws, make: Make) -> None:
    # g5.2xlarge has 32 GiB and g4dn.xlarge 16 GiB, each one GPU.
    aws.group("mixed", desired=0, tags=GPU_TAINT, **mixed(aws, "g5.2xlarge", "g4dn.xlarge"))
    cluster = make()
    cluster.pods("a", "b", memory="8Gi")
    cluster.pods("wide", memory="20Gi")  # would fit a g5.2xlarge
    taken = cluster.buy()
    assert outcomes(taken, Launch) == [Applied()] * 2
    (wait,) = [decision for decision, _ in taken if isinstance(decision, Wait)]
    assert wait.pod.name == "wide"
    assert "no instance type fits: memory 20Gi" in wait.reason.alternatives[0].why
    assert aws.size("mixed")[0] == 2
    assert outcomes(cluster.buy(), Launch) == []


def test_no_more_is_planned_on_a_machine_than_its_group_declares(aws: Aws, make: Make) -> None:
    aws.group(desired=0, tags={**GPU_TAINT, **template_tags(resources={"memory": "8Gi"})})  # of 16 GiB
    cluster = make()
    cluster.pods("fits", memory="6Gi")
    cluster.pods("wide", memory="10Gi")
    taken = cluster.buy()
    assert outcomes(taken, Launch) == [Applied()]
    assert [decision.pod.name for decision, _ in taken if isinstance(decision, Wait)] == ["wide"]
    assert aws.size()[0] == 1
    assert outcomes(cluster.buy(), Launch) == []


def test_a_group_grows_to_its_maximum_and_the_other_pods_are_told_why_they_wait(aws: Aws, make: Make) -> None:
    aws.group(desired=0, maximum=2, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("a", "b", "c", "d")
    for _ in range(2):
        taken = cluster.buy()
        waits = [decision for decision, _ in taken if isinstance(decision, Wait)]
        assert len(waits) == 2
        assert waits[0].reason.alternatives[0].name == "NodePool gpu"
        assert waits[0].reason.alternatives[0].why.startswith("limits exceeded: nodes 2 (0 left")
    assert aws.size()[0] == 2
    cluster.join()
    cluster.place()
    assert len(cluster.bound()) == 2
    assert outcomes(cluster.buy(), Launch) == []


def test_nodes_that_were_there_before_count_against_the_maximum(aws: Aws, make: Make) -> None:
    aws.group(desired=2, maximum=3, tags=GPU_TAINT)
    cluster = make()
    cluster.join()
    cluster.pods("a", "b", "c", "d")
    cluster.place()
    assert outcomes(cluster.buy(), Launch) == [Applied()]
    assert aws.size()[0] == 3


def test_another_group_is_asked_when_the_first_is_full(aws: Aws, make: Make) -> None:
    aws.group("a", desired=0, maximum=1, tags=GPU_TAINT)
    aws.group("b", instance_type="g5.2xlarge", desired=0, maximum=5, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("p", "q", "r")
    assert outcomes(cluster.buy(), Launch) == [Applied()] * 3
    assert (aws.size("a")[0], aws.size("b")[0]) == (1, 2)


def test_a_group_keeps_its_minimum(aws: Aws, make: Make) -> None:
    aws.group(minimum=1, desired=2, tags=GPU_TAINT)
    cluster = make(idle="0s")
    cluster.join()
    assert outcomes(cluster.give_back(), Return) == [Applied()]
    cluster.seen(lambda: len(list(cluster.world.fleet.node_rows())) == 1)
    assert cluster.give_back() == []
    assert aws.size()[0] == 1
    assert DISRUPTED_TAINT not in str(cluster.client.list(NODES))


def test_a_size_that_somebody_else_changed_is_read_again_before_it_is_set(aws: Aws, make: Make) -> None:
    aws.group(desired=0, tags=GPU_TAINT)
    cluster = make()
    cluster.pods("a")
    aws.scaling.set_desired_capacity(AutoScalingGroupName="gpu", DesiredCapacity=1)
    assert outcomes(cluster.buy(), Launch) == [Stale("gpu has size 1, expected 0")]
    cluster.read()
    assert cluster.buy() == []  # that machine will do
    assert aws.size()[0] == 1


def test_throttling_is_stale_and_the_next_tick_buys(aws: Aws, make: Make) -> None:
    aws.group(desired=0, tags=GPU_TAINT)
    throttled = ClientError({"Error": {"Code": "Throttling", "Message": "Rate exceeded"}}, "SetDesiredCapacity")
    aws.intercept("autoscaling.SetDesiredCapacity", throttled)
    cluster = make()
    cluster.pods("a")
    (outcome,) = outcomes(cluster.buy(), Launch)
    assert isinstance(outcome, Stale)
    assert "Rate exceeded" in outcome.changed
    assert cluster.claims() == []
    assert outcomes(cluster.buy(), Launch) == [Applied()]
    assert aws.size()[0] == 1


def test_a_size_that_was_set_though_the_answer_was_lost_is_not_set_twice(aws: Aws, make: Make) -> None:
    aws.group(desired=0, tags=GPU_TAINT)
    aws.intercept("autoscaling.SetDesiredCapacity", *[error("InternalFailure")] * 5)  # moto does it all the same
    cluster = make()
    cluster.pods("a")
    assert isinstance(outcomes(cluster.buy(), Launch)[0], Stale)
    assert outcomes(cluster.buy(), Launch) == [Stale("gpu has size 1, expected 0")]
    cluster.read()
    assert cluster.buy() == []
    assert aws.size()[0] == 1


def test_a_node_that_cannot_be_removed_is_taken_into_service_again(aws: Aws, make: Make) -> None:
    aws.group(desired=1, tags=GPU_TAINT)
    denied = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "TerminateInstance")
    aws.intercept("autoscaling.TerminateInstanceInAutoScalingGroup", denied)
    cluster = make(idle="0s")
    cluster.join()
    (outcome,) = outcomes(cluster.give_back(), Return)
    assert isinstance(outcome, Refused)
    assert "AWS denies autoscaling:TerminateInstanceInAutoScalingGroup" in outcome.why
    (node,) = cluster.client.list(NODES)
    assert DISRUPTED_TAINT not in str(node)
    assert outcomes(cluster.give_back(), Return) == [Applied()]
    assert (aws.size()[0], cluster.nodes()) == (0, [])


def test_a_removal_whose_answer_was_lost_is_found_to_be_done(aws: Aws, make: Make) -> None:
    aws.group(desired=2, tags=GPU_TAINT)
    terminated = aws.intercept("autoscaling.TerminateInstanceInAutoScalingGroup", error("InternalFailure"))
    cluster = make(idle="0s")
    cluster.join()
    assert outcomes(cluster.give_back(), Return) == [Applied()]  # moto did it all the same
    assert terminated.count == 1
    assert (aws.size()[0], len(cluster.nodes()), len(cluster.machines())) == (1, 1, 1)


def test_a_node_whose_machine_was_given_back_is_deleted_later_and_never_in_service_again(
    aws: Aws, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine went, and then the API server was away for a moment, or the process died."""
    aws.group(desired=1, tags=GPU_TAINT)
    cluster = make(idle="0s")
    (name,) = cluster.join()
    delete = Client.delete

    def away(self: Client, resource: Resource, *parts: Any, **more: Any) -> None:
        if resource == NODES:
            raise Unreachable("the API server is away")
        delete(self, resource, *parts, **more)

    monkeypatch.setattr(Client, "delete", away)
    assert outcomes(cluster.give_back(), Return) == [Applied()]
    monkeypatch.setattr(Client, "delete", delete)
    assert (aws.size()[0], DISRUPTED_TAINT in str(cluster.client.list(NODES))) == (0, True)
    cluster.restart()
    assert outcomes(cluster.give_back(), Return) == [Applied()]
    assert cluster.client.list(NODES) == [], name


def test_a_node_that_a_pod_came_to_meanwhile_stays(aws: Aws, make: Make) -> None:
    aws.group(desired=1, tags=GPU_TAINT)
    cluster = make(idle="0s")
    (name,) = cluster.join()
    decisions = cluster.disruption.decide(cluster.world)
    assert len(decisions) == 1
    pod = {"metadata": {"name": "late"}, "spec": {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}}
    cluster.client.create(PODS, {"apiVersion": "v1", "kind": "Pod", **pod}, "default")
    outcome = cluster.backend.effects.give_back(decisions[0])
    assert isinstance(outcome, Stale)
    assert "late was bound meanwhile" in outcome.changed
    assert aws.size()[0] == 1
    assert DISRUPTED_TAINT not in str(cluster.client.list(NODES))


def test_a_node_of_no_group_is_left_alone(aws: Aws, make: Make) -> None:
    aws.group(desired=1, tags=GPU_TAINT)
    cluster = make(idle="0s")
    cluster.join()
    cluster.kubelets.register("own", "aws:///us-east-1a/i-0123", "g5.xlarge")
    cluster.kubelets.say("own", "g5.xlarge")
    cluster.seen(lambda: cluster.knows("own", True))
    returned = [decision.node.name for decision, _ in cluster.give_back() if isinstance(decision, Return)]
    assert len(returned) == 1
    assert "own" not in returned


def test_a_node_is_known_by_its_eks_label_before_its_machine_is(aws: Aws, make: Make) -> None:
    eks = {"eks.amazonaws.com/nodegroup": "ng"}
    aws.group(desired=0, tags={**GPU_TAINT, **template_tags(label=eks)})
    cluster = make()
    aws.scaling.set_desired_capacity(AutoScalingGroupName="gpu", DesiredCapacity=2)
    first, second = cluster.machines()
    cluster.kubelets.register("labelled", first, "g5.xlarge", eks)
    cluster.kubelets.register("plain", second, "g5.xlarge")
    for name in ("labelled", "plain"):
        cluster.kubelets.say(name, "g5.xlarge", devices=False)
    fleet = cluster.world.fleet

    def pool(name: str) -> str | None:
        row = fleet.node_by_name.get(name)
        return None if row is None else fleet.node(row).spec.node_pool

    cluster.seen(lambda: cluster.knows("plain", True) and pool("labelled") == "gpu")
    assert pool("plain") == ""
    cluster.read()
    assert len(cluster.claims()) == 2
    assert pool("plain") == "gpu"
    assert not fleet.node(fleet.node_by_name["plain"]).initialized  # it is Ready, but its GPU is not there
    for name in ("labelled", "plain"):
        cluster.kubelets.say(name, "g5.xlarge")
    cluster.seen(lambda: cluster.claims() == [])


@pytest.mark.parametrize("name", ["report", "observe"])
def test_without_apply_it_is_said_which_group_would_be_sized(aws: Aws, make: Make, name: str) -> None:
    aws.group(desired=1, tags=GPU_TAINT)
    cluster = make(backend=name, idle="0s")
    cluster.join()
    (outcome,) = outcomes(cluster.give_back(), Return)
    assert isinstance(outcome, Refused)
    assert "would remove aws:///us-east-1" in outcome.why
    assert "from gpu and lower its size from 1 to 0" in outcome.why
    cluster.pods("a", "b")
    assert outcomes(cluster.buy(), Launch) == [
        Refused("only reported: would set the size of gpu from 1 to 2", OBSERVING)
    ]
    assert (aws.size()[0], len(cluster.nodes())) == (1, 1)
    assert "taints': [{'key': 'nvidia.com/gpu'" in str(cluster.client.list(NODES))
    assert DISRUPTED_TAINT not in str(cluster.client.list(NODES))


def test_groups_that_cannot_be_planned_with_are_named(aws: Aws, make: Make) -> None:
    aws.group("gpu", desired=0, tags=GPU_TAINT)
    aws.group("both", desired=0, **mixed(aws, "g5.xlarge", percent=50))
    aws.group("strange", instance_type="p9.xlarge", desired=0)
    cluster = make()
    assert cluster.sizing.nodes.unusable() == {
        "both": "makes spot and on-demand machines, and neither can be asked of it",
        "strange": "may make p9.xlarge, whose size is not known",
    }


def test_a_pod_that_only_karpenter_could_serve_is_refused_with_each_groups_reason(aws: Aws, make: Make) -> None:
    aws.group("a", desired=0, tags=GPU_TAINT)
    aws.group("cpu", instance_type="m5.xlarge", desired=0)
    cluster = make()
    cluster.pods("a", nodeSelector={"karpenter.k8s.aws/instance-gpu-name": "a10g"})
    (outcome,) = outcomes(cluster.buy(), Launch)
    assert isinstance(outcome, Refused)
    assert "a: g5.xlarge in us-east-1a does not meet the requirement of" in outcome.why
    assert "a label that only Karpenter gives" in outcome.why
    assert "cpu: makes m5.xlarge, not g5.xlarge" in outcome.why


def test_when_aws_does_not_answer_later_the_controller_says_so_and_goes_on(aws: Aws, make: Make) -> None:
    aws.group(desired=0, tags=GPU_TAINT)
    asked = aws.intercept("autoscaling.DescribeAutoScalingGroups")
    cluster = make()
    groups = cluster.sizing.groups
    asked.answers += [error("AccessDenied")] * 10_000
    groups._every_s = 0.01
    groups.start()
    cluster.seen(lambda: bool(cluster.sizing.degraded()))
    assert "AWS denies autoscaling:DescribeAutoScalingGroups" in cluster.sizing.degraded()["node groups"]
    asked.answers.clear()
    cluster.seen(lambda: not cluster.sizing.degraded())
    groups.close()
    cluster.pods("a")
    assert outcomes(cluster.buy(), Launch) == [Applied()]
