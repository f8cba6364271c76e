"""Random gangs on a cluster with too little room, whose scheduler's calls fail and whose process dies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from live.contract.faulty import Rates
from live.gangs.gang_cluster import KINDS_OF_GANGS, GangCluster
from tonnage.scheduling.gangs.release import Patience

STORM = Rates(
    write={
        "conflict": 0.05,
        "invalid": 0.03,
        "error": 0.04,
        "throttled": 0.03,
        "unreachable": 0.04,
        "lost-undone": 0.03,
        "lost-done": 0.06,
        "crash-before": 0.005,
        "crash-after": 0.015,
    },
    read={"error": 0.1, "unreachable": 0.1},
)
ALIVE = 8
"""Gangs at a time."""


@dataclass(slots=True)
class Storm:
    """What a storm was like. ``in_part``: ticks after which a gang was bound in part."""

    gangs: int = 0
    whole: int = 0
    in_part: int = 0
    evicted: int = 0
    restarts: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, other: Storm) -> None:
        self.gangs += other.gangs
        self.whole += other.whole
        self.in_part += other.in_part
        self.evicted += other.evicted
        self.restarts += other.restarts
        self.kinds += other.kinds
        self.faults += other.faults


def storm(seed: int, gangs: int) -> Storm:
    """This many gangs come and go; at the end all is calm, and none may be bound in part."""
    cluster, met = GangCluster(seed), Storm()
    rng = cluster.rng
    try:
        for number in range(rng.randint(2, 4)):
            cluster.node(f"n{number}", rng.randint(1, 3))
        cluster.faulty.rates = STORM
        seen_whole: set[str] = set()
        while met.gangs < gangs or len(cluster.gangs) > ALIVE // 2:
            if met.gangs < gangs and len(cluster.gangs) < ALIVE and rng.random() < 0.7:
                kind = rng.choice(KINDS_OF_GANGS)
                cluster.gang(kind, rng.randint(2, 4), f"g{met.gangs}")
                met.gangs += 1
                met.kinds[kind] += 1
            whole = [name for name, n in cluster.bound().items() if n == len(cluster.gangs[name])]
            seen_whole |= set(whole)
            if whole and rng.random() < 0.4:
                cluster.end(rng.choice(whole))
            elif len(cluster.gangs) >= ALIVE and rng.random() < 0.2:
                cluster.end(rng.choice(sorted(cluster.gangs)))  # somebody gives up
            if met.gangs >= gangs and rng.random() < 0.1:
                cluster.end(rng.choice(sorted(cluster.gangs)))
            if cluster.intruders and rng.random() < 0.05:
                cluster.leave(rng.choice(cluster.intruders))
            cluster.go(rng.choice((1, 5, 20, 60)), step_s=10)
            if cluster.in_part():
                met.in_part += 1
                if rng.random() < 0.8:
                    cluster.intrude(f"other-{met.in_part}")
        rest(cluster)
        met.whole, met.evicted, met.restarts = len(seen_whole), cluster.evicted, cluster.restarts
        met.faults = Counter(fault.split()[0] for fault in cluster.faulty.made)
        return met
    finally:
        cluster.stop()


def rest(cluster: GangCluster) -> None:
    """The faults are over. After a while no gang is bound in part, and none waits that would fit."""
    cluster.faulty.calm()
    patience = Patience()
    cluster.go((patience.never_whole_ns + patience.was_whole_ns) / 1e9 + 180, step_s=60)
    assert cluster.in_part() == {}
    bound, gpus = cluster.bound(), _gpus(cluster)
    free = gpus - sum(bound.values()) - len(cluster.intruders)
    waiting = [len(cluster.gangs[name]) for name, n in bound.items() if n == 0]
    assert not waiting or min(waiting) > free, "a gang waits, and there is room for it"


def _gpus(cluster: GangCluster) -> int:
    fleet = cluster.world.fleet
    return sum(fleet.allocatable_of(row).get("nvidia.com/gpu", 0) for row in fleet.node_by_name.values())
