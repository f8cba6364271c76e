"""From manifests to a cluster: what is admitted, what it means, and what is suspicious about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tonnage.decisions import Finding, Launch, Reason, Ref
from tonnage.errors import InputError, Problem, Where
from tonnage.facts import durations, instances, mig, prices
from tonnage.fleet.device_claims import DeviceClaims
from tonnage.health.blocker import REFUSED, UNSCHEDULABLE, Blocker, in_order
from tonnage.health.diagnose import diagnose
from tonnage.health.landing import Machine
from tonnage.health.rules.nodepools import AWS
from tonnage.health.setting import Setting
from tonnage.inference.other_engines import replica_of
from tonnage.machines import nodes, own_nodes
from tonnage.machines.blocked import by_object
from tonnage.machines.cluster import SimulatedCluster
from tonnage.machines.objects import EngineSetup, SimulatedNodeClaim, Workload
from tonnage.machines.physics import Physics, Pool
from tonnage.machines.workload_for import workload_for
from tonnage.metrics import alerts, scrape
from tonnage.metrics.promql import Query
from tonnage.objects import apps, core, eks, eksctl, gpu_operator, karpenter, keda, monitoring, selectors
from tonnage.objects.load import Manifest
from tonnage.partitioning import node_cuts
from tonnage.partitioning.configurations import read as read_cuts
from tonnage.provisioning import auto_mode, headroom, nodeclass, reserving
from tonnage.provisioning import findings as pool_findings
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.cluster_autoscaler import flags
from tonnage.provisioning.cluster_autoscaler.options import DEFAULTS, AutoscalingOptions
from tonnage.provisioning.cut_findings import config_findings
from tonnage.provisioning.eksctl_groups import node_groups
from tonnage.provisioning.landing import landing_findings
from tonnage.provisioning.node_groups import NodeGroup
from tonnage.provisioning.overlays import findings as overlay_findings
from tonnage.provisioning.overlays import overlaid
from tonnage.rng import Streams
from tonnage.scaling import admission, manifests, triggers
from tonnage.scaling.keda import KedaSpec
from tonnage.simulation import groups
from tonnage.simulation.scenario import NodeGroupSpec, Scenario
from tonnage.workloads import stateful
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.volumes.book import Volumes

PLACES = ("pods-fit-no-nodepool",)
"""Rules of findings that say why pods are unschedulable."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the API server and the webhooks admit, read once."""

    manifest: Manifest
    admitted: admission.Admitted
    pools: tuple[karpenter.NodePool, ...]
    storage: dict[str, nodeclass.NodeStorage]
    catalogue: Catalogue
    monitors: tuple[tuple[monitoring.ServiceMonitor, tuple[scrape.Selected, ...]], ...]
    scaled: tuple[KedaSpec, ...]
    cuts: node_cuts.Configurations
    findings: tuple[Finding, ...]
    setting: Setting
    blockers: tuple[Blocker, ...]
    """What never runs, by the objects alone."""
    groups: tuple[tuple[NodeGroup, nodeclass.NodeStorage], ...] = ()
    """Node groups of eksctl's ClusterConfigs, each with the storage of its nodes."""
    autoscaler: AutoscalingOptions = DEFAULTS

    def with_blockers(self, more: Sequence[Blocker], *, nodes: bool) -> Configuration:
        """With what else never runs. What was said about places by the NodePools alone is said no more where this says
        better; where ``nodes`` that are there take the pods all the same, it is a warning."""
        stopped = {one.object for one in self.blockers if not one.some and one.stage in (REFUSED, UNSCHEDULABLE)}
        more = [one for one in more if one.object not in stopped]  # where they get no place is of no account then
        placed = {one.object for one in more} | stopped
        findings = [one.finding() for one in more]
        for one in self.findings:
            if one.rule in PLACES and one.object in placed:
                continue
            meant = one.rule in PLACES and nodes
            findings.append(msgspec.structs.replace(one, severity="warning") if meant else one)
        return replace(self, findings=sorted_findings(findings, self.pods), blockers=in_order((*self.blockers, *more)))

    @property
    def pods(self) -> dict[Ref, int]:
        """How many pods each workload stands for."""
        return _pods_of(self.setting)

    def queries(self) -> list[Query]:
        """Every query that a trigger asks."""
        return [trigger.query for spec in self.scaled for trigger in spec.triggers if trigger.query is not None]


