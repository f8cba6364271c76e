"""What a real cluster did with the sets of manifests (tests/e2e/test_sets_of_manifests.py), and what it is expected to."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml_text
from health.broken_sets import BrokenSet

RECORD = Path(__file__).with_name("real_cluster.yaml")
REFUSED, UNSCHEDULABLE, GATED, LEFT, BOUND = "refused", "unschedulable", "gated", "left alone", "bound"
PART = "in part"
"""Its pods are not made; no node takes one; a gate holds one; nobody says anything of one; all are bound; some are, of
others it is said why not."""

BUILT_IN = ("v1", "apps/v1", "batch/v1", "policy/v1", "autoscaling/v2", "scheduling.k8s.io/v1", "node.k8s.io/v1")
BUILT_IN += ("storage.k8s.io/v1", "resource.k8s.io/v1")


def left_out(one: BrokenSet) -> str:
    """Why a plain control plane says nothing of the set; empty where it does."""
    objects, scenario = one.parts()
    if not scenario or not scenario.get("fleet", {}).get("nodes"):
        return "it has no nodes, or those of a NodePool, and nobody makes them"
    foreign = [o["kind"] for o in objects if o["apiVersion"] not in BUILT_IN]
    return f"its {foreign[0]} needs a controller of its own" if foreign else ""


@cache
def recorded() -> dict[str, dict[str, Any]]:
    """By the name of a set: ``outcome``, and what was ``said``."""
    return (yaml_text.load(RECORD.read_text()) or {}) if RECORD.exists() else {}


def expected(one: BrokenSet) -> tuple[str, ...]:
    """How far the set may come. Volumes that are to be made first are waited for, as nobody here makes any; pods of
    another scheduler are left to it. Where a set has other workloads than the one that is broken, these run."""
    objects, _ = one.parts()
    text = yaml_text.dump(objects)
    late = (LEFT, UNSCHEDULABLE) if any(word in text for word in _CLAIMS) else ()
    alone = (LEFT,) if "schedulerName" in text else ()
    if not one.expect or one.expect.get("some"):
        return (BOUND, PART, *late, *alone)
    match one.expect["stage"]:
        case "refused":
            return (REFUSED, PART)
        case "unschedulable":
            return (UNSCHEDULABLE, GATED, LEFT, PART)
    return (BOUND, *late)


def as_recorded(one: BrokenSet, outcome: str) -> bool:
    """Whether that is what was recorded. Of a set with claims that nobody makes volumes for, it depends on whether the
    scheduler saw the claim before the pod if it says so or waits for the volume in silence."""
    known = recorded()[one.name]["outcome"]
    return outcome == known or {outcome, known} == {LEFT, UNSCHEDULABLE} <= set(expected(one))


_CLAIMS = ("PersistentVolumeClaim", "volumeClaimTemplate")
"""What says that a set has volumes to be made."""
