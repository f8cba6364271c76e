"""NodePools that offer nodes whose GPUs are partitioned, in one way or in several."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from provisioning_builders import node_pool
from test_plan_device_shares import ALL_TYPES, CAPACITY, TYPE, groups_of, pending, share, waits

from builders import apply, decide, fleet, pod
from deep_seeds import part
from tonnage.decisions import Finding, Launch, Wait
from tonnage.facts import instances
from tonnage.facts.labels import GPU, MIG_CONFIG
from tonnage.fleet.asks import SHARED_GPU
from tonnage.fleet.invariants import violations
from tonnage.fleet.state import FleetNode, FleetPod
from tonnage.objects import core, karpenter, load
from tonnage.partitioning.configurations import read
from tonnage.partitioning.mig_cards import known_configs
from tonnage.partitioning.node_cuts import MIG_STRATEGY, OWN, PLUGIN_CONFIG, Configurations, cut_node
from tonnage.provisioning import karpenter as planner
from tonnage.provisioning.cut_findings import config_findings
from tonnage.provisioning.devices import machine
from tonnage.provisioning.findings import analyse
from tonnage.provisioning.plans import Plan, PlanSettings
from tonnage.provisioning.template import compile_pool

MIXED = {MIG_STRATEGY: "mixed"}
ONE_CARD = "p5.4xlarge"

MAPS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: mig}
data:
  config.yaml: |
    version: v1
    mig-configs:
      halves: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2}}]
      eighths: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 8}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: plugin}
data:
  default: "version: v1"
  shared: |
    version: v1
    sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}
  mps: |
    version: v1
    sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}
"""


@pytest.fixture
def maps(tmp_path: Path) -> Configurations:
    file = tmp_path / "maps.yaml"
    file.write_text(MAPS, encoding="utf-8")
    return read(load.read([file]).of(core.ConfigMap))


def offering(
    *values: str, types: tuple[str, ...] = (ONE_CARD,), key: str = MIG_CONFIG, **more: Any
) -> karpenter.NodePool:
    """A NodePool that offers several configurations, with strategy ``mixed`` unless labels say otherwise."""
    labels = more.pop("labels", MIXED)
    wanted = [(TYPE, "In", types), (CAPACITY, "In", ["on-demand"]), (key, "In", values)]
    return node_pool("cut", *wanted, labels=labels, **more)


def instance_of(name: str, profile: str, count: int = 1, **more: Any) -> FleetPod:
    return pod(name, 0.1, 0.1, resources={f"nvidia.com/mig-{profile}": str(count)}, **more)


def plan(pods: list[FleetPod], *pools: karpenter.NodePool, configurations: Configurations = OWN) -> Plan:
    return planner.plan(pending(pods), [], pools, ALL_TYPES, PlanSettings(configurations=configurations))


def layouts(planned: Plan) -> list[str]:
    return sorted(launch.labels[MIG_CONFIG] for launch in planned.launches)


# ---- which layout is chosen ----


@pytest.mark.parametrize(("profile", "chosen"), [("1g.10gb", "all-1g.10gb"), ("3g.40gb", "all-3g.40gb")])
def test_a_pod_gets_a_node_whose_layout_holds_it(profile: str, chosen: str) -> None:
    pool = offering("all-disabled", "all-1g.10gb", "all-3g.40gb")
    (launch,) = plan([instance_of("p", profile)], pool).launches
    assert launch.labels[MIG_CONFIG] == chosen
    assert launch.labels[MIG_STRATEGY] == "mixed"
    assert GPU not in launch.allocatable
    assert launch.allocatable[f"nvidia.com/mig-{profile}"] == {"1g.10gb": 7, "3g.40gb": 2}[profile]
    (whole,) = plan([pod("w", 0.1, 0.1, 1)], pool).launches
    assert (whole.labels[MIG_CONFIG], whole.allocatable[GPU]) == ("all-disabled", 1)


def test_the_node_claim_has_the_chosen_layout_alone_among_its_requirements() -> None:
    (claim,) = plan([instance_of("p", "3g.40gb")], offering("all-1g.10gb", "all-3g.40gb")).claims
    assert str(claim.requirements[MIG_CONFIG]) == f"{MIG_CONFIG} In [all-3g.40gb]"


