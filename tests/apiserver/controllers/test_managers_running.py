"""The managers in their own thread, over the store and over watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from managed_cluster import Cluster

from tonnage.apiserver.controllers import WATCHED, ControllerManager, ManagerOptions, WatchFeed
from tonnage.kube.resources import DEPLOYMENTS, PODS


def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


def over_watches(cluster: Cluster) -> ControllerManager:
    return ControllerManager(
        cluster.client,
        lambda notify: WatchFeed(cluster.client, WATCHED, notify),
        time.time,
        options=ManagerOptions(node_grace_s=0, quarantine_s=1e9),
    )


@pytest.mark.parametrize("way", ["store", "watches"])
def test_they_wake_up_for_changes_and_stop_when_told(way: str) -> None:
    cluster = Cluster()
    managers = cluster.managers if way == "store" else over_watches(cluster)
    stop = threading.Event()
    thread = threading.Thread(target=managers.run, args=(stop,))
    thread.start()
    try:
        cluster.deploy(replicas=3)
        until(lambda: len(cluster.names()) == 3)
        cluster.play_nodes()
        until(lambda: cluster.get(DEPLOYMENTS, "web").get("status", {}).get("availableReplicas") == 3)
        cluster.delete(PODS, cluster.names()[0])
        cluster.play_nodes()
        until(lambda: len(cluster.names()) == 3)
    finally:
        stop.set()
        thread.join(5)
        cluster.api.close()
    assert not thread.is_alive()


def test_after_falling_too_far_behind_they_learn_everything_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.deploy(replicas=2)
    cluster.settle()
    monkeypatch.setattr("tonnage.apiserver.store.BACKLOG", 3)
    gone = cluster.names()[0]
    cluster.client.delete(PODS, gone, "default", grace_s=0)
    for number in range(5):
        cluster.change("web", {"metadata": {"labels": {"n": str(number)}}})
    monkeypatch.undo()
    cluster.settle()
    assert "too many changes" in cluster.managers.last_error
    assert len(cluster.names()) == 2
    assert gone not in cluster.names()


def test_an_api_that_is_not_there_yet_is_waited_for() -> None:
    cluster = Cluster()
    cluster.api.fail = lambda method, path: 503
    managers = over_watches(cluster)
    assert managers.step() == 0
    assert "made to fail" in managers.last_error
    assert managers.next_due() is not None
    cluster.api.fail = None
    cluster.deploy(replicas=1)
    time.sleep(0.15)
    assert managers.step() > 0
    managers.close()
    cluster.api.close()
