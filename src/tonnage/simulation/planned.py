"""What policies that set replicas are told of the workloads of a scenario: their bounds, what a replica sustains within
the SLO, and the queries for what is measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import msgspec

from tonnage.control.by_thresholds import Watched
from tonnage.control.replicas import Planned
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.facts import instances
from tonnage.fleet.asks import Kind
from tonnage.fleet.filters import OPEN, refusal, shape_of
from tonnage.inference.capacity import RequestMix, Slo, capacity, mean_latency_s
from tonnage.inference.timing import StepWork
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import EngineSetup, Workload
from tonnage.machines.scraping import GATEWAY_ACTIVE, GATEWAY_RECEIVED
from tonnage.machines.serving.service import SimulatedService
from tonnage.machines.serving.split import SplitService
from tonnage.provisioning.pods import PendingPod, PodShape
from tonnage.rng import Streams
from tonnage.scaling.target import PAIR, POOL, Target
from tonnage.simulation.assemble import workloads_of
from tonnage.simulation.configure import Configuration, bounds
from tonnage.simulation.scenario import Scenario
from tonnage.traffic.profile import TrafficProfile, sample
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S, ns

Sources = Mapping[str, TrafficProfile | Trace]
"""By service: where its requests come from."""

MIX_SIZE = 2_000
"""Requests drawn from a profile to stand for its mix of lengths."""

SHARE = 0.99
"""Share of requests within the SLO for which replicas are sized."""

REUSE_WINDOW = "5m"
"""How far back policies look at what engines found in their caches."""


def planned(
    scenario: Scenario,
    configuration: Configuration,
    cluster: SimulatedCluster,
    sources: Sources,
    policy: str,
) -> list[Planned]:
    """Every workload that serves traffic and has bounds, for the policy of this name."""
    found = []
    nodes = map(cluster.fleet.node, cluster.fleet.node_rows())
    far = bool(configuration.pools) and all(node.spec.node_pool for node in nodes)  # there is no fixed fleet
    limits = bounds(configuration, list(cluster.workloads.values()))
    goal = Slo(scenario.ttft_ns / NS_PER_S, scenario.tpot_ns / NS_PER_S)
    for service in cluster.services:
        behind = workloads_of(cluster, service)
        if not any(one.key in limits for one in behind):
            continue
        workload = behind[0]
        number = next(i for i, t in enumerate(scenario.spec.traffic) if service.name in t.services)
        if isinstance(service, SplitService):
            message = f"the {policy} policy sizes one pool, and {service.name} has two"
            hint = "scale each by an HPA or ScaledObject (scaling: manifests)"
            raise InputError(scenario.document.problem(f"traffic[{number}].split", message, hint))
        if len(behind) > 1:
            keys = ", ".join(one.key for one in behind)
            message = f"the {policy} policy sizes one workload for a Service, and {service.name} selects {keys}"
            hint = "give each a Service of its own, or scale them by HPAs or ScaledObjects (scaling: manifests)"
            raise InputError(scenario.document.problem(f"traffic[{number}].service", message, hint))
        if service.balancing == "random":
            field = f"traffic[{number}].balancing"
            message = f"the {policy} policy counts the requests of {service.name} at a gateway, and random has none"
            raise InputError(scenario.document.problem(field, message, "use round-robin or least-requests"))
        setup = _engine_of(cluster, workload, configuration)
        mix = _mix_of(service) if service.has_content else request_mix(sources[service.name])
        sized = partial(_sized, setup, mix, goal)
        rate, concurrency = sized(0.0)
        if rate <= 0:
            message = f"one replica of {workload.key} cannot meet the SLO at any rate"
            raise InputError(scenario.document.problem("slo", message, "raise the SLO or choose a faster GPU"))
        least, most = limits[workload.key]
        start = cluster.physics.durations.engine_start_cached_s + workload_weights_s(cluster, workload)
        target = Target(
            workload.key,
            capacity=rate,
            concurrency=concurrency,
            minimum=least,
            maximum=most,
            prior_cold_start_ns=ns(start),
            gpus=workload.server.args.gpus if workload.server else 1,
            sized=sized if service.has_content else None,
            pair_capacity=min(rate, capacity(setup.config, setup.timing, mix, goal, SHARE, replicas=PAIR))
            if far
            else 0.0,
            new_node_ns=ns(new_node_s(cluster, workload)) if far else 0,
        )
        selector = f'{{envoy_cluster_name="{service.name}"}}'
        received, in_flight = f"sum({GATEWAY_RECEIVED}{selector})", f"sum({GATEWAY_ACTIVE}{selector})"
        asked, cached = _cache_queries(service) if service.has_content else ("", "")
        found.append(Planned(policy, target, received, in_flight, asked, cached))
    return found


def watched(configuration: Configuration, cluster: SimulatedCluster) -> list[Watched]:
    """Every workload that has bounds, for published thresholds."""
    limits = bounds(configuration, list(cluster.workloads.values()))
    return [Watched(key, *limits[key], _gpus(cluster.workloads[key])) for key in sorted(limits)]


def _gpus(workload: Workload) -> int:
    """Whole GPUs of a replica."""
    ask = shape_of(workload.template.spec, workload.template.metadata.annotations).ask
    return ask.count if ask.kind is Kind.WHOLE else 0


def _sized(setup: EngineSetup, mix: RequestMix, goal: Slo, reuse: float) -> tuple[float, float]:
    """(requests per second that a replica sustains within the SLO, requests that it then has in flight)."""
    mix = msgspec.structs.replace(mix, reuse=reuse)
    rate = capacity(setup.config, setup.timing, mix, goal, SHARE, replicas=POOL)
    return rate, rate * mean_latency_s(setup.config, setup.timing, mix, rate) if rate > 0 else 0.0


def _cache_queries(service: SimulatedService) -> tuple[str, str]:
    """PromQL: prompt tokens that the Service's engines looked for in their caches in ``REUSE_WINDOW``, and found."""
    namespace, _, name = service.name.partition("/")
    selector = f'{{namespace="{namespace}",service="{name}"}}[{REUSE_WINDOW}]'
    series = "vllm:prefix_cache"
    return f"sum(increase({series}_queries_total{selector}))", f"sum(increase({series}_hits_total{selector}))"


