"""A new driver on a cluster's nodes, wave after wave: cordoned, drained, upgraded by the GPU operator, validated.

What has been done stands in labels of the nodes and nowhere else: whoever decides next reads it there, so that a
process which ends in the middle is taken up by any other. The operator changes drivers; what is decided here is when it
may. It keeps away from nodes with ``nvidia.com/gpu-driver-upgrade.skip=true``, and takes those up that lose the label.

1. *held*: every node that is to keep its driver for now gets the label, before the ClusterPolicy names the new one.
2. *draining*: the nodes of a wave are cordoned, and the pods that use their driver evicted as budgets allow.
3. *upgrading*: a drained node is left to the operator, until it says ``upgrade-done``.
4. The node has the new driver, all of its GPUs and no fault: it is uncordoned. Where that does not come about in time,
   or the operator says ``upgrade-failed``, the node has *failed*: no further wave begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct

from tonnage.cuda_fit import fleet as fleets
from tonnage.cuda_fit import host as hosts
from tonnage.cuda_fit import pods as gpu_pods
from tonnage.cuda_fit.fleet import Cluster, NodeUpgrade
from tonnage.cuda_fit.users import DriverUser, users
from tonnage.errors import InputError
from tonnage.facts import cuda, gpu_stack
from tonnage.facts.labels import DRIVER_UPGRADE_SKIP, DRIVER_UPGRADE_STATE
from tonnage.objects import core

STAGE = "tonnage.dev/driver-upgrade"
TO, SINCE, GPUS = f"{STAGE}-to", f"{STAGE}-since", f"{STAGE}-gpus"
"""Labels: the version that is meant; since when the node is at its stage, in seconds since 1970; how many GPUs it had
to give before."""
FAILURE = f"{STAGE}-failure"
"""An annotation: why the node has failed."""
HELD, DRAINING, UPGRADING, FAILED = STAGES = ("held", "draining", "upgrading", "failed")
RUNNING, DONE, STOPPED = "running", "done", "stopped"
_HEALTH = ("GPUHealthy", "AcceleratedHardwareReady")
"""Conditions that say whether a node's GPUs are well: the agent's own, and Amazon EKS' monitoring agent's."""

Changes = dict[str, str | None]
"""Labels or annotations by key; None: it is taken off."""


class RolloutSettings(Struct, frozen=True):
    """``wave``: how many nodes at once at most; ``first``: in the first wave. ``unavailable``: how many GPU nodes may
    be cordoned or not Ready, those of the wave included. ``breaking``: also nodes with pods that the new driver does
    not run; ``pending``: also those whose pods no other node takes meanwhile. ``drain_s``, ``upgrade_s``: for how long
    a node may be drained, and upgraded."""

    wave: int = 4
    first: int = 1
    unavailable: int | None = None
    breaking: bool = False
    pending: bool = False
    drain_s: int = 1800
    upgrade_s: int = 1800


class RolloutView(Struct, frozen=True):
    """The cluster as it was read. ``version``: of the driver, as the ClusterPolicy has it. ``kept``: nodes whose driver
    is not the operator's, with the reason."""

    nodes: Sequence[core.Node]
    pods: Sequence[core.Pod]
    version: str
    kept: Mapping[str, str] = {}


class NodeEdit(Struct, frozen=True):
    """A change of one node, made while ``stage`` is the value of its label :data:`STAGE` (empty: it has none).
    ``cordon``: None: as it is."""

    node: str
    stage: str
    labels: Changes
    annotations: Changes
    cordon: bool | None
    why: str


class RolloutTurn(Struct, frozen=True):
    """What is to be done now. ``version``: what the ClusterPolicy is to say, None: what it says. ``state``: running,
    done or stopped; ``waits``: what for, or why it stopped; ``left``: nodes that are not upgraded, with the reason."""

    state: str
    edits: tuple[NodeEdit, ...] = ()
    evictions: tuple[DriverUser, ...] = ()
    version: str | None = None
    waits: tuple[str, ...] = ()
    left: tuple[tuple[str, str], ...] = ()


class Waves(Struct, frozen=True):
    """Nodes in the order in which they are upgraded, those of a wave at once; and those that are left, with why."""

    waves: tuple[tuple[NodeUpgrade, ...], ...]
    left: tuple[tuple[str, str], ...]


