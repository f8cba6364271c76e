"""Informers against an API that fails in all the ways that an API fails."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted_api import ScriptedApi, event, refusal, unreachable

from deep_seeds import part
from tonnage.kube.informer import Informer, Informers
from tonnage.kube.reflector import PAGE, Delays, Reflector
from tonnage.kube.resources import NODE_CLAIMS, PODS
from tonnage.kube.transport import Reply, Unreachable
from tonnage.kube.verbs import Client
from tonnage.objects.core import Pod
from tonnage.objects.karpenter import NodePool

ALL = "/api/v1/pods"
QUICK = Delays(first=0.01, most=0.05, absent=(0.02, 0.04), watch=(5.0, 10.0), grace=1.0, short=0.2)
SPEC: dict[str, Any] = {"containers": []}

Build = Callable[..., Informers]


@pytest.fixture
def api() -> ScriptedApi:
    return ScriptedApi()


@pytest.fixture
def informers(api: ScriptedApi) -> Iterator[Informers]:
    made = Informers(Client(api), time.time, random.Random(1), delays=QUICK)
    yield made
    made.stop()
    api.close()


def names(informer: Informer[Pod]) -> list[str]:
    return sorted(pod.name for pod in informer.items())


def until(informers: Informers, done: Callable[[], bool], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"it never came; problems: {informers.problems()}"
        informers.pump(0.02)


def pod_line(kind: str, name: str, version: int, uid: str = "u", **content: Any) -> bytes:
    meta = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version)}
    return event(kind, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": SPEC, **content})


class Log:
    def __init__(self, informer: Informer[Pod]) -> None:
        self.changes: list[tuple[str, str]] = []
        informer.on_change(self.note)

    def note(self, change: str, old: Pod | None, new: Pod | None) -> None:
        seen = new if new is not None else old
        assert seen is not None
        assert (old is None) == (change == "added")
        assert (new is None) == (change == "deleted")
        self.changes.append((change, seen.name))


def test_a_list_of_many_pages_is_applied_at_once_and_then_followed(api: ScriptedApi, informers: Informers) -> None:
    for i in range(2 * PAGE + 1):
        api.put(ALL, f"pod-{i}", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    assert not pods.synced
    assert informers.wait_synced(5)
    assert len(pods) == 2 * PAGE + 1
    assert len(api.lists) == 3
    found = pods.get("default", "pod-7")
    assert found is not None
    assert (found.kind, found.api_version) == ("Pod", "v1")
    assert pods.get("default", "other") is None
    version = api.put(ALL, "late", "default", spec={**SPEC, "nodeName": "n1"})
    assert informers.wait_for(PODS, version, 5)
    late = pods.get("default", "late")
    assert late is not None
    assert late.spec.node_name == "n1"


def test_nothing_is_seen_before_the_owner_pumps(api: ScriptedApi, informers: Informers) -> None:
    api.put(ALL, "a", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    deadline = time.monotonic() + 5
    while not informers.backlog and time.monotonic() < deadline:
        time.sleep(0.005)
    assert (informers.backlog, len(pods), pods.synced) == (1, 0, False)
    seen: list[int] = []
    pods.on_change(lambda change, old, new: seen.append(threading.get_ident()))
    assert informers.pump(1) == 1
    assert seen == [threading.get_ident()]


def test_a_handler_that_comes_late_is_told_of_what_is_there(api: ScriptedApi, informers: Informers) -> None:
    api.put(ALL, "a", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    assert Log(pods).changes == [("added", "a")]


def test_a_page_that_expires_in_the_middle_starts_the_list_over(api: ScriptedApi, informers: Informers) -> None:
    for i in range(PAGE + 1):
        api.put(ALL, f"pod-{i}", "default", spec=SPEC)

    def change_and_expire() -> None:
        api.remove(ALL, "pod-0", "default")
        with api.lock:
            api.oldest = api.version

    api.faults += [lambda: None, change_and_expire]
    pods = informers.add(PODS, Pod)
    log = Log(pods)
    assert informers.wait_synced(5)
    assert len(pods) == PAGE
    assert ("added", "pod-0") not in log.changes


def test_pages_of_different_versions_are_not_put_together(api: ScriptedApi, informers: Informers) -> None:
    for i in range(PAGE + 1):
        api.put(ALL, f"pod-{i}", "default", spec=SPEC)
    other = {"metadata": {"resourceVersion": "7"}, "items": []}
    api.faults += [lambda: None, lambda: Reply(200, json.dumps(other).encode())]
    pods = informers.add(PODS, Pod)
    log = Log(pods)
    assert informers.wait_synced(5)
    assert len(log.changes) == len(pods) == PAGE + 1
    assert len(api.lists) == 3


def test_a_dropped_watch_goes_on_from_the_last_version_without_a_list(api: ScriptedApi, informers: Informers) -> None:
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    first = api.put(ALL, "a", "default", spec=SPEC)
    assert informers.wait_for(PODS, first, 5)
    api.drop_watches()
    second = api.put(ALL, "b", "default", spec=SPEC)
    assert informers.wait_for(PODS, second, 5)
    assert names(pods) == ["a", "b"]
    assert len(api.lists) == 1
    assert len(api.watches) >= 2
    assert int(api.watches[-1]["resourceVersion"]) >= first
    assert informers.restarts()["pods"] >= 1


def test_bookmarks_move_the_version_that_a_watch_goes_on_from(api: ScriptedApi, informers: Informers) -> None:
    informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    version = api.put("/api/v1/services", "other", "default")
    assert informers.wait_for(PODS, version, 5)
    with api.lock:
        api.oldest = version
    api.drop_watches()
    until(informers, lambda: len(api.watches) >= 2)
    assert int(api.watches[-1]["resourceVersion"]) >= version
    assert len(api.lists) == 1
    assert api.watches[-1]["allowWatchBookmarks"] == "true"
    assert 5 <= int(api.watches[-1]["timeoutSeconds"]) <= 10


@pytest.mark.parametrize("how", ["status 410", "ERROR event 410"])
def test_after_compaction_it_lists_again_and_tells_what_was_missed(
    api: ScriptedApi, informers: Informers, how: str
) -> None:
    for name in ("stays", "changes", "goes"):
        api.put(ALL, name, "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    log = Log(pods)
    log.changes.clear()

    def meanwhile() -> None:
        api.put(ALL, "changes", "default", spec={**SPEC, "nodeName": "n1"})
        api.remove(ALL, "goes", "default")
        api.put(ALL, "comes", "default", spec=SPEC)
        if how == "status 410":
            api.oldest = api.version

    if how != "status 410":
        api.lines_instead.append([event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "x"})])
    api.watch_faults.append(meanwhile)
    api.drop_watches()
    until(informers, lambda: pods.relists >= 1)
    assert sorted(log.changes) == [("added", "comes"), ("deleted", "goes"), ("modified", "changes")]
    assert not informers.problems()


def test_duplicates_and_late_events_change_nothing(api: ScriptedApi, informers: Informers) -> None:
    api.lines_instead.append(
        [
            pod_line("ADDED", "a", 201),
            pod_line("ADDED", "a", 201),
            pod_line("ADDED", "b", 203),
            pod_line("MODIFIED", "a", 204, status={"phase": "Running"}),
            pod_line("ADDED", "c", 202),  # late, and of another object: still news
            pod_line("MODIFIED", "a", 203),  # older than what is known
            pod_line("DELETED", "b", 206),
            pod_line("MODIFIED", "b", 205),  # late: must not come back
            pod_line("DELETED", "b", 206),
        ]
    )
    pods = informers.add(PODS, Pod)
    log = Log(pods)
    until(informers, lambda: pods.resource_version >= 206)
    assert log.changes == [("added", "a"), ("added", "b"), ("modified", "a"), ("added", "c"), ("deleted", "b")]
    a = pods.get("default", "a")
    assert a is not None
    assert a.status.phase == "Running"


def test_an_object_made_anew_under_its_name_is_a_deletion_and_an_addition(
    api: ScriptedApi, informers: Informers
) -> None:
    api.lines_instead.append([pod_line("ADDED", "a", 201, "one"), pod_line("MODIFIED", "a", 209, "two")])
    pods = informers.add(PODS, Pod)
    log = Log(pods)
    until(informers, lambda: pods.resource_version >= 209)
    assert log.changes == [("added", "a"), ("deleted", "a"), ("added", "a")]


@pytest.mark.parametrize(
    "ending",
    [
        [Unreachable("the connection broke")],
        [b'{"type":"ADDED","object":{"metadata":{"na'],
        [b"not JSON"],
        [event("ERROR", {"kind": "Status", "code": 500, "reason": "InternalError", "message": "x"})],
        [b'{"type":"ERROR","object":[]}'],
    ],
    ids=["broken", "half a line", "rubbish", "error event", "rubbish error"],
)
def test_a_broken_watch_is_begun_again_where_it_was(
    api: ScriptedApi, informers: Informers, ending: list[bytes | Exception]
) -> None:
    api.version = 200
    api.lines_instead.append([pod_line("ADDED", "a", 201), *ending])
    pods = informers.add(PODS, Pod)
    until(informers, lambda: len(api.watches) >= 2)
    assert [watch["resourceVersion"] for watch in api.watches[:2]] == ["200", "201"]
    assert len(api.lists) == 1
    until(informers, lambda: not informers.problems())
    assert names(pods) == ["a"]


def test_a_server_that_fails_is_asked_less_and_less_often_and_the_reason_shows(
    api: ScriptedApi, informers: Informers
) -> None:
    api.faults += [unreachable] * 3 + [lambda: refusal(500, "InternalError", "etcd is away")]
    informers.add(PODS, Pod)
    until(informers, lambda: bool(informers.problems()))
    assert "the test says so" in informers.problems()["pods"] or "etcd" in informers.problems()["pods"]
    assert informers.wait_synced(5)
    until(informers, lambda: not informers.problems())


def test_when_one_reaches_the_server_again_all_try_at_once(api: ScriptedApi) -> None:
    patient = Delays(first=20.0, most=30.0, watch=(60.0, 90.0))
    informers = Informers(Client(api), time.time, random.Random(1), delays=patient)
    api.faults += [unreachable]
    waits = informers.add(PODS, Pod)
    until(informers, lambda: bool(informers.problems()))
    late = Reflector(
        Client(api),
        PODS,
        Pod,
        put=lambda entry: None,
        selectors={},
        namespace="",
        rng=random.Random(1),
        clock=time.time,
        monotonic=time.monotonic,
        delays=QUICK,
        contact=informers._contact,
    )
    api.faults += [unreachable] * 3
    late.start()
    until(informers, lambda: waits.synced)
    until(informers, lambda: not informers.problems())
    late.stop()
    assert informers.stop()
    api.close()


def test_a_watch_that_ends_at_once_each_time_is_not_hammered(api: ScriptedApi) -> None:
    informers = Informers(
        Client(api), time.time, random.Random(1), delays=Delays(first=0.1, most=1.0, watch=(5, 6), short=5.0)
    )
    api.lines_instead += [[] for _ in range(1000)]
    informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    time.sleep(0.4)
    assert len(api.watches) <= 4
    assert "at once" in informers.problems()["pods"]
    informers.stop()


def test_a_missing_crd_is_a_problem_until_it_is_there(api: ScriptedApi, informers: Informers) -> None:
    api.absent.add(NODE_CLAIMS.path())
    informers.add(NODE_CLAIMS, NodePool)
    pods = informers.add(PODS, Pod)
    until(informers, lambda: pods.synced and bool(informers.problems()))
    assert informers.problems() == {
        "nodeclaims.karpenter.sh": "the cluster does not serve nodeclaims.karpenter.sh (install the CRDs of Karpenter)"
    }
    assert not informers.wait_synced(0.1)
    api.absent.clear()
    assert informers.wait_synced(5)
    assert informers.problems() == {}


def test_a_forbidden_list_names_the_verb_and_the_resource(api: ScriptedApi, informers: Informers) -> None:
    api.faults += [lambda: refusal(403, "Forbidden", 'User "x" cannot list resource "pods"')] * 2
    informers.add(PODS, Pod)
    until(informers, lambda: informers.problems().get("pods", "").startswith("not allowed: list pods ("))
    assert informers.wait_synced(5)


def test_an_object_that_does_not_fit_is_a_problem_and_the_others_are_there(
    api: ScriptedApi, informers: Informers
) -> None:
    api.put(ALL, "good", "default", spec=SPEC)
    api.put(ALL, "bad", "default", spec={"containers": "none"})
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    assert names(pods) == ["good"]
    assert informers.problems()["pods"].startswith("pod default/bad cannot be read: Expected `array`")
    version = api.put(ALL, "good", "default", spec={"containers": 3})
    assert informers.wait_for(PODS, version, 5)
    assert names(pods) == ["good"], "what was last understood stands"
    api.watch_faults.append(lambda: refusal(410, "Expired"))
    api.drop_watches()
    until(informers, lambda: pods.relists >= 1)
    assert names(pods) == ["good"]
    api.remove(ALL, "bad", "default")
    version = api.remove(ALL, "good", "default")
    assert informers.wait_for(PODS, version, 5)
    assert names(pods) == []
    until(informers, lambda: not informers.problems())


def test_a_server_whose_history_began_anew_is_believed(api: ScriptedApi, informers: Informers) -> None:
    api.put(ALL, "a", "default", uid="old", spec=SPEC)
    api.put(ALL, "b", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    log = Log(pods)
    log.changes.clear()

    def another_server() -> None:
        api.objects.clear()
        api.history.clear()
        api.version = 3
        api.put(ALL, "a", "default", uid="new", spec=SPEC)
        api.oldest = 10**6

    api.watch_faults.append(another_server)
    api.drop_watches()
    until(informers, lambda: pods.relists >= 1)
    assert log.changes == [("deleted", "b"), ("deleted", "a"), ("added", "a")]
    assert pods.resource_version == 4
    api.oldest = 0
    version = api.put(ALL, "c", "default", spec=SPEC)
    assert informers.wait_for(PODS, version, 5)
    assert names(pods) == ["a", "c"]


def put_back(api: ScriptedApi, version: int, *pods: tuple[str, int, str]) -> None:
    """As if from a backup: these pods (name, version, node), at this revision. Watches break, and any version is taken
    by new ones."""
    with api.lock:
        api.objects.clear()
        api.history.clear()
        for name, at, node in pods:
            api.version = at - 1
            api.put(ALL, name, "default", uid=f"uid-{name}", spec={**SPEC, "nodeName": node})
        api.history.clear()
        api.version = version
    api.drop_watches()


def test_a_server_restored_from_a_backup_is_read_again_when_its_watch_breaks(
    api: ScriptedApi, informers: Informers
) -> None:
    """It would take a watch from a version that it has not reached yet, and say nothing: as kube-apiserver does."""
    api.put(ALL, "same", "default", uid="uid-same", spec={**SPEC, "nodeName": ""})
    api.put(ALL, "bound", "default", uid="uid-bound", spec=SPEC)
    api.put(ALL, "bound", "default", spec={**SPEC, "nodeName": "n1"})
    api.put(ALL, "young", "default", spec=SPEC)
    seen = api.put(ALL, "late", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    restored: list[int] = []
    informers.on_restored = lambda: restored.append(pods.resource_version)
    assert informers.wait_synced(5)
    assert seen == 105
    log = Log(pods)
    log.changes.clear()
    put_back(api, 103, ("same", 101, ""), ("bound", 102, ""), ("gone", 103, "n1"))
    until(informers, lambda: pods.relists >= 1)
    assert log.changes == [
        ("deleted", "late"),
        ("deleted", "young"),
        ("deleted", "bound"),
        ("added", "bound"),
        ("added", "gone"),
    ], "a pod that is bound no more has not changed: it is another one's history"
    assert restored == [103]
    assert pods.histories == 1
    new = api.put(ALL, "new", "default", spec=SPEC)
    assert new < seen
    assert informers.wait_for(PODS, new, 5)
    assert names(pods) == ["bound", "gone", "new", "same"]
    assert not informers.problems()


def test_while_a_restored_server_is_read_again_it_is_a_problem(api: ScriptedApi, informers: Informers) -> None:
    api.put(ALL, "a", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    api.version = 150
    assert informers.wait_for(PODS, 150, 5)
    listing, go = threading.Event(), threading.Event()

    def hold() -> None:
        listing.set()
        assert go.wait(5)

    api.faults += [lambda: None, hold]
    put_back(api, 120, ("a", 101, ""))
    assert listing.wait(5)
    why = "lists again: the server is at revision 120, and 150 was seen: "
    assert informers.problems()["pods"].startswith(why)
    go.set()
    deadline = time.monotonic() + 5
    while not informers.backlog and time.monotonic() < deadline:
        time.sleep(0.005)
    assert informers.problems() == {"pods": "its list has come and is not applied yet"}
    until(informers, lambda: pods.relists >= 1)
    assert informers.problems() == {}


def test_a_restored_server_that_is_ahead_by_now_shows_by_objects_that_are_older(
    api: ScriptedApi, informers: Informers
) -> None:
    """etcd can be restored with a higher revision, and then says 410 to everybody; or it has overtaken what was seen."""
    api.put(ALL, "a", "default", uid="uid-a", spec=SPEC)
    api.put(ALL, "a", "default", spec={**SPEC, "nodeName": "n1"})
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    log = Log(pods)
    log.changes.clear()
    api.watch_faults.append(lambda: refusal(410, "Expired"))
    put_back(api, 10**9, ("a", 101, ""))
    until(informers, lambda: pods.relists >= 1)
    assert log.changes == [("deleted", "a"), ("added", "a")]
    assert pods.histories == 1


def test_a_list_after_compaction_is_of_the_same_history(api: ScriptedApi, informers: Informers) -> None:
    api.put(ALL, "a", "default", spec=SPEC)
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    api.put(ALL, "a", "default", spec={**SPEC, "nodeName": "n1"})
    api.watch_faults.append(lambda: refusal(410, "Expired"))
    api.compact()
    until(informers, lambda: pods.relists >= 1)
    assert pods.histories == 0


class Silenced:
    """Over the API, a proxy that keeps watches open and lets nothing through while ``silent``."""

    def __init__(self, api: ScriptedApi) -> None:
        self.api, self.silent = api, False
        self.open: list[SilentStream] = []

    def request(self, method: str, path: str, **rest: Any) -> Reply:
        return self.api.request(method, path, **rest)

    def stream(self, path: str, *, query: dict[str, str], timeout_s: float) -> SilentStream:
        self.open.append(SilentStream(self, self.api.stream(path, query=query, timeout_s=timeout_s)))
        return self.open[-1]

    def close(self) -> None:
        self.api.close()


class SilentStream:
    """Ends when it is closed, as a connection does."""

    def __init__(self, proxy: Silenced, inner: Any) -> None:
        self.proxy, self.inner, self.closed = proxy, inner, threading.Event()

    def __enter__(self) -> Iterator[bytes]:
        return self._lines(self.inner.__enter__())

    def _lines(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for line in lines:
            while self.proxy.silent and not self.closed.wait(0.005):
                continue
            if self.closed.is_set():
                return
            yield line

    def __exit__(self, *_: object) -> None:
        self.inner.__exit__(None, None, None)

    def close(self) -> None:
        self.closed.set()


def test_a_watch_on_which_nothing_comes_for_two_minutes_is_opened_anew(api: ScriptedApi) -> None:
    now = [1000.0]
    proxy = Silenced(api)
    informers = Informers(
        Client(proxy),  # type: ignore[arg-type]
        time.time,
        random.Random(1),
        delays=QUICK,
        monotonic=lambda: now[0],
    )
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    until(informers, lambda: not informers.behind())
    proxy.silent = True
    version = api.put(ALL, "unseen", "default", spec=SPEC)
    now[0] += QUICK.silence - 1
    informers.pump(0.1)
    assert (len(proxy.open), names(pods), informers.problems()) == (1, [], {})
    now[0] += 1 + QUICK.overdue + 1
    assert informers.problems() == {"pods": "nothing was heard for 126 s; its watch is reopened"}
    proxy.silent = False
    proxy.open[0].proxy = Silenced(api)
    proxy.open[0].proxy.silent = True  # the old connection stays as it is
    assert informers.wait_for(PODS, version, 5)
    assert (len(proxy.open), names(pods), informers.problems()) == (2, ["unseen"], {})
    assert [watch["resourceVersion"] for watch in api.watches] == ["100", "100"], "it goes on where it was"
    assert len(api.lists) == 1
    informers.stop()
    proxy.close()


def test_bookmarks_alone_keep_a_watch_open(api: ScriptedApi) -> None:
    now = [1000.0]
    informers = Informers(Client(api), time.time, random.Random(1), delays=QUICK, monotonic=lambda: now[0])
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)
    for minute in range(1, 6):
        now[0] += 60.0
        api.version += 1  # elsewhere
        until(informers, lambda: pods.resource_version == 100 + minute)  # noqa: B023
    assert len(api.watches) == 1
    informers.stop()
    api.close()


def test_two_selections_of_one_resource_are_two_informers(api: ScriptedApi, informers: Informers) -> None:
    informers.add(PODS, Pod)
    informers.add(PODS, Pod, field_selector="spec.nodeName=n1", namespace="default")
    assert informers.wait_synced(5)
    assert list(informers.named()) == ["pods", "pods (default, spec.nodeName=n1)"]
    assert any(listed.get("fieldSelector") == "spec.nodeName=n1" for listed in api.lists)
    assert ("GET", "/api/v1/namespaces/default/pods") in api.requests


def test_what_a_handler_raises_comes_out_of_pump_and_nothing_is_lost(api: ScriptedApi, informers: Informers) -> None:
    pods = informers.add(PODS, Pod)
    assert informers.wait_synced(5)

    def fail(change: str, old: Pod | None, new: Pod | None) -> None:
        raise ValueError(change)

    pods.on_change(fail)
    api.put(ALL, "a", "default", spec=SPEC)
    with pytest.raises(ValueError, match="added"):
        until(informers, lambda: False)
    assert names(pods) == ["a"]


def test_wake_lets_a_waiting_pump_return(api: ScriptedApi, informers: Informers) -> None:
    threading.Timer(0.05, informers.wake).start()
    begun = time.monotonic()
    assert informers.pump(5) == 0
    assert time.monotonic() - begun < 2


@pytest.mark.parametrize("seed", part(range(6)))
def test_whatever_goes_wrong_in_the_end_both_sides_have_the_same(seed: int) -> None:
    """Random changes under random faults; handlers' changes alone must rebuild the store."""
    rng = random.Random(seed)
    api = ScriptedApi()
    informers = Informers(Client(api), time.time, random.Random(seed), delays=QUICK)
    pods = informers.add(PODS, Pod)
    mirror: dict[str, str] = {}

    def follow(change: str, old: Pod | None, new: Pod | None) -> None:
        if old is not None:
            assert mirror.pop(old.name) == old.metadata.resource_version
        if new is not None:
            assert new.name not in mirror
            mirror[new.name] = new.metadata.resource_version

    pods.on_change(follow)
    for _ in range(150):
        name = f"p{rng.randrange(12)}"
        if f"/api/v1/namespaces/default/pods/{name}" in api.objects and rng.random() < 0.4:
            api.remove(ALL, name, "default")
        else:
            api.put(ALL, name, "default", spec=SPEC)
        chance = rng.random()
        if chance < 0.05:
            api.compact()
        elif chance < 0.1:
            api.drop_watches()
        elif chance < 0.15:
            api.faults.append(unreachable)
        elif chance < 0.2:
            api.watch_faults.append(lambda: refusal(429, "TooManyRequests"))
        informers.pump(0.002)
    api.faults.clear()
    api.watch_faults.clear()
    assert informers.wait_for(PODS, api.version, 10), informers.problems()
    there = {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in api.objects.values()}
    assert {pod.name: pod.metadata.resource_version for pod in pods.items()} == there == mirror
    assert informers.stop()
    api.close()
