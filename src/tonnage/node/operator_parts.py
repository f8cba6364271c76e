"""Which of the GPU operator's operands run on a node, and which of the agent's parts run instead of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tonnage.facts import operands as facts
from tonnage.facts.operands import GpuEnvironment
from tonnage.objects.gpu_operator import ClusterPolicySpec

MIG_CAPABLE = "nvidia.com/mig.capable"
PRE_INSTALLED = "pre-installed"
"""A value of the driver's label: the operator has found a driver on the node."""
HEALTH = "health"
"""The part that replaces no operand: it runs wherever another one does."""


class OperandVerdict(NamedTuple):
    """``runs``: whether the node has the operand or what replaces it. ``part``: of the agent that replaces it there;
    empty: NVIDIA's runs, or none. ``reason``: why so."""

    operand: str
    runs: bool
    part: str
    reason: str


def environment(labels: Mapping[str, str]) -> GpuEnvironment | None:
    """What kind of node has these labels; None: one that the table does not know."""
    for one in facts.environments().values():
        found = labels.get(one.label)
        if found is not None and one.value in ("", found):
            return one
    return None


def operands_of(policy: ClusterPolicySpec | None, labels: Mapping[str, str]) -> list[OperandVerdict]:
    """Every operand on a node with these labels. ``policy``: the ClusterPolicy's spec; None: there is none, and what is
    on by default counts."""
    return [_verdict(operand, policy, labels) for operand in facts.operands()]


def _verdict(name: str, policy: ClusterPolicySpec | None, labels: Mapping[str, str]) -> OperandVerdict:
    operand, kind = facts.operands()[name], environment(labels)
    said = policy.enabled(operand.field) if policy is not None else None
    label = labels.get(operand.label, "")
    if label == "false":
        return OperandVerdict(name, False, "", f"the node has {operand.label}=false")
    if label == PRE_INSTALLED:
        return OperandVerdict(name, False, "", f"the node has {operand.label}={PRE_INSTALLED}")
    if kind is not None and name in kind.without:
        return OperandVerdict(name, False, "", f"{kind.title}: {kind.reason}")
    if not (operand.enabled if said is None else said):
        where = "off by default" if said is None else f"the ClusterPolicy has {operand.field}.enabled: false"
        return OperandVerdict(name, False, "", where)
    if name == "mig-manager" and labels.get(MIG_CAPABLE) == "false":
        return OperandVerdict(name, False, "", f"the node has {MIG_CAPABLE}=false")
    if operand.part:
        return OperandVerdict(name, True, operand.part, f"the agent's part {operand.part} replaces it")
    return OperandVerdict(name, True, "", operand.stays)


def parts_of(verdicts: Sequence[OperandVerdict]) -> list[str]:
    """The parts of the agent that run on the node, in the table's order."""
    found = {one.part for one in verdicts if one.part}
    return [name for name in facts.parts() if name in found or (name == HEALTH and found)]


def conflicts(policy: ClusterPolicySpec | None, labels: Mapping[str, str]) -> list[str]:
    """Operands that the ClusterPolicy turns on where they must not run, in sentences."""
    kind = environment(labels)
    if kind is None or policy is None:
        return []
    return [
        f"{operand.field}.enabled is {'true' if said else 'true by default'}, and on nodes of {kind.title} "
        f"{operand.name} must not run: {kind.reason}; set {operand.field}.enabled: false, or {operand.label}=false "
        "on those nodes"
        for operand in facts.operands().values()
        if operand.name in kind.without
        and (said := policy.enabled(operand.field)) is not False
        and (operand.enabled or said)
    ]
