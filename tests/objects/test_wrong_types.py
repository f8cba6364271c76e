from __future__ import annotations

import pytest
from objects_builders import DEPLOYMENT, NODE_POOL, POD, SCALED_OBJECT, refusals


def deployment(*lines: str) -> str:
    return DEPLOYMENT.replace("spec:\n", "spec:\n" + "".join(f"  {line}\n" for line in lines), 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (deployment("replicas: three"), '6:spec.replicas: "three": expected an integer'),
        (deployment('replicas: "3"'), '6:spec.replicas: "3": expected an integer (without quotes: 3)'),
        (deployment("replicas: 2.5"), "6:spec.replicas: 2.5: expected an integer"),
        (deployment("replicas: on"), "6:spec.replicas: on: expected an integer, YAML reads it as true"),
        (deployment("replicas: [3]"), "6:spec.replicas: [3]: expected an integer"),
        (deployment("strategy: Recreate"), '6:spec.strategy: "Recreate": expected a mapping'),
        (POD + "  nodeName: 12\n", '9:spec.nodeName: 12: expected a string (quote it: "12")'),
        (POD + "  nodeName: 010\n", '9:spec.nodeName: 010: expected a string, YAML reads it as 8 (quote it: "010")'),
        (POD + "  nodeSelector: {gpu: true}\n", '9:spec.nodeSelector.gpu: true: expected a string (quote it: "true")'),
        (
            POD + "  nodeSelector:\n    nvidia.com/gpu.present: yes\n",
            '10:spec.nodeSelector.nvidia.com/gpu.present: yes: expected a string, YAML reads it as true (quote it: "yes")',
        ),
        (POD + "  tolerations: {}\n", "9:spec.tolerations: {}: expected a list"),
        (POD + "  tolerations: [a]\n", '9:spec.tolerations[0]: "a": expected a mapping'),
        (
            POD + "  schedulingGates: [{}]\n",
            "9:spec.schedulingGates[0].name: the field is missing (the API server requires it)",
        ),
        (
            POD + "      resources: {limits: {cpu: [1]}}\n",
            "9:spec.containers[0].resources.limits.cpu: [1]: expected a quantity, e.g. 500m, 8 or 32Gi",
        ),
        (
            POD.replace("name: p", "name: n"),
            '4:metadata.name: n: expected a string, YAML reads it as false (quote it: "n")',
        ),
        (
            SCALED_OBJECT.replace('"10"', "10"),
            '13:spec.triggers[0].metadata.threshold: 10: expected a string (quote it: "10")',
        ),
        (
            SCALED_OBJECT.replace("scaleTargetRef", "scaleTargetref"),
            "5:spec.scaleTargetRef: the field is missing (is scaleTargetref a typing error?)",
        ),
        (
            NODE_POOL.replace("[spot]", "[1]"),
            '11:spec.template.spec.requirements[0].values[0]: 1: expected a string (quote it: "1")',
        ),
        (
            NODE_POOL + "  disruption: {consolidateAfter: 0s, budgets: [{nodes: 5}]}\n",
            '13:spec.disruption.budgets[0].nodes: 5: expected a string (quote it: "5")',
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_shown_with_what_was_expected_and_what_to_do(text: str, message: str) -> None:
    assert refusals(text) == [f"x.yaml:{message}"]


def test_whole_floats_are_integers_as_json_writes_them() -> None:
    assert refusals(deployment("replicas: 3.0")) == []
    assert refusals(deployment("replicas: 1e1")) == []


def test_numbers_and_strings_are_both_quantities() -> None:
    assert (
        refusals(POD + '      resources: {limits: {cpu: 1, memory: 1e9, nvidia.com/gpu: "1"}, requests: {cpu: 0.5}}\n')
        == []
    )


def test_all_wrong_types_of_an_object_come_at_once() -> None:
    text = deployment('replicas: "3"', "minReadySeconds: soon", "selector: app")
    text = text.replace("  selector:\n    matchLabels: {app: d}\n", "").replace(
        "image: img", "image: [1]\n          args: [1, a, off]"
    )
    assert refusals(text) == [
        'x.yaml:6:spec.replicas: "3": expected an integer (without quotes: 3)',
        'x.yaml:7:spec.minReadySeconds: "soon": expected an integer',
        'x.yaml:8:spec.selector: "app": expected a mapping',
        "x.yaml:15:spec.template.spec.containers[0].image: [1]: expected a string",
        'x.yaml:16:spec.template.spec.containers[0].args[0]: 1: expected a string (quote it: "1")',
        'x.yaml:16:spec.template.spec.containers[0].args[2]: off: expected a string, YAML reads it as false (quote it: "off")',
    ]


def test_all_unquoted_numbers_of_a_trigger_come_at_once() -> None:
    text = SCALED_OBJECT.replace('"10"', "10\n        activationThreshold: 0.5\n        ignoreNullValues: false")
    assert refusals(text) == [
        'x.yaml:13:spec.triggers[0].metadata.threshold: 10: expected a string (quote it: "10")',
        'x.yaml:14:spec.triggers[0].metadata.activationThreshold: 0.5: expected a string (quote it: "0.5")',
        'x.yaml:15:spec.triggers[0].metadata.ignoreNullValues: false: expected a string (quote it: "false")',
    ]


def test_what_follows_from_a_missing_field_is_not_told_again() -> None:
    text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: 3}\n"
    assert refusals(text) == [
        "x.yaml:4:spec.template: 3: expected a mapping",
        "x.yaml:4:spec.selector: the field is missing (the API server requires it)",
    ]


def test_an_object_without_a_spec_is_told() -> None:
    assert refusals("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n") == [
        "x.yaml:1:spec: the field is missing (the API server requires it)"
    ]


def test_a_long_value_is_shortened() -> None:
    [message] = refusals(deployment(f"replicas: {'x' * 500}"))
    assert message == f'x.yaml:6:spec.replicas: "{"x" * 76}...: expected an integer'
