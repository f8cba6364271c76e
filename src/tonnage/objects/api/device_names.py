"""Names of drivers, pools, attributes and taints of devices, and lists of them, as kube-apiserver v1.36 takes them in
slices and in claims.

Source: kubernetes/kubernetes v1.36 pkg/apis/resource/validation/validation.go.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tonnage.objects.api.errors import (
    FieldError,
    duplicate,
    invalid_value,
    one_of,
    qualified_faults,
    required,
    said,
    subdomain_faults,
    value_faults,
)

EFFECTS = ("NoExecute", "NoSchedule", "None")
_LONGEST_DRIVER, _LONGEST_ID = 63, 32
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_IDENTIFIER_WORDS = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters "
    "or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


def too_many(field: str, count: int, most: int) -> list[FieldError]:
    """More items than a list or map may have."""
    if count <= most:
        return []
    word = "item" if most == 1 else "items"
    why = f"must have at most {most} {word}"
    return [FieldError("FieldValueTooMany", f"Too many: {count}: {why}", field, count, why)]


def too_long(field: str, text: str, most: int) -> list[FieldError]:
    """A longer text than a field may have."""
    why = f"may not be more than {most} bytes"
    if len(text.encode()) <= most:
        return []
    return [FieldError("FieldValueTooLong", f"Too long: {why}", field, text, why)]


def each(
    field: str,
    items: Any,
    most: int,
    rule: Callable[[str, Any], list[FieldError]],
    key: Callable[[Any], Any] | None = None,
) -> list[FieldError]:
    """The items of a list, of which there are at most so many; ``key``: by what no two may be equal."""
    listed: Sequence[Any] = items or ()
    if len(listed) > most:
        return too_many(field, len(listed), most)
    errors = [error for at, item in enumerate(listed) for error in rule(f"{field}[{at}]", item)]
    seen = set()
    for at, item in enumerate(listed) if key is not None else ():
        own = key(item) if key is not None else None
        if own in seen:
            errors.append(duplicate(f"{field}[{at}]", own))
        seen.add(own)
    return errors


def named(field: str, text: str, faults: Callable[[str], list[str]]) -> list[FieldError]:
    """A name that has to be there and to be a label or subdomain."""
    return said(field, text, faults(text)) if text else [required(field)]


def driver(field: str, text: str) -> list[FieldError]:
    """A driver's name."""
    if not text:
        return [required(field)]
    return too_long(field, text, _LONGEST_DRIVER) + said(field, text, subdomain_faults(text))


def pool(field: str, text: str) -> list[FieldError]:
    """A pool's name: subdomains between slashes."""
    if not text:
        return [required(field)]
    return [error for part in text.split("/") for error in said(field, part, subdomain_faults(part))]


def qualified(field: str, text: str) -> list[FieldError]:
    """The name of an attribute or a capacity: `domain/id` or `id`."""
    domain, slash, own = text.rpartition("/")
    errors: list[FieldError] = []
    if slash:
        errors += driver(field, domain) if domain else [invalid_value(field, "", "the domain must not be empty")]
        if not own:
            return [*errors, invalid_value(field, "", "the name must not be empty")]
    errors += too_long(field, own, _LONGEST_ID)
    return errors if _IDENTIFIER.fullmatch(own) else [*errors, invalid_value(field, own, _IDENTIFIER_WORDS)]


def fully_qualified(field: str, text: str) -> list[FieldError]:
    """The same, with its domain."""
    errors = qualified(field, text)
    if "/" not in text:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid_value(field, text, why))
    return errors


def taint(field: str, given: Mapping[str, Any]) -> list[FieldError]:
    """A taint of a device."""
    errors = said(f"{field}.key", given.get("key", ""), qualified_faults(given.get("key", "")))
    if given.get("value"):
        errors += said(f"{field}.value", given["value"], value_faults(given["value"]))
    effect = given.get("effect", "")
    return [*errors, *(one_of(f"{field}.effect", effect, EFFECTS) if effect else [required(f"{field}.effect")])]
