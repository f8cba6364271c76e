"""Watches: where they begin, what selectors make of changes, bookmarks, the end, and 410."""

from __future__ import annotations

import json
import threading
import time

import pytest
from embedded import Embedded, config, events, refused, told

from tonnage.apiserver import store as stores
from tonnage.apiserver.inprocess import InProcess
from tonnage.apiserver.request import ApiRequest
from tonnage.apiserver.watch import Watch
from tonnage.kube.resources import CONFIG_MAPS, PODS
from tonnage.kube.transport import Unreachable

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@pytest.fixture
def embedded() -> Embedded:
    return Embedded()


def make(embedded: Embedded, name: str, **labels: str) -> str:
    made = embedded.client.create(CONFIG_MAPS, config(name, labels), "default")
    return str(made["metadata"]["resourceVersion"])


def label(embedded: Embedded, name: str, **labels: str) -> None:
    embedded.client.patch(CONFIG_MAPS, name, {"metadata": {"labels": labels}}, "default")


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_without_a_version_begins_with_what_is_there(embedded: Embedded, version: str) -> None:
    make(embedded, "a")
    watch = embedded.watch(**({"resourceVersion": version} if version else {}))
    make(embedded, "b")
    embedded.client.delete(CONFIG_MAPS, "a", "default")
    assert told(events(watch)) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]
    assert events(watch) == []


def test_a_watch_from_a_version_sees_later_changes_only(embedded: Embedded) -> None:
    make(embedded, "a")
    since = make(embedded, "b")
    label(embedded, "a", x="1")
    watch = embedded.watch(resourceVersion=since)
    label(embedded, "b", x="1")
    assert told(events(watch)) == [("MODIFIED", "a"), ("MODIFIED", "b")]


def test_events_carry_the_object_as_it_was_stored_and_a_deletion_its_own_version(embedded: Embedded) -> None:
    since = make(embedded, "a")
    watch = embedded.watch(resourceVersion=since)
    label(embedded, "a", x="1")
    stored = embedded.client.get(CONFIG_MAPS, "a", "default")
    embedded.client.delete(CONFIG_MAPS, "a", "default")
    modified, deleted = events(watch)
    assert modified["object"] == stored
    assert int(deleted["object"]["metadata"]["resourceVersion"]) > int(stored["metadata"]["resourceVersion"])
    assert deleted["object"]["metadata"]["labels"] == {"x": "1"}


def test_a_selector_turns_changes_into_coming_and_going(embedded: Embedded) -> None:
    watch = embedded.watch(labelSelector="in=yes")
    make(embedded, "a", **{"in": "no"})
    label(embedded, "a", **{"in": "yes"})
    label(embedded, "a", other="1")
    label(embedded, "a", **{"in": "no"})
    label(embedded, "a", other="2")
    label(embedded, "a", **{"in": "yes"})
    embedded.client.delete(CONFIG_MAPS, "a", "default")
    found = events(watch)
    assert told(found) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")]
    left = found[2]["object"]["metadata"]
    assert left["labels"] == {"in": "yes", "other": "1"}, "the last state that was asked for"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    assert versions == sorted(versions)


def test_a_kubelet_sees_its_pods_come_when_they_are_bound(embedded: Embedded) -> None:
    watch = embedded.watch(PODS, "", fieldSelector="spec.nodeName=n1")
    embedded.pod("web", node="n1")
    embedded.pod("elsewhere", node="n2")
    embedded.client.delete(PODS, "web", "default", grace_s=0)
    assert told(events(watch)) == [("ADDED", "web"), ("DELETED", "web")]


def test_a_watch_of_one_namespace_sees_no_other(embedded: Embedded) -> None:
    watch = embedded.watch(CONFIG_MAPS, "kube-system")
    make(embedded, "a")
    embedded.client.create(CONFIG_MAPS, config("b"), "kube-system")
    assert told(events(watch)) == [("ADDED", "b")]


def test_a_compacted_version_is_gone(embedded: Embedded) -> None:
    since = make(embedded, "a")
    make(embedded, "b")
    embedded.api.compact()
    watch = embedded.watch(resourceVersion=since)
    (event,) = events(watch)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert watch.take() is None
    now = str(embedded.api.store.version)
    assert events(embedded.watch(resourceVersion=now)) == []


def test_a_version_of_an_earlier_life_of_the_server_is_gone_too(embedded: Embedded) -> None:
    path = CONFIG_MAPS.path("default")
    answer = json.loads(embedded.call("GET", path, watch="true", resourceVersion="999999").body)
    assert (answer["code"], answer["reason"]) == (410, "Expired")


