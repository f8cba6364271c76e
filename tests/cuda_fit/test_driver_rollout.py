"""A new driver in waves: in which order, what is waited for, what stops it; whatever is lost on the way."""

from __future__ import annotations

import pytest
from rollout_cluster import DRIVER, NEW, OLD, SKIP, STAGE, STATE, FakeCluster

from tonnage.cuda_fit import rollout
from tonnage.cuda_fit.rollout import RolloutSettings
from tonnage.cuda_fit.users import users
from tonnage.errors import InputError

NAMES = ["a", "b", "c", "d", "e"]
WIDE = RolloutSettings(wave=2)


def waves(found: FakeCluster, settings: RolloutSettings = WIDE) -> list[list[str]]:
    return [[step.node for step in wave] for wave in rollout.waves(found.seen(), NEW, settings).waves]


def test_one_node_goes_first_then_waves_follow_and_every_node_ends_uncordoned_without_labels_of_it() -> None:
    cluster = FakeCluster(NAMES)
    assert waves(cluster) == [["a"], ["b", "c"], ["d", "e"]]
    assert cluster.run(WIDE).state == "done"
    assert cluster.at_work_most == 2
    for name in NAMES:
        labels = cluster.labels(name)
        assert labels == {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", DRIVER: NEW, STATE: "upgrade-done"}
        assert cluster.nodes[name]["spec"]["unschedulable"] is False


def test_every_node_is_held_before_the_cluster_policy_names_the_driver() -> None:
    cluster = FakeCluster(NAMES)
    cluster.turn(WIDE)
    assert set(cluster.stages().values()) == {"held"}
    assert (cluster.version, {cluster.labels(name)[SKIP] for name in NAMES}) == (OLD, {"true"})
    cluster.turn(WIDE)
    assert cluster.version == NEW
    cluster.turn(WIDE)
    assert cluster.stages() == {"a": "draining", **dict.fromkeys("bcde", "held")}


def test_a_drain_waits_for_what_a_budget_protects_and_fails_when_it_takes_too_long() -> None:
    cluster = FakeCluster(["a", "b"])
    cluster.pod("train", "a")
    cluster.protected.add("ml/train")
    found = cluster.run(RolloutSettings(drain_s=60))
    assert cluster.labels("b")[DRIVER] == NEW, "the node with nothing to move is first"
    assert (found.state, found.waits) == ("stopped", ("a: not drained after 60 s: ml/train",))
    assert (cluster.labels("a")[DRIVER], cluster.labels("a")[SKIP]) == (OLD, "true")
    assert cluster.nodes["a"]["spec"]["unschedulable"] is True


def test_a_node_on_which_the_operator_fails_stops_the_rollout_and_it_can_be_tried_again() -> None:
    cluster = FakeCluster(NAMES, broken=("b",))
    found = cluster.run(WIDE)
    assert found.state == "stopped"
    assert "b: the GPU operator says upgrade-failed" in found.waits[0]
    assert {name for name in NAMES if cluster.labels(name)[DRIVER] == NEW} == {"a", "c"}, (
        "its wave ends, no other begins"
    )
    cluster.broken.clear()
    for edit in rollout.retry(cluster.seen(), cluster.now_s):
        cluster.edit(edit.node, edit.labels, edit.annotations, edit.cordon)
    assert cluster.run(WIDE).state == "done"
    assert {cluster.labels(name)[DRIVER] for name in NAMES} == {NEW}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"allocatable": {"nvidia.com/gpu": "3"}}, "it has 3 of 4 GPUs to give"),
        ({"conditions": [{"type": "Ready", "status": "False"}]}, "it is not Ready"),
        (
            {"conditions": [{"type": "GPUHealthy", "status": "False", "message": "GPU 3 is lost"}]},
            "GPUHealthy: GPU 3 is lost",
        ),
    ],
    ids=["a GPU is missing", "not Ready", "a GPU is unhealthy"],
)
def test_a_node_counts_as_upgraded_only_when_it_is_as_it_was(change: dict[str, object], said: str) -> None:
    cluster = FakeCluster(["a", "b"])
    for _ in range(4):
        cluster.turn(RolloutSettings())
        cluster.operate()
    assert cluster.stages()["a"] == "upgrading"
    cluster.nodes["a"]["status"] |= change
    found = cluster.run(RolloutSettings(upgrade_s=100))
    assert (found.state, found.waits) == ("stopped", (f"a: after 100 s: {said}",))