def configure(manifest: Manifest, catalogue: Catalogue, machines: Sequence[Machine] = ()) -> Configuration:
    """Admit the objects in order and analyse what was admitted. ``machines``: nodes that are there beside those of the
    manifest.

    Raises InputError for a configuration of mig-parted, the device plugin or the cluster autoscaler that its program
    refuses, and for a node group of unknown instance types."""
    admitted = admission.apply_in_order(manifest.objects)
    found = [*_doubts(manifest), *admitted.findings]
    services = manifest.of(core.Service)
    monitors = []
    for monitor in manifest.of(monitoring.ServiceMonitor):
        selection = scrape.select(monitor, services)
        found += selection.findings
        monitors.append((monitor, selection.selected))
    for rule in manifest.of(monitoring.PrometheusRule):
        found += alerts.analyse(rule)
    honored = triggers.honored_labels(monitor for monitor, _ in monitors)
    for scaled_object in manifest.of(keda.ScaledObject):
        found += triggers.analyse(scaled_object, honor_labels=honored)
    classes = {c.name: c for c in manifest.of(karpenter.EC2NodeClass)}
    cuts = read_cuts(manifest.of(core.ConfigMap), manifest.of(gpu_operator.ClusterPolicy))
    found += config_findings(cuts)
    pools = []
    for pool in manifest.of(karpenter.NodePool):
        reference = pool.spec.template.spec.node_class_ref
        if reference.group == AWS:  # what nodes of other clouds are like is not known here
            found += pool_findings.analyse(pool, catalogue, cuts)
        if reference.group == AWS and reference.kind == "EC2NodeClass" and reference.name in classes:
            pools.append(pool)
    own = {c.name: auto_mode.storage_of(c) for c in manifest.of(eks.NodeClass)}
    auto = {auto_mode.DEFAULT: auto_mode.DEFAULT_STORAGE} | own
    for pool in (*manifest.of(karpenter.NodePool), *auto_mode.built_in(manifest.of(eksctl.ClusterConfig))):
        if auto_mode.is_auto(pool) and pool.spec.template.spec.node_class_ref.name in auto:
            found += pool_findings.analyse(pool, catalogue, cuts)
            pools.append(pool)
    for node_class in classes.values():
        found += reserving.findings(node_class, catalogue.book)
    overlays = manifest.of(karpenter.NodeOverlay)
    found += overlay_findings(catalogue, overlays)
    found += headroom.findings(manifest.objects)
    catalogue = overlaid(catalogue, overlays)
    found += landing_findings(manifest, catalogue, cuts)
    setting = Setting(manifest.objects, catalogue, machines, cuts, manifest.models)
    blockers = diagnose(setting)
    found += [one.finding() for one in blockers]
    return Configuration(
        manifest,
        admitted,
        tuple(pools),
        {name: _storage(c, catalogue) for name, c in classes.items()} | _under_auto(pools, auto),
        catalogue,
        tuple(monitors),
        tuple(manifests.keda_spec(s) for s in admitted.scaled_objects),
        cuts,
        sorted_findings(found, _pods_of(setting)),
        setting,
        blockers,
        tuple(one for config in manifest.of(eksctl.ClusterConfig) for one in node_groups(config)),
        flags.read(manifest.objects),
    )


def _storage(node_class: karpenter.EC2NodeClass, catalogue: Catalogue) -> nodeclass.NodeStorage:
    reserved = reserving.selected(node_class, catalogue.book.reservations)
    return msgspec.structs.replace(nodeclass.read(node_class), reservations=reserved)


def _under_auto(
    pools: Iterable[karpenter.NodePool], known: Mapping[str, nodeclass.NodeStorage]
) -> dict[str, nodeclass.NodeStorage]:
    """The storage of the NodeClasses of Auto Mode that NodePools name."""
    auto = [pool for pool in pools if auto_mode.is_auto(pool)]
    return {nodeclass.storage_key(pool): known[pool.spec.template.spec.node_class_ref.name] for pool in auto}


def _pods_of(setting: Setting) -> dict[Ref, int]:
    found: dict[Ref, int] = {}
    for one in setting.pods:
        found[one.ref] = found.get(one.ref, 0) + one.counted.pods
    return found


def sorted_findings(found: Iterable[Finding], pods: Mapping[Ref, int] | None = None) -> tuple[Finding, ...]:
    """By what they cost: the worst first, then those about the most ``pods``, then by place and rule."""
    many = pods or {}
    return tuple(sorted(found, key=lambda f: (_SEVERITY[f.severity], -many.get(f.object, 0), str(f.where), f.rule)))


