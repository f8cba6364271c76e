"""The Helm chart on a real API server: it installs, its pods are admitted, and each account may do what it should."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sampling

import chart_builders
from chart_builders import CHART, CONTROLLERS, MATRIX, NAMESPACE, OPERATOR, PROMETHEUS, PROOFS, Helm, Proof, expected
from e2e.api import Api
from e2e.control_plane import ControlPlane
from e2e.processes import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ALPHA = {"podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io", "devicetaintrules.resource.k8s.io"}
"""Served only where a feature gate says so: kubectl cannot ask about them elsewhere; :func:`held` does."""
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
TEMPTING = [
    ("", "secrets"),
    ("", "configmaps"),
    ("", "pods/exec"),
    ("", "pods/ephemeralcontainers"),
    ("", "nodes/status"),
    ("", "nodes/proxy"),
    ("", "serviceaccounts/token"),
    ("apps", "deployments/status"),
    ("apps", "statefulsets/scale"),
    ("karpenter.sh", "nodeclaims/status"),
    ("rbac.authorization.k8s.io", "clusterroles"),
]
"""What nobody's account may touch, besides what the matrix has."""
RESOURCES = sorted({(row["group"], row["resource"]) for row in MATRIX} | set(TEMPTING))


def account(controller: str) -> str:
    """The user name of a controller's account."""
    return f"system:serviceaccount:{NAMESPACE}:tonnage-{controller}"


def allowed(api: Api, controller: str, asked: tuple[str, ...]) -> bool:
    """What the API server says of one (scope, group, resource, name, verb); the scope is cluster, release or the
    namespace of the GPU operator."""
    scope, group, resource, name, verb = asked
    plural, _, subresource = resource.partition("/")
    attributes = {
        "namespace": {"cluster": "", "release": NAMESPACE, "gpu-operator": chart_builders.OPERATOR}[scope],
        "group": group,
        "resource": plural,
        "subresource": subresource,
        "name": name,
        "verb": verb,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": account(controller), "groups": groups, "resourceAttributes": attributes},
    }
    return bool(api.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])


def held(api: Api, controller: str) -> set[tuple[str, ...]]:
    """All that an account may do to the resources above, in the whole cluster, to leases in its namespace, and to the
    ConfigMaps of the GPU operator."""
    cluster = [("cluster", *resource, "", verb) for resource, verb in itertools.product(RESOURCES, READ + WRITE)]
    lease = ("release", "coordination.k8s.io", "leases")
    names = ("", *(f"tonnage-{name}" for name in CONTROLLERS))
    leases = [(*lease, name, verb) for name, verb in itertools.product(names, READ + WRITE)]
    maps = [("gpu-operator", "", "configmaps", "", verb) for verb in READ + WRITE]
    return {asked for asked in cluster + leases + maps if allowed(api, controller, asked)}


def meant(controller: str, backend: str, mode: str) -> set[tuple[str, ...]]:
    """The matrix's word on the same questions: who may create any lease may create each."""
    found = expected(controller, backend, mode)
    for scope, group, resource, name, verb in sorted(found):
        if scope == "release" and not name:
            found |= {(scope, group, resource, f"tonnage-{other}", verb) for other in CONTROLLERS}
    return found


@pytest.fixture(scope="module")
def helm(plane: ControlPlane) -> Helm:
    """Helm as the cluster's administrator. The namespace takes restricted pods only."""
    namespace = plane.namespace(NAMESPACE)
    plane.namespace(chart_builders.OPERATOR)
    restricted = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    plane.api().patch(f"/api/v1/namespaces/{namespace}", restricted)
    environment = {"KUBECONFIG": str(plane.kubeconfig()), "HOME": str(plane.folder)}
    return Helm(chart_builders.tools() / "helm", environment)


