"""What the chart renders to: valid, hardened, and as `tonnage controller` expects it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

import click
import pytest

import yaml_text
from chart_builders import (
    CASES,
    CHART,
    CONTROLLERS,
    EVERYTHING,
    NAMESPACE,
    OPERATOR,
    PROMETHEUS,
    ROOT,
    Helm,
    container,
    of_kind,
    only,
    options,
)
from tonnage.cli import COMMANDS, cli
from tonnage.kube.informer import Informers
from tonnage.kube.resources import PODS
from tonnage.kube.transport import Unreachable
from tonnage.kube.verbs import Client
from tonnage.live.healthz import Metrics
from tonnage.metrics.promql import parse
from tonnage.objects.core import Pod

pytestmark = pytest.mark.peer
API_VERSION = "1.36"
CLUSTER_SCOPED = {"ClusterRole", "ClusterRoleBinding"}

every_case = pytest.mark.parametrize("case", CASES)


def selects(selector: Mapping[str, str], deployment: Mapping[str, Any]) -> bool:
    """Whether labels select a Deployment's pods."""
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    return selector.items() <= labels.items()


def test_helm_lint_has_no_warning(helm: Helm) -> None:
    done = helm.run("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


@pytest.fixture(scope="module")
def taken() -> set[str]:
    """Objects that the API server takes, as JSON: most are the same in several cases."""
    return set()


@every_case
def test_every_object_is_one_that_the_api_server_takes(helm: Helm, case: str, taken: set[str]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    objects = helm.template(CASES[case])
    assert objects
    for found in objects:
        text = json.dumps(found, sort_keys=True)
        if found["apiVersion"] != "monitoring.coreos.com/v1" and text not in taken:  # that is looked at below
            kubernetes_validate.validate(found, API_VERSION, strict=True)
            taken.add(text)


@every_case
def test_objects_carry_the_labels_of_their_release(helm: Helm, case: str) -> None:
    for found in helm.template(CASES[case]):
        labels = found["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "tonnage"
        assert labels["app.kubernetes.io/instance"] == "tonnage"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        own = OPERATOR if found["metadata"]["name"].endswith("-gpus") else NAMESPACE
        assert found["metadata"].get("namespace") == (None if found["kind"] in CLUSTER_SCOPED else own)


@every_case
def test_containers_run_without_rights(helm: Helm, case: str) -> None:
    for deployment in of_kind(helm.template(CASES[case]), "Deployment").values():
        pod = deployment["spec"]["template"]["spec"]
        assert not {"hostPID", "hostIPC", "initContainers"} & set(pod)
        assert pod.get("hostNetwork", False) == CASES[case].get("hostNetwork", False)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["runAsGroup"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        context = container(deployment)["securityContext"]
        assert context["readOnlyRootFilesystem"] is True
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["privileged"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert [volume["name"] for volume in pod["volumes"] if "emptyDir" in volume] == ["tmp"]
        mounted = {mount["name"]: mount for mount in container(deployment)["volumeMounts"]}
        assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
        assert all(mount["readOnly"] for name, mount in mounted.items() if name != "tmp")


@every_case
def test_images_are_pinned(helm: Helm, case: str) -> None:
    for deployment in of_kind(helm.template(CASES[case]), "Deployment").values():
        image = container(deployment)["image"]
        name, _, tag = image.rpartition(":")
        assert name and tag and tag != "latest", image


@every_case
def test_containers_say_what_they_need_and_are_probed(helm: Helm, case: str) -> None:
    for deployment in of_kind(helm.template(CASES[case]), "Deployment").values():
        found = container(deployment)
        assert set(found["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in found["resources"]["limits"]
        (port,) = found["ports"]
        assert options(deployment)["listen"] == f"0.0.0.0:{port['containerPort']}"
        paths = {name: found[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
        assert paths == {
            "startupProbe": {"path": "/healthz", "port": port["name"]},
            "livenessProbe": {"path": "/healthz", "port": port["name"]},
            "readinessProbe": {"path": "/readyz", "port": port["name"]},
        }


@every_case
def test_who_applies_elects_a_leader_and_who_observes_does_not(helm: Helm, case: str) -> None:
    for deployment in of_kind(helm.template(CASES[case]), "Deployment").values():
        given = options(deployment)
        assert given["mode"] in ("observe", "apply")
        assert ("leader-elect" in given, "no-leader-elect" in given) == (
            (True, False) if given["mode"] == "apply" else (False, True)
        )
        assert given["namespace-of-lease"] == NAMESPACE


@every_case
def test_each_deployment_runs_its_own_controller_and_owns_its_pods(helm: Helm, case: str) -> None:
    deployments = of_kind(helm.template(CASES[case]), "Deployment")
    for name, deployment in deployments.items():
        assert options(deployment)["only"] == name.removeprefix("tonnage-")
        selector = deployment["spec"]["selector"]["matchLabels"]
        assert [other for other in deployments if selects(selector, deployments[other])] == [name]


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_controller_that_is_off_leaves_nothing(helm: Helm, controller: str) -> None:
    whole = EVERYTHING | {"controllers": {**EVERYTHING["controllers"], controller: {"enabled": False}}}
    for found in helm.template(whole):
        assert found["metadata"]["name"] != f"tonnage-{controller}"
        assert f"--only={controller}" not in str(found)


@pytest.mark.parametrize(
    ("chart_mode", "own", "mode"),
    [
        ("observe", "", "observe"),
        ("apply", "", "apply"),
        ("observe", "apply", "apply"),
        ("apply", "observe", "observe"),
    ],
)
def test_a_controllers_own_mode_wins_over_the_charts(helm: Helm, chart_mode: str, own: str, mode: str) -> None:
    deployments = of_kind(helm.template({"mode": chart_mode} | only("scheduler", mode=own)), "Deployment")
    assert options(deployments["tonnage-scheduler"])["mode"] == mode


def test_only_the_controller_that_needs_it_gets_an_option(helm: Helm) -> None:
    deployments = of_kind(helm.template(CASES["apply"]), "Deployment")
    common = {"only", "mode", "listen", "leader-elect", "namespace-of-lease", "gpu-operator-namespace"}
    assert {name: set(options(one)) - common for name, one in deployments.items()} == {
        "tonnage-scheduler": set(),
        "tonnage-replicas": {"prometheus"},
        "tonnage-nodes": {"nodes-backend"},
    }
    assert options(deployments["tonnage-replicas"])["prometheus"] == PROMETHEUS
    assert options(deployments["tonnage-nodes"])["nodes-backend"] == "nodeclaims"


@pytest.mark.skipif("controller" not in COMMANDS, reason="this Tonnage has no `tonnage controller`")
@pytest.mark.parametrize("case", [name for name in CASES if name != "everything"])
def test_the_command_line_takes_what_the_pods_run(helm: Helm, case: str) -> None:
    command = cli.get_command(click.Context(cli), "controller")
    assert command is not None
    for deployment in of_kind(helm.template(CASES[case]), "Deployment").values():
        command.make_context("controller", container(deployment)["args"][1:])  # reads the options, runs nothing


@every_case
def test_a_disruption_budget_is_there_when_a_pod_can_be_spared(helm: Helm, case: str) -> None:
    objects = helm.template(CASES[case])
    deployments = of_kind(objects, "Deployment")
    budgets = of_kind(objects, "PodDisruptionBudget")
    assert set(budgets) == {name for name, one in deployments.items() if one["spec"]["replicas"] > 1}
    for name, budget in budgets.items():
        given = budget["spec"]["maxUnavailable"]
        assert given == "50%" or given < deployments[name]["spec"]["replicas"]
        selector = budget["spec"]["selector"]["matchLabels"]
        assert [other for other in deployments if selects(selector, deployments[other])] == [name]


def test_a_network_policy_lets_in_scrapes_and_out_what_the_controller_asks(helm: Helm) -> None:
    objects = helm.template(EVERYTHING)
    deployments = of_kind(objects, "Deployment")
    policies = of_kind(objects, "NetworkPolicy")
    assert set(policies) == set(deployments)
    for name, policy in policies.items():
        spec = policy["spec"]
        assert [n for n, one in deployments.items() if selects(spec["podSelector"]["matchLabels"], one)] == [name]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["ingress"] == [
            {"ports": [{"port": "http", "protocol": "TCP"}], "from": EVERYTHING["networkPolicy"]["metricsFrom"]}
        ]
    ports = {
        name: [sorted(port["port"] for port in rule["ports"]) for rule in policy["spec"]["egress"]]
        for name, policy in policies.items()
    }
    dns, api, extra = [53, 53], [443, 6443], [4317]
    assert ports == {
        "tonnage-scheduler": [dns, api, extra],
        "tonnage-replicas": [dns, api, [9090], extra],
        "tonnage-nodes": [dns, api, [443], [80], extra],
    }
    api_rule = policies["tonnage-scheduler"]["spec"]["egress"][1]
    assert [peer["ipBlock"]["cidr"] for peer in api_rule["to"]] == ["10.0.0.0/16", "fd00::/64"]


@pytest.mark.parametrize(
    ("url", "port"),
    [
        ("http://prometheus:9090", 9090),
        ("http://prometheus", 80),
        ("https://prometheus.example.com", 443),
        ("https://[fd00::9]:9091/prometheus", 9091),
        ("http://[fd00::9]", 80),
        ("http://prometheus/api:7", 80),
    ],
)
def test_the_way_to_prometheus_is_open_on_its_port(helm: Helm, url: str, port: int) -> None:
    policies = of_kind(
        helm.template({"networkPolicy": {"enabled": True}} | only("replicas", prometheusUrl=url)), "NetworkPolicy"
    )
    assert policies["tonnage-replicas"]["spec"]["egress"][2] == {"ports": [{"port": port, "protocol": "TCP"}]}


def test_the_pod_monitor_finds_every_controllers_metrics_port(helm: Helm) -> None:
    objects = helm.template(EVERYTHING)
    monitor = of_kind(objects, "PodMonitor")["tonnage"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    selector = monitor["spec"]["selector"]["matchLabels"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "30s"}
    deployments = of_kind(objects, "Deployment")
    assert len(deployments) == 3
    for deployment in deployments.values():
        assert selects(selector, deployment)
        assert [port["name"] for port in container(deployment)["ports"]] == [endpoint["port"]]


def test_the_service_monitor_finds_the_service_and_that_every_controllers_metrics_port(helm: Helm) -> None:
    objects = helm.template(CASES["a service monitor, alerts and a dashboard"])
    monitor, service = of_kind(objects, "ServiceMonitor")["tonnage"], of_kind(objects, "Service")["tonnage-metrics"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint == {"port": "http", "path": "/metrics", "interval": "30s"}
    (port,) = service["spec"]["ports"]
    assert (port["name"], port["targetPort"], service["spec"]["clusterIP"]) == ("http", "http", "None")
    for deployment in of_kind(objects, "Deployment").values():
        assert selects(service["spec"]["selector"], deployment)


def test_the_metrics_service_can_be_had_alone(helm: Helm) -> None:
    objects = helm.template({"metricsService": {"enabled": True, "annotations": {"prometheus.io/scrape": "true"}}})
    assert of_kind(objects, "ServiceMonitor") == {}
    assert of_kind(objects, "Service")["tonnage-metrics"]["metadata"]["annotations"] == {"prometheus.io/scrape": "true"}


def served_metrics() -> set[str]:
    """The names of the samples that a controller shows."""
    metrics = Metrics()
    metrics.decided("scheduler", "Bind", "applied")
    metrics.ticked("scheduler", 0.1)
    metrics.api_error("500")
    metrics.watch_leader("tonnage-scheduler", lambda: True)
    informers = Informers(Client(Absent()), lambda: 1.0, random.Random(1))  # type: ignore[arg-type]
    informers.add(PODS, Pod)
    metrics.watch_informers(informers)
    text = metrics.render().decode()
    informers.stop()
    return set(re.findall(r"^# TYPE (\w+) ", text, re.M)) | set(re.findall(r"^(\w+)[{ ]", text, re.M))


class Absent:
    """A transport to nowhere."""

    def request(self, *_: object, **__: object) -> None:
        raise Unreachable("nobody is there")

    stream = request


def test_alerts_and_dashboard_ask_for_what_controllers_show(helm: Helm) -> None:
    objects = helm.template(CASES["a service monitor, alerts and a dashboard"])
    (group,) = of_kind(objects, "PrometheusRule")["tonnage"]["spec"]["groups"]
    asked = [rule["expr"] for rule in group["rules"]]
    board = of_kind(objects, "ConfigMap")["tonnage-dashboard"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    panels = json.loads(board["data"]["tonnage.json"])["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 8
    asked += [target["expr"] for panel in panels for target in panel["targets"]]
    there = served_metrics()
    for expression in asked:
        parse(expression)  # raises where it is not PromQL
        named = set(re.findall(r"\btonnage_\w+", expression))
        assert named
        assert named <= there | {"tonnage_informer_silence_seconds"}, expression  # shown once something was heard


def test_the_alerts_are_those_that_the_documentation_names(helm: Helm) -> None:
    (group,) = yaml_text.load((CHART / "files/alerts.yaml").read_text())["groups"]
    page = (ROOT / "docs/how-to/run-the-controllers.md").read_text()
    shown = re.findall(r"^\| `(Tonnage\w+)` \| `([^`]*)` \|", page, re.M)
    assert shown == [(rule["alert"], rule["expr"]) for rule in group["rules"]]


@pytest.mark.parametrize(
    ("values", "policy"),
    [
        ({}, None),
        ({"hostNetwork": True}, "ClusterFirstWithHostNet"),
        ({"hostNetwork": True, "dnsPolicy": "Default"}, "Default"),
        ({"dnsPolicy": "Default"}, "Default"),
    ],
)
def test_pods_on_their_nodes_network_find_services_too(helm: Helm, values: dict[str, Any], policy: str | None) -> None:
    for deployment in of_kind(helm.template(values), "Deployment").values():
        pod = deployment["spec"]["template"]["spec"]
        assert pod.get("dnsPolicy") == policy
        assert pod.get("hostNetwork", False) == values.get("hostNetwork", False)


def test_volumes_reach_the_controller_that_names_them_alone(helm: Helm) -> None:
    deployments = of_kind(helm.template(EVERYTHING), "Deployment")
    named = {
        name: [volume["name"] for volume in one["spec"]["template"]["spec"]["volumes"]]
        for name, one in deployments.items()
    }
    assert named == {
        "tonnage-scheduler": ["tmp", "prices"],
        "tonnage-replicas": ["tmp", "token"],
        "tonnage-nodes": ["tmp"],
    }


@pytest.mark.parametrize("values", [{}, {"strategy": {"type": "Recreate"}}], ids=["default", "recreate"])
def test_a_strategy_is_the_deployments_own_unless_given(helm: Helm, values: dict[str, Any]) -> None:
    for deployment in of_kind(helm.template(values), "Deployment").values():
        assert deployment["spec"].get("strategy") == values.get("strategy")


def test_replicas_of_0_stop_a_controller_and_keep_its_account(helm: Helm) -> None:
    objects = helm.template(CASES["stopped"])
    assert {one["spec"]["replicas"] for one in of_kind(objects, "Deployment").values()} == {0}
    assert len(of_kind(objects, "ServiceAccount")) == len(CONTROLLERS)


def test_how_nodes_are_planned_is_an_option(helm: Helm) -> None:
    values = {"controllers": {"nodes": {"provisioning": "optimal", "rebalance": True}}}
    deployments = of_kind(helm.template(values), "Deployment")
    (nodes,) = [one for name, one in deployments.items() if name.endswith("nodes")]
    assert options(nodes)["provisioning"] == "optimal"
    (container,) = nodes["spec"]["template"]["spec"]["containers"]
    assert "--rebalance" in container["args"]
    (plain,) = [one for name, one in of_kind(helm.template({}), "Deployment").items() if name.endswith("nodes")]
    assert not any("rebalance" in one or "provisioning" in one for one in options(plain))


def test_the_cluster_of_the_aws_backend_is_an_option(helm: Helm) -> None:
    (deployment,) = of_kind(helm.template(CASES["aws"]), "Deployment").values()
    assert options(deployment)["aws-cluster"] == "prod"
    assert "aws-region" not in options(deployment)


def test_what_is_optional_is_off_by_default(helm: Helm) -> None:
    kinds = {found["kind"] for found in helm.template({})}
    assert kinds == {"ClusterRole", "ClusterRoleBinding", "Deployment", "ServiceAccount"}


def test_pod_settings_reach_every_pod(helm: Helm) -> None:
    for name, deployment in of_kind(helm.template(EVERYTHING), "Deployment").items():
        template = deployment["spec"]["template"]
        pod = template["spec"]
        for field in ("priorityClassName", "nodeSelector", "tolerations", "affinity"):
            assert pod[field] == EVERYTHING[field], field
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert template["metadata"]["annotations"]["example.com/team"] == "gpu"
        assert template["metadata"]["labels"]["example.com/tier"] == "control"
        (spread,) = pod["topologySpreadConstraints"]
        assert spread["labelSelector"] == deployment["spec"]["selector"], name
        assert container(deployment)["image"] == "ghcr.io/tonnage/tonnage@sha256:" + "a" * 64


def test_a_spread_constraint_keeps_its_own_selector(helm: Helm) -> None:
    own = {"matchLabels": {"app": "mine"}}
    constraint = EVERYTHING["topologySpreadConstraints"][0] | {"labelSelector": own}
    deployments = of_kind(helm.template({"topologySpreadConstraints": [constraint]}), "Deployment")
    assert deployments["tonnage-nodes"]["spec"]["template"]["spec"]["topologySpreadConstraints"] == [constraint]


def test_pod_labels_cannot_hide_a_pod_from_its_deployment(helm: Helm) -> None:
    deployments = of_kind(helm.template({"podLabels": {"app.kubernetes.io/component": "mine"}}), "Deployment")
    for deployment in deployments.values():
        assert selects(deployment["spec"]["selector"]["matchLabels"], deployment)


@pytest.mark.parametrize(
    ("release", "values", "name"),
    [
        ("tonnage", {}, "tonnage-nodes"),
        ("gpus", {}, "gpus-tonnage-nodes"),
        ("gpus", {"nameOverride": "fleet"}, "gpus-fleet-nodes"),
        ("gpus", {"fullnameOverride": "fleet"}, "fleet-nodes"),
        ("r" * 53, {}, "r" * 50 + "-nodes"),
    ],
)
def test_names_follow_the_release(helm: Helm, release: str, values: dict[str, Any], name: str) -> None:
    assert name in of_kind(helm.template(values, release), "Deployment")


def test_the_notes_say_who_acts_and_how_to_let_the_others_act(helm: Helm) -> None:
    values = {"controllers": {"scheduler": {"mode": "apply"}}}
    done = helm.run("install", "gpus", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", values=values)
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:\n")[2]
    assert "gpus-tonnage-scheduler: applies its decisions\n" in notes
    assert "gpus-tonnage-nodes: observes, writes nothing (backend nodeclaims)\n" in notes
    assert "--set controllers.nodes.mode=apply" in notes
    assert "--set controllers.scheduler.mode=apply" not in notes
    assert "controllers.replicas.prometheusUrl names your Prometheus" in notes


def test_the_chart_is_of_the_projects_version() -> None:
    from tonnage import __version__

    chart = yaml_text.load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
