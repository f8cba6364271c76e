"""The planner against a naive one: lists, a stable sort before every pod, a queue that is run until nothing moves."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from provisioning_builders import GPU, catalogue, instance, node, node_pool, shape

from deep_seeds import examples
from tonnage.decisions import Ref
from tonnage.facts import instances
from tonnage.objects import karpenter, selectors
from tonnage.provisioning.catalogue import Catalogue
from tonnage.provisioning.karpenter import plan
from tonnage.provisioning.labels import well_known
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.pods import ExistingNode, PendingPod
from tonnage.provisioning.requirements import Requirement, Requirements
from tonnage.units import NS_PER_S

NAME = "karpenter.k8s.aws/instance-gpu-name"
COUNT = "karpenter.k8s.aws/instance-gpu-count"
ZONES = "topology.kubernetes.io/zone"
CAPACITY = "karpenter.sh/capacity-type"
TYPES = [
    instance("c1.small", cpu=2, memory_gib=4, max_pods=4),
    instance("c1.large", cpu=8, memory_gib=16, max_pods=8),
    instance("g1.one", cpu=4, memory_gib=16, gpus=1, gpu="a10g", max_pods=6),
    instance("g1.four", cpu=16, memory_gib=64, gpus=4, gpu="a10g", max_pods=6),
    instance("g1.eight", cpu=32, memory_gib=96, gpus=8, gpu="a10g", max_pods=10),
    instance("g2.one", cpu=8, memory_gib=32, gpus=1, gpu="l4", max_pods=6),
    instance("g2.two", cpu=12, memory_gib=48, gpus=2, gpu="l4", max_pods=6),
]
OFFERS = {
    (one.name, zone, kind): 1000 * one.vcpu + 5000 * one.gpu_count - (900 * one.vcpu if kind == "spot" else 0)
    for one in TYPES
    for zone in ("us-east-1a", "us-east-1b")
    for kind in ("on-demand", "spot")
    if (one.name, zone, kind) != ("g1.one", "us-east-1b", "spot") and (one.name, zone) != ("g2.two", "us-east-1b")
}
WORLD: Catalogue = catalogue(TYPES, OFFERS)

Term = tuple[str, str, list[str]]
terms = st.sampled_from(
    [
        (NAME, "In", ["a10g"]),
        (NAME, "In", ["a10g", "l4"]),
        (NAME, "NotIn", ["a10g"]),
        (NAME, "DoesNotExist", []),
        (COUNT, "Gt", ["0"]),
        (COUNT, "Lt", ["4"]),
        (ZONES, "In", ["us-east-1b"]),
        (CAPACITY, "In", ["on-demand"]),
        (CAPACITY, "In", ["spot"]),
        ("example.com/team", "In", ["red"]),
    ]
)
taint = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
soft = {"key": "soft", "effect": "PreferNoSchedule"}
pools_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "requirements": st.lists(terms, max_size=2),
            "weight": st.sampled_from([None, 10]),
            "limits": st.sampled_from([None, {"cpu": "40"}, {GPU: "6", "memory": "200Gi"}]),
            "taints": st.sampled_from([[], [taint], [soft]]),
            "labels": st.sampled_from([{}, {"example.com/team": "red"}]),
        }
    ),
    min_size=1,
    max_size=3,
)
shapes_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "cpu": st.sampled_from([0.5, 1, 3, 6]),
            "memory_gib": st.sampled_from([1, 8, 20]),
            "gpus": st.sampled_from([0, 0, 1, 2, 8]),
            "required": st.lists(terms, max_size=2),
            "preferred": st.lists(st.tuples(st.sampled_from([1, 50]), terms), max_size=2),
            "tolerates": st.booleans(),
            "count": st.integers(1, 9),
        }
    ),
    min_size=1,
    max_size=4,
)


def expressions(listed: list[Term]) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": op, "values": values} for key, op, values in listed]}


def make_pods(written: list[dict[str, Any]]) -> list[PendingPod]:
    made = []
    for number, one in enumerate(written):
        affinity: dict[str, Any] = {}
        if one["required"]:
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
                "nodeSelectorTerms": [expressions([term]) for term in one["required"]]
            }
        if one["preferred"]:
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": weight, "preference": expressions([term])} for weight, term in one["preferred"]
            ]
        tolerations = [{"key": "gpu", "operator": "Exists"}] if one["tolerates"] else []
        asked = shape(one["cpu"], one["memory_gib"], one["gpus"], affinity=affinity, tolerations=tolerations)
        for i in range(one["count"]):
            ref = Ref("Pod", f"pod-{number}-{i}", "default", f"uid-{(i * 7 + number * 3) % 11}-{number}-{i}")
            made.append(PendingPod(ref, asked, (i * 5 + number) % 4 * NS_PER_S))
    return made


@dataclass
class NaiveClaim:
    pool: karpenter.NodePool
    allowed: list[instances.InstanceType]
    pods: list[PendingPod] = field(default_factory=list)
    wanted: list[Requirement] = field(default_factory=list)

    def left(self, extra: PendingPod, wanted: list[Requirement]) -> list[instances.InstanceType]:
        if not Requirements(self.wanted).compatible(Requirements(wanted), well_known()):
            return []
        everyone = [*self.pods, extra]
        needs = {key: sum(p.shape.requests.get(key, 0) for p in everyone) for key in ("cpu", "memory", GPU)}
        return [
            one
            for one in self.allowed
            if needs["cpu"] <= one.allocatable_cpu_milli
            and needs["memory"] <= one.allocatable_memory_mib << 20
            and needs[GPU] <= one.gpu_count
            and len(everyone) <= one.max_pods
            and self.sold(one, self.wanted + wanted)
        ]

    def sold(self, one: instances.InstanceType, wanted: list[Requirement]) -> bool:
        own = team_label(self.pool)
        for name, zone, kind in OFFERS:
            labels = {**one.labels(zone, kind), **own}
            together = Requirements(wanted).values()
            if name == one.name and all(requirement.has(labels.get(requirement.key)) for requirement in together):
                return True
        return False


def team_label(pool: karpenter.NodePool) -> dict[str, str]:
    """The node's one custom label: given by the NodePool, or made from its requirements (a value that they allow)."""
    given = pool.spec.template.metadata.labels
    asked = [one.operator for one in pool.spec.template.spec.requirements if one.key == "example.com/team"]
    return given or {"example.com/team": "red" if "In" in asked else "other"} if given or asked else {}


