"""Errors of the API in words for a person: what is wrong with the cluster or the rights, and what to do."""

from __future__ import annotations

from tonnage.errors import InputError, Problem, Where
from tonnage.kube.resources import Resource
from tonnage.kube.transport import ApiError, ClientError

_CRDS = {
    "karpenter.sh": "Karpenter",
    "karpenter.k8s.aws": "Karpenter's AWS provider",
    "keda.sh": "KEDA",
    "monitoring.coreos.com": "prometheus-operator",
}


def explain(error: ClientError, verb: str = "", resource: Resource | None = None, *, context: str = "") -> InputError:
    """The error as one problem with what to do. ``verb`` is Kubernetes' word (get, list, watch, create, …)."""
    return InputError(problem(error, verb, resource, context=context))


def problem(error: ClientError, verb: str = "", resource: Resource | None = None, *, context: str = "") -> Problem:
    """As :func:`explain`, to be shown rather than raised."""
    where = Where(field=f"context {context}") if context else Where()
    if not isinstance(error, ApiError):
        return Problem(where, f"no connection to the API server: {error}", "is it running, and does the address hold?")
    what = _name(resource)
    if error.code == 401:
        return Problem(
            where, "the API server does not accept the credentials", "log in again: a token may have expired"
        )
    if error.code == 403:
        message = f"not allowed: {verb} {what}" if resource else f"not allowed: {error.message}"
        return Problem(where, message, f"grant the verb by RBAC; the API server says: {error.message}")
    if error.code == 404 and resource is not None and verb in ("list", "watch"):
        owner = _CRDS.get(resource.group)
        hint = f"install the CRDs of {owner}" if owner else f"the API server must serve {resource.api_version}"
        return Problem(where, f"the cluster does not serve {what}", hint)
    return Problem(where, f"{verb} {what}: {error.message}".strip(": ") if verb else error.message, error.reason)


def _name(resource: Resource | None) -> str:
    if resource is None:
        return ""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural
