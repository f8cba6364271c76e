"""What a node's exporter serves: dcgm-exporter's metrics of every GPU and MIG instance, with the pods that have them.

Names, types and labels are dcgm-exporter's. What differs, and why:

- A value of the whole card is there once, also where the card has MIG instances: repeated on each it would be summed.
- A device that several pods have has a series for each, with ``shared="true"``: they are readings of the same device.
  Memory and utilisation of such a pod are its own processes', and not marked, where those are known.
- Profiling fields, and all that the driver does not say, are absent, never 0.
- A device that several jobs of a batch system have has a series for each, marked likewise.
- ``DCGM_FI_DEV_XID_ERRORS`` is 0 again five minutes after the last Xid. Counters that stay are
  ``tonnage_gpu_xid_errors_total`` and ``tonnage_gpu_xid_last_seen_timestamp_seconds``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tonnage.facts import dcgm_fields, xids
from tonnage.metrics.exposition import help_text, labelled, number
from tonnage.node.attribution import PodHolder
from tonnage.node.counters import LABEL, DcgmCounter
from tonnage.node.device_health import DeviceHealth, XidSeen
from tonnage.node.devices import Devices, GpuInstance, GpuProcess, Identity, Measured
from tonnage.units import NS_PER_S

WINDOW_S = 300
"""For how long an Xid counts as recent: dcgm-exporter's window of DCGM_EXP_XID_ERRORS_COUNT."""

Labels: TypeAlias = dict[str, str]
Holders: TypeAlias = Mapping[str, Sequence[PodHolder]]


class Exposed(NamedTuple):
    """One sample: labels in the order in which they are written."""

    name: str
    labels: Labels
    value: float


class MoreLabels(NamedTuple):
    """``pods``: (namespace, pod) → labels of its metrics; ``jobs``: index of a GPU, or ``INDEX.INSTANCE``, → the jobs
    of a batch system that are on it."""

    pods: Mapping[tuple[str, str], Labels]
    jobs: Mapping[str, Sequence[str]]

    def on(self, sample: Exposed) -> Iterator[Exposed]:
        """The sample with these labels, once for each job."""
        labels = sample.labels
        of_pod = self.pods.get((labels.get("namespace", ""), labels.get("pod", "")), {})
        labels = labels | {key: value for key, value in of_pod.items() if key not in labels}
        instance = labels.get("GPU_I_ID")
        jobs = self.jobs.get(labels["gpu"] if instance is None else f"{labels['gpu']}.{instance}", ())
        shared = {"shared": "true"} if len(jobs) > 1 else {}
        if not jobs:
            yield sample._replace(labels=labels)
        for job in jobs:
            yield sample._replace(labels=labels | {"hpc_job": job} | shared)


NO_MORE = MoreLabels({}, {})


class NotAvailable(NamedTuple):
    """A field that is asked for and not there. ``device``: which GPU, or GPU and instance; empty: every one."""

    device: str
    field: str
    reason: str


