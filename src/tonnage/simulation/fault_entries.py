"""Faults as a scenario has them, and what they cannot mean."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.documents import Document, Strict, duration_ns
from tonnage.errors import InputError, Problem
from tonnage.facts import instances, xids
from tonnage.facts.prices import ON_DEMAND, SPOT
from tonnage.machines.gpu_faults import FALLEN_OFF

INTERRUPTION, WAVE, ZONE_OUTAGE, OUT_OF_STOCK = "spot-interruption", "spot-wave", "zone-outage", "out-of-stock"
NODE_FAILURE, GPU_FAILURE, POD_FAILURE = "node-failure", "gpu-failure", "pod-failure"
SCRAPE_FAILURE, LATE_SCRAPES, NAN_SAMPLES = "scrape-failure", "late-scrapes", "nan-samples"
FLAPPING = "readiness-flapping"
OF_METRICS = (SCRAPE_FAILURE, LATE_SCRAPES, NAN_SAMPLES)
OF_PODS = (POD_FAILURE, FLAPPING)
FAULTS = (
    *(INTERRUPTION, WAVE, ZONE_OUTAGE, NODE_FAILURE, GPU_FAILURE),
    *(POD_FAILURE, OUT_OF_STOCK, *OF_METRICS, FLAPPING),
)
SERVICE, GPUS = "service", "gpus"
"""Whose metrics: those of the gateway and engines of Services, or dcgm-exporter's."""
PERIOD = "60s"
"""Of readiness that comes and goes, unless the fault says otherwise."""
OOM = "oom"
"""A pod's exit when its memory limit kills it; other exits are codes."""
_ONLY = {
    "share": (WAVE,),
    "within": (WAVE,),
    "rebalance": (WAVE,),
    "lead": (WAVE,),
    "zone": (INTERRUPTION, WAVE, ZONE_OUTAGE, NODE_FAILURE, GPU_FAILURE, OUT_OF_STOCK),
    "capacity_type": (OUT_OF_STOCK,),
    "service": OF_METRICS,
    "exporter": OF_METRICS,
    "delay": (LATE_SCRAPES,),
    "period": (FLAPPING,),
    "workload": OF_PODS,
    "pod": OF_PODS,
}
"""Fields that some kinds of fault have, and those kinds."""
_WHOSE = {OF_METRICS: "faults of metrics have", OF_PODS: "faults of pods have"}


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


