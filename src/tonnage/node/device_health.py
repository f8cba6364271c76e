"""Whether the GPUs of a node are healthy: one state machine for device plugin, DRA, labels, metrics and drain.

A GPU is unhealthy while it has a cause, and healthy otherwise; so is every MIG device and replica of it. Causes come
from Xids, from what NVML says of the card, and from tests. Each ends by evidence alone, which has to hold for a while:
what the driver asks for (its recovery action), an answer of a card that was lost, a reset, a test that passes. That
memory can be read is none: it can after a fatal Xid too.

Time is in ns and given by the caller. Sources: :mod:`tonnage.facts.xids`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tonnage.facts import xids
from tonnage.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class HealthRules:
    """How observations become causes.

    ``settle_s``: seconds for which the evidence of recovery has to hold. ``misses``: how many readings in a row have to
    fail before a card counts as lost, where the driver does not say that it is. ``repeats`` faults of a GPU within
    ``within_s`` seconds are a cause of their own, for support; bursts within ``burst_s`` count once.
    ``ignored``, ``faults``: Xids that are never, or always, a cause here; ``faults`` wins.
    """

    settle_s: float = 30
    misses: int = 2
    repeats: int = 5
    within_s: float = 24 * 3600
    burst_s: float = 180
    ignored: frozenset[int] = frozenset()
    faults: frozenset[int] = frozenset()


class XidSeen(NamedTuple):
    """The driver reported an Xid of a GPU (by UUID); ``instance``: of a GPU instance, where it names one."""

    at_ns: int
    gpu: str
    xid: int
    instance: int | None = None


class HealthReading(NamedTuple):
    """What NVML says of a GPU. ``answers``: it could be read; ``lost``: the driver says that it is gone. None: the
    driver does not say. ``recovery``: the value of its recovery action."""

    at_ns: int
    gpu: str
    answers: bool = True
    lost: bool = False
    recovery: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None


class ResetSeen(NamedTuple):
    """The GPU was reset, or the driver was loaded again, as after a reboot."""

    at_ns: int
    gpu: str


class DeviceTested(NamedTuple):
    """A test of the GPU ended."""

    at_ns: int
    gpu: str
    passed: bool


Observation: TypeAlias = XidSeen | HealthReading | ResetSeen | DeviceTested


@dataclass(slots=True)
class FaultCause:
    """Why a GPU is unhealthy. ``action``: a name of :func:`tonnage.facts.xids.actions`. ``count``: how often it was
    seen. ``renewed``: whether the GPU was reset, or passed a test, since it was seen last. ``better_ns``: since when
    the evidence of its end holds; None: it does not."""

    name: str
    action: str
    message: str
    first_ns: int
    last_ns: int
    count: int = 1
    renewed: bool = False
    better_ns: int | None = None


LOST, RECOVERY, REMAP_PENDING, REMAP_FAILED, TEST, REPEATED = (
    "gpu-lost",
    "recovery-action",
    "row-remap-pending",
    "row-remap-failure",
    "test-failed",
    "repeated-faults",
)
"""Causes besides ``xid-N``."""
KEPT = 4096
"""How many Xids are remembered one by one."""


class HealthChange(NamedTuple):
    """A GPU became healthy or unhealthy."""

    at_ns: int
    gpu: str
    healthy: bool
    message: str


class XidCount(NamedTuple):
    """How often an Xid was seen on a GPU or on one of its GPU instances, and when last."""

    times: int
    last_ns: int


@dataclass(slots=True)
class _Gpu:
    causes: dict[str, FaultCause] = field(default_factory=dict)
    missed: int = 0
    says: bool = False  # whether the driver says its recovery action
    faults: deque[int] = field(default_factory=deque)  # times of faults, one of each burst


class DeviceHealth:
    """The health of a node's GPUs, by UUID. A GPU of which nothing was observed is healthy."""

    def __init__(self, rules: HealthRules | None = None) -> None:
        self.rules = rules or HealthRules()
        self._gpus: dict[str, _Gpu] = defaultdict(_Gpu)
        self.seen: dict[tuple[str, int | None, int], XidCount] = {}
        """By GPU, GPU instance and Xid: what was counted since the start."""
        self.latest: deque[XidSeen] = deque(maxlen=KEPT)
        """The last Xids of all GPUs, oldest first."""

    # ---- what is asked ----

    def causes(self, gpu: str) -> tuple[FaultCause, ...]:
        """Why the GPU is unhealthy, the most serious first; none: it is healthy."""
        known = self._gpus.get(gpu)
        if known is None:
            return ()
        rank = xids.actions()
        return tuple(sorted(known.causes.values(), key=lambda one: (-rank[one.action].rank, one.first_ns, one.name)))

    def healthy(self, gpu: str) -> bool:
        known = self._gpus.get(gpu)
        return known is None or not known.causes

    def action(self, gpu: str) -> str:
        """What is to be done with the GPU: what the driver says, else the most serious of its causes' actions; empty:
        nothing."""
        causes = self.causes(gpu)
        said = next((one for one in causes if one.name == RECOVERY), None)
        return said.action if said is not None else causes[0].action if causes else ""

    def of_devices(self, parents: Mapping[str, str]) -> dict[str, bool]:
        """Whether each device is healthy. ``parents``: of device ids, as a device plugin names GPUs, MIG devices and
        replicas (``id::n``), the UUID of the GPU that each is on."""
        return {device: self.healthy(gpu) for device, gpu in parents.items()}

    # ---- what is observed ----

    def restore(self, gpu: str, causes: Iterable[FaultCause]) -> None:
        """Take up causes that were known before, as after a restart of the agent."""
        self._gpus[gpu].causes = {cause.name: cause for cause in causes}

    def observe(self, seen: Observation) -> HealthChange | None:
        """Take one observation in; what it changed. Observations of a GPU come in order of time."""
        gpu = self._gpus[seen.gpu]
        before = bool(gpu.causes)
        match seen:
            case XidSeen():
                self._xid(gpu, seen)
            case HealthReading():
                self._read(gpu, seen)
            case ResetSeen():
                for cause in gpu.causes.values():
                    cause.renewed = cause.renewed or cause.name != TEST
            case DeviceTested():
                self._tested(gpu, seen)
        after = bool(gpu.causes)
        if before == after:
            return None
        message = self.causes(seen.gpu)[0].message if after else "no cause is left"
        return HealthChange(seen.at_ns, seen.gpu, not after, message)

    def observe_all(self, seen: Iterable[Observation]) -> list[HealthChange]:
        """The same for several."""
        return [change for one in seen if (change := self.observe(one)) is not None]

    def _xid(self, gpu: _Gpu, seen: XidSeen) -> None:
        rules, known = self.rules, xids.get(seen.xid)
        self.latest.append(seen)
        key = (seen.gpu, seen.instance, seen.xid)
        counted = self.seen.get(key, XidCount(0, 0))
        self.seen[key] = XidCount(counted.times + 1, seen.at_ns)
        for cleared in known.clears:
            gpu.causes.pop(f"xid-{cleared}", None)
        fault = known.effect == xids.FAULT or (known.effect == xids.DECODED and not gpu.says)
        if seen.xid in rules.faults:
            fault = True
        elif seen.xid in rules.ignored:
            fault = False
        if not fault:
            return
        action = known.action if known.action and xids.actions()[known.action].drain else "CONTACT_SUPPORT"
        self._raise(gpu, f"xid-{seen.xid}", action, f"Xid {seen.xid}: {known.name}", seen.at_ns)
        if not gpu.faults or seen.at_ns - gpu.faults[-1] > rules.burst_s * NS_PER_S:
            gpu.faults.append(seen.at_ns)
        if self._recent(gpu, seen.at_ns) >= rules.repeats:
            text = f"{len(gpu.faults)} faults within {rules.within_s / 3600:g} h"
            self._raise(gpu, REPEATED, "CONTACT_SUPPORT", text, seen.at_ns)

    def _recent(self, gpu: _Gpu, at_ns: int) -> int:
        while gpu.faults and at_ns - gpu.faults[0] > self.rules.within_s * NS_PER_S:
            gpu.faults.popleft()
        return len(gpu.faults)

    def _tested(self, gpu: _Gpu, seen: DeviceTested) -> None:
        if not seen.passed:
            self._raise(gpu, TEST, "RESET_GPU", "a test of the GPU failed", seen.at_ns)
            return
        for cause in gpu.causes.values():
            cause.renewed = True

    def _read(self, gpu: _Gpu, seen: HealthReading) -> None:
        gpu.missed = 0 if seen.answers else gpu.missed + 1
        if seen.lost or gpu.missed >= self.rules.misses:
            message = "the GPU is lost" if seen.lost else f"{gpu.missed} readings in a row failed"
            self._raise(gpu, LOST, "RESTART_BM", message, seen.at_ns)
        elif seen.answers:
            gpu.says = seen.recovery is not None
            asked = "" if seen.recovery is None else xids.recovery_actions().get(seen.recovery, "CONTACT_SUPPORT")
            if asked:
                self._raise(gpu, RECOVERY, asked, f"the driver asks: {xids.actions()[asked].help}", seen.at_ns)
            if seen.remap_failed:
                self._raise(gpu, REMAP_FAILED, "CONTACT_SUPPORT", "a memory row could not be remapped", seen.at_ns)
            if seen.remap_pending:
                message = "a memory row is remapped at the next reset"
                self._raise(gpu, REMAP_PENDING, "RESET_GPU", message, seen.at_ns)
        for name, cause in list(gpu.causes.items()):
            if not self._over(gpu, cause, seen):
                cause.better_ns = None
                continue
            if cause.better_ns is None:
                cause.better_ns = seen.at_ns
            if seen.at_ns - cause.better_ns >= self.rules.settle_s * NS_PER_S:
                del gpu.causes[name]

    def _over(self, gpu: _Gpu, cause: FaultCause, seen: HealthReading) -> bool:
        """Whether the reading is evidence that the cause has ended."""
        if not seen.answers or seen.lost:
            return False
        match cause.name:
            case "gpu-lost":
                return True
            case "recovery-action":
                return seen.recovery == 0
            case "row-remap-pending":
                return seen.remap_pending is False
            case "row-remap-failure":
                return seen.remap_failed is False
            case "repeated-faults":
                return self._recent(gpu, seen.at_ns) < self.rules.repeats
            case "test-failed":
                return cause.renewed
            case _:
                return seen.recovery == 0 or (seen.recovery is None and cause.renewed)

    def _raise(self, gpu: _Gpu, name: str, action: str, message: str, at_ns: int) -> None:
        known = gpu.causes.get(name)
        if known is None:
            gpu.causes[name] = FaultCause(name, action, message, at_ns, at_ns)
            return
        known.action, known.message, known.last_ns, known.count = action, message, at_ns, known.count + 1
        known.renewed, known.better_ns = False, None
