"""The option `--tier NAME=SIZE[,GB/S][,key=value…]` of `tonnage kv`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

import msgspec

from tonnage.errors import InputError
from tonnage.units import MICRO_PER_USD

if TYPE_CHECKING:
    from tonnage.inference.tiers import TierSpec

FORM = "NAME=SIZE[,GB/S][,key=value…]"

_UNITS = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(x|[kmgt]i?b)?", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")
_DURATION_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(ns|us|ms|s)")
_MOST = 10**15
"""No larger number makes sense here, and with larger ones sums would no longer be exact."""
_MOST_LATENCY_NS = 3_600 * 1_000_000_000
_MOST_USES = 1_000_000
_PRICES = ("micro_usd_per_gib_hour", "micro_usd_per_gib_read", "micro_usd_per_gib_written")


def parse(text: str, known: Mapping[str, TierSpec], gpu_blocks: int, block_bytes: int) -> TierSpec:
    """The tier that ``text`` describes; what it does not say is as in ``known``, by name.

    ``gpu_blocks``: KV blocks of one engine's GPUs, for sizes like ``4x``; ``block_bytes``: bytes of one block. Raises
    InputError with the whole text and the part of it that is wrong.
    """
    from tonnage.inference.tiers import TierSpec

    name, equals, rest = text.partition("=")
    size, *others = [part.strip() for part in rest.split(",")]
    name = name.strip()
    if not equals or not name or not size:
        raise _bad(text, f"expected {FORM}", "for example host=256GiB,50")
    changes = {"blocks": _blocks(text, size, gpu_blocks, block_bytes), **_changes(text, others)}
    if name in known:
        return msgspec.structs.replace(known[name], **changes)
    if "read_bytes_per_s" not in changes or "write_bytes_per_s" not in changes:
        raise _bad(text, f"{name!r} is none of {', '.join(known)} and has no bandwidth", "add it in GB/s")
    return TierSpec(name, **changes)


def _changes(text: str, parts: list[str]) -> dict[str, Any]:
    """Fields of the tier that the parts after its size set."""
    changes: dict[str, Any] = {}
    given: dict[str, str] = {}
    for position, part in enumerate(parts):
        key, equals, value = part.partition("=")
        if not equals:
            if position:
                raise _bad(text, f"{part!r} found where key=value is expected", _keys())
            changes |= {"read_bytes_per_s": _rate(text, part), "write_bytes_per_s": _rate(text, part)}
            continue
        if key != "free" and key not in _KEYS:
            raise _bad(text, f"there is no key {key!r}", _keys())
        if key in given:
            raise _bad(text, f"key {key!r} is given twice", "give each key once")
        given[key] = value
        if key != "free":
            field, read = _KEYS[key]
            changes[field] = read(text, value)
    if "free" in given and _yes(text, "free", given["free"]):
        if changes.get(_PRICES[0]):
            raise _bad(text, "free=yes and a price exclude each other", "keep one")
        changes |= dict.fromkeys(_PRICES, 0.0)
    return changes


def _blocks(text: str, size: str, gpu_blocks: int, block_bytes: int) -> int | None:
    if size == "inf":
        return None
    match = _SIZE.fullmatch(size)
    if match is None:
        raise _bad(text, f"{size!r} is not a size", "expected blocks (65536), bytes (256GiB), 4x, inf or 0")
    number, unit = match[1], (match[2] or "").upper()
    if not unit:
        if "." in number:
            raise _bad(text, f"{size!r} is not a number of blocks", "write whole blocks, or a unit as in 1.5TiB")
        blocks = int(number)
    elif unit == "X":
        blocks = int(float(number) * gpu_blocks)
    else:
        blocks = int(float(number) * _UNITS[unit]) // block_bytes
    if blocks > _MOST:
        raise _bad(text, f"{size!r} is more than 1e15 blocks", "write inf for an unlimited tier")
    if not blocks and float(number):
        raise _bad(text, f"{size!r} is less than one block", f"a block is {block_bytes:,} bytes; 0 for no such tier")
    return blocks


def _number(text: str, value: str, what: str) -> float:
    number = float(value) if _NUMBER.fullmatch(value) else inf
    if number > _MOST:
        raise _bad(text, f"{value!r} is not {what}", "expected a number from 0 to 1e15")
    return number


def _rate(text: str, value: str) -> float:
    if value == "inf":
        return inf
    rate = _number(text, value, "a bandwidth") * 1e9
    if rate < 1:
        raise _bad(text, f"{value!r} is not a bandwidth", "expected GB/s, above 0, or inf")
    return rate


def _latency(text: str, value: str) -> int:
    match = _DURATION.fullmatch(value)
    if match is None:
        raise _bad(text, f"{value!r} is not a latency", "write it like 100us or 5ms")
    latency = round(float(match[1]) * _DURATION_NS[match[2]])
    if latency > _MOST_LATENCY_NS:
        raise _bad(text, f"{value!r} is not a latency", "expected at most 3600s")
    return latency


def _uses(text: str, value: str) -> int:
    if not re.fullmatch("[0-9]{1,7}", value) or not 1 <= int(value) <= _MOST_USES:
        raise _bad(text, f"{value!r} is not a number of uses", f"expected a whole number from 1 to {_MOST_USES}")
    return int(value)


def _fill(text: str, value: str) -> str:
    if value not in ("through", "spill"):
        raise _bad(text, f"{value!r} is not a way to fill a tier", "expected through or spill")
    return value


def _yes(text: str, key: str, value: str) -> bool:
    if value not in ("yes", "no"):
        raise _bad(text, f"{value!r} is neither yes nor no", f"expected {key}=yes or {key}=no")
    return value == "yes"


def _shared(text: str, value: str) -> bool:
    return _yes(text, "shared", value)


def _usd(text: str, value: str) -> float:
    return _number(text, value, "a price") * MICRO_PER_USD


_KEYS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "read": ("read_bytes_per_s", _rate),
    "write": ("write_bytes_per_s", _rate),
    "latency": ("latency_ns", _latency),
    "admit": ("min_frequency", _uses),
    "fill": ("fill", _fill),
    "shared": ("shared", _shared),
    "price": ("micro_usd_per_gib_hour", _usd),
}
"""Keys that set one field each; ``free`` sets all prices."""


def _keys() -> str:
    return "keys: " + ", ".join((*_KEYS, "free"))


def _bad(text: str, what: str, hint: str) -> InputError:
    return InputError.at(f'"{text}": {what}', field="--tier", hint=hint)
