"""Nodes that ran for a while, as a bill or an export of usage has them, and what they cost by the ledger's own rule."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from msgspec import Struct

from tonnage.costs.ledger import billed
from tonnage.facts import instances
from tonnage.facts.instances import InstanceType
from tonnage.units import MIB, ns


class NodeUsage(Struct, frozen=True, kw_only=True):
    """``nodes`` equal nodes between two times (Unix, ns), and what was done with them.

    ``gpus_used``: GPUs in use on all of them together, on average; on nodes without GPUs the nodes in use.
    ``gpus_per_pod``: GPUs of one pod, which are on one node; ``cpu_milli_per_pod``, ``memory_bytes_per_pod``: what else
    it requests, 0 where that is not known. ``interruptible``: the work may run on spot nodes.
    ``off_hours``: it is needed outside business hours too. ``training``: what was computed since the last checkpoint is
    lost with a node; ``checkpoint_s``: work between two checkpoints, 0 for none; ``write_s``, ``restart_s``: seconds
    that writing one, and going on after an interruption, take. ``lost``: time spent beyond the work on account of
    interruptions and checkpoints, as a share of it."""

    start_ns: int
    end_ns: int
    instance_type: str
    price_micro_usd_per_hour: int
    nodes: int = 1
    capacity_type: str = "on-demand"
    zone: str = ""
    workload: str = ""
    gpus_used: Fraction = Fraction(0)
    gpus_per_pod: int = 1
    cpu_milli_per_pod: int = 0
    memory_bytes_per_pod: int = 0
    interruptible: bool = False
    off_hours: bool = True
    training: bool = False
    checkpoint_s: float = 0.0
    write_s: float = 0.0
    restart_s: float = 0.0
    lost: float = 0.0

    @property
    def work_ns(self) -> int:
        """How long each node was there."""
        return self.end_ns - self.start_ns

    @property
    def paid_until_ns(self) -> int:
        """When each node ends once it has repeated what interruptions cost."""
        return self.end_ns + ns(self.work_ns / 1e9 * self.lost)

    @property
    def cost_micro_usd(self) -> int:
        """What the nodes cost together, each billed as the ledger does."""
        return self.nodes * billed(self.price_micro_usd_per_hour, self.paid_until_ns - self.start_ns)

    @property
    def gpus(self) -> int:
        """GPUs, or other accelerators, of one node."""
        return devices(instances.get(self.instance_type))

    @property
    def pods(self) -> int:
        """Pods on all of its nodes, no more than their GPUs are enough for; without GPUs, one on each node in use."""
        room = self.nodes * (self.gpus // self.gpus_per_pod) if self.gpus else self.nodes
        return min(room, ceil(self.gpus_used / self.gpus_per_pod) if self.gpus else ceil(self.gpus_used))

    def pods_on(self, machine: InstanceType) -> int:
        """Pods like these that a machine with the same accelerators has room for. A pod of which CPU or memory is not
        known is taken to need the part of its node that its GPUs are."""
        own = instances.get(self.instance_type)
        part = Fraction(self.gpus_per_pod, devices(own))
        cpu, memory = self.cpu_milli_per_pod, self.memory_bytes_per_pod
        return min(
            devices(machine) // self.gpus_per_pod,
            machine.allocatable_cpu_milli // cpu if cpu else machine.vcpu // (own.vcpu * part),
            machine.allocatable_memory_mib * MIB // memory if memory else machine.memory_mib // (own.memory_mib * part),
        )


def devices(machine: InstanceType) -> int:
    """GPUs, or other accelerators, of a machine."""
    return machine.gpu_count or machine.resource_count


def total(usage: Iterable[NodeUsage]) -> int:
    """Micro-dollars of all of it."""
    return sum(one.cost_micro_usd for one in usage)
