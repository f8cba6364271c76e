"""The priority of a pod, from its PriorityClass.

Source: kubernetes/kubernetes plugin/pkg/admission/priority and pkg/apis/scheduling/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from tonnage.objects import core

SYSTEM_CRITICAL = 2_000_000_000
PREEMPTS = "PreemptLowerPriority"
"""The preemptionPolicy of whoever states none."""
BUILT_IN = {"system-cluster-critical": SYSTEM_CRITICAL, "system-node-critical": SYSTEM_CRITICAL + 1_000}
"""The classes that every cluster has."""


class Priorities:
    """The PriorityClasses of a cluster, the built-in ones included."""

    def __init__(self, classes: Iterable[core.PriorityClass] = ()) -> None:
        given = tuple(classes)
        self._values = {one.name: one.value for one in given} | BUILT_IN
        self._policies = {one.name: one.preemption_policy for one in given}
        defaults = ((one.value, one.preemption_policy) for one in given if one.global_default)
        self._default, self._default_policy = min(defaults, default=(0, PREEMPTS))

    def of(self, spec: core.PodSpec) -> int | None:
        """The pod's priority; None when it names a class that does not exist: the API server refuses such a pod.

        A pod that has been admitted carries its priority. One that names no class has that of the global default, the
        lowest if there are several, else 0."""
        if spec.priority is not None:
            return spec.priority
        if not spec.priority_class_name:
            return self._default
        return self._values.get(spec.priority_class_name)

    def admitted(self, spec: core.PodSpec) -> core.PodSpec:
        """The spec with its priority and preemption policy written into it, as admission does; 0 for a class that does
        not exist."""
        return msgspec.structs.replace(
            spec, priority=self.of(spec) or 0, preemption_policy=self.preemption_policy(spec)
        )

    def preemption_policy(self, spec: core.PodSpec) -> str:
        """``Never`` where the pod does not preempt others: as written in it, else as its class says."""
        if spec.preemption_policy:
            return spec.preemption_policy
        if not spec.priority_class_name:
            return self._default_policy
        return self._policies.get(spec.priority_class_name, PREEMPTS)
