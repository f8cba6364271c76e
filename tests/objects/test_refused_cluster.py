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
        ("{selector: {a: b}}", ["ports: the field is missing (the API server requires it)"]),
        (
            "{ports: [{port: 0}]}",
            ["ports[0].port: 0: must be between 1 and 65535, inclusive"],
        ),
        (
            "{ports: [{port: 70000, targetPort: 0}]}",
            [
                "ports[0].port: 70000: must be between 1 and 65535, inclusive",
                "ports[0].targetPort: 0: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            "{type: Clusterip, ports: [{port: 80, protocol: HTTP, targetPort: Http}]}",
            [
                'ports[0].protocol: "HTTP": expected one of SCTP, TCP, UDP',
                'ports[0].targetPort: "Http": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)',
                'type: "Clusterip": expected one of ClusterIP, ExternalName, LoadBalancer, NodePort (did you mean ClusterIP?)',
            ],
        ),
        (
            "{ports: [{port: 80}, {port: 81, name: a}, {port: 81, name: a}]}",
            [
                "ports[0].name: the field is missing (the API server requires it)",
                'ports[2].name: "a": appears twice (rename or remove one)',
                'ports[2].port: "81/TCP": appears twice (rename or remove one)',
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
        "4:data...",
        "4:data.a b",
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{minAvailable: 1}", []),
        ("{maxUnavailable: 50%}", []),
        ("{}", []),
        (
            "{minAvailable: 1, maxUnavailable: 1}",
            ["maxUnavailable: 1: minAvailable and maxUnavailable cannot be both set (remove one of them)"],
        ),
        ("{minAvailable: -1}", ["minAvailable: -1: must be greater than or equal to 0"]),
        ("{maxUnavailable: 101%}", ['maxUnavailable: "101%": must not be greater than 100%']),
        (
            "{maxUnavailable: half}",
            [
                "maxUnavailable: \"half\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')"
            ],
        ),
        (
            '{maxUnavailable: "1"}',
            [
                "maxUnavailable: \"1\": a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%')"
            ],
        ),
        (
            "{unhealthyPodEvictionPolicy: Always}",
            [
                'unhealthyPodEvictionPolicy: "Always": expected one of AlwaysAllow, IfHealthyBudget (did you mean AlwaysAllow?)'
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
            [
                "4:value: maximum allowed value of a user defined priority is 1000000000 (what is above is Kubernetes' own)"
            ],
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
            [
                "3:metadata.name: priority class names with 'system-' prefix are reserved for system use only. error: system-mine is not a known system priority class"
            ],
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
        '4:spec.taints[2]: "a:NoSchedule": appears twice (rename or remove one)',
        '5:status.capacity.cpu: "many": expected a quantity, e.g. 500m, 8 or 32Gi',
        "5:status.allocatable.nvidia.com/gpu: -1: must be greater than or equal to 0",
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
        '7:spec.groups[1].name: "g": a group of this name appears twice (rename or remove one)',
    ]


@pytest.mark.parametrize(
    ("version", "kind", "body", "field"),
    [
        ("v1", "ResourceQuota", "spec: {hard: {limits.memory: much}}", "spec.hard.limits.memory"),
        ("v1", "LimitRange", "spec: {limits: [{type: Container, default: {cpu: few}}]}", "spec.limits[0].default.cpu"),
        ("v1", "PersistentVolume", "spec: {capacity: {storage: 1 Ti}}", "spec.capacity.storage"),
        (
            "v1",
            "PersistentVolumeClaim",
            "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100GB}}}",
            "spec.resources.requests.storage",
        ),
        ("node.k8s.io/v1", "RuntimeClass", "handler: x\noverhead: {podFixed: {cpu: x}}", "overhead.podFixed.cpu"),
    ],
)
def test_what_is_counted_in_is_a_quantity(version: str, kind: str, body: str, field: str) -> None:
    [found] = problems(version, kind, body)
    assert found.split(":", 2)[1] == field
    assert "expected a quantity" in found


@pytest.mark.parametrize("kind", ["DaemonSet", "Deployment", "StatefulSet", "ReplicaSet"])
def test_an_object_without_metadata_is_refused_for_its_name(kind: str) -> None:
    template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: x}]}}"
    spec = f"{{selector: {{matchLabels: {{a: b}}}}, template: {template}}}"
    found = refusals(f"apiVersion: apps/v1\nkind: {kind}\nspec: {spec}\n")
    assert any("metadata.name: name or generateName is required" in one for one in found), found
