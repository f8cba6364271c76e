"""The client against the embedded API, over HTTP."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from client_checks import QUICK, Gate, check_election, check_events, names, pod, until
from freezing_proxy import FreezingProxy

from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.http import HttpTransport, open_cluster
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.live.group_kinds import JOB_SETS
from tonnage.objects.batch import JobSet
from tonnage.objects.core import Node, Pod


@pytest.fixture
def api() -> Api:
    return Api(bookmark_s=0.2)


@pytest.fixture
def client(api: Api, tmp_path: Path) -> Iterator[Client]:
    with Server(api) as server:
        made = open_cluster(str(kubeconfig.write(tmp_path / "config", server.url)))
        yield made
        made.transport.close()


@pytest.fixture
def gate(client: Client) -> Gate:
    assert isinstance(client.transport, HttpTransport)
    return Gate(client.transport)


@pytest.fixture
def informers(gate: Gate) -> Iterator[Informers]:
    made = Informers(Client(gate), time.time, random.Random(1), delays=QUICK)  # type: ignore[arg-type]
    yield made
    gate.cut()
    assert made.stop()


def test_an_informer_lists_by_pages_and_follows(api: Api, client: Client, informers: Informers) -> None:
    inside = Client(InProcess(api))
    for i in range(501):
        inside.create(PODS, pod(f"p{i}"), "default")
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(10)
    assert len(pods) == 501
    found = client.create(PODS, pod("late", app="web"), "default")
    assert informers.wait_for(PODS, found["metadata"]["resourceVersion"], 10)
    late = pods.get("default", "late")
    assert late is not None
    assert late.metadata.labels == {"app": "web"}
    client.delete(PODS, "late", "default", grace_s=0)
    until(informers, lambda: pods.get("default", "late") is None)


def test_bookmarks_keep_an_idle_informer_current(client: Client, informers: Informers) -> None:
    nodes = informers.add(NODES, Node)
    assert informers.wait_synced(10)
    version = client.create(PODS, pod("other"), "default")["metadata"]["resourceVersion"]
    assert informers.wait_for(NODES, version, 10)
    assert len(nodes) == 0


def test_after_compaction_it_lists_again(api: Api, client: Client, gate: Gate, informers: Informers) -> None:
    for name in ("stays", "goes"):
        client.create(PODS, pod(name), "default")
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(10)
    until(informers, lambda: bool(gate.taken))
    gate.cut()
    client.delete(PODS, "goes", "default", grace_s=0)
    client.create(PODS, pod("comes"), "default")
    api.compact()
    gate.shut = False
    until(informers, lambda: pods.relists >= 1)
    assert sorted(item.name for item in pods.items()) == ["comes", "stays"] == names(client, "default")


def test_while_its_watch_is_not_open_a_resource_is_behind(gate: Gate, informers: Informers) -> None:
    assert informers.behind() == frozenset()
    informers.add(PODS, Pod)
    assert informers.behind() == {"pods"}
    until(informers, lambda: not informers.behind())
    gate.cut()
    until(informers, lambda: informers.behind() == {"pods"})
    informers.pump(0.3)
    assert informers.behind() == {"pods"}, "the attempts to open it change nothing"
    gate.shut = False
    until(informers, lambda: not informers.behind())


def test_a_watch_through_a_proxy_that_froze_is_opened_anew(api: Api, tmp_path: Path) -> None:
    """The connection stays open, and the client waits in a read: nothing else would end it for minutes."""
    with Server(api) as server:
        proxy = FreezingProxy(server.port)
        url = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        client = open_cluster(str(kubeconfig.write(tmp_path / "through", url)))
        assert isinstance(client.transport, HttpTransport)
        client.transport._pool._idle_s = 0.5  # as the 60 s of connections are to the 2 minutes of watches
        patient = replace(QUICK, silence=1.0, overdue=0.5)
        informers = Informers(client, time.time, random.Random(1), delays=patient)
        pods = informers.add(PODS, Pod)
        assert informers.wait_synced(10)
        until(informers, lambda: not informers.behind())
        until(informers, lambda: informers.contact()["pods"] > time.time() - 0.3)
        before = proxy.connections
        proxy.freeze()
        version = Client(InProcess(api)).create(PODS, pod("unseen"), "default")["metadata"]["resourceVersion"]
        informers.pump(0.5)
        assert len(pods) == 0
        begun = time.monotonic()
        assert informers.wait_for(PODS, version, 10)
        assert time.monotonic() - begun < 5
        assert proxy.connections > before
        assert informers.restarts() == {"pods": 1}
        assert pods.relists == 0
        assert informers.problems() == {}
        informers.stop()
        client.transport.close()
        proxy.close()


def test_what_the_server_does_not_have_is_not_behind(informers: Informers) -> None:
    informers.add(JOB_SETS, JobSet, optional=True)
    until(informers, lambda: "jobsets.jobset.x-k8s.io" in informers.absent())
    assert informers.behind() == frozenset()


def test_election_and_events(client: Client) -> None:
    check_election(client, "default")
    check_events(client, "default")


def test_stop_ends_a_watch_that_waits(client: Client) -> None:
    informers = Informers(client, time.time, random.Random(1), delays=QUICK)
    informers.add(PODS, Pod)
    informers.add(NODES, Node)
    assert informers.wait_synced(10)
    time.sleep(0.1)
    begun = time.monotonic()
    assert informers.stop()
    assert time.monotonic() - begun < 1
    assert not [t for t in threading.enumerate() if t.name.startswith("informer-")]
    assert client.call("GET", "/version").status == 200, "the transport is still of use"


def test_an_informer_works_in_process_as_well(api: Api) -> None:
    transport = InProcess(api)
    informers = Informers(Client(transport), time.time, random.Random(1), delays=QUICK)
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(10)
    version = Client(transport).create(PODS, pod("a"), "default")["metadata"]["resourceVersion"]
    assert informers.wait_for(PODS, version, 10)
    assert pods.get("default", "a") is not None
    transport.close()
    assert informers.stop(3.0)
