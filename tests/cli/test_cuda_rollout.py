"""`tonnage cuda stack` and `tonnage cuda rollout`: what they say, exit codes, bad input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli_builders import tonnage

from cuda_fit.rollout_cluster import DRIVER, NEW, FakeCluster
from tonnage.cli import cuda_rollout
from tonnage.cuda_fit.rollout import NodeEdit, RolloutSettings, RolloutTurn, RolloutView
from tonnage.kube.transport import ClientError

STACK = Path(__file__).resolve().parents[2] / "docs" / "files" / "gpu-stack.yaml"


def test_the_plan_names_waves_and_what_is_left_and_the_exit_code_says_that_something_is(
    capfd: pytest.CaptureFixture[str],
) -> None:
    done = tonnage(capfd, "cuda", "rollout", str(STACK), "--to", "590.44.01", "-o", "json")
    found = json.loads(done.out)
    assert done.code == 1
    assert [[step["node"] for step in wave] for wave in found["waves"]] == [["gpu-1"], ["gpu-3", "gpu-2"]]
    assert [one["node"] for one in found["left"]] == ["legacy-1"]
    assert [(one["pod"], one["node"]) for one in found["not_evictable"]] == [("monitoring/node-probe", "gpu-3")]


def test_a_cluster_that_has_the_driver_everywhere_has_nothing_left(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "cuda", "rollout", str(STACK), "--to", "570.133.20", "-o", "json")
    assert done.code == 0
    assert json.loads(done.out)["left"] == []


def test_the_stack_is_said_with_what_differs(capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "cuda", "stack", str(STACK), "-o", "json")
    found = json.loads(done.out)
    assert (done.code, found["operator"]) == (1, "25.10.1")
    assert sorted({one["kind"] for one in found["findings"]}) == ["policy", "release", "skew"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "570.1"), "is older"),
        (("--to", "latest"), "is not a version"),
        (("--to", "590.44.01", "--apply"), "--apply acts on a cluster"),
        (("--to", "590.44.01", "--retry"), "give --apply too"),
    ],
    ids=["a downgrade", "no version", "nowhere to apply", "retry without apply"],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = tonnage(capfd, "cuda", "rollout", str(STACK), *words)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("driver", "said"),
    [
        ("{enabled: false}", "driver.enabled: false"),
        ("{upgradePolicy: {autoUpgrade: false}}", "autoUpgrade: false"),
        ("{useNvidiaDriverCRD: true}", "NVIDIADriver"),
        (None, "no ClusterPolicy"),
    ],
    ids=["off", "not by itself", "other objects", "no operator"],
)
def test_where_the_operator_does_not_upgrade_drivers_it_says_why(
    driver: str | None, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = STACK.read_text(encoding="utf-8")
    policy, _, rest = text.partition("---\n")
    own = policy.replace("{driver: {enabled: true, version: 570.124.06}}", f"{{driver: {driver}}}") if driver else ""
    file = tmp_path / "cluster.yaml"
    file.write_text(f"{own}---\n{rest}", encoding="utf-8")
    done = tonnage(capfd, "cuda", "rollout", str(file), "--to", "590.44.01")
    assert done.code == 2
    assert said in done.err


class _Cluster:
    """Implements of ClusterRollout what the command calls: a cluster in memory, which does not answer at times."""

    def __init__(self) -> None:
        self.inner = FakeCluster(["a", "b", "c"])
        self.looks = 0

    def read(self) -> RolloutView:
        self.looks += 1
        if self.looks % 3 == 2:
            raise ClientError("connection refused")
        return self.inner.seen()

    def apply(self, turn: RolloutTurn) -> list[str]:
        self.inner.happen(turn)
        self.inner.operate()
        return [f"{edit.node}: {edit.why}" for edit in turn.edits]


def test_it_goes_on_until_it_is_done_and_tries_again_what_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cuda_rollout, "PAUSE_S", 0.0)
    cluster = _Cluster()
    end = cuda_rollout.follow(cluster, NEW, RolloutSettings())  # type: ignore[arg-type]
    assert (end.state, {cluster.inner.labels(name)[DRIVER] for name in "abc"}) == ("done", {NEW})
    said = capfd.readouterr().out
    assert "the cluster does not answer: connection refused; tried again" in said
    assert said.count(": its wave begins: cordoned") == 3


class _ChangedMeanwhile(_Cluster):
    """One in which somebody else changes a node between the look and the first edit of it."""

    def read(self) -> RolloutView:
        return self.inner.seen()

    def edit(self, edits: Sequence[NodeEdit]) -> list[str]:
        self.looks += 1
        done = edits[1:] if self.looks == 1 else edits
        for one in done:
            self.inner.edit(one.node, one.labels, one.annotations, one.cordon)
        return [f"{one.node}: {one.why}" for one in done]


def test_giving_up_goes_on_until_no_node_is_part_of_the_rollout(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = _ChangedMeanwhile()
    cluster.inner.turn(RolloutSettings())
    assert set(cluster.inner.stages().values()) == {"held"}
    cuda_rollout.give_up(cluster, cluster.read())  # type: ignore[arg-type]
    assert cluster.inner.stages() == {}
    assert capfd.readouterr().out.count("the rollout is given up") == 3
    cuda_rollout.give_up(cluster, cluster.read())  # type: ignore[arg-type]
    assert capfd.readouterr().out == "no node is part of a rollout\n"