def _doubts(manifest: Manifest) -> list[Finding]:
    """What the files say that nothing here understands: unknown fields and kinds."""
    return [doubt(problem) for problem in manifest.problems]


def doubt(problem: Problem) -> Finding:
    """The finding about what is suspicious in a manifest."""
    where = problem.where
    return Finding("manifest-not-understood", "warning", Ref("File", where.file), where, _sentence(problem))


def _sentence(problem: Problem) -> str:
    return f"{problem.message} ({problem.hint})" if problem.hint else problem.message


_SEVERITY = {"error": 0, "warning": 1, "info": 2}


def build_cluster(scenario: Scenario, configuration: Configuration, streams: Streams) -> SimulatedCluster:
    """The cluster as it is before time begins: nodes serve, workloads exist, no pod is placed yet."""
    engines: dict[tuple[int, str, float | None], EngineSetup | str] = {}

    def engine(workload: Workload, gpu: str, utilization: float | None = None) -> EngineSetup | str:
        key = (id(workload), gpu, utilization)
        if key not in engines:
            engines[key] = _engine(workload, gpu, utilization)
        return engines[key]

    classes = {c.name: c for c in configuration.manifest.of(karpenter.EC2NodeClass)}
    pools = {}
    for pool in configuration.pools:
        template = pool.spec.template
        mappings = (
            () if auto_mode.is_auto(pool) else classes[template.spec.node_class_ref.name].spec.block_device_mappings
        )
        snapshot = any(m.ebs is not None and m.ebs.snapshot_id for m in mappings)
        pools[pool.name] = Pool(
            dict(template.metadata.labels),
            tuple(template.spec.taints),
            configuration.storage[nodeclass.storage_key(pool)],
            snapshot,
            do_not_disrupt=template.metadata.annotations.get(karpenter.DO_NOT_DISRUPT) == "true",
            auto=auto_mode.is_auto(pool),
        )
    for made, storage in configuration.groups:
        pools[made.name] = Pool(made.labels, made.taints, storage, images_on_disk=False, group=True)
    cluster = SimulatedCluster(
        Physics(durations.get(), pools, scenario.spec.region, engine, configuration.cuts), streams
    )
    cluster.declared.blockers = by_object(configuration.blockers)
    lets_in = cluster.declared.admission = Admission(configuration.manifest.objects)
    for daemon_set in configuration.manifest.of(apps.DaemonSet):
        namespace, daemon = _namespace(daemon_set.namespace), daemon_set.spec.template
        daemon = msgspec.structs.replace(daemon, spec=lets_in.completed(namespace, daemon.spec))
        cluster.declared.daemon_sets.append((namespace, daemon_set.name, daemon))
    cluster.declared.volumes = Volumes(configuration.manifest.objects, binds=True)
    cluster.fleet.device_claims = DeviceClaims(configuration.manifest.objects, makes=True)
    cluster.fleet.attach_limits = cluster.declared.volumes.attach_limits
    for claim in configuration.setting.made_claims():
        cluster.declared.volumes.see(claim)
    for claim in stateful.claims_to_come(configuration.manifest.objects):
        cluster.declared.volumes.see(claim)
    for owner in apps.replicated(configuration.manifest.objects):
        workload = workload_for(owner, configuration.setting, cluster)
        cluster.workloads[workload.key] = workload
    for space in configuration.manifest.of(core.Namespace):
        cluster.fleet.namespaces.put(space.name, space.metadata.labels)
    _start_fleet(scenario, configuration, cluster)
    groups.start(configuration.groups, configuration.catalogue, cluster)
    _start_own(configuration, cluster)
    for row in cluster.fleet.node_rows():
        cluster.declared.volumes.note_node(cluster.fleet.node(row).labels)
    return cluster


