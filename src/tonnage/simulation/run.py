"""One run of one policy of a scenario, from start to :class:`Result`."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from tonnage.control.loops import Loop
from tonnage.control.nodes import Pools
from tonnage.control.policy import Policy
from tonnage.control.replicas import Autoscalers, Planned, SloPlanner
from tonnage.control.scheduler import Scheduler
from tonnage.errors import InputError
from tonnage.facts import prices
from tonnage.fleet.asks import GPU
from tonnage.fleet.filters import OPEN, refusal, shape_of
from tonnage.health.rules.devices import NOT_SIMULATED
from tonnage.inference.capacity import RequestMix, Slo, capacity, mean_latency_s
from tonnage.inference.timing import StepWork
from tonnage.machines.blocked import by_object
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import EngineSetup, Offering, Workload
from tonnage.machines.scraping import GATEWAY_ACTIVE, GATEWAY_RECEIVED, Scraper
from tonnage.machines.serving.service import Service
from tonnage.machines.serving.split import SplitService
from tonnage.machines.training.happened import Then
from tonnage.objects import apps, autoscaling, core, load
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.provisioning.catalogue import Catalogue
from tonnage.rng import Streams
from tonnage.scaling import manifests, slo
from tonnage.scheduling import place
from tonnage.simulation import assumed
from tonnage.simulation.assemble import assemble, workloads_of
from tonnage.simulation.configure import Configuration, bounds, build_cluster, configure, sorted_findings
from tonnage.simulation.connect import connect_traffic, left_out
from tonnage.simulation.driver import Driver, Observer
from tonnage.simulation.engine_findings import unknown_modes, unread_flags
from tonnage.simulation.extent import refuse_too_much
from tonnage.simulation.faults import schedule_faults
from tonnage.simulation.ignored_flags import ignored_flags
from tonnage.simulation.prospects import prospects
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.relayout_findings import layouts_that_stay
from tonnage.simulation.result import Check, Result
from tonnage.simulation.scenario import Scenario
from tonnage.simulation.standing import machines
from tonnage.simulation.training.connect import connect_training
from tonnage.simulation.unserved import Known
from tonnage.simulation.zones import zone_findings
from tonnage.traffic.profile import TrafficProfile, sample
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S, ns

EPOCH_NS = calendar.timegm((2026, 3, 2, 9, 0, 0)) * NS_PER_S
"""A run begins on a Monday at 9:00 UTC, for disruption budgets with a schedule."""

SAMPLES = 360
"""Samples over a run, at least 5 s apart."""

MIX_SIZE = 2_000
"""Requests drawn from a profile to stand for its mix of lengths."""

SHARE = 0.99
"""Share of requests within the SLO for which the slo policy sizes its replicas."""

POOL = 8
"""Replicas that share the arrivals when one replica's capacity is found: fewer carry less each, more carry more."""

REUSE_WINDOW = "5m"
"""How far back the slo policy looks at what engines found in their caches."""

Sources = Mapping[str, TrafficProfile | Trace]
Scaler = Callable[[Scenario, Configuration, SimulatedCluster, Sources], list[Loop]]


@dataclass(frozen=True, slots=True)
class Options:
    """How to run: ``trace`` replaces every service's profile, ``check`` verifies all invariants after every event,
    ``price_file`` overrides prices, ``observer`` is called after every event. ``manifest``: what the policy's folder
    has, where somebody has read it already.

    For experiments: ``tune`` changes the manifests once they are read, ``scaler`` makes the loops that set replicas.
    """

    seed: int = 0
    trace: Path | None = None
    check: bool = False
    price_file: Path | None = None
    observer: Observer | None = None
    tune: Callable[[load.Manifest], load.Manifest] | None = None
    scaler: Scaler | None = None
    manifest: load.Manifest | None = None


