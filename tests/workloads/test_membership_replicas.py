"""The pods that workloads make: their names, order, labels."""

from __future__ import annotations

from tonnage.objects.base import KubeObject
from tonnage.workloads.membership import stamped
from workload_manifests import (
    job,
    job_set,
    leader_worker_set,
    one,
    ray_job,
    training_job,
)


def test_suspended_workloads_have_no_pods() -> None:
    for text in (
        job("  suspend: true\n"),
        job_set("  suspend: true\n"),
        training_job("PyTorchJob", "  runPolicy: {suspend: true}\n"),
        ray_job("  suspend: true\n"),
    ):
        assert stamped(one(text), ()) == ()


def test_pods_come_in_the_order_and_at_the_time_of_their_controller() -> None:
    def pods(text: str) -> list[tuple[str, int, tuple[object, ...]]]:
        obj: KubeObject = one(text)
        return [(replica.name, replica.turn, replica.after) for replica in stamped(obj, ())]

    two_at_a_time = job().replace("parallelism: 4", "parallelism: 2")
    assert [(name, turn) for name, turn, _ in pods(two_at_a_time)] == [("j-0", 0), ("j-1", 0), ("j-2", 1), ("j-3", 2)]
    in_order = pods(job_set("  startupPolicy: {startupPolicyOrder: InOrder}\n"))
    assert [after for _, _, after in in_order][:2] == [(), (("leader", "Ready", None),)]
    waits = pods(leader_worker_set(spec="  startupPolicy: LeaderReady\n"))
    assert [after for _, _, after in waits][:2] == [(), (("leader", "Ready", 0),)]
    assert [name for name, _, _ in pods(training_job("MPIJob", workers=2))] == [
        "t-worker-0",
        "t-worker-1",
        "t-launcher",
    ]


def test_replicas_carry_what_their_controllers_write_on_them() -> None:
    [first, *_] = stamped(one(job_set()), ())
    assert first.labels == {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": "leader",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/job-key": "d947c8bc484a6e0a1d9684029f474de04b4f8f53",  # sha1 of ml/js-leader-0
        "batch.kubernetes.io/job-name": "js-leader-0",
        "batch.kubernetes.io/job-completion-index": "0",
    }
    worker = stamped(one(training_job("PyTorchJob", restart="ExitCode")), ())[-1]
    assert worker.labels["training.kubeflow.org/replica-index"] == "2"
    assert worker.spec.restart_policy == "Never"


def test_a_ray_service_has_the_pods_of_its_cluster() -> None:
    template = "{spec: {containers: [{name: c, image: r}]}}"
    config = (
        f"headGroupSpec: {{template: {template}}}, "
        f"workerGroupSpecs: [{{groupName: g, replicas: 2, template: {template}}}]"
    )
    text = f"apiVersion: ray.io/v1\nkind: RayService\nmetadata: {{name: s}}\nspec: {{rayClusterConfig: {{{config}}}}}\n"
    pods = stamped(one(text), ())
    assert len(pods) == 3
    assert {replica.labels["ray.io/cluster"] for replica in pods} == {"s"}
