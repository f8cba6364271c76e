"""What the API server refuses in HorizontalPodAutoscalers, and KEDA's webhook and operator in ScaledObjects."""

from __future__ import annotations

import pytest
from objects_builders import HPA, SCALED_OBJECT, refusals


def hpa(*lines: str) -> list[str]:
    """Problems of an HPA with these lines below its spec, from line 8 on."""
    return [one.removeprefix("x.yaml:") for one in refusals(HPA + "".join(f"  {line}\n" for line in lines))]


EXTERNAL = "{type: External, external: {metric: {name: q}, target: {type: AverageValue, averageValue: 10}}}"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["minReplicas: 4"], []),
        (["minReplicas: 5"], ["7:spec.maxReplicas: 4: must be greater than or equal to `minReplicas`"]),
        (["minReplicas: -1"], ["8:spec.minReplicas: -1: must be greater than or equal to 1"]),
        (
            ["minReplicas: 0"],
            [
                "5:spec.metrics: must specify at least one Object or External metric to support scaling to zero replicas (set minReplicas to 1, or use an External or Object metric)"
            ],
        ),
        (["minReplicas: 0", f"metrics: [{EXTERNAL}]"], []),
        (
            ["metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]"],
            [],
        ),
        (
            ["metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 0}}}]"],
            ["8:spec.metrics[0].resource.target.averageUtilization: 0: must be greater than 0"],
        ),
        (
            ["metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization}}}]"],
            [
                "8:spec.metrics[0].resource.target.averageUtilization: must set either a target raw value or a target utilization"
            ],
        ),
        (
            [
                "metrics: [{type: Resource, resource: {name: cpu, target: {type: Value, averageUtilization: 1, averageValue: 1}}}]"
            ],
            [
                "8:spec.metrics[0].resource.target.averageValue: may not set both a target raw value and a target utilization"
            ],
        ),
        (
            ["metrics: [{type: external}]"],
            [
                '8:spec.metrics[0].type: "external": expected one of ContainerResource, External, Object, Pods, Resource (did you mean External?)'
            ],
        ),
        (
            ["metrics: [{type: Pods}]"],
            ["8:spec.metrics[0].pods: must populate information for the given metric source"],
        ),
        (
            ["metrics: [{type: Pods, pods: {metric: {name: q}, target: {type: AverageValue, averageValue: -3}}}]"],
            [
                "8:spec.metrics[0].pods.target.averageValue: -3: must be positive",
                "8:spec.metrics[0].pods.target.averageValue: must specify a positive target averageValue",
            ],
        ),
        (
            ["metrics:", f"  - {EXTERNAL.replace('type: External,', 'type: Pods,')}"],
            ["9:spec.metrics[0].pods: must populate information for the given metric source"],
        ),
        (
            [f"metrics: [{EXTERNAL.replace('averageValue: 10', 'averageValue: 0, value: 1')}]"],
            [
                "8:spec.metrics[0].external.target.averageValue: 0: must be positive",
                "8:spec.metrics[0].external.target.value: may not set both a target value for metric and a per-pod target",
            ],
        ),
        (
            [f"metrics: [{EXTERNAL.replace('type: AverageValue', 'type: Average').replace('name: q', 'name: ')}]"],
            ["8:spec.metrics[0].external.metric.name: the field is missing (the API server requires it)"],
        ),
        (
            [f"metrics: [{EXTERNAL.replace('type: AverageValue', 'type: Average')}]"],
            ['8:spec.metrics[0].external.target.type: "Average": must be either Utilization, Value, or AverageValue'],
        ),
        (
            [
                "behavior: {scaleUp: {stabilizationWindowSeconds: 3600, policies: [{type: Pods, value: 1, periodSeconds: 1800}]}}"
            ],
            [],
        ),
        (
            ["behavior:", "  scaleDown: {stabilizationWindowSeconds: 3601, selectPolicy: max, tolerance: -1}"],
            [
                "9:spec.behavior.scaleDown.stabilizationWindowSeconds: 3601: must be less than or equal to 3600",
                '9:spec.behavior.scaleDown.selectPolicy: "max": expected one of Disabled, Max, Min (did you mean Max?)',
                "9:spec.behavior.scaleDown.tolerance: -1: must be greater than or equal to 0",
            ],
        ),
        (
            ["behavior: {scaleUp: {policies: [{type: percent, value: 0, periodSeconds: 1801}]}}"],
            [
                '8:spec.behavior.scaleUp.policies[0].type: "percent": expected one of Percent, Pods (did you mean Percent?)',
                "8:spec.behavior.scaleUp.policies[0].value: 0: must be greater than zero",
                "8:spec.behavior.scaleUp.policies[0].periodSeconds: 1801: must be less than or equal to 1800",
            ],
        ),
        (
            ["behavior: {scaleUp: {policies: []}}"],
            ["8:spec.behavior.scaleUp.policies: must specify at least one Policy"],
        ),
    ],
)
def test_hpas_that_the_api_server_refuses(lines: list[str], expected: list[str]) -> None:
    assert hpa(*lines) == expected


