"""values.yaml, its schema and the README's table say the same, and wrong values are refused in clear words."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from typing import Any

import pytest

import yaml_text
from chart_builders import CASES, CHART, ROOT, Helm, leaves, only

VALUES_TEXT = (CHART / "values.yaml").read_text()
VALUES = yaml_text.load(VALUES_TEXT)
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
README = (CHART / "README.md").read_text()

_spec = importlib.util.spec_from_file_location("chart_readme", ROOT / "scripts/chart_readme.py")
assert _spec is not None and _spec.loader is not None
chart_readme = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(chart_readme)


def in_schema(path: tuple[str, ...]) -> dict[str, Any]:
    """The schema of one value; KeyError when it has none."""
    found = SCHEMA
    for name in path:
        found = found["properties"][name]
        if "$ref" in found:
            found = SCHEMA["$defs"][found["$ref"].removeprefix("#/$defs/")]
    return found


def schemas(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object inside a schema, with where it is."""
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for name, value in node.items():
            yield from schemas(value, f"{path}/{name}")


@pytest.mark.parametrize("path", list(leaves(VALUES)), ids=".".join)
def test_a_value_is_in_the_schema_and_in_the_readme(path: tuple[str, ...]) -> None:
    assert in_schema(path)
    assert f"| `{'.'.join(path)}` |" in README


@pytest.mark.parametrize("value", chart_readme.read(VALUES_TEXT), ids=lambda value: value.name)
def test_a_value_has_a_comment_that_is_a_sentence(value: Any) -> None:
    assert value.text.endswith("."), f"{value.name} needs a comment above it"


def test_the_reader_of_comments_finds_every_value() -> None:
    assert [value.path for value in chart_readme.read(VALUES_TEXT)] == list(leaves(VALUES))


def test_the_readme_has_values_and_rights_as_they_are() -> None:
    rbac = yaml_text.load((CHART / "files/rbac.yaml").read_text())
    assert chart_readme.rendered(README, chart_readme.read(VALUES_TEXT), rbac) == README, "run scripts/chart_readme.py"


def test_the_schema_knows_no_value_that_is_not_there() -> None:
    def names(schema: dict[str, Any], value: Any, path: str = "") -> Iterator[str]:
        for name, inner in schema.get("properties", {}).items():
            if name not in value:
                yield f"{path}{name}"
            elif value[name] and isinstance(value[name], dict) and "$ref" not in inner:
                yield from names(inner, value[name], f"{path}{name}.")

    assert list(names(SCHEMA, VALUES)) == ["global"]


def test_objects_in_the_schema_are_closed_but_where_kubernetes_has_the_say() -> None:
    free = [path for path, schema in schemas(SCHEMA) if "additionalProperties" not in schema]
    assert free == [
        "/properties/global",
        "/properties/affinity/properties/nodeAffinity",
        "/properties/affinity/properties/podAffinity",
        "/properties/affinity/properties/podAntiAffinity",
        "/$defs/env/items/properties/valueFrom",
        "/$defs/extraVolumes/items",
        "/$defs/labelSelector/properties/matchExpressions/items",
    ]
    assert not [path for path, schema in schemas(SCHEMA) if schema.get("additionalProperties") is True]


def test_the_defaults_fit_the_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(VALUES, SCHEMA, jsonschema.Draft202012Validator)


