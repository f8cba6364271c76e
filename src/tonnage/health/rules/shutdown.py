"""Hooks and engines that want more time to stop than the pod has.

Source: kubernetes/kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go (killContainer): the hook runs within the
grace period, and what is left of it is the container's, 2 seconds at least.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tonnage.health.blocker import NO_EFFECT, Blocker
from tonnage.health.setting import Setting
from tonnage.objects import core
from tonnage.objects.api.containers import GRACE_S

SLEEP = re.compile(r"\bsleep\s+(\d+)")
_TIMEOUT = re.compile(r"(?<!\S)--shutdown[-_]timeout(?:=|\s+)(\d+)")


def shutdown(setting: Setting) -> Iterator[Blocker]:
    """Commands before the end, with what the engine needs after them, that are cut short by the grace period."""
    for pods in setting.pods:
        written = pods.spec.termination_grace_period_seconds
        grace = GRACE_S if written is None else written
        for index, container in enumerate(pods.spec.containers):
            slept, drained = _sleeps(container), _drains(container)
            if slept + drained <= grace or not slept:
                continue
            needed = f"{slept} s of the preStop hook"
            needed += f" and {drained} s of --shutdown-timeout" if drained else ""
            yield Blocker(
                "prestop-exceeds-grace-period",
                NO_EFFECT,
                pods.ref,
                pods.where(f"containers[{index}].lifecycle.preStop"),
                f"{needed} take longer than terminationGracePeriodSeconds, {grace}: the container is killed before",
                f"set terminationGracePeriodSeconds: {slept + drained} or more",
                "FailedPreStopHook",
                some=True,
            )


def _sleeps(container: core.Container) -> int:
    hook = container.lifecycle.pre_stop if container.lifecycle else None
    words = " ".join(hook.exec.command) if hook is not None and hook.exec is not None else ""
    own = hook.sleep.seconds if hook is not None and hook.sleep is not None else 0
    return max([own, *(int(seconds[:9]) for seconds in SLEEP.findall(words))])


def _drains(container: core.Container) -> int:
    found = _TIMEOUT.search(" ".join((*container.command, *container.args)))
    return int(found[1][:9]) if found else 0
