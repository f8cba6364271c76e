"""What OpenAPI says about types and fields: the docstrings of :mod:`tonnage.objects`, and ``api_words.csv``."""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from inspect import cleandoc

import msgspec

from tonnage.objects import apps, autoscaling, batch, core, karpenter, keda, monitoring, policy
from tonnage.objects.api.fields import SCALARS, structs
from tonnage.objects.unknown import read_members

_KINDS: tuple[type[msgspec.Struct], ...] = (
    core.Pod,
    core.Node,
    core.Service,
    core.ConfigMap,
    core.PriorityClass,
    apps.Deployment,
    apps.DaemonSet,
    apps.StatefulSet,
    batch.Job,
    autoscaling.HorizontalPodAutoscaler,
    policy.PodDisruptionBudget,
    karpenter.NodePool,
    karpenter.NodeClaim,
    karpenter.EC2NodeClass,
    keda.ScaledObject,
    monitoring.ServiceMonitor,
)


_QUOTED = re.compile(r"``([^`]+)``")


def _camel(match: re.Match[str]) -> str:
    """A field as the API spells it."""
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), match[1])


@cache
def _docstrings() -> dict[str, str]:
    """By the name of the API's type; ours are found by going down both at once."""
    found: dict[str, str] = {}
    todo = [(kind.__name__, kind) for kind in _KINDS]
    while todo:
        name, struct = todo.pop()
        if name in found or name not in structs():
            continue
        found[name] = _QUOTED.sub(_camel, cleandoc(struct.__doc__ or "").replace("\n", " "))
        members = read_members(struct) or {}
        for field, known in structs()[name].items():
            inner = members.get(field)
            if inner is not None and known.of not in SCALARS:
                todo.append((known.of, inner))
    return found


@cache
def words() -> dict[tuple[str, str], str]:
    """``api_words.csv``: by type and field."""
    text = files("tonnage.apiserver").joinpath("api_words.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {(row["type"], row["field"]): row["words"] for row in rows}


def of_type(struct: str) -> str:
    """What a type is; empty when nobody has said."""
    return words().get((struct, "")) or _docstrings().get(struct, "")


def of_field(struct: str, field: str) -> str:
    """What a field means; empty when nobody has said. Fields of all kinds are listed under ``*``."""
    return words().get((struct, field)) or words().get(("*", field), "")