@dataclass(frozen=True, slots=True)
class SetUp:
    """A scenario under one policy, before time begins: who asks for what of which machines."""

    scenario: Scenario
    policy: str
    options: Options
    configuration: Configuration
    cluster: SimulatedCluster
    sources: Sources

    def scraper(self) -> Scraper:
        """What Prometheus scrapes."""
        return Scraper(self.configuration.monitors, any(s.histograms for s in self.cluster.services))

    @property
    def controls(self) -> Policy:
        """How the policy has pods placed and GPUs cut."""
        return self.scenario.policy(self.policy).controls

    def placing(self) -> place.Settings:
        """The scheduler's settings, as the policy says: there is no other scheduler, it places every pod."""
        return self.controls.settings(self.scheduler_names, strict=False)

    @property
    def scheduler_names(self) -> tuple[str, ...]:
        """Every schedulerName that somebody answers to: here that is one scheduler."""
        return tuple(dict.fromkeys((*place.DEFAULTS.scheduler_names, *self.configuration.setting.schedulers)))

    def loops(self, pools: Callable[[], Pools] | None = None) -> list[Loop]:
        """All control loops, as the policy says. ``pools``: where they are not those of the manifests."""
        settings = self.placing()
        loops = [Scheduler(settings).loop()]
        if self.configuration.pools:
            loops += self.controls.node_loops(self.for_sale, pools or self.pools, EPOCH_NS)
        return [*loops, *self.controls.partitioning_loops(settings), *self.replica_loops()]

    def pools(self) -> Pools:
        """The NodePools of the manifests that can launch nodes, and what they need."""
        made = self.configuration
        daemon_sets = tuple(one.spec.template.spec for one in made.manifest.of(apps.DaemonSet))
        return Pools(made.pools, made.storage, daemon_sets, made.cuts)

    @property
    def for_sale(self) -> Catalogue:
        """The instance types that are launched: none for devices that are not simulated, where pods ask for such."""
        catalogue = self.configuration.catalogue
        if all(one.rule != NOT_SIMULATED for one in self.configuration.blockers):
            return catalogue
        return Catalogue((one for one in catalogue.types if one.resource in ("", GPU)), catalogue.book)

    def start_training(self) -> None:
        """Let the training workloads of the manifests arrive when they are due."""
        for training in self.cluster.training.values():
            self.cluster.queue.push(training.arrival_ns, Then(training.arrive))

    def break_things(self) -> None:
        """Let the scenario's faults happen when they are due."""
        schedule_faults(self.scenario.spec.faults, self.cluster, _offerings(self.configuration.catalogue))

    def replica_loops(self) -> list[Loop]:
        """The loops that set replicas, as the policy says."""
        by_slo = self.scenario.policy(self.policy).scaling == "slo"
        scaler = self.options.scaler or (_slo_loops if by_slo else _manifest_loops)
        return scaler(self.scenario, self.configuration, self.cluster, self.sources)

    @property
    def known(self) -> Known:
        """What tells why something does not run."""
        made = self.configuration
        return Known(made.manifest.objects, made.blockers, made.findings)

    def recorder(self) -> Recorder:
        """An empty record."""
        return Recorder(max(5 * NS_PER_S, self.scenario.duration_ns // SAMPLES))

    def result(self, machine: Driver) -> Result:
        """Everything that the run has to say."""
        return assemble(
            self.scenario,
            self.cluster,
            machine.recorder,
            policy=self.policy,
            seed=self.options.seed,
            traffic_source="; ".join(dict.fromkeys(_source_name(s) for s in self.sources.values())),
            prices_as_of=self.configuration.catalogue.book.as_of,
            known=self.known,
            check=Check(self.options.check, machine.steps, machine.violations),
        )


def set_up(scenario: Scenario, policy: str, options: Options | None = None) -> SetUp:
    """Read and admit everything. Raises InputError for anything wrong in the scenario, its manifests or its traffic."""
    options = options or Options()
    chosen = scenario.policy(policy)
    price_file = options.price_file or (scenario.folder / scenario.spec.prices if scenario.spec.prices else None)
    region = scenario.spec.region
    bundled = ", ".join(prices.regions())
    if price_file is None and region not in prices.regions():
        message = f'"{region}": no prices of this region are bundled, only of {bundled}'
        raise InputError(scenario.document.problem("region", message, "give this region's prices with prices:"))
    catalogue = Catalogue.load(price_file, region)
    if region != catalogue.book.region:
        message = f'"{region}": the prices are those of {catalogue.book.region}'
        raise InputError(scenario.document.problem("region", message, f"bundled are {bundled}; others with prices:"))
    manifest = options.manifest or load.read(scenario.files or [scenario.folder / chosen.manifests])
    if scenario.assumes:
        manifest = assumed.with_nodes(manifest)
    if options.tune is not None:
        manifest = options.tune(manifest)
    refuse_too_much(scenario, manifest.objects)
    configuration = configure(manifest, catalogue, machines(scenario, manifest))
    cluster = build_cluster(scenario, configuration, Streams(options.seed))
    sources = connect_traffic(scenario, chosen, configuration, cluster, options.trace, options.seed)
    for key, (least, _) in bounds(configuration, list(cluster.workloads.values())).items():
        cluster.workloads[key].minimum = least
    cluster.disruption_budgets = manifest.of(PodDisruptionBudget)
    doubts = [
        *connect_training(scenario, manifest.objects, cluster),
        *left_out(scenario, configuration, cluster),
        *ignored_flags(configuration.setting, cluster),
        *zone_findings(manifest.of(core.Service), cluster),
        *unread_flags(configuration.setting.pods),
        *unknown_modes(configuration.setting.pods),
        *layouts_that_stay(scenario, policy, cluster.fleet, manifest),
    ]
    found = (*configuration.findings, *doubts)
    if scenario.assumes:
        found = tuple(assumed.said(manifest, found, str(scenario.folder)))
    configuration = replace(configuration, findings=sorted_findings(found, configuration.pods))
    made = SetUp(scenario, policy, options, configuration, cluster, sources)
    more = tuple(prospects(made, configuration.setting))
    configuration = configuration.with_blockers(more, nodes=bool(cluster.fleet.node_by_name))
    cluster.blockers = by_object(configuration.blockers)
    return replace(made, configuration=configuration)


def run(scenario: Scenario, policy: str, options: Options | None = None) -> Result:
    """Run one policy in the simulated world. Raises InputError as :func:`set_up` does."""
    made = set_up(scenario, policy, options)
    return made.result(play(made))


def play(made: SetUp, recorder: Recorder | None = None) -> Driver:
    """Run to the end, or to where the observer raises. ``recorder``: where what happens is written down."""
    machine = Driver(made.cluster, recorder or made.recorder(), made.options.check)
    made.start_training()
    machine.start(made.loops(), made.scraper())
    made.break_things()
    machine.play(made.scenario.duration_ns, made.options.observer)
    return machine


def _offerings(catalogue: Catalogue) -> list[Offering]:
    """All that EC2 sells."""
    book = catalogue.book
    return [(name, o.zone, o.capacity_type) for name in catalogue.names for o in book.offerings(name)]


def _manifest_loops(
    scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster, sources: Sources
) -> list[Loop]:
    """Replicas as the manifests say: every HPA, and KEDA."""
    admitted = configuration.admitted
    return Autoscalers(
        [manifests.hpa_spec(h) for h in admitted.hpas if not _made_by_keda(h)],
        configuration.scaled,
        admitted.ambiguous,
    ).loops()


def _made_by_keda(hpa: autoscaling.HorizontalPodAutoscaler) -> bool:
    """Whether the HPA is one that KEDA made for a ScaledObject, exported with the rest: KEDA makes it again."""
    return any(owner.kind == "ScaledObject" for owner in hpa.metadata.owner_references)


def _slo_loops(
    scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster, sources: Sources
) -> list[Loop]:
    """Replicas by the slo policy."""
    return [slo_planner(scenario, configuration, cluster, sources).loop()]


def slo_planner(
    scenario: Scenario,
    configuration: Configuration,
    cluster: SimulatedCluster,
    sources: Sources,
) -> SloPlanner:
    """The slo policy for every workload that serves traffic and has bounds."""
    planned = []
    limits = bounds(configuration, list(cluster.workloads.values()))
    goal = Slo(scenario.ttft_ns / NS_PER_S, scenario.tpot_ns / NS_PER_S)
    for service in cluster.services:
        behind = workloads_of(cluster, service)
        if not any(one.key in limits for one in behind):
            continue
        workload = behind[0]
        number = next(i for i, t in enumerate(scenario.spec.traffic) if service.name in t.services)
        if isinstance(service, SplitService):
            message = f"the slo policy sizes one pool, and {service.name} has two"
            hint = "scale each by an HPA or ScaledObject (scaling: manifests)"
            raise InputError(scenario.document.problem(f"traffic[{number}].split", message, hint))
        if len(behind) > 1:
            keys = ", ".join(one.key for one in behind)
            message = f"the slo policy sizes one workload for a Service, and {service.name} selects {keys}"
            hint = "give each a Service of its own, or scale them by HPAs or ScaledObjects (scaling: manifests)"
            raise InputError(scenario.document.problem(f"traffic[{number}].service", message, hint))
        if service.balancing == "random":
            field = f"traffic[{number}].balancing"
            message = f"the slo policy counts the requests of {service.name} at a gateway, and random has none"
            raise InputError(scenario.document.problem(field, message, "use round-robin or least-requests"))
        setup = _engine_of(cluster, workload)
        mix = _mix_of(service) if service.has_content else request_mix(sources[service.name])
        sized = partial(_sized, setup, mix, goal)
        rate, concurrency = sized(0.0)
        if rate <= 0:
            message = f"one replica of {workload.key} cannot meet the SLO at any rate"
            raise InputError(scenario.document.problem("slo", message, "raise the SLO or choose a faster GPU"))
        least, most = limits[workload.key]
        start = cluster.durations.engine_start_cached_s + workload_weights_s(cluster, workload)
        target = slo.Target(
            workload.key,
            capacity=rate,
            concurrency=concurrency,
            minimum=least,
            maximum=most,
            prior_cold_start_ns=ns(start),
            gpus=workload.server.args.gpus if workload.server else 1,
            sized=sized if service.has_content else None,
        )
        selector = f'{{envoy_cluster_name="{service.name}"}}'
        received, in_flight = f"sum({GATEWAY_RECEIVED}{selector})", f"sum({GATEWAY_ACTIVE}{selector})"
        asked, found = _cache_queries(service) if service.has_content else ("", "")
        planned.append(Planned(target, received, in_flight, asked, found))
    return SloPlanner(lambda snapshot: planned)


def _sized(setup: EngineSetup, mix: RequestMix, goal: Slo, reuse: float) -> tuple[float, float]:
    """(requests a second that a replica carries within the SLO, requests that it then has in flight)."""
    mix = msgspec.structs.replace(mix, reuse=reuse)
    rate = capacity(setup.config, setup.timing, mix, goal, SHARE, replicas=POOL)
    return rate, rate * mean_latency_s(setup.config, setup.timing, mix, rate) if rate > 0 else 0.0


def _cache_queries(service: Service) -> tuple[str, str]:
    """PromQL: prompt tokens that the Service's engines looked for in their caches in ``REUSE_WINDOW``, and found."""
    namespace, _, name = service.name.partition("/")
    selector = f'{{namespace="{namespace}",service="{name}"}}[{REUSE_WINDOW}]'
    series = "vllm:prefix_cache"
    return f"sum(increase({series}_queries_total{selector}))", f"sum(increase({series}_hits_total{selector}))"


def workload_weights_s(cluster: SimulatedCluster, workload: Workload) -> float:
    """Seconds to read the workload's weights from page cache."""
    return workload.server.weight_bytes / cluster.durations.page_cache_bytes_per_s if workload.server else 0.0


def _engine_of(cluster: SimulatedCluster, workload: Workload) -> EngineSetup:
    """The slowest engine that the workload gets on the GPUs that are there now and that its pods may use."""
    template, fleet = workload.template, cluster.fleet
    shape = shape_of(template.spec, template.metadata.annotations)
    nodes = [fleet.node(row) for row in fleet.node_rows()]
    allowed = [node.spec.gpu for node in nodes if node.spec.gpu and refusal(shape, node) == OPEN]
    setups = [cluster.physics.engine(workload, gpu) for gpu in allowed]
    working = [s for s in setups if isinstance(s, EngineSetup)]
    if not working:
        reasons = "; ".join(sorted({s for s in setups if isinstance(s, str)})) or "there are none"
        message = f"{workload.key} starts on none of the GPUs that are there at first: {reasons}"
        raise InputError.at(message, hint="give the fleet a node on which it can be sized")
    return max(working, key=lambda s: s.timing.step(StepWork(decoders=1)))


def _mix_of(service: Service) -> RequestMix:
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


def _source_name(source: TrafficProfile | Trace) -> str:
    return source.source.name if isinstance(source, TrafficProfile) else str(source.source)
