"""Why a request got no devices: which selector excluded which, and what kept the others from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from tonnage.dra.selecting import ABSENT, MATCHES, NoValue
from tonnage.dra.ways import HINDRANCES, ClaimWays, Reader, RequestOption, title
from tonnage.objects.dra import EXTENDED_CLAIM

_EXAMPLES = 3


class ThrownOut(Struct, frozen=True):
    """Devices that are not for a request. ``why``: a word: selector, broken, gate, node, held, taint, capacity,
    counters. ``text``: the expression of a selector. ``devices``: how many; ``examples``: the first of them."""

    why: str
    devices: int
    examples: tuple[str, ...]
    text: str = ""
    from_class: bool = False

    def __str__(self) -> str:
        """In words: `12 do not match the selector of the class: device.driver == "gpu.example.com"`."""
        match self.why:
            case "selector" | "broken":
                whose = "the class" if self.from_class else "the request"
                does = "do not match" if self.why == "selector" else "have no value for"
                return f"{self.devices} {does} the selector of {whose}: {self.text}"
            case "gate":
                return f"{self.devices} have binding conditions, and the gate is off"
        return f"{self.devices} {HINDRANCES[self.why]}"


class RequestRefusal(Struct, frozen=True):
    """Of one way to serve a request: how many devices it needs, how many there are on the node and could be had, and
    what became of the others. ``all_devices``: it asks for all that match, and none may be taken."""

    claim: str
    request: str
    needs: int
    devices: int
    available: int
    thrown_out: tuple[ThrownOut, ...]
    all_devices: bool = False

    def __str__(self) -> str:
        """In one line."""
        wanted = "all devices" if self.all_devices else f"{self.needs} of {self.devices} devices"
        parts = "; ".join(str(one) for one in self.thrown_out)
        text = f"claim {self.claim}, request {self.request}: needs {wanted}, {self.available} can be allocated"
        return f"{text}: {parts}" if parts else text


def refusals(reader: Reader, claims: Sequence[ClaimWays]) -> Iterator[RequestRefusal]:
    """Of every way of every request, what there is for it."""
    for of in claims:
        for ways in of.requests:
            for way in ways:
                yield _of(reader, of, way)


def _of(reader: Reader, of: ClaimWays, way: RequestOption) -> RequestRefusal:
    counts: Counter[tuple[str, int]] = Counter()
    examples: dict[tuple[str, int], list[str]] = {}
    matches = reader.on.matches(way.expressions, reader.selectors, binding=reader.features.device_binding_conditions)
    for number, match in enumerate(matches):
        if isinstance(match, NoValue):
            key = ("broken", match.selector)
        elif match == MATCHES:
            key = (reader.hindrance(way, number), -1)
        else:
            key = ("gate", -1) if match == ABSENT else ("selector", match)
        if key[0]:
            counts[key] += 1
            found = examples.setdefault(key, [])
            if len(found) < _EXAMPLES:
                found.append(str(reader.on.devices[number].id))
    thrown = tuple(
        ThrownOut(
            why, number, tuple(examples[why, at]), way.expressions[at] if at >= 0 else "", 0 <= at < way.from_class
        )
        for (why, at), number in sorted(counts.items())
    )
    total = len(reader.on.devices)
    left = total - sum(counts.values())
    is_extended = of.claim.metadata.annotations.get(EXTENDED_CLAIM) == "true"
    name = f"{way.name} (class {way.device_class.name})" if is_extended else way.name
    return RequestRefusal(title(of.claim), name, way.count, total, left, thrown, way.all_devices)
