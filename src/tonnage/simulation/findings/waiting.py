"""Why simulated pods have no node: what whoever places pods and launches nodes said last, and who was preferred."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.control.scheduler import NAME
from tonnage.decisions import SOLD_OUT, Finding, Ref
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Failing, SimulatedPod
from tonnage.provisioning.explain import NO_OFFERING
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.result import DecisionRecord
from tonnage.units import NS_PER_S

SOON_NS = 60 * NS_PER_S
"""A pod that has waited no longer than this may still be placed: whoever launches nodes has not had its turn."""
PENDING, NO_STOCK = "pod-pending", "offerings-sold-out"
"""Rules of causes that no finding names: nobody had room for the pods; EC2 had none of the nodes that would."""
STOCK_HELP = "let the NodePool offer other instance types, zones or capacity types"


class Reasons:
    """Of a run until now."""

    def __init__(self, cluster: SimulatedCluster, recorder: Recorder) -> None:
        self._cluster, self._now_ns = cluster, cluster.now_ns
        self._coming = {ref.name for claim in cluster.cloud.claims.values() for ref in claim.launch.pods}
        self._last: dict[tuple[str, str], DecisionRecord] = {}
        self._sold_out: dict[str, DecisionRecord] = {}  # what the provisioner said when there was no offering left
        self._evicted: list[DecisionRecord] = []
        for record in recorder.decisions:
            if record.kind == "Wait":
                self._last[record.loop, record.target] = record
                if any(why.startswith(NO_OFFERING) for _, why, _ in record.alternatives):
                    self._sold_out[record.target] = record
            elif record.kind == "Evict" and record.outcome == "Applied":
                self._evicted.append(record)

    def pending(self, pod: SimulatedPod, blocker: Blocker | None, error: Finding | None) -> Failing | None:
        """Why the pod has no node; None of one that may get one soon."""
        if blocker is not None:
            return Failing(pod.created_ns, UNSCHEDULABLE, blocker.rule, blocker.message, event_of(blocker))
        if pod.name in self._coming or self._now_ns - pod.created_ns <= SOON_NS:
            return None
        placed = self._last.get((NAME, _target(pod)))
        event = f"FailedScheduling: {placed.verdict}" if placed is not None else ""
        if error is not None:
            return Failing(pod.created_ns, UNSCHEDULABLE, error.rule, error.message, event)
        rule = NO_STOCK if self.stock(pod) else PENDING
        return Failing(pod.created_ns, UNSCHEDULABLE, rule, self.told(pod) or "no node has been found for it", event)

    def told(self, pod: SimulatedPod) -> str:
        """What was said last of the pod by whoever places pods, launches nodes and sells them; empty where nobody
        spoke."""
        records = (record for (_, about), record in self._last.items() if about == _target(pod))
        said = sorted(records, key=lambda record: record.loop != NAME)
        return "; ".join(dict.fromkeys((*map(_told, said), *filter(None, (self.stock(pod),)))))

    def stock(self, pod: SimulatedPod) -> str:
        """That EC2 had none of the nodes that would take the pod; empty where it had some, or nobody asked."""
        if _target(pod) not in self._sold_out:
            return ""
        refused = [e for e in self._cluster.events.rows.values() if e.reason == SOLD_OUT and e.t_ns >= pod.created_ns]
        if not refused:
            return ""
        first, last = refused[0].t_ns, refused[-1].t_ns
        return f"{SOLD_OUT}: EC2 refused {len(refused)} launches from {clock(first)} to {clock(last)}"

    def never_ready(self, pods: list[SimulatedPod]) -> Failing | None:
        """Why none of these has been Ready until now though one is on its way: no node could be launched for them."""
        for pod in pods:
            record, stock = self._sold_out.get(_target(pod)), self.stock(pod)
            if record is not None and stock:
                return Failing(pod.created_ns, UNSCHEDULABLE, NO_STOCK, f"{_told(record)}; {stock}", stock)
        return None

    def preempted(self, pod: SimulatedPod) -> str:
        """Which pod was preferred to this one, or to the one in whose place it was made; empty for none."""
        same = {_target(pod)} if pod.workload.controller is not None else set(self._replaced(pod))
        for record in reversed(self._evicted):
            if record.target in same:
                return f"{record.verdict} at {clock(int(record.t_s * NS_PER_S))}"
        return ""

    def _replaced(self, pod: SimulatedPod) -> Iterator[str]:
        """Pods of the same Deployment that were evicted when this one was made."""
        begins = str(Ref("Pod", f"{pod.workload.name}-", pod.namespace))
        for record in self._evicted:
            if record.target.startswith(begins) and abs(record.t_s - pod.created_ns / NS_PER_S) < 2e-3:
                yield record.target


def event_of(blocker: Blocker) -> str:
    """What kubectl shows of it: the reason, and the message."""
    return ": ".join(part for part in (blocker.reason, blocker.said) if part)


def clock(t_ns: int) -> str:
    """Hours, minutes and seconds since the run began."""
    seconds = t_ns // NS_PER_S
    return f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def _target(pod: SimulatedPod) -> str:
    return str(Ref("Pod", pod.name, pod.namespace))


def _told(record: DecisionRecord) -> str:
    """The verdict, with the first reason why there was no alternative."""
    why = f" ({record.alternatives[0][0]}: {record.alternatives[0][1]})" if record.alternatives else ""
    return record.verdict + why
