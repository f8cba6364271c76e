"""Every rule over a set of objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from tonnage.decisions import Ref
from tonnage.health.blocker import CREATING, REFUSED, UNSCHEDULABLE, Blocker, in_order
from tonnage.health.inventory import DEFAULT
from tonnage.health.rules import (
    admission,
    architectures,
    autoscalers,
    budgets,
    claim_quotas,
    containers,
    cuda,
    devices,
    disk,
    engines,
    gangs,
    gpu_parts,
    images,
    memory,
    nodepools,
    pod_security,
    ports,
    probes,
    readiness_gates,
    references,
    services,
    shutdown,
    start_budget,
    volumes,
    waiting,
)
from tonnage.health.setting import Setting
from tonnage.objects import core
from tonnage.workloads.owners import is_running, stands

Rule = Callable[[Setting], Iterator[Blocker]]

RULES: tuple[Rule, ...] = (
    references.environment,
    references.volumes,
    gangs.gangs,
    images.names,
    images.pull_secrets,
    architectures.architectures,
    containers.containers,
    engines.engines,
    cuda.images,
    cuda.formats,
    memory.gpu_memory,
    memory.shared_cards,
    memory.shared_memory,
    memory.host_memory,
    disk.weights,
    start_budget.start_budget,
    probes.probes,
    readiness_gates.readiness_gates,
    services.services,
    budgets.budgets,
    autoscalers.autoscalers,
    shutdown.shutdown,
    nodepools.node_classes,
    admission.refused,
    pod_security.pod_security,
    admission.some_over_quota,
    devices.not_simulated,
    gpu_parts.never_given,
    waiting.gates,
    waiting.scheduler_name,
    waiting.device_claims,
    claim_quotas.claims_over_quota,
    volumes.claims,
    ports.ports,
)
"""Of one stage of one object's lifecycle what stands first here comes first."""


def diagnose(setting: Setting) -> tuple[Blocker, ...]:
    """What never runs, the worst and the earliest in the pod lifecycle first. Values of Secrets are shown nowhere."""
    there, hidden = _there(setting), setting.variables.hidden
    return in_order(
        replace(one, message=hidden(one.message), help=hidden(one.help), said=hidden(one.said))
        for rule in RULES
        for one in rule(setting)
        if one.stage not in there.get(one.object, ())
    )


def _there(setting: Setting) -> dict[Ref, tuple[str, ...]]:
    """The stages of life that pods of a running cluster have behind them, by the pod."""
    found: dict[Ref, tuple[str, ...]] = {}
    for one in setting.objects:
        if isinstance(one, core.Pod) and stands(one):
            behind = (REFUSED, UNSCHEDULABLE, CREATING) if is_running(one) else (REFUSED, UNSCHEDULABLE)
            found[Ref("Pod", one.name, one.namespace or DEFAULT)] = behind
    return found
