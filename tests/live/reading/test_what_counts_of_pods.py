"""What a pod that is there takes of its node, and what it means to others."""

from __future__ import annotations

from typing import Any

import pytest

from live.reading.watched import HOSTNAME, Json, Watched, node, pod

ZONE = "zone"
GOING = "2026-01-01T00:00:00Z"


# ---- pods that are being resized ----


def resized(spec: str, in_force: str, granted: str, reason: str = "", **more: Any) -> Json:
    one = pod("there", "n1", requests={"cpu": spec}, **more)
    amounts = {"resources": {"requests": {"cpu": in_force}}, "allocatedResources": {"cpu": granted}}
    pending = [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    return one | {
        "status": {"phase": "Running", "conditions": pending, "containerStatuses": [{"name": "main", **amounts}]}
    }


@pytest.mark.report(208)
@pytest.mark.parametrize(
    ("spec", "in_force", "granted", "reason", "left"),
    [
        ("2", "6", "6", "", 2),
        ("1", "3", "3", "", 5),
        ("6", "2", "2", "Deferred", 2),
        ("6", "2", "2", "Infeasible", 6),
        ("2", "3", "5", "", 3),
        ("2", "2", "2", "", 6),
        ("2000m", "2", "2", "", 6),
    ],
)
def test_a_pod_counts_as_the_largest_of_what_it_asks_for_has_and_was_granted(
    spec: str, in_force: str, granted: str, reason: str, left: int
) -> None:
    seen = Watched(node("n1"), resized(spec, in_force, granted, reason))
    for cpu in (left, left + 1):
        seen.see(pod(f"asks-{cpu}", requests={"cpu": str(cpu)}))
    assert (seen.feasible(f"asks-{left}"), seen.feasible(f"asks-{left + 1}")) == ({"n1"}, set())


def test_a_pod_is_counted_anew_as_its_resize_goes_on() -> None:
    seen = Watched(node("n1"), resized("1", "3", "3"), pod("it", requests={"cpu": "6"}))
    assert seen.feasible("it") == set()
    seen.see(resized("1", "1", "1"))
    assert seen.feasible("it") == {"n1"}
    seen.see(resized("4", "1", "1", "Deferred"))
    assert seen.feasible("it") == set()
    seen.see(resized("4", "1", "1", "Infeasible"))
    assert seen.feasible("it") == {"n1"}


def test_sidecars_and_pods_as_a_whole_count_so_too() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    one = pod("there", "n1", requests={"cpu": "1"}, initContainers=[sidecar])
    said = {"name": "side", "resources": {"requests": {"cpu": "5"}}, "allocatedResources": {"cpu": "5"}}
    seen = Watched(node("n1"), one | {"status": {"initContainerStatuses": [said]}}, pod("it", requests={"cpu": "3"}))
    assert seen.feasible("it") == set()
    whole = pod("there", "n1", resources={"requests": {"cpu": "2"}})
    status = {"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "4"}}
    seen = Watched(node("n1"), whole | {"status": status}, pod("it", requests={"cpu": "3"}))
    assert seen.feasible("it") == set()
    seen.see(whole)
    assert seen.feasible("it") == {"n1"}


def test_what_a_pending_pod_says_of_its_containers_is_not_looked_at() -> None:
    one = resized("1", "9", "9")
    del one["spec"]["nodeName"]
    assert Watched(node("n1"), one).feasible("there") == {"n1"}


# ---- pods that are being deleted ----


def spread(app: str = "x") -> Json:
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    return {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"} | selector


def leaving(one: Json) -> Json:
    return one | {"metadata": one["metadata"] | {"deletionTimestamp": GOING}}


def test_pods_that_are_being_deleted_do_not_count_for_spread() -> None:
    there = pod("a", "n1", labels={"app": "x"})
    it = pod("it", labels={"app": "x"}, topologySpreadConstraints=[spread()])
    seen = Watched(node("n1"), node("n2"), there, it)
    assert seen.feasible("it") == {"n2"}
    seen.see(leaving(there))
    assert seen.feasible("it") == {"n1", "n2"}
    seen.gone(there)
    assert seen.feasible("it") == {"n1", "n2"}


def test_pods_that_are_being_deleted_are_company_and_hold_their_room_until_they_are_gone() -> None:
    there = leaving(pod("a", "n1", labels={"app": "x"}, requests={"cpu": "5"}))
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [pod("near", affinity=near), pod("away", affinity=away), pod("large", requests={"cpu": "4"})]
    seen = Watched(node("n1"), there, *pods)
    assert [seen.feasible(name) for name in ("near", "away", "large")] == [{"n1"}, set(), set()]
    seen.gone(there)
    assert [seen.feasible(name) for name in ("near", "away", "large")] == [set(), {"n1"}, {"n1"}]


def test_a_pod_that_is_being_deleted_is_known_as_such_when_its_node_is_seen_after_it() -> None:
    it = pod("it", labels={"app": "x"}, topologySpreadConstraints=[spread()])
    seen = Watched(leaving(pod("a", "n1", labels={"app": "x"})), node("n2"), node("n1"), it)
    assert seen.feasible("it") == {"n1", "n2"}


# ---- label keys ----


@pytest.mark.parametrize(("keys", "operator"), [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")])
@pytest.mark.parametrize("now", ["1", "2", None])
def test_label_keys_mean_the_labels_that_a_pod_was_made_with(keys: str, operator: str, now: str | None) -> None:
    merged = [{"key": "version", "operator": operator, "values": ["1"]}]  # as the API server stored it
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": merged}
    term = {"topologyKey": HOSTNAME, "labelSelector": selector, keys: ["version"]}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    old, new = (pod(f"v{v}", f"n{v}", labels={"app": "x", "version": v}) for v in "12")
    it = pod("it", labels={"app": "y"} | ({"version": now} if now else {}), affinity=near)
    seen = Watched(node("n1"), node("n2"), old, new, it)
    assert seen.feasible("it") == ({"n1"} if operator == "In" else {"n2"})


# ---- disks ----

ISCSI = {"iscsi": {"iqn": "iqn.2001-04.com.example:storage", "targetPortal": "10.0.0.1:3260", "lun": 0}}
GCE = {"gcePersistentDisk": {"pdName": "data"}}
EBS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
RBD = {"rbd": {"monitors": ["10.0.0.1:6789", "10.0.0.2:6789"], "image": "data"}}


def with_more(volume: Json, **fields: Any) -> Json:
    ((kind, source),) = volume.items()
    return {kind: source | fields}


def only_read(volume: Json) -> Json:
    return with_more(volume, readOnly=True)


@pytest.mark.parametrize(
    ("there", "asked", "taken"),
    [
        (ISCSI, ISCSI, False),
        (ISCSI, with_more(ISCSI, lun=7), False),
        (ISCSI, with_more(ISCSI, iqn="iqn.2001-04.com.example:other"), True),
        (only_read(ISCSI), only_read(ISCSI), True),
        (ISCSI, only_read(ISCSI), False),
        (GCE, GCE, False),
        (only_read(GCE), only_read(GCE), True),
        (GCE, with_more(GCE, pdName="other"), True),
        (EBS, EBS, False),
        (only_read(EBS), only_read(EBS), False),
        (RBD, RBD, False),
        (RBD, with_more(RBD, monitors=["10.0.0.2:6789"]), False),
        (RBD, with_more(RBD, monitors=["10.0.0.3:6789"]), True),
        (RBD, with_more(RBD, pool="rbd"), False),
        (RBD, with_more(RBD, pool="fast"), True),
        (only_read(RBD), only_read(RBD), True),
        (GCE, EBS, True),
    ],
)
def test_two_pods_do_not_mount_one_disk_on_a_node(there: Json, asked: Json, taken: bool) -> None:
    volumes = [[{"name": "v", **volume}] for volume in (there, asked)]
    seen = Watched(node("n1"), pod("there", "n1", volumes=volumes[0]), pod("it", namespace="b", volumes=volumes[1]))
    assert bool(seen.feasible("it", "b")) is taken
    assert taken or seen.answer("it") == "0/1 nodes are available: 1 node(s) had no available disk"


@pytest.mark.parametrize(("tainted", "taken"), [(False, set()), (True, {"n1"})])
def test_a_cordoned_node_is_a_domain_of_spread_until_its_taint_says_that_it_is_not(
    tainted: bool, taken: set[str]
) -> None:
    cordoned = node(
        "n2", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}] if tainted else []
    )
    cordoned["spec"]["unschedulable"] = True
    it = pod("it", labels={"app": "x"}, topologySpreadConstraints=[spread() | {"nodeTaintsPolicy": "Honor"}])
    assert Watched(node("n1"), cordoned, pod("a", "n1", labels={"app": "x"}), it).feasible("it") == taken
