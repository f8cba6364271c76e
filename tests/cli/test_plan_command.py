"""`tonnage plan`: two plans side by side, what makes the difference, exit codes, JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from cli_builders import tonnage

REPOSITORY = Path(__file__).resolve().parents[2]
FILES = str(REPOSITORY / "docs/files/plan-nodes")
TYPE = "node.kubernetes.io/instance-type"


def written(path: Path, *objects: dict[str, Any]) -> Path:
    path.write_text(yaml.safe_dump_all(objects))
    return path


def deployment(replicas: int, **resources: str) -> dict[str, Any]:
    containers = [{"name": "main", "image": "server", "resources": {"limits": resources}}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def pool(*types: str, **spec: Any) -> dict[str, Any]:
    template = {
        "requirements": [
            {"key": TYPE, "operator": "In", "values": list(types)},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        ],
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "mine"},
    }
    made = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "mine"}}
    return {**made, "spec": {"template": {"spec": template}, **spec}}


def test_both_plans_stand_side_by_side_and_the_lines_say_what_makes_the_difference(
    capfd: pytest.CaptureFixture[str],
) -> None:
    done = tonnage(capfd, "plan", FILES)
    assert done.code == 0
    assert "1 × g6.48xlarge → 8 × g6.xlarge: −6.91 $/h" in done.out
    assert "no plan is cheaper" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_the_json_follows_its_schema_and_adds_up(capfd: pytest.CaptureFixture[str]) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(tonnage(capfd, "schema", "plan").out))
    printed = json.loads(tonnage(capfd, "plan", FILES, "-o", "json").out)
    validator.validate(printed)
    before, after = printed["plans"]
    assert [before["policy"], after["policy"]] == ["karpenter", "optimal"]
    lines = sum(one["usd_per_hour"] for one in printed["difference"])
    assert lines == pytest.approx(after["usd_per_hour"] - before["usd_per_hour"])
    assert (
        after["bound_usd_per_hour"]
        <= after["usd_per_hour"]
        == pytest.approx(sum(node["usd_per_hour"] for node in after["nodes"]))
    )
    placed = [pod for node in after["nodes"] for pod in node["pods"]]
    assert len(placed) == len(set(placed)) == printed["pods"] == 10
    assert yaml.safe_load(tonnage(capfd, "plan", FILES, "-o", "yaml").out) == printed


def test_one_policy_alone(capfd: pytest.CaptureFixture[str]) -> None:
    like = json.loads(tonnage(capfd, "plan", FILES, "--like", "karpenter", "-o", "json").out)
    only = json.loads(tonnage(capfd, "plan", FILES, "--policy", "optimal", "-o", "json").out)
    assert [plan["policy"] for plan in like["plans"]] == ["karpenter"]
    assert [plan["policy"] for plan in only["plans"]] == ["optimal"]
    assert like["difference"] == only["difference"] == []
    both = tonnage(capfd, "plan", FILES, "--like", "karpenter", "--policy", "optimal")
    assert both.code == 2
    assert "exclude each other" in both.err


def test_pods_without_a_place_and_why(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.yaml", deployment(2, **{"nvidia.com/gpu": "8", "cpu": "4"}), pool("g5.xlarge"))
    done = tonnage(capfd, "plan", str(file), "-q")
    assert done.code == 1
    assert "unschedulable: 2 pods: default/web-0, default/web-1" in done.out
    assert "nvidia.com/gpu 8 > 1" in done.out


@pytest.mark.parametrize(
    ("stuck", "said"),
    [
        ({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "nope"}}]}, "PersistentVolumeClaim nope"),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}, "ResourceClaimTemplate"),
        ({"schedulingGates": [{"name": "foo"}]}, "scheduling gate foo"),
    ],
)
@pytest.mark.report(516)
def test_pods_that_cannot_run_have_no_place(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], stuck: dict[str, Any], said: str
) -> None:
    one = deployment(2, cpu="3")
    one["spec"]["template"]["spec"].update(stuck)
    file = written(tmp_path / "a.yaml", one, pool("m5.xlarge"))
    done = tonnage(capfd, "plan", str(file), "-o", "json", "-q")
    printed = json.loads(done.out)
    assert (done.code, printed["pods"]) == (1, 2)
    for plan in printed["plans"]:
        assert [one["pods"] for one in plan["unplaceable"]] == [["default/web-0", "default/web-1"]]
        assert said in plan["unplaceable"][0]["why"]
    assert said in " ".join(tonnage(capfd, "plan", str(file)).out.split())


def test_a_deployment_of_a_cluster_is_planned_for_the_replicas_that_it_lacks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = deployment(3, cpu="3")
    one["metadata"]["uid"] = "d"
    file = written(tmp_path / "a.yaml", one, pool("m5.xlarge"))
    printed = json.loads(tonnage(capfd, "plan", str(file), "-o", "json", "-q").out)
    assert [node["instance_type"] for node in printed["plans"][1]["nodes"]] == ["m5.xlarge"] * 3


@pytest.mark.parametrize(("minimum", "nodes", "left_out"), [(2, 3, 0), (3, 3, 0), (4, 0, 3)])
@pytest.mark.report(513)
def test_a_gang_needs_a_place_for_its_minimum(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], minimum: int, nodes: int, left_out: int
) -> None:
    """Four pods of one GPU, and a limit of three."""
    group = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": {"name": "g"}}
    limits = {"nvidia.com/gpu": "1", "cpu": "3", "memory": "8Gi"}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"g-{n}", "annotations": {"pod-group-name": "g"}},
            "spec": {"containers": [{"name": "main", "image": "server", "resources": {"limits": limits}}]},
        }
        for n in range(4)
    ]
    few = pool("g6.xlarge", limits={"nvidia.com/gpu": "3"})
    file = written(tmp_path / "a.yaml", {**group, "spec": {"minMember": minimum}}, *pods, few)
    printed = json.loads(tonnage(capfd, "plan", str(file), "-o", "json", "-q").out)
    assert len(printed["plans"][1]["nodes"]) == nodes
    assert sum(len(one["pods"]) for one in printed["left_out"]) == left_out
    shown = " ".join(tonnage(capfd, "plan", str(file)).out.split())
    assert ("leaves 3 pods of gang default/g unschedulable" in shown) == bool(left_out)
    assert ("no saving" in shown) == bool(left_out)


def test_what_is_said_of_cheaper_plans_holds_for_all_pods(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    apart, free = deployment(3, cpu="1"), deployment(6, cpu="1")
    free["metadata"]["name"] = "free"
    free["spec"]["selector"] = {"matchLabels": {"app": "free"}}
    free["spec"]["template"]["metadata"]["labels"] = {"app": "free"}
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    apart["spec"]["template"]["spec"]["affinity"] = rule
    file = str(written(tmp_path / "a.yaml", apart, free, pool("m5.large", "m5.4xlarge")))
    optimal = json.loads(tonnage(capfd, "plan", file, "-o", "json", "-q").out)["plans"][1]
    assert (optimal["karpenter_way_pods"], optimal["karpenter_way"]) == (0, {})
    shown = " ".join(tonnage(capfd, "plan", file).out.split())
    assert "karpenter: $0.96" in shown
    assert "optimal: $0.86 an hour for 9 new nodes; no plan is cheaper" in shown, "which no rule forbids"
    alone = str(written(tmp_path / "b.yaml", apart, pool("m5.large", "m5.4xlarge")))
    optimal = json.loads(tonnage(capfd, "plan", alone, "-o", "json", "-q").out)["plans"][1]
    assert optimal["karpenter_way_pods"] == sum(optimal["karpenter_way"].values()) == 3
    assert 0 < optimal["bound_usd_per_hour"] <= optimal["karpenter_way_bound_usd_per_hour"]


def test_capacity_buffers_are_planned_for_as_if_their_pods_were_pending(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    web = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    buffer = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": {"name": "spare"}}
    kept = {**buffer, "spec": {"scalableRef": web, "percentage": 50}}
    gone = {**buffer, "metadata": {"name": "gone"}, "spec": {"scalableRef": {**web, "name": "app"}, "replicas": 1}}
    file = str(written(tmp_path / "a.yaml", deployment(4, cpu="1"), pool("m5.large"), kept, gone))
    done = json.loads(tonnage(capfd, "plan", file, "-o", "json", "-q").out)
    assert done["pods"] == 6
    placed = sorted(pod for node in done["plans"][1]["nodes"] for pod in node["pods"])
    assert placed[:2] == ["default/capacity-buffer-spare-1", "default/capacity-buffer-spare-2"]
    (said,) = [one for one in done["findings"] if one["rule"] == "capacity-buffer-no-effect"]
    assert "Deployment app of namespace default is not there" in said["message"]


def test_machines_of_another_cloud_are_planned_with_by_a_file_of_prices(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    prices = tmp_path / "cloud.csv"
    prices.write_text(
        "instance_type,usd_per_hour,vcpu,memory_gib,gpu,gpu_count\n"
        "cloud.h100,2.5,26,200,h100,1\n"
        "cloud.8h100,19,208,1800,h100,8\n"
    )
    resources = {"nvidia.com/gpu": "1", "cpu": "8", "memory": "64Gi"}
    file = str(written(tmp_path / "a.yaml", deployment(4, **resources), pool("cloud.h100", "cloud.8h100")))
    done = json.loads(tonnage(capfd, "plan", file, "--prices", str(prices), "-o", "json", "-q").out)
    before, after = done["plans"]
    assert [node["instance_type"] for node in before["nodes"]] == ["cloud.8h100"]
    assert [node["instance_type"] for node in after["nodes"]] == ["cloud.h100"] * 4
    assert after["usd_per_hour"] == 10.0
    refused = tonnage(capfd, "simulate", str(REPOSITORY / "examples/traffic-surge"), "--prices", str(prices))
    assert refused.code == 2
    assert "cloud.8h100 is no type of EC2" in refused.err


def test_what_is_missing_is_assumed_and_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    resources = {"nvidia.com/gpu": "1", "cpu": "2", "memory": "8Gi"}
    alone = written(tmp_path / "a.yaml", deployment(1, **resources))
    done = tonnage(capfd, "plan", str(alone))
    assert done.code == 0
    assert "nodes-assumed" in done.out
    assert "GPUs of 80 GB and more before those with smaller ones" in " ".join(done.out.split())
    without_class = written(tmp_path / "b.yaml", deployment(1, **resources), pool("g5.xlarge"))
    done = tonnage(capfd, "plan", str(without_class))
    assert done.code == 0
    assert "nodeclass-assumed" in done.out
    assert "1 × g5.xlarge" in done.out
    assert "nodeclass-assumed" not in tonnage(capfd, "plan", str(without_class), "-q").out


def test_room_on_nodes_that_are_there_comes_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    resources = {"nvidia.com/gpu": "1", "cpu": "2", "memory": "8Gi"}
    file = written(tmp_path / "a.yaml", deployment(3, **resources), pool("g5.xlarge", "g5.12xlarge"))
    allocatable = {"cpu": "7", "memory": "30Gi", "pods": "50", "nvidia.com/gpu": "2"}
    there = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "there", "labels": {}},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }
    printed = json.loads(
        tonnage(capfd, "plan", str(file), "--existing", str(written(tmp_path / "n.yaml", there)), "-o", "json").out
    )
    optimal = printed["plans"][1]
    assert [(one["node"], len(one["pods"])) for one in optimal["existing"]] == [("there", 2)]
    assert [node["instance_type"] for node in optimal["nodes"]] == ["g5.xlarge"]


def four_on_one() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A g5.48xlarge, and four pods of one GPU that run on it."""
    resources = {"nvidia.com/gpu": "1", "cpu": "2", "memory": "8Gi"}
    labels = {
        TYPE: "g5.48xlarge",
        "topology.kubernetes.io/zone": "us-east-1a",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/nodepool": "mine",
        "karpenter.sh/initialized": "true",
    }
    allocatable = {"cpu": "190", "memory": "700Gi", "pods": "100", "nvidia.com/gpu": "8"}
    big = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "big", "uid": "u-big", "labels": labels},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]},
    }
    running = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{n}", "namespace": "default", "uid": f"u-{n}", "labels": {"app": "web"}},
            "spec": {"nodeName": "big", "containers": [{"name": "main", "resources": {"limits": resources}}]},
            "status": {"phase": "Running"},
        }
        for n in range(4)
    ]
    return big, running


