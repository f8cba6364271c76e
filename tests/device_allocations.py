"""Slices, classes and claims of resource.k8s.io in few words, random ones, and the slow way to allocate them.

Selectors here are `true`, `false`, `error`, or `NAME=VALUE` of a string attribute: CEL has tests of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from random import Random
from typing import Any, TypeVar

import msgspec

from tonnage.dra.allocated import AllocatedState, DeviceID
from tonnage.dra.allocator import Allocation, Allocator
from tonnage.dra.features import Features
from tonnage.dra.pools import NodeView
from tonnage.objects import dra
from tonnage.objects.dra import DeviceAttribute, DeviceCapacity

T = TypeVar("T")
DRIVER = "gpu.example.com"
NODE = NodeView("node-1", {"zone": "a"})


class Test:
    """A selector of these tests."""

    __test__ = False

    def __init__(self, text: str) -> None:
        if not text:
            raise ValueError("empty")
        self.text = text

    def matches(
        self,
        driver: str,
        attributes: Mapping[str, DeviceAttribute],
        capacity: Mapping[str, DeviceCapacity],
        allow_multiple_allocations: bool,
    ) -> bool:
        if "=" not in self.text:
            return self.text == "true"
        name, _, value = self.text.partition("=")
        if name not in attributes:
            raise ValueError(f"no such key: {name}")
        return attributes[name].string_value == value


def cel(*texts: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": text}} for text in texts]


def device_class(name: str = "gpu", *selectors: str, **spec: Any) -> dra.DeviceClass:
    return _made(dra.DeviceClass, "DeviceClass", name, {"selectors": cel(*selectors), **spec})


def device(name: str, **fields: Any) -> dict[str, Any]:
    """``attributes``: strings; ``capacity``: quantities; ``counters``: of the set `gpu` or by set."""
    made: dict[str, Any] = {"name": name}
    for key, value in fields.items():
        match key:
            case "attributes":
                made[key] = {of: one if isinstance(one, dict) else {"string": one} for of, one in value.items()}
            case "capacity":
                made[key] = {of: one if isinstance(one, dict) else {"value": one} for of, one in value.items()}
            case "counters":
                sets = value if value and isinstance(next(iter(value.values())), dict) else {"gpu": value}
                made["consumesCounters"] = [
                    {"counterSet": one, "counters": {of: {"value": n} for of, n in amounts.items()}}
                    for one, amounts in sets.items()
                ]
            case _:
                made[key] = value
    return made


def resource_slice(
    name: str, *devices: dict[str, Any], pool: str = "", generation: int = 1, count: int = 1, **spec: Any
) -> dra.ResourceSlice:
    """On node-1, unless the spec says otherwise; ``sharedCounters`` by set and counter."""
    sets = spec.pop("counters", None)
    if not spec.keys() & {"nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"}:
        spec["nodeName"] = NODE.name
    if sets is not None:
        spec["sharedCounters"] = [
            {"name": of, "counters": {one: {"value": n} for one, n in amounts.items()}} for of, amounts in sets.items()
        ]
    of_pool = {"name": pool or name, "generation": generation, "resourceSliceCount": count}
    return _made(
        dra.ResourceSlice, "ResourceSlice", name, {"driver": DRIVER, "pool": of_pool, "devices": list(devices), **spec}
    )


def request(name: str = "r", device_class_name: str = "gpu", *selectors: str, **exactly: Any) -> dict[str, Any]:
    return {
        "name": name,
        "exactly": {"deviceClassName": device_class_name, "selectors": cel(*selectors), **exactly},
    }


def first_of(name: str, *ways: dict[str, Any]) -> dict[str, Any]:
    """firstAvailable of what :func:`request` makes."""
    return {"name": name, "firstAvailable": [{"name": one["name"], **one["exactly"]} for one in ways]}


def claim(*requests: dict[str, Any], name: str = "claim", **devices: Any) -> dra.ResourceClaim:
    return _made(dra.ResourceClaim, "ResourceClaim", name, {"devices": {"requests": list(requests), **devices}}, "team")


def _made(kind: type[T], named: str, name: str, spec: Mapping[str, Any], namespace: str = "") -> T:
    metadata = {"name": name, **({"namespace": namespace, "uid": f"uid-{name}"} if namespace else {})}
    return msgspec.convert({"apiVersion": dra.V1, "kind": named, "metadata": metadata, "spec": spec}, kind)


def allocator(slices: Sequence[dra.ResourceSlice], *classes: dra.DeviceClass, **others: Any) -> Allocator:
    return Allocator(slices, classes or (device_class(),), compiler=Test, **others)


def allocate(
    slices: Sequence[dra.ResourceSlice],
    *claims: dra.ResourceClaim,
    classes: Sequence[dra.DeviceClass] = (),
    state: AllocatedState | None = None,
    node: NodeView = NODE,
    steps: int = 20_000,
    **others: Any,
) -> Allocation:
    return allocator(slices, *classes, **others).allocate(claims, node, state or AllocatedState(), steps=steps)


def given(found: Allocation) -> list[list[tuple[str, str]]]:
    """Of each claim the requests with their devices."""
    return [[(one.request, one.device) for one in result.devices.results] for result in found.results]


# ---- random clusters, and the slow way ----


class Case:
    """A random node of at most six devices and claims of at most four requests in all."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.names = [f"d{at}" for at in range(random.randint(1, 6))]
        self.counted = random.random() < 0.6
        self.totals = {"gpu": {"slices": random.randint(1, 7), "engines": random.randint(1, 4)}, "gpu2": {"slices": 3}}
        self.devices = [self._device(name) for name in self.names]
        self.held = {name for name in self.names if random.random() < 0.12}
        left = random.randint(1, 4)
        self.claims: list[dra.ResourceClaim] = []
        while left > 0 and len(self.claims) < 3:
            size = random.randint(1, left)
            left -= size
            self.claims.append(self._claim(f"c{len(self.claims)}", size))

    def _device(self, name: str) -> dict[str, Any]:
        random = self.random
        fields: dict[str, Any] = {"attributes": {"kind": random.choice("ab")}}
        if random.random() < 0.8:
            fields["attributes"][f"{DRIVER}/numa"] = random.choice("012")
        if self.counted and random.random() < 0.8:
            sets = random.sample(["gpu", "gpu2"], random.choice((1, 1, 2)))
            fields["counters"] = {
                one: {of: random.randint(0, 3) for of in self.totals[one] if of == "slices" or random.random() < 0.5}
                for one in sets
            }
        if random.random() < 0.2:
            fields["taints"] = [{"key": "bad", "effect": random.choice(("NoSchedule", "NoExecute", "None"))}]
        if random.random() < 0.3:
            fields["capacity"] = {"memory": random.choice(("4", "8"))}
            fields["allowMultipleAllocations"] = random.random() < 0.8
        return device(name, **fields)

    def _request(self, name: str) -> dict[str, Any]:
        random = self.random
        fields: dict[str, Any] = {}
        if random.random() < 0.15:
            fields["allocationMode"] = "All"
        elif random.random() < 0.4:
            fields["count"] = random.randint(1, 3)
        if random.random() < 0.3:
            fields["tolerations"] = [{"operator": "Exists"}]
        if random.random() < 0.3:
            fields["capacity"] = {"requests": {"memory": random.choice(("1", "3", "5"))}}
        return request(name, "gpu", *random.choice(((), ("kind=a",), ("kind=b",))), **fields)

    def _claim(self, name: str, size: int) -> dra.ResourceClaim:
        random = self.random
        requests: list[dict[str, Any]] = []
        for at in range(size):
            if random.random() < 0.25:
                ways = [self._request(f"s{way}") for way in range(random.randint(2, 3))]
                requests.append(first_of(f"r{at}", *ways))
            else:
                made = self._request(f"r{at}")
                if random.random() < 0.15:
                    made["exactly"]["adminAccess"] = True
                requests.append(made)
        constraints = [
            {
                random.choice(("matchAttribute", "distinctAttribute")): f"{DRIVER}/{random.choice(('numa', 'kind'))}",
                "requests": random.choice(([], [f"r{random.randrange(size)}"])),
            }
            for _ in range(random.choice((0, 0, 0, 1, 1, 2)))
        ]
        return claim(*requests, name=name, constraints=constraints)

    @property
    def slices(self) -> list[dra.ResourceSlice]:
        return [
            resource_slice("counters", counters=self.totals, pool="p", count=2),
            resource_slice("devices", *self.devices, pool="p", count=2),
        ]

    @property
    def state(self) -> AllocatedState:
        return AllocatedState(DeviceID(DRIVER, "p", name) for name in self.held)

    def run(self, **others: Any) -> Allocation:
        return allocate(self.slices, *self.claims, state=self.state, **others)


