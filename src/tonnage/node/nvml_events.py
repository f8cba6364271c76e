"""What cards report through NVML's event sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tonnage.node.devices import DeviceEvent
from tonnage.node.nvml import Library

WHOLE = 0xFFFFFFFF
"""NVML's number for "no GPU instance"."""
_KINDS = {
    "nvmlEventTypeXidCriticalError": "xid",
    "nvmlEventTypeSingleBitEccError": "ecc-single",
    "nvmlEventTypeDoubleBitEccError": "ecc-double",
    "nvmlEventMigConfigChange": "mig",
    "nvmlEventTypeGpuUnavailableError": "unavailable",
    "nvmlEventTypeGpuRecoveryAction": "recovery",
    "nvmlEventTypeDramRetirementEvent": "retirement",
    "nvmlEventTypeDramRetirementFailure": "retirement",
    "nvmlEventTypeNonFatalPoisonError": "poison",
    "nvmlEventTypeFatalPoisonError": "poison",
}


class EventSet:
    """One reader's event set over these cards: each with those kinds of events that its driver has."""

    def __init__(self, library: Library, handles: Sequence[Any]) -> None:
        self._library = library
        known = ((library.constant(name), kind) for name, kind in _KINDS.items())
        self._kinds: dict[int, str] = {int(bit): kind for bit, kind in known if bit is not None}
        self._set = library.tried("nvmlEventSetCreate").value
        self._cards: dict[int, int] = {}
        self.watched = tuple(card for card, handle in enumerate(handles) if self._watch(card, handle))

    def _watch(self, card: int, handle: Any) -> bool:
        library = self._library
        able = library.tried("nvmlDeviceGetSupportedEventTypes", handle).value or 0
        mask = able & sum(self._kinds)
        self._cards[_address(handle)] = card
        return bool(mask) and not library.tried("nvmlDeviceRegisterEvents", handle, mask, self._set).why

    def wait(self, timeout_s: float) -> Sequence[DeviceEvent]:
        """All that has been reported, waiting for the first of it."""
        found: list[DeviceEvent] = []
        wait_ms = round(1000 * timeout_s)
        while (one := self._library.tried("nvmlEventSetWait_v2", self._set, wait_ms)).value is not None:
            found.append(self._event(one.value))
            wait_ms = 0
        return found

    def close(self) -> None:
        """Free the set."""
        self._library.tried("nvmlEventSetFree", self._set)

    def _event(self, data: Any) -> DeviceEvent:
        kind = self._kinds.get(int(data.eventType), "other")
        gi, ci = (None if int(n) == WHOLE else int(n) for n in (data.gpuInstanceId, data.computeInstanceId))
        return DeviceEvent(self._cards.get(_address(data.device)), kind, int(data.eventData), gi, ci)


def _address(handle: Any) -> int:
    """A handle is a pointer: where it points to says which card it is."""
    import ctypes

    return ctypes.cast(handle, ctypes.c_void_p).value or 0
