"""The resource quota controller: what is in use of each ResourceQuota, in its status.

Source: kubernetes/kubernetes v1.36 pkg/controller/resourcequota. What pods and ResourceClaims use is counted.
"""

from __future__ import annotations

import msgspec

from tonnage.apiserver.admitting_pods import claims_in_use, classes_of, specs_of
from tonnage.apiserver.controllers.context import Context
from tonnage.apiserver.controllers.meta import Key, key_of, status_of
from tonnage.kube.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS, Resource
from tonnage.kube.verbs import JsonObject
from tonnage.objects.quota import ResourceQuota
from tonnage.workloads.admission import quotas
from tonnage.workloads.admission.chain import Admission
from tonnage.workloads.admission.claim_quotas import ClaimQuotas


class ResourceQuotas:
    """Keeps ``status.hard`` and ``status.used``."""

    name = "resourcequota-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: set[str] = set()

    def changed(self, resource: Resource, old: JsonObject | None, new: JsonObject | None) -> None:
        if resource not in (PODS, RESOURCE_CLAIMS, RESOURCE_QUOTAS):
            return
        one = new or old
        assert one is not None
        namespace = key_of(one)[0]
        if resource == RESOURCE_QUOTAS:
            self._known.add(namespace)
        if namespace in self._known:
            self._context.queue.add((self.name, ("", namespace)))

    def sync(self, key: Key) -> None:
        cache = self._context.cache
        pods = cache.in_namespace_of(PODS, key[1])
        specs = specs_of(pods)
        by_claims = ClaimQuotas(classes_of(cache.all(DEVICE_CLASSES)))
        claims = claims_in_use(by_claims, cache.in_namespace_of(RESOURCE_CLAIMS, key[1]), pods)
        for written in cache.in_namespace_of(RESOURCE_QUOTAS, key[1]):
            try:
                read = msgspec.convert(written, ResourceQuota, strict=False)
            except msgspec.ValidationError:
                continue
            used = quotas.added(Admission([read]).in_use(key[1], specs)[read.name], by_claims.counted(read, claims))
            status = {
                "hard": (written.get("spec") or {}).get("hard") or {},
                "used": {name: quotas.written(name, used.get(name, quotas.NOTHING)) for name in read.spec.hard},
            }
            if status_of(written) != status:
                self._context.writer.put_status(RESOURCE_QUOTAS, written, status)
