"""Why a NodePool cannot take a pod: the first of the planner's checks that fails, with its numbers."""

from __future__ import annotations

import numpy as np

from tonnage.facts.labels import MIG_CONFIG
from tonnage.fleet.asks import SHARED_GPU, Ask, Kind
from tonnage.fleet.fits import describe
from tonnage.fleet.ports import clash
from tonnage.objects import core, quantity, selectors
from tonnage.partitioning.node_cuts import MIG_STRATEGY, PLUGIN_CONFIG, STATED
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import EPHEMERAL_STORAGE, Catalogue, TypeMask
from tonnage.provisioning.launch import short_of_values, short_text
from tonnage.provisioning.load import Market, Stage
from tonnage.provisioning.requirements import Requirements
from tonnage.provisioning.template import ALL_EFFECTS, PoolTemplate

STATIC = "it is static"
UNTOLERATED, CONFLICT, NO_TYPE_HAS, NO_TYPE_MEETS = (
    "did not tolerate taint",
    "requirement",
    "no instance type has",
    "no instance type meets",
)
NO_LABEL, TOO_SMALL, NO_OFFERING, LIMITS = (
    "its nodes have no label that meets",
    "no instance type fits",
    "no offering is available for",
    "limits exceeded",
)
PORT_TAKEN, NO_DOMAIN = "DaemonSets take host port", "no domain is left by"
"""How a refusal begins, by the check that failed, in the order in which they are made."""


def refusal(market: Market, template: PoolTemplate, stage: Stage, remaining: dict[str, int], rules: str = "") -> str:
    """Why a new NodeClaim of this NodePool cannot take such a pod, with ``remaining`` of its limits left. ``rules``:
    the pod's rules about other pods, which are in the way where nothing else is."""
    step, catalogue = stage.step, market.catalogue
    taint = selectors.untolerated(template.taints, step.tolerations, ALL_EFFECTS)
    if taint is not None:
        return f"{UNTOLERATED} {taint_text(taint)}"
    incoming = step.requirements
    host = incoming.get(labels.HOSTNAME)
    if host is not None and host.complement and host.gte is None and host.lte is None:
        incoming = incoming.without((labels.HOSTNAME,))
    conflicts = template.requirements.merged(template.taken_for_granted).conflicts(incoming, labels.well_known())
    if conflicts:
        return f"{CONFLICT} {'; '.join(conflicts)}"
    if stage.unknown:
        return f"{NO_TYPE_HAS} {', '.join(stage.unknown)}"
    requirements = template.requirements.merged(incoming)
    suited = template.types & catalogue.select(requirements)
    if not suited.any():
        return f"{NO_TYPE_MEETS} {_instance_part(requirements)}"
    machines = template.machines
    ways = machines.allowed(requirements) & suited
    if not ways.any():
        return f"{NO_LABEL} {_only(requirements, frozenset(STATED))}"
    roomy = suited & (template.free >= stage.requests).all(axis=1)
    if not roomy.any():
        return f"{TOO_SMALL}: {_shortage(catalogue, template, stage, suited)}"
    if stage.ask.kind is not Kind.NONE and template.parts(stage.ask):
        _, choices = machines.joined(machines.untouched, stage.ask, stage.amounts, ways & roomy)
        if not choices.any():
            return f"{TOO_SMALL}: {describe(stage.ask)}{_hint(stage.ask, template, roomy)}"
        roomy &= choices.any(axis=0)
    offered = roomy & market.offers.open_to(requirements)
    if not offered.any():
        wanted = _only(requirements, labels.of_offering())
        return f"{NO_OFFERING} {_names(catalogue, roomy)}" + (f" with {wanted}" if wanted else "")
    allowed = offered & template.within(remaining, catalogue)
    if not allowed.any():
        return f"{LIMITS}: {_limits(catalogue, template, offered, remaining)}"
    short = short_of_values(catalogue, requirements, np.flatnonzero(allowed))
    if short and market.strict_min_values:
        return short_text(requirements, short)
    clashing = [ports for _, ports in template.ports if clash(stage.ports, ports)]
    if clashing:
        return f"{PORT_TAKEN} {', '.join(str(port.number) for port in stage.ports)}"
    return f"{NO_DOMAIN} {rules}"


def _hint(ask: Ask, template: PoolTemplate, types: TypeMask) -> str:
    """What keeps GPUs from being cut, or how a NodePool offers what only partitioned ones give."""
    wrong = template.machines.problems(types) if template.machines.cut else []
    if wrong:
        return f"; {wrong[0].where.field}: {wrong[0].message}"
    if ask.kind is Kind.MIG:
        return f"; a NodePool offers MIG instances by its labels {MIG_CONFIG}=all-PROFILE and {MIG_STRATEGY}=mixed"
    if ask.resource == SHARED_GPU:
        return f"; a NodePool offers it by its label {PLUGIN_CONFIG}, where that configuration renames replicas"
    return ""


def taint_text(taint: core.Taint) -> str:
    """A taint as kubectl writes it: key=value:effect."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def amount_text(resource: str, amount: int) -> str:
    """An amount of a resource as a manifest would write it."""
    if resource == "cpu":
        return quantity.format_cpu(amount)
    if resource in ("memory", EPHEMERAL_STORAGE):
        return quantity.format_bytes(amount)
    return str(amount)


def _shortage(catalogue: Catalogue, template: PoolTemplate, stage: Stage, suited: TypeMask) -> str:
    most = template.free[suited].max(axis=0)
    short = [
        f"{name} {amount_text(name, int(wanted))} > {amount_text(name, max(int(have), 0))}"
        for name, wanted, have in zip(catalogue.resources, stage.requests, most, strict=True)
        if wanted > have
    ]
    if short:
        return ", ".join(short)
    wanted = {name: int(amount) for name, amount in catalogue.as_map(stage.requests).items() if name != "pods"}
    return "no single type has " + " and ".join(
        f"{name} {amount_text(name, amount)}" for name, amount in wanted.items()
    )


def _limits(catalogue: Catalogue, template: PoolTemplate, offered: TypeMask, remaining: dict[str, int]) -> str:
    """The limits that leave no room for any offered type; all of those in the way when no single one does."""
    columns = {
        name: template.capacity[offered, catalogue.column[name]] for name in remaining if name in catalogue.column
    }
    closed = [name for name, needed in columns.items() if (needed > remaining[name]).all()]
    blamed = closed or [name for name, needed in columns.items() if (needed > remaining[name]).any()]
    return ", ".join(
        f"{name} {amount_text(name, template.limits[name])}"
        f" ({amount_text(name, max(remaining[name], 0))} left, the smallest fitting type has"
        f" {amount_text(name, int(columns[name].min()))})"
        for name in blamed
    )


def _instance_part(requirements: Requirements) -> str:
    return str(_only(requirements, labels.of_instance_type())) or "the requirements"


def _only(requirements: Requirements, keys: frozenset[str]) -> Requirements:
    return Requirements(requirement for key, requirement in requirements.items() if key in keys)


def _names(catalogue: Catalogue, types: TypeMask, shown: int = 5) -> str:
    names = [catalogue.names[i] for i in np.flatnonzero(types)]
    text = ", ".join(names[:shown])
    return f"{text} and {len(names) - shown} more" if len(names) > shown else text


def static(replicas: int) -> str:
    """Why a static NodePool launches no node for pods."""
    nodes = "no nodes" if replicas == 0 else "1 node" if replicas == 1 else f"{replicas} nodes"
    return f"{STATIC}: it has {nodes} (replicas: {replicas}), whatever pods there are"
