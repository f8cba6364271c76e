"""What `tonnage why` looks at: a scenario's cluster at a time of a run, or the cluster of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from tonnage.cli import messages
from tonnage.decisions import Launch, Ref
from tonnage.errors import InputError
from tonnage.fleet.rows import split_key
from tonnage.fleet.snapshot import Snapshot
from tonnage.health import told
from tonnage.health.blocker import Blocker
from tonnage.health.outlook import Outlook
from tonnage.health.schedulers import running
from tonnage.health.told import COMES, Told
from tonnage.live import still, telling
from tonnage.machines.cluster import SimulatedCluster
from tonnage.objects import core, load
from tonnage.objects.base import KubeObject
from tonnage.objects.templates import templates
from tonnage.scheduling import place
from tonnage.scheduling.place import Settings
from tonnage.simulation import run, scenario
from tonnage.simulation import telling as simulated
from tonnage.simulation.extent import refuse_too_many_pods
from tonnage.workloads.membership import stamped
from tonnage.workloads.owners import owner_key


class Case(ABC):
    """A cluster at one instant. ``objects``: of which it is made; ``blockers``: what of it never runs."""

    snapshot: Snapshot
    settings: Settings
    objects: tuple[KubeObject, ...]
    blockers: tuple[Blocker, ...]

    @abstractmethod
    def pods_of(self, ref: Ref) -> Sequence[str]:
        """The pods (namespace/name) of a workload that are there or are to come, by name."""

    @abstractmethod
    def told(self, pod: str) -> Told | None:
        """What has become of the pod; None where only its place is known."""

    def told_of(self, ref: Ref) -> Told | None:
        """What has become of a workload without pods; None where nothing is known of it."""
        return None

    def owners(self) -> Iterator[Ref]:
        """Every object that pods are made from."""
        for one in self.objects:
            if next(iter(templates(one)), None) is not None:
                yield Ref(one.kind, one.name, one.namespace or "default")

    def about(self, ref: Ref) -> tuple[Blocker, ...]:
        """Why the object never runs, or does nothing."""
        return told.about(ref, self.blockers)

    def about_pod(self, key: str, owner: Ref | None = None) -> tuple[Blocker, ...]:
        """Why a pod (namespace/name) or a gang (its key) never runs. ``owner``: whose pod it is, where known."""
        namespace, name = split_key(key)
        if key.count("/") > 1 or key in self.snapshot.gangs:
            return self.about(Ref("PodGroup", name, namespace))
        owner = owner or next((ref for ref in self.owners() if key in self.pods_of(ref)), None)
        found = self.about(owner) if owner is not None else ()
        row = self.snapshot.fleet.pod_by_key.get((namespace, name))
        gang = self.snapshot.fleet.pod(row).spec.gang if row is not None else ""
        return (*found, *(self.about_pod(gang) if gang else ()))


class OfFiles(Case):
    """Objects as written by hand, or as a cluster has them (then each has a uid)."""

    def __init__(self, paths: Sequence[Path]) -> None:
        manifest = load.read(paths)
        messages.warnings(manifest.problems)
        refuse_too_many_pods(manifest.objects)
        self.objects = manifest.objects
        self.snapshot = still.snapshot_of(manifest.objects)
        names = running(manifest.objects)
        self.settings = Settings(scheduler_names=tuple(sorted({*place.DEFAULTS.scheduler_names, *names})))
        self.blockers = ()
        self._pods = {f"{one.namespace or 'default'}/{one.name}": one for one in manifest.of(core.Pod)}
        self._outlook: Outlook | None = None
        if not any(one.metadata.uid for one in manifest.objects):
            self._plan(scenario.of_files(paths), manifest)

    def _plan(self, written: scenario.Scenario, manifest: load.Manifest) -> None:
        """What never runs, as nothing but the files is there: what `tonnage check` says of them."""
        folder = written.folder / written.policy(written.default_policy).manifests
        known = written.files or all(Path(one.origin.file).is_relative_to(folder) for one in manifest.objects)
        made = run.set_up(written, written.default_policy, run.RunOptions(manifest=manifest if known else None))
        self.blockers = made.configuration.blockers
        pools = made.pools()
        if self.snapshot.fleet.node_by_name or pools.node_pools:
            self._outlook = Outlook(self.snapshot, self.settings, pools, made.configuration.catalogue)

    def pods_of(self, ref: Ref) -> Sequence[str]:
        owner = owner_key(ref.namespace, ref.kind, ref.name)
        fleet = self.snapshot.fleet
        owned = [pod.key for pod in fleet.pods if pod is not None and pod.spec.owner == owner]
        if owned:
            return sorted(owned)
        return [
            f"{replica.namespace or 'default'}/{replica.name}"
            for one in self.objects
            if (one.kind, one.namespace or "default", one.name) == (ref.kind, ref.namespace, ref.name)
            for replica in stamped(one, self.objects)
        ]

    def told(self, pod: str) -> Told | None:
        written = self._pods.get(pod)
        if written is not None and (found := telling.of_pod(written, self.objects)) is not None:
            return found
        row = self.snapshot.fleet.pod_by_key.get(split_key(pod))
        if row is None or self._outlook is None or self.snapshot.fleet.pod(row).node >= 0:
            return None
        spec = self.snapshot.fleet.pod(row).spec
        if place.feasible(self.snapshot.fleet, row):
            return None
        launch = self._outlook.launch_for(spec)
        return None if launch is None else Told(pod, COMES, f"waits for a node: {_bought(launch)}")


def _bought(launch: Launch) -> str:
    price = launch.price_micro_usd_per_hour / 1e6
    return (
        f"NodePool {launch.node_pool} launches {launch.instance_type} ({launch.capacity_type}, {launch.zone}, "
        f"${price:.2f} an hour) for it"
    )


class _ReachedError(Exception):
    """The run is as far as was asked for."""


class OfScenario(Case):
    """A run of a scenario until a time."""

    def __init__(self, loaded: scenario.Scenario, at_ns: int, policy: str | None, seed: int) -> None:
        def watch(cluster: SimulatedCluster, _: int) -> None:
            following = cluster.queue.next_ns()
            if following is None or following > at_ns:
                raise _ReachedError

        chosen = policy or loaded.default_policy
        made = run.set_up(loaded, chosen, run.RunOptions(seed=seed, observer=watch))
        self._cluster, self._recorder = made.cluster, made.recorder()
        try:
            run.play(made, self._recorder)
        except _ReachedError:
            made.cluster.advance_to(at_ns)
        self.snapshot, self.settings = made.cluster.snapshot(), made.placing()
        self.objects = made.configuration.manifest.objects
        self.blockers = made.configuration.blockers

    def pods_of(self, ref: Ref) -> Sequence[str]:
        return [pod.key for pod in simulated.pods_of(self._cluster, ref)]

    def told_of(self, ref: Ref) -> Told | None:
        return simulated.of_workload_object(self._cluster, ref)

    def told(self, pod: str) -> Told | None:
        return simulated.of_pod(self._cluster, self._recorder, split_key(pod))


def with_policy(settings: Settings, policy: str) -> Settings:
    """With another placement policy. Raises InputError for one that there is not."""
    if policy not in place.POLICIES:
        import difflib

        near = difflib.get_close_matches(policy, place.POLICIES, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(place.POLICIES)}"
        raise InputError.at(f'"{policy}" is not a placement policy', field="--placement", hint=hint)
    return replace(settings, policy=policy)
