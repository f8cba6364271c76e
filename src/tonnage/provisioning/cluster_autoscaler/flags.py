"""The autoscaler's options as its own Deployment and its priority expander's ConfigMap have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from msgspec import Struct

from tonnage.errors import InputError, Problem, Where
from tonnage.facts.claim_support import release
from tonnage.objects import apps, core, duration, tree
from tonnage.objects.base import KubeObject, where
from tonnage.provisioning.cluster_autoscaler.options import EXPANDERS, PRIORITY, AutoscalingOptions

PROGRAM = "cluster-autoscaler"
PRIORITIES = "cluster-autoscaler-priority-expander"
"""The ConfigMap of the priority expander; its key is ``priorities``."""
KEY = "priorities"


class _Flag(Struct, frozen=True):
    """Which option a flag sets, how its text is read, and what it has to be."""

    option: str
    read: Callable[[str], Any]
    expected: str


def _boolean(written: str) -> bool:
    known = {**dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True)}
    known |= dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False)
    return known[written]


def _whole(written: str) -> int:
    number = int(written)
    if number < 0:
        raise ValueError
    return number


def _share(written: str) -> float:
    number = float(written)
    if not 0 <= number <= 1:
        raise ValueError
    return number


def _seconds(written: str) -> int:
    return _whole(written) * 10**9


def _expanders(written: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in written.split(","))
    if len(set(names)) < len(names) or any(name not in EXPANDERS for name in names):
        raise ValueError
    return names


_TIME, _BOOL = "a duration such as 10m", "true or false"
_COUNT, _SHARE = "a whole number from 0", "a number from 0 to 1"
FLAGS: Mapping[str, _Flag] = {
    "expander": _Flag("expanders", _expanders, f"one or more of {', '.join(EXPANDERS)}, each once"),
    "max-nodes-total": _Flag("max_nodes_total", _whole, _COUNT),
    "max-nodes-per-scaleup": _Flag("max_nodes_per_scaleup", _whole, _COUNT),
    "balance-similar-node-groups": _Flag("balance_similar_node_groups", _boolean, _BOOL),
    "scale-down-enabled": _Flag("scale_down_enabled", _boolean, _BOOL),
    "scale-down-unneeded-time": _Flag("unneeded_ns", duration.parse, _TIME),
    "scale-down-unready-time": _Flag("unready_ns", duration.parse, _TIME),
    "scale-down-delay-after-add": _Flag("delay_after_add_ns", duration.parse, _TIME),
    "scale-down-delay-after-delete": _Flag("delay_after_delete_ns", duration.parse, _TIME),
    "scale-down-delay-after-failure": _Flag("delay_after_failure_ns", duration.parse, _TIME),
    "scale-down-utilization-threshold": _Flag("utilization_threshold", _share, _SHARE),
    "scale-down-gpu-utilization-threshold": _Flag("gpu_utilization_threshold", _share, _SHARE),
    "ignore-daemonsets-utilization": _Flag("ignore_daemonsets_utilization", _boolean, _BOOL),
    "skip-nodes-with-system-pods": _Flag("skip_nodes_with_system_pods", _boolean, _BOOL),
    "skip-nodes-with-local-storage": _Flag("skip_nodes_with_local_storage", _boolean, _BOOL),
    "skip-nodes-with-custom-controller-pods": _Flag("skip_nodes_with_custom_controller_pods", _boolean, _BOOL),
    "max-scale-down-parallelism": _Flag("max_scale_down_parallelism", _whole, _COUNT),
    "max-empty-bulk-delete": _Flag("max_empty_bulk_delete", _whole, _COUNT),
    "max-drain-parallelism": _Flag("max_drain_parallelism", _whole, _COUNT),
    "max-graceful-termination-sec": _Flag("max_graceful_termination_ns", _seconds, "a whole number of seconds"),
}
"""Flags that are read; the others set nothing that is decided here."""


def read(objects: Iterable[KubeObject]) -> AutoscalingOptions:
    """The options of the autoscaler that is among these objects; its defaults where there is none.

    Raises InputError, with file and line, for a value that the autoscaler refuses, and for an expander ``priority``
    without priorities that can be read."""
    objects = tuple(objects)
    options, problems, expander = AutoscalingOptions(), list[Problem](), Where()
    for one in objects:
        if not isinstance(one, apps.Deployment):
            continue
        options = replace(options, release=_release(one) or options.release)
        for at, name, written in _flags_of(one):
            flag = FLAGS.get(name)
            if flag is None:
                continue
            if name == "expander":
                expander = at
            try:
                options = replace(options, **{flag.option: flag.read(written)})
            except (ValueError, KeyError):
                problems.append(Problem(at, f"--{name}={written}", f"expected {flag.expected}"))
    config = next((one for one in objects if isinstance(one, core.ConfigMap) and one.name == PRIORITIES), None)
    if config is not None:
        try:
            options = replace(options, priorities=_priorities(config))
        except InputError as error:
            problems += error.problems
    elif PRIORITY in options.expanders:
        hint = f"add the ConfigMap {PRIORITIES}, whose key {KEY} has lists of regular expressions by priority"
        problems.append(Problem(expander, "--expander=priority has no priorities", hint))
    if problems:
        raise InputError(*problems)
    return options


def _release(one: apps.Deployment) -> tuple[int, int] | None:
    """The autoscaler's version by the tag of its image; None where it has none, or is another program."""
    for container in one.spec.template.spec.containers:
        program, _, tag = container.image.rpartition("/")[2].partition("@")[0].partition(":")
        if program.startswith(PROGRAM) and tag:
            try:
                return release(tag)
            except ValueError:
                return None
    return None


