"""ResourceQuotas that admit fewer ResourceClaims than pods have templates for: pods without their claims stay Pending.

Source: kubernetes/kubernetes v1.36 pkg/controller/resourceclaim/controller.go (FailedResourceClaimCreation)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from tonnage.errors import Where
from tonnage.fleet.claim_needs import pod_claims
from tonnage.health.blocker import UNSCHEDULABLE, Blocker
from tonnage.health.setting import Pods, Setting
from tonnage.objects import dra
from tonnage.objects.base import where
from tonnage.objects.quota import ResourceQuota
from tonnage.workloads.admission import quotas
from tonnage.workloads.admission.claim_quotas import ClaimQuotas

FAILED = "FailedResourceClaimCreation"


def claims_over_quota(setting: Setting) -> Iterator[Blocker]:
    """In the order of the files: claims that are among them count first, then those of pods."""
    counting = ClaimQuotas(one for one in setting.objects if isinstance(one, dra.DeviceClass))
    for namespace in sorted({pods.namespace for pods in setting.pods if pods.spec.resource_claims}):
        for quota in setting.admission.quotas(namespace):
            yield from _over(setting, namespace, quota, counting)


def _over(setting: Setting, namespace: str, quota: ResourceQuota, counting: ClaimQuotas) -> Iterator[Blocker]:
    used: quotas.Usage = {}
    for one in setting.inventory.of_kind("ResourceClaim", namespace):
        if isinstance(one, dra.ResourceClaim):
            used = quotas.added(used, counting.counted(quota, counting.usage_of(one, {})), 1)
    for pods in setting.pods:
        if pods.namespace != namespace or pods.is_daemon:
            continue
        for index, named in enumerate(pod_claims(pods.spec.resource_claims)):
            found = (
                setting.inventory.find("ResourceClaimTemplate", named.template, namespace) if named.template else None
            )
            if not isinstance(found, dra.ResourceClaimTemplate):
                continue
            made = dra.ResourceClaim(
                api_version=dra.V1, kind="ResourceClaim", metadata=found.metadata, spec=found.spec.spec
            )
            each = counting.counted(quota, counting.usage_of(made, {}))
            wanted = pods.counted.pods

            def refused(count: int, each: quotas.Usage = each, used: quotas.Usage = used) -> bool:
                return bool(counting.refusal(quota, each, quotas.added(used, each, count)))

            fit = bisect_left(range(wanted), True, key=refused)
            if fit < wanted:
                said = counting.refusal(quota, each, quotas.added(used, each, fit))
                yield _blocker(setting, pods, quota, f"resourceClaims[{index}]", named.name, said, fit)
            used = quotas.added(used, each, fit)


def _blocker(
    setting: Setting, pods: Pods, quota: ResourceQuota, field: str, claim: str, said: str, fit: int
) -> Blocker:
    found = setting.inventory.find("ResourceQuota", quota.name, pods.namespace)
    at = where(found, "spec.hard") if found is not None else Where()
    admits = (
        f"admits {fit} of the {pods.counted.pods} claims {claim} of its pods" if fit else f"admits no claim {claim}"
    )
    return Blocker(
        "quota-below-claims",
        UNSCHEDULABLE,
        pods.ref,
        pods.where(field),
        f"ResourceQuota {quota.name} of namespace {pods.namespace} ({at.file}:{at.line}) {admits}: {said}",
        "raise the quota, or run fewer pods",
        FAILED,
        f"PodResourceClaim {claim}: failed to create ResourceClaim: {said}",
        some=fit > 0,
    )
