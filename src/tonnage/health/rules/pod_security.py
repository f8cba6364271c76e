"""Pods that the Pod Security Standard of their namespace forbids: admission plugin PodSecurity."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.health.blocker import REFUSED, Blocker
from tonnage.health.inventory import content
from tonnage.health.rules.admission import FAILED_CREATE
from tonnage.health.setting import Setting
from tonnage.objects import core
from tonnage.workloads.admission import pod_security as standard


def pod_security(setting: Setting) -> Iterator[Blocker]:
    """One blocker for each template that its namespace does not admit, at the first field that breaks the level."""
    for pods in setting.pods:
        level = _level(setting, pods.namespace)
        found = standard.broken(level, pods.spec, pods.template.needs)
        refused = standard.refusal(level, pods.spec, pods.template.needs)
        if refused is None:
            continue
        name, made = pods.object.name, not isinstance(pods.object, core.Pod)
        reason = FAILED_CREATE if made else "Forbidden"
        shown = f"{'Error creating: ' if made else ''}{refused.sentence(f'{name}-' if made else name)}"
        message = f"namespace {pods.namespace} enforces Pod Security {level}: no pod with {found[0].short} is admitted"
        help_ = f"leave that out, or set the namespace's label {standard.ENFORCE} to a level that allows it"
        yield Blocker(
            "pod-security-refuses", REFUSED, pods.ref, pods.where(found[0].field), message, help_, reason, shown
        )


def _level(setting: Setting, namespace: str) -> str:
    one = setting.inventory.find("Namespace", namespace)
    metadata = content(one).get("metadata") if one is not None else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return standard.level_of(labels) if isinstance(labels, dict) else ""
