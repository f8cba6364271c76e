"""Pod templates: whether two are the same, and the hash that names the ReplicaSet of one.

The hash is FNV-1a over the template's JSON with sorted keys. Kubernetes hashes Go's own dump of the struct, so the
numbers differ from those of kube-controller-manager; their form, and all that is built on them, is the same.
Source of the form: kubernetes/kubernetes v1.36 pkg/controller/controller_utils.go ComputeHash.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.apiserver.lifecycle import LETTERS
from tonnage.facts.labels import POD_TEMPLATE_HASH

_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193
_encode = msgspec.json.Encoder(order="sorted").encode


def bare(value: Any) -> Any:
    """A value without what Kubernetes treats as absent: nulls, empty lists, empty objects."""
    if isinstance(value, dict):
        parts = {key: bare(part) for key, part in value.items()}
        return {key: part for key, part in parts.items() if part is not None and part not in ({}, [])}
    return [bare(part) for part in value] if isinstance(value, list) else value


def same_template(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two pod templates are equal but for the hash label."""
    return one == other or comparable(one) == comparable(other)


def comparable(template: dict[str, Any]) -> Any:
    """A pod template as it is compared: without the hash label and without empty parts."""
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {k: v for k, v in (metadata.get("labels") or {}).items() if k != POD_TEMPLATE_HASH}
    return bare({**template, "metadata": metadata})


def template_hash(template: dict[str, Any], collisions: int | None) -> str:
    """The value of the hash label: 32 bits in characters that make no words."""
    data = _encode(comparable(template)) + (b"" if collisions is None else collisions.to_bytes(8, "little"))
    return "".join(LETTERS[ord(digit) % len(LETTERS)] for digit in str(_fnv1a(data)))


def _fnv1a(data: bytes) -> int:
    value = _FNV_OFFSET
    for byte in data:
        value = (value ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return value