def test_layouts_stay_open_until_a_pod_decides_between_them() -> None:
    pool = offering("all-1g.10gb", "all-balanced")
    alone = plan([instance_of("small", "1g.10gb")], pool)
    assert layouts(alone) == ["all-1g.10gb"]  # of those that hold it, the one with the most of it
    both = plan([instance_of("small", "1g.10gb"), instance_of("large", "3g.40gb")], pool)
    assert (layouts(both), groups_of(both)) == (["all-balanced"], [["large", "small"]])


def test_a_layout_that_is_full_is_given_up_for_one_with_more_room() -> None:
    pool = offering("all-1g.10gb", "all-balanced")
    pods = [instance_of(f"p{i}", "1g.10gb") for i in range(7)]
    assert layouts(plan(pods, pool)) == ["all-1g.10gb"]
    assert layouts(plan([*pods, instance_of("p7", "1g.10gb")], pool)) == ["all-1g.10gb", "all-1g.10gb"]


def test_the_cheapest_type_that_can_be_cut_so_wins() -> None:
    types = ("p4d.24xlarge", "p5.4xlarge", "p5.48xlarge")
    (launch,) = plan([instance_of("p", "1g.10gb")], offering("all-1g.10gb", "all-1g.5gb", types=types)).launches
    assert (launch.instance_type, launch.labels[MIG_CONFIG]) == ("p5.4xlarge", "all-1g.10gb")
    (old,) = plan([instance_of("p", "1g.5gb")], offering("all-1g.10gb", "all-1g.5gb", types=types)).launches
    assert (old.instance_type, old.labels[MIG_CONFIG]) == ("p4d.24xlarge", "all-1g.5gb")


def test_a_node_selector_names_the_layout() -> None:
    pool = offering("all-1g.10gb", "all-balanced")
    (launch,) = plan([instance_of("p", "1g.10gb", nodeSelector={MIG_CONFIG: "all-balanced"})], pool).launches
    assert launch.labels[MIG_CONFIG] == "all-balanced"
    refused = plan([instance_of("p", "3g.40gb", nodeSelector={MIG_CONFIG: "all-1g.10gb"})], pool)
    assert waits(refused)[0].startswith("no instance type fits: nvidia.com/mig-3g.40gb")


def test_a_label_that_no_node_would_get_is_not_planned_for() -> None:
    never = node_pool("cut", (TYPE, "In", [ONE_CARD]), (CAPACITY, "In", ["on-demand"]), (MIG_CONFIG, "NotIn", ["a"]))
    planned = plan([pod("p", 0.1, 0.1, 1, nodeSelector={MIG_CONFIG: "all-disabled"})], never)
    assert waits(planned) == [f"its nodes have no label that meets {MIG_CONFIG} In [all-disabled]"]
    (launch,) = plan([pod("p", 0.1, 0.1, 1)], never).launches
    assert MIG_CONFIG not in launch.labels
    unlisted = node_pool("cut", (TYPE, "In", [ONE_CARD]), (CAPACITY, "In", ["on-demand"]), (MIG_CONFIG, "Exists", []))
    assert waits(plan([pod("p", 0.1, 0.1, 1)], unlisted)) == [f"its nodes have no label that meets {MIG_CONFIG} Exists"]


def test_with_strategy_single_a_gpu_is_an_instance() -> None:
    labels = {MIG_CONFIG: "all-2g.20gb"}
    pool = node_pool("cut", (TYPE, "In", [ONE_CARD]), (CAPACITY, "In", ["on-demand"]), labels=labels)
    planned = plan([pod(f"p{i}", 0.1, 0.1, 1) for i in range(4)], pool)
    assert sorted(map(len, groups_of(planned))) == [1, 3]
    assert planned.launches[0].allocatable[GPU] == 3


def test_a_gpu_is_the_largest_part_that_a_layout_calls_so_unless_the_pod_names_another() -> None:
    pool = offering("all-1g.10gb", "all-disabled", labels={})
    pods = [pod(f"p{i}", 0.1, 0.1, 1) for i in range(2)]
    assert layouts(plan(pods, pool)) == ["all-disabled", "all-disabled"]
    named = [pod(f"p{i}", 0.1, 0.1, 1, nodeSelector={MIG_CONFIG: "all-1g.10gb"}) for i in range(2)]
    assert layouts(plan(named, pool)) == ["all-1g.10gb"]