def workload_weights_s(cluster: SimulatedCluster, workload: Workload) -> float:
    """Seconds to read the workload's weights from page cache."""
    return workload.server.weight_bytes / cluster.physics.durations.page_cache_bytes_per_s if workload.server else 0.0


def new_node_s(cluster: SimulatedCluster, workload: Workload) -> float:
    """Seconds until a replica serves that needs a new node: the node, the image, the engine and its weights."""
    took = cluster.physics.durations
    node = took.launch_s + took.register_s + took.ready_s + took.device_plugin_s
    image = took.image_bytes / took.image_pull_bytes_per_s + took.container_start_s
    return node + image + took.engine_start_s + workload_weights_s(cluster, workload)


def _engine_of(cluster: SimulatedCluster, workload: Workload, configuration: Configuration) -> EngineSetup:
    """The slowest engine that the workload gets on the GPUs that are there now and that its pods may use; where there
    are none, on the GPU of the node that is launched for one of its pods."""
    template, fleet = workload.template, cluster.fleet
    shape = shape_of(template.spec, template.metadata.annotations)
    nodes = [fleet.node(row) for row in fleet.node_rows()]
    allowed = [node.spec.gpu for node in nodes if node.spec.gpu and refusal(shape, node) == OPEN]
    allowed = allowed or list(_launched_for(workload, configuration))
    setups = [cluster.physics.engine(workload, gpu) for gpu in allowed]
    working = [s for s in setups if isinstance(s, EngineSetup)]
    if not working:
        reasons = "; ".join(sorted({s for s in setups if isinstance(s, str)})) or "there are none"
        message = f"{workload.key} starts on none of the GPUs that are there at first or are launched: {reasons}"
        raise InputError.at(message, hint="give the fleet a node on which it can be sized, or a NodePool that has one")
    return max(working, key=lambda s: s.timing.step(StepWork(decoders=1)))


def _launched_for(workload: Workload, configuration: Configuration) -> Iterator[str]:
    """The GPU of the first node that NodePools launch for a pod of the workload."""
    from tonnage.provisioning import karpenter

    meta = workload.template.metadata
    shape = PodShape.of(workload.template.spec, meta.annotations)
    pod = PendingPod(Ref("Pod", workload.name, workload.namespace), shape)
    for launch in karpenter.plan([pod], [], configuration.pools, configuration.catalogue).launches[:1]:
        gpu = instances.get(launch.instance_type).gpu
        if gpu:
            yield gpu


def _mix_of(service: SimulatedService) -> RequestMix:
    """The lengths of prompts that begin with what was said before, all over the run."""
    arrivals = service.requests.arrivals
    step = max(1, len(arrivals) // MIX_SIZE)
    return RequestMix(tuple(zip(arrivals.prompt[::step].tolist(), arrivals.output[::step].tolist(), strict=True)))


def request_mix(source: TrafficProfile | Trace) -> RequestMix:
    """The lengths of a source's requests: drawn from a profile with a fixed seed, or spread evenly over a trace."""
    if isinstance(source, TrafficProfile):
        prompt, output = sample(source, Streams(0).get("request-mix"), MIX_SIZE)
    else:
        step = max(1, len(source.prompt) // MIX_SIZE)
        prompt, output = source.prompt[::step], source.output[::step]
    return RequestMix(tuple(zip(prompt.tolist(), output.tolist(), strict=True)))
