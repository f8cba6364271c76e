"""The drivers of a cluster: which pods they do not run, which an upgrade would break, and in what order to upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from tonnage.cuda_fit import check, pods
from tonnage.cuda_fit import host as hosts
from tonnage.cuda_fit.check import Fit
from tonnage.cuda_fit.host import Host
from tonnage.cuda_fit.need import Need
from tonnage.facts import cuda as facts
from tonnage.objects import apps, core

_DONE = ("Succeeded", "Failed")


class GpuPod(Struct, frozen=True):
    """A pod with GPUs, or the template of a workload without pods. ``node``: empty where it is not bound. ``needs``:
    by container, of which something is known. ``fixed``: it belongs to its node and is not moved."""

    name: str
    node: str
    gpus: int
    needs: tuple[tuple[str, Need], ...]
    unknown: tuple[str, ...]
    fixed: bool = False

    def fits(self, host: Host) -> Fit | None:
        """Of the first container that does not fit, else of the first where that is not known, else of any; None for a
        pod of whose images nothing is known."""
        found = [_fit(need, host) for _, need in self.needs]
        return next((fit for wanted in (False, None, True) for fit in found if fit.fits is wanted), None)


class GpuNode(Struct, frozen=True):
    """A node with a GPU. ``gpus``: how many GPUs, slices or shares it can hand out."""

    name: str
    host: Host
    gpus: int
    pods: tuple[GpuPod, ...]


class Cluster(Struct, frozen=True):
    """Nodes with GPUs by name, and the pods that stand on none of them."""

    nodes: tuple[GpuNode, ...]
    waiting: tuple[GpuPod, ...]


class Step(Struct, frozen=True):
    """One node's upgrade. ``breaks`` and ``mends``: (pod, why it does not run after, or did not before). ``moves``:
    pods that are drained, ``stranded`` those that ran and that no other node takes meanwhile, by driver, GPU and free
    GPUs; selectors, taints, CPU and memory are not looked at.
    ``refused``: why this node has to keep its driver; ``there``: it has this driver or a newer one already."""

    node: str
    before: Host
    after: Host
    breaks: tuple[tuple[str, str], ...] = ()
    mends: tuple[tuple[str, str], ...] = ()
    moves: tuple[str, ...] = ()
    stranded: tuple[str, ...] = ()
    refused: str = ""
    there: bool = False


@cache
def _fit(need: Need, host: Host) -> Fit:
    return check.fit(need, host)


def cluster(
    nodes: Sequence[core.Node], pods_: Sequence[core.Pod], workloads: Sequence[apps.Deployment] = ()
) -> Cluster:
    """What matters of a cluster's objects. Pods that have ended are left out; a Deployment stands for its pods where
    none of them is there."""
    gpu_pods = [_pod(pod) for pod in pods_ if pod.status.phase not in _DONE]
    names = [(pod.metadata.namespace, pod.metadata.name) for pod in pods_]
    for one in workloads:
        meta = one.metadata
        if not any(space == meta.namespace and name.startswith(f"{meta.name}-") for space, name in names):
            label = f"{meta.namespace or 'default'}/{meta.name}"
            gpu_pods.append(_made(label, "", one.spec.template.spec, False))
    there: dict[str, list[GpuPod]] = {}
    for made in sorted(filter(None, gpu_pods), key=lambda pod: pod.name):
        there.setdefault(made.node, []).append(made)
    found = []
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        amounts = core.amounts(node.status.allocatable)
        gpus = sum(amount for name, amount in amounts.items() if name.startswith(pods.RESOURCES))
        if gpus or hosts.has_gpu(node.metadata.labels):
            host = hosts.of_labels(node.metadata.labels)
            found.append(GpuNode(node.metadata.name, host, gpus, tuple(there.pop(node.metadata.name, ()))))
    waiting = sorted((pod for rest in there.values() for pod in rest), key=lambda pod: pod.name)
    return Cluster(tuple(found), tuple(waiting))


def refused(found: Cluster) -> list[tuple[GpuPod, Fit]]:
    """Pods on nodes that do not run them, by node and name."""
    answers = ((pod, pod.fits(node.host)) for node in found.nodes for pod in node.pods)
    return [(pod, fit) for pod, fit in answers if fit is not None and fit.fits is False]


def takers(pod: GpuPod, nodes: Sequence[GpuNode]) -> list[GpuNode]:
    """The nodes that run the pod, as far as is known, whatever is free on them."""
    return [node for node in nodes if node.gpus >= pod.gpus and not _is_no(pod.fits(node.host))]


def upgrade(found: Cluster, to: str) -> tuple[Step, ...]:
    """The steps to this driver, in order: first what breaks fewest pods, then strands fewest, then mends most, then
    moves fewest, then by name. Nodes that are there already or have to keep their driver come last.

    A step takes one node: it is drained, upgraded and gets its pods back. Raises InputError for what is no version."""
    steps = [_step(node, node.host.with_driver(to)) for node in found.nodes]
    ahead = {step.node: step for step in steps if not step.refused and not step.there}
    now = {node.name: node for node in found.nodes}
    alone = {name: _stranded(now[name], list(now.values())) for name in ahead}

    def order(name: str) -> tuple[int, int, int, int, str]:
        step = ahead[name]
        return len(step.breaks), len(alone[name]), -len(step.mends), len(step.moves), name

    ordered = []
    for name in sorted(ahead, key=order):
        step = ahead[name]
        stranded = _stranded(now[name], list(now.values()))
        ordered.append(_with_stranded(step, stranded))
        now[name] = GpuNode(name, step.after, now[name].gpus, now[name].pods)
    return (*ordered, *(step for step in steps if step.there), *(step for step in steps if step.refused))


def _step(node: GpuNode, after: Host) -> Step:
    before = node.host
    if before.driver is not None and after.driver is not None and facts.at_least(before.driver, after.driver):
        return Step(node.name, before, before, there=True)
    gpu = next(one for one in check.fit(Need(""), after).checks if one.name == "gpu")
    if gpu.fits is False:
        return Step(node.name, before, before, refused=gpu.reason)
    breaks, mends = [], []
    for pod in node.pods:
        was, will = pod.fits(before), pod.fits(after)
        if _is_no(will) and not _is_no(was):
            assert will is not None
            breaks.append((pod.name, will.reason))
        if _is_no(was) and not _is_no(will):
            assert was is not None
            mends.append((pod.name, was.reason))
    moves = tuple(pod.name for pod in node.pods if not pod.fixed)
    return Step(node.name, before, after, tuple(breaks), tuple(mends), moves)


def _with_stranded(step: Step, stranded: tuple[str, ...]) -> Step:
    return Step(step.node, step.before, step.after, step.breaks, step.mends, step.moves, stranded)


def _stranded(node: GpuNode, nodes: Sequence[GpuNode]) -> tuple[str, ...]:
    """Pods that the node runs and that find no other with free GPUs that runs them, the largest placed first."""
    moved = (pod for pod in node.pods if not pod.fixed and not _is_no(pod.fits(node.host)))
    free = {one.name: one.gpus - sum(pod.gpus for pod in one.pods) for one in nodes if one.name != node.name}
    left = []
    for pod in sorted(moved, key=lambda pod: (-pod.gpus, pod.name)):
        fitting = (one for one in nodes if free.get(one.name, 0) >= max(pod.gpus, 1) and not _is_no(pod.fits(one.host)))
        best = min(fitting, key=lambda one: (free[one.name], one.name), default=None)
        if best is None:
            left.append(pod.name)
        else:
            free[best.name] -= pod.gpus
    return tuple(sorted(left))


def _is_no(fit: Fit | None) -> bool:
    return fit is not None and fit.fits is False


def _pod(pod: core.Pod) -> GpuPod | None:
    meta = pod.metadata
    fixed = any(owner.kind in ("DaemonSet", "Node") for owner in meta.owner_references)
    return _made(f"{meta.namespace or 'default'}/{meta.name}", pod.spec.node_name, pod.spec, fixed)


def _made(name: str, node: str, spec: core.PodSpec, fixed: bool) -> GpuPod | None:
    asking = tuple(pods.gpu_containers(spec))
    if not asking:
        return None
    gpus = sum(amount for key, amount in core.pod_requests(spec).items() if key.startswith(pods.RESOURCES))
    needs = pods.needs(spec)
    known = {container for container, _ in needs}
    unknown = tuple(one.image for one in asking if one.name not in known)
    return GpuPod(name, node, gpus, needs, unknown, fixed)
