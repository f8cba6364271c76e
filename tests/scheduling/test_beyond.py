"""Pods that ask for what is not weighed here wait with the reason; they are never bound blindly."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tonnage.decisions import Bind, Wait
from tonnage.fleet.snapshot import Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core
from tonnage.scheduling import place

STRICT = place.Settings(strict=True)
NOTHING_ODD: dict[str, Any] = {"volumes": [{"name": "c", "hostPath": {"path": "/c"}}, {"name": "e", "emptyDir": {}}]}
CLAIMED: dict[str, dict[str, Any]] = {
    "a volume claim": {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]},
    "an ephemeral volume": {"volumes": [{"name": "d", "ephemeral": {"volumeClaimTemplate": {}}}]},
}


def _decide(written: dict[str, Any], settings: place.Settings) -> list[Any]:
    fleet = Fleet()
    fleet.add_node(FleetNode("node", {"cpu": 64_000, "memory": 2**40, "pods": 110}, {}))
    spec = msgspec.convert({"containers": [{"name": "main"}], **written}, core.PodSpec)
    fleet.add_pod(FleetPod("default", "pod", "uid", {}, spec))
    return place.decide(Snapshot(0, fleet), settings)


@pytest.mark.parametrize("written", CLAIMED.values(), ids=CLAIMED)
def test_a_pod_with_claims_of_which_nobody_knows_waits(written: dict[str, Any]) -> None:
    (decision,) = _decide(written, STRICT)
    assert isinstance(decision, Wait)
    assert "persistent volume claims" in decision.reason.verdict


@pytest.mark.parametrize("written", CLAIMED.values(), ids=CLAIMED)
def test_where_there_is_nobody_else_it_is_placed(written: dict[str, Any]) -> None:
    (decision,) = _decide(written, place.DEFAULTS)
    assert isinstance(decision, Bind)


@pytest.mark.parametrize("settings", [STRICT, place.DEFAULTS], ids=["strict", "alone"])
def test_a_pod_waits_whose_claims_on_devices_nobody_has_looked_at(settings: place.Settings) -> None:
    (decision,) = _decide({"resourceClaims": [{"name": "gpu"}]}, settings)
    assert isinstance(decision, Wait)
    assert decision.reason.verdict == "resource claims are not known here yet"


def test_volumes_of_the_node_are_no_reason_to_wait() -> None:
    (decision,) = _decide(NOTHING_ODD, STRICT)
    assert isinstance(decision, Bind)


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({}, {"pod-group-name": "train"}),
        ({"scheduling.x-k8s.io/pod-group": "train"}, {}),
        ({}, {"scheduling.k8s.io/group-name": "train"}),
        ({"kueue.x-k8s.io/pod-group-name": "train"}, {}),
    ],
)
def test_a_pod_of_a_group_that_is_not_known_is_never_bound_alone(
    labels: dict[str, str], annotations: dict[str, str]
) -> None:
    fleet = Fleet()
    fleet.add_node(FleetNode("node", {"cpu": 64_000, "memory": 2**40, "pods": 110}, {}))
    spec = msgspec.convert({"containers": [{"name": "main"}]}, core.PodSpec)
    fleet.add_pod(FleetPod("default", "pod", "uid", labels, spec, annotations=annotations))
    (decision,) = place.decide(Snapshot(0, fleet), STRICT)
    assert isinstance(decision, Wait)
    assert "group default/train" in decision.reason.verdict


@pytest.mark.parametrize(
    ("labels", "annotations", "project"),
    [
        ({}, {"pod-group-name": "train"}, "kai"),
        ({"scheduling.x-k8s.io/pod-group": "train"}, {}, "coscheduling"),
        ({"pod-group.scheduling.sigs.k8s.io/name": "train"}, {}, "coscheduling"),
        ({}, {"scheduling.k8s.io/group-name": "train"}, "volcano"),
        ({"kueue.x-k8s.io/pod-group-name": "train"}, {}, "kueue"),
    ],
)
def test_a_group_of_a_project_that_is_absent_is_no_group(
    labels: dict[str, str], annotations: dict[str, str], project: str
) -> None:
    fleet = Fleet()
    fleet.add_node(FleetNode("node", {"cpu": 64_000, "memory": 2**40, "pods": 110}, {}))
    spec = msgspec.convert({"containers": [{"name": "main"}]}, core.PodSpec)
    fleet.add_pod(FleetPod("default", "pod", "uid", labels, spec, annotations=annotations))
    others = frozenset({"kai", "coscheduling", "volcano", "kueue", "yunikorn"} - {project})
    (decision,) = place.decide(Snapshot(0, fleet, absent_groups=others), STRICT)
    assert isinstance(decision, Wait)
    (decision,) = place.decide(Snapshot(0, fleet, absent_groups=frozenset({project})), STRICT)
    assert isinstance(decision, Bind)