def test_a_node_that_is_upgraded_while_its_labels_are_old_is_waited_for() -> None:
    cluster = FakeCluster(["a"])
    for _ in range(4):
        cluster.turn(RolloutSettings())
    cluster.labels("a")[STATE] = "upgrade-done"
    assert cluster.turn(RolloutSettings()).waits == (f"a upgrading: its driver is {OLD}",)


def test_what_is_not_the_operators_or_somebody_elses_is_left_with_the_reason() -> None:
    cluster = FakeCluster(NAMES)
    cluster.kept["a"] = "its driver is part of its image"
    cluster.labels("b")["nvidia.com/gpu.product"] = "Tesla-V100-SXM2-16GB"
    cluster.labels("c")[SKIP] = "true"
    cluster.nodes["d"]["spec"]["unschedulable"] = True
    plan = rollout.waves(cluster.seen(), "590.44.01", WIDE)
    assert dict(plan.left) == {
        "a": "its driver is part of its image",
        "b": "R580 is the last driver branch for volta GPUs such as v100",
        "c": f"somebody has labelled it {SKIP}=true",
        "d": "somebody has cordoned it",
    }
    assert [[step.node for step in wave] for wave in plan.waves] == [["e"]]


def test_a_node_that_keeps_its_driver_is_held_from_the_operator_for_good() -> None:
    cluster = FakeCluster(["a", "b"])
    cluster.labels("b")["nvidia.com/gpu.product"] = "Tesla-V100-SXM2-16GB"
    settings = RolloutSettings()
    for _ in range(20):
        found = cluster.turn(settings, "590.44.01")
        cluster.operate()
    assert found.state == "done"
    assert (cluster.labels("b")[DRIVER], cluster.labels("b")[SKIP]) == (OLD, "true")


def test_pods_that_the_new_driver_breaks_keep_their_node_out_unless_that_is_allowed() -> None:
    cluster = FakeCluster(["a", "b"])
    cluster.pod("old", "a", env=[])
    bound = [{"name": "NVIDIA_REQUIRE_CUDA", "value": "driver<575"}]
    cluster.pods["ml/old"]["spec"]["containers"][0]["env"] = bound
    assert waves(cluster) == [["b"]]
    assert "it would break ml/old" in dict(rollout.waves(cluster.seen(), NEW, WIDE).left)["a"]
    assert waves(cluster, RolloutSettings(breaking=True, pending=True)) == [["b"], ["a"]]


def test_nodes_of_a_wave_are_those_whose_pods_find_room_together() -> None:
    cluster = FakeCluster(["a", "b", "c"])
    cluster.pod("one", "a", 4)
    cluster.pod("two", "b", 4)
    settings = RolloutSettings(first=3, wave=3)
    assert waves(cluster, settings) == [["c"], ["a"], ["b"]], "c takes the pods of a, or of b, and not of both"
    cluster.pod("three", "c", 4)
    assert waves(cluster, settings) == []
    assert (
        dict(rollout.waves(cluster.seen(), NEW, settings).left)["a"]
        == "no other node with free GPUs runs ml/one meanwhile"
    )
    assert waves(cluster, RolloutSettings(first=3, wave=3, pending=True)) == [["a", "b", "c"]]