def requirements_of(term: Any) -> list[Requirement]:
    return [Requirement.of(one.key, one.operator, one.values) for one in term.match_expressions]


def wishes(pod: PendingPod, any_soft: bool) -> list[tuple[list[Requirement], bool]]:
    """The pod's requirements after each relaxation, and whether PreferNoSchedule is tolerated by then."""
    affinity = pod.shape.node_affinity
    assert affinity is not None
    required = affinity.required_during_scheduling_ignored_during_execution
    must = [requirements_of(term) for term in required.node_selector_terms] if required else [[]]
    preferred = list(affinity.preferred_during_scheduling_ignored_during_execution)
    stages = []
    while True:
        preferred.sort(key=lambda term: -term.weight)
        wish = requirements_of(preferred[0].preference) if preferred else []
        stages.append((must[0] + wish, False))
        if len(must) > 1:
            must = must[1:]
        elif preferred:
            preferred = preferred[1:]
        else:
            break
    return stages + ([(must[0], True)] if any_soft else [])


def naive(pods: list[PendingPod], nodes: list[ExistingNode], pools: list[karpenter.NodePool]) -> dict[str, str]:
    """Pod name → where it went: a node's name, or the number of a claim in the order of planning."""
    soft_pools = any(t.effect == "PreferNoSchedule" for pool in pools for t in pool.spec.template.spec.taints)
    free = {one.ref.name: dict(one.free) for one in nodes}
    labelled = {one.ref.name: Requirements.of_labels(one.labels) for one in nodes}
    left = {pool.metadata.name: capacity_limits(pool) for pool in pools}
    claims: list[NaiveClaim] = []
    order: list[NaiveClaim] = []
    where: dict[str, str] = {}

    def tolerates(taints: Any, pod: PendingPod, relaxed: bool) -> bool:
        effects = ("NoSchedule", "NoExecute") if relaxed else ("NoSchedule", "NoExecute", "PreferNoSchedule")
        return selectors.untolerated(taints, pod.shape.tolerations, effects) is None

    def add(pod: PendingPod, wanted: list[Requirement], relaxed: bool) -> bool:
        requests = {"pods": 1, **pod.shape.requests}
        for one in sorted(nodes, key=lambda n: (not n.initialized, n.ref.name)):
            room = free[one.ref.name]
            fits = all(room.get(key, 0) >= amount for key, amount in requests.items())
            suits = labelled[one.ref.name].compatible(Requirements(wanted))
            if fits and suits and tolerates(one.taints, pod, relaxed):
                for key, amount in requests.items():
                    room[key] -= amount
                labelled[one.ref.name] = labelled[one.ref.name].merged(Requirements(wanted))
                where[pod.ref.name] = one.ref.name
                return True
        order.sort(key=lambda claim: len(claim.pods))
        for claim in order:
            if tolerates(claim.pool.spec.template.spec.taints, pod, relaxed):
                types = claim.left(pod, wanted)
                if types:
                    claim.allowed = types
                    claim.pods.append(pod)
                    claim.wanted += wanted
                    where[pod.ref.name] = str(claims.index(claim))
                    return True
        for pool in sorted(pools, key=lambda p: (p.spec.weight or 0, p.metadata.name), reverse=True):
            limits = left[pool.metadata.name]
            within = [one for one in TYPES if all(charge(one, key) <= limits[key] for key in limits)]
            base = [Requirement.of(r.key, r.operator, r.values) for r in pool.spec.template.spec.requirements]
            base += Requirements.of_labels(team_label(pool)).values()
            claim = NaiveClaim(pool, within, wanted=base)
            if tolerates(pool.spec.template.spec.taints, pod, relaxed):
                types = claim.left(pod, wanted)
                if types:
                    claim.allowed, claim.pods, claim.wanted = types, [pod], base + wanted
                    for key in limits:
                        limits[key] -= max(charge(one, key) for one in types)
                    where[pod.ref.name] = str(len(claims))
                    claims.append(claim)
                    order.append(claim)
                    return True
        return False

    queue = sorted(
        pods,
        key=lambda p: (-p.shape.requests["cpu"], -p.shape.requests["memory"], p.creation_ns, p.ref.uid),
    )
    moved = True
    while moved:
        moved = False
        for pod in list(queue):
            if any(add(pod, wanted, relaxed) for wanted, relaxed in wishes(pod, soft_pools)):
                queue.remove(pod)
                moved = True
    return where