class NodeExporter:
    """Reads the GPUs of one node. ``host``: the node's name. ``counters``: what is served.

    :meth:`read` has the samples of one scrape, and :attr:`missing` what was not there, with the reason."""

    def __init__(self, devices: Devices, health: DeviceHealth, host: str, counters: Sequence[DcgmCounter]) -> None:
        self._devices, self._health, self._host = devices, health, host
        self._fields = dcgm_fields.all()
        served = [one for one in counters if not self._fields[one.field].absent]
        self._counters = [one for one in served if one.type != LABEL]
        self._label_counters = [one for one in served if one.type == LABEL]
        self._never = [
            NotAvailable("", one.field, reason) for one in counters if (reason := self._fields[one.field].absent)
        ]
        self.missing: list[NotAvailable] = []
        self._types = {one.field: (one.type, one.help) for one in self._counters} | OWN

    def text(
        self, now_ns: int, holders: Holders, owners: Mapping[int, PodHolder] | None = None, more: MoreLabels = NO_MORE
    ) -> str:
        """The samples in Prometheus' text format, families by name."""
        families: dict[str, list[Exposed]] = {}
        for sample in self.read(now_ns, holders, owners, more):
            families.setdefault(sample.name, []).append(sample)
        lines = []
        for name in sorted(families):
            type_, help_ = self._types[name]
            lines += [f"# HELP {name} {help_text(help_)}", f"# TYPE {name} {type_}"]
            lines += [f"{name}{labelled(labels)} {number(value)}" for _, labels, value in families[name]]
        return "\n".join(lines) + "\n" if lines else ""

    def read(
        self, now_ns: int, holders: Holders, owners: Mapping[int, PodHolder] | None = None, more: MoreLabels = NO_MORE
    ) -> list[Exposed]:
        """The samples of now (``now_ns``: since 1970, as the times of the health's observations). ``holders``: who has
        each device, by UUID; ``owners``: the container of each process, by process id, as far as known.
        ``more``: labels of the pods, and the jobs on GPUs."""
        self.missing = list(self._never)
        driver = self._devices.driver()
        shared = {one.field: driver.version for one in self._label_counters if self._fields[one.field].value == DRIVER}
        found: list[Exposed] = []
        for card in self._devices.cards():
            labels = {
                "gpu": str(card.index),
                "UUID": card.uuid,
                "pci_bus_id": card.pci,
                "device": f"nvidia{card.minor}",
                "modelName": card.product,
            }
            tail = {"Hostname": self._host, **shared}
            found += self._card(card, labels, tail, now_ns, holders, owners or {})
            found += self._own(card, labels | tail)
        return found if more is NO_MORE else [one for each in found for one in more.on(each)]

    def _card(
        self,
        card: Identity,
        labels: Labels,
        tail: Labels,
        now_ns: int,
        holders: Holders,
        owners: Mapping[int, PodHolder],
    ) -> Iterator[Exposed]:
        state = self._devices.mig(card.index)
        split = state is not None and state.enabled
        values = self._card_values(card, now_ns)
        users = () if split else holders.get(card.uuid, ())
        shared = split or len(users) > 1  # only then is it asked, at 2 ms a card, what each process uses
        processes = self._devices.processes(card.index) if shared else ()
        for one in self._counters:
            field = self._fields[one.field]
            if field.value.startswith("health."):
                yield from self._health_samples(one.field, card, labels | tail, now_ns, users)
            elif not split or field.mig == dcgm_fields.CARD:
                yield from self._samples(one, f"GPU {card.index}", values, labels | tail, users, processes, owners)
            elif field.mig == dcgm_fields.NONE:
                self.missing.append(NotAvailable(f"GPU {card.index}", one.field, "not of a GPU in MIG mode"))
        for instance in state.instances if split and state is not None else ():
            own = labels | {"GPU_I_PROFILE": instance.profile, "GPU_I_ID": str(instance.id)} | tail
            yield from self._instance(card, instance, own, processes, holders, owners)

    def _instance(
        self,
        card: Identity,
        instance: GpuInstance,
        labels: Labels,
        processes: Sequence[GpuProcess],
        holders: Holders,
        owners: Mapping[int, PodHolder],
    ) -> Iterator[Exposed]:
        measured = _Values({"": self._devices.measure(card.index, instance.id)})
        mine = [one for one in processes if one.gpu_instance == instance.id]
        users = sorted({user for one in instance.compute for user in holders.get(one.uuid, ())})
        where = f"GPU {card.index} instance {instance.id}"
        for one in self._counters:
            if self._fields[one.field].mig == dcgm_fields.INSTANCE:
                yield from self._samples(one, where, measured, labels, users, mine, owners)
        sms = {one.name: one.sms for one in self._devices.profiles(card.index) if one.sms}
        if instance.profile in sms:
            yield Exposed("tonnage_gpu_mig_sm_share", labels, sms[instance.profile] / max(sms.values()))

    def _card_values(self, card: Identity, now_ns: int) -> _Values:
        condition = self._devices.condition(card.index)
        return _Values(
            {"": self._devices.measure(card.index), "rows": condition.rows, "errors": condition.errors},
            lost=condition.lost,
        )

    def _samples(
        self,
        counter: DcgmCounter,
        where: str,
        values: _Values,
        labels: Labels,
        users: Sequence[PodHolder],
        processes: Sequence[GpuProcess],
        owners: Mapping[int, PodHolder],
    ) -> Iterator[Exposed]:
        path = self._fields[counter.field].value
        value, reason = values.of(path)
        if value is None:
            self.missing.append(NotAvailable(where, counter.field, reason))
            return
        if len(users) < 2:
            yield Exposed(counter.field, labels | (_pod(users[0]) if users else {}), value)
            return
        for user in users:
            own = _of_processes(path, [one for one in processes if owners.get(one.pid) == user])
            marked = {} if own is not None else {"shared": "true"}
            yield Exposed(counter.field, labels | _pod(user) | marked, value if own is None else own)

    def _health_samples(
        self, name: str, card: Identity, labels: Labels, now_ns: int, users: Sequence[PodHolder]
    ) -> Iterator[Exposed]:
        pods = [_pod(user) | ({"shared": "true"} if len(users) > 1 else {}) for user in users] or [{}]
        recent = _recent(self._health, card.uuid, now_ns)
        window = {"window_size_in_ms": str(WINDOW_S * 1000)}
        for pod in pods:
            match self._fields[name].value:
                case "health.last_xid":
                    last = last_xid(self._health, card.uuid, now_ns)
                    said = xids.get(last).name if last else "No Error"
                    yield Exposed(name, labels | pod | {"err_code": str(last), "err_msg": said}, last)
                case "health.xids":
                    for xid, count in sorted(Counter(one.xid for one in recent).items()):
                        yield Exposed(name, labels | pod | window | {"xid": str(xid)}, count)
                case _:
                    code = next((one.name for one in self._health.causes(card.uuid)), "")
                    more = {"health_watch": "GPU", "health_error_code": code}
                    yield Exposed(name, labels | pod | more, 20 if code else 0)

    def _own(self, card: Identity, labels: Labels) -> Iterator[Exposed]:
        """What dcgm-exporter has not: health with its causes, counters of Xids and when each was seen last."""
        yield Exposed("tonnage_gpu_healthy", labels, float(self._health.healthy(card.uuid)))
        for cause in self._health.causes(card.uuid):
            yield Exposed("tonnage_gpu_fault_cause", labels | {"cause": cause.name, "action": cause.action}, 1)
        for (gpu, instance, xid), seen in sorted(self._health.seen.items(), key=str):
            if gpu != card.uuid:
                continue
            of = {"xid": str(xid)} | ({} if instance is None else {"GPU_I_ID": str(instance)})
            yield Exposed("tonnage_gpu_xid_errors_total", labels | of, seen.times)
            at_s = seen.last_ns / NS_PER_S
            yield Exposed("tonnage_gpu_xid_last_seen_timestamp_seconds", labels | of, at_s)