class FaultSpec(Strict, frozen=True, kw_only=True):
    """Something that breaks at ``at``.

    ``spot-interruption``, ``node-failure`` and ``gpu-failure`` hit ``count`` nodes, of a pool or an instance type, in
    order of name; a GPU fails with an ``xid``, which the node notices ``detection`` later, and is back after
    ``duration``; ``out-of-stock`` withholds an instance type for ``duration``. ``pod-failure`` ends the containers of
    ``count`` pods of a training ``workload`` or a Deployment (of one, ``pod``), those that run, in order of name, with
    an ``exit`` code or ``oom``. A ``zone`` bounds which nodes are hit; an ``out-of-stock`` may be of one
    zone or ``capacity_type``. ``scrape-failure``: for ``duration`` Prometheus scrapes neither the gateway nor the
    engines of a ``service``, or of any; with the ``exporter`` "gpus", not dcgm-exporter. ``nan-samples``: it reads NaN
    there; ``late-scrapes``: it has their samples ``delay`` later. ``readiness-flapping``: ``count`` pods of a
    Deployment are not Ready for half of each ``period``, for ``duration``. ``zone-outage`` takes every node of a zone
    at once, and nothing is sold there for ``duration``.

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
    xid: int = FALLEN_OFF
    detection: str = "0s"
    zone: str = ""
    capacity_type: str = ""
    share: float | None = None
    within: str = ""
    rebalance: float = 0.0
    lead: str = ""
    service: str = ""
    exporter: str = ""
    delay: str = ""
    period: str = ""


def duration_problems(field: str, text: str, document: Document, *, positive: bool = True) -> list[Problem]:
    """What is wrong with a duration, as text."""
    try:
        value = duration_ns(text)
    except ValueError:
        return [document.problem(field, f'"{text}" is not a duration, expected e.g. 90m, 1h30m, 2s or 50ms')]
    return [document.problem(field, f'"{text}" is not above 0')] if positive and value <= 0 else []


def one_of_problems(field: str, value: str, known: Sequence[str], document: Document) -> list[Problem]:
    """What is wrong with one of several words."""
    return [] if value in known else [document.problem(field, f'"{value}", expected one of {", ".join(known)}')]


def fault_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    """What is wrong with a fault, the field ``field`` of the scenario."""
    found = one_of_problems(f"{field}.kind", fault.kind, FAULTS, document)
    found += _pod_failure_problems(field, fault, document)
    found += duration_problems(f"{field}.at", fault.at, document, positive=False)
    wrong = duration_problems(f"{field}.duration", fault.duration, document)
    wrong += duration_problems(f"{field}.detection", fault.detection, document, positive=False)
    found += wrong or _gpu_failure_problems(field, fault, document)
    if fault.count < 1:
        found.append(document.problem(f"{field}.count", f"{fault.count} nodes, expected at least 1"))
    if fault.instance_type:
        found += instance_type_problems(f"{field}.instanceType", fault.instance_type, document)
    elif fault.kind == "out-of-stock":
        found.append(document.problem(f"{field}.instanceType", "out-of-stock needs an instanceType"))
    return [*found, *_spot_problems(field, fault, document), *_metrics_problems(field, fault, document)]


def _metrics_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    """What is wrong with whose metrics are missing, and how late they come."""
    if fault.kind not in OF_METRICS:
        return []
    found = []
    if fault.exporter:
        found += one_of_problems(f"{field}.exporter", fault.exporter, (SERVICE, GPUS), document)
    if fault.exporter == GPUS and fault.service:
        text = f'"{fault.service}" serves no metrics of GPUs: dcgm-exporter does, on every node'
        found.append(document.problem(f"{field}.service", text, "leave out service, or exporter"))
    if fault.kind == LATE_SCRAPES and not fault.delay:
        text = "late-scrapes needs how much later samples can be queried, expected e.g. 90s"
        found.append(document.problem(f"{field}.delay", text))
    return found


def _spot_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    """What is wrong with waves, zones and stock."""
    found = []
    for name, kinds in _ONLY.items():
        if getattr(fault, name) not in (None, "", 0.0) and fault.kind in FAULTS and fault.kind not in kinds:
            whose = _WHOSE.get(kinds) or ("faults of nodes have" if len(kinds) > 1 else f"{_a(kinds[0])} has")
            spelt = {"capacity_type": "capacityType"}.get(name, name)
            found.append(document.problem(f"{field}.{spelt}", f"only {whose} it"))
    for name in ("within", "lead", "delay", "period"):
        if getattr(fault, name):
            positive = name in ("delay", "period")
            found += duration_problems(f"{field}.{name}", getattr(fault, name), document, positive=positive)
    for name in ("share", "rebalance"):
        share = getattr(fault, name)
        if share is not None and not 0 <= share <= 1:
            found.append(document.problem(f"{field}.{name}", f"{share}, expected a share from 0 to 1"))
    if fault.capacity_type:
        found += one_of_problems(f"{field}.capacityType", fault.capacity_type, (ON_DEMAND, SPOT), document)
    if fault.kind == ZONE_OUTAGE and not fault.zone:
        found.append(document.problem(f"{field}.zone", "zone-outage needs a zone"))
    return found


def _pod_failure_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    found = []
    if fault.kind in OF_PODS and not fault.workload:
        text = f"{fault.kind} needs the workload whose pods {'fail' if fault.kind == POD_FAILURE else 'flap'}"
        found.append(document.problem(f"{field}.workload", text))
    if fault.kind != POD_FAILURE:
        return [*found, *([document.problem(f"{field}.exit", "only a pod-failure has it")] if fault.exit != 1 else [])]
    if fault.exit != OOM and not (isinstance(fault.exit, int) and 1 <= fault.exit <= 255):
        found.append(
            document.problem(f"{field}.exit", f'"{fault.exit}", expected an exit code from 1 to 255, or {OOM}')
        )
    return found


def _gpu_failure_problems(field: str, fault: FaultSpec, document: Document) -> list[Problem]:
    if fault.kind != "gpu-failure":
        given = (("xid", fault.xid != FALLEN_OFF), ("detection", fault.detection != "0s"))
        return [document.problem(f"{field}.{name}", "only a gpu-failure has it") for name, there in given if there]
    if fault.xid not in xids.all():
        near = ", ".join(str(xid) for xid in sorted(xids.all(), key=lambda xid: (abs(xid - fault.xid), xid))[:3])
        text = f"{fault.xid} is not in NVIDIA's catalogue of {xids.VERSION}, expected an Xid such as {near}"
        return [document.problem(f"{field}.xid", text)]
    if duration_ns(fault.detection) >= duration_ns(fault.duration):
        text = f'"{fault.detection}" is not before the reset after {fault.duration}'
        return [document.problem(f"{field}.detection", text)]
    return []


def instance_type_problems(field: str, name: str, document: Document) -> list[Problem]:
    try:
        instances.get(name)
    except InputError as error:
        return [document.problem(field, problem.message, problem.hint) for problem in error.problems]
    return []
