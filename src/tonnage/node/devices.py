"""The port to the GPUs of one machine: what they are, how they are, what they say, and what can be done to them.

Two implementations: NVML (:mod:`tonnage.node.nvml_devices`) and a simulated machine (:mod:`tonnage.node.simulated`).
None is "the driver does not say", everywhere; a value that is not there is never 0. Cards are numbered as NVML does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from msgspec import Struct

from tonnage.facts.mig import MigProfile


class Driver(Struct, frozen=True):
    """``version`` as in 580.105.08; ``cuda``: the newest CUDA that it supports, as (13, 0); ``nvml``: the library."""

    version: str
    cuda: tuple[int, int] | None = None
    nvml: str = ""


class Identity(Struct, frozen=True):
    """What of a card never changes. ``minor``: of /dev/nvidiaN. ``pci``: as in 00000000:65:00.0. ``device_id``: PCI
    device before vendor, 16 bits each; ``subsystem_id`` likewise. ``gpu``: its name in the facts, empty where it has
    none there. ``compute``: its compute capability. ``numa``: the NUMA node that it is at."""

    index: int
    minor: int
    uuid: str
    product: str
    gpu: str
    pci: str
    device_id: int
    memory_mib: int
    compute: tuple[int, int] | None = None
    numa: int | None = None
    subsystem_id: int | None = None
    brand: str = ""
    serial: str = ""
    vbios: str = ""
    pci_class: int | None = None
    """PCI class with subclass: 0x0302 of a 3D controller, 0x0300 of one with a display."""


class ComputeInstance(Struct, frozen=True):
    """A compute instance: what is called a MIG device. ``start`` and ``slices``: of the GPU instance's compute."""

    id: int
    uuid: str
    slices: int
    start: int = 0


class GpuInstance(Struct, frozen=True):
    """A GPU instance that exists: ``profile`` as in 1g.10gb, over ``size`` memory slices from ``start`` on.

    ``minor`` of its capability file and of each compute instance's (/dev/nvidia-caps/nvidia-capN), by compute
    instance; that of the GPU instance itself under None."""

    id: int
    profile: str
    profile_id: int
    start: int
    size: int
    compute: tuple[ComputeInstance, ...] = ()
    minors: Mapping[int | None, int] = {}


class MigState(Struct, frozen=True):
    """``enabled``: MIG is on; ``pending``: it will be after a reset. ``instances``: by place."""

    enabled: bool
    pending: bool
    instances: tuple[GpuInstance, ...] = ()


class Ancestor(IntEnum):
    """What two cards have in common on the way to each other (nvmlGpuTopologyLevel_t): the less, the nearer."""

    INTERNAL = 0
    SINGLE = 10
    MULTIPLE = 20
    HOSTBRIDGE = 30
    NODE = 40
    SYSTEM = 50


class Link(Struct, frozen=True):
    """How two cards are joined, ``a`` < ``b``. ``nvlinks``: active links straight to each other; ``switched``: both
    reach each other through NVLink switches."""

    a: int
    b: int
    ancestor: Ancestor | None
    nvlinks: int = 0
    switched: bool = False


class Fabric(Struct, frozen=True):
    """The NVLink fabric that a card belongs to. ``state``: 0 not supported, 1 not started, 2 in progress, 3 completed.
    ``health_mask``: as the driver gives it."""

    cluster: str
    clique: int
    state: int
    health_mask: int | None = None


class Pcie(Struct, frozen=True):
    """The link to the host, as it is and as it can be."""

    generation: int | None
    width: int | None
    max_generation: int | None
    max_width: int | None


class RecoveryAction(IntEnum):
    """What the driver wants done with a card (NVML field 230, GET_GPU_RECOVERY_ACTION)."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7


class RemappedRows(Struct, frozen=True):
    """Rows of memory that have been replaced; ``pending``: some will be at the next reset; ``failed``: one cannot."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


class EccCounts(Struct, frozen=True):
    """ECC errors since the driver was loaded (volatile) and since the card was made (aggregate)."""

    corrected_volatile: int | None = None
    uncorrected_volatile: int | None = None
    corrected_aggregate: int | None = None
    uncorrected_aggregate: int | None = None


class CardCondition(Struct, frozen=True):
    """What of a card tells faults. ``lost``: it does not answer; then nothing else is known. ``ecc``: whether ECC is
    on. ``throttle``: reasons why clocks are held down, nvidia-smi's names (``sw_power_cap``). ``nvlinks_down``: links
    that should be up and are not. ``persistence``: persistence mode."""

    lost: bool = False
    recovery: RecoveryAction | None = None
    rows: RemappedRows | None = None
    ecc: bool | None = None
    errors: EccCounts = EccCounts()
    throttle: tuple[str, ...] = ()
    nvlinks_down: tuple[int, ...] = ()
    retired_pages: int | None = None
    persistence: bool | None = None
    compute_mode: str = ""
    power_limit_w: float | None = None


