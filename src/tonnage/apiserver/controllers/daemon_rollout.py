"""The next step of a DaemonSet's rolling update. Pure.

Source of behaviour: kubernetes/kubernetes v1.36 pkg/controller/daemon/update.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tonnage.apiserver.controllers.meta import is_deleting, pod_is_available, spec_of
from tonnage.kube.verbs import JsonObject
from tonnage.objects.policy import scaled

if TYPE_CHECKING:
    from tonnage.workloads.daemons import DaemonFit


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Pods to delete, and nodes to make one more pod for."""

    delete: tuple[JsonObject, ...] = ()
    create: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pair:
    new: JsonObject | None
    old: JsonObject | None


def surges(daemon_set: JsonObject) -> bool:
    """Whether a node may have two pods during an update."""
    return _limits(daemon_set, 1)[0] > 0


def plan(
    daemon_set: JsonObject,
    fits: Mapping[str, DaemonFit],
    by_node: Mapping[str, Sequence[JsonObject]],
    value: str,
    now: float,
    is_updated: Callable[[JsonObject, JsonObject, str], bool],
) -> RolloutPlan:
    """What an update may do now within maxSurge and maxUnavailable; nodes in the order of their names."""
    surge, unavailable = _limits(daemon_set, sum(judged.run for judged in fits.values()))
    min_ready = int(spec_of(daemon_set).get("minReadySeconds") or 0)
    pairs = {node: _pair(by_node[node], lambda pod: is_updated(daemon_set, pod, value)) for node in sorted(by_node)}

    def available(pod: JsonObject) -> bool:
        return pod_is_available(pod, min_ready, now)

    return _surge(pairs, fits, surge, available) if surge else _replace(pairs, unavailable, available)


def _limits(daemon_set: JsonObject, wanted: int) -> tuple[int, int]:
    """maxSurge and maxUnavailable as numbers, both rounded up; one unavailable where both are nothing."""
    strategy = spec_of(daemon_set).get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return 0, 0
    rolling = strategy.get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge", 0), wanted, up=True)
    unavailable = scaled(rolling.get("maxUnavailable", 1), wanted, up=True)
    return (0, 1) if surge == 0 and unavailable == 0 else (surge, unavailable)


def _pair(pods: Sequence[JsonObject], is_updated: Callable[[JsonObject], bool]) -> _Pair | None:
    """The old and the new pod of a node; None when there are several of one sort."""
    alive = [pod for pod in pods if not is_deleting(pod)]
    new = [pod for pod in alive if is_updated(pod)]
    old = [pod for pod in alive if not is_updated(pod)]
    if len(new) > 1 or len(old) > 1:
        return None
    return _Pair(new[0] if new else None, old[0] if old else None)


def _replace(pairs: Mapping[str, _Pair | None], limit: int, available: Callable[[JsonObject], bool]) -> RolloutPlan:
    """Without surge: old pods go that are not available, and as many others as the limit leaves."""
    missing = 0
    useless: list[JsonObject] = []
    candidates: list[JsonObject] = []
    for pair in pairs.values():
        if pair is None or (pair.new is None) == (pair.old is None):
            missing += 1
        elif pair.old is None:
            missing += pair.new is not None and not available(pair.new)
        elif not available(pair.old):
            useless.append(pair.old)
            missing += 1
        else:
            candidates.append(pair.old)
    return RolloutPlan(delete=(*useless, *candidates[: max(0, limit - missing)]))


def _surge(
    pairs: Mapping[str, _Pair | None],
    fits: Mapping[str, DaemonFit],
    limit: int,
    available: Callable[[JsonObject], bool],
) -> RolloutPlan:
    """With surge: a new pod beside the old one, which goes when the new one is available."""
    surging = count = 0
    delete: list[JsonObject] = []
    misplaced: list[JsonObject] = []
    allowed: list[str] = []
    candidates: list[str] = []
    for node, pair in pairs.items():
        if pair is None:
            surging += 1
            continue
        shown = pair.old or pair.new
        count += shown is not None and available(shown)
        if pair.old is None:
            continue
        if pair.new is not None:
            if available(pair.new):
                delete.append(pair.old)
            else:
                surging += 1
            continue
        should_run = node in fits and fits[node].run
        if available(pair.old):
            (candidates.append(node) if should_run else misplaced.append(pair.old))
        elif should_run:
            allowed.append(node)
        else:
            delete.append(pair.old)
    wanted = sum(judged.run for judged in fits.values())
    delete += misplaced[: max(0, count - wanted)]
    return RolloutPlan(tuple(delete), (*allowed, *candidates[: max(0, limit - surging)]))