def test_an_hpa_needs_a_target_and_a_maximum() -> None:
    text = HPA.replace("kind: Deployment, name: d", "kind: '', name: ''").replace("maxReplicas: 4", "maxReplicas: 0")
    assert refusals(text) == [
        "x.yaml:6:spec.scaleTargetRef.kind: the field is missing (the API server requires it)",
        "x.yaml:6:spec.scaleTargetRef.name: the field is missing (the API server requires it)",
        "x.yaml:7:spec.maxReplicas: must be set and greater than 0",
        "x.yaml:7:spec.maxReplicas: 0: must be greater than or equal to `minReplicas`",
    ]


def scaled(*lines: str, drop: str = "", metadata: str = "") -> list[str]:
    """Problems of a ScaledObject with these lines below its spec, from line 6 on."""
    text = SCALED_OBJECT.replace("spec:\n", "spec:\n" + "".join(f"  {line}\n" for line in lines))
    text = text.replace(drop, "") if drop else text
    return [one.removeprefix("x.yaml:") for one in refusals(text + metadata)]


CPU_ONLY = (
    SCALED_OBJECT[: SCALED_OBJECT.index("    - type")]
    + "    - {type: cpu, metricType: Utilization, metadata: {value: '60'}}\n"
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["minReplicaCount: 0", "maxReplicaCount: 1"], []),
        (["minReplicaCount: 3", "maxReplicaCount: 3", "idleReplicaCount: 0"], []),
        (["minReplicaCount: 101"], ["6:spec.minReplicaCount: 101: expected at most maxReplicaCount, 100"]),
        (["minReplicaCount: -1"], ["6:spec.minReplicaCount: -1: expected at least 0"]),
        (["maxReplicaCount: 0"], ["6:spec.maxReplicaCount: 0: expected at least 1"]),
        (
            ["minReplicaCount: 3", "idleReplicaCount: 1"],
            ["7:spec.idleReplicaCount: 1: expected 0, the only value that works (remove it or set it to 0)"],
        ),
        (
            ["idleReplicaCount: 0"],
            ["6:spec.idleReplicaCount: 0: expected less than minReplicaCount, 0 (raise minReplicaCount)"],
        ),
        (
            ["pollingInterval: -1", "cooldownPeriod: -1"],
            ["6:spec.pollingInterval: -1: expected at least 1", "7:spec.cooldownPeriod: -1: expected at least 0"],
        ),
        (["fallback: {failureThreshold: 3, replicas: 2, behavior: currentReplicasIfHigher}"], []),
        (
            ["fallback: {failureThreshold: -1, replicas: -1, behavior: Static}"],
            [
                "6:spec.fallback.failureThreshold: -1: expected at least 0",
                "6:spec.fallback.replicas: -1: expected at least 0",
                '6:spec.fallback.behavior: "Static": expected one of static, currentReplicas, currentReplicasIfHigher, '
                "currentReplicasIfLower, scalingModifiers (did you mean static?)",
            ],
        ),
        (
            ["fallback: {replicas: 1}"],
            ["6:spec.fallback.failureThreshold: the field is missing (the API server requires it)"],
        ),
        (
            ["advanced: {horizontalPodAutoscalerConfig: {behavior: {scaleUp: {selectPolicy: Most}}}}"],
            [
                '6:spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleUp.selectPolicy: "Most": expected one of Disabled, Max, Min'
            ],
        ),
        (
            ["advanced: {scalingModifiers: {target: many, metricType: Utilization}}"],
            [
                '6:spec.advanced.scalingModifiers.metricType: "Utilization": expected one of AverageValue, Value',
                "6:spec.advanced.scalingModifiers.formula: the field is missing (scalingModifiers needs a formula and a target)",
                '6:spec.advanced.scalingModifiers.target: "many": expected a number as a string, e.g. "10"',
                "10:spec.triggers[0].name: the field is missing (the formula calls triggers by name)",
            ],
        ),
    ],
)
def test_scaled_objects_that_keda_refuses(lines: list[str], expected: list[str]) -> None:
    assert scaled(*lines) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("        query: sum(x)\n", "", ["10:metadata.query: the field is missing (a prometheus trigger needs it)"]),
        ("query: sum(x)", "query: ' '", ["12:metadata.query: the field is missing (a prometheus trigger needs it)"]),
        (
            "        serverAddress: http://prometheus:9090\n",
            "",
            ["10:metadata.serverAddress: the field is missing (a prometheus trigger needs it)"],
        ),
        (
            '        threshold: "10"\n',
            "",
            ['10:metadata.threshold: the field is missing (expected a number as a string, e.g. "10")'],
        ),
        ('"10"', '"1e2"', []),
        ('"10"', '"0.5"', []),
        ('"10"', "ten", ['13:metadata.threshold: "ten": expected a number as a string, e.g. "10"']),
        ('"10"', '"1_0"', ['13:metadata.threshold: "1_0": expected a number as a string, e.g. "10"']),
        ('"10"', '"NaN"', ['13:metadata.threshold: "NaN": expected a number as a string, e.g. "10"']),
        ('"10"', '"0"', ['13:metadata.threshold: "0": expected a number above 0 (an HPA refuses any other target)']),
        (
            '"10"',
            '"10"\n        activationThreshold: some\n        ignoreNullValues: "no"',
            [
                '14:metadata.activationThreshold: "some": expected a number as a string, e.g. "10"',
                '15:metadata.ignoreNullValues: "no": expected "true" or "false"',
            ],
        ),
        (
            "- type: prometheus",
            "- type: prometheus\n      metricType: Utilization",
            ['10:metricType: "Utilization": expected AverageValue or Value (Utilization is for cpu and memory)'],
        ),
        (
            "- type: prometheus",
            "- type: prometheus\n      metricType: Average",
            ['10:metricType: "Average": expected one of Utilization, Value, AverageValue (did you mean AverageValue?)'],
        ),
        (
            "- type: prometheus",
            "- type: prometheus\n      authenticationRef: {name: a, kind: Secret}",
            [
                '10:authenticationRef.kind: "Secret": expected one of TriggerAuthentication, ClusterTriggerAuthentication'
            ],
        ),
    ],
)
def test_triggers_that_keda_refuses(old: str, new: str, expected: list[str]) -> None:
    found = refusals(SCALED_OBJECT.replace(old, new))
    assert [one.removeprefix("x.yaml:").replace("spec.triggers[0].", "") for one in found] == expected


