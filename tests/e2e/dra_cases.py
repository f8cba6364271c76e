"""Questions to Kubernetes' own device selectors and device allocator (e2e/modules/dra), and how they are answered here."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from tonnage.dra.allocated import AllocatedState
from tonnage.dra.allocator import Allocation, allocate
from tonnage.dra.compiled import cel_compiler
from tonnage.dra.features import Features
from tonnage.dra.pools import NodeView
from tonnage.objects import dra

DRIVER = "gpu.example.com"
NODE = {"metadata": {"name": "node-1", "labels": {"zone": "a"}}}
GATES = {
    "AdminAccess": "admin_access",
    "PrioritizedList": "prioritized_list",
    "PartitionableDevices": "partitionable_devices",
    "ConsumableCapacity": "consumable_capacity",
    "DeviceTaints": "device_taints",
    "DeviceBindingAndStatus": "device_binding_conditions",
    "ListTypeAttributes": "list_type_attributes",
}
Row = dict[str, Any]


def theirs(program: Path, rows: Sequence[Row]) -> list[Any]:
    """The answer of each row."""
    given = "\n".join(map(json.dumps, rows))
    done = subprocess.run([program], input=given, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(rows), done.stderr[-2000:]
    return answers


def parts(total: int, most: int) -> Iterator[int]:
    """The total in parts of at most so many."""
    while total > 0:
        yield min(total, most)
        total -= most


def ours(case: Row) -> Allocation:
    """The answer of this allocator to the same question."""
    features = Features(**{GATES[name]: on for name, on in case["features"].items()})
    held = [msgspec.convert(one, dra.ResourceClaim) for one in case["held"]]
    return allocate(
        [msgspec.convert(one, dra.ResourceClaim) for one in case["claims"]],
        NodeView(case["node"]["metadata"]["name"], case["node"]["metadata"]["labels"]),
        slices=[msgspec.convert(one, dra.ResourceSlice) for one in case["slices"]],
        classes=[msgspec.convert(one, dra.DeviceClass) for one in case["classes"]],
        compiler=cel_compiler(features),
        state=AllocatedState.of(held),
        features=features,
        steps=200_000,
    )


class Drawn:
    """A random node, what is published for it, what is held of that, and claims."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._counters = {f"gpu{at}": {"slices": draw.randint(1, 7), "engines": draw.randint(1, 4)} for at in range(2)}
        self._names: list[tuple[str, str]] = []
        pools = [self._pool(f"pool-{at}") for at in range(draw.choice((1, 1, 1, 2, 2, 3)))]
        self.slices = [one for pool in pools for one in pool]
        draw.shuffle(self.slices)
        left = draw.choice((1, 1, 2, 2, 3, 5))
        self.claims: list[Row] = []
        while left > 0 and len(self.claims) < 3:
            size = draw.randint(1, left)
            left -= size
            self.claims.append(self._claim(f"claim-{len(self.claims)}", size))

    @property
    def case(self) -> Row:
        """The question."""
        classes = [
            _object("DeviceClass", "gpu", {"selectors": _cel(f'device.driver == "{DRIVER}"')}),
            _object("DeviceClass", "any", {}),
        ]
        off = self._draw.random() < 0.1 and self._draw.choice(list(GATES)[:6])
        features = {name: name not in ("ListTypeAttributes", off) for name in GATES}
        held = [self._held(at, *one) for at, one in enumerate(self._names) if self._draw.random() < 0.15]
        return {
            "features": features,
            "node": NODE,
            "classes": classes,
            "slices": self.slices,
            "claims": self.claims,
            "held": held,
        }

    def _chance(self, share: float) -> bool:
        return self._draw.random() < share

    def _pool(self, name: str) -> list[Row]:
        draw = self._draw
        counted = self._chance(0.4)
        devices = [self._device(f"{name}-d{at}", counted) for at in range(draw.choice((0, 2, 4, 6)))]
        self._names += [(name, one["name"]) for one in devices]
        reach: Row = draw.choice(({"nodeName": "node-1"}, {"nodeName": "node-1"}, {"allNodes": True}, _zone("a")))
        if self._chance(0.08):
            reach = draw.choice(({"nodeName": "node-2"}, _zone("b")))
        cut = draw.randint(0, len(devices)) if self._chance(0.4) else 0
        groups = [devices[:cut], devices[cut:]] if cut else [devices]
        count = len(groups) + counted + self._chance(0.06)
        specs: list[Row] = [{"devices": group, **reach} for group in groups]
        if counted:
            sets = [
                {"name": one, "counters": {of: {"value": str(n)} for of, n in amounts.items()}}
                for one, amounts in self._counters.items()
                if not self._chance(0.03)
            ]
            specs.append({"sharedCounters": sets, **reach})
        generation = draw.choice((1, 1, 2))
        made = [self._slice(f"{name}-{at}", name, generation, count, spec) for at, spec in enumerate(specs)]
        if generation == 2:
            made.append(self._slice(f"{name}-old", name, 1, 1, {"devices": [{"name": "old"}], **reach}))
        return made

    def _slice(self, name: str, pool: str, generation: int, count: int, spec: Row) -> Row:
        of_pool = {"name": pool, "generation": generation, "resourceSliceCount": count}
        return _object("ResourceSlice", name, {"driver": DRIVER, "pool": of_pool, **spec})

    def _device(self, name: str, counted: bool) -> Row:
        draw = self._draw
        made: Row = {"name": name, "attributes": {"kind": {"string": draw.choice("ab")}}}
        if self._chance(0.8):
            made["attributes"]["numa"] = {"int": draw.randint(0, 2)}
        if self._chance(0.3):
            made["attributes"]["version"] = {"version": draw.choice(("1.2.3", "2.0.0"))}
        if counted and self._chance(0.8):
            sets = draw.sample(list(self._counters), draw.choice((1, 1, 2)))
            made["consumesCounters"] = [
                {
                    "counterSet": one,
                    "counters": {of: {"value": str(draw.randint(0, 3))} for of in ("slices", "engines")},
                }
                for one in sets
            ]
        if self._chance(0.2):
            made["taints"] = [{"key": "bad", "effect": draw.choice(("NoSchedule", "NoExecute", "None"))}]
        if self._chance(0.35):
            made["capacity"] = {"memory": {"value": draw.choice(("4", "8"))}}
            made["allowMultipleAllocations"] = self._chance(0.8)
            if self._chance(0.4):
                policy: Row = draw.choice(
                    (
                        {"default": "2", "validValues": ["2", "4"]},
                        {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
                        {"default": "2", "validRange": {"min": "2"}},
                    )
                )
                if made["allowMultipleAllocations"]:
                    made["capacity"]["memory"]["requestPolicy"] = policy
        if self._chance(0.08):
            made |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
        return made

    def _held(self, at: int, pool: str, device: str) -> Row:
        found = next(one for each in self.slices for one in each["spec"].get("devices", ()) if one["name"] == device)
        result: Row = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        if found.get("allowMultipleAllocations"):
            result |= {"shareID": f"share-{at}", "consumedCapacity": {"memory": self._draw.choice(("1", "2"))}}
        claim = _object("ResourceClaim", f"held-{at}", {"devices": {"requests": []}}, "team")
        return claim | {"status": {"allocation": {"devices": {"results": [result]}}}}

    def _asked(self) -> Row:
        draw = self._draw
        made: Row = {"deviceClassName": draw.choice(("gpu", "gpu", "gpu", "any"))}
        if self._chance(0.15):
            made["allocationMode"] = "All"
        else:
            made |= {"allocationMode": "ExactCount", "count": draw.choice((1, 1, 1, 2, 3))}
        attributes = f'device.attributes["{DRIVER}"]'
        texts = (
            f'{attributes}.kind == "a"',
            f'{attributes}.kind in ["b", "c"]',
            f'has({attributes}.version) && {attributes}.version.isLessThan(semver("2.0.0"))',
            f'device.capacity["{DRIVER}"].?memory.orValue(quantity("0")).compareTo(quantity("5")) < 0',
            "!device.allowMultipleAllocations",
        )
        chosen = [draw.choice(texts) for _ in range(draw.choice((0, 0, 1, 1, 2)))]
        if self._chance(0.015):
            chosen.append(draw.choice((f"{attributes}.numa >= 0", "device.driver", "1 +")))
        if chosen:
            made["selectors"] = _cel(*chosen)
        if self._chance(0.3):
            made["tolerations"] = [
                draw.choice(({"operator": "Exists"}, {"key": "bad", "operator": "Exists", "effect": "NoSchedule"}))
            ]
        if self._chance(0.3):
            made["capacity"] = {"requests": {"memory": draw.choice(("1", "3", "5"))}}
        return made

    def _claim(self, name: str, size: int) -> Row:
        requests: list[Row] = []
        for at in range(size):
            if self._chance(0.25):
                ways = [{"name": f"s{way}", **self._asked()} for way in range(self._draw.randint(2, 3))]
                requests.append({"name": f"r{at}", "firstAvailable": ways})
            else:
                made = self._asked()
                if self._chance(0.1):
                    made["adminAccess"] = True
                requests.append({"name": f"r{at}", "exactly": made})
        constraints = [
            {
                self._draw.choice(
                    ("matchAttribute", "distinctAttribute")
                ): f"{DRIVER}/{self._draw.choice(('numa', 'kind'))}",
                "requests": self._draw.choice(([], [f"r{self._draw.randrange(size)}"])),
            }
            for _ in range(self._draw.choice((0, 0, 0, 1, 1, 2)))
        ]
        return _object("ResourceClaim", name, {"devices": {"requests": requests, "constraints": constraints}}, "team")


def _zone(zone: str) -> Row:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}


def _cel(*texts: str) -> list[Row]:
    return [{"cel": {"expression": text}} for text in texts]


def _object(kind: str, name: str, spec: Row, namespace: str = "") -> Row:
    metadata = {"name": name, **({"namespace": namespace, "uid": f"uid-{name}"} if namespace else {})}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
