from __future__ import annotations

from pathlib import Path

import guide_manifests as guide
import pytest

from tonnage.errors import InputError
from tonnage.objects.autoscaling import HorizontalPodAutoscaler
from tonnage.objects.keda import ScaledObject
from tonnage.scaling.admission import admit, apply_in_order, target_missing


def test_an_hpa_that_is_there_first_makes_keda_refuse_the_scaled_object(tmp_path: Path) -> None:
    admitted = apply_in_order(guide.read(tmp_path, guide.DEPLOYMENT, guide.HPA, guide.SCALED_OBJECT).objects)
    assert admitted.scaled_objects == ()
    assert [h.name for h in admitted.hpas] == ["model-a-hpa"]
    [refusal] = admitted.findings
    assert refusal.rule == "double-autoscaler"
    assert "already managed by the HPA model-a-hpa" in refusal.message
    assert (refusal.object.name, refusal.where.field) == ("model-a-gpu-scaler", "spec.scaleTargetRef.name")
    assert "name: model-a-serving" in (tmp_path / "manifests.yaml").read_text().splitlines()[refusal.where.line - 1]
    assert admitted.ambiguous == {}


def test_an_hpa_that_comes_second_is_accepted_and_both_stop(tmp_path: Path) -> None:
    admitted = apply_in_order(guide.read(tmp_path, guide.DEPLOYMENT, guide.SCALED_OBJECT, guide.HPA).objects)
    assert len(admitted.scaled_objects) == len(admitted.hpas) == 1
    assert admitted.ambiguous == {
        "inference/model-a-hpa": ("keda-hpa-model-a-gpu-scaler",),
        "inference/keda-hpa-model-a-gpu-scaler": ("model-a-hpa",),
    }
    [finding] = admitted.findings
    assert finding.object.name == "model-a-hpa" and "AmbiguousSelector" in finding.message


def test_two_plain_hpas_on_one_workload_are_ambiguous_too(tmp_path: Path) -> None:
    second = guide.HPA.replace("model-a-hpa", "another")
    admitted = apply_in_order(guide.read(tmp_path, guide.DEPLOYMENT, guide.HPA, second).objects)
    assert admitted.ambiguous == {"inference/model-a-hpa": ("another",), "inference/another": ("model-a-hpa",)}
    assert [f.object.name for f in admitted.findings] == ["another"]


@pytest.mark.parametrize(
    ("annotation", "config_name", "accepted"),
    [
        (None, None, False),
        ("true", None, False),  # the HPA must be named as well
        ("true", "model-a-hpa", True),
        ("yes", "model-a-hpa", False),  # only the word true counts
    ],
)
def test_ownership_of_an_hpa_is_transferred_only_by_annotation_and_name(
    tmp_path: Path, annotation, config_name, accepted
) -> None:
    text = guide.SCALED_OBJECT
    if annotation:
        line = f"  annotations: {{scaledobject.keda.sh/transfer-hpa-ownership: '{annotation}'}}\n"
        text = text.replace("  namespace: inference\n", "  namespace: inference\n" + line, 1)
    if config_name:
        text = text.replace("PodAutoscalerConfig:\n", f"PodAutoscalerConfig:\n      name: {config_name}\n")
    admitted = apply_in_order(guide.read(tmp_path, guide.DEPLOYMENT, guide.HPA, text).objects)
    assert bool(admitted.scaled_objects) is accepted
    assert admitted.ambiguous == {}


def test_an_hpa_may_opt_out_of_the_ownership_check(tmp_path: Path) -> None:
    hpa = guide.HPA.replace(
        "metadata:\n", "metadata:\n  annotations: {validations.keda.sh/hpa-ownership: 'false'}\n", 1
    )
    manifest = guide.read(tmp_path, hpa, guide.SCALED_OBJECT)
    [scaled] = manifest.of(ScaledObject)
    assert admit(scaled, manifest.of(HorizontalPodAutoscaler)) is None


def test_two_scaled_objects_on_one_workload_are_refused(tmp_path: Path) -> None:
    second = guide.SCALED_OBJECT.replace("model-a-gpu-scaler", "another")
    admitted = apply_in_order(guide.read(tmp_path, guide.DEPLOYMENT, guide.SCALED_OBJECT, second).objects)
    assert [s.name for s in admitted.scaled_objects] == ["model-a-gpu-scaler"]
    assert "already managed by the ScaledObject model-a-gpu-scaler" in admitted.findings[0].message


