"""Who places pods: schedulers that are known by name, and those that a set of objects runs itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tonnage.facts import schedulers
from tonnage.health.inventory import content
from tonnage.objects import core
from tonnage.objects.base import KubeObject

_PROFILE = re.compile(r"schedulerName[\"']?\s*:\s*[\"']?([-a-z0-9./]+)")
_OPTION = re.compile(r"--scheduler-name[= ]([-a-z0-9./]+)")


def running(objects: Iterable[KubeObject]) -> tuple[str, ...]:
    """Every schedulerName that somebody answers to."""
    return tuple(dict.fromkeys((*schedulers.names(), *run_here(objects))))


def run_here(objects: Iterable[KubeObject]) -> Iterator[str]:
    """Schedulers that the objects themselves run: profiles of a kube-scheduler's configuration, or a program that is
    told its name."""
    for one in objects:
        if isinstance(one, core.ConfigMap):
            for text in one.data.values():
                if "KubeSchedulerConfiguration" in text:
                    yield from _PROFILE.findall(text)
        elif "--scheduler-name" in (words := _words(content(one))):
            yield from _OPTION.findall(words)


def _words(value: object) -> str:
    """The words of all command lines in an object."""
    if isinstance(value, dict):
        return " ".join(_words(inner) for key, inner in value.items() if key != "metadata")
    if isinstance(value, list):
        return " ".join(map(_words, value))
    return value if isinstance(value, str) else ""
