"""Strategies that save money, each as a run on top of the one before: what changes in the manifests and the scenario,
and what the ledger says then. Commitments change prices alone: they are applied to the nodes of the last run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from tonnage.control.choices import OPTIMAL
from tonnage.costs.commitments import Commitment, commit
from tonnage.costs.strategies import STRATEGIES, Savings, SavingsSettings, SavingsStep, committed
from tonnage.costs.usage import NodeUsage
from tonnage.facts import prices, spot
from tonnage.facts.labels import AWS_INSTANCE, GPU, INSTANCE_TYPE
from tonnage.machines.training.entries import CheckpointEntry, TrainingEntry
from tonnage.objects import apps, autoscaling, core, karpenter, keda, load
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.objects.load import Manifest
from tonnage.provisioning import labels
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.template import compile_pool
from tonnage.simulation import assumed, run
from tonnage.simulation.result import Result
from tonnage.simulation.scenario import PolicySpec, Scenario
from tonnage.units import ns

CHECKPOINT_LOAD = "90s"
"""How long it takes to go on from a checkpoint, where the scenario has none."""
CONSOLIDATE_AFTER = "30s"
_PINS = (
    INSTANCE_TYPE,
    *(AWS_INSTANCE + name for name in ("family", "size", "category", "generation", "cpu", "memory", "gpu-count")),
)
"""Labels by which a NodePool says which sizes its nodes have."""


@dataclass(frozen=True, slots=True)
class SavingsCase:
    """A scenario under one policy with its manifests, as the strategies so far have left them."""

    scenario: Scenario
    policy: str
    manifest: Manifest
    catalogue: Catalogue
    settings: SavingsSettings
    on_demand_pools: tuple[str, ...] = ()
    """NodePools whose nodes must not be interrupted."""

    def map(self, kind: type[KubeObject], change: Callable[[KubeObject], KubeObject]) -> tuple[Manifest, int]:
        """The manifests with every object of a kind changed, and how many are different."""
        made = tuple(change(one) if isinstance(one, kind) else one for one in self.manifest.objects)
        changed = sum(new != old for new, old in zip(made, self.manifest.objects, strict=True))
        return replace(self.manifest, objects=made), changed

    def with_spec(self, **changes: object) -> Scenario:
        """The scenario with fields of its file replaced."""
        return replace(self.scenario, spec=msgspec.structs.replace(self.scenario.spec, **changes))

    @property
    def chosen(self) -> PolicySpec:
        """The policy."""
        return self.scenario.policy(self.policy)


class SavingsRuns(msgspec.Struct, frozen=True):
    """What each strategy saves, and the runs: the first as the scenario is, then one for each strategy that changes how
    nodes are used. ``commitment``: where one was asked for."""

    savings: Savings
    results: tuple[Result, ...]
    commitment: Commitment | None


def on_scenario(
    scenario: Scenario,
    policy: str,
    order: Sequence[str],
    settings: SavingsSettings,
    options: run.RunOptions | None = None,
    on_demand_pools: Sequence[str] = (),
    done: Callable[[str], None] = lambda _: None,
) -> SavingsRuns:
    """Run the scenario under ``policy`` as it is, then with one strategy of ``order`` more each time; commitments come
    last. ``done`` is told the name of each run that has ended. Raises InputError as :func:`tonnage.simulation.run.run`
    does, and ValueError for an order that cannot be."""
    if "commitments" in order[:-1] or len(set(order)) < len(order) or set(order) - set(STRATEGIES):
        raise ValueError(f"strategies {', '.join(order)}, expected some of {', '.join(STRATEGIES)}, commitments last")
    options = options or run.RunOptions()
    manifest = load.read(scenario.files or [scenario.folder / scenario.policy(policy).manifests])
    if scenario.assumes:
        manifest = assumed.with_nodes(manifest)
    price_file = options.price_file or (scenario.folder / scenario.spec.prices if scenario.spec.prices else None)
    catalogue = Catalogue.load(price_file, scenario.spec.region)
    setting = SavingsCase(scenario, policy, manifest, catalogue, settings, tuple(on_demand_pools))

    def play() -> Result:
        return run.run(setting.scenario, policy, replace(options, manifest=setting.manifest))

    results = [play()]
    done("as it is")
    steps: list[SavingsStep] = []
    before, commitment = results[0].cost.total_micro_usd, None
    for name in order:
        if name == "commitments":
            span = (0, max(1, scenario.duration_ns))
            level = settings.commitment_micro_usd_per_hour
            commitment = commit(usage_of(results[-1]), settings.commitment_discount, span, level)
            after, change = commitment.total_micro_usd, committed(commitment)
        else:
            setting, change = _CHANGES[name](setting)
            if change:
                results.append(play())
            after, change = results[-1].cost.total_micro_usd, change or "nothing to change"
            done(name)
        steps.append(SavingsStep(name, after, before - after, change))
        before = after
    savings = Savings(results[0].cost.total_micro_usd, tuple(steps))
    return SavingsRuns(savings, tuple(results), commitment)


def usage_of(result: Result) -> Iterator[NodeUsage]:
    """The nodes of a run, each with what the ledger charged: a minimum life counts as lived."""
    for node in result.nodes:
        start = ns(node.launched_s)
        end = ns(result.duration_s if node.ended_s is None else node.ended_s)
        if node.price_micro_usd_per_hour:  # to the micro-dollar: the lives in a result are rounded to milliseconds
            end = start + -(-node.cost_micro_usd * 3_600_000_000_000 // node.price_micro_usd_per_hour)
        yield NodeUsage(
            start_ns=start,
            end_ns=end,
            instance_type=node.instance_type,
            price_micro_usd_per_hour=node.price_micro_usd_per_hour,
            capacity_type=node.capacity_type,
            zone=node.zone,
            workload=node.name,
        )


# ---- the strategies ----


def right_sized(setting: SavingsCase) -> tuple[SavingsCase, str]:
    """NodePools may launch any size that has the same GPUs as those that they name, and the cheapest set is planned."""

    def widened(one: KubeObject) -> KubeObject:
        assert isinstance(one, karpenter.NodePool)
        template = compile_pool(one, setting.catalogue)
        gpus = {setting.catalogue.types[i].accelerator_name for i in template.types.nonzero()[0]}
        written = one.spec.template.spec.requirements
        kept = [it for it in written if it.key not in _PINS]
        if len(kept) == len(written) or gpus == {""}:
            return one
        if any(gpus) and "" not in gpus and not any(it.key == AWS_INSTANCE + "gpu-name" for it in kept):
            kept.append(karpenter.NodeRequirement(key=AWS_INSTANCE + "gpu-name", operator="In", values=sorted(gpus)))
        return _with_requirements(one, kept)

    manifest, pools = setting.map(karpenter.NodePool, widened)
    said = [f"{pools} NodePools with every size of their GPUs"] if pools else []
    chosen = setting.chosen
    if chosen.provisioning != OPTIMAL:
        said.append("the cheapest set of nodes is planned")
    policies = {
        **setting.scenario.spec.policies,
        setting.policy: msgspec.structs.replace(chosen, provisioning=OPTIMAL),
    }
    return replace(setting, manifest=manifest, scenario=setting.with_spec(policies=policies)), "; ".join(said)


def consolidated(setting: SavingsCase) -> tuple[SavingsCase, str]:
    """NodePools consolidate nodes that are empty or underutilized, soon."""

    def consolidating(one: KubeObject) -> KubeObject:
        assert isinstance(one, karpenter.NodePool)
        disruption = msgspec.structs.replace(
            one.spec.disruption,
            consolidation_policy="WhenEmptyOrUnderutilized",
            consolidate_after=CONSOLIDATE_AFTER,
        )
        return _again(one, spec=msgspec.structs.replace(one.spec, disruption=disruption))

    manifest, pools = setting.map(karpenter.NodePool, consolidating)
    said = f"{pools} NodePools: WhenEmptyOrUnderutilized after {CONSOLIDATE_AFTER}" if pools else ""
    return replace(setting, manifest=manifest), said


def scheduled(setting: SavingsCase) -> tuple[SavingsCase, str]:
    """Outside business hours no more replicas stay than traffic needs: one where a workload has traffic, else none."""
    scaled = {one.spec.scale_target_ref.name for one in setting.manifest.of(keda.ScaledObject)}
    scaled |= {one.spec.scale_target_ref.name for one in setting.manifest.of(autoscaling.HorizontalPodAutoscaler)}
    trigger_of = _business_trigger(setting)

    def lowered(one: KubeObject) -> KubeObject:
        assert isinstance(one, keda.ScaledObject)
        if one.spec.min_replica_count <= 1:
            return one
        triggers = [*one.spec.triggers, trigger_of(one.spec.min_replica_count)]
        return _again(one, spec=msgspec.structs.replace(one.spec, min_replica_count=1, triggers=triggers))

    manifest, changed = setting.map(keda.ScaledObject, lowered)
    made: list[KubeObject] = []
    for one in setting.manifest.of(apps.Deployment):
        replicas = 1 if one.spec.replicas is None else one.spec.replicas
        least = 1 if _has_traffic(setting, one) else 0
        if one.name in scaled or replicas <= least or not _wants_gpus(one):
            continue
        made.append(
            keda.ScaledObject(
                api_version="keda.sh/v1alpha1",
                kind="ScaledObject",
                metadata=ObjectMeta(name=one.name, namespace=one.namespace),
                spec=keda.ScaledObjectSpec(
                    scale_target_ref=keda.ScaleTarget(name=one.name),
                    triggers=[trigger_of(replicas)],
                    min_replica_count=least,
                    max_replica_count=max(1, replicas),
                ),
            )
        )
    manifest = replace(manifest, objects=(*manifest.objects, *made))
    said = f"{changed + len(made)} workloads by business hours" if changed or made else ""
    return replace(setting, manifest=manifest), said


def on_spot(setting: SavingsCase) -> tuple[SavingsCase, str]:
    """NodePools may launch spot nodes, which are preferred, with on-demand as the fallback."""

    def widened(one: KubeObject) -> KubeObject:
        assert isinstance(one, karpenter.NodePool)
        if one.name in setting.on_demand_pools:
            return one
        others = [it for it in one.spec.template.spec.requirements if it.key != labels.CAPACITY_TYPE]
        both = karpenter.NodeRequirement(
            key=labels.CAPACITY_TYPE, operator="In", values=[prices.SPOT, prices.ON_DEMAND]
        )
        wanted = {v for it in one.spec.template.spec.requirements if it.key == labels.CAPACITY_TYPE for v in it.values}
        return one if prices.SPOT in wanted else _with_requirements(one, [*others, both])

    manifest, pools = setting.map(karpenter.NodePool, widened)
    book, nodes, groups = setting.catalogue.book, 0, []
    for group in setting.scenario.spec.fleet.nodes:
        price = book.price(group.instance_type, group.zone, prices.SPOT)
        movable = group.node_pool and group.node_pool not in setting.on_demand_pools
        if movable and group.capacity_type == prices.ON_DEMAND and price:
            nodes += group.count
            group = msgspec.structs.replace(group, capacity_type=prices.SPOT)
        groups.append(group)
    fleet = msgspec.structs.replace(setting.scenario.spec.fleet, nodes=tuple(groups))
    said = [f"{pools} NodePools prefer spot"] if pools else []
    said += [f"{nodes} nodes of the fleet on spot"] if nodes else []
    return replace(setting, manifest=manifest, scenario=setting.with_spec(fleet=fleet)), "; ".join(said)


def checkpointed(setting: SavingsCase) -> tuple[SavingsCase, str]:
    """Training workloads that save nothing write checkpoints, at the given or the best interval."""
    settings = setting.settings
    rate = spot.per_hour(spot.interrupted_a_month("*"))
    every_s = settings.checkpoint_s or spot.best_interval_s(rate, settings.write_s)
    every_s = min(every_s, setting.scenario.duration_ns / 1e9)
    entry = CheckpointEntry(every=f"{max(1, round(every_s))}s", write=f"{settings.write_s:g}s", load=CHECKPOINT_LOAD)

    def saving(one: TrainingEntry) -> TrainingEntry:
        return one if one.checkpoint else msgspec.structs.replace(one, checkpoint=entry)

    before = setting.scenario.spec.training
    training = tuple(map(saving, before))
    changed = sum(one.checkpoint is None for one in before)
    said = f"{changed} training workloads save a checkpoint every {entry.every}" if changed else ""
    return replace(setting, scenario=setting.with_spec(training=training)), said


_CHANGES: dict[str, Callable[[SavingsCase], tuple[SavingsCase, str]]] = {
    "right-sizing": right_sized,
    "consolidation": consolidated,
    "schedules": scheduled,
    "spot": on_spot,
    "checkpointing": checkpointed,
}


def _business_trigger(setting: SavingsCase) -> Callable[[int], keda.ScaleTrigger]:
    hours = setting.settings.hours
    days = ",".join(str((day + 1) % 7) for day in hours.days)  # cron counts from Sunday

    def trigger(replicas: int) -> keda.ScaleTrigger:
        times = {"start": f"0 {hours.start} * * {days}", "end": f"0 {hours.end % 24} * * {days}"}
        metadata = {"timezone": "Etc/UTC", **times, "desiredReplicas": str(replicas)}
        return keda.ScaleTrigger(type="cron", metadata=metadata)

    return trigger


def _has_traffic(setting: SavingsCase, deployment: apps.Deployment) -> bool:
    with_traffic = {name for entry in setting.scenario.spec.traffic for name in entry.services}
    pods = deployment.spec.template.metadata.labels
    return any(
        f"{one.namespace or 'default'}/{one.name}" in with_traffic
        and (one.namespace or "default") == (deployment.namespace or "default")
        and one.spec.selector.items() <= pods.items()
        for one in setting.manifest.of(core.Service)
    )


def _wants_gpus(deployment: apps.Deployment) -> bool:
    containers = deployment.spec.template.spec.containers
    return any(GPU in {**one.resources.requests, **one.resources.limits} for one in containers if one.resources)


def _with_requirements(pool: karpenter.NodePool, wanted: list[karpenter.NodeRequirement]) -> KubeObject:
    inner = msgspec.structs.replace(pool.spec.template.spec, requirements=wanted)
    template = msgspec.structs.replace(pool.spec.template, spec=inner)
    return _again(pool, spec=msgspec.structs.replace(pool.spec, template=template))


def _again(one: KubeObject, **changes: object) -> KubeObject:
    """The object with other fields, which remembers where it was read."""
    return msgspec.structs.replace(one, **changes).remember(one.origin, one.lines, one.written)
