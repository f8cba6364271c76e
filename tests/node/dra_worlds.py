"""A node with a DRA driver on simulated cards, a cluster that allocates its devices, and crashes at any point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocator, Feasibility
from tonnage.dra.nvidia import MIG_CLASS, device_classes, slice_specs
from tonnage.dra.pools import NodeView
from tonnage.node import cdi, dra_journal
from tonnage.node.device_health import DeviceHealth, HealthRules
from tonnage.node.dra_api import ClaimName, PreparedDevice
from tonnage.node.dra_claims import PREPARED, NotPrepared, overlap
from tonnage.node.dra_driver import ClaimsUnknown, DraDriver
from tonnage.node.dra_journal import ClaimJournal
from tonnage.node.dra_node import DraNode
from tonnage.node.driver_files import SimulatedFiles
from tonnage.node.health_watch import HealthWatch
from tonnage.node.simulated import SimulatedMachine
from tonnage.objects.base import ObjectMeta
from tonnage.objects.dra import V1, ResourceClaim, ResourceSlice
from tonnage.partitioning.layouts import Placement
from tonnage.units import NS_PER_S

NODE = "node-1"


class Crashed(BaseException):
    """The driver's process has ended here."""


class Fuse:
    """Ends the process at one of the next effects, before or after it."""

    def __init__(self) -> None:
        self.left: int | None = None

    def around(self, effect: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            self.burn()
            done = effect(*arguments, **named)
            self.burn()
            return done

        return run

    def burn(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            raise Crashed


class Control:
    """The machine, with a fuse in every change."""

    def __init__(self, machine: SimulatedMachine, fuse: Fuse) -> None:
        self._machine, self._fuse = machine, fuse

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._machine, name)
        changing = name in ("set_mode", "create", "destroy", "reset", "set_timeslice")
        return self._fuse.around(found) if changing else found


class Cluster:
    """Claims of one node, allocated by the allocator of what the driver offers."""

    def __init__(self) -> None:
        self.claims: dict[str, ResourceClaim] = {}
        self.answers = True
        self._made = 0

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        if not self.answers:
            raise ClaimsUnknown("no answer")
        return self.claims.get(name)


class Node:
    """``cards``: as --simulated has them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cards: str = "2xh100") -> None:
        self.machine = SimulatedMachine(cards, node=NODE)
        self.folder, self.cdi = folder, folder / "cdi"
        self.cluster, self.fuse = Cluster(), Fuse()
        self.said: list[str] = []
        self.now_s = 0
        self._made = 0
        for module in (cdi, dra_journal):
            monkeypatch.setattr(module, "write_whole", self.fuse.around(module.write_whole))
        self.start()

    def start(self) -> None:
        """The driver starts, with what is on the disk."""
        self.watch = HealthWatch(self.machine, DeviceHealth(HealthRules(settle_s=1)))
        control: Any = Control(self.machine, self.fuse)
        journal = ClaimJournal(self.folder / "claims.json")
        self.driver = DraDriver(
            self.machine, control, SimulatedFiles(), self.cdi, journal, self.cluster, NODE, self.said.append, wait_s=0
        )
        self.running = DraNode(self.machine, self.driver, self.watch, self.said.append, "NoSchedule", on_demand=True)
        self.look()

    def look(self, after_s: int = 1) -> None:
        self.now_s += after_s
        self.running.look(self.now_s * NS_PER_S)

    # ---- the cluster ----

    def allocator(self) -> Allocator:
        slices = [
            ResourceSlice(api_version=V1, kind="ResourceSlice", metadata=ObjectMeta(name=f"s-{at}"), spec=spec)
            for at, spec in enumerate(slice_specs(self.driver.offer.cards, NODE, 1))
        ]
        return Allocator(slices, device_classes())

    def allocate(self, class_name: str, *expressions: str, count: int = 1, config: Any = ()) -> ResourceClaim | None:
        """A claim with its devices; None: they do not fit."""
        self._made += 1
        name = f"claim-{self._made}"
        selectors = [{"cel": {"expression": text}} for text in expressions]
        exactly = {"deviceClassName": class_name, "selectors": selectors, "count": count}
        devices = {"requests": [{"name": "gpu", "exactly": exactly}], "config": list(config)}
        made = {
            "apiVersion": V1,
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "team", "uid": f"uid-{self._made}"},
            "spec": {"devices": devices},
        }
        claim = msgspec.convert(made, ResourceClaim)
        state = AllocatedState.of(self.cluster.claims.values())
        found = self.allocator().allocate([claim], NodeView(NODE), state)
        if found.feasibility is not Feasibility.ALLOCATED:
            return None
        status = msgspec.structs.replace(claim.status, allocation=found.results[0])
        claim = msgspec.structs.replace(claim, status=status)
        self.cluster.claims[name] = claim
        return claim

    def profile(self, name: str, **others: Any) -> ResourceClaim | None:
        """A claim for a MIG device of this profile."""
        return self.allocate(MIG_CLASS, f"device.attributes['gpu.nvidia.com'].profile == '{name}'", **others)

    def remove(self, claim: ResourceClaim) -> None:
        self.cluster.claims.pop(claim.name, None)

    # ---- the kubelet ----

    def prepare(self, claim: ResourceClaim) -> list[PreparedDevice]:
        return self.driver.prepare(ClaimName("team", claim.metadata.uid, claim.name))

    def unprepare(self, claim: ResourceClaim) -> None:
        self.driver.unprepare(ClaimName("team", claim.metadata.uid, claim.name))

    # ---- what there is ----

    def instances(self, card: int | None = None) -> list[tuple[int, str, int]]:
        """(card, profile, start) of every MIG instance."""
        found = []
        for one in self.machine.cards():
            state = self.machine.mig(one.index)
            found += [(one.index, each.profile, each.start) for each in (state.instances if state else ())]
        return [one for one in found if card in (None, one[0])]

    def specs(self) -> list[str]:
        return cdi.claims_in(self.cdi)

    def edits(self, claim: ResourceClaim) -> dict[str, Any]:
        """containerEdits of each device of a claim, by the device's name."""
        found = cdi.read(cdi.claim_path(claim.metadata.uid, self.cdi))
        assert found is not None
        prefix = f"{claim.metadata.uid}-"
        return {one["name"].removeprefix(prefix): one["containerEdits"] for one in found["devices"]}


def wrong(node: Node, standing: list[tuple[int, str, int]]) -> list[str]:
    """What must never be so: a device that two claims have, an instance that nobody made, a prepared claim whose device
    or specification is not there. ``standing``: instances that somebody has made by hand."""
    said = []
    records = node.driver.journal.records()
    held = [(record.uid, have) for record in records for have in record.devices]
    for at, (uid, have) in enumerate(held):
        for other, more in held[at + 1 :]:
            if uid != other and overlap(have.target, more.target):
                said.append(f"{have.device} of {uid} and {more.device} of {other}")
    meant = {
        (have.target.card, have.target.placement.profile, have.target.placement.start)
        for _, have in held
        if have.target.placement is not None
    }
    said += [f"nobody's: {one}" for one in node.instances() if one not in meant and one not in standing]
    for record in records:
        if record.stage != PREPARED:
            continue
        for have in record.devices:
            state = node.machine.mig(have.target.card)
            there = [Placement(one.start, one.profile) for one in state.instances] if state is not None else []
            if have.target.placement is not None and have.target.placement not in there:
                said.append(f"{have.device} of {record.uid} is not there")
            if have.target.placement is None and state is not None and state.enabled:
                said.append(f"{have.device} of {record.uid} is whole, and MIG is on")
        if record.uid not in node.specs():
            said.append(f"{record.uid} has no specification")
    return said


class Kubelet:
    """Pods that come and go at random on a node whose driver may crash at any effect. ``rng`` says what happens."""

    def __init__(self, node: Node, rng: Random) -> None:
        self.node, self.rng = node, rng
        self.running: list[ResourceClaim] = []
        self.crashes = 0
        self.prepared = 0

    def step(self) -> None:
        """One thing happens."""
        kind = self.rng.choice(["come", "come", "go", "go", "again", "restart", "silent", "look"])
        if kind == "come":
            self._come()
        elif kind == "go" and self.running:
            self._go(self.rng.choice(self.running))
        elif kind == "again" and self.running:
            self._until_done(self.node.prepare, self.rng.choice(self.running))
        elif kind == "restart":
            self.node.start()
        elif kind == "silent" and self.running:
            self.node.cluster.answers = False
            self._until_done(self.node.prepare, self.rng.choice(self.running))
            self.node.cluster.answers = True
        else:
            self.node.look()

    def _come(self) -> None:
        if self.rng.random() < 0.25:
            claim = self.node.allocate("gpu.nvidia.com")
        else:
            profile = self.rng.choice(["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb", "1g.10gb+me", "1g.20gb"])
            claim = self.node.profile(profile, count=self.rng.choice([1, 1, 2]))
        if claim is None:
            return
        self.running.append(claim)
        if self.rng.random() < 0.1:
            return  # the pod goes before the kubelet has asked
        self._until_done(self.node.prepare, claim)
        self.prepared += 1

    def _go(self, claim: ResourceClaim) -> None:
        self._until_done(self.node.unprepare, claim)
        self.node.remove(claim)
        self.running.remove(claim)

    def _until_done(self, ask: Callable[[ResourceClaim], object], claim: ResourceClaim) -> None:
        """As the kubelet: again and again, however often the driver crashes."""
        for _ in range(20):
            self.node.fuse.left = self.rng.randint(0, 12) if self.rng.random() < 0.6 else None
            try:
                ask(claim)
                self.node.fuse.left = None
                return
            except Crashed:
                self.crashes += 1
                self.node.start()
            except NotPrepared as error:
                self.node.fuse.left = None
                if not self.node.cluster.answers:
                    return  # asked again later
                raise AssertionError(f"{claim.name}: {error}") from error
        self.node.fuse.left = None
        ask(claim)

    def end(self) -> None:
        """All pods go."""
        for claim in list(self.running):
            self._go(claim)
        self.node.driver.tidy()
