"""Events about objects that decisions name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tonnage.decisions import Ref
from tonnage.kube.correlation import About
from tonnage.kube.events import EventRecorder
from tonnage.kube.resources import ALL
from tonnage.live.group_kinds import EVERY_KIND

Done = Callable[[], None] | None
_API_VERSION = {resource.kind: resource.api_version for resource in (*reversed(EVERY_KIND), *ALL)}


class EventSink(Protocol):
    """Writes cluster events."""

    def event(self, about: Ref, type_: str, reason: str, message: str, done: Done = None) -> None:
        """``type_``: Normal or Warning. ``done`` is called when it has been written or given up, in any thread."""
        ...


@dataclass(frozen=True, slots=True)
class Events:
    """Implements :class:`EventSink` over an event recorder."""

    recorder: EventRecorder

    def event(self, about: Ref, type_: str, reason: str, message: str, done: Done = None) -> None:
        """``type_``: Normal or Warning. ``done`` is called when it has been written or given up, in any thread."""
        uid = about.name if about.kind == "Node" and not about.uid else about.uid  # as kubelets name their node
        self.recorder.record(
            About(_API_VERSION.get(about.kind, "v1"), about.kind, about.name, about.namespace, uid),
            type_,
            reason,
            message,
            done,
        )


class Silent:
    """Implements :class:`EventSink`: observe mode writes no events either."""

    def event(self, about: Ref, type_: str, reason: str, message: str, done: Done = None) -> None:
        """Nothing."""
        if done is not None:
            done()
