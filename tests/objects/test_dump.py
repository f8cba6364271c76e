from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from objects_builders import DEPLOYMENT, HPA, NODE_POOL, POD, SCALED_OBJECT, read

import yaml_text
from deep_seeds import examples
from tonnage.objects import apps, autoscaling, core, karpenter, keda, load, policy
from tonnage.objects.base import KubeObject, ObjectMeta
from tonnage.objects.templates import mappings

EXAMPLES = Path(__file__).parents[2] / "examples" / "traffic-surge" / "manifests"


def read_back(*objects: KubeObject) -> tuple[KubeObject, ...]:
    return read(load.dump(objects)).objects


def test_an_object_is_written_in_camel_case_without_defaults() -> None:
    pod = core.Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(name="p", labels={"b": "2", "a": "1"}),
        spec=core.PodSpec(
            containers=[core.Container(name="main", resources=core.ResourceRequirements(limits={"nvidia.com/gpu": 1}))],
            node_selector={"zone": "a"},
            tolerations=[core.Toleration(key="gpu", operator="Exists")],
        ),
    )
    assert (
        load.dump([pod])
        == """\
apiVersion: v1
kind: Pod
metadata:
  name: p
  labels:
    a: "1"
    b: "2"
spec:
  containers:
  - name: main
    resources:
      limits:
        nvidia.com/gpu: 1
  nodeSelector:
    zone: a
  tolerations:
  - key: gpu
    operator: Exists
"""
    )


def test_equal_objects_have_the_same_text() -> None:
    one, other = (ObjectMeta(name="c", labels=labels) for labels in ({"a": "x", "b": "z"}, {"b": "z", "a": "x"}))
    texts = {load.dump([core.ConfigMap(api_version="v1", kind="ConfigMap", metadata=meta)]) for meta in (one, other)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "y",
        "N",
        "yes",
        "null",
        "~",
        "",
        "010",
        "0x1",
        "1_000",
        "1e3",
        "12:30",
        "3.0",
        ".5",
        "+1",
        "true",
        "2026-07-20",
        "<<",
        "=",
        "- a",
        "a: b",
        "#a",
        "a #b",
        "*a",
        "&a",
        "!a",
        "{a}",
        "[a]",
        "%a",
        "@a",
        "`a",
        "'a'",
        '"a"',
        " a",
        "a ",
        "a\n",
        "a\nb",
        "\na",
        "a\n\n",
        "  a\n b\n",
        "a \nb",
        "\t",
        "a\tb",
        "\x07",
        "\x85",
        "\u2028",
        "é\nü",
        "😀",
        "\ufeff",
        "\r\n",
        "x" * 5000,
        "a " * 3000,
    ],
)
def test_every_string_is_read_back_as_itself(text: str) -> None:
    config = core.ConfigMap(api_version="v1", kind="ConfigMap", metadata=ObjectMeta(name="c"), data={"k": text})
    assert read_back(config) == (config,)


def test_a_script_is_written_as_a_block() -> None:
    config = core.ConfigMap(api_version="v1", kind="ConfigMap", metadata=ObjectMeta(name="c"), data={"k": "a\nb: c\n"})
    assert "  k: |\n    a\n    b: c\n" in load.dump([config])


def test_what_the_api_server_requires_is_written_also_where_it_is_the_default_here() -> None:
    constraint = core.TopologySpreadConstraint(max_skew=1, topology_key="zone")
    spec = core.PodSpec(containers=[core.Container(name="c", image="i")], topology_spread_constraints=[constraint])
    pod = core.Pod(api_version="v1", kind="Pod", metadata=ObjectMeta(name="p"), spec=spec)
    assert "whenUnsatisfiable: DoNotSchedule" in load.dump([pod])
    [pool] = read(NODE_POOL + "  disruption: {consolidateAfter: 0s, consolidationPolicy: WhenEmpty}\n").objects
    assert "  disruption:\n    consolidationPolicy: WhenEmpty\n    consolidateAfter: 0s\n" in load.dump([pool])
    assert read_back(pool, pod) == (pool, pod)


@pytest.mark.parametrize("folder", ["as-written", "corrected"])
def test_the_example_manifests_survive_a_round_trip(folder: str) -> None:
    """Without probes: what they ask is not read, and not written."""
    written = "\n---\n".join(file.read_text() for file in sorted((EXAMPLES / folder).glob("*.yaml")))
    documents = yaml_text.load_all(written)
    for mapping in mappings(documents):
        for name in ("readinessProbe", "startupProbe", "livenessProbe"):
            mapping.pop(name, None)
    manifest = read(yaml_text.dump_all(documents))
    again = read(load.dump(manifest.objects))
    assert again.objects == manifest.objects
    assert load.dump(again.objects) == load.dump(manifest.objects)


def test_an_object_of_an_unknown_kind_is_written_as_it_was_read() -> None:
    text = "apiVersion: argoproj.io/v1\nkind: Rollout\nmetadata:\n  name: j\nspec:\n  z: 1\n  a: [on, 'on']\n"
    [rollout] = read(text).objects
    assert read_back(rollout) == (rollout,)
    assert load.dump([rollout]).startswith(
        "apiVersion: argoproj.io/v1\nkind: Rollout\nmetadata:\n  name: j\nspec:\n  z: 1\n  a:\n"
    )