Taken = tuple[int, str, str, dict[str, Any], str]
"""Claim, request, subrequest, what it asks for, device."""


def feasible(case: Case) -> bool:
    """Whether any choice of ways and devices breaks no rule, tried one by one and judged from nothing."""
    requests = [
        (at, one)
        for at, each in enumerate(case.claims)
        for one in msgspec.to_builtins(each)["spec"]["devices"]["requests"]
    ]
    return _tried(case, requests, [])


def _tried(case: Case, left: Sequence[tuple[int, dict[str, Any]]], taken: list[Taken]) -> bool:
    if not left:
        return True
    at, one = left[0]
    ways = [("", one["exactly"])] if "exactly" in one else [(way["name"], way) for way in one["firstAvailable"]]
    for subrequest, way in ways:
        for devices in _choices(case, way):
            more = [*taken, *((at, one["name"], subrequest, way, name) for name in devices)]
            if allowed(case, more) and _tried(case, left[1:], more):
                return True
    return False


def _choices(case: Case, way: dict[str, Any]) -> Iterator[Sequence[str]]:
    matching = [one["name"] for one in case.devices if _matches(one, way) and _amount(one, way) is not None]
    if way.get("allocationMode") == "All":
        if matching:
            yield matching
    else:
        yield from combinations(matching, way.get("count", 1))


