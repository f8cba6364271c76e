"""From a scenario's traffic to Services: which workloads answer, which requests each gets, and how they are spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from tonnage.decisions import Finding, Ref
from tonnage.documents import duration_ns
from tonnage.errors import InputError, Problem, both
from tonnage.fleet.rows import split_key
from tonnage.health.blocker import Blocker
from tonnage.inference import memory, servers
from tonnage.inference.config import VllmArgs, kv_stored_in, kv_token_bytes
from tonnage.inference.disaggregation.actions import Leases
from tonnage.inference.disaggregation.links import kv_link
from tonnage.inference.hybrid import layout
from tonnage.inference.servers import other_servers
from tonnage.machines.blocked import of_workload
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import ModelServer, Workload
from tonnage.machines.scraping import wants_histograms
from tonnage.machines.serving.balancing import needs_content
from tonnage.machines.serving.lower_tiers import LowerTiers, tier_sizes
from tonnage.machines.serving.service import SimulatedService
from tonnage.machines.serving.split import DECODE, PREFILL, Split, SplitService
from tonnage.objects import apps, core, selectors
from tonnage.rng import Streams
from tonnage.simulation.configure import Configuration, workloads_behind
from tonnage.simulation.entries import SplitEntry, TrafficSpec, conditional_rule, prefixes
from tonnage.simulation.findings.zones import prefers_zone
from tonnage.simulation.scenario import PolicySpec, Scenario, Traffic
from tonnage.traffic.arrivals import Arrivals, Content, TooManyRequests, build
from tonnage.traffic.profile import TrafficProfile
from tonnage.traffic.profile_file import read_profile
from tonnage.traffic.surges import Surge, draw_surges
from tonnage.traffic.traces import Trace, load_trace

_NO_PORT = ("service-port-not-found", "service-port-not-served")
_BLOCK_SIZE = 16
"""Tokens of a KV block unless a server is told otherwise."""

"""Values of a Service's trafficDistribution with which kube-proxy stays in the client's zone where it can."""

Source = TrafficProfile | Trace


def connect_traffic(
    scenario: Scenario,
    policy: PolicySpec,
    configuration: Configuration,
    cluster: SimulatedCluster,
    override: Path | Trace | None,
    seed: int,
    profiles: Mapping[str, TrafficProfile] = MappingProxyType({}),
) -> dict[str, Source]:
    """Make the Services that receive traffic. Returns each one's source, by its name. One that selects no pod has
    no endpoints, and its requests fail; one whose pods belong to no Deployment or StatefulSet is left out
    (:func:`left_out`).

    ``override``: a trace that replaces every source; ``profiles``: those that replace one, by the names of its
    Services. Raises InputError for a Service that is not there, selects a
    Deployment without an engine, or serves already, for pools that are not there, and for unreadable sources.
    """
    services = {f"{s.namespace or 'default'}/{s.name}": s for s in configuration.manifest.of(core.Service)}
    trace = load_trace(override) if isinstance(override, Path) else override
    histograms = wants_histograms(s.name for q in configuration.queries() for s in q.selectors())
    sources: dict[str, Source] = {}

    def connect(i: int, traffic: Traffic) -> None:
        spec = traffic.spec
        names = tuple(dict.fromkeys(spec.services))
        dead = {(b.object.namespace, b.object.name) for b in configuration.blockers if _has_no_endpoints(b)}
        stream = "+".join(names)
        found, source = both(
            lambda: [
                [] if split_key(name) in dead else _workloads(scenario, f"traffic[{i}]", spec, name, services, cluster)
                for name in names
            ],
            lambda: trace or profiles.get(stream) or _read_source(traffic),
        )
        surges = draw_surges(traffic.surges, cluster.streams.get(f"surges/{stream}"))
        for name, workloads in zip(names, found, strict=True):
            if not workloads and selects(services[name], configuration, cluster):
                continue
            try:
                arrivals = _arrivals(scenario, spec, source, stream, surges, _server(workloads), seed)
            except TooManyRequests as error:
                (told,) = error.problems
                raise InputError(scenario.document.problem(f"traffic[{i}].rate", told.message, told.hint)) from error
            if spec.routes:
                route = _routed(spec, arrivals, Streams(seed).get(f"routes/{stream}"))
                arrivals = _part(arrivals, np.isin(route, [n for n, r in enumerate(spec.routes) if r.service == name]))
            if spec.client_zones:
                arrivals = _with_zones(arrivals, spec.client_zones, cluster.streams.get(f"zones/{name}"))
            service = _service(scenario, f"traffic[{i}]", spec, policy, services[name], workloads, arrivals, cluster)
            service.histograms = histograms
            sources[name] = source
            for workload in workloads:
                workload.service = service
            cluster.services.append(service)

    problems: list[Problem] = []
    for i, traffic in enumerate(scenario.traffic):
        try:
            connect(i, traffic)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    return sources


def _workloads(
    scenario: Scenario,
    field: str,
    spec: TrafficSpec,
    name: str,
    services: dict[str, core.Service],
    cluster: SimulatedCluster,
) -> list[Workload]:
    """Who answers for a Service: every workload with an engine that it selects, or with pools the two of them, prefill
    first; nobody where it selects no Deployment, or one whose pods never run."""
    known = services.get(name)
    found = workloads_behind(cluster, known) if known else []
    why = ""
    if known is None:
        why = "no such Service in the manifests"
    elif all(one.server is None for one in found):
        if not found or any(_is_unknown(cluster, one) or of_workload(cluster, one) for one in found):
            return []
        why = "the Service selects no workload with an engine"
    else:
        found = _pools(spec.split, found, scenario, field) or [one for one in found if one.server is not None]
        taken = next((w for w in found if w.service is not None), None)
        if taken is not None and taken.service is not None:
            why = f"{taken.key} serves {taken.service.name} already"
    if why:
        hint = f"Services: {', '.join(sorted(services)) or 'none'}"
        place = f"{field}.routes" if spec.routes else f"{field}.service"
        raise InputError(scenario.document.problem(place, f'"{name}": {why}', hint))
    return found


def _has_no_endpoints(blocker: Blocker) -> bool:
    """Whether nothing answers under the port of a Service."""
    return blocker.object.kind == "Service" and not blocker.some and blocker.rule in _NO_PORT


def selects(service: core.Service, configuration: Configuration, cluster: SimulatedCluster) -> bool:
    """Whether the Service has pods whose engine is not simulated: of a workload that is neither, or with a model
    of which nothing is known."""
    ref = Ref("Service", service.name, service.namespace or "default")
    if any(_is_unknown(cluster, one) for one in workloads_behind(cluster, service)):
        return True
    if any(one.object == ref for one in configuration.blockers):
        return False
    return any(
        pods.namespace == ref.namespace and not isinstance(pods.object, apps.Replicated)
        for pods in configuration.setting.pods
    )


def _is_unknown(cluster: SimulatedCluster, workload: Workload) -> bool:
    """Whether nothing is known of the model of its engine, which is no reason not to start."""
    return bool(_unknown(workload)[0]) and not of_workload(cluster, workload)


def _unknown(workload: Workload) -> tuple[str, str]:
    """Why the engine of a workload is not simulated, and what helps; empty where it is, or where there is none."""
    spec = workload.template.spec
    found = servers.find(spec)
    other = other_servers.find(spec) if found is None else None
    if workload.server is not None or (found is None and other is None):
        return "", ""
    known = found.known if found is not None else other.known if other is not None else None
    if isinstance(known, servers.UnknownModel):
        named = f"models: {{{known.name}: …}} in the scenario gives its shape or config.json"
        return known.message, f"{known.hint}; {named}"
    if known is None:
        return "its command line names no model that can be read", "give the model as a plain argument"
    return "its weights are in host memory", ""


def left_out(scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster) -> Iterator[Finding]:
    """Traffic to pods that belong to no Deployment or StatefulSet: nobody answers it here, and nobody misses it."""
    there = {service.name for service in cluster.services}
    for i, traffic in enumerate(scenario.spec.traffic):
        for name in dict.fromkeys(traffic.services):
            if name not in there:
                namespace, _, short = name.partition("/")
                place = scenario.document.where(f"traffic[{i}].service")
                service = next(
                    one
                    for one in configuration.manifest.of(core.Service)
                    if one.name == short and (one.namespace or "default") == namespace
                )
                behind = workloads_behind(cluster, service)
                why, help_ = next((told for one in behind if (told := _unknown(one))[0]), ("", ""))
                why = why or "they are of no Deployment or StatefulSet"
                message = f"the engines of {name} are not simulated: {why}; its traffic is left out"
                ref = Ref("Service", short, namespace)
                yield Finding("traffic-left-out", "warning", ref, place, message, help=help_ or UNSET)


def _pools(split: SplitEntry | None, found: Sequence[Workload], scenario: Scenario, field: str) -> list[Workload]:
    """The prefill and the decode workload. Neither is there in manifests that do not split: then none."""
    if split is None:
        return []
    pools = []
    for role, labels in ((PREFILL, split.prefill), (DECODE, split.decode)):
        selector = core.LabelSelector(match_labels=labels)
        pools.append([w for w in found if selectors.matches(selector, w.template.metadata.labels)])
        if len(pools[-1]) > 1 or (pools[-1] and pools[-1][0].server is None):
            keys = ", ".join(w.key for w in pools[-1])
            message = f"selects {keys}, expected one Deployment with an engine"
            raise InputError(scenario.document.problem(f"{field}.split.{role}", message))
    if not any(pools):
        return []
    for role, pool in zip((PREFILL, DECODE), pools, strict=True):
        if not pool:
            message = "selects no Deployment of the Service, while the other pool's does"
            raise InputError(scenario.document.problem(f"{field}.split.{role}", message, "give its pods' labels"))
    prefill, decode = pools[0][0], pools[1][0]
    if prefill is decode or _model(prefill) != _model(decode):
        message = f"{prefill.key} and {decode.key} must be two Deployments of the same model and block size"
        raise InputError(scenario.document.problem(f"{field}.split", message))
    prefill.role, decode.role = PREFILL, DECODE
    return [prefill, decode]


def _model(workload: Workload) -> tuple[str, int]:
    assert workload.server is not None
    return workload.server.model, _block_size(workload.server)


def _server(workloads: Sequence[Workload]) -> ModelServer | None:
    """The engine of those who answer; None where nobody does."""
    return workloads[-1].server if workloads else None


def _service(
    scenario: Scenario,
    field: str,
    spec: TrafficSpec,
    policy: PolicySpec,
    known: core.Service,
    workloads: Sequence[Workload],
    arrivals: Arrivals,
    cluster: SimulatedCluster,
) -> SimulatedService:
    name = f"{known.namespace or 'default'}/{known.name}"
    balancing = policy.balancing or spec.balancing
    if needs_content(balancing) and arrivals.content is None:
        message = f'"{balancing}" looks at what prompts have in common, and the trace has no hash_ids'
        raise InputError(scenario.document.problem(f"{field}.balancing", message, "use another balancing or trace"))
    if spec.tiers and policy.tiers is None and arrivals.content is None:
        message = "tiers hold what prompts have in common, and the trace has no hash_ids"
        raise InputError(scenario.document.problem(f"{field}.tiers", message, "leave them out or use another trace"))
    sizes_of_blocks = {_block_size(one.server) for one in workloads}
    if arrivals.content is not None and len(sizes_of_blocks) > 1:
        keys = ", ".join(one.key for one in workloads)
        message = f"{name} selects {keys}, whose engines find prompts again by blocks of different sizes"
        raise InputError(scenario.document.problem(f"{field}.service", message, "give them one --block-size"))
    rng = cluster.streams.python(f"balancing/{name}")
    server = _server(workloads)
    if spec.split is not None and len(workloads) > 1 and server is not None:
        split = _split(spec.split, policy, server)
        prefill_rng = cluster.streams.python(f"balancing/{name}/prefill")
        made: SimulatedService = SplitService(name, arrivals, balancing, rng, prefill_rng, split)
    else:
        near = arrivals.zones is not None and prefers_zone(known)
        migration = spec.migration if policy.migration is None else policy.migration
        near = spec.zone_aware or near
        made = SimulatedService(name, arrivals, balancing, rng, zone_aware=near, migration=migration)
    sizes = tier_sizes(spec.tiers if policy.tiers is None else policy.tiers)
    if sizes and arrivals.content is not None and server is not None:
        made.tiers = LowerTiers(sizes, _token_bytes(server))
    return made


def _block_size(server: ModelServer | None) -> int:
    """Tokens of a block by which an engine finds prompts again; any where no engine could start."""
    if server is None:
        return _BLOCK_SIZE
    size, args = max(server.args.block_size or _BLOCK_SIZE, 0) or _BLOCK_SIZE, server.args
    if server.refused:
        return size  # the pods say why
    model = server.known
    if not model.window_layers or args.disable_hybrid_kv_cache_manager:
        return size
    try:
        kept = memory.kv_kinds(model, kv_stored_in(args.dtype, args.kv_cache_dtype), args.tensor_parallel_size)
    except InputError:
        return size  # the pods say why
    return layout(kept, size).block_size


def _token_bytes(server: ModelServer) -> int:
    """KV cache of one token, on all GPUs of an engine; of one that never starts in 16 bits on one GPU."""
    try:
        return kv_token_bytes(server.known, server.args)
    except InputError:
        return kv_token_bytes(server.known, VllmArgs())  # the pods say why


def _split(entry: SplitEntry, policy: PolicySpec, server: ModelServer) -> Split:
    lease = duration_ns(entry.lease)
    return Split(
        kv_link(policy.link or entry.link),
        entry.lanes,
        server.known.layers,
        _token_bytes(server),
        entry.layerwise,
        Leases(lease, lease * 2 // 3, max(1, lease // 6)),
        conditional_rule(entry.conditional),
    )


def _arrivals(
    scenario: Scenario,
    spec: TrafficSpec,
    source: Source,
    stream: str,
    surges: Sequence[Surge],
    server: ModelServer | None,
    seed: int,
) -> Arrivals:
    return build(
        source,
        service=stream,
        seed=seed,
        duration_ns=scenario.duration_ns,
        rate=spec.rate,
        speed=spec.speed,
        surges=surges,
        prefixes=prefixes(spec.prefixes) if spec.prefixes is not None else None,
        block_size=_block_size(server),
    )


def _routed(spec: TrafficSpec, arrivals: Arrivals, rng: np.random.Generator) -> NDArray[np.intp]:
    """The route of each request, at random; the turns of a session go one way."""
    weights = np.array([route.share for route in spec.routes])
    edges = np.cumsum(weights / weights.sum())
    drawn = _for_each(arrivals, rng)
    return np.minimum(np.searchsorted(edges, drawn, side="right"), len(edges) - 1)


def _for_each(arrivals: Arrivals, rng: np.random.Generator) -> NDArray[np.float64]:
    """A number from 0 to 1 for each request, the same for all turns of a session."""
    sessions = arrivals.content.sessions if arrivals.content is not None else ()
    if not sessions:
        return rng.random(len(arrivals))
    return rng.random(max(sessions) + 1)[np.array(sessions, np.intp)]


def _part(arrivals: Arrivals, taken: NDArray[np.bool_]) -> Arrivals:
    """Some of the requests."""
    content = arrivals.content
    if content is not None:
        numbers = np.flatnonzero(taken).tolist()
        sessions = [content.sessions[n] for n in numbers] if content.sessions else ()
        content = Content(content.block_size, [content.paths[n] for n in numbers], sessions)
    return Arrivals(
        arrivals.arrival_ns[taken], arrivals.prompt[taken], arrivals.output[taken], arrivals.surges, content
    )


def _with_zones(arrivals: Arrivals, weights: Mapping[str, float], rng: np.random.Generator) -> Arrivals:
    names = list(weights)
    edges = np.cumsum(np.array(list(weights.values())) / sum(weights.values()))
    drawn = np.minimum(np.searchsorted(edges, _for_each(arrivals, rng), side="right"), len(names) - 1)
    return replace(arrivals, zones=[names[i] for i in drawn.tolist()])


def _read_source(traffic: Traffic) -> Source:
    return load_trace(traffic.path) if traffic.is_trace else read_profile(traffic.path)
