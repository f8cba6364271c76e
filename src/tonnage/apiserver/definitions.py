"""CustomResourceDefinitions: what they must say, and the kind that one defines.

Of several versions the one that is stored is served; objects may have any field, whatever the schema says.
Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/{v1,validation}.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from tonnage.kube.resources import AGE, PrinterColumn, Resource
from tonnage.objects.api.errors import FieldError, invalid_value, one_of, required

JsonObject: TypeAlias = dict[str, Any]

_SCOPES = ("Cluster", "Namespaced")
_CONDITION = re.compile(r"""\[\?\(@\.type\s*==\s*["'](\w+)["']\)\]""")


def complete(obj: JsonObject, now: str) -> None:
    """Fill in what is not written, and the status of one that is served at once. In place."""
    spec = obj.setdefault("spec", {})
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    names.setdefault("singular", kind.lower())
    names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    stored = [one.get("name") for one in spec.get("versions") or () if one.get("storage")]
    words = {
        "NamesAccepted": ("NoConflicts", "no conflicts found"),
        "Established": ("InitialNamesAccepted", "the initial names have been accepted"),
    }
    before = {one.get("type"): one for one in (obj.get("status") or {}).get("conditions") or ()}
    conditions = [
        before.get(type_)
        or {"type": type_, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}
        for type_, (reason, message) in words.items()
    ]
    obj["status"] = {"conditions": conditions, "acceptedNames": dict(names), "storedVersions": stored}


def refused(obj: JsonObject) -> list[FieldError]:
    """What is wrong with one."""
    spec = obj.get("spec") or {}
    names, group = spec.get("names") or {}, spec.get("group")
    causes = [required(f"spec.{field}") for field in ("group", "scope", "versions") if not spec.get(field)]
    causes += [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    if causes:
        return causes
    name, wanted = obj["metadata"].get("name", ""), f"{names['plural']}.{group}"
    if name != wanted:
        causes.append(invalid_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    causes += one_of("spec.scope", spec["scope"], _SCOPES)
    stored = [one for one in spec["versions"] if one.get("storage")]
    if len(stored) != 1:
        why = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", [one.get("name") for one in spec["versions"]], why))
    elif not stored[0].get("served"):
        why = "only the version that is stored is served here, so it has to be"
        causes.append(invalid_value("spec.versions", stored[0].get("name"), why))
    return causes


def changed(obj: JsonObject, old: JsonObject) -> list[FieldError]:
    """What an update may not change here: objects that are stored would be lost."""
    now, before = resource_of(obj), resource_of(old)
    if now == before:
        return []
    return [invalid_value("spec", now.api_version, f"group, version, scope and names stay as they are: {before}")]


def resource_of(obj: JsonObject) -> Resource:
    """The kind that a complete one defines."""
    spec = obj["spec"]
    names, version = spec["names"], next(one for one in spec["versions"] if one.get("storage"))
    printed = version.get("additionalPrinterColumns")
    columns = (AGE,) if not printed else tuple(map(_column, printed))
    return Resource(
        spec["group"],
        version["name"],
        names["kind"],
        names["plural"],
        names["singular"],
        spec["scope"] == "Namespaced",
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        ("status",) if "status" in (version.get("subresources") or {}) else (),
        custom=True,
        open=True,
        columns=columns,
    )


def _column(printed: JsonObject) -> PrinterColumn:
    path = _CONDITION.sub(r"[\1]", printed.get("jsonPath", "")).replace("[-1:]", "[last]").replace("[-1]", "[last]")
    return PrinterColumn(
        printed.get("name", ""), printed.get("type", "string"), path.removeprefix("."), printed.get("priority", 0)
    )