def _matches(one: dict[str, Any], way: dict[str, Any]) -> bool:
    return all(
        one["attributes"]["kind"]["string"] == selector["cel"]["expression"].partition("=")[2]
        for selector in way.get("selectors", ())
    )


def _amount(one: dict[str, Any], way: dict[str, Any]) -> int | None:
    """What the request takes of the device's memory; None where that cannot be."""
    asked = way.get("capacity", {}).get("requests", {}).get("memory")
    if "capacity" not in one:
        return 0 if asked is None else None
    has = int(one["capacity"]["memory"]["value"])
    amount = has if asked is None else int(asked)
    return amount if amount <= has else None


def allowed(case: Case, taken: Sequence[Taken]) -> bool:
    """Whether these devices may be held together."""
    published = {one["name"]: one for one in case.devices}
    counters = {(of, name): n for of, amounts in case.totals.items() for name, n in amounts.items()}
    for name in case.held:
        _count(published[name], counters)
    overdrawn = any(n < 0 for n in counters.values())
    memory: dict[str, int] = {}
    opened: set[str] = set()
    for number, (at, _, _, way, name) in enumerate(taken):
        one = published[name]
        shared = one.get("allowMultipleAllocations", False)
        before = [other for other in taken[:number] if other[4] == name and not shared]
        admin = way.get("adminAccess", False)
        if any(not admin or other[0] == at for other in before) or (name in case.held and not admin):
            return False
        keeps_off = [taint for taint in one.get("taints", ()) if taint["effect"] != "None"]
        if keeps_off and "tolerations" not in way:
            return False
        amount = _amount(one, way)
        if amount is None:
            return False
        if shared:
            memory[name] = memory.get(name, 0) + amount
            if "capacity" in one and memory[name] > int(one["capacity"]["memory"]["value"]):
                return False
        if "consumesCounters" in one and not (shared and name in opened):
            if overdrawn:
                return False
            _count(one, counters)
        opened.add(name)
    return (overdrawn or all(n >= 0 for n in counters.values())) and _constrained(case, published, taken)


def _count(one: dict[str, Any], counters: dict[tuple[str, str], int]) -> None:
    for each in one.get("consumesCounters", ()):
        for name, counter in each["counters"].items():
            counters[each["counterSet"], name] -= counter["value"]


def _constrained(case: Case, published: Mapping[str, Any], taken: Sequence[Taken]) -> bool:
    for at, each in enumerate(case.claims):
        for one in each.spec.devices.constraints:
            wanted = one.match_attribute or one.distinct_attribute or ""
            name = wanted if wanted.endswith("numa") else "kind"
            values = [
                published[device_name]["attributes"].get(name, {}).get("string")
                for claim_at, request_name, _, _, device_name in taken
                if claim_at == at and (not one.requests or request_name in one.requests)
            ]
            if None in values or len(set(values)) not in ((0, 1) if one.match_attribute else (len(values),)):
                return False
    return True


FEATURES = Features(list_type_attributes=True)