def charge(one: instances.InstanceType, key: str) -> int:
    memory = one.memory_mib - -(-one.memory_mib * 75 // 1000)
    return {"cpu": one.vcpu * 1000, "memory": memory << 20, GPU: one.gpu_count}[key]


def capacity_limits(pool: karpenter.NodePool) -> dict[str, int]:
    units = {"40": 40_000, "6": 6, "200Gi": 200 << 30}
    return {key: units[str(value)] for key, value in pool.spec.limits.items()}


def placements(result: Plan) -> dict[str, str]:
    found = {one.pod.name: one.node.name for one in result.nominations}
    for number, claim in enumerate(result.claims):
        found |= {ref.name: str(number) for ref in claim.pods}
    return found


def make_pools(written: list[dict[str, Any]]) -> list[karpenter.NodePool]:
    return [
        node_pool(
            f"pool-{i}",
            *one["requirements"],
            weight=one["weight"],
            limits=one["limits"],
            taints=one["taints"],
            labels=one["labels"],
        )
        for i, one in enumerate(written)
    ]


@settings(max_examples=examples(150), deadline=None)
@given(pools_strategy, shapes_strategy, st.integers(0, 2), st.randoms(use_true_random=False))
def test_the_planner_places_every_pod_where_the_naive_one_does(
    pools: list[dict[str, Any]], shapes: list[dict[str, Any]], existing: int, shuffled: random.Random
) -> None:
    made = make_pools(pools)
    pods = make_pods(shapes)
    nodes = [
        node(f"node-{i}", cpu=4, memory_gib=24, gpus=i, initialized=i == 1, labels={"example.com/team": "red"})
        for i in range(existing)
    ]
    expected = naive(pods, nodes, made)
    result = plan(pods, nodes, made, WORLD)
    if len(result.claims) <= 12:  # Go's sort leaves equal ones as they are up to here, and no further
        assert placements(result) == expected
    assert {wait.pod.name for wait in result.waits} == {pod.ref.name for pod in pods} - set(expected)
    shuffled.shuffle(pods)
    shuffled.shuffle(nodes)
    shuffled.shuffle(made)
    assert plan(pods, nodes, made, WORLD) == result


@settings(max_examples=examples(150), deadline=None)
@given(pools_strategy, shapes_strategy)
def test_every_pod_of_a_claim_fits_every_type_that_remains(
    pools: list[dict[str, Any]], shapes: list[dict[str, Any]]
) -> None:
    pods = {pod.ref: pod for pod in make_pods(shapes)}
    daemon = shape(0.5, 1, tolerations=[{"operator": "Exists"}])
    result = plan(pods.values(), [], make_pools(pools), WORLD, PlanSettings(daemon_sets=(daemon,)))
    for claim, launch in zip(result.claims, result.launches, strict=True):
        assert claim.offering.instance_type in claim.instance_types
        assert OFFERS[claim.offering] == launch.price_micro_usd_per_hour
        everyone = [*(pods[ref].shape for ref in claim.pods), daemon]
        for name in claim.instance_types:
            free = WORLD.as_map(WORLD.allocatable[WORLD.index(name)])
            assert len(everyone) <= free["pods"]
            for resource in ("cpu", "memory", GPU):
                assert sum(one.requests.get(resource, 0) for one in everyone) <= free.get(resource, 0)
    placed = [ref for claim in result.claims for ref in claim.pods]
    assert sorted([*placed, *(wait.pod for wait in result.waits)]) == sorted(pods)


@settings(max_examples=examples(150), deadline=None)
@given(pools_strategy, shapes_strategy)
def test_whatever_is_launched_stays_within_the_limits(
    pools: list[dict[str, Any]], shapes: list[dict[str, Any]]
) -> None:
    made = make_pools(pools)
    result = plan(make_pods(shapes), [], made, WORLD)
    for pool in made:
        for resource, limit in capacity_limits(pool).items():
            # Any type of the request may be launched, not only the cheapest one.
            largest = [
                max(charge(WORLD.types[WORLD.index(name)], resource) for name in claim.instance_types)
                for claim in result.claims
                if claim.node_pool == pool.metadata.name
            ]
            assert sum(largest) <= limit