def test_replicas_fractions_and_whole_gpus_each_get_a_node_that_offers_them(maps: Configurations) -> None:
    pool = offering("default", "shared", key=PLUGIN_CONFIG, labels={})
    replicas = [pod(f"r{i}", 0.1, 0.1, resources={SHARED_GPU: "1"}) for i in range(4)]
    planned = plan([*replicas, share("half", "0.5"), share("other", "0.5")], pool, configurations=maps)
    assert groups_of(planned) == [["half", "other"], ["r0", "r1", "r2", "r3"]]
    by_pods = {len(launch.pods): launch for launch in planned.launches}
    assert by_pods[4].labels[PLUGIN_CONFIG] == "shared"
    assert (by_pods[4].allocatable[SHARED_GPU], by_pods[4].allocatable.get(GPU)) == (4, None)
    assert by_pods[2].labels[PLUGIN_CONFIG] == "default"
    (whole,) = plan([pod("w", 0.1, 0.1, 1)], pool, configurations=maps).launches
    assert whole.labels[PLUGIN_CONFIG] == "default"


def test_a_whole_gpu_is_never_planned_beside_replicas(maps: Configurations) -> None:
    pool = offering("default", "shared", key=PLUGIN_CONFIG, labels={})
    pods = [pod("a", 0.2, 0.1, resources={SHARED_GPU: "1"}), pod("b", 0.1, 0.1, 1)]
    assert groups_of(plan(pods, pool, configurations=maps)) == [["a"], ["b"]]


def test_replicas_that_no_node_pool_offers_wait_with_what_would_offer_them() -> None:
    planned = plan([pod("r", 0.1, 0.1, resources={SHARED_GPU: "1"})], offering("all-disabled"))
    assert waits(planned) == [
        f"no instance type fits: {SHARED_GPU}; a NodePool offers it by its label {PLUGIN_CONFIG}, "
        "where that configuration renames replicas"
    ]


def test_a_configuration_of_a_config_map_is_planned_by_its_name(maps: Configurations) -> None:
    (launch,) = plan([instance_of("p", "3g.40gb")], offering("halves"), configurations=maps).launches
    assert (launch.labels[MIG_CONFIG], launch.allocatable["nvidia.com/mig-3g.40gb"]) == ("halves", 2)
    refused = plan([instance_of("p", "1g.10gb")], offering("eighths"), configurations=maps)
    assert "h100 cannot hold 8 x 1g.10gb" in waits(refused)[0]


def test_a_cut_node_on_its_way_takes_the_rest_of_its_instances() -> None:
    pool = offering("all-1g.10gb", "all-3g.40gb")
    (claim,) = plan([instance_of(f"p{i}", "3g.40gb") for i in range(2)], pool).claims
    more = pending([instance_of("more", "3g.40gb")])
    assert planner.plan(more, [claim.in_flight()], [pool], ALL_TYPES).launches
    assert not planner.plan(more, [claim.in_flight(with_pods=False)], [pool], ALL_TYPES).launches


# ---- what is planned is what comes ----


def join_cut(launch: Launch, configurations: Configurations = OWN) -> FleetNode:
    """The node of a launch with its GPUs cut as its labels say."""
    of = instances.get(launch.instance_type)
    cut = cut_node(configurations, launch.labels, of.gpu, of.resource_count)
    own = {name: n for name, n in launch.allocatable.items() if not name.startswith("nvidia.com/")}
    return FleetNode(
        launch.claim.name,
        {**own, **cut.offers},
        launch.labels,
        instance_type=of.name,
        gpu=of.gpu,
        device_resource=of.resource,
        cuts=cut.cuts,
    )


@pytest.mark.parametrize("strategy", ["single", "mixed"])
def test_the_allocatable_of_a_plan_is_that_of_the_node_for_every_type_and_configuration(strategy: str) -> None:
    types = {one.gpu: one for one in ALL_TYPES.types if one.resource == GPU}
    pool = offering(
        *known_configs().configs, types=tuple(one.name for one in types.values()), labels={MIG_STRATEGY: strategy}
    )
    template = compile_pool(pool, ALL_TYPES)
    seen = 0
    for layout, labels in enumerate(template.machines.layouts):
        for one in types.values():
            cut = cut_node(OWN, labels, one.gpu, one.resource_count)
            planned = template.allocatable(ALL_TYPES.index(one.name), ALL_TYPES, layout)
            assert {name: n for name, n in planned.items() if name.startswith("nvidia.com/")} == cut.offers
            made = fleet()
            row = made.add_node(
                FleetNode(
                    "n", cut.offers, labels, gpu=one.gpu, device_resource=GPU, cuts=cut.cuts, instance_type=one.name
                )
            )
            there = machine(one, labels)
            assert {name: n for name, n in made.allocatable_of(row).items() if n} == there.allocatable
            assert made.node(row).cuts == there.cuts
            seen += bool(cut.cuts)
    assert seen > 30


