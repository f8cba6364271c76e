"""GPUs of one workload given to another: what is set, in which order, and back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tonnage.control.holders import holder
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.objects import load
from tonnage.objects.base import KubeObject
from tonnage.scaling.reallocation import (
    BOUNDS,
    SPEC_REPLICAS,
    Assignment,
    Bounded,
    CannotGive,
    GpuHolder,
    reallocate,
)

A, B = Ref("Deployment", "a", "llm"), Ref("Deployment", "b", "llm")


def hpa(name: str, low: int, high: int) -> Bounded:
    return Bounded(
        Ref("HorizontalPodAutoscaler", name, "llm"), BOUNDS["HorizontalPodAutoscaler"], low, high, (low, high)
    )


def held(ref: Ref, replicas: int, gpus: int = 1, *bounded: Bounded) -> GpuHolder:
    return GpuHolder(ref, replicas, gpus, "nvidia.com/gpu", bounded, replicas)


def shown(steps: tuple[Assignment, ...]) -> list[tuple[str, str, object, object]]:
    return [(one.object.name, one.path[-1], one.before, one.after) for one in steps]


def test_without_autoscalers_the_donor_goes_down_first_and_then_the_other_up() -> None:
    found = reallocate(held(B, 4), held(A, 3), 2)
    assert shown(found.steps) == [("b", "replicas", 4, 2), ("a", "replicas", 3, 5)]
    assert shown(found.undo) == [("a", "replicas", 5, 3), ("b", "replicas", 2, 4)]


def test_bounds_move_before_the_replicas_and_alone_come_back() -> None:
    found = reallocate(held(B, 4, 1, hpa("b-hpa", 1, 8)), held(A, 3, 1, hpa("a-hpa", 2, 4)), 2)
    assert shown(found.steps) == [
        ("b-hpa", "maxReplicas", 8, 2),
        ("b", "replicas", 4, 2),
        ("a-hpa", "maxReplicas", 4, 5),
        ("a-hpa", "minReplicas", 2, 5),
        ("a", "replicas", 3, 5),
    ]
    assert shown(found.undo) == [
        ("a-hpa", "minReplicas", 5, 2),
        ("a-hpa", "maxReplicas", 5, 4),
        ("b-hpa", "maxReplicas", 2, 8),
    ]


def test_a_scaled_object_that_is_held_at_a_number_is_held_at_another() -> None:
    name = Ref("ScaledObject", "b-scaler", "llm")
    paused = Bounded(name, BOUNDS["ScaledObject"], 1, 8, (1, 8), paused=4)
    found = reallocate(held(B, 4, 1, paused), held(A, 3), 1)
    assert shown(found.steps)[0] == ("b-scaler", "autoscaling.keda.sh/paused-replicas", "4", "3")
    assert found.steps[0].pointer == "/metadata/annotations/autoscaling.keda.sh~1paused-replicas"


def test_the_last_replica_is_given_only_where_no_autoscaler_orders_it_again() -> None:
    name = Ref("ScaledObject", "b-scaler", "llm")
    free = Bounded(name, BOUNDS["ScaledObject"], 0, 8, (0, 8))
    with pytest.raises(CannotGive, match="ScaledObject llm/b-scaler would order one again") as refused:
        reallocate(held(B, 3, 2, free), held(A, 3), 6)
    assert refused.value.hint == (
        "ask for at most 4 GPUs, or hold it at zero: "
        "kubectl annotate scaledobject b-scaler -n llm autoscaling.keda.sh/paused-replicas=0"
    )
    assert reallocate(held(B, 3, 2, free), held(A, 3), 4).given == 2
    assert reallocate(held(B, 3, 2), held(A, 3), 6).given == 3


def test_whole_replicas_are_given_and_whole_ones_gained() -> None:
    found = reallocate(held(B, 4, 4), held(A, 1, 3), 5)
    assert (found.given, found.freed, found.gained, found.used) == (2, 8, 2, 6)


@pytest.mark.parametrize(
    ("source", "target", "gpus", "said"),
    [
        (held(B, 2), held(A, 1), 3, "has 2 replicas: 3 GPUs cannot be freed"),
        (held(B, 4, 1, hpa("b", 3, 8)), held(A, 1), 2, "has 4 replicas and keeps 3"),
        (held(B, 1), held(A, 1), 2, "has 1 replica: 2 GPUs cannot be freed"),
        (held(B, 2, 1, hpa("b", 0, 8)), held(A, 1), 2, "would have no replica left, and HorizontalPodAutoscaler llm/b"),
        (held(B, 4), held(A, 1, 8), 2, "takes 8 GPUs, and 2 would be freed"),
        (held(B, 4), held(B, 4), 1, "is both"),
        (held(B, 4, 0), held(A, 1), 1, "asks for no whole GPUs"),
        (held(B, 4), GpuHolder(A, 1, 1, "amd.com/gpu"), 1, "asks for amd.com/gpu"),
    ],
)
def test_what_cannot_be_given_is_refused_with_what_to_do(
    source: GpuHolder, target: GpuHolder, gpus: int, said: str
) -> None:
    with pytest.raises(CannotGive, match=said) as refused:
        reallocate(source, target, gpus)
    assert refused.value.hint


_bounds = st.tuples(st.integers(0, 6), st.integers(0, 12)).map(lambda pair: (pair[0], max(1, *pair)))


def _within(replicas: int, bounds: tuple[int, int] | None) -> int:
    return replicas if bounds is None else max(bounds[0], min(bounds[1], replicas))


@settings(deadline=None)
@given(
    source=st.tuples(st.integers(0, 10), st.integers(1, 4), st.none() | _bounds),
    target=st.tuples(st.integers(0, 10), st.integers(1, 4), st.none() | _bounds),
    gpus=st.integers(1, 12),
)
def test_after_every_step_bounds_are_in_order_and_at_the_end_the_replicas_lie_within_them(
    source: tuple[int, int, tuple[int, int] | None], target: tuple[int, int, tuple[int, int] | None], gpus: int
) -> None:
    (replicas_b, gpus_b, bounds_b), (replicas_a, gpus_a, bounds_a) = source, target
    replicas_b, replicas_a = _within(replicas_b, bounds_b), _within(replicas_a, bounds_a)
    donor = held(B, replicas_b, gpus_b, *([hpa("b-hpa", *bounds_b)] if bounds_b else []))
    other = held(A, replicas_a, gpus_a, *([hpa("a-hpa", *bounds_a)] if bounds_a else []))
    try:
        found = reallocate(donor, other, gpus)
    except CannotGive:
        least = bounds_b[0] if bounds_b else 0
        whole = -(-gpus // gpus_b)
        emptied = bool(bounds_b) and whole == replicas_b
        assert emptied or whole > max(0, replicas_b - least) or whole * gpus_b < gpus_a
        return
    state = {("a", "replicas"): replicas_a, ("b", "replicas"): replicas_b}
    for name, bounds in (("a-hpa", bounds_a), ("b-hpa", bounds_b)):
        if bounds:
            state |= {(name, "minReplicas"): bounds[0], (name, "maxReplicas"): bounds[1]}
    start = dict(state)
    for steps in (found.steps, found.undo):
        for step in steps:
            assert state[step.object.name, step.path[-1]] == step.before
            assert isinstance(step.after, int)
            state[step.object.name, step.path[-1]] = step.after
            for name in ("a-hpa", "b-hpa"):
                assert state.get((name, "minReplicas"), 0) <= state.get((name, "maxReplicas"), 99)
        if steps is found.steps:
            assert state["b", "replicas"] * gpus_b == replicas_b * gpus_b - found.freed
            assert found.freed >= max(gpus, found.used)
            assert state["a", "replicas"] <= state.get(("a-hpa", "maxReplicas"), 99)
            assert state["a", "replicas"] >= state.get(("a-hpa", "minReplicas"), 0)
            assert state["b", "replicas"] <= state.get(("b-hpa", "maxReplicas"), 99)
            assert state["b", "replicas"] >= state.get(("b-hpa", "minReplicas"), 0)
    kept = {
        key: value
        for key, value in start.items()
        if key[1] != "replicas" or f"{key[0]}-hpa" not in {k[0] for k in start}
    }
    assert {key: state[key] for key in kept} == kept


def objects(tmp_path: Path) -> tuple[KubeObject, ...]:
    (tmp_path / "all.yaml").write_text(MANIFESTS)
    return load.read([tmp_path / "all.yaml"]).objects


MANIFESTS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat, namespace: llm}
spec:
  replicas: 4
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec: {containers: [{name: vllm, image: i, resources: {limits: {nvidia.com/gpu: 2}}}]}
---
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: chat-scaler, namespace: llm}
spec:
  scaleTargetRef: {name: chat}
  maxReplicaCount: 9
  triggers: [{type: prometheus, metadata: {serverAddress: http://p, query: up, threshold: "1"}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: chat
  namespace: other
spec:
  serviceName: chat
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat}}
    spec: {containers: [{name: web, image: i}]}
"""


