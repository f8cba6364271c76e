"""What the API server refuses of volumes, mounts, variables, probes and hooks, each with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import yaml_text
from tonnage.errors import InputError
from tonnage.objects import load
from tonnage.objects.api import pods

VOLUME = {"name": "data", "emptyDir": {}}
HOOK = {"preStop": {"sleep": {"seconds": 31}}}


def pod(container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = {"name": "c", "image": "nginx", **container}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [made], **spec}}


def refused(tmp_path: Path, *objects: dict[str, Any]) -> list[tuple[str, str]]:
    """(field, message) of each problem."""
    (tmp_path / "x.yaml").write_text(yaml_text.dump_all(objects))
    try:
        load.read([tmp_path / "x.yaml"])
    except InputError as error:
        return [(problem.where.field, problem.message) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("written", "field", "words"),
    [
        (pod({"volumeMounts": [{"name": "a", "mountPath": "/a"}]}), "volumeMounts[0].name", "not found"),
        (
            pod({"volumeMounts": [{"name": "a", "mountPath": "/a"}]}, volumes=[VOLUME]),
            "volumeMounts[0].name",
            "not found",
        ),
        (pod({"volumeMounts": [{"name": "data"}]}, volumes=[VOLUME]), "volumeMounts[0].mountPath", "missing"),
        (
            pod({"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}),
            "env[0].valueFrom",
            "`value` is not empty",
        ),
        (pod({"livenessProbe": {"tcpSocket": {"port": 0}}}), "livenessProbe.tcpSocket.port", "between 1 and 65535"),
        (
            pod({"livenessProbe": {"tcpSocket": {"port": "8000"}}}),
            "livenessProbe.tcpSocket.port",
            "at least one letter",
        ),
        (
            pod({"startupProbe": {"httpGet": {"port": 1}, "exec": {"command": ["x"]}}}),
            "startupProbe.httpGet",
            "more than 1",
        ),
        (pod({"lifecycle": HOOK}), "lifecycle.preStop.sleep.seconds", "31: must be non-negative"),
    ],
)
def test_a_pod_is_refused_at_its_field(tmp_path: Path, written: dict[str, Any], field: str, words: str) -> None:
    [(at, message)] = refused(tmp_path, written)
    assert at == f"spec.containers[0].{field}" and words in message


@pytest.mark.parametrize(
    "written",
    [
        pod({"volumeMounts": [{"name": "data", "mountPath": "/a"}]}, volumes=[VOLUME]),
        pod({"lifecycle": HOOK}, terminationGracePeriodSeconds=31),
        pod({"readinessProbe": {"httpGet": {"port": "web"}}}),
    ],
)
def test_what_is_at_the_limit_or_wrong_later_is_read(tmp_path: Path, written: dict[str, Any]) -> None:
    assert refused(tmp_path, written) == []


def test_volumes_that_stand_twice_are_refused(tmp_path: Path) -> None:
    [(at, _)] = refused(tmp_path, pod({}, volumes=[VOLUME, VOLUME]))
    assert at == "spec.volumes[1].name"


@pytest.mark.parametrize(("kind", "group", "count"), [("StatefulSet", "apps/v1", 1), ("Rollout", "argoproj.io/v1", 0)])
def test_of_kinds_that_are_not_read_those_of_kubernetes_are_looked_at(
    tmp_path: Path, kind: str, group: str, count: int
) -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": pod({"volumeMounts": [{"name": "a", "mountPath": "/a"}]})["spec"],
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    found = refused(tmp_path, {"apiVersion": group, "kind": kind, "metadata": {"name": "s"}, "spec": spec})
    assert len(found) == count


@pytest.mark.parametrize(
    ("seconds", "grace", "count"), [(31, None, 1), (30, None, 0), (60, 60, 0), (61, 60, 1), (-1, 5, 1)]
)
def test_the_embedded_api_refuses_hooks_that_sleep_too_long(seconds: int, grace: int | None, count: int) -> None:
    spec = pod({"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}}, terminationGracePeriodSeconds=grace)["spec"]
    found = pods.pod_spec("spec", spec)
    assert [cause.field for cause in found] == ["spec.containers[0].lifecycle.preStop.sleep"] * count


@pytest.mark.parametrize("policy", ["Sometimes", "always", "ExitCode"])
@pytest.mark.parametrize("part", ["initContainers", "containers"])
def test_the_restart_policy_of_a_container_is_one_of_three(tmp_path: Path, part: str, policy: str) -> None:
    one = {"name": "i", "image": "x", "restartPolicy": policy}
    spec: dict[str, Any] = {part: [one]} if part == "initContainers" else {}
    found = refused(tmp_path, pod(one if part == "containers" else {}, **spec))
    assert found[0] == (f"spec.{part}[0].restartPolicy", f'"{policy}": expected one of Always, Never, OnFailure')


@pytest.mark.parametrize("policy", ["Always", "Never", "OnFailure"])
def test_a_restart_policy_of_an_init_container_that_there_is_is_read(tmp_path: Path, policy: str) -> None:
    assert refused(tmp_path, pod({}, initContainers=[{"name": "i", "image": "x", "restartPolicy": policy}])) == []


@pytest.mark.parametrize(
    ("surge", "unavailable", "count"), [(0, 0, 1), ("0%", "0%", 1), (0, "0%", 1), (0, 1, 0), (1, 0, 0), ("1%", 0, 0)]
)
def test_a_rollout_that_may_neither_add_nor_take_a_pod_is_refused(
    tmp_path: Path, surge: int | str, unavailable: int | str, count: int
) -> None:
    labels = {"a": "b"}
    spec = {
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
        "template": {"metadata": {"labels": labels}, "spec": pod({})["spec"]},
    }
    found = refused(tmp_path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec})
    assert [at for at, _ in found] == ["spec.strategy.rollingUpdate.maxUnavailable"] * count


@pytest.mark.parametrize("source", [{"resourceClaimTemplateName": "t"}, {"resourceClaimName": "c"}, {}])
def test_the_source_of_a_resource_claim_is_a_field_that_is_gone(tmp_path: Path, source: dict[str, str]) -> None:
    alone = pod({}, resourceClaims=[{"name": "gpu", "source": source}])
    [(at, said)] = refused(tmp_path, alone)
    assert at == "spec.resourceClaims[0]"
    assert "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`" in said
    with pytest.raises(InputError) as error:
        load.read([tmp_path])
    assert [(one.where.field, one.message) for one in error.value.beside] == [
        ("spec.resourceClaims[0].source", "unknown field 'source'")
    ]
    both = pod({}, resourceClaims=[{"name": "gpu", "resourceClaimName": "c", "source": source}])
    (tmp_path / "y.yaml").write_text(yaml_text.dump_all([both]))
    told = [one for one in load.read([tmp_path / "y.yaml"]).problems if "unknown field" in one.message]
    assert [(one.where.field, one.message) for one in told] == [
        ("spec.resourceClaims[0].source", "unknown field 'source'")
    ]