def test_the_pods_of_a_plan_land_on_the_nodes_that_come() -> None:
    pods = [
        *(instance_of(f"s{i}", "1g.10gb") for i in range(9)),
        *(instance_of(f"l{i}", "3g.40gb") for i in range(3)),
        instance_of("both", "2g.20gb", 2),
        pod("whole", 0.1, 0.1, 1),
    ]
    planned = plan(pods, offering("all-1g.10gb", "all-3g.40gb", "all-2g.20gb", "all-balanced", "all-disabled"))
    made = fleet(pods=pods)
    for launch in planned.launches:
        made.add_node(join_cut(launch))
    decisions = decide(made)
    assert not [one for one in decisions if isinstance(one, Wait)]
    apply(made, decisions)
    assert not made.pending


WAYS = ("all-1g.10gb", "all-1g.20gb", "all-2g.20gb", "all-3g.40gb", "all-balanced", "all-disabled", "all-7g.80gb")
PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "7g.80gb")


@pytest.mark.parametrize("seed", part(range(40)))
def test_a_planned_node_takes_exactly_the_pods_that_are_planned_on_it(seed: int, maps: Configurations) -> None:
    rng = Random(seed)
    layouts_here = rng.sample(WAYS, rng.randint(1, 4))
    sharing = rng.sample(["default", "shared"], rng.randint(1, 2))
    pool = node_pool(
        "cut",
        (TYPE, "In", [ONE_CARD, "p5.48xlarge"]),
        (CAPACITY, "In", ["on-demand"]),
        (MIG_CONFIG, "In", layouts_here),
        (PLUGIN_CONFIG, "In", sharing),
        labels=MIXED,
    )
    pods = []
    for i in range(rng.randint(1, 40)):
        what = rng.randrange(4)
        if what == 0:
            pods.append(pod(f"p{i}", rng.choice((0.1, 4)), 0.1, rng.randint(1, 3)))
        elif what == 1:
            pods.append(pod(f"p{i}", 0.1, 0.1, resources={SHARED_GPU: "1"}))
        elif what == 2:
            pods.append(share(f"p{i}", rng.choice(("0.3", "0.5"))))
        else:
            pods.append(instance_of(f"p{i}", rng.choice(PROFILES), rng.randint(1, 2)))
    planned = plan(pods, pool, configurations=maps)
    by_name = {one.name: one for one in pods}
    made = fleet()
    for launch in planned.launches:
        row = made.add_node(join_cut(launch, maps))
        assert {name: n for name, n in made.allocatable_of(row).items() if n} == launch.allocatable
        for ref in launch.pods:
            made.bind(made.add_pod(by_name[ref.name]), row)
        assert launch.labels[MIG_CONFIG] in layouts_here
    assert violations(made) == []
    assert len(made.pods) + len(planned.waits) == len(pods)
    refused = {wait.pod.name for wait in planned.waits}
    for name in refused:  # nothing but what no layout offers waits
        alone = plan([by_name[name]], pool, configurations=maps)
        assert alone.waits


# ---- findings ----


def found(pool: karpenter.NodePool, configurations: Configurations) -> list[Finding]:
    return [one for one in analyse(pool, ALL_TYPES, configurations) if "spot" not in one.rule]


def test_a_name_that_no_config_map_has_is_found_with_near_ones(maps: Configurations) -> None:
    (mig,) = found(offering("halve", "halves"), maps)
    assert (mig.rule, mig.severity) == ("nodepool-unknown-configuration", "error")
    assert mig.message.startswith("unknown MIG configuration 'halve' (did you mean halves?")
    (plugin,) = found(offering("sharde", key=PLUGIN_CONFIG), maps)
    assert "unknown device-plugin configuration 'sharde' (did you mean shared?" in plugin.message
    assert found(offering("halve"), OWN) == []  # the ConfigMaps of a live cluster are not at hand


