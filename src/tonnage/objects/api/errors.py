"""The checks that the rules of all kinds share, each a list of causes worded as kube-apiserver v1.36 words them.

Source: kubernetes/kubernetes staging/src/k8s.io/apimachinery/pkg/util/validation and pkg/apis/core/validation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from ipaddress import ip_address, ip_network
from typing import Any, TypeAlias

from tonnage.objects import quantity

JsonObject: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing that is wrong with a field: ``reason``, ``message`` and ``field`` as in meta/v1 StatusCause.

    ``value`` is what stands there, ``why`` the message without it, ``supported`` what could stand there. ``at`` is the
    field's path where that is not ``field``: causes name the map for a label, the operator for a toleration's value.
    """

    reason: str
    message: str
    field: str
    value: Any = None
    why: str = ""
    supported: tuple[str, ...] = ()
    at: str = ""

    @property
    def path(self) -> str:
        """Where in the object."""
        return self.at or self.field


_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_NAME})?"
_NAME_WORDS = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
_VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)
_PERCENT_WORDS = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_LONGEST_LABEL, _LONGEST_SUBDOMAIN, _LONGEST_PORT = 63, 253, 15
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_CONFIG_KEY_WORDS = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
    "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
IP_WORDS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_CIDR_WORDS = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
INT32_MAX = 2**31 - 1
NOT_NEGATIVE = "must be greater than or equal to 0"
PROTOCOLS = ("SCTP", "TCP", "UDP")
PORT_WORDS = "must be between 1 and 65535, inclusive"


def show(value: Any) -> str:
    """A value as causes quote it: JSON with sorted keys."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def required(field: str, why: str = "") -> FieldError:
    return FieldError("FieldValueRequired", f"Required value: {why}" if why else "Required value", field, why=why)


def invalid_value(field: str, value: Any, why: str) -> FieldError:
    return FieldError("FieldValueInvalid", f"Invalid value: {show(value)}: {why}", field, value, why)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    names = tuple(supported)
    listed = ", ".join(f'"{one}"' for one in names)
    message = f"Unsupported value: {show(value)}: supported values: {listed}"
    return FieldError("FieldValueNotSupported", message, field, value, supported=names)


def forbidden(field: str, why: str) -> FieldError:
    return FieldError("FieldValueForbidden", f"Forbidden: {why}", field, why=why)


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", f"Duplicate value: {show(value)}", field, value)


def not_found(field: str, value: Any, known: Iterable[str]) -> FieldError:
    """``known``: what is there."""
    return FieldError("FieldValueNotFound", f"Not found: {show(value)}", field, value, supported=tuple(known))


def placed(errors: Iterable[FieldError], at: str) -> list[FieldError]:
    """The same errors, whose field's own path in the object is ``at``."""
    return [replace(error, at=at) for error in errors]


def one_of(field: str, value: Any, supported: Iterable[str]) -> list[FieldError]:
    """The value is one of these; nothing is said of one that is not written."""
    listed = tuple(supported)
    return [] if value is None or value in listed else [unsupported(field, value, listed)]


def at_least_zero(field: str, value: Any) -> list[FieldError]:
    return [invalid_value(field, value, NOT_NEGATIVE)] if _number(value) and value < 0 else []


def within(field: str, value: Any, low: int, high: int) -> list[FieldError]:
    if not _number(value) or low <= value <= high:
        return []
    return [invalid_value(field, value, f"must be between {low} and {high}, inclusive")]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# ---- names and labels ----


def label_faults(text: str) -> list[str]:
    """What keeps a text from being a DNS label."""
    faults = [f"must be no more than {_LONGEST_LABEL} bytes"] if len(text) > _LONGEST_LABEL else []
    if not re.fullmatch(_LABEL, text):
        if re.fullmatch(SUBDOMAIN, text):
            return [*faults, "must not contain dots"]
        faults.append(_LABEL_WORDS)
    return faults


def subdomain_faults(text: str) -> list[str]:
    """What keeps a text from being a DNS subdomain."""
    faults = [f"must be no more than {_LONGEST_SUBDOMAIN} bytes"] if len(text) > _LONGEST_SUBDOMAIN else []
    return faults if re.fullmatch(SUBDOMAIN, text) else [*faults, _SUBDOMAIN_WORDS]


