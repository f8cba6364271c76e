"""What a simulation run returns: the documented JSON (docs/reference/result.md), only input of report and table.

Times are seconds from the start of the run, rounded to milliseconds; money is integer micro-dollars; lists are in a
fixed order, so equal runs give equal bytes. ``None`` is "no data".
"""

from __future__ import annotations

import msgspec

from tonnage.costs.ledger import CostLine
from tonnage.decisions import Finding, Ref, Scalar
from tonnage.errors import Where

SCHEMA = "tonnage.dev/result/v1"


class Quantiles(msgspec.Struct, frozen=True):
    """Of a latency, in milliseconds."""

    p50: float | None
    p95: float | None
    p99: float | None
    mean: float | None


class ServiceLevel(msgspec.Struct, frozen=True):
    """The service level asked for. Requests that arrive in [surge start, surge start + grace_s) are counted apart."""

    ttft_s: float
    tpot_s: float
    grace_s: float


class Attainment(msgspec.Struct, frozen=True):
    """Requests that arrived, finished, and met both TTFT and TPOT; ``share`` = met / requests (None without requests).

    A request that has not finished when the run ends has missed, unless it could still meet the SLO; those are
    ``undecided`` and not among ``requests``."""

    requests: int
    met: int
    missed_ttft: int
    missed_tpot: int
    unfinished: int
    undecided: int
    share: float | None


class Routing(msgspec.Struct, frozen=True):
    """What became of requests between the client and the engine; None where it does not apply."""

    reuse: float | None  # share of the finished requests' prompt tokens that were found in a KV cache
    cross_zone: float | None  # share of the requests that went to another zone than the client's
    remote_prefills: int | None  # prompts that were computed by a prefill pod and moved to a decode pod
    local_prefills: int | None  # those that stayed with their decode pod
    transfer_ms: Quantiles  # from the end of a prefill until its blocks were at the decode pod
    tier_tokens: int | None  # prompt tokens that engines loaded from KV cache tiers below the GPU


class ServiceResult(msgspec.Struct):
    """One model behind one Service."""

    name: str  # namespace/name of the Service
    workload: str  # namespace/name of the Deployment, namespace/kind/name of another kind
    model: str
    overall: Attainment  # outside the grace window
    grace: Attainment  # inside it: what the surge cost before anybody could react
    ttft_ms: Quantiles  # of all requests that got a first token
    tpot_ms: Quantiles
    prompt_tokens: int
    generated_tokens: int
    preemptions: int
    min_ready_replicas: int  # at any time from the start on
    max_ready_replicas: int
    min_replicas_allowed: int | None  # from the HPA, the ScaledObject or the policy
    surges: list[list[float]]  # [start_s, end_s, factor] as drawn in this run
    cold_start_s: Quantiles  # pod created → ready, in SECONDS
    routing: Routing | msgspec.UnsetType = msgspec.UNSET  # with shared prefixes, client zones or pools


class TrainingHours(msgspec.Struct, frozen=True):
    """Where the GPU-hours that a training workload held went; ``allocated`` is the sum of the others."""

    allocated: float
    useful: float
    lost: float  # to be repeated after a failure or an eviction, or never
    checkpoints: float  # writing them, and loading them again
    starting: float  # pods that start or stop while enough are bound
    broken: float  # pods of what was whole before wait for those that are replaced
    half: float  # held while fewer pods than the minimum were bound, before it was ever whole


class TrainingResult(msgspec.Struct):
    """One workload of a training framework."""

    name: str  # namespace/kind/name
    copy_of: str  # the workload as the manifests have it: itself, unless the scenario makes copies of it
    kind: str
    pods: int
    gpus: float  # that all of its pods ask for
    state: str  # absent, waiting, starting, loading, running, done or failed, at the end of the run
    progress: float | None  # share of its work that is done; None where it has no end
    arrival_s: float
    queue_wait_s: float | None  # from its arrival until enough of its pods were bound
    started_s: float | None
    finished_s: float | None  # done or failed
    makespan_s: float | None  # from its arrival until it was done
    restarts: int
    evictions: int
    gpu_hours: TrainingHours
    communication_factor: float | None  # predicted time of a step where the pods are placed, over computing alone
    phases: list[tuple[float, str]]  # from when on it was in which state


class NodeResult(msgspec.Struct):
    """One node's lifecycle and bill."""

    name: str
    instance_type: str
    gpu: str  # "" without accelerator
    gpus: int
    node_pool: str
    capacity_type: str
    zone: str
    price_micro_usd_per_hour: int
    launched_s: float
    ready_s: float | None  # initialised: registered, Ready, device plugin up
    ended_s: float | None  # None: still there at the end
    end_reason: str
    cost_micro_usd: int


class CostResult(msgspec.Struct):
    """The bill. total = sum over nodes = sum over lines, exactly."""

    total_micro_usd: int
    lines: list[CostLine]
    prices_as_of: str
    region: str