def _flags_of(one: apps.Deployment) -> Iterator[tuple[Where, str, str]]:
    for number, container in enumerate(one.spec.template.spec.containers):
        words = [
            (f"spec.template.spec.containers[{number}].{name}[{at}]", word)
            for name, listed in (("command", container.command), ("args", container.args))
            for at, word in enumerate(listed)
        ]
        program = container.image.rpartition("/")[2].partition(":")[0].partition("@")[0]
        if not program.startswith(PROGRAM) and not any(word.rpartition("/")[2] == PROGRAM for _, word in words):
            continue
        for at, (field, word) in enumerate(words):
            if not word.startswith("-"):
                continue
            name, separator, value = word.lstrip("-").partition("=")
            if not separator:
                flag, after = FLAGS.get(name), words[at + 1][1] if at + 1 < len(words) else "-"
                value = "true" if after.startswith("-") or (flag and flag.read is _boolean) else after
            yield where(one, field), name, value.strip("\"'")


def _priorities(config: core.ConfigMap) -> tuple[tuple[int, tuple[str, ...]], ...]:
    at = where(config, f"data.{KEY}")
    hint = "expected whole numbers, each with a list of regular expressions for names of node groups"
    text = config.data.get(KEY, "")
    if not text.strip():
        raise InputError(Problem(at, f"{KEY} is missing or empty", hint))
    documents = [one.value for one in tree.parse(text, at.file)]
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError(Problem(at, "is not a mapping", hint))
    found, problems = [], []
    for key, listed in documents[0].items():
        try:
            number = int(key)
        except ValueError:
            problems.append(Problem(at, f"priority {key}", hint))
            continue
        if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
            problems.append(Problem(at, f"priority {key} is not a list of texts", hint))
            continue
        for each in listed:
            try:
                re.compile(each)
            except re.error as error:
                message = f"priority {key}: {each!r} is no regular expression: {error}"
                problems.append(Problem(at, message, "quote what is meant literally with a backslash"))
        found.append((number, tuple(listed)))
    if problems:
        raise InputError(*problems)
    return tuple(sorted(found, reverse=True))
