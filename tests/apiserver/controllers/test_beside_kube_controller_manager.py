"""The same long sequence, managed by kube-controller-manager and by us, comes to the same at every stage.

The programs are those of `make e2e`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from played_sequence import Sequence, nothing

import kube_programs
from e2e.control_plane import ControlPlane
from e2e.control_plane import Options as PlaneOptions
from tonnage.apiserver.api import Api
from tonnage.apiserver.controllers import WATCHED, ControllerManager, ManagerOptions, WatchFeed
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.http import open_cluster
from tonnage.kube.verbs import Client

pytestmark = [pytest.mark.peer, pytest.mark.e2e]
OPTIONS = ManagerOptions(node_grace_s=0)  # nobody renews the leases of the nodes that the sequence plays
Stages = dict[str, Any]


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    programs = kube_programs.needed("kube-controller-manager")
    options = PlaneOptions(controllers=("*", "-node-lifecycle-controller"), scheduler=False)
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane"), options) as plane:
        yield plane


def client_of(plane: ControlPlane) -> Client:
    return open_cluster(str(plane.kubeconfig()))


@pytest.fixture(scope="module")
def expected(control_plane: ControlPlane) -> Stages:
    """What comes of the sequence under kube-controller-manager, which is stopped then."""
    stages = Sequence(client_of(control_plane), "theirs", nothing).play()
    control_plane.kill("kube-controller-manager")
    return stages


def assert_same(ours: Stages, theirs: Stages) -> None:
    assert list(ours) == list(theirs)
    for stage, picture in theirs.items():
        for part, value in picture.items():
            assert ours[stage][part] == value, f"{part} at stage: {stage}"


def test_our_managers_come_to_the_same_on_a_real_api_server(control_plane: ControlPlane, expected: Stages) -> None:
    client = client_of(control_plane)
    managers = ControllerManager(client, lambda notify: WatchFeed(client, WATCHED, notify), time.time, options=OPTIONS)
    try:
        assert_same(Sequence(client, "ours", managers.step).play(), expected)
    finally:
        managers.close()


def test_our_managers_come_to_the_same_on_the_embedded_api(expected: Stages) -> None:
    api = Api()
    client = Client(InProcess(api))
    managers = ControllerManager(client, lambda notify: api.store.subscribe(notify=notify), time.time, options=OPTIONS)
    assert_same(Sequence(client, "ours", managers.step).play(), expected)
