"""The series of dcgm-exporter that a simulated GPU has beside its utilisation and memory.

The fields and what stands behind them are those of a node's exporter (:mod:`tonnage.facts.dcgm_fields`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from tonnage.errors import InputError
from tonnage.facts import dcgm_fields, gpu_use, gpus, metric_names
from tonnage.machines.objects import SimulatedNode
from tonnage.units import NS_PER_S

ALWAYS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")
"""What is there whether or not a query names it."""


def asked_fields(names: Iterable[str] | None) -> tuple[str, ...]:
    """The fields among these names of metrics that dcgm-exporter serves by default, but for those of :data:`ALWAYS`;
    None: all of them."""
    served = (one for one in metric_names.all() if one.exporter == "dcgm-exporter" and one.status == "default")
    wanted = None if names is None else set(names)
    return tuple(
        one.name
        for one in served
        if one.type != "label" and one.name not in ALWAYS and (wanted is None or one.name in wanted)
    )


@dataclass(slots=True)
class GpuSeries:
    """``fields``: what is exported. ``energy``: by GPU, when it was read last and the mJ that it had used then."""

    fields: tuple[str, ...]
    energy: dict[str, tuple[int, float]] = field(default_factory=dict)

    def of(
        self, node: SimulatedNode, device: int, load: float, used_mib: int, now_ns: int
    ) -> Iterator[tuple[str, float]]:
        """Name and value of each field of a whole GPU whose engine took the share ``load`` of its time since the last
        scrape. What the simulated driver does not say is left out."""
        if not self.fields:
            return
        from tonnage.node.devices import EccCounts, RemappedRows  # for those who have fields exported
        from tonnage.node.exporter import last_xid
        from tonnage.node.simulated_readings import whole_card

        try:
            gpu = gpus.get(node.gpu)
        except InputError:
            return
        uuid = node.gpu_uuid(device)
        sms, bandwidth = gpu_use.decode()
        read = whole_card(gpu, load, used_mib, node.gpu_memory_mib, sms=sms, bandwidth=bandwidth)
        before_ns, used_mj = self.energy.get(uuid, (node.launched_ns, 0.0))
        used_mj += (read.power_w or 0.0) * 1000 * (now_ns - before_ns) / NS_PER_S
        self.energy[uuid] = (now_ns, used_mj)
        read = replace(read, energy_mj=round(used_mj))
        parts = {"": read, "rows": RemappedRows(0, 0, False, False), "errors": EccCounts(0, 0, 0, 0)}
        for name in self.fields:
            path = dcgm_fields.all()[name].value
            part, _, what = path.rpartition(".")
            health = path == "health.last_xid"
            value = last_xid(node.health, uuid, now_ns) if health else getattr(parts.get(part), what, None)
            if value is not None:
                yield name, float(value)
