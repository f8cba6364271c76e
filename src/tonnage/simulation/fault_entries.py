"""What a scenario says of what breaks, as written."""

from __future__ import annotations

from tonnage.documents import Document, Strict, duration_ns
from tonnage.errors import InputError, Problem
from tonnage.facts import instances

INTERRUPTION, WAVE, ZONE_OUTAGE, OUT_OF_STOCK = "spot-interruption", "spot-wave", "zone-outage", "out-of-stock"
NODE_FAILURE, GPU_FAILURE, POD_FAILURE = "node-failure", "gpu-failure", "pod-failure"
FAULTS = (INTERRUPTION, WAVE, ZONE_OUTAGE, NODE_FAILURE, GPU_FAILURE, POD_FAILURE, OUT_OF_STOCK)
OOM = "oom"
"""A pod's exit when its memory limit kills it; other exits are codes."""
_ONLY = {
    "workload": (POD_FAILURE,),
    "pod": (POD_FAILURE,),
    "share": (WAVE,),
    "within": (WAVE,),
    "rebalance": (WAVE,),
    "lead": (WAVE,),
    "zone": (INTERRUPTION, WAVE, ZONE_OUTAGE, NODE_FAILURE, GPU_FAILURE, OUT_OF_STOCK),
    "capacity_type": (OUT_OF_STOCK,),
}
"""Fields that some kinds of fault have, and those kinds."""


class FaultSpec(Strict, frozen=True, kw_only=True):
    """Something that breaks at ``at``.

    ``spot-interruption``, ``node-failure`` and ``gpu-failure`` hit ``count`` nodes, of a pool, an instance type or a
    zone, in order of name; a failed GPU is back after ``duration``; ``out-of-stock`` withholds an instance type (in a
    zone, as one capacity type) for ``duration``. ``pod-failure`` ends the containers of ``count`` pods of a training
    ``workload`` or a Deployment (of one, ``pod``), those that run, in order of name, with an ``exit`` code or ``oom``.
    ``zone-outage`` takes every node of a zone at once, and nothing is sold there for ``duration``.

    ``spot-wave``: a ``share`` of the spot nodes of one instance type and zone get their notices at random times
    ``within`` a while, and EC2 has none of it left for ``duration``. A part of them, ``rebalance``, gets a rebalance
    recommendation ``lead`` before.
    """

    kind: str
    at: str
    count: int = 1
    node_pool: str = ""
    instance_type: str = ""
    duration: str = "10m"
    workload: str = ""
    pod: str = ""
    exit: int | str = 1
    zone: str = ""
    capacity_type: str = ""
    share: float = 0.0
    within: str = ""
    rebalance: float = 0.0
    lead: str = ""


def fault_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    """Everything that is wrong with a fault, with its place."""
    found: list[Problem] = []
    if fault.kind not in FAULTS:
        found.append(document.problem(f"{field}.kind", f'"{fault.kind}", expected one of {", ".join(FAULTS)}'))
    else:
        found += _fields_of_others(field, fault, document)
    if fault.kind == POD_FAILURE:
        found += _pod_failure_problems(field, fault, document)
    for name in ("at", "duration", "within", "lead"):
        text = getattr(fault, name)
        if text or name in ("at", "duration"):
            found += _duration_problems(f"{field}.{name}", text, document, positive=name == "duration")
    if fault.count < 1:
        found.append(document.problem(f"{field}.count", f"{fault.count} nodes, expected at least 1"))
    for name in ("share", "rebalance"):
        if not 0 <= getattr(fault, name) <= 1:
            found.append(document.problem(f"{field}.{name}", f"{getattr(fault, name)}, expected a share from 0 to 1"))
    if fault.capacity_type not in ("", "on-demand", "spot"):
        message = f'"{fault.capacity_type}", expected on-demand or spot'
        found.append(document.problem(f"{field}.capacityType", message))
    if fault.instance_type:
        found += instance_type_problems(f"{field}.instanceType", fault.instance_type, document)
    elif fault.kind == OUT_OF_STOCK:
        found.append(document.problem(f"{field}.instanceType", "out-of-stock needs an instanceType"))
    if fault.kind == ZONE_OUTAGE and not fault.zone:
        found.append(document.problem(f"{field}.zone", "zone-outage needs a zone"))
    return found


def instance_type_problems(field: str, name: str, document: Document) -> list[Problem]:
    """What is wrong with the name of an instance type."""
    try:
        instances.get(name)
    except InputError as error:
        return [document.problem(field, problem.message, problem.hint) for problem in error.problems]
    return []


def _fields_of_others(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    """Fields that this kind of fault does not have."""
    found = []
    for name, kinds in _ONLY.items():
        if getattr(fault, name) and fault.kind not in kinds:
            article = "an" if kinds[0][0] in "aeiou" else "a"
            whose = f"{article} {kinds[0]} has" if len(kinds) == 1 else "faults of nodes have"
            spelt = {"capacity_type": "capacityType"}.get(name, name)
            found.append(document.problem(f"{field}.{spelt}", f"only {whose} it"))
    return found


def _pod_failure_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    found = []
    if not fault.workload:
        found.append(document.problem(f"{field}.workload", "pod-failure needs the workload whose pods fail"))
    if fault.exit != OOM and not (isinstance(fault.exit, int) and 1 <= fault.exit <= 255):
        found.append(
            document.problem(f"{field}.exit", f'"{fault.exit}", expected an exit code from 1 to 255, or {OOM}')
        )
    return found


def _duration_problems(field: str, text: str, document: Document, *, positive: bool) -> list[Problem]:
    try:
        value = duration_ns(text)
    except ValueError:
        return [document.problem(field, f'"{text}" is not a duration, expected e.g. 90m, 1h30m, 2s or 50ms')]
    return [document.problem(field, f'"{text}" is not above 0')] if positive and value <= 0 else []
