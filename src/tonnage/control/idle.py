"""Why a controller does nothing: nobody asked it to, or what was asked for cannot be done. The reasons in one place."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from tonnage.control.opt_in import AUTOSCALE, PREFIX, OptInRefusal
from tonnage.decisions import Ref
from tonnage.objects import karpenter
from tonnage.scaling.policies import POLICIES

BUYS = f"{PREFIX}/buys"
"""On a NodePool: ``true`` lets the nodes controller launch and terminate its nodes."""
LIMITS = f"{PREFIX}/limits"
"""On such a NodePool: the limits that the nodes controller keeps, as JSON. ``spec.limits`` is Karpenter's own: with
``nodes: 0`` there, Karpenter launches what the nodes controller asks for and nothing of its own accord."""


class Idle(Struct, frozen=True):
    """One reason. ``reason`` is that of its event; ``about``: the object that asked, None where nobody did."""

    reason: str
    message: str
    about: Ref | None = None

    @property
    def asked(self) -> bool:
        """Whether something was asked for that cannot be done."""
        return self.about is not None

    def __str__(self) -> str:
        return f"{self.about}: {self.message}" if self.about is not None else self.message


def of_scheduler(name: str, pods: Iterable[str]) -> Iterator[Idle]:
    """Of the scheduler, by the scheduler names of the pods that there are."""
    if name not in pods:
        yield Idle("NoPods", f"no pod has schedulerName: {name}")


def of_replicas(asked: int, refused: Iterable[OptInRefusal], silent: Mapping[Ref, str]) -> Iterator[Idle]:
    """Of the replicas controller: ``asked`` are under a policy, of which ``silent`` have no readings, and why."""
    refused = tuple(refused)
    for one in refused:
        view = one.workload
        yield Idle(one.reason, one.message, Ref(view.kind, view.name, view.namespace, view.uid))
    for ref, why in silent.items():
        yield Idle("NoMetrics", f"the replicas stay as they are: {why}", ref)
    if not asked and not refused:
        yield Idle("NoDeployments", f"no Deployment has the annotation {AUTOSCALE}: {' or '.join(POLICIES)}")


def of_nodes(every: Iterable[karpenter.NodePool], readable: Iterable[str]) -> Iterator[Idle]:
    """Of the nodes controller: of all NodePools, those that are ``readable`` have their node class."""
    known, asked = frozenset(readable), False
    for pool in every:
        written = pool.metadata.annotations.get(BUYS)
        if written is None or written == "false":
            continue
        asked = True
        ref = Ref("NodePool", pool.name, uid=pool.metadata.uid)
        if written != "true":
            yield Idle("InvalidAnnotation", f'{BUYS}: "{written}", expected true', ref)
        elif pool.name not in known:
            name = pool.spec.template.spec.node_class_ref.name
            yield Idle("NodeClassNotFound", f"no node is launched: there is no EC2NodeClass {name}", ref)
        elif not _is_mapping(pool.metadata.annotations.get(LIMITS, "")):
            message = f"{LIMITS} is not a mapping in JSON: spec.limits are used instead"
            yield Idle("InvalidAnnotation", message, ref)
    if not asked:
        yield Idle("NoNodePools", f'no NodePool has the annotation {BUYS}: "true"')


def _is_mapping(written: str) -> bool:
    try:
        return not written or isinstance(json.loads(written), dict)
    except ValueError:
        return False
