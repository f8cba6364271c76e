"""Annotations of a Deployment's ReplicaSets: revision, its history, and the sizes they were made for. Pure.

Source: kubernetes/kubernetes v1.36 pkg/controller/deployment/util/deployment_util.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.apiserver.controllers.meta import annotations_of
from tonnage.kube.verbs import JsonObject

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ROLLBACK = "deprecated.deployment.rollback.to"
_NOT_COPIED = frozenset((REVISION, HISTORY, DESIRED, MOST, _LAST_APPLIED, _ROLLBACK))
_HISTORY_CHARACTERS = 2000


def revision_of(obj: JsonObject) -> int:
    """The revision; 0 for none or one that is not a number."""
    text = annotations_of(obj).get(REVISION, "0")
    return int(text) if text.isdigit() else 0


def highest_revision(replica_sets: Iterable[JsonObject]) -> int:
    """The highest revision; 0 without any."""
    return max(map(revision_of, replica_sets), default=0)


def number_in(obj: JsonObject, annotation: str) -> int | None:
    """The number in an annotation; None where it is missing or no number."""
    text = annotations_of(obj).get(annotation, "")
    return int(text) if text.isdigit() else None


def new_set_annotations(deployment: JsonObject, before: dict[str, str], revision: int) -> dict[str, str]:
    """The annotations of the ReplicaSet that holds the newest template, given those that it has."""
    copied = {key: value for key, value in annotations_of(deployment).items() if key not in _NOT_COPIED}
    annotations = {**before, **copied}
    old = before.get(REVISION, "")
    if old and not old.isdigit():
        return annotations
    if int(old or 0) < revision:
        annotations[REVISION] = str(revision)
        if old:
            annotations[HISTORY] = _with_history(before.get(HISTORY, ""), old)
    return annotations


def size_annotations(desired: int, surge: int) -> dict[str, str]:
    """What a ReplicaSet remembers of the Deployment's size when it is scaled."""
    return {DESIRED: str(desired), MOST: str(desired + surge)}


def _with_history(history: str, revision: str) -> str:
    revisions = [*history.split(","), revision] if history else [revision]
    while len(",".join(revisions)) > _HISTORY_CHARACTERS:
        del revisions[0]
    return ",".join(revisions)