class Measured(Struct, frozen=True):
    """Measurements of a card, or of one GPU instance of it. Utilisations are 0 to 100, shares 0 to 1, rates bytes a
    second, counters since the driver was loaded. Shares are means since the last reading of the same device (GPM).
    ``absent``: why a field is None, by field, where the driver says a reason."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    gpu_temperature_c: int | None = None
    memory_temperature_c: int | None = None
    power_w: float | None = None
    energy_mj: int | None = None
    pcie_replays: int | None = None
    gpu_utilization: int | None = None
    memory_utilization: int | None = None
    encoder_utilization: int | None = None
    decoder_utilization: int | None = None
    framebuffer_free_mib: int | None = None
    framebuffer_used_mib: int | None = None
    framebuffer_reserved_mib: int | None = None
    nvlink_bytes: int | None = None
    vgpu_license: int | None = None
    graphics_active: float | None = None
    sm_active: float | None = None
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    dram_active: float | None = None
    pcie_sent_bytes_per_s: float | None = None
    pcie_received_bytes_per_s: float | None = None
    nvlink_sent_bytes_per_s: float | None = None
    nvlink_received_bytes_per_s: float | None = None
    absent: Mapping[str, str] = {}


class GpuProcess(Struct, frozen=True):
    """A process on a card. ``kind``: compute, graphics or mps. ``gpu_instance``, ``compute_instance``: None on a whole
    card. ``sm_utilization``: 0 to 100, its share of the card's time over the last second."""

    pid: int
    kind: str
    used_mib: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    sm_utilization: int | None = None


class DeviceEvent(Struct, frozen=True):
    """Something that a card reported. ``kind``: ``xid`` (``value``: its number), ``ecc-single``, ``ecc-double``,
    ``mig`` (its instances changed), ``unavailable``, ``recovery`` (``value``: the action), ``retirement``, ``poison``,
    or ``other``. ``gpu_instance``, ``compute_instance``: None where it is about the whole card. ``card``: None where it
    is about all of the machine."""

    card: int | None
    kind: str
    value: int = 0
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Devices(Protocol):
    """The GPUs of a machine, read. Methods raise InputError where the driver fails."""

    def driver(self) -> Driver: ...

    def cards(self) -> Sequence[Identity]:
        """Every card that is there, by index; one that is lost stays among them."""
        ...

    def mig(self, card: int) -> MigState | None:
        """None: the card has no MIG."""
        ...

    def profiles(self, card: int) -> Sequence[MigProfile]:
        """The GPU instance profiles that the card has, with the card's own values where it gives any."""
        ...

    def links(self) -> Sequence[Link]:
        """Every pair of cards."""
        ...

    def fabric(self, card: int) -> Fabric | None: ...

    def pcie(self, card: int) -> Pcie: ...

    def condition(self, card: int) -> CardCondition: ...

    def measure(self, card: int, gpu_instance: int | None = None) -> Measured: ...

    def processes(self, card: int) -> Sequence[GpuProcess]: ...

    def events(self, timeout_s: float) -> Sequence[DeviceEvent]:
        """What was reported since the last call, waiting up to ``timeout_s`` for the first of it."""
        ...


class MigControl(Protocol):
    """What can be changed. Methods raise InputError with the driver's reason where it refuses."""

    def can_reset(self, card: int) -> bool:
        """Whether a reset is possible here: machines with passed-through cards often refuse it."""
        ...

    def needs_reset(self, card: int) -> bool:
        """Whether a change of MIG mode takes effect only after a reset (Ampere)."""
        ...

    def set_mode(self, card: int, on: bool) -> None:
        """Switch MIG; with :meth:`needs_reset` it stays pending until :meth:`reset`."""
        ...

    def create(self, card: int, profile: str, start: int) -> GpuInstance:
        """Make a GPU instance from this memory slice on, with one compute instance over all of it."""
        ...

    def destroy(self, card: int, gpu_instance: int) -> None:
        """Remove a GPU instance and its compute instances."""
        ...

    def reset(self, card: int) -> None: ...

    def set_timeslice(self, card: int, interval: str) -> None:
        """How long a process has the card before the next one has it: Default, Short, Medium or Long."""
        ...


class GpuMachine(Devices, MigControl, Protocol):
    """Both."""