def test_a_holder_is_read_with_its_gpus_and_who_bounds_it(tmp_path: Path) -> None:
    there = objects(tmp_path)
    found = holder(there, "llm/chat")
    assert (found.replicas, found.gpus, found.resource) == (4, 2, "nvidia.com/gpu")
    (bounds,) = found.bounded
    assert (bounds.object.name, bounds.minimum, bounds.maximum, bounds.written) == ("chat-scaler", 0, 9, (None, 9))
    assert holder(there, "StatefulSet/chat").gpus == 0
    assert holder(there, "sts/chat") == holder(there, "statefulsets/chat") == holder(there, "StatefulSet/chat")


def test_a_bound_that_was_not_written_is_taken_away_again(tmp_path: Path) -> None:
    target = holder(objects(tmp_path), "chat", "llm")
    found = reallocate(held(B, 4, 2), target, 2)
    (low,) = [one for one in found.undo if one.path[-1] == "minReplicaCount"]
    assert (low.before, low.after) == (5, None)


@pytest.mark.parametrize(("name", "said"), [("chat", "several workloads"), ("none", "there is no workload")])
def test_a_name_that_means_nobody_or_several_is_refused_with_who_there_is(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        holder(objects(tmp_path), name, field="--from")
    assert refused.value.problems[0].where.field == "--from" and "llm/chat" in refused.value.problems[0].hint


def test_the_first_step_of_replicas_names_the_field_of_the_workload() -> None:
    assert reallocate(held(B, 4), held(A, 3), 1).steps[0].path == SPEC_REPLICAS
