"""Whoever asks whether a node takes a pod gets the scheduler's answer."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

import device_clusters
import random_clusters
from builders import ZONE, fleet
from deep_seeds import examples
from tonnage.decisions import Bind
from tonnage.fleet.filters import NO_CUDA, OPEN, refusal
from tonnage.fleet.snapshot import PodView, Snapshot, WorkloadView
from tonnage.fleet.state import Conflict, Fleet, FleetNode, FleetPod
from tonnage.fleet.volumes import Reach, VolumeNeed
from tonnage.health.landing import Landing, Machine
from tonnage.objects import core
from tonnage.objects.base import ObjectMeta
from tonnage.partitioning.trial import LayoutTrial
from tonnage.provisioning.catalogue import Catalogue
from tonnage.scaling.free_room import FreeRoom
from tonnage.scheduling import explain, place
from tonnage.scheduling.filters import SchedulerFilters
from tonnage.scheduling.seats import SchedulerSeats
from tonnage.workloads import daemons

PRODUCTS = ("NVIDIA-H100-80GB-HBM3", "Tesla-V100-SXM2-16GB")
DRIVERS = ("535.161.08", "580.65.06")
IMAGES = ("", "", "acme/own:1", "pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime", "vllm/vllm-openai:v0.20.0")
NODES, BOUND = 5, 8


def _node(rng: Random, name: str) -> FleetNode:
    """One of those of :mod:`random_clusters` or of :mod:`device_clusters`, with what says which CUDA it runs."""
    made = (random_clusters if rng.random() < 0.5 else device_clusters).random_node(rng, name)
    labels = dict(made.labels)
    if rng.random() < 0.6:
        labels |= {
            "nvidia.com/gpu.product": rng.choice(PRODUCTS),
            "nvidia.com/cuda.driver-version.full": rng.choice(DRIVERS),
        }
    features = rng.choice((made.features, ()))
    return replace(made, labels=labels, features=features)


def _pod(rng: Random, name: str, *, volumes: bool = True) -> FleetPod:
    """One of those of :mod:`random_clusters` or of :mod:`device_clusters`, with an image, maybe a port of its node, what
    its kubelet has to know, and a volume in a zone."""
    made = (random_clusters if rng.random() < 0.5 else device_clusters).random_pod(rng, name)
    ports = [core.ContainerPort(container_port=80, host_port=80)] if rng.random() < 0.2 else []
    rules = [core.ContainerRestartRule(action="RestartAllContainers")] if rng.random() < 0.2 else []
    first = msgspec.structs.replace(
        made.spec.containers[0], image=rng.choice(IMAGES), ports=ports, restart_policy_rules=rules
    )
    reach = [Reach("elsewhere", _in_zone(rng.choice("abc")))] if volumes and rng.random() < 0.2 else []
    spec = msgspec.structs.replace(made.spec, containers=[first])
    return replace(made, spec=spec, volumes=VolumeNeed(reach=tuple(reach)))


def _in_zone(zone: str) -> core.NodeSelector:
    one = core.NodeSelectorRequirement(key=ZONE, operator="In", values=[zone])
    return core.NodeSelector(node_selector_terms=[core.NodeSelectorTerm(match_expressions=[one])])


def _fleet(rng: Random) -> Fleet:
    """A few nodes, some of them cordoned, and pods wherever there was room."""
    made = Fleet()
    for number in range(NODES):
        made.add_node(_node(rng, f"n{number}"), schedulable=rng.random() < 0.85)
    for number in range(BOUND):
        row = made.add_pod(_pod(rng, f"bound-{number}"))
        for at in rng.sample(made.node_rows(), NODES):
            try:
                made.bind(row, at)
                break
            except Conflict:
                continue
        else:
            made.remove_pod(row)
    return made


def _scheduler(made: Fleet, row: int) -> set[int]:
    """The nodes that the scheduler does not name among those which refuse the pod, when it says why it waits."""
    filters = SchedulerFilters.of(made)
    pod_class, cache = made.pod_class(row), filters.cache
    view = cache.view(pod_class, "binpack")
    refused = {
        int(at) for _, rows in explain.refusals(made, view, cache.topology.masks(pod_class, view)) for at in rows
    }
    return set(made.node_rows()) - refused


def _rows(made: Fleet, mask: Any) -> set[int]:
    return {row for row in made.node_rows() if mask[row]}


CASES = settings(max_examples=examples(150), deadline=None)
SEEDS = st.integers(0, 2**32)


@CASES
@given(SEEDS)
def test_the_nodes_that_take_a_pod_are_those_on_which_the_scheduler_binds_it(seed: int) -> None:
    rng = Random(seed)
    made = _fleet(rng)
    row = made.add_pod(_pod(rng, "asked"))
    takes = _rows(made, SchedulerFilters.of(made).take(made.pod_class(row)))
    assert takes == _scheduler(made, row)
    decisions = place.decide(Snapshot(0, made), place.Settings(preemption=False))
    bound = {made.node_by_name[one.node.name] for one in decisions if isinstance(one, Bind)}
    assert bound <= takes and bool(bound) == bool(takes)


@CASES
@given(SEEDS)
def test_one_node_says_of_itself_what_the_scheduler_says_of_all(seed: int) -> None:
    rng = Random(seed)
    made = _fleet(rng)
    row = made.add_pod(_pod(rng, "asked"))
    view = SchedulerFilters.of(made).cache.view(made.pod_class(row), "binpack")
    for at in made.node_rows():
        said = refusal(view.shape, made.node(at), schedulable=bool(made.schedulable[at]))
        assert said == view.why[at], made.node(at).spec.name


@CASES
@given(SEEDS)
def test_the_partitioner_binds_for_a_trial_where_the_scheduler_would(seed: int) -> None:
    rng = Random(seed)
    made = _fleet(rng)
    row = made.add_pod(_pod(rng, "asked"))
    expected = _scheduler(made, row)
    with made.what_if():
        trial = LayoutTrial(made, SchedulerFilters.of(made))
        open_to = trial.open(row)
        for at in made.node_rows():
            with trial.attempt():
                assert (at in open_to and trial.bind(row, (at,))) == (at in expected)
        assert trial.bind(row) == bool(expected)


@CASES
@given(SEEDS)
def test_warm_replicas_and_others_that_wait_stand_where_the_scheduler_would_bind_them(seed: int) -> None:
    rng = Random(seed)
    made = _fleet(rng)
    row = made.add_pod(replace(_pod(rng, "asked"), owner="default/w"))
    waits = made.pod(row).spec
    views = {
        "default/w": WorkloadView(
            "Deployment", "default", "w", 1, (PodView(row, waits.namespace, waits.name, "", 0, None, None),)
        )
    }
    snapshot, expected, seats = Snapshot(0, made, views), _scheduler(made, row), SchedulerSeats()
    assert bool(seats(snapshot, {row})) == bool(expected)
    kept = {at for at in expected if made.schedulable[at]}
    wants = made.classes.shapes[made.pod_class(row).shape].ask.kind.value
    with made.what_if():
        assert FreeRoom(snapshot, seats).fill("default/w", 1) == bool(kept and wants)


@CASES
@given(SEEDS)
def test_a_pod_of_a_daemonset_starts_where_the_scheduler_would_bind_it(seed: int) -> None:
    rng = Random(seed)
    made = Fleet()
    for number in range(NODES):
        made.add_node(_node(rng, f"n{number}"))
    like = _pod(rng, "asked", volumes=False)
    affinity = core.Affinity(node_affinity=like.spec.affinity.node_affinity) if like.spec.affinity else None
    spec = msgspec.structs.replace(like.spec, affinity=affinity, topology_spread_constraints=[])
    template = core.PodTemplateSpec(metadata=ObjectMeta(annotations=dict(like.annotations)), spec=spec)
    row = made.add_pod(replace(like, spec=spec))
    expected = _scheduler(made, row)
    made.remove_pod(row)
    for at in made.node_rows():
        started = daemons.start(made, at, "ns", "set", template, "ns/set")
        assert isinstance(started, FleetPod) == (at in expected), started
        again = daemons.start(made, at, "ns", "again", template, "ns/again")
        if spec.containers[0].ports:
            assert not isinstance(again, FleetPod), "the port is taken"


@CASES
@given(SEEDS)
def test_check_lets_a_pod_land_where_the_scheduler_would_bar_cuda_of_which_a_rule_speaks(seed: int) -> None:
    rng = Random(seed)
    nodes = [replace(_node(rng, f"n{number}"), features=FleetNode("", {}, {}).features) for number in range(NODES)]
    made = fleet(*nodes)
    asked = _pod(rng, "asked", volumes=False)
    machines = [Machine(one.name, one.labelled(), one.taints) for one in nodes]
    found = {one.name for one in Landing(machines, [], Catalogue.load(None)).admitting(asked.spec, asked.annotations)}
    view = SchedulerFilters.of(made).cache.view(made.pod_class(made.add_pod(asked)), "binpack")
    letting = {made.node(row).spec.name for row in made.node_rows() if view.why[row] in (OPEN, NO_CUDA)}
    named = {asked.spec.node_name} & set(made.node_by_name)
    assert found == (named if asked.spec.node_name else letting)
