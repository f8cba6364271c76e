"""What each controller's account may do, as a table: verbs per controller, backend and mode."""

from __future__ import annotations

import pytest

from chart_builders import (
    CASES,
    CONTROLLERS,
    MATRIX,
    OPERATOR,
    PROMETHEUS,
    PROOFS,
    Helm,
    Proof,
    container,
    expected,
    grants,
    of_kind,
    only,
    options,
)
from tonnage.kube import resources
from tonnage.live.groups import KINDS

READ = {"get", "list", "watch"}

ACCOUNTS = [
    (controller, backend, mode)
    for controller, backends in {
        "scheduler": ["static", "relayout"],
        "replicas": [""],
        "nodes": ["nodeclaims", "aws", "report"],
    }.items()
    for backend in backends
    for mode in ("observe", "apply")
]


@pytest.mark.peer
@pytest.mark.parametrize(("controller", "backend", "mode"), ACCOUNTS)
def test_an_account_may_do_what_the_matrix_says_and_no_more(
    helm: Helm, controller: str, backend: str, mode: str
) -> None:
    more = {
        "scheduler": {"partitioning": backend},
        "nodes": {"backend": backend, "awsCluster": "prod"},
        "replicas": {"prometheusUrl": PROMETHEUS},
    }[controller]
    objects = helm.template(only(controller, mode=mode, **more) | {"gpuOperator": {"namespace": OPERATOR}})
    assert grants(objects, controller) == expected(controller, backend, mode)


@pytest.mark.peer
def test_without_a_gpu_operator_nobody_reaches_a_config_map(helm: Helm) -> None:
    objects = helm.template(CASES["apply"])
    assert not any(grant[2] == "configmaps" for name in CONTROLLERS for grant in grants(objects, name))
    assert all(options(one)["gpu-operator-namespace"] == "" for one in of_kind(objects, "Deployment").values())


@pytest.mark.peer
@pytest.mark.parametrize("case", CASES)
def test_who_observes_has_read_verbs_only_whatever_the_others_do(helm: Helm, case: str) -> None:
    objects = helm.template(CASES[case])
    for name, deployment in of_kind(objects, "Deployment").items():
        controller = name.removeprefix("tonnage-")
        writes = {grant for grant in grants(objects, controller) if grant[-1] not in READ}
        applies = "--mode=apply" in container(deployment)["args"]
        assert bool(writes) == applies, writes


@pytest.mark.peer
@pytest.mark.parametrize("case", CASES)
def test_no_role_has_a_wildcard_or_reaches_secrets(helm: Helm, case: str) -> None:
    for role in helm.template(CASES[case]):
        if role["kind"] not in ("ClusterRole", "Role"):
            continue
        for rule in role["rules"]:
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
            assert not any("*" in word for word in words), rule
            assert not words & {"secrets", "escalate", "impersonate", "bind", "deletecollection"}, rule


@pytest.mark.peer
@pytest.mark.parametrize("case", CASES)
def test_a_role_is_bound_to_its_own_account_alone(helm: Helm, case: str) -> None:
    objects = helm.template(CASES[case])
    accounts = {
        name: deployment["spec"]["template"]["spec"]["serviceAccountName"]
        for name, deployment in of_kind(objects, "Deployment").items()
    }
    for kind in ("ClusterRole", "Role"):
        bindings = of_kind(objects, f"{kind}Binding")
        assert set(bindings) == set(of_kind(objects, kind))
        for name, binding in bindings.items():
            assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
            assert [subject["name"] for subject in binding["subjects"]] == [accounts[name.removesuffix("-gpus")]]


@pytest.mark.parametrize(("controller", "backend", "mode"), ACCOUNTS)
def test_the_readme_has_a_proof_of_every_right_of_the_matrix_and_of_no_other(
    controller: str, backend: str, mode: str
) -> None:
    settings = {f"`backend: {backend}`", f"`partitioning: {backend}`", "`gpuOperator.namespace`"}
    shown = {
        question
        for proof in PROOFS
        if controller in proof.who
        if "`apply`" not in proof.when or mode == "apply"
        if "with `" not in proof.when or any(setting in proof.when for setting in settings)
        for question in asked(proof)
    }
    assert shown == expected(controller, backend, mode)


def asked(proof: Proof) -> set[tuple[str, ...]]:
    """What a proof's command asks, as the matrix has it."""
    verbs = ["get", "list", "watch"] if "both modes" in proof.when else [proof.verb]
    scope = {"-A": "cluster", "-n tonnage": "release", "-n gpu-operator": "gpu-operator"}[proof.scope]
    return {(scope, proof.group, proof.resource, proof.name, verb) for verb in verbs}


AUTHORIZED_ONLY = ("binding",)
"""Subresources that stand in rights alone: Kubernetes asks for them where fields of a status are written."""


def test_what_the_matrix_names_are_resources_that_tonnage_knows() -> None:
    watched = [resource for resource, _ in KINDS]
    known = {(one.group, one.plural): one for one in (*resources.SERVED, resources.CLUSTER_POLICIES, *watched)}
    assert {(one.group, one.plural) for one in watched} <= {(row["group"], row["resource"]) for row in MATRIX}
    for row in MATRIX:
        plural, _, subresource = row["resource"].partition("/")
        resource = known[row["group"], plural]
        checked = AUTHORIZED_ONLY if resource == resources.RESOURCE_CLAIMS else ()
        assert not subresource or subresource in (*resource.subresources, *checked)