def test_every_kind_of_the_builders_survives_a_round_trip() -> None:
    objects = read("---\n".join([POD, DEPLOYMENT, SCALED_OBJECT, NODE_POOL, HPA])).objects
    assert read_back(*objects) == objects


names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True)
label_values = st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,6}[A-Za-z0-9])?)?", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
labels = st.dictionaries(names, label_values, max_size=3)
metas = st.builds(
    ObjectMeta, name=names, namespace=names, labels=labels, annotations=st.dictionaries(names, texts, max_size=2)
)
gpus = st.integers(0, 8)
cpus = st.integers(1, 64) | st.sampled_from(["500m", "0.5", "1e2"]) | st.sampled_from([0.5, 2.25])


@st.composite
def containers(draw: Any) -> core.Container:
    gpu = {"nvidia.com/gpu": draw(gpus)} if draw(st.booleans()) else {}
    resources = core.ResourceRequirements(requests={"cpu": draw(cpus), **gpu}, limits=gpu)
    environment = [core.EnvVar(name=name, value=draw(texts)) for name in draw(st.lists(names, unique=True, max_size=2))]
    return core.Container(
        name="main", image="i", args=draw(st.lists(texts, max_size=3)), env=environment, resources=resources
    )


@st.composite
def pod_specs(draw: Any) -> core.PodSpec:
    expression = core.NodeSelectorRequirement(
        key=draw(names), operator="In", values=draw(st.lists(texts, min_size=1, max_size=2))
    )
    required = core.NodeSelector(node_selector_terms=[core.NodeSelectorTerm(match_expressions=[expression])])
    affinity = core.Affinity(
        node_affinity=core.NodeAffinity(required_during_scheduling_ignored_during_execution=required)
    )
    toleration = core.Toleration(key=draw(names), operator=draw(st.sampled_from(["Equal", "Exists"])))
    return core.PodSpec(
        containers=[draw(containers())],
        affinity=affinity if draw(st.booleans()) else None,
        tolerations=[toleration] if draw(st.booleans()) else [],
        node_selector=draw(labels),
        priority=draw(st.none() | st.integers(-5, 5)),
    )


@st.composite
def kube_objects(draw: Any) -> KubeObject:
    meta = draw(metas)
    kind = draw(st.sampled_from(["Pod", "Deployment", "ScaledObject", "NodePool", "PDB", "ConfigMap"]))
    if kind == "Pod":
        return core.Pod(api_version="v1", kind="Pod", metadata=meta, spec=draw(pod_specs()))
    if kind == "Deployment":
        template = core.PodTemplateSpec(metadata=ObjectMeta(labels={"app": "a"}), spec=draw(pod_specs()))
        selector = core.LabelSelector(match_labels={"app": "a"})
        spec = apps.DeploymentSpec(selector=selector, template=template, replicas=draw(st.integers(0, 3)))
        return apps.Deployment(api_version="apps/v1", kind="Deployment", metadata=meta, spec=spec)
    if kind == "ScaledObject":
        metadata = {"serverAddress": "x", "query": "q" + draw(texts), "threshold": str(draw(st.integers(1, 99)))}
        behavior = autoscaling.HPABehavior(scale_up=autoscaling.HPAScalingRules(stabilization_window_seconds=0))
        config = keda.HorizontalPodAutoscalerConfig(behavior=behavior)
        scaled = keda.ScaledObjectSpec(
            scale_target_ref=keda.ScaleTarget(name="d"),
            triggers=[keda.ScaleTrigger(type="prometheus", metadata=metadata)],
            min_replica_count=draw(st.integers(0, 3)),
            advanced=keda.Advanced(horizontal_pod_autoscaler_config=config) if draw(st.booleans()) else None,
        )
        return keda.ScaledObject(api_version="keda.sh/v1alpha1", kind="ScaledObject", metadata=meta, spec=scaled)
    if kind == "NodePool":
        requirement = karpenter.NodeRequirement(key="a", operator="Gt", values=[str(draw(gpus))])
        inner = karpenter.NodeClaimTemplateSpec(
            requirements=[requirement], node_class_ref=karpenter.NodeClassRef(group="g", kind="k", name="c")
        )
        budgets = [karpenter.Budget(nodes=f"{draw(st.integers(0, 100))}%")] * draw(st.integers(0, 2))
        pool = karpenter.NodePoolSpec(
            template=karpenter.NodeClaimTemplate(spec=inner),
            limits={"nvidia.com/gpu": draw(gpus)},
            disruption=karpenter.Disruption(budgets=budgets) if budgets else karpenter.Disruption(),
        )
        return karpenter.NodePool(api_version="karpenter.sh/v1", kind="NodePool", metadata=meta, spec=pool)
    if kind == "PDB":
        budget = policy.PodDisruptionBudgetSpec(max_unavailable=draw(st.integers(0, 3) | st.just("50%")))
        return policy.PodDisruptionBudget(
            api_version="policy/v1", kind="PodDisruptionBudget", metadata=meta, spec=budget
        )
    return core.ConfigMap(api_version="v1", kind="ConfigMap", metadata=meta, data=draw(st.dictionaries(names, texts)))


@settings(max_examples=examples(150))
@given(st.lists(kube_objects(), min_size=1, max_size=4, unique_by=lambda obj: (obj.kind, obj.namespace, obj.name)))
def test_what_is_written_is_read_back_and_has_no_warnings(objects: list[KubeObject]) -> None:
    manifest = read(load.dump(objects))
    assert list(manifest.objects) == objects
    assert manifest.problems == ()