def waves(seen: RolloutView, to: str, settings: RolloutSettings) -> Waves:
    """The waves as they come where each goes well. Raises InputError for what is not a version."""
    found = _takers(seen)
    steps = fleets.upgrade(found, to)
    left = _left(seen, steps, settings)
    ahead = [step for step in steps if not step.there and step.node not in left]
    begun = any(step.there for step in steps) or any(_stage(node) in (DRAINING, UPGRADING) for node in seen.nodes)
    made: list[tuple[NodeUpgrade, ...]] = []
    while ahead:
        size = _size(seen, settings, first=not made and not begun)
        wave = _wave(found, ahead, size, settings)
        if not wave:
            break
        made.append(wave)
        names = {step.node for step in wave}
        ahead = [step for step in ahead if step.node not in names]
        found = _upgraded(found, wave)
    for step in ahead:
        if _size(seen, settings, first=False) < 1:
            left[step.node] = f"{_unavailable(seen)} GPU nodes are cordoned or not Ready already"
        else:
            pods = fleets.stranded(found, [step.node])
            left[step.node] = f"no other node with free GPUs runs {', '.join(pods)} meanwhile"
    return Waves(tuple(made), tuple(sorted(left.items())))


def decide(seen: RolloutView, to: str, settings: RolloutSettings, now_s: int) -> RolloutTurn:
    """What to do next. Raises InputError for what is not a version, and where another rollout is under way."""
    check(seen, to)
    mine = [node for node in seen.nodes if _stage(node)]
    edits: list[NodeEdit] = []
    evictions: list[DriverUser] = []
    waits: list[str] = []
    using = _by_node(users(seen.pods))
    for node in mine:
        stage = _stage(node)
        if stage == DRAINING:
            edit, leaving, why = _drain(node, using.get(node.metadata.name, ()), settings, now_s)
            evictions += leaving
        elif stage == UPGRADING:
            edit, why = _validate(node, to, settings, now_s)
        else:
            continue
        edits += [edit] if edit is not None else []
        waits += [f"{node.metadata.name} {stage}: {why}"] if why else []
    failed = [node for node in mine if _stage(node) == FAILED]
    if edits or waits:
        return RolloutTurn(RUNNING, tuple(edits), tuple(evictions), waits=tuple(waits))
    if failed:
        said = tuple(f"{node.metadata.name}: {node.metadata.annotations.get(FAILURE, 'not said')}" for node in failed)
        return RolloutTurn(STOPPED, waits=said)
    return _begin(seen, to, settings, now_s)


def check(seen: RolloutView, to: str) -> None:
    """Raises InputError for what is not a version of a driver, for one that is older than the ClusterPolicy's, and
    where another rollout is under way."""
    wanted = cuda.parse_version(to, "--to", "580.105.08")
    if len(wanted) == 1:
        hint = "no node would ever say that it has it: give a whole version, like 580.105.08"
        raise InputError.at(f"{to} is a branch of drivers", field="--to", hint=hint)
    if cuda.is_version(seen.version) and not cuda.at_least(wanted, cuda.parse_version(seen.version)):
        message = f"the ClusterPolicy says driver {seen.version}, and {to} is older"
        raise InputError.at(message, field="--to", hint="nodes with the newer one would be taken back to it")
    for node in seen.nodes:
        if _stage(node) and node.metadata.labels.get(TO) != to:
            message = f"node {node.metadata.name} is part of a rollout to {node.metadata.labels.get(TO)}"
            raise InputError.at(message, field="--to", hint="finish that one first, or give it up with --abandon")


def _begin(seen: RolloutView, to: str, settings: RolloutSettings, now_s: int) -> RolloutTurn:
    """No node is at work: hold all, then name the version, then begin a wave; or end."""
    plan = waves(seen, to, settings)
    left = dict(plan.left)
    ahead = [step.node for wave in plan.waves for step in wave]
    by_name = {node.metadata.name: node for node in seen.nodes}
    if not ahead:
        after = [name for name, node in by_name.items() if _stage(node) == HELD and name not in left]
        edits = tuple(_freed(by_name[name], "it has the new driver") for name in sorted(after))
        return RolloutTurn(RUNNING if edits else DONE, edits, left=plan.left)
    hold = [name for name in (*ahead, *left) if not _stage(by_name[name]) and _may_hold(seen, by_name[name])]
    if hold:
        return RolloutTurn(RUNNING, tuple(_held(by_name[name], to, now_s) for name in sorted(hold)), left=plan.left)
    if seen.version != to:
        return RolloutTurn(RUNNING, version=to, left=plan.left)
    edits = tuple(_drained(by_name[step.node], to, now_s) for step in plan.waves[0])
    return RolloutTurn(RUNNING, edits, left=plan.left)


def retry(seen: RolloutView, now_s: int) -> tuple[NodeEdit, ...]:
    """Begin again with the nodes that have failed."""
    return tuple(
        NodeEdit(
            node.metadata.name,
            FAILED,
            {STAGE: DRAINING, SINCE: str(now_s)},
            {FAILURE: None},
            True,
            "it is tried again",
        )
        for node in seen.nodes
        if _stage(node) == FAILED
    )


def abandon(seen: RolloutView) -> tuple[NodeEdit, ...]:
    """Take back the labels and cordons of a rollout; drivers stay as they are. Nodes with another driver than the
    ClusterPolicy names by now stay held: the operator would upgrade all of them."""
    return tuple(_given_up(seen.version, node) for node in seen.nodes if _stage(node))


