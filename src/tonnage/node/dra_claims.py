"""What becomes of a claim on its node: which devices it names, what has to be done to a card first, and what undoes it.

Pure: what has been prepared is a list of records, what a card is like now is read elsewhere. A record is written before
anything is done, with everything that identifies what will be made, so whoever finds it after a crash can go on either
way. A MIG instance that was there before its record belongs to somebody else: it is used where it is what was asked
for, and left where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from tonnage.dra.nvidia import DRIVER
from tonnage.dra.sharing import sharing_of
from tonnage.errors import InputError
from tonnage.node.devices import GpuInstance, MigState
from tonnage.objects.dra import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from tonnage.objects.nvidia_device_configs import DeviceSharing
from tonnage.partitioning.layouts import Placement, card, span

STARTED, PREPARED, ENDING = "started", "prepared", "ending"


class NotPrepared(Exception):
    """A claim cannot be prepared, or its devices not be given back, as it is now. The kubelet asks again."""


class DeviceTarget(Struct, frozen=True):
    """What a published device is. ``card``: its index; ``uuid``: of the card; ``gpu``: its name in the facts, empty
    where its MIG instances stay as they are; ``placement``: of a MIG device, None: the whole card."""

    card: int
    uuid: str
    gpu: str
    placement: Placement | None = None


class ClaimedDevice(Struct, frozen=True):
    """A device of a claim. ``requests``: of the claim that it is for. ``found``: its MIG instance was there before.
    ``admin``: beside whoever has it."""

    requests: tuple[str, ...]
    pool: str
    device: str
    target: DeviceTarget
    sharing: DeviceSharing | None = None
    share_id: str | None = None
    admin: bool = False
    found: bool = False


class ClaimRecord(Struct, frozen=True):
    """A claim in the journal. ``stage``: what of it has begun."""

    namespace: str
    name: str
    uid: str
    stage: str
    devices: tuple[ClaimedDevice, ...]

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"


class MakeMode(NamedTuple):
    """Switch MIG on or off."""

    on: bool


class MakeInstance(NamedTuple):
    """Make a MIG instance at its place."""

    placement: Placement


class DestroyInstance(NamedTuple):
    """Remove a MIG instance."""

    instance: int


CardStep: TypeAlias = MakeMode | MakeInstance | DestroyInstance


def claimed(
    claim: ResourceClaim, uid: str, pool: str, targets: Mapping[str, DeviceTarget]
) -> tuple[ClaimedDevice, ...]:
    """The devices of this node's driver that a claim has. ``uid``: of the claim that the kubelet means.

    Raises NotPrepared for a claim that is another one or has no allocation, and for a device that is not here."""
    title = f"{claim.namespace}/{claim.name}"
    if claim.metadata.uid != uid:
        raise NotPrepared(f"claim {title} is another one by now: its UID is {claim.metadata.uid}, not {uid}")
    allocation = claim.status.allocation
    if allocation is None:
        raise NotPrepared(f"claim {title} has no devices allocated")
    found: dict[tuple[str, str | None], ClaimedDevice] = {}
    for one in allocation.devices.results:
        if one.driver != DRIVER:
            continue
        target = targets.get(one.device) if one.pool == pool else None
        if target is None:
            raise NotPrepared(f"claim {title}: there is no device {one.pool}/{one.device} on this node now")
        request = one.request.partition("/")[0]
        key = (one.device, one.share_id)
        known = found.get(key)
        requests = (request,) if known is None else (*known.requests, request)
        found[key] = ClaimedDevice(
            tuple(dict.fromkeys(requests)),
            one.pool,
            one.device,
            target,
            _sharing(allocation, one, target, title),
            one.share_id,
            bool(one.admin_access),
        )
    return tuple(found.values())


def _sharing(
    allocation: AllocationResult, result: DeviceRequestAllocationResult, target: DeviceTarget, title: str
) -> DeviceSharing | None:
    """How a device is to be shared. Raises NotPrepared for a configuration that the driver does not understand, or of
    another type of device."""
    try:
        return sharing_of(allocation, result, whole=target.placement is None)
    except InputError as error:
        raise NotPrepared(f"claim {title}: {error}") from error


def conflict(records: Iterable[ClaimRecord], uid: str, wanted: Sequence[ClaimedDevice]) -> str:
    """Which claim has what this one needs; empty: none has. Admin access needs nothing, nor does a share beside
    shares."""
    for record in records:
        if record.uid == uid:
            continue
        for have in record.devices:
            for want in wanted:
                if have.admin or want.admin or (have.share_id and want.share_id and have.device == want.device):
                    continue
                if overlap(have.target, want.target):
                    return f"{want.device} is held by claim {record.title} ({have.device})"
    return ""


def overlap(one: DeviceTarget, other: DeviceTarget) -> bool:
    """Whether two devices cannot be there at once."""
    if one.uuid != other.uuid:
        return False
    if one.placement is None or other.placement is None:
        return True
    if not one.gpu:
        return one.placement == other.placement
    on = card(one.gpu)
    return bool(span(on, one.placement) & span(on, other.placement))


def instance_of(target: DeviceTarget, state: MigState | None) -> GpuInstance | None:
    """The MIG instance of a device, where there is one."""
    if target.placement is None or state is None or not state.enabled:
        return None
    at = (target.placement.start, target.placement.profile)
    return next((one for one in state.instances if (one.start, one.profile) == at), None)


def prepare_step(device: ClaimedDevice, state: MigState | None) -> CardStep | None:
    """What is to be done next so that a device is there; None: it is there. Raises NotPrepared where something is in
    the way."""
    target = device.target
    if target.placement is None:
        if state is None or not (state.enabled or state.pending) or device.admin:
            return None
        if state.instances:
            where = ", ".join(f"{one.profile} at memory slice {one.start}" for one in state.instances)
            raise NotPrepared(f"{device.device}: the GPU has MIG instances: {where}")
        return MakeMode(on=False)
    if state is None:
        raise NotPrepared(f"{device.device}: the GPU has no MIG")
    if instance_of(target, state) is not None:
        return None
    if device.admin:
        raise NotPrepared(f"{device.device}: there is no such MIG instance to look at")
    if not (state.enabled and state.pending):
        return MakeMode(on=True)
    found = in_the_way(target, (Placement(one.start, one.profile) for one in state.instances))
    if found is not None:
        raise NotPrepared(f"{device.device}: {found.profile} at memory slice {found.start} is in its place")
    return MakeInstance(target.placement)


def unprepare_step(device: ClaimedDevice, others: Iterable[ClaimRecord], state: MigState | None) -> CardStep | None:
    """What is to be done next so that a device is no more than it was before; None: it is so. What somebody else made,
    or another claim has too, stays."""
    if device.found or device.admin or device.target.placement is None:
        return None
    if any(have.target == device.target and not have.admin for one in others for have in one.devices):
        return None
    there = instance_of(device.target, state)
    return None if there is None else DestroyInstance(there.id)


def strangers(state: MigState | None, target: DeviceTarget, records: Iterable[ClaimRecord]) -> list[Placement]:
    """MIG instances of a card that no claim has made: somebody else's. ``target``: the whole card."""
    if state is None or not state.enabled:
        return []
    ours = {
        have.target.placement
        for one in records
        for have in one.devices
        if have.target.uuid == target.uuid and not have.found and not have.admin
    }
    there = [Placement(one.start, one.profile) for one in state.instances]
    return [one for one in there if one not in ours]


def in_the_way(target: DeviceTarget, standing: Iterable[Placement]) -> Placement | None:
    """The instance of others which keeps a device from being made; None: there is none, or it is the device itself."""
    for one in standing:
        if one != target.placement and overlap(target, DeviceTarget(target.card, target.uuid, target.gpu, one)):
            return one
    return None
