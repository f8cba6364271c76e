"""Flags of SGLang and TensorRT-LLM servers that the simulated engine does not follow, and modes of time-slicing that do
not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.decisions import Finding, Ref
from tonnage.health.setting import Pods
from tonnage.inference.servers import other_servers
from tonnage.inference.servers.other_servers import TITLES
from tonnage.machines.cards import LEASE_ANNOTATION
from tonnage.partitioning.leases import FAIR, STRICT


def unread_flags(found: Sequence[Pods]) -> Iterator[Finding]:
    """For each such server its flags that matter and are not read, and those that are not known here."""
    for pods in found:
        server = other_servers.find(pods.spec)
        if server is None or pods.engine is not None:
            continue
        of = Ref(pods.object.kind, pods.object.metadata.name, pods.namespace)
        title = TITLES[server.engine]
        for flag, at in server.line.unread:
            message = f"{title}'s {flag} is not read: the engine runs as without it"
            yield Finding("engine-flag-unread", "info", of, pods.where(server.field(at)), message)
        for flag, at in server.line.unknown:
            message = f"no flag {flag} of {title} is known here: the engine runs as without it"
            yield Finding("engine-flag-unread", "info", of, pods.where(server.field(at)), message)


def unknown_modes(found: Sequence[Pods]) -> Iterator[Finding]:
    """Pods whose annotation names no mode of time-slicing: they take turns."""
    for pods in found:
        mode = pods.template.metadata.annotations.get(LEASE_ANNOTATION)
        if mode is not None and mode not in (STRICT, FAIR):
            of = Ref(pods.object.kind, pods.object.metadata.name, pods.namespace)
            message = f"{LEASE_ANNOTATION} is {mode!r}: expected {STRICT} or {FAIR}; its GPUs are shared in turns"
            yield Finding("gpu-time-slicing-unknown", "warning", of, pods.where(""), message)
