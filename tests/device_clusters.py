"""Random fleets whose devices are cut and shared in every way, and a plain search for what fits to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random
from typing import Any

import numpy as np

from builders import GPU, node, pod
from random_clusters import Changes
from tonnage.facts import mig
from tonnage.fleet.asks import SHARED_GPU, Ask, Kind
from tonnage.fleet.devices import OPEN, Cut, DeviceState, How
from tonnage.fleet.fits import DeviceFit, choices, fits
from tonnage.fleet.invariants import violations
from tonnage.fleet.outfit import offered
from tonnage.fleet.state import NO_DEVICE, Conflict, Fleet, FleetNode, FleetPod
from tonnage.objects import core

MEMORY, REPLICAS, STRATEGY = "nvidia.com/gpu.memory", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
H100, A30 = Cut(How.MIG, isolated=True, gpu="h100"), Cut(How.MIG, isolated=True, gpu="a30")
PUBLISHED = replace(H100, whole=True)
SPLIT = Cut(How.SPLIT, GPU, 3, isolated=True)
PARTS = ("gpumem", "gpumem-percentage", "gpucores")
FIXED = tuple(
    replace(H100, instances=tuple((f"nvidia.com/mig-{name}", start) for name, start in card))
    for card in (
        (("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 2), ("3g.40gb", 4)),
        (("4g.40gb", 0), ("2g.20gb", 4), ("1g.10gb.me", 6)),
        (("7g.80gb", 0),),
    )
)
MIXED = {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-2g.20gb": 2, "nvidia.com/mig-3g.40gb": 2}
PROFILES = (
    "1g.10gb",
    "1g.10gb",
    "1g.10gb.me",
    "1g.20gb",
    "2g.20gb",
    "3g.40gb",
    "4g.40gb",
    "7g.80gb",
    "1g.6gb",
    "2g.12gb",
)


def random_node(rng: Random, name: str, *, published: bool = False) -> FleetNode:
    """A node with devices that are open, replicated, split, in MIG instances, or some of these. ``published``: or as a
    DRA driver publishes them, whole and in all placements."""
    memory = {MEMORY: rng.choice(("8000", "81559"))} if rng.random() < 0.8 else {}
    kind = rng.randrange(7)
    if kind <= 1:
        if rng.random() < 0.4:  # memory or cores of GPUs are numbers there
            numbers = rng.choice(({"nvidia.com/gpumem": 7000}, {"nvidia.com/gpumem": 6000, "nvidia.com/gpucores": 130}))
            return node(name, gpus=rng.choice((1, 2, 4)), labels=memory, resources=numbers, splits=rng.random() < 0.2)
        return node(name, gpus=rng.choice((1, 2, 4)), labels=memory)
    if kind == 2:
        resource, n, each = rng.choice((GPU, SHARED_GPU)), rng.choice((1, 2)), rng.choice((2, 3, 4))
        labels = {REPLICAS: str(each), STRATEGY: rng.choice(("time-slicing", "mps"))}
        return node(name, resources={resource: n * each}, labels=labels | memory, device_resource=GPU)
    if kind == 3:
        return node(name, resources=MIXED | {GPU: rng.randrange(2)}, device_resource=GPU, gpu="h100")
    among: tuple[tuple[Cut, ...], ...] = ((SPLIT,), (SPLIT, OPEN), (H100,), (A30,), FIXED)
    ways = (*among, (PUBLISHED,), (PUBLISHED, OPEN)) if published else among
    chosen = ways[rng.randrange(len(ways))]
    cuts = tuple(rng.choice(chosen) for _ in range(rng.choice((1, 2, 2))))
    return node(
        name, resources=offered(cuts, GPU), device_resource=GPU, labels=memory, cuts=cuts, gpu=rng.choice(("", "h100"))
    )


def random_pod(rng: Random, name: str, *, beside: bool = False) -> FleetPod:
    """A pod that asks for devices in any of the ways. ``beside``: for whole ones beside MIG instances too."""
    kind = rng.randrange(8)
    if kind == 0:
        return pod(name, cpu=0.1, gpus=rng.choice((0, 1, 1, 2)))
    if kind == 1:
        return pod(name, cpu=0.1, resources={SHARED_GPU: rng.choice(("1", "2"))})
    if kind <= 3:
        annotations = {"gpu-fraction": rng.choice(("0.5", "0.25", "0.3", "0.81", "0.001", "0.999", "1.5"))}
    elif kind == 4:
        annotations = {"gpu-memory": rng.choice(("1000", "4000", "40000", "90000", "0"))}
    elif kind == 5:
        return pod(name, cpu=0.1, resources=_virtual(rng))
    else:
        picked = rng.sample(PROFILES, rng.choice((1, 1, 2)))
        wanted = {f"nvidia.com/mig-{one}": rng.choice(("1", "1", "2")) for one in picked[:2]}
        return pod(name, cpu=0.1, resources=wanted | ({GPU: "1"} if beside and rng.random() < 0.2 else {}))
    if rng.random() < 0.25:
        annotations["gpu-fraction-num-devices"] = rng.choice(("1", "2", "2", "none"))
    return pod(name, cpu=0.1, annotations=annotations)


def _virtual(rng: Random) -> dict[str, str]:
    wanted = {GPU: rng.choice(("1", "1", "2"))} if rng.random() < 0.9 else {}
    if rng.random() < 0.7:
        wanted |= rng.choice(
            ({"nvidia.com/gpumem": "3000"}, {"nvidia.com/gpumem-percentage": rng.choice(("30", "50"))})
        )
    if rng.random() < 0.5 or len(wanted) < 2:
        wanted["nvidia.com/gpucores"] = rng.choice(("30", "50", "100", "110"))
    return wanted


class DeviceChanges(Changes):
    """Random changes of such fleets; where a pod fits is compared with a plain search before it is bound.

    ``observed``: among the changes are those of a cluster that nobody asks, by which pods may lose devices."""

    observed = False

    def changes(self) -> Sequence[Callable[[Any], None]]:
        return (*_CHANGES, *_OBSERVED) if self.observed else _CHANGES

    def _see_allocatable(self) -> None:
        if not self.fleet._undo.records:
            self.fleet.set_allocatable(*self._other_allocatable(), observed=True)

    def _see_bound(self) -> None:
        pending, rows = sorted(self.fleet.pending), self.fleet.node_rows()
        if pending and rows:
            self.fleet.bind(self.rng.choice(pending), self.rng.choice(rows), observed=True)

    def _add_node(self) -> None:
        self.fleet.add_node(random_node(self.rng, self._name("n"), published=True))

    def _add_pod(self) -> None:
        self.fleet.add_pod(random_pod(self.rng, self._name("p"), beside=True))

    def _bind_some(self) -> None:
        pending = sorted(self.fleet.pending)
        rows = self.fleet.node_rows()
        if pending and rows:
            pod_row, row = self.rng.choice(pending), self.rng.choice(rows)
            if not self.observed:
                check_fit(self.fleet, pod_row, row)
            shape = self.fleet.classes.shapes[self.fleet.pod_class(pod_row).shape]
            if fits(self.fleet, np.array([row]), shape)[0]:
                self._bound(pod_row, row)

    def _bound(self, pod_row: int, row: int) -> None:
        """What is said to fit is bound."""
        try:
            self.fleet.bind(pod_row, row)
        except Conflict as conflict:
            raise AssertionError(self.fleet.pod(pod_row).spec, self.fleet.node(row)) from conflict

    def _set_allocatable(self) -> None:
        self.fleet.set_allocatable(*self._other_allocatable())

    def _other_allocatable(self) -> tuple[int, dict[str, int]]:
        row = self._node_row()
        there = self.fleet.allocatable_of(row) if self.fleet.node(row) else {}
        changed = {name: self.rng.choice((0, n - 1, n, n + 1)) for name, n in there.items() if "/" in name}
        return row, there | changed

    def _set_labels(self) -> None:
        row = self._node_row()
        labels = dict(self.fleet.node(row).spec.labels)
        if self.rng.random() < 0.4:
            labels |= {MEMORY: self.rng.choice(("8000", "81559", "x"))}
        if self.rng.random() < 0.3:
            labels |= {REPLICAS: self.rng.choice(("0", "1", "2"))}
        self.fleet.set_labels(row, labels)

    def _set_cuts(self) -> None:
        row = self._node_row()
        self.fleet.node(row)
        count = int((self.fleet.devices[row] != NO_DEVICE).sum())
        among = self.rng.choice(((H100, *FIXED), (OPEN, SPLIT), (OPEN, H100), (H100, PUBLISHED), (OPEN, PUBLISHED)))
        self.fleet.set_cuts(row, [self.rng.choice(among) for _ in range(count)])


_CHANGES: tuple[Callable[[DeviceChanges], None], ...] = (
    DeviceChanges._add_node,
    DeviceChanges._add_pod,
    DeviceChanges._add_pod,
    DeviceChanges._add_pod,
    DeviceChanges._bind,
    *(DeviceChanges._bind_some,) * 6,
    DeviceChanges._remove_node,
    DeviceChanges._remove_pod,
    DeviceChanges._unbind,
    DeviceChanges._unbind,
    DeviceChanges._set_allocatable,
    DeviceChanges._set_cuts,
)
_OBSERVED: tuple[Callable[[DeviceChanges], None], ...] = (
    DeviceChanges._set_labels,
    DeviceChanges._see_allocatable,
    DeviceChanges._see_bound,
)


OVERDONE = ("holds", "more allocated", "more milli", "more mib")
"""What can be so where a cluster has done it unasked."""


def random_walk(rng: Random, steps: int, *, observed: bool, every: int = 1) -> None:
    """Make this many changes of a fleet, and look at its invariants after every this many of them."""
    made = Fleet()
    seen = 0

    def check() -> None:
        nonlocal seen
        seen += 1
        if seen % every == 0:
            broken = violations(made)
            assert not [one for one in broken if not observed or not any(text in one for text in OVERDONE)]

    changes = DeviceChanges(rng, made, check)
    changes.observed = observed
    for _ in range(steps):
        changes.step()


# ---- what fits, by trying everything ----


@dataclass
class Plain:
    """One device as the search sees it. ``mib`` is None where it is not known."""

    cut: Cut
    mib: int | None
    milli: int = 1000
    whole: bool = False
    sharers: int = 0
    instances: tuple[tuple[str, int], ...] = ()


def check_fit(fleet: Fleet, pod_row: int, row: int) -> None:
    """Fit, choices and bind agree with a search over all ways to give the node's devices."""
    shape = fleet.classes.shapes[fleet.pod_class(pod_row).shape]
    there = {name: int(fleet.free[row, fleet.resource(name)]) for name in ("cpu", "memory", "pods")}
    enough = all(n <= there.get(name, n) for name, n in shape.requests.items())
    parts = core.pod_requests(fleet.pod(pod_row).spec.spec)
    expected = enough and (
        plain_numbers(fleet, row, parts)
        if shape.ask.plain >= 0 and _lists_parts(fleet, row)
        else plain_fit(fleet, row, shape.ask, shape.requests)
    )
    about = (fleet.pod(pod_row).spec, fleet.node(row), plain_devices(fleet, row))
    assert fits(fleet, np.array([row]), shape).tolist() == [expected], about
    found = choices(fleet, row, shape.ask)
    if expected and shape.ask.kind is not Kind.NONE:
        assert found, about
        assert len({(one.devices, one.after) for one in found}) == len(found)
    if shape.ask.shares and found:
        with fleet.what_if():
            assert not expected or fleet.bind(pod_row, row) == found[0].devices, about
    for devices in [None, *(one.devices for one in found[:4])]:
        with fleet.what_if():
            try:
                held = fleet.bind(pod_row, row, devices)
                assert expected, about
                after = tuple(fleet.cards.state(row, device) for device in held)
                assert any(_same_devices(held, after, one) for one in found) or not held
            except Conflict:
                assert not (expected and devices is None), about