def qualified_faults(text: str) -> list[str]:
    """What keeps a text from being a label's key."""
    parts = text.split("/")
    if len(parts) > 2:
        return [
            f"a valid label key {_NAME_WORDS} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    faults = []
    if len(parts) == 2:
        faults = (
            [f"prefix part {fault}" for fault in subdomain_faults(parts[0])]
            if parts[0]
            else ["prefix part must be non-empty"]
        )
    name = parts[-1]
    if not name:
        faults.append("name part must be non-empty")
    elif len(name) > _LONGEST_LABEL:
        faults.append(f"name part must be no more than {_LONGEST_LABEL} bytes")
    return faults if re.fullmatch(_NAME, name) else [*faults, f"name part {_NAME_WORDS}"]


def value_faults(text: str) -> list[str]:
    """What keeps a text from being a label's value."""
    faults = [f"must be no more than {_LONGEST_LABEL} bytes"] if len(text) > _LONGEST_LABEL else []
    return faults if re.fullmatch(_VALUE, text) else [*faults, _VALUE_WORDS]


def port_name_faults(text: str) -> list[str]:
    """What keeps a text from being a port's name."""
    faults = []
    if len(text) > _LONGEST_PORT:
        faults.append(f"must be no more than {_LONGEST_PORT} characters")
    if not re.fullmatch("[-a-z0-9]+", text):
        faults.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", text):
        faults.append("must contain at least one letter (a-z)")
    if "--" in text:
        faults.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        faults.append("must not begin or end with a hyphen")
    return faults


def config_key_faults(text: str) -> list[str]:
    """What keeps a text from being a key of a ConfigMap or Secret."""
    faults = [f"must be no more than {_LONGEST_SUBDOMAIN} characters"] if len(text) > _LONGEST_SUBDOMAIN else []
    if not _CONFIG_KEY.fullmatch(text):
        return [*faults, _CONFIG_KEY_WORDS]
    if text == ".":
        return [*faults, "must not be '.'"]
    if text == "..":
        return [*faults, "must not be '..'"]
    return [*faults, "must not start with '..'"] if text.startswith("..") else faults


def descending_faults(text: str) -> list[str]:
    """What keeps a path from leading downwards."""
    faults = ["must be a relative path"] if text.startswith("/") else []
    return [*faults, "must not contain '..'"] if ".." in text.split("/") else faults


def said(field: str, value: Any, faults: Iterable[str]) -> list[FieldError]:
    return [invalid_value(field, value, fault) for fault in faults]


def labels(field: str, given: Any) -> list[FieldError]:
    """Keys and values of a label map."""
    causes = []
    for key, value in sorted((given or {}).items()):
        own = said(field, key, qualified_faults(key)) + said(field, value, value_faults(value or ""))
        causes += placed(own, f"{field}.{key}")
    return causes


def template_metadata(field: str, given: Mapping[str, Any], *, short: bool = False) -> list[FieldError]:
    """Labels and annotations of a pod template's metadata, which stands at ``field``. The API says of some that they
    stand at the template itself: ``short`` for the labels, always for the annotations."""
    above = field.removesuffix(".metadata")
    causes: list[FieldError] = []
    for key in sorted(given.get("annotations") or {}):
        own = said(f"{above}.annotations", key, qualified_faults(key.lower()))
        causes += placed(own, f"{field}.annotations.{key}")
    for error in labels(f"{field}.labels", given.get("labels")):
        causes.append(replace(error, field=f"{above}.labels") if short else error)
    return causes


def address(field: str, text: str) -> list[FieldError]:
    """An IP address."""
    try:
        ip_address(text)
    except ValueError:
        return [invalid_value(field, text, IP_WORDS)]
    return []


def network(field: str, text: str) -> list[FieldError]:
    """A range of IP addresses."""
    try:
        ip_network(text, strict=False)
    except ValueError:
        return [invalid_value(field, text, _CIDR_WORDS)]
    return [] if "/" in text else [invalid_value(field, text, _CIDR_WORDS)]


def selector(field: str, given: Mapping[str, Any]) -> list[FieldError]:
    """A meta/v1 LabelSelector."""
    causes = labels(f"{field}.matchLabels", given.get("matchLabels"))
    for index, wanted in enumerate(given.get("matchExpressions") or ()):
        path = f"{field}.matchExpressions[{index}]"
        operator, values = wanted.get("operator", ""), wanted.get("values") or []
        if operator in ("In", "NotIn") and not values:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            causes.append(
                forbidden(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            )
        elif operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            causes.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
        causes += said(f"{path}.key", wanted.get("key", ""), qualified_faults(wanted.get("key", "")))
        for place, value in enumerate(values):
            causes += said(f"{path}.values[{place}]", value, value_faults(value))
    return causes


def metadata(obj: JsonObject, *, name_is_label: bool) -> list[FieldError]:
    """metadata of any object: name, namespace, labels, annotations."""
    meta = obj.get("metadata") or {}
    name = meta.get("name") or ""
    faults = label_faults if name_is_label else subdomain_faults
    prefix = meta.get("generateName") or ""
    if not name and not prefix:
        return [required("metadata.name", "name or generateName is required")]
    causes = said("metadata.generateName", prefix, faults(prefix.removesuffix("-"))) if prefix else []
    causes += said("metadata.name", name, faults(name)) if name else []
    causes += labels("metadata.labels", meta.get("labels"))
    for key in sorted(meta.get("annotations") or {}):
        own = said("metadata.annotations", key, qualified_faults(key.lower()))
        causes += placed(own, f"metadata.annotations.{key}")
    causes += _owners(meta.get("ownerReferences") or [])
    for index, finalizer in enumerate(meta.get("finalizers") or ()):
        here = f"metadata.finalizers[{index}]"
        causes += placed(said("metadata.finalizers", finalizer, qualified_faults(finalizer)), here)
        causes += said(here, finalizer, finalizer_faults(finalizer))
    return causes


def finalizer_faults(text: str) -> list[str]:
    """What keeps the name of a finalizer from being one of Kubernetes' own or of others."""
    if "/" in text or text in _FINALIZERS:
        return []
    return ["name is neither a standard finalizer name nor is it fully qualified"]


def _owners(owners: list[JsonObject]) -> list[FieldError]:
    """metadata.ownerReferences; kube-apiserver names an entry's field without its number, or the whole list."""
    causes: list[FieldError] = []
    for index, owner in enumerate(owners):
        version = owner.get("apiVersion") or ""
        for part in ("apiVersion", "kind", "name", "uid"):
            why = "" if owner.get(part) else "must not be empty"
            if part == "apiVersion" and (version.count("/") > 1 or version.endswith("/")):
                why = "version must not be empty"
            if why:
                wrong = invalid_value(f"metadata.ownerReferences.{part}", owner.get(part) or "", why)
                causes += placed([wrong], f"metadata.ownerReferences[{index}].{part}")
        if (version, owner.get("kind")) == ("v1", "Event"):
            why = "/v1, Kind=Event is disallowed from being an owner"
            message = f"Invalid value: {_in_order(owner, _OWNER)}: {why}"
            at = f"metadata.ownerReferences[{index}]"
            causes.append(FieldError("FieldValueInvalid", message, "metadata.ownerReferences", owner, why, at=at))
    leading = [f"{one.get('kind')}/{one.get('name')}" for one in owners if one.get("controller")]
    if len(leading) > 1:
        found = f'Found "true" in references for {leading[0]} and {leading[1]}'
        why = f"Only one reference can have Controller set to true. {found}"
        shown = ",".join(_in_order(one, _OWNER) for one in owners)
        message = f"Invalid value: [{shown}]: {why}"
        causes.append(FieldError("FieldValueInvalid", message, "metadata.ownerReferences", owners, why))
    return causes


def _in_order(given: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """A struct as kube-apiserver quotes it, its fields in this order."""
    known = {key: given[key] for key in keys if key in given}
    return json.dumps(known, separators=(",", ":"), ensure_ascii=False)


# ---- numbers ----


def amount(written: Any) -> Fraction | None:
    """A quantity's value; None for what is none (which decoding has refused already)."""
    try:
        return quantity.parse(written)
    except (ValueError, TypeError):
        return None


def count_or_percent(field: str, value: Any, *, at_most_all: bool = False) -> list[FieldError]:
    """An integer or a percentage, not negative; ``at_most_all``: of at most 100%."""
    if isinstance(value, str):
        if not re.fullmatch("[0-9]+%", value):
            return [invalid_value(field, value, _PERCENT_WORDS)]
        if at_most_all and int(value[:-1]) > 100:
            return [invalid_value(field, value, "must not be greater than 100%")]
        return []
    return at_least_zero(field, value)


def is_zero(value: Any) -> bool:
    """Whether an integer or percentage is none."""
    return value in (None, 0, "0%")
