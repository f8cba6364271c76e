"""NodePools that are never Ready: the class of their nodes does not exist.

Source: kubernetes-sigs/karpenter pkg/controllers/nodepool/readiness.
"""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.decisions import Ref
from tonnage.health.blocker import NO_EFFECT, Blocker
from tonnage.health.setting import Setting
from tonnage.objects.base import where
from tonnage.objects.karpenter import NodePool
from tonnage.provisioning import auto_mode

AWS = "karpenter.k8s.aws"


def node_classes(setting: Setting) -> Iterator[Blocker]:
    """NodePools whose nodeClassRef names nothing that is there, by its group, kind or name."""
    known = [(one.api_version.rpartition("/")[0], one.kind, one.name) for one in setting.objects]
    for pool in setting.objects:
        if not isinstance(pool, NodePool):
            continue
        reference = pool.spec.template.spec.node_class_ref
        if (reference.group, reference.kind, reference.name) in known:
            continue
        if auto_mode.is_auto(pool) and reference.name == auto_mode.DEFAULT:
            continue  # a cluster with Auto Mode has it
        same = next(
            ((group, kind) for group, kind, name in known if name == reference.name and "NodeClass" in kind), None
        )
        near = setting.inventory.near(reference.kind, reference.name)
        field, help_ = "name", f"add {reference.kind} {reference.name} to the files"
        if same is not None:
            field = "kind" if same[1] != reference.kind else "group"
            help_ = f"set group: {same[0]} and kind: {same[1]}, as {reference.name} has them"
        elif near:
            help_ = f"did you mean {near}? Else {help_}"
        yield Blocker(
            "nodepool-nodeclass-missing",
            NO_EFFECT,
            Ref("NodePool", pool.name),
            where(pool, f"spec.template.spec.nodeClassRef.{field}"),
            f"{reference.kind} {reference.name} does not exist: the NodePool is not Ready and never launches a node",
            help_,
            "NodeClassNotFound",
            f"{reference.kind} not found on cluster",
        )
