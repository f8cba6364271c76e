"""Pods whose annotations or resources ask for a part of a GPU that there cannot be (:mod:`tonnage.fleet.asks`)."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.fleet import asks
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.setting import Pods, Setting, requested
from tonnage.objects import core
from tonnage.objects.base import where

_WRITTEN = f"{asks.FRACTION} above 0 and below 1, or {asks.FRACTION_MEMORY} in MiB, and no whole GPU beside it"
_REQUESTED = (
    f"{asks.MEMORY_MIB} in MiB or {asks.MEMORY_PERCENT} up to 100, alike in all containers; {asks.CORES} up to 100; no "
    "MIG instance beside them"
)


def never_given(setting: Setting) -> Iterator[Blocker]:
    """Parts of GPUs that no node can ever give."""
    for pods in setting.pods:
        ask = asks.read(pods.spec, core.pod_requests(pods.spec), pods.template.metadata.annotations)
        if ask.refused:
            yield Blocker(
                "gpu-part-invalid",
                UNSCHEDULABLE,
                pods.ref,
                where(pods.object, _field(pods, ask.refused)),
                f"{ask.refused}: the pods are unschedulable",
                _WRITTEN if pods.template.metadata.annotations.keys() & asks.ANNOTATIONS else _REQUESTED,
                "Unschedulable",
                ask.refused,
            )


def _field(pods: Pods, refused: str) -> str:
    """Where it is asked for: the annotation or resource that is named first, or else one that there is."""
    written = [name for name, _ in asks.relevant(pods.template.metadata.annotations)]
    named = sorted((one for one in written if one in refused), key=lambda one: (refused.index(one), -len(one)))
    for name in (*named, *written):
        return f"{pods.template.field.removesuffix('spec')}metadata.annotations.{name}"
    stated = [name for name in asks.VIRTUAL if core.pod_requests(pods.spec).get(name)]
    named = sorted((name for name in stated if name in refused.split()), key=refused.index)
    return f"{pods.template.field}.{requested(pods.spec, (named or stated)[0])}" if stated else pods.template.field
