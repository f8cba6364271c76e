"""ResourceQuotas on ResourceClaims: what a claim counts as, and when one more is too much.

Source: kubernetes/kubernetes v1.36 pkg/quota/v1/evaluator/core/resource_claims.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from tonnage.dra import extended
from tonnage.objects.dra import (
    ALL,
    EXACT_COUNT,
    GROUP,
    MOST_RESULTS,
    DeviceClass,
    DeviceRequest,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from tonnage.objects.quota import ResourceQuota
from tonnage.workloads.admission.quotas import NOTHING, Usage, exceeded

CLAIMS = f"count/resourceclaims.{GROUP}"
PER_CLASS = f".deviceclass.{GROUP}/devices"
"""After the name of a class: devices of it that claims may have."""
REQUESTED = "requests."


class ClaimQuotas:
    """``classes``: those that there are, which say what extended resources their devices serve."""

    def __init__(self, classes: Iterable[DeviceClass]) -> None:
        known = list(classes)
        self._resource = {one.name: one.spec.extended_resource_name or "" for one in known}
        self._served = extended.served(known)

    def usage_of(self, claim: ResourceClaim, pod: Mapping[str, Fraction]) -> Usage:
        """What a claim counts as; devices of a class that serves an extended resource count as that too, but for what
        the ``pod`` counts as for which the claim was made."""
        found: Usage = {CLAIMS: Fraction(1)}
        devices: Counter[str] = Counter()
        for request in claim.spec.devices.requests:
            devices += Counter(_most(request))
        for name, count in sorted(devices.items()):
            found[f"{name}{PER_CLASS}"] = Fraction(count)
            for resource in (f"{extended.IMPLICIT}{name}", self._resource.get(name, "")):
                more = count - pod.get(f"{REQUESTED}{resource}", NOTHING)
                if resource and more > 0:
                    found[f"{REQUESTED}{resource}"] = more
        return found

    def refusal(self, quota: ResourceQuota, asked: Usage, used: Mapping[str, Fraction]) -> str:
        """Why the quota refuses one more claim that counts as ``asked`` where ``used`` is in use; empty where it does
        not. One that has scopes counts no claims."""
        return exceeded(quota, self.counted(quota, asked), used)[0]

    def counted(self, quota: ResourceQuota, usage: Usage) -> Usage:
        """What the quota counts of that."""
        if quota.spec.scopes or quota.spec.scope_selector is not None:
            return {}
        return {name: amount for name, amount in usage.items() if self._counts(name)}

    def _counts(self, name: str) -> bool:
        if name == CLAIMS or name.endswith(PER_CLASS):
            return True
        resource = name.removeprefix(REQUESTED)
        if resource.startswith(extended.IMPLICIT):
            return bool(self._resource.get(resource.removeprefix(extended.IMPLICIT)))
        return resource in self._served


def _most(request: DeviceRequest) -> dict[str, int]:
    """By class, the devices that a request can have at most: of alternatives the one that can have most."""
    ways: list[ExactDeviceRequest | DeviceSubRequest] = list(request.first_available)
    if not ways and request.exactly is not None:
        ways = [request.exactly]
    found: dict[str, int] = {}
    for one in ways:
        count = {EXACT_COUNT: one.count, ALL: MOST_RESULTS}.get(one.allocation_mode, 0)
        found[one.device_class_name] = max(found.get(one.device_class_name, 0), count)
    return found
