"""The API server's admission in the simulated cluster: pods that it refuses are not made, and tried again later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tonnage.health.blocker import REFUSED
from tonnage.machines.blocked import of_workload
from tonnage.machines.events import Later
from tonnage.machines.objects import CreationBackoff, Workload
from tonnage.machines.site import Site
from tonnage.objects import core
from tonnage.workloads.admission.refused import POD_SECURITY, VALIDATION, AdmissionRefusal


def over_quota(cluster: Site, namespace: str, spec: core.PodSpec) -> AdmissionRefusal | None:
    """What a quota says to one more pod of this completed spec; None where all let it in."""
    admission = cluster.declared.admission
    if not admission.quotas(namespace):
        return None
    used = admission.in_use(namespace, _specs(cluster, namespace))
    return next(iter(admission.over_quota(namespace, spec, used)), None)


def _as_found(cluster: Site, workload: Workload, name: str) -> AdmissionRefusal | None:
    """Why the API server refuses every pod, where that was found in the files; quotas count the pods that there are."""
    found = (b for b in of_workload(cluster, workload, name) if b.stage == REFUSED and not b.rule.startswith("quota"))
    for one in found:
        said = one.said or one.message
        forbidden = said.partition("is forbidden: ")[2]
        return AdmissionRefusal(POD_SECURITY, forbidden, "") if forbidden else AdmissionRefusal(VALIDATION, said, "")
    return None


def _specs(cluster: Site, namespace: str) -> Iterator[core.PodSpec]:
    """Of the pods that a quota of the namespace counts: those of nodes that DaemonSets have among them."""
    fleet = cluster.fleet
    return (pod.spec.spec for pod in filter(None, fleet.pods) if pod.spec.namespace == namespace)


@dataclass(slots=True)
class TryAgain:
    """The controller looks at its pods again."""

    refusals: CreationBackoff
    again: Callable[[Site], None]

    def handle(self, cluster: Site) -> Later:
        self.refusals.waits = False
        self.again(cluster)
        return ()


def refused(
    cluster: Site,
    workload: Workload,
    owner: str,
    spec: core.PodSpec,
    ever: AdmissionRefusal | None,
    name: str,
    again: Callable[[Site], None],
) -> bool:
    """Whether one more pod is refused: then an event of its ``owner`` says so, and ``again`` is called later.

    ``ever``: why no pod of this spec is ever admitted, whatever others there are."""
    why = ever or _as_found(cluster, workload, name) or over_quota(cluster, workload.namespace, spec)
    if why is None:
        cluster.declared.refusals.pop(owner, None)
        return False
    known = cluster.declared.refusals.setdefault(owner, CreationBackoff())
    if not known.waits:
        known.waits = True
        short = workload.name.rpartition("/")[2]
        said = f"Error creating: {why.sentence(name, f'{short}-')}"
        if workload.stateful is not None:
            said = f"create Pod {name} in StatefulSet {short} failed error: {why.sentence(name, name)}"
        cluster.events.add(cluster.now_ns, owner, "Warning", "FailedCreate", said)
        cluster.queue.push(cluster.now_ns + known.next_ns(), TryAgain(known, again))
    return True
