"""The openb trace and its protocol: nodes, pods, and the arrivals of one seed, as rows for a fleet.

Source: alibaba/clusterdata cluster-trace-gpu-v2023; Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), and
hkust-adsl/kubernetes-scheduler-simulator experiments/README.md: pods in random order, then more of them drawn with
replacement, until their GPUs add up to 130 % of the cluster's. Node names are in random order: they break ties."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tonnage.fleet.state import Fleet, FleetNode, FleetPod
from tonnage.objects import core

GPU = "nvidia.com/gpu"
MODEL = "nvidia.com/gpu.product"
OVERLOAD = 1.3
FULL = 1000
MIB = 1 << 20
NODES = "openb_node_list_gpu_node"
PODS = "openb_pod_list_"


class Asked(msgspec.Struct, frozen=True, order=True):
    """What a pod of the list asks: cores (milli), MiB, GPUs, thousandths of each, and the models that it names."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: str = ""

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.milli


def folder(given: Path | None) -> Path | None:
    """The folder with the trace's files: the one given or ``openb`` in it; None where neither has the nodes."""
    for one in (given / "openb", given) if given else ():
        if any(one.glob(f"{NODES}.csv*")):
            return one
    return None


def nodes(folder: Path) -> list[dict[str, str]]:
    """The GPU nodes."""
    return list(_rows(folder, NODES))


def pods(folder: Path, variant: str) -> list[Asked]:
    """The pods of a variant. Raises FileNotFoundError with what there is instead."""
    found = []
    for row in _rows(folder, PODS + variant):
        gpus = int(row["num_gpu"])
        milli = 0 if not gpus else FULL if gpus > 1 else int(row["gpu_milli"])
        found.append(Asked(int(row["cpu_milli"]), int(row["memory_mib"]), gpus, milli, row.get("gpu_spec") or ""))
    return found


def variants(folder: Path) -> list[str]:
    """The variants whose pod lists are there."""
    names = {path.name.removeprefix(PODS).partition(".csv")[0] for path in folder.glob(f"{PODS}*.csv*")}
    return sorted(names)


def table(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV file, packed or not."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as lines:
        yield from csv.DictReader(lines)


def _rows(folder: Path, name: str) -> Iterator[dict[str, str]]:
    plain, packed = folder / f"{name}.csv", folder / f"{name}.csv.gz"
    if plain.exists():
        yield from table(plain)
    elif packed.exists():
        yield from table(packed)
    else:
        have = ", ".join(variants(folder)) or "none"
        raise FileNotFoundError(f"{plain} (or .csv.gz) is not there; pod lists in that folder: {have}")


def arrivals(listed: Sequence[Asked], capacity: int, rng: random.Random) -> list[Asked]:
    """The pods in the order in which they come: all of the list, and more of it up to 130 % of the capacity."""
    order = list(listed)
    rng.shuffle(order)
    limit = capacity * OVERLOAD
    asked = sum(one.gpu_milli for one in order)
    while asked > limit:
        asked -= order.pop(rng.randrange(len(order))).gpu_milli
    while True:
        more = listed[rng.randrange(len(listed))]
        if asked + more.gpu_milli > limit:
            return order
        asked += more.gpu_milli
        order.append(more)


def capacity(machines: Sequence[dict[str, str]]) -> int:
    """Thousandths of GPUs of all nodes."""
    return sum(int(one["gpu"]) for one in machines) * FULL


def empty_fleet(machines: Sequence[dict[str, str]], rng: random.Random) -> Fleet:
    """The nodes, named in random order."""
    fleet = Fleet()
    order = list(range(len(machines)))
    rng.shuffle(order)
    for place, one in sorted(zip(order, machines, strict=True), key=lambda pair: pair[0]):
        allocatable = {
            "cpu": int(one["cpu_milli"]),
            "memory": int(one["memory_mib"]) * MIB,
            "pods": 1_000,
            GPU: int(one["gpu"]),
        }
        name = f"node-{place:04d}"
        fleet.add_node(FleetNode(name, allocatable, {MODEL: one["model"]}, device_resource=GPU))
    return fleet


class Stamp:
    """Makes pods; those that ask for the same share one spec."""

    def __init__(self) -> None:
        self._specs: dict[Asked, core.PodSpec] = {}

    def pod(self, number: int, asked: Asked) -> FleetPod:
        """The pod that comes as number so and so."""
        spec = self._specs.get(asked)
        if spec is None:
            spec = self._specs[asked] = _spec(asked)
        share = 0 < asked.milli < FULL
        annotations = {"gpu-fraction": f"{asked.milli / FULL:g}"} if share else {}
        return FleetPod("openb", f"p{number:05d}", "", {}, spec, created_ns=number, annotations=annotations)


def _spec(asked: Asked) -> core.PodSpec:
    requests = {"cpu": f"{asked.cpu}m", "memory": f"{asked.memory}Mi"}
    if asked.milli == FULL:
        requests[GPU] = str(asked.gpus)
    written: dict[str, object] = {"containers": [{"name": "main", "resources": {"requests": requests}}]}
    if asked.models:
        term = {"matchExpressions": [{"key": MODEL, "operator": "In", "values": asked.models.split("|")}]}
        written["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        }
    return msgspec.convert(written, core.PodSpec)
