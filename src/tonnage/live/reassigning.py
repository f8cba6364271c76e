"""Fields of objects set one after another on a cluster, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tonnage.errors import TonnageError
from tonnage.kube import resources
from tonnage.kube.transport import JSON_PATCH, ClientError
from tonnage.kube.verbs import Client
from tonnage.scaling.reallocation import Assignment

_RESOURCES = {
    one.kind: one
    for one in (
        resources.DEPLOYMENTS,
        resources.STATEFUL_SETS,
        resources.REPLICA_SETS,
        resources.HPAS,
        resources.SCALED_OBJECTS,
    )
}


class NotAssigned(TonnageError):
    """A step could not be done. What was done before it is undone, or the message names what is not."""


def patch(step: Assignment) -> list[dict[str, Any]]:
    """The step as a JSON patch (RFC 6902) that fails where the object is another or the field has changed."""
    made: list[dict[str, Any]] = []
    if step.object.uid:
        made.append({"op": "test", "path": "/metadata/uid", "value": step.object.uid})
    if step.before is not None:
        made.append({"op": "test", "path": step.pointer, "value": step.before})
    if step.after is None:
        return [*made, {"op": "remove", "path": step.pointer}]
    return [*made, {"op": "add", "path": step.pointer, "value": step.after}]


def resource_of(step: Assignment) -> resources.Resource:
    """What kind of object the step changes."""
    return _RESOURCES[step.object.kind]


def carry_out(client: Client, steps: Sequence[Assignment]) -> None:
    """Do all steps in order. Where one fails, those before it are undone.

    Raises NotAssigned then."""
    for number, step in enumerate(steps):
        try:
            _set(client, step)
        except ClientError as error:
            left = _back(client, steps[:number])
            what = f"{step.object}: {'.'.join(step.path)} could not be set to {step.after} ({error})"
            was = f"still to be undone by hand: {'; '.join(left)}" if left else "what was done before is undone"
            raise NotAssigned(f"{what}; {was if number else 'nothing was changed'}") from error


def _set(client: Client, step: Assignment) -> None:
    client.patch(resource_of(step), step.object.name, patch(step), step.object.namespace, content_type=JSON_PATCH)


def _back(client: Client, done: Sequence[Assignment]) -> list[str]:
    left = []
    for step in reversed(done):
        try:
            _set(client, step.undone)
        except ClientError as error:
            left.append(f"{step.object} {'.'.join(step.path)} to {step.before} ({error})")
    return left