REFUSED = {
    "a mode that is none": ({"mode": "Apply"}, "at '/mode': value must be one of 'observe', 'apply'"),
    "a controller's mode that is none": (
        only("nodes", mode="dry-run"),
        "at '/controllers/nodes/mode': value must be one of '', 'observe', 'apply'",
    ),
    "a backend that is none": (
        only("nodes", backend="gcp"),
        "at '/controllers/nodes/backend': value must be one of 'nodeclaims', 'aws', 'report'",
    ),
    "a backend for another controller": (
        only("scheduler", backend="aws"),
        "at '/controllers/scheduler': additional properties 'backend' not allowed",
    ),
    "a misspelt value": ({"tolerationz": []}, "at '': additional properties 'tolerationz' not allowed"),
    "a controller that is none": (
        {"controllers": {"sheduler": {"enabled": True}}},
        "at '/controllers': additional properties 'sheduler' not allowed",
    ),
    "fewer than no replicas": (
        only("scheduler", replicas=-1),
        "at '/controllers/scheduler/replicas': minimum: got -1, want 0",
    ),
    "the aws backend without a cluster": (
        only("nodes", backend="aws"),
        "at '/controllers/nodes/awsCluster': minLength: got 0, want 1",
    ),
    "the aws backend with a cluster that cannot be": (
        only("nodes", backend="aws", awsCluster="prod cluster"),
        "at '/controllers/nodes/awsCluster': 'prod cluster' does not match pattern",
    ),
    "a share that is none": (
        {"podDisruptionBudget": {"maxUnavailable": "half"}},
        "at '/podDisruptionBudget/maxUnavailable': 'half' does not match pattern",
    ),
    "a budget that spares nobody": (
        {"podDisruptionBudget": {"maxUnavailable": "0%"}},
        "at '/podDisruptionBudget/maxUnavailable': '0%' does not match pattern",
    ),
    "a strategy that is none": (
        {"strategy": {"type": "Rolling"}},
        "at '/strategy/type': value must be one of 'Recreate', 'RollingUpdate'",
    ),
    "a DNS policy that is none": ({"dnsPolicy": "None"}, "at '/dnsPolicy': value must be one of '', 'ClusterFirst',"),
    "a volume of the chart's own name": (
        only("scheduler", extraVolumes=[{"name": "tmp", "emptyDir": {}}]),
        "at '/controllers/scheduler/extraVolumes/0/name': 'not' failed",
    ),
    "a mount at no path": (
        only("scheduler", extraVolumeMounts=[{"name": "prices", "mountPath": "etc"}]),
        "at '/controllers/scheduler/extraVolumeMounts/0/mountPath': 'etc' does not match pattern",
    ),
    "two monitors": (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "podMonitor and serviceMonitor are both enabled: every metric would be there twice",
    ),
    "replicas in words": (only("scheduler", replicas="two"), "at '/controllers/scheduler/replicas': got string, want"),
    "a URL without a scheme": (
        only("replicas", prometheusUrl="prometheus:9090"),
        "at '/controllers/replicas/prometheusUrl': 'prometheus:9090' does not match pattern",
    ),
    "arguments as text": (
        only("scheduler", extraArgs="--verbose"),
        "at '/controllers/scheduler/extraArgs': got string, want array",
    ),
    "a label that is a number": ({"podLabels": {"tier": 1}}, "at '/podLabels/tier': got number, want string"),
    "a quantity that is none": (
        only("nodes", resources={"limits": {"memory": "1 GB"}}),
        "at '/controllers/nodes/resources/limits/memory': '1 GB' does not match pattern",
    ),
    "a port that needs root": ({"listen": {"port": 80}}, "at '/listen/port': minimum: got 80, want 1,024"),
    "apply without metrics": ({"mode": "apply"}, "controllers.replicas.prometheusUrl is empty: in apply mode it must"),
    "a partitioning that is none": (
        only("scheduler", partitioning="always"),
        "at '/controllers/scheduler/partitioning': value must be one of 'static', 'relayout'",
    ),
    "a provisioning policy that is none": (
        only("nodes", provisioning="cheapest"),
        "at '/controllers/nodes/provisioning': value must be one of 'karpenter', 'optimal'",
    ),
    "relayouts without a GPU operator": (
        only("scheduler", partitioning="relayout", mode="apply"),
        "gpuOperator.namespace is empty: controllers.scheduler.partitioning=relayout writes",
    ),
    "nothing switched on": (
        {"controllers": {name: {"enabled": False} for name in ("scheduler", "replicas", "nodes")}},
        "every controller is switched off: set controllers.scheduler.enabled",
    ),
    "an account that nobody makes": (
        only("nodes", serviceAccount={"create": False}),
        "controllers.nodes.serviceAccount.name is empty: name an account that exists",
    ),
}


@pytest.mark.peer
@pytest.mark.parametrize(("values", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_value_is_refused_and_named(helm: Helm, values: dict[str, Any], words: str) -> None:
    assert words in helm.refusal(values)


@pytest.mark.parametrize("case", CASES)
def test_values_that_the_rules_are_held_against_fit_the_schema(case: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")

    def laid_over(base: Any, top: Any) -> Any:
        if not (isinstance(base, dict) and isinstance(top, dict)):
            return top
        return base | {name: laid_over(base.get(name), value) for name, value in top.items()}

    jsonschema.validate(laid_over(VALUES, CASES[case]), SCHEMA, jsonschema.Draft202012Validator)


@pytest.mark.peer
def test_the_aws_backend_of_a_controller_that_is_off_needs_no_cluster(helm: Helm) -> None:
    assert helm.template({"controllers": {"nodes": {"enabled": False, "backend": "aws"}}})


@pytest.mark.peer
def test_the_chart_can_be_a_part_of_another(helm: Helm) -> None:
    assert helm.template({"global": {"region": "us-east-1"}})
