"""Runs helm on the chart, picks objects out of what came, and knows what each account may do."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import yaml_text

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts/tonnage"
NAMESPACE = "gpu-system"
OPERATOR = "nvidia"
"""Where the GPU operator is."""
CONTROLLERS = ("scheduler", "replicas", "nodes")
PROMETHEUS = "http://prometheus-operated.monitoring:9090"

Object = dict[str, Any]


def only(controller: str, **values: Any) -> Object:
    """Values that switch the other controllers off."""
    switches: Object = {name: {"enabled": name == controller} for name in CONTROLLERS}
    switches[controller] |= values
    return {"controllers": switches}


EVERYTHING: Object = {
    "mode": "apply",
    "image": {"digest": "sha256:" + "a" * 64, "pullSecrets": [{"name": "registry"}]},
    "controllers": {
        "scheduler": {
            "replicas": 2,
            "partitioning": "relayout",
            "extraArgs": ["--verbose"],
            "env": [{"name": "TZ", "value": "UTC"}],
            "extraVolumes": [{"name": "prices", "configMap": {"name": "gpu-prices"}}],
            "extraVolumeMounts": [{"name": "prices", "mountPath": "/etc/tonnage", "readOnly": True}],
        },
        "replicas": {
            "replicas": 3,
            "prometheusUrl": PROMETHEUS,
            "extraArgs": ["--prometheus-token-file=/var/run/prometheus/token"],
            "extraVolumes": [{"name": "token", "secret": {"secretName": "prometheus-token"}}],
            "extraVolumeMounts": [{"name": "token", "mountPath": "/var/run/prometheus", "readOnly": True}],
        },
        "nodes": {
            "replicas": 2,
            "backend": "aws",
            "awsCluster": "prod",
            "awsRegion": "us-east-1",
            "provisioning": "optimal",
            "rebalance": True,
            "env": [{"name": "AWS_REGION", "value": "us-east-1"}],
            "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/nodes"}},
        },
    },
    "gpuOperator": {"namespace": OPERATOR},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "metricsService": {"enabled": True, "annotations": {"prometheus.io/scrape": "true"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "labels": {"folder": "gpus"}},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}},
    "hostNetwork": True,
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "apiServerCidrs": ["10.0.0.0/16", "fd00::/64"],
        "extraEgress": [{"ports": [{"port": 4317, "protocol": "TCP"}]}],
    },
    "podAnnotations": {"example.com/team": "gpu"},
    "podLabels": {"example.com/tier": "control"},
    "priorityClassName": "system-cluster-critical",
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "control", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "nvidia.com/gpu.count", "operator": "DoesNotExist"}]}
                ]
            }
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
}

CASES: dict[str, Object] = {
    "defaults": {},
    "apply": {"mode": "apply", "controllers": {"replicas": {"prometheusUrl": PROMETHEUS}}},
    "scheduler alone": only("scheduler"),
    "replicas alone": only("replicas", prometheusUrl=PROMETHEUS),
    "nodes alone": only("nodes"),
    "scheduler alone, apply": only("scheduler", mode="apply"),
    "replicas alone, apply": only("replicas", mode="apply", prometheusUrl=PROMETHEUS),
    "nodes alone, apply": only("nodes", mode="apply"),
    "one applies, two observe": {"controllers": {"scheduler": {"mode": "apply"}}},
    "two apply, one observes": {
        "mode": "apply",
        "controllers": {"nodes": {"mode": "observe"}, "replicas": {"prometheusUrl": PROMETHEUS}},
    },
    "several replicas that observe": {"controllers": {name: {"replicas": 2} for name in CONTROLLERS}},
    "network policies and a pod monitor": {"networkPolicy": {"enabled": True}, "podMonitor": {"enabled": True}},
    "a service monitor, alerts and a dashboard": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "stopped": {"controllers": {name: {"replicas": 0} for name in CONTROLLERS}, "strategy": {"type": "Recreate"}},
    "aws": only("nodes", backend="aws", awsCluster="prod"),
    "accounts made elsewhere": {
        "rbac": {"create": False},
        "controllers": {name: {"serviceAccount": {"create": False, "name": "given"}} for name in CONTROLLERS},
    },
    "everything": EVERYTHING,
}
"""What the rules are held against: values files by what they are."""


@dataclass(frozen=True, slots=True)
class Helm:
    """The helm program."""

    program: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    rendered: dict[str, list[Object]] = field(default_factory=dict)

    def run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs it; ``values`` go to it as a values file on its standard input."""
        more = [] if values is None else ["--values", "-"]
        text = None if values is None else yaml_text.dump(dict(values))
        return subprocess.run(
            [str(self.program), *arguments, *more],
            input=text,
            text=True,
            capture_output=True,
            timeout=60,
            check=False,
            env=os.environ | self.environment,
        )

    def template(self, values: Mapping[str, Any], release: str = "tonnage") -> list[Object]:
        """The objects that the chart renders to, once for the same values. Fails with helm's words."""
        key = json.dumps([release, values])
        if key not in self.rendered:
            self.rendered[key] = self._template(values, release)
        return self.rendered[key]

    def _template(self, values: Mapping[str, Any], release: str) -> list[Object]:
        done = self.run("template", release, str(CHART), "--namespace", NAMESPACE, values=values)
        assert done.returncode == 0, done.stderr
        return [found for found in yaml_text.load_all(done.stdout) if found]

    def refusal(self, values: Mapping[str, Any]) -> str:
        """What helm says about values that the chart refuses."""
        done = self.run("template", "tonnage", str(CHART), values=values)
        assert done.returncode != 0, "these values were taken"
        return done.stderr


