"""Gangs that come, grow, finish and lose nodes at random, under the invariants that always hold."""

from __future__ import annotations

from random import Random
from typing import Any

from builders import ZONE, apply, node, pod
from gang_builders import RACK, gang, member, part, snapshot
from random_clusters import columns
from tonnage.decisions import Bind
from tonnage.fleet.gangs import Gang
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import Fleet
from tonnage.scheduling import place

RULES: tuple[dict[str, Any], ...] = (
    {},
    {"required": RACK},
    {"required": ZONE, "preferred": RACK},
    {"preferred": RACK},
    {"required": ZONE, "slice_size": 2, "slice_required": RACK},
    {"unconstrained": True},
)


class Life:
    """One fleet over time. ``whole``: gangs that have had their minimum, which a lost node may take from them again."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.fleet = Fleet()
        self.gangs: dict[str, Gang] = {}
        self.cache = place.Cache(self.fleet)
        self.made = 0
        self.bound = 0
        for _ in range(rng.randint(3, 8)):
            self.add_node()

    def step(self) -> None:
        """One thing happens, the scheduler decides, the decision takes effect; everything is checked."""
        self.rng.choice(
            (
                self.add_gang,
                self.add_gang,
                self.add_pod,
                self.grow,
                self.finish,
                self.lose_node,
                self.add_node,
                self.cordon,
            )
        )()
        known = snapshot(self.fleet, *self.gangs.values())
        settings = place.Settings(policy="binpack", preemption=False)
        before = columns(self.fleet)
        standing = {key: self._standing(key) for key in self.gangs}
        decisions = place.decide(known, settings, self.cache)
        assert columns(self.fleet) == before, "a decision left a trace"
        apply(self.fleet, decisions)
        self.bound += sum(isinstance(d, Bind) for d in decisions)
        assert violations(self.fleet) == []
        for key, gang_ in self.gangs.items():
            now = self._standing(key)
            if now > standing[key]:
                self._check(gang_)

    def _standing(self, key: str) -> int:
        return sum(self.fleet.pod(row).node >= 0 for row in self.fleet.gang_pods.get(key, ()))

    def _check(self, known: Gang) -> None:
        """A gang of which pods were bound is whole, and they keep what its rules require."""
        pods = [self.fleet.pod(row) for row in self.fleet.gang_pods[known.key]]
        there = [pod for pod in pods if pod.node >= 0]
        assert len(there) >= known.min_member, f"partial gang: {known}"
        for one in known.subgroups:
            mine = [pod for pod in there if pod.spec.subgroup == one.name]
            assert len(mine) >= one.min_member, f"half a subgroup: {one}"
            self._one_domain(one.rule.required, mine)
        self._one_domain(known.rule.required, there)

    def _one_domain(self, level: str, pods: list[Any]) -> None:
        if level:
            labels = [self.fleet.node(pod.node).labels for pod in pods]
            assert len({(one.get(ZONE), one[level]) for one in labels}) <= 1

    # ---- what happens ----

    def _name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}-{self.made}"

    def add_node(self) -> None:
        if len(self.fleet.node_by_name) < 10:
            zone, rack = f"z{self.rng.randrange(2)}", f"r{self.rng.randrange(3)}"
            gpus = self.rng.choice((1, 2, 4, 4))
            self.fleet.add_node(node(self._name("n"), cpu=8, gpus=gpus, zone=zone, labels={RACK: rack}))

    def add_pod(self) -> None:
        self.fleet.add_pod(pod(self._name("p"), gpus=self.rng.randrange(3)))

    def add_gang(self) -> None:
        if len(self.gangs) >= 6:
            return
        key = f"default/{self._name('g')}"
        size, rule = self.rng.randint(1, 6), self.rng.choice(RULES)
        parts = [part("a", self.rng.randint(0, 2)), part("b", self.rng.randint(0, 2), required=RACK)]
        parts = parts if self.rng.random() < 0.4 else []
        names = [one.name for one in parts] or [""]
        created = self.made
        self.gangs[key] = gang(size, *parts, key=key, priority=self.rng.randrange(3), created_ns=created, **rule)
        for _ in range(size + self.rng.randrange(3)):
            self._add_member(key, self.rng.choice(names))

    def _add_member(self, key: str, subgroup: str) -> None:
        gpus = self.rng.choice((0, 1, 1, 2))
        self.fleet.add_pod(member(self._name("m"), key, subgroup, gpus=gpus))

    def grow(self) -> None:
        if self.gangs:
            key = self.rng.choice(sorted(self.gangs))
            names = [one.name for one in self.gangs[key].subgroups] or [""]
            self._add_member(key, self.rng.choice(names))

    def finish(self) -> None:
        """A whole gang ends, or one pod."""
        if self.gangs and self.rng.random() < 0.6:
            key = self.rng.choice(sorted(self.gangs))
            for row in list(self.fleet.gang_pods.get(key, ())):
                self.fleet.remove_pod(row)
            del self.gangs[key]
        elif self.fleet.pod_by_key:
            self.fleet.remove_pod(self.fleet.pod_by_key[self.rng.choice(sorted(self.fleet.pod_by_key))])

    def lose_node(self) -> None:
        """A node dies; its pods are made again, with new names."""
        if len(self.fleet.node_by_name) < 3 or self.rng.random() < 0.5:
            return
        row = self.fleet.node_by_name[self.rng.choice(sorted(self.fleet.node_by_name))]
        for there in sorted(self.fleet.node(row).pods):
            spec = self.fleet.pod(there).spec
            gpus = self.fleet.pod_class(there).requests.get("nvidia.com/gpu", 0)
            self.fleet.remove_pod(there)
            if spec.gang in self.gangs:
                self.fleet.add_pod(member(self._name("m"), spec.gang, spec.subgroup, gpus=gpus))
        self.fleet.remove_node(row)

    def cordon(self) -> None:
        if self.fleet.node_by_name:
            row = self.fleet.node_by_name[self.rng.choice(sorted(self.fleet.node_by_name))]
            self.fleet.set_schedulable(row, not self.fleet.schedulable[row])