def install(helm: Helm, values: Mapping[str, Any] | None = None) -> str:
    """Installs or upgrades the release with these values alone; what helm printed."""
    words = ("upgrade", "--install", "tonnage", str(CHART), "--namespace", NAMESPACE, "--reset-values")
    done = helm.run(*words, values={"gpuOperator": {"namespace": chart_builders.OPERATOR}} | dict(values or {}))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_installs_and_its_pods_are_admitted_as_restricted(plane: ControlPlane, helm: Helm) -> None:
    assert "observes, writes nothing" in install(helm)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    until("a pod of each controller", lambda: len(plane.api().items(pods)) == len(CONTROLLERS), 30)
    of = {pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod for pod in plane.api().items(pods)}
    assert sorted(of) == sorted(CONTROLLERS)
    for controller, pod in of.items():
        assert f"--only={controller}" in pod["spec"]["containers"][0]["args"]
        assert "--mode=observe" in pod["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("controller", CONTROLLERS)
def test_who_observes_can_read_the_cluster_and_write_nothing(plane: ControlPlane, helm: Helm, controller: str) -> None:
    install(helm)
    user = f"--as={account(controller)}"

    def can(verb: str, resource: str, *more: str) -> bool:
        return plane.kubectl("auth", "can-i", verb, resource, "-A", user, *more, check=False).stdout.strip() == "yes"

    until("the roles are seen", lambda: can("list", "pods"))
    for verb, resource in (
        ("create", "pods/binding"),
        ("create", "pods/eviction"),
        ("patch", "pods/status"),
        ("update", "deployments.apps/scale"),
        ("delete", "nodes"),
        ("create", "events"),
        ("create", "leases.coordination.k8s.io"),
    ):
        plural, _, subresource = resource.partition("/")
        more = (f"--subresource={subresource}",) if subresource else ()
        assert not can(verb, plural, *more), f"{verb} {resource}"
    assert held(plane.api(), controller) == meant(controller, "nodeclaims", "observe")


@pytest.mark.parametrize(
    ("controller", "backend"),
    [("scheduler", ""), ("replicas", ""), ("nodes", "nodeclaims"), ("nodes", "aws"), ("nodes", "report")],
)
def test_who_applies_may_do_what_its_decisions_take_and_loses_it_when_it_observes_again(
    plane: ControlPlane, helm: Helm, controller: str, backend: str
) -> None:
    nodes = {"backend": backend, "awsCluster": "prod"}
    more = {"replicas": {"prometheusUrl": PROMETHEUS}, "nodes": nodes}.get(controller, {})
    install(helm, {"controllers": {controller: {"mode": "apply"} | more}})
    until("new rights", lambda: held(plane.api(), controller) == meant(controller, backend, "apply"))
    for other in set(CONTROLLERS) - {controller}:
        assert held(plane.api(), other) == meant(other, "nodeclaims", "observe")
    install(helm)
    until("no rights", lambda: held(plane.api(), controller) == meant(controller, "nodeclaims", "observe"))


def defined(plane: ControlPlane) -> None:
    """Every kind that a proof names is one that the server knows: kubectl asks about no other."""
    known = plane.kubectl("api-resources", "--output=name").stdout.split()
    missing = sorted({proof.kind for proof in PROOFS} - set(known) - ALPHA)
    for name in missing:
        plural, _, group = name.partition(".")
        names = {"plural": plural, "singular": plural[:-1], "kind": plural.title(), "listKind": f"{plural.title()}List"}
        schema = {"openAPIV3Schema": {"type": "object"}}
        body = {
            "metadata": {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": names,
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
            },
        }
        plane.api().create(DEFINITIONS, body)
    until("all kinds are known", lambda: known_of(plane) >= {proof.kind for proof in PROOFS} - ALPHA)


def known_of(plane: ControlPlane) -> set[str]:
    return set(plane.kubectl("api-resources", "--output=name").stdout.split())


def proved(plane: ControlPlane, proof: Proof, controller: str, verb: str) -> str:
    """What kubectl answers to a line of the README, in this release."""
    words = proof.command.replace("-n tonnage", f"-n {NAMESPACE}").replace("-n gpu-operator", f"-n {OPERATOR}").split()
    assert words[:3] == ["kubectl", "auth", "can-i"]
    words[3] = verb
    done = plane.kubectl(*words[1:], f"--as={account(controller)}", check=False)
    assert "doesn't have a resource type" not in done.stderr, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("backend", ["nodeclaims", "aws"])
def test_each_right_of_the_readme_is_proved_by_its_command_and_gone_in_observe(
    plane: ControlPlane, helm: Helm, backend: str
) -> None:
    nodes = {"backend": backend, "awsCluster": "prod"}
    scheduler, replicas = {"partitioning": "relayout"}, {"prometheusUrl": PROMETHEUS}
    controllers = {"scheduler": scheduler, "replicas": replicas, "nodes": nodes}
    defined(plane)
    other = {"nodeclaims": "aws", "aws": "nodeclaims"}[backend]
    draw = sampling.draw("whose right to read is proved")
    read_only = {proof.kind for proof in PROOFS if "both modes" in proof.when} if not sampling.LONG else set()
    asked = [
        (proof, controller, verb)
        for proof in PROOFS
        if f"`backend: {other}`" not in proof.when and proof.kind not in ALPHA
        if backend == "nodeclaims" or "`backend:" in proof.when
        for controller in ((draw.choice(proof.who),) if proof.kind in read_only else proof.who)
        for verb in (("get", "list", "watch") if "both modes" in proof.when else (proof.verb,))
    ]

    def answers(only_writes: bool) -> dict[str, str]:
        chosen = [one for one in asked if not only_writes or "`apply`" in one[0].when]
        with ThreadPoolExecutor(4) as pool:
            said = pool.map(lambda one: proved(plane, *one), chosen)
            return {
                f"{proof.command} ({controller}, {verb})": answer
                for (proof, controller, verb), answer in zip(chosen, said, strict=True)
            }

    install(helm, {"mode": "apply", "controllers": controllers})
    last = asked[-1]
    until("new rights", lambda: proved(plane, *last) == "yes")
    assert {command for command, answer in answers(False).items() if answer != "yes"} == set()
    install(helm)
    until("rights are gone", lambda: proved(plane, *last) == "no")
    assert {command for command, answer in answers(True).items() if answer != "no"} == set()


def test_everything_on_is_taken_by_the_api_server(plane: ControlPlane, helm: Helm) -> None:
    custom = {"podMonitor": {"enabled": False}, "prometheusRule": {"enabled": False}}  # their CRDs are not here
    install(helm, chart_builders.EVERYTHING | custom)
    budgets = plane.api().items(f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets")
    policies = plane.api().items(f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies")
    names = [f"tonnage-{controller}" for controller in sorted(CONTROLLERS)]
    assert [sorted(one["metadata"]["name"] for one in found) for found in (budgets, policies)] == [names, names]


def test_it_uninstalls_without_leaving_rights_behind(plane: ControlPlane, helm: Helm) -> None:
    install(helm)
    assert helm.run("uninstall", "tonnage", "--namespace", NAMESPACE).returncode == 0
    until("no rights", lambda: not any(held(plane.api(), controller) for controller in CONTROLLERS))
    kinds = "deployment,serviceaccount,role,rolebinding,clusterrole,clusterrolebinding"
    ours = "app.kubernetes.io/instance=tonnage"
    assert plane.kubectl("get", kinds, "--all-namespaces", "--output=name", f"--selector={ours}").stdout == ""