def test_not_more_nodes_are_unavailable_than_said_those_of_others_included() -> None:
    cluster = FakeCluster(NAMES)
    cluster.nodes["e"]["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    assert waves(cluster, RolloutSettings(wave=4, first=4, unavailable=2))[0] == ["a"]
    assert waves(cluster, RolloutSettings(unavailable=1)) == []


def test_pods_that_use_the_driver_without_asking_for_a_gpu_are_found_and_evicted() -> None:
    cluster = FakeCluster(["a", "b"])
    cluster.pod("monitor", "a", 0, owner="DaemonSet", volumes=[{"name": "dev", "hostPath": {"path": "/dev"}}])
    cluster.pod("notebook", "a", 0, runtimeClassName="nvidia")
    cluster.pod("probe", "a", 0, volumes=[{"name": "gpu", "hostPath": {"path": "/dev/nvidia0"}}])
    cluster.pod("hidden", "a", 0)
    cluster.pods["ml/hidden"]["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    cluster.pod("web", "a", 0)
    cluster.pods["ml/web"]["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]
    found = users(cluster.seen().pods)
    assert [one.name for one in found] == ["hidden", "monitor", "notebook", "probe"]
    assert [one.name for one in rollout.outsiders(cluster.seen(), ["a"])] == ["monitor"]
    assert cluster.run(RolloutSettings(first=2, wave=2)).state == "done"
    assert sorted(cluster.pods) == ["ml/monitor", "ml/web"]


def test_giving_up_takes_back_labels_and_cordons_and_holds_what_the_operator_would_upgrade() -> None:
    cluster = FakeCluster(NAMES, broken=("b",))
    cluster.run(WIDE)
    drivers = {name: cluster.labels(name)[DRIVER] for name in NAMES}
    assert set(drivers.values()) == {OLD, NEW}
    for edit in rollout.abandon(cluster.seen()):
        cluster.edit(edit.node, edit.labels, edit.annotations, edit.cordon)
    assert cluster.stages() == {}
    assert not any(cluster.nodes[name]["spec"].get("unschedulable") for name in NAMES)
    assert {name for name in NAMES if SKIP in cluster.labels(name)} == {n for n in NAMES if drivers[n] == OLD}
    cluster.operate()
    assert {name: cluster.labels(name)[DRIVER] for name in NAMES} == drivers


def test_giving_up_before_the_clusterpolicy_names_the_driver_leaves_no_hold() -> None:
    cluster = FakeCluster(NAMES)
    cluster.turn(WIDE)
    assert set(cluster.stages().values()) == {"held"}
    for edit in rollout.abandon(cluster.seen()):
        cluster.edit(edit.node, edit.labels, edit.annotations, edit.cordon)
    assert not any(SKIP in cluster.labels(name) for name in NAMES)


@pytest.mark.parametrize(
    ("to", "said"),
    [("530.30.02", "is older"), ("new", "not a version"), ("590.44.01", "part of a rollout to"), ("580", "a branch")],
    ids=["older", "no version", "another is under way", "a branch"],
)
def test_what_cannot_be_meant_is_refused(to: str, said: str) -> None:
    cluster = FakeCluster(["a"])
    cluster.turn(RolloutSettings())
    with pytest.raises(InputError, match=said):
        cluster.turn(RolloutSettings(), to)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_writes_are_lost_it_ends_the_same_and_never_drains_more_than_a_wave(seed: int) -> None:
    """FakeCluster.operate itself holds that nothing is given to the operator uncordoned or with pods."""
    cluster = FakeCluster(NAMES, lost=0.5, seed=seed, broken=("d",) if seed % 3 == 0 else ())
    for number, name in enumerate("abcab"):
        cluster.pod(f"pod-{number}", name)
    found = cluster.run(WIDE)
    assert cluster.at_work_most <= 2
    assert found.state == ("stopped" if seed % 3 == 0 else "done")
    upgraded = {name for name in NAMES if cluster.labels(name)[DRIVER] == NEW}
    assert upgraded == set(NAMES) - ({"d"} if seed % 3 == 0 else set()) or found.state == "stopped"
    assert all(STAGE not in cluster.labels(name) for name in upgraded)
    if seed % 3 == 0:
        assert cluster.stages()["d"] == "failed"
        assert cluster.nodes["d"]["spec"]["unschedulable"] is True
