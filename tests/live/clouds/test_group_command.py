"""`tonnage controller --nodes-backend aws`: the whole command against moto and the embedded API, and what it refuses."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed (pip install boto3)")
pytest.importorskip("moto", reason="moto is not installed (pip install 'moto[autoscaling,ec2]')")

from fake_aws import CLUSTER, REGION, Aws, error, mocked, template_tags
from group_cluster import GPU, Kubelets, pod_body

from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.cli import main
from tonnage.kube.resources import EVENTS, PODS
from tonnage.kube.verbs import Client
from tonnage.live.clouds.watched import WatchedGroups

pytestmark = pytest.mark.peer

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Aws]:
    with mocked() as made:
        yield made


@pytest.fixture
def aws(shared: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", REGION)
    yield shared
    shared.clear()


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def config(api: Api, tmp_path: Path) -> Iterator[str]:
    with Server(api) as server:
        yield str(kubeconfig.write(tmp_path / "config", server.url))


@pytest.fixture
def signals() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["controller", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def beside(work: Callable[[], None]) -> tuple[threading.Thread, list[BaseException]]:
    """Do ``work`` in a thread, then end the command that runs in this process."""
    failures: list[BaseException] = []

    def do() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=do)
    thread.start()
    return thread, failures


@pytest.mark.usefixtures("signals")
def test_the_command_buys_places_and_ends_when_told_to(
    aws: Aws, api: Api, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    aws.group(desired=0, tags=template_tags(taint={GPU: "true:NoSchedule"}))
    client = Client(InProcess(api))
    for name in ("a", "b"):
        client.create(PODS, pod_body(name), "default")

    def play() -> None:
        until(lambda: len(aws.size()[1]) == 2)
        Kubelets(client, aws).join()
        until(lambda: sum(bool(pod["spec"].get("nodeName")) for pod in client.list(PODS)) == 2)

    thread, failures = beside(play)
    options = ("--mode", "apply", "--no-leader-elect", "--nodes-backend", "aws", "--aws-cluster", CLUSTER)
    assert run(*options, "--kubeconfig", config) == 0
    thread.join()
    assert failures == []
    assert aws.size()[0] == 2
    said = capsys.readouterr()
    assert said.out.count("launch g5.xlarge (on-demand) as gpu-") == 2
    assert "error" not in said.err
    assert {event["reason"] for event in client.list(EVENTS)} >= {"Scheduled", "FailedScheduling"}


@pytest.mark.usefixtures("signals")
def test_when_aws_stops_to_answer_readyz_says_so(
    aws: Aws, config: str, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setattr("tonnage.live.backends.WatchedGroups", lambda groups: WatchedGroups(groups, every_s=0.05))
    aws.group(desired=0)
    asked = aws.intercept("autoscaling.DescribeAutoScalingGroups")
    monkeypatch.setattr("boto3.session.Session", lambda **_: aws.session)

    def readyz() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/readyz", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except HTTPError as error_:
            return error_.code, error_.read().decode()
        except OSError:
            return 0, ""

    def play() -> None:
        until(lambda: readyz()[0] == 200)
        asked.answers += [error("ExpiredToken", "too old")] * 100_000
        until(lambda: readyz()[0] not in (0, 200))
        assert "node groups: AWS does not take the credentials (ExpiredToken)" in readyz()[1]
        asked.answers.clear()
        until(lambda: readyz()[0] == 200)

    thread, failures = beside(play)
    options = ("--only", "nodes", "--mode", "apply", "--no-leader-elect", "--listen", f"127.0.0.1:{free_port}")
    assert run(*options, "--nodes-backend", "aws", "--aws-cluster", CLUSTER, "--kubeconfig", config) == 0
    thread.join()
    assert failures == []


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("backend", ["aws", "report"])
def test_a_look_says_which_group_would_be_sized(
    aws: Aws, api: Api, config: str, capsys: pytest.CaptureFixture[str], backend: str
) -> None:
    aws.group(desired=0, tags=template_tags(taint={GPU: "true:NoSchedule"}))
    aws.group("odd", instance_type="p9.xlarge", desired=0)
    Client(InProcess(api)).create(PODS, pod_body("a"), "default")
    options = ("--only", "nodes", "--once", "-o", "json", "--nodes-backend", backend, "--aws-cluster", CLUSTER)
    assert run(*options, "--kubeconfig", config) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["outcome"]["why"] for line in lines] == ["only reported: would set the size of gpu from 0 to 1"]
    assert "node group odd is left as it is: may make p9.xlarge, whose size is not known" in said.err
    assert aws.size()[0] == 0


BARE = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION")


@pytest.mark.parametrize(
    ("given", "options", "says"),
    [
        ({}, (), "there are no AWS credentials (set AWS_PROFILE or"),
        (
            {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
            (),
            "the AWS region is not known (set AWS_REGION",
        ),
        (
            {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"},
            ("--aws-region", REGION),
            "AWS has no Auto Scaling group of a cluster prod (check --aws-cluster and the region; groups are known by",
        ),
    ],
)
def test_what_is_missing_of_aws_is_one_line_and_exit_code_2(
    aws: Aws,
    config: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    given: dict[str, str],
    options: tuple[str, ...],
    says: str,
) -> None:
    for name in BARE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert run("--nodes-backend", "aws", "--aws-cluster", CLUSTER, "--kubeconfig", config, *options) == 2
    said = capsys.readouterr()
    (line,) = [line for line in said.err.splitlines() if line]
    assert line.startswith(f"error: {says}")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--nodes-backend", "aws"), "--nodes-backend aws needs --aws-cluster"),
        (("--aws-cluster", "prod"), "--aws-cluster needs --nodes-backend aws"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options) == 2
    assert says in capsys.readouterr().err


def test_only_the_nodes_controller_asks_aws(aws: Aws, config: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    options = ("--only", "scheduler", "--once", "--nodes-backend", "aws", "--aws-cluster", "unknown")
    assert run(*options, "--kubeconfig", config) == 0
    signal.signal(signal.SIGTERM, kept[0])
    signal.signal(signal.SIGINT, kept[1])
