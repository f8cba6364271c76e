"""Flags of SGLang and TensorRT-LLM servers that the simulated engine does not follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tonnage.decisions import Finding, Ref
from tonnage.health.setting import Pods
from tonnage.inference import other_servers
from tonnage.inference.other_servers import TITLES


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
