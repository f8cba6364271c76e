"""One run of one policy of a scenario, from start to :class:`Result`."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tonnage.control.by_thresholds import ThresholdScaler
from tonnage.control.loops import Loop
from tonnage.control.nodes import Pools
from tonnage.control.policy import Policy
from tonnage.control.replicas import Autoscalers, ReplicaPlanner
from tonnage.control.scheduler import Scheduler
from tonnage.errors import InputError, both
from tonnage.facts import prices
from tonnage.facts.labels import GPU
from tonnage.health.other_engines import too_few_gpus, unread_flags
from tonnage.health.rules.devices import NOT_SIMULATED
from tonnage.machines.blocked import by_object
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import Offering
from tonnage.machines.scraping import Scraper
from tonnage.machines.training.happened import Then
from tonnage.objects import apps, core, load
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.provisioning import headroom
from tonnage.provisioning.catalogue import Catalogue
from tonnage.rng import Streams
from tonnage.scaling import manifests, thresholds
from tonnage.scaling.policies import BY_MANIFESTS
from tonnage.scheduling import place
from tonnage.simulation import assumed, groups
from tonnage.simulation.assemble import assemble
from tonnage.simulation.configure import Configuration, bounds, build_cluster, configure, sorted_findings
from tonnage.simulation.connect import connect_traffic, left_out
from tonnage.simulation.driver import LoopDriver, Observer
from tonnage.simulation.extent import refuse_too_much
from tonnage.simulation.faults import schedule_ends, schedule_faults
from tonnage.simulation.findings.ignored_flags import ignored_flags
from tonnage.simulation.findings.prices import nodes_without_price
from tonnage.simulation.findings.relayouts import layouts_that_stay
from tonnage.simulation.findings.time_slicing import misplaced_annotations, unknown_intervals, unknown_modes
from tonnage.simulation.findings.unserved import Known
from tonnage.simulation.findings.zones import zone_findings
from tonnage.simulation.planned import Sources, planned, watched
from tonnage.simulation.prospects import prospects
from tonnage.simulation.reallocations import reallocations
from tonnage.simulation.recorder import Recorder
from tonnage.simulation.result import InvariantChecks, Result
from tonnage.simulation.scenario import Scenario
from tonnage.simulation.standing import machines
from tonnage.simulation.training.connect import connect_training
from tonnage.traffic.profile import TrafficProfile
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S

EPOCH_NS = calendar.timegm((2026, 3, 2, 9, 0, 0)) * NS_PER_S
"""A run begins on a Monday at 9:00 UTC: for schedules of disruption budgets, cron triggers and queries for the time."""

SAMPLES = 360
"""Samples over a run, at least 5 s apart."""

Scaler = Callable[[Scenario, Configuration, SimulatedCluster, Sources], list[Loop]]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How to run: ``trace`` replaces every service's profile, ``check`` verifies all invariants after every event,
    ``price_file`` overrides prices, ``observer`` is called after every event. ``manifest``: what the policy's folder
    has, where somebody has read it already. ``profiles``: traffic by the names of its Services, joined with ``+`` where
    there are several, instead of the scenario's.

    For experiments: ``tune`` changes the manifests once they are read, ``scaler`` makes the loops that set replicas.
    """

    seed: int = 0
    trace: Path | Trace | None = None
    check: bool = False
    price_file: Path | None = None
    observer: Observer | None = None
    tune: Callable[[load.Manifest], load.Manifest] | None = None
    scaler: Scaler | None = None
    manifest: load.Manifest | None = None
    profiles: Mapping[str, TrafficProfile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetUp:
    """A scenario under one policy, before time begins: who asks for what of which machines."""

    scenario: Scenario
    policy: str
    options: RunOptions
    configuration: Configuration
    cluster: SimulatedCluster
    sources: Sources

    def scraper(self, *, everything: bool = False, engines: bool = False) -> Scraper:
        """What Prometheus scrapes: of GPUs and engines what queries name; all that ``engines`` export, or
        ``everything``, where anybody may ask."""
        asked = frozenset(one.name for query in self.configuration.queries() for one in query.selectors())
        for service in self.cluster.services if everything or engines else ():
            service.histograms = True
        histograms = any(s.histograms for s in self.cluster.services)
        return Scraper(self.configuration.monitors, histograms, None if everything else asked)

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
        if self.configuration.pools or self.configuration.groups:
            loops += self.controls.node_loops(self.for_sale, pools or self.pools, EPOCH_NS, expires=True)
        return [*loops, *self.controls.partitioning_loops(settings), *self.replica_loops()]

    def pools(self) -> Pools:
        """The NodePools and node groups of the manifests that can launch nodes, and what they need."""
        made = self.configuration
        daemon_sets = tuple(one.spec.template.spec for one in made.manifest.of(apps.DaemonSet))
        buffers = headroom.read(made.manifest.objects)
        own = Pools(made.pools, made.storage, daemon_sets, made.cuts, made.autoscaler, buffers)
        return groups.pools(made.groups, self.for_sale, self.cluster, own)

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
        if faults := self.scenario.spec.faults:
            schedule_faults(faults, self.cluster, _offerings(self.configuration.catalogue))
        schedule_ends(self.configuration.catalogue.book.reservations, self.cluster, EPOCH_NS)

    def replica_loops(self) -> list[Loop]:
        """The loops that set replicas, as the policy says."""
        by = self.scenario.policy(self.policy).scaling
        scaler = self.options.scaler or scaler_of(by)
        loops = scaler(self.scenario, self.configuration, self.cluster, self.sources)
        return [*self.reallocation_loops(), *loops]

    def reallocation_loops(self) -> list[Loop]:
        """The loop that gives GPUs to others when the scenario says so."""
        return reallocations(self.scenario, self.configuration.manifest.objects, self.cluster)

    @property
    def known(self) -> Known:
        """What tells why something does not run."""
        made = self.configuration
        return Known(made.manifest.objects, made.blockers, made.findings)

    def recorder(self) -> Recorder:
        """An empty record."""
        return Recorder(max(5 * NS_PER_S, self.scenario.duration_ns // SAMPLES))

    def result(self, machine: LoopDriver) -> Result:
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
            check=InvariantChecks(self.options.check, machine.steps, machine.violations),
        )


def set_up(scenario: Scenario, policy: str, options: RunOptions | None = None) -> SetUp:
    """Read and admit everything. Raises InputError for anything wrong in the scenario, its manifests or its traffic."""
    options = options or RunOptions()
    chosen = scenario.policy(policy)
    price_file = options.price_file or (scenario.folder / scenario.spec.prices if scenario.spec.prices else None)
    catalogue, manifest = both(
        lambda: _catalogue(scenario, price_file),
        lambda: options.manifest or load.read(scenario.files or [scenario.folder / chosen.manifests]),
    )
    if scenario.models:
        manifest = replace(manifest, models={**manifest.models, **scenario.models})
    if scenario.assumes:
        manifest = assumed.with_nodes(manifest)
    if options.tune is not None:
        manifest = options.tune(manifest)
    refuse_too_much(scenario, manifest.objects)
    configuration = configure(manifest, catalogue, machines(scenario, manifest))
    cluster = build_cluster(scenario, configuration, Streams(options.seed))
    cluster.epoch_ns = EPOCH_NS
    cluster.cloud.taints_rebalance = chosen.rebalance
    sources = connect_traffic(scenario, chosen, configuration, cluster, options.trace, options.seed, options.profiles)
    for key, (least, _) in bounds(configuration, list(cluster.workloads.values())).items():
        cluster.workloads[key].minimum = least
    cluster.declared.disruption_budgets = manifest.of(PodDisruptionBudget)
    doubts = [
        *connect_training(scenario, manifest.objects, cluster),
        *left_out(scenario, configuration, cluster),
        *ignored_flags(configuration.setting, cluster),
        *zone_findings(manifest.of(core.Service), cluster),
        *unread_flags(configuration.setting.pods),
        *too_few_gpus(configuration.setting.pods),
        *unknown_modes(configuration.setting.pods),
        *misplaced_annotations(configuration.setting.pods),
        *unknown_intervals(scenario, manifest),
        *nodes_without_price(manifest, catalogue.book),
        *layouts_that_stay(scenario, policy, cluster.fleet, manifest),
    ]
    found = (*configuration.findings, *doubts)
    if scenario.assumes:
        found = tuple(assumed.said(manifest, found, str(scenario.folder)))
    configuration = replace(configuration, findings=sorted_findings(found, configuration.pods))
    made = SetUp(scenario, policy, options, configuration, cluster, sources)
    more = tuple(prospects(made, configuration.setting))
    configuration = configuration.with_blockers(more, nodes=bool(cluster.fleet.node_by_name))
    cluster.declared.blockers = by_object(configuration.blockers)
    return replace(made, configuration=configuration)


def _catalogue(scenario: Scenario, price_file: Path | None) -> Catalogue:
    """What can be launched, and its prices. Raises InputError for a region of which no prices are known."""
    region = scenario.spec.region
    bundled = ", ".join(prices.regions())
    if price_file is None and region not in prices.regions():
        message = f'"{region}": no prices of this region are bundled, only of {bundled}'
        raise InputError(scenario.document.problem("region", message, "give this region's prices with prices:"))
    catalogue = Catalogue.load(price_file, region)
    if region != catalogue.book.region:
        message = f'"{region}": the prices are those of {catalogue.book.region}'
        raise InputError(scenario.document.problem("region", message, f"bundled are {bundled}; others with prices:"))
    return catalogue


def run(scenario: Scenario, policy: str, options: RunOptions | None = None) -> Result:
    """Run one policy in the simulated world. Raises InputError as :func:`set_up` does."""
    made = set_up(scenario, policy, options)
    return made.result(play(made))


def play(made: SetUp, recorder: Recorder | None = None, *, engines: bool = False) -> LoopDriver:
    """Run to the end, or to where the observer raises. ``recorder``: where what happens is written down; ``engines``:
    whether all that engines export is scraped."""
    machine = LoopDriver(made.cluster, recorder or made.recorder(), made.options.check)
    made.start_training()
    machine.start(made.loops(), made.scraper(engines=engines))
    made.break_things()
    machine.play(made.scenario.duration_ns, made.options.observer)
    return machine


def _offerings(catalogue: Catalogue) -> list[Offering]:
    """All that EC2 sells."""
    book = catalogue.book
    return [(name, o.zone, o.capacity_type) for name in catalogue.names for o in book.offerings(name)]


def scaler_of(by: str) -> Scaler:
    """What makes the loops that set replicas: of the manifests' autoscalers, or of the policy of this name."""
    if by in thresholds.presets():
        return partial(_threshold_loops, by)
    return _manifest_loops if by == BY_MANIFESTS else partial(_policy_loops, by)


def autoscalers(configuration: Configuration, epoch_ns: int = EPOCH_NS) -> Autoscalers:
    """Every HPA of the manifests, and KEDA, in a world of which ``epoch_ns`` is the Unix time of 0."""
    admitted = configuration.admitted
    return Autoscalers(
        [manifests.hpa_spec(h) for h in admitted.hpas if not manifests.made_by_keda(h)],
        configuration.scaled,
        admitted.ambiguous,
        epoch_ns=epoch_ns,
    )


def _manifest_loops(
    scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster, sources: Sources
) -> list[Loop]:
    scalers = autoscalers(configuration)
    scalers.moved = cluster.declared.moved_bounds
    return scalers.loops()


def _policy_loops(
    policy: str, scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster, sources: Sources
) -> list[Loop]:
    """Replicas by the policy of this name."""
    workloads = planned(scenario, configuration, cluster, sources, policy)
    return [ReplicaPlanner(policy, lambda snapshot: workloads, moved=cluster.declared.moved_bounds).loop()]


def _threshold_loops(
    preset: str, scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster, sources: Sources
) -> list[Loop]:
    """Replicas by published thresholds, of every workload that has bounds."""
    bounded = watched(configuration, cluster)
    return [ThresholdScaler(preset, bounded, cluster.declared.moved_bounds).loop()]


def _source_name(source: TrafficProfile | Trace) -> str:
    return source.source.name if isinstance(source, TrafficProfile) else str(source.source)


Options = RunOptions
"""Its former name, for callers from outside."""