class GpuHours(msgspec.Struct, frozen=True):
    """paid: on nodes that were billed; allocated: held by pods; busy: with an engine step in flight."""

    paid: float
    allocated: float
    busy: float


class ServiceSeries(msgspec.Struct):
    """Columns over ``ResultSeries.t_s``; latencies: of the requests whose first/last token fell in the interval
    before t."""

    name: str
    arrivals_per_s: list[float]
    replicas_wanted: list[int]
    replicas_ready: list[int]
    replicas_starting: list[int]  # bound, not ready
    replicas_pending: list[int]  # no node
    requests_running: list[int]
    requests_waiting: list[int]
    kv_usage: list[float | None]  # 0..1, mean of the ready replicas
    ttft_p50_ms: list[float | None]
    ttft_p99_ms: list[float | None]
    tpot_p50_ms: list[float | None]
    tpot_p99_ms: list[float | None]
    slo_share: list[float | None]  # of the requests that finished in the interval


class ResultSeries(msgspec.Struct):
    """Everything over time, one row an interval (``t_s`` is its end)."""

    t_s: list[float]
    services: list[ServiceSeries]
    nodes_ready: list[int]
    nodes_starting: list[int]
    gpus_paid: list[int]
    gpus_allocated: list[int]
    spend_micro_usd: list[int]  # cumulative


class HeatRow(msgspec.Struct, omit_defaults=True):
    """One GPU. ``owner`` holds an index into ``Heatmap.owners`` (-1: node absent, 0: free), of several owners that of
    the first; ``busy`` is 0..100. ``parts``: where pods hold parts of it, an index into ``Heatmap.parts``, else 0;
    empty where that is never so."""

    node: str
    gpu: int
    owner: list[int]
    busy: list[int]
    parts: list[int] = []


class Heatmap(msgspec.Struct, omit_defaults=True):
    """Fleet over time: rows are node × GPU in the order in which nodes appeared. ``parts``: ways in which a GPU is
    held in parts, each the (index of the owner, per cent of the GPU) of who holds some of it; the first is empty."""

    t_s: list[float]
    owners: list[str]  # owners[0] == "free"
    rows: list[HeatRow]
    parts: list[list[tuple[int, float]]] = []


class DecisionRecord(msgspec.Struct):
    """One decision with its reason, the alternatives it beat, and the outcome."""

    t_s: float
    loop: str
    kind: str
    target: str
    summary: str
    verdict: str
    evidence: list[tuple[str, Scalar]]
    alternatives: list[tuple[str, str, float | None]]  # name, why it lost, score
    outcome: str  # "Applied", "Stale: …", "Refused: …"


class EventRecord(msgspec.Struct):
    """A cluster event, as kubectl would show it."""

    t_s: float
    object: str
    type: str  # Normal or Warning
    reason: str
    message: str
    count: int


class NotRunning(msgspec.Struct, frozen=True):
    """Pods of one workload that do not serve when the run ends, for one cause that stays; or an object that never does
    what it is there for (``stage`` no-effect). Pods that are merely on their way are not among them."""

    object: Ref  # the workload, or the object without effect
    pods: int  # that do not serve for this cause; 0 of an object that has none
    wanted: int  # pods that the workload should have
    since_s: float
    stage: str  # refused, unschedulable, creating, crashing, not-ready or no-effect: how far the pods came
    rule: str  # the identifier of the cause (docs/reference/findings.md)
    cause: str
    where: Where  # the line that decides it; of the workload where none is known
    event: str  # what kubectl shows: the reason, and the message; empty where it shows nothing
    restarts: int  # of the containers of these pods
    help: str  # the change that makes them run; empty where none is known


class WorkloadResult(msgspec.Struct, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet of a run without traffic. Replicas count as Ready while they serve."""

    name: str  # namespace/name
    model: str  # "" where it serves none
    replicas: int  # wanted, at the end
    min_ready_replicas: int  # at any time from the start on
    max_ready_replicas: int
    ready_s: float | None  # when one was Ready first


class InvariantChecks(msgspec.Struct):
    """Invariant checks made with --check."""

    enabled: bool
    steps: int
    violations: list[str]


class Result(msgspec.Struct):
    """One run of one policy."""

    schema: str
    tonnage_version: str
    scenario: str
    policy: str
    manifests: str
    seed: int
    duration_s: float
    traffic_source: str
    slo: ServiceLevel | None  # without traffic there is none
    services: list[ServiceResult]
    nodes: list[NodeResult]
    gpu_hours: GpuHours
    cost: CostResult
    series: ResultSeries
    heatmap: Heatmap
    findings: list[Finding]
    decisions: list[DecisionRecord]
    decision_counts: dict[str, int]
    events: list[EventRecord]
    check: InvariantChecks
    training: list[TrainingResult] | msgspec.UnsetType = msgspec.UNSET  # with workloads of training frameworks
    not_running: list[NotRunning] | msgspec.UnsetType = msgspec.UNSET  # the worst first; unset where there is none
    workloads: list[WorkloadResult] | msgspec.UnsetType = msgspec.UNSET  # where there is no traffic
