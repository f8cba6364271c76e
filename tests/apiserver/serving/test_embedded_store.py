"""The store: versions, order, the past, subscriptions, and compaction."""

from __future__ import annotations

import threading

import pytest

from tonnage.apiserver import store as stores
from tonnage.apiserver.status import StatusError
from tonnage.apiserver.store import Store, Subscription
from tonnage.kube.resources import CONFIG_MAPS, NODES, PODS


def obj(name: str, namespace: str = "a", value: int = 0) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": namespace}, "value": value}


def taken(subscription: Subscription) -> list[tuple[str, str]]:
    found = []
    while (change := subscription.get(0)) is not None:
        found.append((change.type, change.now.key))
    return found


def test_every_write_has_a_version_of_its_own_across_resources() -> None:
    store = Store()
    versions = [store.put(CONFIG_MAPS, obj("x")).version, store.put(PODS, obj("x")).version]
    versions += [store.put(CONFIG_MAPS, obj("x", value=1)).version, store.remove(PODS, "a", "x").version]
    assert versions == sorted(set(versions))
    assert store.version == versions[-1]


def test_the_bytes_carry_the_version_under_which_they_are_stored() -> None:
    store = Store()
    stored = store.put(PODS, obj("x"))
    assert stored.fresh()["metadata"]["resourceVersion"] == str(stored.version)


def test_a_list_is_ordered_as_etcd_orders_its_keys() -> None:
    store = Store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a-b", "m"), ("a", "b")):
        store.put(PODS, obj(name, namespace))
    assert [one.key for one in store.items(PODS)[0]] == ["a-b/m", "a/b", "a/z", "b/x"]
    assert [one.key for one in store.items(PODS, "a")[0]] == ["a/b", "a/z"]


def test_the_past_can_be_listed_as_it_was() -> None:
    store = Store()
    for name in ("x", "y", "z"):
        store.put(PODS, obj(name))
    then = store.version
    store.put(PODS, obj("x", value=1))
    store.remove(PODS, "a", "y")
    store.put(PODS, obj("w"))
    store.put(NODES, {"metadata": {"name": "n"}})
    store.put(PODS, obj("y", value=9))
    found, version = store.items(PODS, "a", then)
    assert version == then
    assert [(one.key, one.object["value"]) for one in found] == [("a/x", 0), ("a/y", 0), ("a/z", 0)]


def test_what_is_compacted_is_refused_as_expired() -> None:
    store = Store(history=3)
    for i in range(6):
        store.put(PODS, obj("x", value=i))
    assert [one.object["value"] for one in store.items(PODS, at=store.version - 3)[0]] == [2]
    for call in (lambda: store.items(PODS, at=store.version - 4), lambda: store.subscribe(PODS, store.version - 4)):
        with pytest.raises(StatusError) as refused:
            call()
        assert (refused.value.code, refused.value.reason) == (410, "Expired")
    now = store.version
    store.compact()
    assert store.subscribe(PODS, now).get(0) is None
    with pytest.raises(StatusError):
        store.subscribe(PODS, now - 1)


def test_a_subscription_begins_with_the_present_state_then_follows() -> None:
    store = Store()
    store.put(PODS, obj("x"))
    store.put(CONFIG_MAPS, obj("c"))
    subscription = store.subscribe(PODS)
    assert (subscription.initial, subscription.version) == (1, store.version)
    store.put(PODS, obj("x", value=1))
    store.put(CONFIG_MAPS, obj("c", value=1))
    store.remove(PODS, "a", "x")
    assert subscription.pending() == 3
    assert taken(subscription) == [("ADDED", "a/x"), ("MODIFIED", "a/x"), ("DELETED", "a/x")]


def test_a_subscription_from_a_version_sees_each_later_change_once() -> None:
    store = Store()
    store.put(PODS, obj("x"))
    since = store.version
    store.put(PODS, obj("y"))
    subscription = store.subscribe(PODS, since)
    store.put(PODS, obj("z"))
    assert taken(subscription) == [("ADDED", "a/y"), ("ADDED", "a/z")]


def test_one_subscription_can_follow_all_resources_in_order() -> None:
    store = Store()
    store.put(PODS, obj("x"))
    store.put(CONFIG_MAPS, obj("c"))
    subscription = store.subscribe()
    store.put(NODES, {"metadata": {"name": "n"}})
    versions = []
    while (change := subscription.get(0)) is not None:
        versions.append((change.resource.kind, change.version))
    assert [kind for kind, _ in versions] == ["Pod", "ConfigMap", "Node"]
    assert [version for _, version in versions] == sorted(version for _, version in versions)


def test_a_reader_that_falls_too_far_behind_is_cut_off_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BACKLOG", 3)
    store = Store()
    subscription = store.subscribe(PODS)
    for i in range(5):
        store.put(PODS, obj("x", value=i))
    assert [subscription.get(0) is not None for _ in range(3)] == [True, True, True]
    with pytest.raises(StatusError, match="list again"):
        subscription.get(0)


def test_closing_wakes_the_waiting_reader_and_ends_the_flow() -> None:
    store = Store()
    subscription = store.subscribe(PODS)
    found: list[object] = ["nothing yet"]
    reader = threading.Thread(target=lambda: found.append(subscription.get(10)))
    reader.start()
    subscription.close()
    reader.join(5)
    assert found[-1] is None
    store.put(PODS, obj("x"))
    assert subscription.pending() == 0


def test_writers_in_several_threads_give_one_history_without_gaps() -> None:
    store = Store()
    subscription = store.subscribe(PODS)

    def write(worker: int) -> None:
        for i in range(200):
            store.put(PODS, obj(f"p{worker}-{i}"))

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    versions = [change.version for _ in range(800) if (change := subscription.get(1)) is not None]
    assert versions == list(range(versions[0], versions[0] + 800))
    assert len(store.items(PODS)[0]) == 800


def test_a_reader_may_keep_what_it_got_while_the_object_goes_on() -> None:
    store = Store()
    first = store.put(PODS, obj("x", value=0))
    kept = first.object
    for i in range(1, 4):
        store.put(PODS, obj("x", value=i))
    first.cool()
    assert kept["value"] == 0
    assert first.object == kept
