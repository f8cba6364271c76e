"""What `tonnage cuda fleet` says, as plain data."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tonnage.cuda_fit import fleet as fleets
from tonnage.cuda_fit import remedy
from tonnage.cuda_fit.fleet import Cluster, GpuPod
from tonnage.cuda_fit.host import Host
from tonnage.facts.cuda import cuda_text
from tonnage.fleet.outfit import cards_of

SCHEMA = "tonnage.dev/cuda-fleet/v1"


def report(found: Cluster, to: str = "") -> dict[str, Any]:
    """Drivers, pods that do not run where they are, pods that no node runs and, with ``to``, the steps of an upgrade.

    Raises InputError where ``to`` is not a version."""
    by_name = {node.name: node for node in found.nodes}
    refused = [
        {
            "pod": pod.name,
            "node": pod.node,
            "reason": fit.reason,
            "remedies": [one.text for one in _remedies(pod, by_name[pod.node].host)],
        }
        for pod, fit in fleets.refused(found)
    ]
    made: dict[str, Any] = {
        "schema": SCHEMA,
        "nodes": len(found.nodes),
        "drivers": _drivers(found),
        "refused": refused,
        "waiting": [_waiting(pod, found) for pod in found.waiting],
        "unknown_images": _unknown(found),
    }
    if to:
        steps = fleets.upgrade(found, to)
        made["upgrade"] = {"to": to, "steps": [_step(one) for one in steps]}
    return made


def answers(made: dict[str, Any]) -> list[bool | None]:
    """What decides about the exit code: False for each pod that does not run, None for images that are not known."""
    found: list[bool | None] = [None] * len(made["unknown_images"])
    if "upgrade" not in made:
        found += [False] * len(made["refused"]) + [False for one in made["waiting"] if not one["nodes"]]
        return found
    steps = made["upgrade"]["steps"]
    mended = {pod["pod"] for step in steps for pod in step["mends"]}
    found += [False for one in made["refused"] if one["pod"] not in mended]
    found += [False for step in steps for _ in (*step["breaks"], *step["stranded"])]
    return found + [False for step in steps if step["refused"]]


def _drivers(found: Cluster) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str, str, str], list[fleets.GpuNode]] = {}
    for node in found.nodes:
        host = node.host
        key = (
            host.written or "not known",
            cuda_text(host.cuda) if host.cuda else "",
            host.gpu,
            cuda_text(host.arch) if host.arch else "",
        )
        groups.setdefault(key, []).append(node)
    return [
        {
            "driver": key[0],
            "cuda": key[1] or None,
            "gpu": key[2] or None,
            "arch": key[3] or None,
            "nodes": len(nodes),
            "gpus": sum(cards_of(node.labels, node.gpus) for node in nodes),
            "pods": sum(len(node.pods) for node in nodes),
        }
        for key, nodes in sorted(groups.items(), key=lambda item: (_order(item[1][0].host), item[0]))
    ]


def _order(host: Host) -> tuple[int, ...]:
    return host.driver or ()


def _remedies(pod: GpuPod, host: Host) -> tuple[remedy.Remedy, ...]:
    return next((texts for _, need in pod.needs if (texts := remedy.remedies(need, host))), ())


def _waiting(pod: GpuPod, found: Cluster) -> dict[str, Any]:
    reasons = Counter(why for node in found.nodes if (why := fleets.why_not(pod, node)))
    return {
        "pod": pod.name,
        "nodes": len(found.nodes) - reasons.total(),
        "reasons": [{"reason": text, "nodes": count} for text, count in sorted(reasons.items())],
    }


def _unknown(found: Cluster) -> list[str]:
    everywhere = (*(pod for node in found.nodes for pod in node.pods), *found.waiting)
    return sorted({image for pod in everywhere for image in pod.unknown})


def _step(one: fleets.NodeUpgrade) -> dict[str, Any]:
    return {
        "node": one.node,
        "from": one.before.written or None,
        "to": one.after.written or None,
        "gpu": one.before.gpu or None,
        "breaks": [{"pod": pod, "reason": reason} for pod, reason in one.breaks],
        "mends": [{"pod": pod, "reason": reason} for pod, reason in one.mends],
        "moves": list(one.moves),
        "stranded": list(one.stranded),
        "refused": one.refused,
        "there": one.there,
    }
