"""The DRA driver of a node: claims that the kubelet names get their devices prepared, and give them back.

Rules are in :mod:`tonnage.node.dra_claims`; this carries them out in an order that a crash at any point leaves
something to go on with: journal, card, CDI specification, journal; and back: journal, specification, card, journal.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec.structs import replace

from tonnage.dra.sharing import ClientLimits, client_limits
from tonnage.dra.sharing import interval as interval_of
from tonnage.errors import InputError
from tonnage.node import cdi
from tonnage.node.devices import Devices, MigControl
from tonnage.node.dra_api import ClaimName, PreparedDevice
from tonnage.node.dra_claims import (
    ENDING,
    PREPARED,
    STARTED,
    ClaimedDevice,
    ClaimRecord,
    DestroyInstance,
    MakeInstance,
    MakeMode,
    NotPrepared,
    claimed,
    conflict,
    instance_of,
    prepare_step,
    unprepare_step,
)
from tonnage.node.dra_journal import ClaimJournal
from tonnage.node.dra_offer import Offer
from tonnage.node.driver_files import DriverFiles
from tonnage.objects.dra import ResourceClaim

_MPS_PIPE = "/run/nvidia/mps"
WAIT_S = 20.0
"""How long a claim waits for devices that are being given back. A claim is free for others as soon as its pod's
containers have ended, which the kubelet reports before it lets the driver know; and a pod that is refused is only
looked at again a minute later (pkg/kubelet/kuberuntime of Kubernetes 1.36)."""
Say = Callable[[str], None]


class ClaimsUnknown(Exception):
    """The claim cannot be read now."""


class ClaimSource(Protocol):
    """The cluster's claims."""

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim as it is now; None: there is none. Raises ClaimsUnknown where nobody answers."""
        ...


class DraDriver:
    """``control``: None on cards that are read only, whose MIG instances stay as they are. ``folder``: of the runtime's
    CDI specifications. ``offer``: what is published now. ``wait_s``: see
    :data:`WAIT_S`. Safe for several threads."""

    def __init__(
        self,
        devices: Devices,
        control: MigControl | None,
        files: DriverFiles,
        folder: Path,
        journal: ClaimJournal,
        claims: ClaimSource,
        pool: str,
        say: Say,
        wait_s: float = WAIT_S,
    ) -> None:
        self._devices, self._control, self._files, self._folder = devices, control, files, folder
        self.journal, self._claims, self._pool, self._say = journal, claims, pool, say
        self._wait_s = wait_s
        self._lock = threading.Condition()
        self.offer = Offer()

    def tidy(self) -> None:
        """What a crash has left: specifications of claims that are not prepared go, and claims that had begun to be
        prepared or given back and are gone by now are given back. Asked again and again."""
        with self._lock:
            for uid in cdi.claims_in(self._folder):
                if self.journal.get(uid) is None:
                    self._remove_spec(uid)
        for record in self.journal.records():
            if record.stage == PREPARED or not self._is_gone(record):
                continue
            with self._lock:
                try:
                    self._undo(record)
                except NotPrepared as error:
                    self._say(f"claim {record.title} is gone, and its devices are not unprepared yet: {error}")

    def _is_gone(self, record: ClaimRecord) -> bool:
        try:
            found = self._claims.claim(record.namespace, record.name)
        except ClaimsUnknown:
            return False
        return found is None or found.metadata.uid != record.uid or found.status.allocation is None

    # ---- what the kubelet asks ----

    def prepare(self, asked: ClaimName) -> list[PreparedDevice]:
        """Prepare a claim's devices, or find them prepared. Raises NotPrepared."""
        try:
            claim = self._claims.claim(asked.namespace, asked.name)
        except ClaimsUnknown as error:
            with self._lock:
                record = self.journal.get(asked.uid)
                if record is None or record.stage != PREPARED:
                    raise NotPrepared(f"claim {asked.namespace}/{asked.name} cannot be read: {error}") from error
                return self._carry_out(record)
        if claim is None:
            raise NotPrepared(f"there is no claim {asked.namespace}/{asked.name}")
        wanted = claimed(claim, asked.uid, self._pool, self.offer.targets)
        with self._lock:
            return self._carry_out(self._begun(asked, wanted))

    def _begun(self, asked: ClaimName, wanted: tuple[ClaimedDevice, ...]) -> ClaimRecord:
        """The claim as the journal has it, noted now where it was not."""
        known = self.journal.get(asked.uid)
        if known is not None:
            same = tuple(replace(one, found=False) for one in known.devices) == wanted
            if same and known.stage != ENDING:
                return known
            self._undo(known)
        until = time.monotonic() + self._wait_s
        while why := conflict(self.journal.records(), asked.uid, wanted):
            if not self._lock.wait(max(until - time.monotonic(), 0)):
                raise NotPrepared(why)
        noted = tuple(
            one if one.admin else replace(one, found=instance_of(one.target, self._mig(one)) is not None)
            for one in wanted
        )
        record = ClaimRecord(asked.namespace, asked.name, asked.uid, STARTED, noted)
        self._put(record)
        return record

    def _carry_out(self, record: ClaimRecord) -> list[PreparedDevice]:
        try:
            for at, device in enumerate(record.devices):
                record = self._made(record, at, device)
            edits = [(f"{record.uid}-{one.device}", self._edits(one, at)) for at, one in enumerate(record.devices)]
            if edits and cdi.write(cdi.claim_spec(self._files, edits), cdi.claim_path(record.uid, self._folder)):
                self._say(f"claim {record.title}: {', '.join(one.device for one in record.devices)}")
        except InputError as error:
            raise NotPrepared(error.problems[0].message) from error
        if record.stage != PREPARED:
            self._put(replace(record, stage=PREPARED))
        return [
            PreparedDevice(
                list(one.requests), one.pool, one.device, [f"{cdi.CLAIM_KIND}={name}"], share_id=one.share_id
            )
            for one, (name, _) in zip(record.devices, edits, strict=True)
        ]

    def _made(self, record: ClaimRecord, at: int, device: ClaimedDevice) -> ClaimRecord:
        """Bring a card to have the device. Returns the record, changed where an instance that was there is gone."""
        while (step := prepare_step(device, self._mig(device))) is not None:
            control = self._changing(device)
            match step:
                case MakeMode(on=on):
                    self._mode(control, device, on=on)
                case MakeInstance(placement=placement):
                    if device.found:
                        device = replace(device, found=False)
                        devices = (*record.devices[:at], device, *record.devices[at + 1 :])
                        record = replace(record, devices=devices)
                        self._put(record)
                    control.create(device.target.card, placement.profile, placement.start)
        interval = interval_of(device.sharing)
        if interval is not None:
            self._changing(device).set_timeslice(device.target.card, interval)
        return record

    def _mode(self, control: MigControl, device: ClaimedDevice, *, on: bool) -> None:
        card = device.target.card
        if self._devices.processes(card):
            raise NotPrepared(f"{device.device}: the GPU is in use, and its MIG mode is to change")
        if control.needs_reset(card) and not control.can_reset(card):
            raise NotPrepared(f"{device.device}: a change of MIG mode needs a reset, which this machine refuses")
        control.set_mode(card, on)
        now = self._devices.mig(card)
        if now is not None and now.enabled != on:
            control.reset(card)

    def _changing(self, device: ClaimedDevice) -> MigControl:
        if self._control is None:
            raise NotPrepared(f"{device.device}: real cards are read and not changed")
        return self._control

    def _edits(self, device: ClaimedDevice, index: int) -> dict[str, Any]:
        """What a container with the device gets. ``index``: of the device among the claim's."""
        identity = next(one for one in self._devices.cards() if one.index == device.target.card)
        part = None
        if device.target.placement is not None:
            instance = instance_of(device.target, self._mig(device))
            if instance is None or not instance.compute:
                raise NotPrepared(f"{device.device}: the MIG instance is gone again")
            part = instance, instance.compute[0].id
        edits: dict[str, Any] = {"deviceNodes": cdi.nodes_of(self._files, identity, part)}
        limits = client_limits(device.sharing, identity.uuid, index)
        if limits is not None:
            self._changing(device)  # no MPS daemon runs on real cards
            edits["env"] = _mps_environment(limits, index)
        return edits

    def unprepare(self, asked: ClaimName) -> None:
        """Give a claim's devices back; a claim that has none is given back already. Raises NotPrepared."""
        with self._lock:
            record = self.journal.get(asked.uid)
            if record is None:
                self._remove_spec(asked.uid)
            else:
                self._undo(record)

    def _undo(self, record: ClaimRecord) -> None:
        try:
            if record.stage != ENDING:
                self._put(replace(record, stage=ENDING))
            self._remove_spec(record.uid)
            others = [one for one in self.journal.records() if one.uid != record.uid]
            for device in record.devices:
                if self._control is None:
                    continue
                match unprepare_step(device, others, self._mig(device)):
                    case DestroyInstance(instance=instance):
                        self._control.destroy(device.target.card, instance)
                if interval_of(device.sharing) is not None:
                    self._control.set_timeslice(device.target.card, "Default")
            self.journal.remove(record.uid)
            self._lock.notify_all()
        except InputError as error:
            raise NotPrepared(error.problems[0].message) from error
        self._say(f"claim {record.title} has unprepared {', '.join(one.device for one in record.devices)}")

    def _put(self, record: ClaimRecord) -> None:
        try:
            self.journal.put(record)
        except InputError as error:
            raise NotPrepared(str(error)) from error

    def _mig(self, device: ClaimedDevice) -> Any:
        return self._devices.mig(device.target.card)

    def _remove_spec(self, uid: str) -> None:
        path = cdi.claim_path(uid, self._folder)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError.at(
                f"cannot be removed: {error.strerror}", file=str(path), hint="run it as root"
            ) from error


def _mps_environment(limits: ClientLimits, index: int) -> list[str]:
    """What CUDA goes by: where the daemon is, and the limits of each client."""
    found = [f"CUDA_MPS_PIPE_DIRECTORY={_MPS_PIPE}"]
    if limits.percent is not None:
        found.append(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={limits.percent}")
    if limits.memory_mib is not None:
        found.append(f"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT={index}={limits.memory_mib}M")
    return found
