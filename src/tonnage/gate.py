"""The one gate: whether a decision still holds at the moment of effect. Every world asks here first.

What the world itself knows better is left to it: whether a pod still fits its node (the fleet refuses to bind it
otherwise), admission, resource versions, stock.
"""

from __future__ import annotations

from tonnage.decisions import (
    UNABLE,
    Bind,
    Decision,
    Disrupt,
    Evict,
    Instances,
    Keep,
    Launch,
    Ref,
    Refused,
    Relayout,
    Return,
    Scale,
    Stale,
    Wait,
    layout_text,
)
from tonnage.errors import InputError
from tonnage.fleet.cards import FREE_DEVICE, NO_DEVICE
from tonnage.fleet.claim_asks import key_of
from tonnage.fleet.cluster_state import State
from tonnage.fleet.filters import cordoned
from tonnage.fleet.geometry import geometry
from tonnage.fleet.state import Fleet
from tonnage.partitioning.fleet_layouts import as_instances, as_layout, busy_in, instances_of
from tonnage.partitioning.layouts import Layout, mask_of


def check(state: State, decision: Decision) -> Stale | Refused | None:
    """What no longer holds of the decision, or why it never can; None: it may take effect."""
    match decision:
        case Bind():
            return _bind(state, decision)
        case Scale():
            return _scale(state, decision)
        case Launch():
            name = decision.claim.name
            known = name in state.fleet.node_by_name or state.knows_claim(name)
            return Stale(f"NodeClaim {name} exists") if known else None
        case Disrupt():
            return _disrupt(state.fleet, decision)
        case Keep():
            return _node(state.fleet, decision.node)
        case Return():
            return _return(state.fleet, decision)
        case Evict():
            return _pod(state, decision.pod) or _evict(state.fleet, decision.pod)
        case Relayout():
            return _relayout(state, decision)
        case Wait():
            return None


def _pod(state: State, pod: Ref) -> Stale | None:
    """Whether the pod is gone, or about to be."""
    row = state.fleet.pod_by_key.get((pod.namespace, pod.name))
    there = row is not None and pod.uid in ("", state.fleet.pod(row).spec.uid)
    if not there or state.life(f"{pod.namespace}/{pod.name}").leaving:
        return Stale(f"{pod} is gone")
    return None


def _evict(fleet: Fleet, pod: Ref) -> Refused | None:
    spec = fleet.pod(fleet.pod_by_key[pod.namespace, pod.name]).spec
    why = f"{pod} is a DaemonSet's or a static pod: it would be recreated on its node"
    return Refused(why, UNABLE) if spec.daemon else None


def _node(fleet: Fleet, node: Ref) -> Stale | None:
    """Whether the node is gone."""
    row = fleet.node_by_name.get(node.name)
    there = row is not None and node.uid in ("", fleet.node(row).spec.uid)
    return None if there else Stale(f"node {node.name} is gone")


def _bind(state: State, decision: Bind) -> Stale | None:
    fleet = state.fleet
    if gone := _pod(state, decision.pod) or _node(fleet, decision.node):
        return gone
    node = fleet.node_by_name[decision.node.name]
    pod_row = fleet.pod_by_key[decision.pod.namespace, decision.pod.name]
    pod = fleet.pod(pod_row)
    if pod.node >= 0:
        return Stale(f"pod {pod.key} is bound already")
    shape = fleet.classes.shapes[fleet.pod_class(pod_row).shape]
    if cordoned(shape, schedulable=bool(fleet.schedulable[node])) or fleet.node(node).leaving:
        return Stale(f"node {decision.node.name} is cordoned, not Ready or terminating")
    return _claims(fleet, pod_row, node, decision)