def test_a_scaled_object_without_its_target_is_not_ready(tmp_path: Path) -> None:
    manifest = guide.read(tmp_path, guide.SCALED_OBJECT)
    finding = target_missing(manifest.of(ScaledObject)[0], manifest.objects)
    assert finding is not None and finding.rule == "scaledobject-target-missing"
    assert "Deployment model-a-serving is not in namespace inference" in finding.message


def test_resource_triggers_alone_cannot_scale_to_zero(tmp_path: Path) -> None:
    text = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: short, namespace: inference}
spec:
  scaleTargetRef: {name: d}
  triggers: [{type: cpu, metricType: Utilization, metadata: {value: "60"}}]
"""
    [scaled] = guide.read(tmp_path, text).of(ScaledObject)
    refused = admit(scaled, [])
    assert refused is not None
    assert (refused.rule, refused.where.field) == ("scaledobject-refused", "spec.minReplicaCount")
    [scaled] = guide.read(tmp_path, text.replace("spec:\n", "spec:\n  minReplicaCount: 1\n")).of(ScaledObject)
    assert admit(scaled, []) is None


@pytest.mark.report(405)
def test_two_scaled_objects_with_one_hpa_are_refused_and_so_are_idle_replicas_that_do_not_work(tmp_path: Path) -> None:
    named = guide.SCALED_OBJECT.replace("  advanced:\n    horizontalPodAutoscalerConfig:\n", ADVANCED)
    assert named != guide.SCALED_OBJECT
    second = named.replace("model-a-gpu-scaler", "another").replace("model-a-serving", "model-b-serving")
    admitted = apply_in_order(guide.read(tmp_path, named, second).objects)
    assert [s.name for s in admitted.scaled_objects] == ["model-a-gpu-scaler"]
    assert "the HPA shared is already managed by the ScaledObject model-a-gpu-scaler" in admitted.findings[0].message
    idle = guide.SCALED_OBJECT.replace("  minReplicaCount: 2\n", "  minReplicaCount: 2\n  idleReplicaCount: 1\n")
    assert idle != guide.SCALED_OBJECT
    with pytest.raises(InputError, match="expected 0, the only value that works"):
        guide.read(tmp_path, idle)


ADVANCED = "  advanced:\n    horizontalPodAutoscalerConfig:\n      name: shared\n"
CPU = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: short, namespace: inference}
spec:
  scaleTargetRef: {name: d}
  minReplicaCount: 1
  triggers: [{type: cpu, metricType: Utilization, metadata: {value: "60"}}]
"""
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: d, namespace: inference}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers:
        - {name: main, image: m, resources: {requests: {cpu: "1"}}}
        - {name: side, image: s, resources: {}}
"""
LIMITS = """\
apiVersion: v1
kind: LimitRange
metadata: {name: l, namespace: inference}
spec: {limits: [{type: Container, defaultRequest: {cpu: 100m}}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "others", "refused"),
    [
        ("", "", (), True),
        ("resources: {}", 'resources: {requests: {cpu: "1"}}', (), False),
        ("resources: {}", 'resources: {limits: {cpu: "1"}}', (), False),
        ("resources: {}", 'resources: {requests: {memory: "1Gi"}}', (), True),
        ("resources: {}", 'resources: {requests: {cpu: "0"}}', (), True),
        ("      containers:", '      resources: {requests: {cpu: "2"}}\n      containers:', (), False),
        ("", "", (LIMITS,), False),
    ],
)
def test_a_cpu_trigger_needs_a_request_of_every_container(tmp_path, old, new, others, refused) -> None:
    objects = guide.read(tmp_path, DEPLOYMENT.replace(old, new), CPU, *others).objects
    findings = apply_in_order(objects).findings
    assert [one.rule for one in findings] == (["scaledobject-refused"] if refused else [])
    if refused:
        assert "container side of Deployment d has no cpu request" in findings[0].message


def test_a_trigger_of_one_container_needs_its_request_alone(tmp_path: Path) -> None:
    one = CPU.replace('value: "60"', 'value: "60", containerName: main')
    assert apply_in_order(guide.read(tmp_path, DEPLOYMENT, one).objects).findings == ()