def test_a_slow_reader_is_told_to_list_again(embedded: Embedded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BACKLOG", 2)
    watch = embedded.watch()
    for i in range(4):
        make(embedded, f"c{i}")
    found = events(watch) + events(watch)
    assert [event["type"] for event in found][-1] == "ERROR"
    assert found[-1]["object"]["code"] == 410
    assert watch.take() is None


def test_bookmarks_say_how_far_a_quiet_watch_is() -> None:
    embedded = Embedded(bookmark_s=0.02)
    since = make(embedded, "a")
    watch = embedded.watch(resourceVersion=since, allowWatchBookmarks="true", labelSelector="none=such")
    without = embedded.watch(resourceVersion=since)
    make(embedded, "b")
    deadline = time.monotonic() + 5
    found = []
    while not found and time.monotonic() < deadline:
        found = events(watch, 0.1)
    (bookmark,) = found
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(embedded.api.store.version)
    assert bookmark["object"]["kind"] == "ConfigMap"
    time.sleep(0.05)
    assert told(events(without, 0.05)) == [("ADDED", "b")]


def test_a_streamed_list_ends_with_a_marked_bookmark(embedded: Embedded) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    empty = events(embedded.watch(**query))
    assert [event["type"] for event in empty] == ["BOOKMARK"]
    make(embedded, "a")
    version = make(embedded, "b")
    watch = embedded.watch(**query)
    make(embedded, "c")
    found = events(watch)
    assert [event["type"] for event in found] == ["ADDED", "ADDED", "BOOKMARK", "ADDED"]
    meta = found[2]["object"]["metadata"]
    assert meta == {"resourceVersion": version, "annotations": {"k8s.io/initial-events-end": "true"}}
    del query["resourceVersionMatch"]
    assert embedded.call("GET", CONFIG_MAPS.path("default"), watch="true", **query).status == 422


def test_kubectl_gets_rows_with_the_columns_in_the_first_event_only(embedded: Embedded) -> None:
    embedded.pod("a")
    answer = embedded.api.handle(ApiRequest("GET", PODS.path("default"), {"watch": "true"}, accept=TABLE))
    assert isinstance(answer, Watch)
    embedded.pod("b")
    first, second = events(answer)
    assert (first["object"]["kind"], first["object"]["rows"][0]["cells"][0]) == ("Table", "a")
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert (second["object"]["columnDefinitions"], second["object"]["rows"][0]["cells"][0]) == ([], "b")


def test_the_server_ends_a_watch_when_its_time_is_over(embedded: Embedded) -> None:
    watch = embedded.watch(timeoutSeconds="1")
    began = time.monotonic()
    while watch.take(5) is not None:
        assert time.monotonic() - began < 5
    assert time.monotonic() - began >= 0.9


# ---- the transport in process ----


def test_a_stream_gives_lines_and_ends_when_it_is_closed_elsewhere(embedded: Embedded) -> None:
    transport = InProcess(embedded.api)
    path, lines, running = CONFIG_MAPS.path("default"), [], threading.Event()

    def read() -> None:
        with transport.stream(path, query={}, timeout_s=30) as stream:
            running.set()
            lines.extend(json.loads(line) for line in stream)

    reader = threading.Thread(target=read)
    reader.start()
    assert running.wait(5)
    make(embedded, "a")
    deadline = time.monotonic() + 5
    while not lines and time.monotonic() < deadline:
        time.sleep(0.01)
    transport.close()
    reader.join(5)
    assert not reader.is_alive()
    assert told(lines) == [("ADDED", "a")]
    with pytest.raises(Unreachable):
        transport.request("GET", path)


def test_a_stream_ends_after_its_time_and_refuses_what_cannot_be_watched(embedded: Embedded) -> None:
    transport = InProcess(embedded.api)
    with transport.stream(CONFIG_MAPS.path("default"), query={}, timeout_s=0.05) as stream:
        assert list(stream) == []

    def enter() -> None:
        with transport.stream("/api/v1/frogs", query={}, timeout_s=1):
            pass

    assert refused(enter).code == 404


def test_closing_the_api_ends_every_watch(embedded: Embedded) -> None:
    watch = embedded.watch()
    embedded.api.close()
    assert watch.take(5) is None
    assert embedded.watch().take(5) is None


def test_watchers_do_not_slow_writers_by_much(embedded: Embedded) -> None:
    def seconds() -> float:
        began = time.perf_counter()
        for i in range(200):
            label(embedded, "a", n=str(i))
        return time.perf_counter() - began

    make(embedded, "a")
    alone = min(seconds() for _ in range(3))
    watches = [embedded.watch() for _ in range(100)]
    watched = min(seconds() for _ in range(3))
    assert watched < 3 * alone + 0.05, (alone, watched)
    assert all(watch.take() for watch in watches)
