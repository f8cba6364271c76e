"""What the API server refuses in Services, budgets, priorities, nodes and monitors."""

from __future__ import annotations

import pytest
from objects_builders import refusals


def problems(version: str, kind: str, body: str, name: str = "a") -> list[str]:
    """Of an object whose body begins on line 4."""
    return [
        one.removeprefix("x.yaml:")
        for one in refusals(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: {name}}}\n{body}\n")
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{selector: {a: b}, ports: [{port: 80, targetPort: http}]}", []),
        ("{clusterIP: None}", []),
        ("{type: ExternalName, externalName: x.y}", []),
        ("{ports: [{name: a, port: 80}, {name: b, port: 80, protocol: UDP}]}", []),
        ("{selector: {a: b}}", ["ports: a Service needs at least one port (or clusterIP: None)"]),
        ("{ports: [{port: 0}]}", ["ports[0].port: 0: expected 1 to 65535"]),
        (
            "{ports: [{port: 70000, targetPort: 0}]}",
            ["ports[0].port: 70000: expected 1 to 65535", "ports[0].targetPort: 0: expected 1 to 65535"],
        ),
        (
            "{type: Clusterip, ports: [{port: 80, protocol: HTTP, targetPort: Http}]}",
            [
                'type: "Clusterip": expected one of ClusterIP, NodePort, LoadBalancer, ExternalName (did you mean ClusterIP?)',
                'ports[0].protocol: "HTTP": expected one of TCP, UDP, SCTP',
                "ports[0].targetPort: \"Http\": expected at most 15 of a-z, 0-9 and '-', with a letter, without '--'",
            ],
        ),
        (
            "{ports: [{port: 80}, {port: 81, name: a}, {port: 81, name: a}]}",
            [
                "ports[0].name: the field is missing (with several ports each needs a name)",
                "ports[2].port: port 81/TCP stands twice (remove one of them)",
                'ports[2].name: "a": a port of this name stands twice (rename or remove one)',
            ],
        ),
        ("{selector: {a: '*'}, ports: [{port: 1}]}", None),
    ],
)
def test_services(spec: str, expected: list[str] | None) -> None:
    found = problems("v1", "Service", f"spec: {spec}")
    if expected is None:
        assert [one.split(": ")[0] for one in found] == ["4:spec.selector.a"]
    else:
        assert found == [f"4:spec.{one}" for one in expected]


def test_a_services_name_has_no_dots() -> None:
    assert len(problems("v1", "Service", "spec: {clusterIP: None}", name="a.b")) == 1
    assert problems("v1", "ConfigMap", "data: {a.b: x, _-: z}", name="a.b") == []


def test_keys_of_a_config_map() -> None:
    assert [one.split(": ")[0] for one in problems("v1", "ConfigMap", "data: {'a b': x, '..': z}")] == [
        "4:data.a b",
        "4:data...",
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{minAvailable: 1}", []),
        ("{maxUnavailable: 50%}", []),
        ("{}", []),
        (
            "{minAvailable: 1, maxUnavailable: 1}",
            ["maxUnavailable: minAvailable and maxUnavailable stand together (remove one of them)"],
        ),
        ("{minAvailable: -1}", ["minAvailable: -1: expected at least 0"]),
        ("{maxUnavailable: 101%}", ['maxUnavailable: "101%": expected a number or a percentage up to "100%"']),
        ("{maxUnavailable: half}", ['maxUnavailable: "half": expected a number or a percentage up to "100%"']),
        ('{maxUnavailable: "1"}', ['maxUnavailable: "1": expected a number or a percentage up to "100%"']),
        (
            "{unhealthyPodEvictionPolicy: Always}",
            [
                'unhealthyPodEvictionPolicy: "Always": expected one of IfHealthyBudget, AlwaysAllow (did you mean AlwaysAllow?)'
            ],
        ),
    ],
)
def test_pod_disruption_budgets(spec: str, expected: list[str]) -> None:
    assert problems("policy/v1", "PodDisruptionBudget", f"spec: {spec}") == [f"4:spec.{one}" for one in expected]


@pytest.mark.parametrize(
    ("name", "body", "expected"),
    [
        ("high", "value: 1000000000", []),
        ("low", "value: -5\npreemptionPolicy: Never", []),
        (
            "high",
            "value: 1000000001",
            ["4:value: 1000000001: expected at most 1000000000 (what is above is Kubernetes' own)"],
        ),
        (
            "high",
            "value: 1\npreemptionPolicy: never",
            ['5:preemptionPolicy: "never": expected one of PreemptLowerPriority, Never (did you mean Never?)'],
        ),
        ("system-node-critical", "value: 2000001000", []),
        (
            "system-mine",
            "value: 1",
            ['3:metadata.name: "system-mine": expected a name without system-, which is Kubernetes\' own'],
        ),
    ],
)
def test_priority_classes(name: str, body: str, expected: list[str]) -> None:
    assert problems("scheduling.k8s.io/v1", "PriorityClass", body, name) == expected


def test_nodes() -> None:
    taints = (
        "{taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}, {key: a, value: b, effect: NoSchedule}]}"
    )
    body = f"spec: {taints}\nstatus: {{capacity: {{cpu: many}}, allocatable: {{nvidia.com/gpu: -1}}}}"
    assert problems("v1", "Node", body) == [
        "4:spec.taints[2]: the taint a:NoSchedule stands twice (remove one of them)",
        '5:status.capacity.cpu: "many": expected a quantity, e.g. 500m, 8 or 32Gi',
        "5:status.allocatable.nvidia.com/gpu: -1: expected a quantity of at least 0",
    ]


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        ("[{port: http, interval: 15s, scrapeTimeout: 10s, scheme: https}]", []),
        ("[{port: http, interval: 1d12h}]", []),
        ("[]", [": there are no endpoints (name a port of the Service to scrape)"]),
        ("[{port: http, interval: '15'}]", ['[0].interval: "15": expected a duration, e.g. 15s, 1m or 1h30m']),
        ("[{port: http, scheme: ftp}]", ['[0].scheme: "ftp": expected one of http, https, HTTP, HTTPS']),
    ],
)
def test_service_monitors(endpoints: str, expected: list[str]) -> None:
    found = problems("monitoring.coreos.com/v1", "ServiceMonitor", f"spec: {{selector: {{}}, endpoints: {endpoints}}}")
    assert [one.removeprefix("4:spec.endpoints") for one in found] == expected


def test_prometheus_rules() -> None:
    rules = "[{alert: A, expr: up == 0, for: 5m}, {record: r, alert: A, expr: 1}, {expr: 1, for: 5}]"
    body = f"spec:\n  groups:\n    - {{name: g, interval: 1x, rules: {rules}}}\n    - {{name: g}}"
    assert problems("monitoring.coreos.com/v1", "PrometheusRule", body.replace("for: 5}", "for: '5'}")) == [
        '6:spec.groups[0].interval: "1x": expected a duration, e.g. 15s, 1m or 1h30m',
        "6:spec.groups[0].rules[1]: expected either record or alert (set exactly one of them)",
        "6:spec.groups[0].rules[2]: expected either record or alert (set exactly one of them)",
        '6:spec.groups[0].rules[2].for: "5": expected a duration, e.g. 15s, 1m or 1h30m',
        '7:spec.groups[1].name: "g": a group of this name stands twice (rename or remove one)',
    ]
