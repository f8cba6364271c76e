"""The priority of a pod, from its PriorityClass.

Source: kubernetes/kubernetes plugin/pkg/admission/priority and pkg/apis/scheduling/types.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from tonnage.objects import core

SYSTEM_CRITICAL = 2_000_000_000
BUILT_IN = {"system-cluster-critical": SYSTEM_CRITICAL, "system-node-critical": SYSTEM_CRITICAL + 1_000}
"""The classes that every cluster has."""


class Priorities:
    """The PriorityClasses of a cluster, the built-in ones included."""

    def __init__(self, classes: Iterable[core.PriorityClass] = ()) -> None:
        given = tuple(classes)
        self._values = {one.name: one.value for one in given} | BUILT_IN
        self._default = min((one.value for one in given if one.global_default), default=0)

    def of(self, spec: core.PodSpec) -> int | None:
        """The pod's priority; None when it names a class that does not exist: the API server refuses such a pod.

        A pod that has been admitted carries its priority. One that names no class has that of the global default, the
        lowest if there are several, else 0."""
        if spec.priority is not None:
            return spec.priority
        if not spec.priority_class_name:
            return self._default
        return self._values.get(spec.priority_class_name)