def last_xid(health: DeviceHealth, gpu: str, now_ns: int) -> int:
    """The last Xid of a GPU (by UUID) within :data:`WINDOW_S`; 0: none."""
    recent = _recent(health, gpu, now_ns)
    return recent[-1].xid if recent else 0


def _recent(health: DeviceHealth, gpu: str, now_ns: int) -> list[XidSeen]:
    return [one for one in health.latest if one.gpu == gpu and now_ns - one.at_ns <= WINDOW_S * NS_PER_S]


DRIVER = "driver.version"
OWN = {
    "tonnage_gpu_healthy": ("gauge", "Whether the GPU is healthy: 1 while it has no cause, else 0"),
    "tonnage_gpu_fault_cause": ("gauge", "Why the GPU is unhealthy, and what is to be done"),
    "tonnage_gpu_mig_sm_share": (
        "gauge",
        "The MIG instance's share of the SMs that instances of the GPU can have: weighs activities of instances",
    ),
    "tonnage_gpu_xid_errors_total": ("counter", "Xids since the agent started"),
    "tonnage_gpu_xid_last_seen_timestamp_seconds": ("gauge", "When the Xid was seen last, seconds since 1970"),
}
"""Types and help of the metrics that are not dcgm-exporter's."""


class _Values:
    """Readings by the part of the path before its dot."""

    def __init__(self, parts: Mapping[str, object], *, lost: bool = False) -> None:
        self._parts, self._lost = parts, lost

    def of(self, path: str) -> tuple[float | None, str]:
        """The value, or None and why there is none."""
        part, _, name = path.rpartition(".")
        read = self._parts.get(part)
        value = getattr(read, name, None)
        if value is not None:
            return float(value), ""
        if self._lost:
            return None, "the GPU is lost"
        said = read.absent.get(name, "") if isinstance(read, Measured) else ""
        return None, said or "the driver does not say"


def _pod(user: PodHolder) -> Labels:
    labels = {"container": user.container, "namespace": user.namespace, "pod": user.pod}
    if user.claim:
        namespace, _, name = user.claim.partition("/")
        labels |= {"dra_claim_name": name, "dra_claim_namespace": namespace}
    return labels


def _of_processes(path: str, processes: Sequence[GpuProcess]) -> float | None:
    """What a pod's own processes use of a shared device; None where that is not known."""
    if path == "framebuffer_used_mib":
        each = [one.used_mib for one in processes]
    elif path == "gpu_utilization":
        each = [one.sm_utilization for one in processes]
    else:
        return None
    known = [value for value in each if value is not None]
    return float(sum(known)) if known and len(known) == len(each) else None
