"""A small world in which evictions take time: evicted pods leave for a while, and their controllers make new ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from builders import fleet, pod
from tonnage.decisions import Bind, Decision, Evict, Wait
from tonnage.fleet.gangs import Gang
from tonnage.fleet.snapshot import PodLife, Snapshot
from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects.base import ObjectMeta
from tonnage.objects.core import LabelSelector
from tonnage.objects.policy import PodDisruptionBudget, PodDisruptionBudgetSpec
from tonnage.scheduling import place


def budget(name: str = "budget", app: str = "web", **limits: Any) -> PodDisruptionBudget:
    """A PodDisruptionBudget over the pods with this label ``app`` (``min_available=2``)."""
    spec = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app}), **limits)
    return PodDisruptionBudget(
        api_version="policy/v1",
        kind="PodDisruptionBudget",
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=spec,
    )


def web(name: str, **fields: Any) -> FleetPod:
    """A pod with the label ``app: web`` and a controller."""
    return replace(pod(name, labels={"app": "web"}, **fields), owner="default/web")


@dataclass
class Cluster:
    """What a snapshot is made of, and what decisions do to it. ``gone``: names of the pods evicted so far, in order.

    ``prompt``: controllers make a new pod as soon as one starts to leave (a ReplicaSet), not when it is gone (a Job)."""

    fleet: Fleet
    gangs: dict[str, Gang] = field(default_factory=dict)
    budgets: tuple[PodDisruptionBudget, ...] = ()
    lives: dict[str, PodLife] = field(default_factory=dict)
    nominations: dict[str, str] = field(default_factory=dict)
    now_ns: int = 10**12
    gone: list[str] = field(default_factory=list)
    prompt: bool = False

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.now_ns,
            self.fleet,
            gangs=self.gangs,
            disruption_budgets=self.budgets,
            lives=self.lives,
            nominations=self.nominations,
        )

    def decide(self, **settings: Any) -> list[Decision]:
        """What the scheduler says."""
        return place.decide(self.snapshot, place.Settings(**settings))

    def apply(self, decisions: Iterable[Decision]) -> None:
        """Bind, nominate, and let those who are evicted start to leave."""
        for decision in decisions:
            key = f"{decision.target.namespace}/{decision.target.name}"
            if isinstance(decision, Bind):
                row = self.row(key)
                self.fleet.bind(row, self.fleet.node_by_name[decision.node.name], decision.devices)
                self.nominations.pop(key, None)
                self.lives[key] = PodLife(started_ns=self.now_ns)
            elif isinstance(decision, Wait):
                self.nominations.pop(key, None)
                if decision.nominated:
                    self.nominations[key] = decision.nominated
            elif isinstance(decision, Evict):
                assert not self.lives.get(key, PodLife()).leaving, f"{key} is evicted twice"
                self.lives[key] = replace(self.lives.get(key, PodLife()), leaving=True)
                self.gone.append(decision.pod.name)
                if decision.to:
                    self.nominations[key] = decision.to
                if self.prompt:
                    self._make_anew(self.fleet.pod(self.row(key)).spec)

    def step(self, **settings: Any) -> list[Decision]:
        """Decide and apply."""
        decisions = self.decide(**settings)
        self.apply(decisions)
        return decisions

    def let_go(self, *, again: bool = True, only: Iterable[str] | None = None) -> None:
        """Those who leave (``only`` these keys) are gone; ``again``: their controllers make such pods again."""
        leaving = [key for key, life in self.lives.items() if life.leaving]
        for key in leaving if only is None else only:
            row = self.row(key)
            spec = self.fleet.pod(row).spec
            self.fleet.remove_pod(row)
            del self.lives[key]
            self.nominations.pop(key, None)
            if again and not self.prompt:
                self._make_anew(spec)

    def _make_anew(self, spec: FleetPod) -> None:
        self.fleet.add_pod(replace(spec, name=f"{spec.name.partition('~')[0]}~{len(self.gone)}", uid=""))

    def row(self, key: str) -> int:
        """The pod's row."""
        namespace, _, name = key.partition("/")
        return self.fleet.pod_by_key[namespace, name]

    def where(self) -> dict[str, str]:
        """Pod → node, of the pods that stand and do not leave."""
        return {
            one.spec.name: self.fleet.node(one.node).spec.name
            for one in self.fleet.pods
            if one is not None and one.node >= 0 and not self.lives.get(one.key, PodLife()).leaving
        }


def cluster(
    *nodes: FleetNode,
    bound: dict[str, list[FleetPod]] | None = None,
    pods: Iterable[FleetPod] = (),
    gangs: Iterable[Gang] = (),
    **fields: Any,
) -> Cluster:
    """A world of these."""
    made = fleet(*nodes, bound=bound, pods=pods)
    return Cluster(made, {one.key: one for one in gangs}, **fields)


def victims(decisions: Iterable[Decision]) -> set[str]:
    """The pods to evict."""
    return {one.pod.name for one in decisions if isinstance(one, Evict)}


def nominated(decisions: Iterable[Decision]) -> dict[str, str]:
    """Pod → the node where room is being made for it."""
    return {one.pod.name: one.nominated for one in decisions if isinstance(one, Wait) and one.nominated}