def _claims(fleet: Fleet, pod_row: int, node: int, decision: Bind) -> Stale | None:
    """What does not hold any more of the pod's ResourceClaims: whether they can have what was allocated to them."""
    need, claims, made = fleet.pod(pod_row).spec.claims, fleet.device_claims, fleet.extended_claim(pod_row, node)
    if not (need.keys or need.waits or need.held or made or decision.claims):
        return None
    given = {(one.claim.namespace, one.claim.name): one for one in decision.claims}
    own = key_of(made) if made is not None else None
    if need.waits or need.held or not given.keys() <= {*need.keys, own}:
        return Stale(need.waits or f"pod {fleet.pod(pod_row).key} names other ResourceClaims than before")
    for key, one in given.items():
        claim = claims.claims.get(key)
        if made is not None and key == own:
            asked = one.extended.requests if one.extended is not None else ()
            if list(asked) != made.spec.devices.requests:
                return Stale(f"{one.claim} would ask for other devices on {decision.node}")
            continue
        if claim is None or one.claim.uid not in ("", claim.metadata.uid):
            return Stale(f"{one.claim} is gone")
    why = claims.overtaken(need.keys, fleet.node_view(node), {key: one.allocation for key, one in given.items()}, made)
    return Stale(why) if why else None


def _scale(state: State, decision: Scale) -> Stale | None:
    target = decision.target
    view = state.workloads().get(target.workload)
    if view is None or target.uid not in ("", view.uid):
        return Stale(f"{target} is gone")
    if view.replicas != decision.current:
        return Stale(f"{target} has {view.replicas} replicas, not {decision.current}")
    return None


def _disrupt(fleet: Fleet, decision: Disrupt) -> Stale | None:
    if gone := _node(fleet, decision.node):
        return gone
    node = fleet.node(fleet.node_by_name[decision.node.name])
    if not node.initialized or node.leaving:
        return Stale(f"node {decision.node.name} is not initialized, or is terminating")
    kept = node.do_not_disrupt and not decision.expired
    return Stale(f"node {decision.node.name} must not be disrupted") if kept else None


def _return(fleet: Fleet, decision: Return) -> Stale | None:
    if gone := _node(fleet, decision.node):
        return gone
    row = fleet.node_by_name[decision.node.name]
    if decision.drained:
        return None if fleet.node(row).leaving else Stale(f"node {decision.node.name} is not being drained")
    if not fleet.node(row).initialized or fleet.workload_pods(row):
        return Stale(f"node {decision.node.name} is not empty and initialized")
    return None


def _relayout(state: State, decision: Relayout) -> Stale | Refused | None:
    fleet, name, device = state.fleet, decision.node.name, decision.device
    if gone := _node(fleet, decision.node):
        return gone
    row = fleet.node_by_name[name]
    if not fleet.node(row).initialized or fleet.node(row).leaving:
        return Stale(f"node {name} is not initialized, or is terminating")
    if (name, device) in state.relayouts():
        return Stale(f"the MIG layout of GPU {device} on {name} is being changed already")
    if (why := state.fixed().get((name, device))) is not None:
        return Refused(f"GPU {device} of {name}: {why}", UNABLE)
    on = geometry(fleet.node(row).spec.gpu)
    if on is None:
        return Refused(f"no MIG profiles of the GPU of {name} are known", UNABLE)
    after = as_layout(decision.after)
    try:
        mask_of(on, after)
    except InputError as error:
        return Refused(error.problems[0].message, "Invalid")
    changed = _changed(fleet, (row, device), decision, after)
    return Stale(changed) if changed is not None else None


def _changed(fleet: Fleet, at: tuple[int, int], decision: Relayout, after: Layout) -> str | None:
    """What no longer holds of the GPU; None: it is cut as it was, and nothing that is to go is in use."""
    about = f"GPU {decision.device} of {decision.node.name}"
    if not 0 <= at[1] < fleet.devices.shape[1] or fleet.devices[at] == NO_DEVICE:
        return f"{about} is not there"
    try:
        now = instances_of(fleet, at)
    except ValueError as error:
        return f"{about}: {error}"
    if now != in_order(decision.before):
        return f"{about} has layout {layout_text(now)}, not {layout_text(decision.before)}"
    if now is None:
        return None if fleet.devices[at] == FREE_DEVICE else f"{about} is in use"
    held = [one for one in busy_in(fleet, at) if one not in after]
    return f"{about}: {held[0].profile} at {held[0].start} is in use" if held else None


def in_order(instances: Instances) -> Instances:
    """The same by first memory slice."""
    return None if instances is None else as_instances(as_layout(instances))