def outsiders(seen: RolloutView, names: Iterable[str]) -> list[DriverUser]:
    """Pods on these nodes that use the driver and that no eviction moves: they have to be stopped by other means."""
    nodes = set(names)
    return [one for one in users(seen.pods) if one.fixed and one.node in nodes]


# ---- one node ----


def _stage(node: core.Node) -> str:
    stage = node.metadata.labels.get(STAGE, "")
    return stage if stage in STAGES else ""


def _held(node: core.Node, to: str, now_s: int) -> NodeEdit:
    labels: Changes = {STAGE: HELD, TO: to, SINCE: str(now_s), DRIVER_UPGRADE_SKIP: "true"}
    return NodeEdit(node.metadata.name, "", labels, {}, None, "it keeps its driver until its wave")


def _drained(node: core.Node, to: str, now_s: int) -> NodeEdit:
    labels: Changes = {STAGE: DRAINING, TO: to, SINCE: str(now_s), GPUS: str(_gpus(node))}
    return NodeEdit(node.metadata.name, _stage(node), labels, {}, True, "its wave begins: cordoned")


def _drain(
    node: core.Node, there: Sequence[DriverUser], settings: RolloutSettings, now_s: int
) -> tuple[NodeEdit | None, list[DriverUser], str]:
    """The next edit of a node that is drained, whom to evict, and what it waits for."""
    staying = [one for one in there if not one.fixed]
    if not staying:
        labels: Changes = {STAGE: UPGRADING, SINCE: str(now_s), DRIVER_UPGRADE_SKIP: None}
        if node.metadata.labels.get(DRIVER_UPGRADE_STATE) == gpu_stack.UPGRADE_FAILED:
            labels[DRIVER_UPGRADE_STATE] = gpu_stack.REQUIRED  # the operator tries again
        annotations: Changes = {gpu_stack.STAYS_CORDONED: "true"}
        return NodeEdit(node.metadata.name, DRAINING, labels, annotations, None, "drained: the operator's turn"), [], ""
    names = ", ".join(one.key for one in staying)
    if now_s - _since(node) > settings.drain_s:
        return _failed(node, f"not drained after {settings.drain_s} s: {names}"), [], ""
    return None, [one for one in staying if not one.leaving], names


def _validate(node: core.Node, to: str, settings: RolloutSettings, now_s: int) -> tuple[NodeEdit | None, str]:
    """Whether the node is as it is to be, has failed, or what is waited for."""
    if node.metadata.labels.get(DRIVER_UPGRADE_STATE) == gpu_stack.UPGRADE_FAILED:
        return _failed(node, f"the GPU operator says {gpu_stack.UPGRADE_FAILED}; see the driver's pod on the node"), ""
    missing = unmet(node, to)
    if not missing:
        return _freed(node, f"it has driver {to} and {_gpus(node)} GPUs"), ""
    if now_s - _since(node) > settings.upgrade_s:
        return _failed(node, f"after {settings.upgrade_s} s: {'; '.join(missing)}"), ""
    return None, "; ".join(missing)


def unmet(node: core.Node, to: str) -> list[str]:
    """What is still wrong with a node that is to have this driver, in sentences."""
    labels, found = node.metadata.labels, []
    state = labels.get(DRIVER_UPGRADE_STATE, "")
    if state != gpu_stack.DONE:
        found.append(f"the GPU operator says {state or 'nothing'}")
    driver = hosts.of_labels(labels)
    if driver.driver != cuda.parse_version(to):
        found.append(f"its driver is {driver.written or 'not known'}")
    before = labels.get(GPUS, "0")
    if before.isdecimal() and _gpus(node) < int(before):
        found.append(f"it has {_gpus(node)} of {before} GPUs to give")
    conditions = {one.type: one for one in node.status.conditions}
    if "Ready" in conditions and conditions["Ready"].status != "True":
        found.append("it is not Ready")
    found += [f"{name}: {conditions[name].message}" for name in _HEALTH if _is_false(conditions.get(name))]
    return found


def _failed(node: core.Node, why: str) -> NodeEdit:
    """It stays cordoned, and the operator leaves it alone."""
    labels: Changes = {STAGE: FAILED, DRIVER_UPGRADE_SKIP: "true"}
    return NodeEdit(node.metadata.name, _stage(node), labels, {FAILURE: why}, None, why)


def _given_up(version: str, node: core.Node) -> NodeEdit:
    freed = _freed(node, "the rollout is given up")
    if not cuda.is_version(version) or hosts.of_labels(node.metadata.labels).driver == cuda.parse_version(version):
        return freed
    why = f"the rollout is given up; it stays held, as the ClusterPolicy names driver {version}"
    return msgspec.structs.replace(freed, labels={**freed.labels, DRIVER_UPGRADE_SKIP: "true"}, why=why)