def test_nodes_of_nodepools_that_could_go_back(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Four pods of one GPU on a g5.48xlarge fit on four g5.xlarge, which cost a quarter."""
    big, running = four_on_one()
    file = written(tmp_path / "a.yaml", pool("g5.xlarge", "g5.48xlarge"), big, *running)
    printed = json.loads(tonnage(capfd, "plan", str(file), "--consolidate", "-o", "json").out)
    found = printed["consolidation"]
    assert (found["returned"], found["moves"]) == (["big"], 4)
    assert [node["instance_type"] for node in found["plan"]["nodes"]] == ["g5.xlarge"] * 4
    assert found["after_usd_per_hour"] < found["before_usd_per_hour"] / 2
    assert "1 node could be terminated once 4 pods moved: big" in tonnage(capfd, "plan", str(file), "--consolidate").out
    dear = tonnage(capfd, "plan", str(file), "--consolidate", "--move-price", "5").out
    assert "no nodes could be terminated for less" in dear


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "b", "namespace": "default"},
    "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}},
}


def test_where_no_nodes_are_there_it_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "a.yaml", pool("g5.xlarge"))
    assert "consolidate: no nodes are there" in tonnage(capfd, "plan", str(file), "--consolidate").out


def test_an_empty_node_goes_back_without_a_word_of_pods(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    big, _ = four_on_one()
    file = written(tmp_path / "a.yaml", pool("g5.xlarge", "g5.48xlarge"), big)
    assert "consolidate: 1 node could be terminated: big;" in tonnage(capfd, "plan", str(file), "--consolidate").out


@pytest.mark.parametrize(
    ("reason", "pods", "stays"),
    [("Empty", 0, True), ("Underutilized", 0, False), ("Drifted", 0, False), ("Underutilized", 4, True)],
)
def test_a_budget_for_one_reason_keeps_only_nodes_that_would_go_for_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], reason: str, pods: int, stays: bool
) -> None:
    big, running = four_on_one()
    disruption = {"consolidateAfter": "0s", "budgets": [{"nodes": "0", "reasons": [reason]}]}
    file = written(tmp_path / "a.yaml", pool("g5.xlarge", "g5.48xlarge", disruption=disruption), big, *running[:pods])
    found = json.loads(tonnage(capfd, "plan", str(file), "--consolidate", "-o", "json").out)["consolidation"]
    assert (found["returned"], [one["nodes"] for one in found["kept"]]) == (([], [["big"]]) if stays else (["big"], []))


@pytest.mark.parametrize(
    ("spec", "others", "annotation", "said"),
    [
        ({}, [BUDGET], "", "pod p0: its PodDisruptionBudget allows no eviction"),
        ({}, [], "8760h", "pod p0 has the annotation karpenter.sh/do-not-disrupt"),
        ({"disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "0"}]}}, [], "", "no disruption (nodes: 0)"),
        (
            {
                "disruption": {
                    "consolidateAfter": "0s",
                    "budgets": [{"nodes": "0", "schedule": "@yearly", "duration": "1h"}],
                }
            },
            [],
            "",
            "allows no disruption",
        ),
        ({"disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "0s"}}, [], "", "is WhenEmpty"),
        ({"disruption": {"consolidateAfter": "Never"}}, [], "", "consolidateAfter of NodePool mine is Never"),
    ],
)
def test_what_forbids_to_give_a_node_back_is_said(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    spec: dict[str, Any],
    others: list[dict[str, Any]],
    annotation: str,
    said: str,
) -> None:
    big, running = four_on_one()
    if annotation:
        running[0]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": annotation}
    file = written(tmp_path / "a.yaml", pool("g5.xlarge", "g5.48xlarge", **spec), big, *running, *others)
    found = json.loads(tonnage(capfd, "plan", str(file), "--consolidate", "-o", "json").out)["consolidation"]
    assert (found["returned"], [one["nodes"] for one in found["kept"]]) == ([], [["big"]])
    assert said in found["kept"][0]["why"]
    assert said in " ".join(tonnage(capfd, "plan", str(file), "--consolidate").out.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([str(REPOSITORY / "examples/traffic-surge")], "is a scenario"),
        (["no-such-file.yaml"], "no-such-file.yaml"),
        ([FILES, "--prices", "no-such.csv"], "no-such.csv"),
        ([FILES, "--existing", "no-nodes.yaml"], "no-nodes.yaml"),
    ],
)
def test_bad_input_is_said_with_its_place(capfd: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    done = tonnage(capfd, "plan", *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err


def test_static_nodepools_have_their_nodes_whether_pods_wait_or_not(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fixed = pool("g6.12xlarge", replicas=2)
    alone = tonnage(capfd, "plan", str(written(tmp_path / "alone.yaml", fixed)), "-q", "--like", "karpenter")
    assert alone.code == 0
    assert "karpenter: $9.20 an hour for 2 new nodes\n  2 × g6.12xlarge  $9.20" in alone.out
    nine = deployment(8, **{"nvidia.com/gpu": "1", "cpu": "4"})
    both = written(tmp_path / "both.yaml", fixed, nine)
    printed = json.loads(tonnage(capfd, "plan", str(both), "-q", "-o", "json").out)
    assert [len(one["nodes"]) for one in printed["plans"]] == [2, 2]
    assert [one["usd_per_hour"] for one in printed["plans"]] == [pytest.approx(9.2032)] * 2
    assert [len(one["pods"]) for one in printed["plans"][1]["existing"]] == [4, 4]


def test_why_karpenter_leaves_a_node_is_told_as_its_event_does(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    big, running = four_on_one()
    file = str(written(tmp_path / "a.yaml", pool("g5.xlarge", "g5.48xlarge"), big, *running))
    printed = json.loads(tonnage(capfd, "plan", file, "--consolidate", "-o", "json").out)
    said = {"why": "Can't replace with a cheaper node", "nodes": ["big"]}
    assert printed["consolidation"]["unconsolidatable"] == [said]
    told = " ".join(tonnage(capfd, "plan", file, "--consolidate").out.split())
    assert "karpenter leaves 1 node: big: Unconsolidatable: Can't replace with a cheaper node" in told


def test_nodes_are_planned_in_the_reservations_that_the_node_class_selects(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nodeclass = {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "mine"},
        "spec": {
            "role": "r",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}],
            "capacityReservationSelectorTerms": [{"id": "cr-0a1"}, {"tags": {"team": "llm"}}],
        },
    }
    reserved = pool("p5.48xlarge")
    reserved["spec"]["template"]["spec"]["requirements"][1]["values"] = ["on-demand", "reserved"]
    eight = deployment(2, **{"nvidia.com/gpu": "8"})
    file = str(written(tmp_path / "a.yaml", reserved, nodeclass, eight))
    prices = tmp_path / "prices.csv"
    header = "instance_type,usd_per_hour,capacity_type,zone,reservation,count,ends"
    prices.write_text(f"{header}\np5.48xlarge,,reserved,us-east-1b,cr-0a1,2,\n")
    done = tonnage(capfd, "plan", file, "--prices", str(prices), "-o", "json")
    for one in json.loads(done.out)["plans"]:
        assert [(node["capacity_type"], node["zone"]) for node in one["nodes"]] == [("reserved", "us-east-1b")] * 2
        assert {(node["usd_per_hour"], node["paid_usd_per_hour"]) for node in one["nodes"]} == {(0.0, 55.04)}
        assert one["usd_per_hour"] == 0.0
    said = [one for one in json.loads(done.out)["findings"] if one["rule"] == "nodeclass-reservation-unknown"]
    table = " ".join(tonnage(capfd, "plan", file, "--prices", str(prices)).out.split())
    assert "2 × p5.48xlarge $0.00 more than the reservation's $110.08 reserved, us-east-1b" in table
    assert [one["where"]["field"] for one in said] == ["spec.capacityReservationSelectorTerms[1]"]
    without = json.loads(tonnage(capfd, "plan", file, "-o", "json").out)
    assert {node["capacity_type"] for node in without["plans"][0]["nodes"]} == {"on-demand"}
    assert sum(one["rule"] == "nodeclass-reservation-unknown" for one in without["findings"]) == 2


def test_karpenters_plan_leaves_pods_with_claims_and_the_cheapest_set_partitions_gpus_for_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    selector = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'"}}
    asked = {"name": "r", "exactly": {"deviceClassName": "mig.nvidia.com", "selectors": [selector]}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "half", "namespace": "default"},
        "spec": {"spec": {"devices": {"requests": [asked]}}},
    }
    web = deployment(3, cpu="1")
    web["spec"]["template"]["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "half"}]
    labels = {"nvidia.com/dra-kubelet-plugin": "true", "tonnage.dev/mig-relayout": "true"}
    mine = pool("p5.4xlarge")
    mine["spec"]["template"]["metadata"] = {"labels": labels}
    file = written(tmp_path / "claims.yaml", template, web, mine)
    done = tonnage(capfd, "plan", str(file), "-q")
    assert done.code == 0
    before, after = done.out.split("optimal:", 1)
    assert "leaves 3 pods" in before
    assert "--ignore-dra-requests" in before
    assert "2 × p5.4xlarge" not in before, "two halves fit on one H100"
    printed = json.loads(tonnage(capfd, "plan", str(file), "-o", "json").out)
    assert sorted(len(one["pods"]) for one in printed["plans"][1]["nodes"]) == [1, 2]
    assert "new nodes; no plan is cheaper" in after
