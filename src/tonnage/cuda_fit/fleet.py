"""The drivers of a cluster: which pods they do not run, which an upgrade would break, and in what order to upgrade."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tonnage.cuda_fit import check, pods
from tonnage.cuda_fit import host as hosts
from tonnage.cuda_fit.check import Fit
from tonnage.cuda_fit.host import Host
from tonnage.cuda_fit.need import Need
from tonnage.facts import cuda as facts
from tonnage.objects import apps, core, selectors


class GpuPod(Struct, frozen=True):
    """A pod with GPUs, or the template of a workload without pods. ``node``: empty where it is not bound. ``gpus``:
    how many GPUs, slices or shares it asks for, by the resource's name. ``needs``: by container, of which something is
    known. ``fixed``: it belongs to its node and is not moved."""

    name: str
    node: str
    gpus: dict[str, int]
    needs: tuple[tuple[str, Need], ...]
    unknown: tuple[str, ...]
    fixed: bool = False

    def fits(self, host: Host) -> Fit | None:
        """Of the first container that does not fit, else of the first where that is not known, else of any; None for a
        pod of whose images nothing is known."""
        found = [check.fit(need, host) for _, need in self.needs]
        return next((fit for wanted in (False, None, True) for fit in found if fit.fits is wanted), None)


class GpuNode(Struct, frozen=True):
    """A node with a GPU. ``gpus``: how many GPUs, slices or shares it can hand out, by the resource's name;
    ``labels``: the node's, which say how many cards that are."""

    name: str
    host: Host
    gpus: dict[str, int]
    pods: tuple[GpuPod, ...]
    labels: dict[str, str] = {}


class Cluster(Struct, frozen=True):
    """Nodes with GPUs by name, and the pods that stand on none of them."""

    nodes: tuple[GpuNode, ...]
    waiting: tuple[GpuPod, ...]


class NodeUpgrade(Struct, frozen=True):
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


def cluster(
    nodes: Sequence[core.Node], pods_: Sequence[core.Pod], workloads: Sequence[apps.Deployment] = ()
) -> Cluster:
    """What matters of a cluster's objects. Pods that have ended are left out; a Deployment stands for its pods where
    none of them is there."""
    gpu_pods = [_pod(pod) for pod in pods_ if pod.status.phase not in core.FINISHED]
    for one in workloads:
        meta = one.metadata
        own = (pod for pod in pods_ if pod.metadata.namespace == meta.namespace)
        there_are = any(selectors.matches(one.spec.selector, pod.metadata.labels) for pod in own)
        if one.spec.replicas and not there_are:
            label = f"{meta.namespace or 'default'}/{meta.name}"
            gpu_pods.append(_made(label, "", one.spec.template.spec, False))
    there: dict[str, list[GpuPod]] = {}
    for made in sorted(filter(None, gpu_pods), key=lambda pod: pod.name):
        there.setdefault(made.node, []).append(made)
    found = []
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        amounts = core.amounts(node.status.allocatable)
        gpus = pods.gpus_of(amounts)
        if gpus or hosts.has_gpu(node.metadata.labels):
            host = hosts.of_labels(node.metadata.labels)
            here = tuple(there.pop(node.metadata.name, ()))
            found.append(GpuNode(node.metadata.name, host, gpus, here, node.metadata.labels))
    waiting = sorted((pod for rest in there.values() for pod in rest), key=lambda pod: pod.name)
    return Cluster(tuple(found), tuple(waiting))


def refused(found: Cluster) -> list[tuple[GpuPod, Fit]]:
    """Pods on nodes that do not run them, by node and name."""
    answers = ((pod, pod.fits(node.host)) for node in found.nodes for pod in node.pods)
    return [(pod, fit) for pod, fit in answers if fit is not None and fit.fits is False]


def why_not(pod: GpuPod, node: GpuNode) -> str:
    """Why the node does not take the pod, whatever is free on it; empty where it does or too little is known."""
    fit = pod.fits(node.host)
    if fit is not None and fit.fits is False:
        return fit.reason
    for name, asked in pod.gpus.items():
        if (there := node.gpus.get(name, 0)) < asked:
            return f"the node has {there} {name}, the pod asks for {asked}"
    return ""