def _freed(node: core.Node, why: str) -> NodeEdit:
    """Nothing of a rollout is left on it."""
    labels: Changes = dict.fromkeys((STAGE, TO, SINCE, GPUS, DRIVER_UPGRADE_SKIP))
    annotations: Changes = dict.fromkeys((FAILURE, gpu_stack.STAYS_CORDONED))
    cordoned = False if _stage(node) != HELD else None
    return NodeEdit(node.metadata.name, _stage(node), labels, annotations, cordoned, why)


def _since(node: core.Node) -> int:
    written = node.metadata.labels.get(SINCE, "")
    return int(written) if written.isdecimal() else 0


def _gpus(node: core.Node) -> int:
    """GPUs, slices and shares that it has to give now."""
    return sum(gpu_pods.gpus_of(core.amounts(node.status.allocatable)).values())


def _is_false(condition: core.NodeCondition | None) -> bool:
    return condition is not None and condition.status == "False"


# ---- waves ----


def _left(seen: RolloutView, steps: Sequence[NodeUpgrade], settings: RolloutSettings) -> dict[str, str]:
    """Nodes that are in no wave whatever comes, with the reason."""
    by_name = {node.metadata.name: node for node in seen.nodes}
    found: dict[str, str] = {}
    for step in steps:
        node = by_name[step.node]
        stage, labels = _stage(node), node.metadata.labels
        if step.there:
            continue
        if step.node in seen.kept:
            found[step.node] = seen.kept[step.node]
        elif step.refused:
            found[step.node] = step.refused
        elif stage == FAILED:
            found[step.node] = node.metadata.annotations.get(FAILURE, "it has failed")
        elif not stage and labels.get(DRIVER_UPGRADE_SKIP) == "true":
            found[step.node] = f"somebody has labelled it {DRIVER_UPGRADE_SKIP}=true"
        elif stage in ("", HELD) and node.spec.unschedulable:
            found[step.node] = "somebody has cordoned it"
        elif step.breaks and not settings.breaking:
            pod, why = step.breaks[0]
            more = f", and {len(step.breaks) - 1} more pods" if len(step.breaks) > 1 else ""
            found[step.node] = f"it would break {pod}: {why}{more}"
    return found


def _may_hold(seen: RolloutView, node: core.Node) -> bool:
    return node.metadata.name not in seen.kept and node.metadata.labels.get(DRIVER_UPGRADE_SKIP) != "true"


def _takers(seen: RolloutView) -> Cluster:
    """The cluster, in which nodes that take no pods have nothing to give."""
    found = fleets.cluster(seen.nodes, seen.pods)
    closed = {node.metadata.name for node in seen.nodes if _is_closed(node)}
    nodes = tuple(msgspec.structs.replace(one, gpus={}) if one.name in closed else one for one in found.nodes)
    return msgspec.structs.replace(found, nodes=nodes)


def _is_closed(node: core.Node) -> bool:
    ready = next((one for one in node.status.conditions if one.type == "Ready"), None)
    return node.spec.unschedulable or (ready is not None and ready.status != "True")


def _unavailable(seen: RolloutView) -> int:
    names = {one.name for one in fleets.cluster(seen.nodes, ()).nodes}
    return sum(_is_closed(node) for node in seen.nodes if node.metadata.name in names)


def _size(seen: RolloutView, settings: RolloutSettings, *, first: bool) -> int:
    size = min(settings.first, settings.wave) if first else settings.wave
    if settings.unavailable is None:
        return size
    return min(size, settings.unavailable - _unavailable(seen))


def _wave(
    found: Cluster, ahead: Sequence[NodeUpgrade], size: int, settings: RolloutSettings
) -> tuple[NodeUpgrade, ...]:
    """The next wave: in order, as many as find room for their pods elsewhere."""
    taken: list[NodeUpgrade] = []
    for step in ahead:
        if len(taken) >= size:
            break
        names = [*(one.node for one in taken), step.node]
        alone = fleets.stranded(found, [step.node])
        if not settings.pending and fleets.stranded(found, names):
            continue
        taken.append(msgspec.structs.replace(step, stranded=alone))
    return tuple(taken)


def _upgraded(found: Cluster, wave: Sequence[NodeUpgrade]) -> Cluster:
    after = {step.node: step.after for step in wave}
    nodes = tuple(
        msgspec.structs.replace(one, host=after[one.name]) if one.name in after else one for one in found.nodes
    )
    return msgspec.structs.replace(found, nodes=nodes)


def _by_node(found: Iterable[DriverUser]) -> dict[str, list[DriverUser]]:
    by: dict[str, list[DriverUser]] = {}
    for one in found:
        by.setdefault(one.node, []).append(one)
    return by
