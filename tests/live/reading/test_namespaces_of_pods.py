"""Rules about other pods look into the namespaces that there are, by the labels that they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from live.reading.watched import HOSTNAME, Json, Watched, node, pod, why

TEAM_A = {"matchLabels": {"team": "a"}}


def namespace(name: str, **labels: str) -> Json:
    given = {"kubernetes.io/metadata.name": name, **labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": name, "labels": given}}


def away(**more: Any) -> Json:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "x"}}} | more
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_a_pod_stays_off_the_node_of_pods_in_a_namespace_that_it_selects() -> None:
    there = pod("x", "n1", namespace="a", labels={"app": "x"})
    it = pod("it", affinity=away(namespaceSelector=TEAM_A))
    seen = Watched(namespace("a", team="a"), namespace("default"), node("n1"), node("n2"), there, it)
    assert seen.feasible("it") == {"n2"}


def test_a_bound_pod_keeps_pods_of_a_namespace_that_it_selects_off_its_node() -> None:
    there = pod("x", "n1", namespace="b", affinity=away(namespaceSelector=TEAM_A))
    it = pod("it", namespace="a", labels={"app": "x"})
    seen = Watched(namespace("a", team="a"), namespace("b"), node("n1"), node("n2"), there, it)
    assert seen.feasible("it", "a") == {"n2"}


def test_a_namespace_that_is_labelled_later_counts_from_then_on() -> None:
    there = pod("x", "n1", namespace="a", labels={"app": "x"})
    seen = Watched(namespace("a"), node("n1"), there, pod("it", affinity=away(namespaceSelector=TEAM_A)))
    assert seen.feasible("it") == {"n1"}
    seen.changes.take()
    seen.see(namespace("a", team="a"))
    assert seen.feasible("it") == set()
    assert seen.changes.take() == {"pod"}  # who waits is looked at again
    seen.see(namespace("a", team="a"))
    assert seen.changes.take() == frozenset()
    seen.gone(namespace("a", team="a"))
    assert seen.feasible("it") == {"n1"}


@pytest.mark.parametrize(("team", "taken"), [("a", False), ("b", True)])
def test_files_of_a_cluster_have_their_namespaces_weighed(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, team: str, taken: bool
) -> None:
    there = pod("x", "n1", namespace="other", labels={"app": "x"})
    objects = [namespace("other", team=team), node("n1"), there, pod("it", affinity=away(namespaceSelector=TEAM_A))]
    said = why(capfd, tmp_path, objects, "it")
    assert ("would be bound to n1" in said) is taken, said
    assert taken or "didn't match pod anti-affinity rules" in said
