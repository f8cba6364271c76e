"""What the HPA controller and KEDA write of autoscalers behind an API: statuses, and the HPAs that KEDA makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tonnage.decisions import Ref
from tonnage.kube.clock import rfc3339
from tonnage.kube.resources import HPAS, SCALED_OBJECTS
from tonnage.kube.transport import ApiError
from tonnage.kube.verbs import Client
from tonnage.scaling import keda
from tonnage.scaling.hpa import HpaSpec
from tonnage.scaling.hpa_status import HpaPass, body_of_keda, status

T = TypeVar("T")
JsonObject = dict[str, Any]
_MOVED_ON = (404, 409)
"""Somebody deletes or changes it now: the next pass sees what has become of it."""


@dataclass(slots=True)
class AutoscalerObjects:
    """Writes to an API on which no HPA controller and no KEDA run."""

    client: Client
    _made: dict[Ref, HpaSpec] = field(default_factory=dict)
    """By ScaledObject, the HPA that was last made for it."""

    def make(self, scaled: Sequence[keda.KedaSpec]) -> None:
        """See to it that every ScaledObject has the HPA that KEDA makes of it, and none while it is paused."""
        wanted = {one.scaled_object: keda.generated_hpa(one) for one in scaled}
        for owner, before in list(self._made.items()):
            after = wanted.get(owner)
            if after is None or after.hpa != before.hpa:
                self._delete(before.hpa)
                del self._made[owner]
        for owner, hpa in wanted.items():
            if hpa is not None and hpa != self._made.get(owner) and self._put(owner, hpa):
                self._made[owner] = hpa

    def write(self, passed: HpaPass, now_ns: int) -> None:
        """Write the status of an HPA after a pass, where it says something new. ``now_ns``: Unix time."""
        hpa = passed.spec.hpa
        found = self._get(hpa)
        if found is None:  # of KEDA's it is recreated
            self._made = {owner: made for owner, made in self._made.items() if made.hpa != hpa}
        if found is None or (hpa.uid and found["metadata"]["uid"] != hpa.uid):
            return
        now = status(found, passed, rfc3339(now_ns))
        if now != found.get("status"):
            self._quietly(lambda: self.client.replace(HPAS, {**found, "status": now}, hpa.namespace, "status"))

    def _put(self, owner: Ref, hpa: HpaSpec) -> bool:
        """Make the HPA, or change the one that is there; whether that has worked."""
        scaled = self._quietly(lambda: self.client.get(SCALED_OBJECTS, owner.name, owner.namespace))
        if scaled is None:
            return False
        body, found = body_of_keda(hpa, scaled), self._get(hpa.hpa)
        if found is None:
            return self._quietly(lambda: self.client.create(HPAS, body, hpa.hpa.namespace)) is not None
        changed = {**body, "metadata": {**found["metadata"], **body["metadata"]}}
        return self._quietly(lambda: self.client.replace(HPAS, changed, hpa.hpa.namespace)) is not None

    def _get(self, hpa: Ref) -> JsonObject | None:
        return self._quietly(lambda: self.client.get(HPAS, hpa.name, hpa.namespace))

    def _delete(self, hpa: Ref) -> None:
        self._quietly(lambda: self.client.delete(HPAS, hpa.name, hpa.namespace))

    def _quietly(self, call: Callable[[], T]) -> T | None:
        """What the API answers; None where the object has moved on."""
        try:
            return call()
        except ApiError as error:
            if error.code not in _MOVED_ON:
                raise
            return None
