"""The plugins in their order, over the objects of a cluster.

Sources: kubernetes/kubernetes v1.36 pkg/kubeapiserver/options/plugins.go (order),
plugin/pkg/admission/{serviceaccount,priority,runtimeclass}/admission.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from tonnage.objects import core
from tonnage.objects.base import DEFAULT_NAMESPACE, KubeObject, ObjectMeta
from tonnage.objects.gpu_operator import ClusterPolicy
from tonnage.objects.quota import LimitRange, ResourceQuota, RuntimeClass, ServiceAccount
from tonnage.workloads.admission import limits, quotas
from tonnage.workloads.admission.quotas import Usage
from tonnage.workloads.admission.refused import PRIORITY, RUNTIME_CLASS, SERVICE_ACCOUNT, AdmissionRefusal
from tonnage.workloads.priority import Priorities

DEFAULT_ACCOUNT = "default"
"""The service account of pods that name none."""
"""The namespace of objects that name none, and the account of pods that name none."""
Kind = TypeVar("Kind", bound=KubeObject)
OF_GPU_OPERATOR = ("nvidia", "nvidia-cdi", "nvidia-legacy")
"""RuntimeClasses that the GPU operator makes. Source: NVIDIA/gpu-operator assets/pre-requisites."""
_NOTHING: Mapping[str, Usage] = {}


class Admission:
    """Of pods, by the ServiceAccounts, classes, LimitRanges and ResourceQuotas among the objects."""

    def __init__(self, objects: Iterable[KubeObject]) -> None:
        given = tuple(objects)
        self.priorities = Priorities(one for one in given if isinstance(one, core.PriorityClass))
        self._accounts = {(_namespace(one), one.name) for one in given if isinstance(one, ServiceAccount)}
        self._runtimes = {one.name: one for one in given if isinstance(one, RuntimeClass)}
        if any(isinstance(one, ClusterPolicy) for one in given):
            self._runtimes = {name: _by_operator(name) for name in OF_GPU_OPERATOR} | self._runtimes
        self._ranges = _by_namespace(given, LimitRange)
        self._quotas = _by_namespace(given, ResourceQuota)

    def quotas(self, namespace: str) -> tuple[ResourceQuota, ...]:
        """Those of a namespace, by name."""
        return self._quotas.get(namespace, ())

    def ranges(self, namespace: str) -> tuple[LimitRange, ...]:
        """The LimitRanges of a namespace, by name."""
        return self._ranges.get(namespace, ())

    def completed(self, namespace: str, spec: core.PodSpec) -> core.PodSpec:
        """The spec as it is stored: with default limits and requests, the overhead and the nodes of its runtime, and
        its priority. The same object where nothing is added."""
        spec = limits.defaulted(spec, self.ranges(namespace))
        runtime = self._runtimes.get(spec.runtime_class_name)
        if runtime is not None:
            spec = _on_runtime(spec, runtime)
        return self.priorities.admitted(spec)

    def refusals(self, namespace: str, given: core.PodSpec) -> list[AdmissionRefusal]:
        """Why no pod of this spec is ever admitted, whatever others there are; the first in the order of the
        plugins."""
        spec = self.completed(namespace, given)
        found = [*self.unknown(namespace, given)]
        found += limits.contradictions(given, spec, self.ranges(namespace))
        found += limits.refusals(spec, self.ranges(namespace))
        return [*found, *self.over_quota(namespace, spec)]

    def over_quota(
        self, namespace: str, spec: core.PodSpec, used: Mapping[str, Usage] = _NOTHING
    ) -> Iterable[AdmissionRefusal]:
        """What quotas say to one more pod of this completed spec. ``used``: what is in use, by the quota's name."""
        for quota in self.quotas(namespace):
            refused = quotas.refusal(quota, spec, used.get(quota.name, {}))
            if refused is not None:
                yield refused

    def in_use(self, namespace: str, specs: Iterable[core.PodSpec]) -> dict[str, Usage]:
        """What the pods of these completed specs use of each quota of the namespace, by its name."""
        found: dict[str, Usage] = {quota.name: {} for quota in self.quotas(namespace)}
        for spec in specs if found else ():
            for quota in self.quotas(namespace):
                if quotas.counts(quota, spec):
                    found[quota.name] = quotas.added(found[quota.name], quotas.usage_of(spec))
        return found

    def unknown(self, namespace: str, spec: core.PodSpec) -> Iterable[AdmissionRefusal]:
        """What the pod names and is not there."""
        account = spec.service_account_name or spec.service_account
        if account not in ("", DEFAULT_ACCOUNT) and (namespace, account) not in self._accounts:
            said = f'error looking up service account {namespace}/{account}: serviceaccount "{account}" not found'
            field = "serviceAccountName" if spec.service_account_name else "serviceAccount"
            yield AdmissionRefusal(SERVICE_ACCOUNT, said, field, account, early=True)
        if self.priorities.of(spec) is None:
            said = f"no PriorityClass with name {spec.priority_class_name} was found"
            yield AdmissionRefusal(PRIORITY, said, "priorityClassName", spec.priority_class_name, early=True)
        if spec.runtime_class_name and spec.runtime_class_name not in self._runtimes:
            said = f'pod rejected: RuntimeClass "{spec.runtime_class_name}" not found'
            yield AdmissionRefusal(RUNTIME_CLASS, said, "runtimeClassName", spec.runtime_class_name, early=True)


def _by_operator(name: str) -> RuntimeClass:
    made = ObjectMeta(name=name)
    return RuntimeClass(api_version="node.k8s.io/v1", kind="RuntimeClass", metadata=made, handler=name)


def _on_runtime(spec: core.PodSpec, runtime: RuntimeClass) -> core.PodSpec:
    scheduling = runtime.scheduling
    return msgspec.structs.replace(
        spec,
        overhead=dict(runtime.overhead.pod_fixed) if runtime.overhead is not None else spec.overhead,
        node_selector={**scheduling.node_selector, **spec.node_selector} if scheduling else spec.node_selector,
        tolerations=[*spec.tolerations, *scheduling.tolerations] if scheduling else spec.tolerations,
    )


def _by_namespace(objects: Iterable[KubeObject], kind: type[Kind]) -> dict[str, tuple[Kind, ...]]:
    found: dict[str, list[Kind]] = {}
    for one in objects:
        if isinstance(one, kind):
            found.setdefault(_namespace(one), []).append(one)
    return {namespace: tuple(sorted(some, key=lambda one: one.name)) for namespace, some in found.items()}


def _namespace(one: KubeObject) -> str:
    return one.namespace or DEFAULT_NAMESPACE