def upgrade(found: Cluster, to: str) -> tuple[NodeUpgrade, ...]:
    """The steps to this driver, in order: first what breaks fewest pods, then strands fewest, then fixes most, then
    moves fewest, then by name. Nodes that are there already or have to keep their driver come last.

    A step takes one node: it is drained, upgraded and gets its pods back. Raises InputError for what is not a
    version."""
    steps = [_step(node, node.host.with_driver(to)) for node in found.nodes]
    ahead = {step.node: step for step in steps if not step.refused and not step.there}
    now = {node.name: node for node in found.nodes}
    free = _free_by_node(found)
    alone = {name: _stranded([now[name]], now, free) for name in ahead}

    def order(name: str) -> tuple[int, int, int, int, str]:
        step = ahead[name]
        return len(step.breaks), len(alone[name]), -len(step.mends), len(step.moves), name

    ordered = []
    for name in sorted(ahead, key=order):
        step = ahead[name]
        stranded = _stranded([now[name]], now, free)
        ordered.append(_with_stranded(step, stranded))
        now[name] = replace(now[name], host=step.after)
    return (*ordered, *(step for step in steps if step.there), *(step for step in steps if step.refused))


def stranded(found: Cluster, names: Collection[str]) -> tuple[str, ...]:
    """The pods that find no other node with free GPUs that runs them where these nodes are drained at the same time."""
    nodes = {node.name: node for node in found.nodes}
    return _stranded([nodes[name] for name in sorted(names)], nodes, _free_by_node(found))


def _free_by_node(found: Cluster) -> dict[str, dict[str, int]]:
    """What nodes have free, fewest first, without those that have nothing."""
    left = ((node.name, _free(node)) for node in found.nodes)
    return dict(sorted((one for one in left if any(one[1].values())), key=lambda one: sum(one[1].values())))


def _step(node: GpuNode, after: Host) -> NodeUpgrade:
    before = node.host
    if before.driver is not None and after.driver is not None and facts.at_least(before.driver, after.driver):
        return NodeUpgrade(node.name, before, before, there=True)
    gpu = next(one for one in check.fit(Need(""), after).checks if one.name == "gpu")
    if gpu.fits is False:
        return NodeUpgrade(node.name, before, before, refused=gpu.reason)
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
    return NodeUpgrade(node.name, before, after, tuple(breaks), tuple(mends), moves)


def _with_stranded(step: NodeUpgrade, stranded: tuple[str, ...]) -> NodeUpgrade:
    return NodeUpgrade(step.node, step.before, step.after, step.breaks, step.mends, step.moves, stranded)


def _stranded(
    drained: Sequence[GpuNode], nodes: Mapping[str, GpuNode], free: Mapping[str, dict[str, int]]
) -> tuple[str, ...]:
    """Pods that these nodes run and that find no other with free GPUs that runs them, the largest placed first, each on
    the first node of ``free`` that takes it."""
    leaving = {node.name for node in drained}
    moved = (pod for node in drained for pod in node.pods if not pod.fixed and not _is_no(pod.fits(node.host)))
    open_ = {name: gpus for name, gpus in free.items() if name not in leaving}
    left = []
    for pod in sorted(moved, key=lambda pod: (-sum(pod.gpus.values()), pod.name)):
        fitting = (name for name, gpus in open_.items() if _has(gpus, pod) and not _is_no(pod.fits(nodes[name].host)))
        best = next(fitting, None)
        if best is None:
            left.append(pod.name)
        else:
            open_[best] = _less(open_[best], pod)
    return tuple(sorted(left))


def _has(gpus: dict[str, int], pod: GpuPod) -> bool:
    return all(gpus.get(name, 0) >= asked for name, asked in pod.gpus.items())


def _less(gpus: dict[str, int], pod: GpuPod) -> dict[str, int]:
    return {name: amount - pod.gpus.get(name, 0) for name, amount in gpus.items()}


def _free(node: GpuNode) -> dict[str, int]:
    left = node.gpus
    for pod in node.pods:
        left = _less(left, pod)
    return left


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
    gpus = pods.gpus_of(core.pod_requests(spec))
    needs = pods.needs(spec)
    known = {container for container, _ in needs}
    unknown = tuple(one.image for one in asking if one.name not in known)
    return GpuPod(name, node, gpus, needs, unknown, fixed)