def test_a_layout_that_no_type_can_have_is_an_error_and_one_that_some_cannot_a_warning(maps: Configurations) -> None:
    (error,) = found(offering("eighths"), maps)
    assert (error.rule, error.severity) == ("nodepool-gpus-not-offered", "error")
    assert (
        "maps.yaml:9: h100 cannot hold 8 x 1g.10gb of configuration eighths: at most 7 x 1g.10gb fit" in error.message
    )
    (warning,) = found(offering("all-1g.5gb", types=("p4d.24xlarge", ONE_CARD)), maps)
    assert warning.severity == "warning"
    assert f"{MIG_CONFIG}=all-1g.5gb leaves no GPU to offer on p5.4xlarge: h100 cannot hold" in warning.message


def test_mps_with_mig_is_found(maps: Configurations) -> None:
    pool = offering("mps", key=PLUGIN_CONFIG, labels={MIG_CONFIG: "all-1g.10gb"})
    (one,) = found(pool, maps)
    assert one.message.startswith(f"{PLUGIN_CONFIG}=mps leaves no GPU to offer: MPS on a node with MIG")


def test_values_that_are_not_listed_are_found() -> None:
    pool = node_pool("cut", (TYPE, "In", [ONE_CARD]), (CAPACITY, "In", ["on-demand"]), (MIG_CONFIG, "Exists", []))
    assert [one.rule for one in found(pool, OWN)] == ["nodepool-layouts-not-listed"]


def test_configurations_that_no_card_can_have_and_fields_without_effect_are_found(tmp_path: Path) -> None:
    file = tmp_path / "maps.yaml"
    text = MAPS.replace("{name: nvidia.com/gpu, replicas: 4}", "{name: nvidia.com/gpu, replicas: 4, devices: [0]}")
    file.write_text(text.replace("1g.10gb: 8", "7g.80gb: 2"), encoding="utf-8")
    error, *warnings = config_findings(read(load.read([file]).of(core.ConfigMap)))
    assert (error.rule, error.where.line) == ("mig-config-impossible", 9)
    assert "at most 1 x 7g.80gb fit" in error.message
    assert {one.rule for one in warnings} == {"device-plugin-field-ignored"}
    assert "all devices of the resource are shared" in warnings[0].message


def test_a_gpu_that_is_one_thing_or_another_is_found(maps: Configurations) -> None:
    (one,) = found(offering("all-disabled", "all-1g.10gb", labels={MIG_STRATEGY: "single"}), maps)
    assert (one.rule, one.severity) == ("nodepool-gpu-ambiguous", "warning")
    assert f"a card has 1 {GPU} with {MIG_CONFIG}=all-disabled and 7 with all-1g.10gb" in one.message
    assert found(offering("all-disabled", "all-1g.10gb"), maps) == []


def test_a_problem_of_several_layouts_is_found_once_with_all_of_them(maps: Configurations) -> None:
    wanted = ["default", "shared"]
    pool = node_pool(
        "cut",
        (TYPE, "In", [ONE_CARD]),
        (CAPACITY, "In", ["on-demand"]),
        (MIG_CONFIG, "In", ["all-1g.10gb", "all-3g.40gb", "eighths"]),
        (PLUGIN_CONFIG, "In", [*wanted, "mps"]),
        labels={MIG_STRATEGY: "single"},
    )
    messages = [one.message for one in found(pool, maps) if one.rule == "nodepool-gpus-not-offered"]
    assert len(messages) == len(set(messages)) == 2
    assert sum("eighths leaves no GPU to offer" in one for one in messages) == 1
    assert sum(one.startswith(f"{PLUGIN_CONFIG}=mps leaves no GPU to offer: MPS on a node") for one in messages) == 1


def test_a_node_pool_has_one_strategy() -> None:
    wanted = [(TYPE, "In", [ONE_CARD]), (CAPACITY, "In", ["on-demand"])]
    labels = {MIG_CONFIG: "all-1g.10gb"}
    one = node_pool("cut", *wanted, (MIG_STRATEGY, "In", ["mixed"]), labels=labels)
    (launch,) = plan([instance_of("p", "1g.10gb")], one).launches
    assert launch.labels[MIG_STRATEGY] == "mixed"
    two = node_pool("cut", *wanted, (MIG_STRATEGY, "In", ["mixed", "single"]), labels=labels)
    assert not plan([instance_of("p", "1g.10gb", nodeSelector={MIG_STRATEGY: "mixed"})], two).launches
    (finding,) = found(two, OWN)
    assert (finding.rule, finding.severity) == ("nodepool-layouts-not-listed", "error")
    assert "a NodePool has one strategy" in finding.message