def _same_devices(held: Sequence[int], after: Sequence[DeviceState], choice: DeviceFit) -> bool:
    return dict(zip(held, after, strict=True)) == dict(zip(choice.devices, choice.after, strict=True))


def plain_devices(fleet: Fleet, row: int) -> list[Plain]:
    """The node's devices, from its cuts and what its pods hold."""
    node_row = fleet.node(row)
    count = int((fleet.devices[row] != NO_DEVICE).sum())
    cuts = (node_row.cuts or (OPEN,) * count)[:count]
    memory = int(fleet.cards.memory[row]) or None
    devices = [Plain(cut, memory) for cut in cuts]
    for pod_row in node_row.pods:
        held = fleet.pod(pod_row)
        for piece in held.pieces:
            device = devices[piece.device]
            device.milli -= piece.milli
            device.sharers += 1
            if device.mib is not None:
                device.mib -= piece.mib
            if piece.what:
                device.instances += ((piece.what, (piece.mask & 0xFF & -piece.mask).bit_length() - 1),)
        for index in set(held.devices) - {piece.device for piece in held.pieces}:
            devices[index].whole = True
    return devices


def plain_fit(fleet: Fleet, row: int, ask: Ask, requests: dict[str, int]) -> bool:
    """Whether the node's devices give what is asked."""
    if ask.refused:
        return False
    devices = plain_devices(fleet, row)
    unit = next((one.cut.resource for one in devices if one.cut.resource), fleet.node(row).spec.device_resource)
    memory = int(fleet.cards.memory[row])
    if ask.shares:
        return ask.resource == unit and sum(_gives_part(one, ask, memory) for one in devices) >= ask.count
    modelled = {name for one in devices if one.cut.how is How.MIG for name in offered([one.cut], "")}
    others = [name for name in requests if "/" in name and name != unit and name not in modelled]
    columns = {name: fleet.resource(name) for name in others}
    if any(requests[name] > fleet.free[row, column] for name, column in columns.items()):
        return False
    missing = requests.get(unit, 0) - sum(_units(one, requests.get(unit, 0)) for one in devices)
    names = [name for name, n in ask.profiles for _ in range(n) if name in modelled]
    published = [one for one in devices if one.cut.whole and not (one.whole or one.sharers)]
    return any(
        _gives_instances([one for one in devices if all(one is not other for other in taken)], names)
        for taken in combinations(published, max(0, missing))
    )


