"""The cards of a cluster and what it asks for, from its nodes and pods: the input of a fleet's plan.

What the Kubernetes API says of a partitioned node is how many instances of each profile it has, not on which card or
where, nor which of them a pod holds. Instances are therefore spread evenly over the fewest cards that hold them
(:func:`tonnage.fleet.outfit.laid_out`), and pods are taken to hold the first of them, card by card. A re-layout looks
again before each step, so a wrong guess makes it turn back, and destroys nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tonnage.errors import InputError, Problem
from tonnage.facts import gpus, instances, mig
from tonnage.facts.labels import GPU, GPU_COUNT, GPU_PRODUCT, INSTANCE_TYPE, MIG_CONFIG, MIG_PREFIX, product_of
from tonnage.fleet.geometry import Geometry, geometry
from tonnage.fleet.outfit import MOST_DEVICES, laid_out
from tonnage.objects import apps, core
from tonnage.objects.base import where
from tonnage.partitioning import node_cuts
from tonnage.partitioning.fleet_plan import Demand, PlannedGpu, plan
from tonnage.partitioning.layouts import Layout, Placement
from tonnage.partitioning.mig_cards import known_configs
from tonnage.partitioning.mig_parted import Spec

_NAMED = 3
"""Names in a note; the rest is counted."""


@dataclass(slots=True)
class CardInventory:
    """``cards`` by node and index. ``demands``: of pods that have no node yet. ``whole``: workloads that ask for whole
    GPUs, which are not planned for. ``uncut``: nodes whose GPUs cannot be partitioned."""

    cards: list[PlannedGpu] = field(default_factory=list)
    demands: list[Demand] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    uncut: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """What was left out, and why."""
        left_out = (
            ("whole GPUs are not planned for", self.whole),
            ("GPUs that cannot be partitioned", self.uncut),
        )
        return [f"{why}: {_some(names)}" for why, names in left_out if names]


def inventory(
    nodes: Sequence[core.Node],
    pods: Sequence[core.Pod],
    deployments: Sequence[apps.Deployment] = (),
    configs: Sequence[Spec] = (),
    hourly: Mapping[str, int] | None = None,
) -> CardInventory:
    """The cards of these nodes, instances that pods hold marked as in use, and the MIG instances that other pods ask
    for, those among them that a Deployment has yet to make.

    ``configs``: mig-parted files that the label nvidia.com/mig.config may name, before its own. ``hourly``: micro-USD
    an hour by instance type. Raises InputError for nodes that cannot be as they say."""
    found = CardInventory()
    held: dict[str, Counter[str]] = {}
    alive = [pod for pod in pods if pod.status.phase not in core.FINISHED]
    for pod in alive:
        asks = {name: n for name, n in core.pod_requests(pod.spec).items() if n and _is_gpu(name)}
        if pod.spec.node_name:
            held.setdefault(pod.spec.node_name, Counter()).update(asks)
        else:
            _demand(found, f"{pod.namespace or 'default'}/{pod.name}", asks, 1)
    for deployment in deployments:
        own = sum(deployment.selects(pod) for pod in alive)
        asks = {name: n for name, n in core.pod_requests(deployment.spec.template.spec).items() if n and _is_gpu(name)}
        _demand(found, f"{deployment.namespace or 'default'}/{deployment.name}", asks, deployment.spec.replicas - own)
    for node in sorted(nodes, key=lambda one: one.name):
        _add_node(found, node, held.get(node.name, Counter()), configs, hourly or {})
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _is_gpu(resource: str) -> bool:
    return resource == GPU or resource.startswith(MIG_PREFIX)


def _demand(found: CardInventory, name: str, asks: Mapping[str, int], pods: int) -> None:
    if pods <= 0:
        return
    for resource, count in sorted(asks.items()):
        if resource == GPU:
            found.whole.append(name)
        else:
            found.demands.append(Demand(name, count * pods, resource))


def _add_node(
    found: CardInventory, node: core.Node, held: Counter[str], configs: Sequence[Spec], hourly: Mapping[str, int]
) -> None:
    """The node's cards; those that pods hold whole are left out."""
    labels = node.metadata.labels
    kind = labels.get(INSTANCE_TYPE, "")
    offer = instances.get(kind) if instances.known(kind) else None
    product, single = product_of(labels.get(GPU_PRODUCT, ""))
    name = product or (offer.gpu if offer else "")
    if not name:
        return
    try:
        gpu = gpus.get(name).name
    except InputError as error:
        problem = error.problems[0]
        raise InputError(
            Problem(where(node, f"metadata.labels.{GPU_PRODUCT}"), problem.message, problem.hint)
        ) from error
    on = geometry(gpu)
    if on is None:
        found.uncut.append(f"node {node.name} ({gpu})")
        return
    there = core.amounts(node.status.allocatable or node.status.capacity)
    layouts = _layouts(node, on, single, there, configs, offer.gpu_count if offer else 0)
    if single:
        resource = f"{MIG_PREFIX}{single}"
        held = Counter({resource: held[GPU]}) + Counter({k: n for k, n in held.items() if k != GPU})
    whole = held.pop(GPU, 0)
    price = hourly.get(kind, 0) // len(layouts) if layouts else 0
    taken = 0
    for index, layout in enumerate(layouts):
        if not layout and taken < whole:
            taken += 1
            continue
        busy = []
        for one in layout:
            resource = mig.get(gpu, one.profile).resource
            if held[resource]:
                held[resource] -= 1
                busy.append(one)
        found.cards.append(PlannedGpu(f"{node.name}/{index}", on, layout, tuple(busy), node.name, price))
    over = +(held + Counter({GPU: whole - taken}))
    if over:
        resource, count = sorted(over.items())[0]
        hint = "are all of its instances in the node's allocatable or labels?"
        raise InputError(Problem(where(node), f"pods hold {count} more of {resource} than node {node.name} has", hint))


