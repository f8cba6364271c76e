"""Whether a pod fits on a node, as kube-scheduler's filters have it: what is only preferred has no say.

Source: kubernetes/autoscaler cluster-autoscaler simulator/clustersnapshot/predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from tonnage.decisions import Ref
from tonnage.objects import selectors
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.explain import amount_text, taint_text
from tonnage.provisioning.load import Stage
from tonnage.provisioning.node_groups import broken
from tonnage.provisioning.plans import PlanSettings
from tonnage.provisioning.pod_classes import AlikePods, Attempt, PodClasses
from tonnage.provisioning.pods import BoundPod, ExistingNode, PendingPod
from tonnage.provisioning.standing import StandingNode
from tonnage.provisioning.topology import PodTopology, Verdict


class Fitting:
    """Pending pods and nodes that are there, with what rules about other pods make of them."""

    def __init__(
        self,
        catalogue: Catalogue,
        settings: PlanSettings,
        bound: Iterable[BoundPod],
        pods: Sequence[PendingPod],
        nodes: Sequence[ExistingNode],
    ) -> None:
        """``bound``: pods on nodes. Nodes on their way are nodes like others."""
        settings = msgspec.structs.replace(settings, bound=tuple(bound), preferences=False)
        there = [as_node(one) for one in nodes if not one.deleted]
        self._topology = PodTopology(catalogue, (), there, settings)
        self._classes = PodClasses(catalogue, settings, self._topology, pods, relax_taints=True)
        for pod in pods:
            self._classes.of(pod)
        self._classes.met()
        for node in there:
            self._topology.join(node)

    def alike(self, pod: PendingPod) -> AlikePods:
        """The pod's class."""
        return self._classes.of(pod)

    def attempts(self, pods: AlikePods) -> list[Attempt]:
        """The ways in which such a pod may be placed; none where nothing places it."""
        return [] if pods.refused is not None else list(pods.all_attempts(self._topology))

    def join(self, node: ExistingNode) -> StandingNode:
        """The node is there from now on."""
        self._topology.join(node)
        return StandingNode(node)

    def put(self, node: StandingNode, attempts: Sequence[Attempt]) -> bool:
        """Put such a pod on the node if it fits there."""
        return any(self._put(node, attempt) for attempt in attempts)

    def _put(self, node: StandingNode, attempt: Attempt) -> bool:
        stage = attempt.stage
        wanted = None if node.full(stage) else node.wanted(stage)
        if wanted is None or self._topology.on_host(attempt.rules, node.host) is not Verdict.YES:
            return False
        narrowed = self._topology.narrowed(attempt.rules, wanted)
        if narrowed is None or not node.add(stage, wanted, narrowed):
            return False
        self._topology.record(attempt.peers, node.taints, node.requirements, node.host)
        return True


def has_room(node: StandingNode, attempts: Iterable[Attempt]) -> bool:
    """Whether it would take such a pod, rules about other pods aside."""
    return any(not node.full(one.stage) and node.wanted(one.stage) is not None for one in attempts)


def unfit(node: ExistingNode, stage: Stage) -> str:
    """Why a node without pods takes no such pod, rules about other pods aside; empty where it does."""
    taint = selectors.untolerated(node.taints, stage.step.tolerations, selectors.HARD_EFFECTS)
    if taint is not None:
        return f"did not tolerate taint {taint_text(taint)}"
    unmet = broken(stage.step.requirements, node.labels)
    if unmet is not None:
        return f"its nodes do not meet {unmet}"
    short = [
        f"{name} {amount_text(name, amount)} > {amount_text(name, max(0, node.free.get(name, 0)))}"
        for name, amount in sorted(stage.amounts.items())
        if amount > node.free.get(name, 0)
    ]
    return f"its machines are too small: {', '.join(short)}" if short else ""


def as_node(node: ExistingNode) -> ExistingNode:
    """A machine on its way counts as a node, also where pods spread."""
    if node.ref.kind == "Node":
        return node
    name = node.ref.name
    return msgspec.structs.replace(node, ref=Ref("Node", name), labels={labels.HOSTNAME: name, **node.labels})


def bound(pod: PendingPod, node: str) -> BoundPod:
    """The pod on a node, as rules about other pods see it."""
    return BoundPod(pod.ref.namespace, node, pod.labels, pod.shape.pod_anti_affinity, 1, pod.shape.tolerations)


def expected(
    fitting: Fitting, pods: Sequence[PendingPod], nodes: Sequence[StandingNode]
) -> Iterator[tuple[PendingPod, StandingNode | None]]:
    """Each pod with the first node on which it fits, None where none does."""
    for pod in pods:
        attempts = fitting.attempts(fitting.alike(pod))
        yield pod, next((node for node in nodes if fitting.put(node, attempts)), None)