def tools() -> Path:
    """The folder that holds helm and kubectl; skips with the reason where they cannot be had."""
    done = subprocess.run([str(ROOT / "scripts/helm.sh")], text=True, capture_output=True, timeout=300, check=False)
    if done.returncode == 3:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def of_kind(objects: Sequence[Object], kind: str) -> dict[str, Object]:
    """The objects of a kind, by name."""
    found = {o["metadata"]["name"]: o for o in objects if o["kind"] == kind}
    assert len(found) == sum(o["kind"] == kind for o in objects), f"two {kind}s of one name"
    return found


def container(deployment: Object) -> Object:
    """Its one container."""
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def options(deployment: Object) -> dict[str, str]:
    """The arguments of its container: ``--name=value`` by name, ``--flag`` as true."""
    command, *arguments = container(deployment)["args"]
    assert command == "controller"
    split = [argument.removeprefix("--").partition("=") for argument in arguments]
    assert len({name for name, _, _ in split}) == len(split), "an option twice"
    return {name: value if equals else "true" for name, equals, value in split}


def grants(objects: Sequence[Object], controller: str) -> set[tuple[str, ...]]:
    """What the roles that are bound to a controller's account allow.

    Each is (cluster, release or gpu-operator, API group, resource, name of the object or empty, verb)."""
    account = of_kind(objects, "Deployment")[f"tonnage-{controller}"]["spec"]["template"]["spec"]["serviceAccountName"]
    found: set[tuple[str, ...]] = set()
    for bound in objects:
        if bound["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
            continue
        if {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE} not in bound["subjects"]:
            continue
        role = of_kind(objects, bound["roleRef"]["kind"])[bound["roleRef"]["name"]]
        namespace = bound["metadata"].get("namespace", "")
        scope = {"": "cluster", NAMESPACE: "release", OPERATOR: "gpu-operator"}[namespace]
        found |= {(scope, *rest) for rest in _expanded(role["rules"])}
    return found


def _expanded(rules: Sequence[Object]) -> Iterator[tuple[str, str, str, str]]:
    for rule in rules:
        assert set(rule) <= {"apiGroups", "resources", "resourceNames", "verbs"}, rule
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                for name in rule.get("resourceNames", [""]):
                    for verb in rule["verbs"]:
                        yield group, resource, name, verb


with (ROOT / "tests/packaging/rbac_matrix.csv").open(newline="") as file:
    MATRIX = list(csv.DictReader(file))


def expected(controller: str, backend: str, mode: str) -> set[tuple[str, ...]]:
    """What the matrix says of one account, as :func:`grants` does."""
    return {
        (row["scope"], row["group"], row["resource"], row["name"], verb)
        for row in MATRIX
        if row["controller"] in ("*", controller) and row["backend"] in ("*", backend) and row["mode"] in ("*", mode)
        for verb in row["verbs"].split()
    }


@dataclass(frozen=True, slots=True)
class Proof:
    """A line of the README that shows a right: ``command`` as written, and what it asks."""

    who: tuple[str, ...]
    when: str
    command: str

    @property
    def verb(self) -> str:
        return self.command.split()[3]

    @property
    def kind(self) -> str:
        """Plural and group, as kubectl takes them."""
        return self.command.split()[4].partition("/")[0]

    @property
    def name(self) -> str:
        return self.command.split()[4].partition("/")[2]

    @property
    def group(self) -> str:
        return self.kind.partition(".")[2]

    @property
    def resource(self) -> str:
        """Plural and subresource, as RBAC has them."""
        plural, given = self.kind.partition(".")[0], re.search(r"--subresource=(\S+)", self.command)
        return f"{plural}/{given[1]}" if given else plural

    @property
    def scope(self) -> str:
        return re.search(r"(-A|-n \S+)$", self.command)[1]  # type: ignore[index]


def _proofs() -> Iterator[Proof]:
    text = (CHART / "README.md").read_text()
    text = text[text.index("<!-- rights -->") : text.index("<!-- end of rights -->")]
    who: tuple[str, ...] = ()
    when = ""
    for line in text.splitlines():
        if line.startswith("kubectl auth can-i "):
            yield Proof(who, when, line)
        elif line.endswith(":"):
            named = re.match(r"`(\w+)`", line)
            who, when = ((named[1],) if named else CONTROLLERS), line


PROOFS = list(_proofs())


def leaves(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of the values in a values file; a container's resources are one value."""
    for name, value in values.items():
        if isinstance(value, dict) and value and name != "resources":
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name)