def _layouts(
    node: core.Node, on: Geometry, single: str, there: Mapping[str, int], configs: Sequence[Spec], by_type: int
) -> list[Layout]:
    """What runs on each card of a node, as its resources, else its labels, else its mig.config say."""
    counted = 0 if single else _count(node, GPU_COUNT)
    counts = _instances(node, single, there)
    if sum(counts.values()) > MOST_DEVICES or counted > MOST_DEVICES:
        raise InputError(Problem(where(node), f"more than {MOST_DEVICES} devices", "is that one node?"))
    cut: list[Layout] = [
        tuple(sorted(Placement(start, on.named(name).name) for name, start in instances_of))
        for instances_of in (laid_out(on.gpu, tuple(sorted(counts.items()))) if counts else ())
    ]
    wanted = ", ".join(f"{n} x {name.removeprefix(MIG_PREFIX)}" for name, n in sorted(counts.items()))
    if counts and not cut:
        raise InputError(Problem(where(node), f"no cards of {on.gpu} hold {wanted}", f"tonnage mig layouts {on.gpu}"))
    if counted and len(cut) > counted:
        cut = list(_packed(on.gpu, tuple(sorted(counts.items())), counted))
        if not cut:
            message = f"{counted} x {on.gpu} cannot hold {wanted}"
            hint = f"tonnage mig layouts {on.gpu}"
            raise InputError(Problem(where(node, f"metadata.labels.{GPU_COUNT}"), message, hint))
    whole = 0 if single else there.get(GPU, 0)
    total = max(counted or by_type or len(cut) + whole, len(cut))
    if not cut and MIG_CONFIG in node.metadata.labels:
        return _configured(node, on, total, configs)
    return [*cut, *[()] * (total - len(cut))]


def _instances(node: core.Node, single: str, there: Mapping[str, int]) -> dict[str, int]:
    """How many instances of each MIG resource the node has; ``single``: the profile of strategy single."""
    labels = node.metadata.labels
    if single:
        counts = {f"{MIG_PREFIX}{single}": _count(node, GPU_COUNT) or there.get(GPU, 0)}
    else:
        counts = {name: n for name, n in there.items() if name.startswith(MIG_PREFIX) and n} or {
            key.removesuffix(".count"): _count(node, key)
            for key in labels
            if key.startswith(MIG_PREFIX) and key.endswith(".count")
        }
    return {name: n for name, n in counts.items() if n}


def _configured(node: core.Node, on: Geometry, total: int, configs: Sequence[Spec]) -> list[Layout]:
    """What the configuration that the node's label names makes on each card."""
    name = node.metadata.labels[MIG_CONFIG]
    for spec in (*configs, known_configs()):
        if name in spec.configs:
            return [one or () for one in node_cuts.layouts(spec, name, on.gpu, total)]
    message = f"{name!r} is not a configuration of mig-parted that is known here"
    hint = "add the file or ConfigMap that has it"
    raise InputError(Problem(where(node, f"metadata.labels.{MIG_CONFIG}"), message, hint))


def _packed(gpu: str, counts: tuple[tuple[str, int], ...], number: int) -> tuple[Layout, ...]:
    """The instances on this many cards, unevenly where it has to be; nothing where they do not fit."""
    on = geometry(gpu)
    assert on is not None
    found = plan(cards(on, number), [Demand(name, count, name) for name, count in counts])
    return () if found.unserved else tuple(one.change.after for one in found.cards if one.change.after)


def _count(node: core.Node, label: str) -> int:
    """The number in a label of the node; 0 where it has none. Raises InputError for anything else."""
    text = node.metadata.labels.get(label, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InputError(Problem(where(node, f"metadata.labels.{label}"), f"{text!r}: expected a number of devices"))
    return int(text)


def cards(on: Geometry, count: int, running: Layout = (), busy: Layout = (), first: int = 0) -> list[PlannedGpu]:
    """``count`` alike cards, named after the GPU and numbered from ``first``."""
    return [PlannedGpu(f"{on.gpu}/{first + i}", on, running, busy) for i in range(count)]