def test_a_scaled_object_needs_triggers_with_names_of_their_own() -> None:
    head = SCALED_OBJECT[: SCALED_OBJECT.index("  triggers:")]
    assert refusals(head + "  triggers: []\n") == [
        "x.yaml:8:spec.triggers: there are no triggers (a ScaledObject needs at least one)"
    ]
    cron = "    - {type: cron, name: a, useCachedMetrics: true, metadata: {}}\n"
    assert refusals(f"{head}  triggers:\n{cron}{cron.replace('true', 'false')}") == [
        "x.yaml:9:spec.triggers[0].useCachedMetrics: a cron trigger cannot use cached metrics (remove it)",
        'x.yaml:10:spec.triggers[1].name: "a": a trigger of this name appears twice (rename or remove one)',
    ]


def test_cpu_triggers_have_a_value_and_no_fallback() -> None:
    assert refusals(CPU_ONLY) == []
    assert refusals(CPU_ONLY.replace("'60'", "many")) == [
        'x.yaml:9:spec.triggers[0].metadata.value: "many": expected a number as a string, e.g. "10"'
    ]
    assert refusals(CPU_ONLY.replace("value: '60'", "")) == [
        "x.yaml:9:spec.triggers[0].metadata.value: the field is missing (a cpu trigger needs it)"
    ]
    assert refusals(CPU_ONLY.replace("Utilization", "Value")) == [
        'x.yaml:9:spec.triggers[0].metricType: "Value": expected Utilization or AverageValue',
    ]
    assert refusals(CPU_ONLY.replace("spec:", "spec:\n  fallback: {failureThreshold: 1, replicas: 1}")) == [
        "x.yaml:6:spec.fallback: a fallback needs a trigger that is not cpu or memory (remove the fallback or add a trigger)"
    ]


def test_a_threshold_is_not_needed_where_a_formula_makes_the_metric() -> None:
    modifiers = "spec:\n  advanced: {scalingModifiers: {formula: q * 2, target: '3'}}"
    text = SCALED_OBJECT.replace("spec:", modifiers).replace('        threshold: "10"\n', "")
    assert refusals(text.replace("- type: prometheus", "- type: prometheus\n      name: q")) == []


@pytest.mark.parametrize(
    ("length", "config", "refused"), [(54, "", False), (55, "", True), (63, "own", False), (64, "own", True)]
)
def test_the_name_of_the_generated_hpa_has_at_most_63_characters(length: int, config: str, refused: bool) -> None:
    text = SCALED_OBJECT.replace("name: s\n", f"name: {'s' * length}\n")
    if config:
        text = text.replace("spec:", f"spec:\n  advanced: {{horizontalPodAutoscalerConfig: {{name: {config}}}}}")
    found = refusals(text)
    assert bool(found) is refused
    if refused:
        assert f"expected at most {54 if not config else 63} characters, not {length}" in found[0]


def test_an_own_name_of_the_hpa_has_at_most_63_characters() -> None:
    config = f"spec:\n  advanced: {{horizontalPodAutoscalerConfig: {{name: {'h' * 64}}}}}"
    [found] = refusals(SCALED_OBJECT.replace("spec:", config))
    assert found.startswith("x.yaml:6:spec.advanced.horizontalPodAutoscalerConfig.name: ")
    assert found.endswith("expected at most 63 characters, not 64")
