"""The same long sequence, managed by kube-controller-manager and by us, comes to the same at every stage.

TONNAGE_E2E names a folder with cluster.py and its built control plane (kube-apiserver, etcd, kube-controller-manager).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from played_sequence import Sequence, nothing

from tonnage.cluster.client.http import open_cluster
from tonnage.cluster.client.verbs import Client
from tonnage.cluster.server.api import Api
from tonnage.cluster.server.inprocess import InProcess
from tonnage.cluster.server.managers import WATCHED, Managers, Options, WatchFeed

pytestmark = [pytest.mark.peer, pytest.mark.slow]
OPTIONS = Options(node_grace_s=0)  # nobody renews the leases of the nodes that the sequence plays
Stages = dict[str, Any]


class ControlPlane:
    """A control plane of its own on loopback, made by cluster.py."""

    def __init__(self, recipe: Path, folder: Path) -> None:
        self.recipe, self.folder = recipe, folder
        self._call("up", "--no-node-lifecycle")

    def client(self) -> Client:
        return open_cluster(str(self.folder / "admin.kubeconfig"))

    def stop_controller_manager(self) -> None:
        processes = json.loads((self.folder / "state.json").read_text())["procs"]
        (pid,) = (one["pid"] for one in processes if one["name"] == "kube-controller-manager")
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
            assert time.monotonic() < deadline, "kube-controller-manager does not stop"
            time.sleep(0.1)

    def down(self) -> None:
        self._call("down")

    def _call(self, what: str, *flags: str) -> None:
        command = [sys.executable, str(self.recipe / "cluster.py"), what, "--dir", str(self.folder), *flags]
        subprocess.run(command, check=True, capture_output=True, timeout=180)


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    recipe = Path(os.environ.get("TONNAGE_E2E", ""))
    if not os.environ.get("TONNAGE_E2E") or not (recipe / "e2ebin/bin/kube-controller-manager").exists():
        pytest.skip("TONNAGE_E2E does not name a folder with a built control plane")
    plane = ControlPlane(recipe, tmp_path_factory.mktemp("control-plane") / "run")
    try:
        yield plane
    finally:
        plane.down()


@pytest.fixture(scope="module")
def expected(control_plane: ControlPlane) -> Stages:
    """What comes of the sequence under kube-controller-manager, which is stopped then."""
    stages = Sequence(control_plane.client(), "theirs", nothing).play()
    control_plane.stop_controller_manager()
    return stages


def assert_same(ours: Stages, theirs: Stages) -> None:
    assert list(ours) == list(theirs)
    for stage, picture in theirs.items():
        for part, value in picture.items():
            assert ours[stage][part] == value, f"{part} at stage: {stage}"


def test_our_managers_come_to_the_same_on_a_real_api_server(control_plane: ControlPlane, expected: Stages) -> None:
    client = control_plane.client()
    managers = Managers(client, lambda notify: WatchFeed(client, WATCHED, notify), time.time, options=OPTIONS)
    try:
        assert_same(Sequence(client, "ours", managers.step).play(), expected)
    finally:
        managers.close()


def test_our_managers_come_to_the_same_on_the_embedded_api(expected: Stages) -> None:
    api = Api()
    client = Client(InProcess(api))
    managers = Managers(client, lambda notify: api.store.subscribe(notify=notify), time.time, options=OPTIONS)
    assert_same(Sequence(client, "ours", managers.step).play(), expected)