def _start_fleet(scenario: Scenario, configuration: Configuration, cluster: SimulatedCluster) -> None:
    number = 0
    pools = {pool.name for pool in configuration.manifest.of(karpenter.NodePool)}
    pools |= {one.name for one, _ in configuration.groups}
    for i, group in enumerate(scenario.spec.fleet.nodes):
        field = f"fleet.nodes[{i}]"
        itype = instances.get(group.instance_type)
        price = _price(scenario, configuration.catalogue.book, group, field)
        if group.node_pool and group.node_pool not in pools:
            message = f"no NodePool or node group {group.node_pool!r} in the manifests"
            raise InputError(scenario.document.problem(f"{field}.nodePool", message))
        for _ in range(group.count):
            number += 1
            name = f"base-{number:02d}"
            launch = Launch(
                Ref("NodeClaim", name),
                group.node_pool,
                itype.name,
                group.zone,
                group.capacity_type,
                price,
                Reason("there from the start"),
                labels=dict(group.labels),
            )
            claim = SimulatedNodeClaim(launch, 0)
            node = nodes.start_node(cluster, claim)
            problems = nodes.cuts_of(cluster, node).problems
            if problems:
                raise InputError(*(_at_labels(scenario, field, problem) for problem in problems))
            nodes.register_node(cluster, node)
            nodes.initialize_node(cluster, node)


def _start_own(configuration: Configuration, cluster: SimulatedCluster) -> None:
    """The Nodes of the manifests."""
    for one in configuration.manifest.of(core.Node):
        machine = own_nodes.machine_of(one)
        launch = own_nodes.launch_of(one, machine, configuration.catalogue.book)
        node = nodes.start_node(cluster, SimulatedNodeClaim(launch, 0), machine)
        nodes.register_node(cluster, node)
        nodes.initialize_node(cluster, node)
        if not own_nodes.usable(one):
            cluster.fleet.set_schedulable(cluster.fleet.node_by_name[node.name], False)


def _at_labels(scenario: Scenario, field: str, problem: Problem) -> Problem:
    """The problem with the line of the labels that cause it, unless it has a place of its own."""
    if problem.where.file:
        return problem
    place = scenario.document.where(f"{field}.labels")
    return replace(problem, where=Where(place.file, place.line, f"{field}.labels.{problem.where.field}"))


def _price(scenario: Scenario, book: prices.PriceBook, group: NodeGroupSpec, field: str) -> int:
    """Micro-dollars an hour of one node of the group."""
    name, kind = group.instance_type, group.capacity_type
    if kind == prices.OWNED and (owned := book.owned(name, group.zone)) is not None:
        return owned
    offers = [o for o in book.offerings(name) if o.capacity_type == kind]
    for offer in offers:
        if offer.zone == group.zone:
            return offer.micro_usd_per_hour
    if not offers:
        message = f"no {kind} price is known for {name}"
        problem = scenario.document.problem(f"{field}.instanceType", message, "give one with prices:")
    else:
        zones = ", ".join(o.zone for o in offers)
        message = f"{name} ({kind}) is not offered in {group.zone}"
        problem = scenario.document.problem(f"{field}.zone", message, f"it is in {zones}")
    raise InputError(problem)


def _namespace(name: str) -> str:
    return name or "default"


def _engine(workload: Workload, gpu: str, utilization: float | None) -> EngineSetup | str:
    """The engine, or why it does not start on this GPU (:class:`~tonnage.machines.physics.Engines`)."""
    assert workload.server is not None
    if workload.server.refused:
        return workload.server.refused
    if not gpu:
        return "the engine finds no GPU: its pod requests none"
    args = workload.server.args
    if utilization is not None:
        args = msgspec.structs.replace(args, gpu_memory_utilization=utilization)
    try:
        config, timing = replica_of(workload.server.known, mig.resolve(gpu)[0], args)
    except InputError as error:
        return error.problems[0].message
    return EngineSetup(config, timing)


def workloads_behind(cluster: SimulatedCluster, service: core.Service) -> list[Workload]:
    """The workloads whose pods a Service selects, in the order of the manifests."""
    selector = core.LabelSelector(match_labels=service.spec.selector)
    return [
        workload
        for workload in cluster.workloads.values()
        if service.spec.selector
        and workload.namespace == _namespace(service.namespace)
        and selectors.matches(selector, workload.template.metadata.labels)
    ]


def bounds(configuration: Configuration, workloads: Sequence[Workload]) -> dict[str, tuple[int, int]]:
    """(least, most) replicas of each autoscaled workload, by its key."""
    found: dict[str, tuple[int, int]] = {}
    for h in (manifests.hpa_spec(h) for h in configuration.admitted.hpas):
        found[h.target.workload] = (h.min_replicas, h.max_replicas)
    for s in configuration.scaled:
        found[s.target.workload] = (s.min_replicas, s.max_replicas)
    return {w.key: found[w.key] for w in workloads if w.key in found}
