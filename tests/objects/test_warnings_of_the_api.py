"""What kube-apiserver takes and warns of, for every kind that has pods or volumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tonnage.errors import InputError
from tonnage.objects import load
from tonnage.objects.api import amounts
from tonnage.objects.api.warnings import warnings

MAIN = {"name": "main", "image": "x"}


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "spec": {"containers": [MAIN]} | spec}


def said(kind: str, obj: dict[str, Any]) -> list[str]:
    return [one.message for one in warnings(kind, obj)]


def port(number: int, **fields: Any) -> dict[str, Any]:
    return {"containerPort": number} | fields


@pytest.mark.parametrize(
    ("init", "main", "expected"),
    [
        ([], [port(80), port(80, protocol="UDP")], []),
        (
            [port(80)],
            [port(80)],
            ["containers[0].ports[0]: duplicate port definition with {}initContainers[0].ports[0]"],
        ),
        (
            [],
            [port(80), port(80, hostPort=80)],
            ["containers[0].ports[1]: overlapping port definition with {}containers[0].ports[0]"],
        ),
        ([], [port(80, hostPort=80), port(80, hostPort=81)], []),
        (
            [],
            [port(80, hostPort=80), port(80, hostPort=80, hostIP="10.0.0.1")],
            ["containers[0].ports[1]: dangerously ambiguous port definition with {}containers[0].ports[0]"],
        ),
        (
            [],
            [port(80, hostIP="10.0.0.1", name="web")],
            [
                "containers[0].ports[0]: hostIP set without hostPort: "
                "{{Name:web HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}}"
            ],
        ),
        (
            [],
            [port(80), port(80), port(80)],
            [
                "containers[0].ports[1]: duplicate port definition with {}containers[0].ports[0]",
                "containers[0].ports[2]: duplicate port definition with {}containers[0].ports[0]",
                "containers[0].ports[2]: duplicate port definition with {}containers[0].ports[1]",
            ],
        ),
    ],
)
@pytest.mark.parametrize(
    ("kind", "path"),
    [("Pod", ""), ("StatefulSet", "spec.template."), ("CronJob", "spec.jobTemplate.spec.template.")],
)
def test_ports_of_all_containers_are_compared(
    kind: str, path: str, init: list[Any], main: list[Any], expected: list[str]
) -> None:
    made: dict[str, Any] = pod(initContainers=[MAIN | {"ports": init}], containers=[MAIN | {"ports": main}])
    for name in reversed(path.split(".")[:-1]):
        made = {name: made}
    above = f"{path}spec."
    assert said(kind, made) == [f"{above}{one.format(above)}" for one in expected]


@pytest.mark.parametrize(
    ("variable", "warned"),
    [
        ({"value": "x:$(A)"}, False),
        ({"value": "$(A)"}, True),
        ({"value": "$(B)"}, True),
        ({"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, True),
    ],
)
def test_a_variable_may_stand_twice_where_it_adds_to_itself(variable: dict[str, Any], warned: bool) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", **variable}]
    assert bool(said("Pod", pod(containers=[MAIN | {"env": env}]))) == warned


@pytest.mark.report(209)
@pytest.mark.parametrize(
    ("written", "shown"),
    [("1500m", "1500m"), ("0.1Ki", "102400m"), ("999999u", ""), ("1G", ""), ("10Pi", "10Pi"), ("100u", "1m")],
)
def test_bytes_in_fractions_are_warned_of_wherever_they_stand(written: str, shown: str) -> None:
    storage = {"spec": {"resources": {"requests": {"storage": written}}}}
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": storage}}]
    set_ = {"spec": {"template": pod(volumes=volumes), "volumeClaimTemplates": [storage]}}
    inner = MAIN | {"resources": {"limits": {"ephemeral-storage": written, "cpu": written}}}
    text = f': fractional byte value "{shown}" is invalid, must be an integer'
    for kind, obj, fields in (
        ("PersistentVolumeClaim", storage, ["spec.resources.requests[storage]"]),
        ("StatefulSet", set_, ["spec.template.spec.volumes[0].ephemeral.volumeClaimTemplate.spec.resources.requests[storage]",
                               "spec.volumeClaimTemplates[0].spec.resources.requests[storage]"]),
        ("Pod", pod(overhead={"memory": written}, initContainers=[inner]),
         ["spec.overhead[memory]", "spec.initContainers[0].resources.limits[ephemeral-storage]"]),
    ):  # fmt: skip
        assert said(kind, obj) == ([f"{field}{text}" for field in fields] if shown else [])


WHOLE = [
    "10E",
    "100E",
    "7.5E",
    "9e18",
    "8Ei",
    "9.3E",
    "9223372036854775807",
    "9223372036854775808",
    "1e19",
    "1e18",
    "1e16",
    "1e20",
    "9007199254740993",
    "10P",
    "8P",
    "9.3P",
    "6Ei",
    "4Ei",
    "16Ei",
    "8191Pi",
    "9000Pi",
    "1e30",
    "123456789e9",
    "123456789e10",
    "12345678901234567E",
    "0.1E",
    "0.0001E",
    "1000m",
]
NOT_WHOLE = [
    "7Ei",
    "1Ei",
    "3Ei",
    "5Ei",
    "0.5Ei",
    "7.3Ei",
    "999999999999999999",
    "99999999999999999",
    "9999999999999999999",
    "92233720368547758",
    "9223372036854776",
    "9223372036854775.807",
    "100Pi",
    "1234567890123456789",
    "1.5",
]


@pytest.mark.parametrize(
    ("written", "whole"), [*((one, True) for one in WHOLE), *((one, False) for one in NOT_WHOLE), ("1e999999999", True)]
)
def test_what_is_no_whole_number_to_kube_apiserver_is_none_here(written: str, whole: bool) -> None:
    warnings = said("Pod", pod(containers=[MAIN | {"resources": {"limits": {"memory": written}}}]))
    assert [one for one in warnings if "fractional" in one] == warnings
    assert bool(warnings) is not whole
    refused = amounts.resource_amount("limits[nvidia.com/gpu]", "nvidia.com/gpu", written)
    assert [one.message.rpartition(": ")[2] for one in refused] == ([] if whole else ["must be an integer"])


@pytest.mark.parametrize(
    ("kind", "obj", "message"),
    [
        ("Pod", pod(terminationGracePeriodSeconds=-1), "spec.terminationGracePeriodSeconds: must be >= 0; negative"),
        ("Pod", pod(hostAliases=[{"ip": "1.1.1.1"}] * 2), 'spec.hostAliases[1].ip: duplicate ip "1.1.1.1"'),
        ("Pod", pod(volumes=[{"name": "v", "gitRepo": {}}]), "spec.volumes[0].gitRepo: deprecated in v1.11"),
        (
            "Deployment",
            {"metadata": {"name": "a.b"}, "spec": {}},
            "metadata.name: this is used in Pod names and hostnames",
        ),
        (
            "Service",
            {"spec": {"trafficDistribution": "PreferClose"}},
            'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"',
        ),
        ("Service", {"spec": {"externalName": "a.b"}}, 'spec.externalName is ignored when spec.type is not "Exter'),
    ],
)
def test_other_warnings(kind: str, obj: dict[str, Any], message: str) -> None:
    (found,) = said(kind, obj)
    assert found.startswith(message)


def test_labels_that_are_out_of_use_are_warned_of_in_affinity_and_spread() -> None:
    term = {"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    spread = {"topologyKey": "failure-domain.beta.kubernetes.io/zone", "labelSelector": {}}
    first, second = said("Pod", pod(affinity={"nodeAffinity": nodes}, topologySpreadConstraints=[spread]))
    assert first.endswith('topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use '
                          '"topology.kubernetes.io/zone" instead')  # fmt: skip
    assert second.endswith('[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead')


def cron_job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"restartPolicy": "Never", "containers": [MAIN]} | spec}
    job = {"schedule": "0 * * * *", "jobTemplate": {"spec": {"template": template}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": job}


def read(path: Path, obj: dict[str, Any]) -> list[str]:
    file = path / "a.yaml"
    file.write_text(yaml.safe_dump(obj))
    return [f"{one.where.field} {one.message}" for one in load.read([file]).problems]


def test_what_a_file_says_of_a_cron_job_and_a_claim_is_found(tmp_path: Path) -> None:
    inside = "spec.jobTemplate.spec.template.spec.containers[0]"
    ports = cron_job(containers=[MAIN | {"ports": [port(80), port(80)]}])
    assert f"{inside}.ports[1] duplicate port definition with {inside}.ports[0]" in read(tmp_path, ports)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1500m"}}}
    obj = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": claim}
    assert read(tmp_path, obj)[0].startswith("spec.resources.requests.storage fractional byte value")


@pytest.mark.parametrize("spec", [{"containers": [None]}, {"overhead": {"cpu": [1]}}, {"volumes": [None]}])
def test_what_cannot_be_read_is_refused_by_its_field(spec: dict[str, Any], tmp_path: Path) -> None:
    for obj in (cron_job(**spec), {"apiVersion": "v1", "kind": "Pod"} | pod(**spec)):
        with pytest.raises(InputError, match="expected"):
            read(tmp_path, obj)
