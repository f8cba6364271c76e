"""How the embedded API says no: the Status object, its reasons and its sentences.

Source of codes, reasons and messages: kubernetes/kubernetes v1.36 staging/src/k8s.io/apimachinery/pkg/api/errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tonnage.kube.resources import Resource
from tonnage.kube.transport import Reply
from tonnage.objects.api.errors import FieldError

JSON_HEADERS = {"content-type": "application/json"}
DOCS = "this is Tonnage's embedded API, see docs/reference/embedded-api.md"
_encode = msgspec.json.Encoder().encode


def with_warnings(warnings: Sequence[str]) -> dict[str, str]:
    """The headers of an answer. Warnings are shown to the user by kubectl."""
    headers = dict(JSON_HEADERS)
    if warnings:
        texts = (text.replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings))
        headers["warning"] = ", ".join(f'299 - "{text}"' for text in texts)
    return headers


class StatusError(Exception):
    """A request that is refused. ``details`` as in meta/v1 StatusDetails."""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        self.code, self.reason, self.message = code, reason, message
        self.details = None if details is None else dict(details)
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        """The Status object."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return {**status, "code": self.code}

    def reply(self, warnings: Sequence[str] = ()) -> Reply:
        """The answer, with Retry-After where Kubernetes sends it, and with what the client was to be told before."""
        headers = with_warnings(warnings)
        if self.details and "retryAfterSeconds" in self.details:
            headers["retry-after"] = str(self.details["retryAfterSeconds"])
        return Reply(self.code, _encode(self.body()), headers)


def qualified(resource: Resource) -> str:
    """``pods`` or ``deployments.apps``."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def qualified_kind(resource: Resource) -> str:
    """``Pod`` or ``Deployment.apps``."""
    return f"{resource.kind}.{resource.group}" if resource.group else resource.kind


def _about(resource: Resource, name: str) -> dict[str, Any]:
    about = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in about.items() if value}


def not_found(resource: Resource, name: str) -> StatusError:
    """404 for an object."""
    return StatusError(404, "NotFound", f'{qualified(resource)} "{name}" not found', _about(resource, name))


def no_such_path() -> StatusError:
    """404 for a path that nothing is served at."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def not_supported(what: str) -> StatusError:
    """405 for what a Kubernetes API server can do and this one does not."""
    return StatusError(405, "MethodNotAllowed", f"{what} not supported here: {DOCS}")


def wrong_method() -> StatusError:
    """405 for a verb that a Kubernetes API server would refuse there too."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(resource: Resource, name: str) -> StatusError:
    """409 for a second object of that name."""
    return StatusError(409, "AlreadyExists", f'{qualified(resource)} "{name}" already exists', _about(resource, name))


def conflict(resource: Resource, name: str, why: str, *, what: str = "") -> StatusError:
    """409: the object is not what the caller thinks. ``what`` replaces the resource's name in the message."""
    message = f'Operation cannot be fulfilled on {what or qualified(resource)} "{name}": {why}'
    about = {"name": name, "kind": what} if what else _about(resource, name)
    return StatusError(409, "Conflict", message, about)


def precondition_failed(resource: Resource, name: str, what: str, given: str, found: str) -> StatusError:
    """409: another object, or another version of it, is meant."""
    why = f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
    return conflict(resource, name, why)


def modified(resource: Resource, name: str) -> StatusError:
    """409: another version is stored."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def bad_request(message: str) -> StatusError:
    """400."""
    return StatusError(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Mapping[str, str]] = ()) -> StatusError:
    """403: admission said no."""
    details = _about(resource, name)
    if causes:
        details["causes"] = [dict(cause) for cause in causes]
    return StatusError(403, "Forbidden", f'{qualified(resource)} "{name}" is forbidden: {why}', details)


def invalid(resource: Resource, name: str, causes: Sequence[FieldError], *, kind: str = "") -> StatusError:
    """422 with a cause for each field. ``kind`` replaces the resource's qualified kind."""
    said = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    text = said[0] if len(said) == 1 else f"[{', '.join(said)}]"
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    shown = kind or qualified_kind(resource)
    name_of, _, group = shown.partition(".")
    details = {"name": name, "group": group, "kind": name_of, "causes": listed}
    details = {key: value for key, value in details.items() if value}
    return StatusError(422, "Invalid", f'{shown} "{name}" is invalid: {text}', details)


def expired(message: str) -> StatusError:
    """410: the resourceVersion asked for is no longer known."""
    return StatusError(410, "Expired", message)


def not_acceptable() -> StatusError:
    """406: no media type that the client takes is spoken here."""
    return StatusError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: application/json", {})


def unsupported_media() -> StatusError:
    """415: the body's media type is not spoken here."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def bad_options(kind: str, cause: FieldError) -> StatusError:
    """422: a parameter of the query has a value that it cannot have. ``kind``: CreateOptions, ListOptions, …"""
    listed = [{"reason": cause.reason, "message": cause.message, "field": cause.field}]
    details = {"group": "meta.k8s.io", "kind": kind, "causes": listed}
    return StatusError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {cause.field}: {cause.message}', details)


def success(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """The Status of a deletion that is done."""
    details = {**_about(resource, name), "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def created() -> dict[str, Any]:
    """The Status of a subresource request that is done."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