def _lists_parts(fleet: Fleet, row: int) -> bool:
    there, of_node = fleet.allocatable_of(row), fleet.node(row)
    splits = of_node.spec.splits or any(cut.how is How.SPLIT for cut in of_node.cuts)
    return not splits and any(there.get(f"nvidia.com/{name}") for name in PARTS)


def plain_numbers(fleet: Fleet, row: int, requests: dict[str, int]) -> bool:
    """Whether the node has as many GPUs that nothing is on, and as much of each number that pods have not requested."""
    there, columns = fleet.allocatable_of(row), [f"nvidia.com/{name}" for name in PARTS]
    for held in fleet.node(row).pods:
        asked = core.pod_requests(fleet.pod(held).spec.spec)
        there |= {name: there.get(name, 0) - asked.get(name, 0) for name in columns}
    devices = [one for one in plain_devices(fleet, row) if one.cut.how is How.OPEN]
    idle = sum(not one.whole and not one.sharers for one in devices)
    return requests.get(GPU, 0) <= idle and all(requests.get(name, 0) <= there.get(name, 0) for name in columns)


def _gives_part(device: Plain, ask: Ask, memory: int) -> bool:
    if device.whole or device.cut.how not in (How.OPEN, How.SPLIT):
        return False
    if device.cut.how is How.SPLIT and device.sharers >= device.cut.replicas:
        return False
    if ask.kind is Kind.SHARE:
        mib, milli = ask.milli * memory // 1000, ask.milli
    elif not memory:
        return False
    else:
        mib = ask.mib or memory * ask.percent // 100
        milli = ask.milli if ask.separate else max(mib * 1000 // memory, 1)
    if ask.separate and milli == 1000 and device.sharers:
        return False
    return device.milli >= max(1, milli) and (device.mib is None or device.mib >= mib)


def _units(device: Plain, asked: int) -> int:
    if device.whole or device.cut.how is How.MIG:
        return 0
    if device.cut.how is How.REPLICAS:
        return 0 if device.cut.one_each and asked > 1 else device.cut.replicas - device.sharers
    return int(not device.sharers)


def _gives_instances(devices: list[Plain], names: list[str]) -> bool:
    if not names:
        return True
    for device in devices:
        if device.cut.how is How.MIG and not device.whole:
            for start in _starts(device, names[0]):
                before = device.instances
                device.instances += ((names[0], start),)
                found = _gives_instances(devices, names[1:])
                device.instances = before
                if found:
                    return True
    return False


def _starts(device: Plain, resource: str) -> Iterator[int]:
    profiles = {one.resource: one for one in mig.profiles(device.cut.gpu, plain=False)}
    if resource not in profiles:
        return
    own = profiles[resource]
    if "+me" in own.name and any("me" in profiles[name].name for name, _ in device.instances):
        return
    used = {slot for name, at in device.instances for slot in range(at, at + profiles[name].memory_slices)}
    for start in own.starts:
        made = device.cut.instances is None or (resource, start) in device.cut.instances
        if made and not used & set(range(start, start + own.memory_slices)):
            yield start
