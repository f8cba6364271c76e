"""Number formats of weights and KV caches. Table: data/precisions.csv."""

from __future__ import annotations

from functools import cache
from typing import Literal

import msgspec

from tonnage.errors import InputError
from tonnage.facts import names
from tonnage.inference import tables

Scope = Literal["all", "linear", "experts"]


class Precision(msgspec.Struct, frozen=True):
    """A number format. ``scope``: which weights are stored in it; the others stay in 16 bits. ``kv_bytes``: bytes of
    an element of the KV cache in it, None where no engine stores that. ``arithmetic``: the tensor-core rate that it
    runs at. ``not_on``: GPUs for which vLLM has no kernel (docs/features/quantization, supported hardware).
    ``kv_only_on``: the only GPUs whose kernels read a KV cache in it; empty for all others. ``pads``: experts are
    padded in memory to multiples of these in hidden size and width; empty for none."""

    name: str
    bytes_per_weight: float
    scope: Scope
    kv_bytes: float | None
    arithmetic: Literal["bf16", "fp8", "fp4"]
    not_on: tuple[str, ...]
    kv_only_on: tuple[str, ...]
    pads: tuple[int, ...]
    source: str

    def kv_on(self, gpu: str) -> bool:
        """Whether a KV cache in it can be kept on the GPU of that name."""
        return gpu not in self.not_on and (not self.kv_only_on or gpu in self.kv_only_on)


@cache
def precisions() -> dict[str, Precision]:
    """Every precision by name and alias."""
    found = {}
    for row in tables.rows("precisions.csv"):
        one = Precision(
            row["name"],
            float(row["bytes_per_weight"]),
            msgspec.convert(row["scope"], Scope),
            float(row["kv_bytes"]) if row["kv_bytes"] else None,
            msgspec.convert(row["arithmetic"], Literal["bf16", "fp8", "fp4"]),
            tuple(row["not_on"].split()),
            tuple(row["kv_only_on"].split()),
            tuple(int(multiple) for multiple in row["pads"].split()),
            row["source"],
        )
        for name in (row["name"], *row["aliases"].split()):
            found[name] = one
    return found


def precision(name: str, *, field: str = "--precision", kv: bool = False) -> Precision:
    """The precision called ``name``. Raises InputError with near names, or if the KV cache cannot be kept in it."""
    known = precisions()
    found = known.get(name.lower())
    usable = sorted({p.name for p in known.values() if not kv or p.kv_bytes is not None})
    if found is None:
        raise names.unknown("precision", name, known, hint=f"{field} is one of {', '.join(usable)}")
    if kv and found.kv_bytes is None:
        raise InputError.at(
            f"no engine keeps its KV cache in {found.name}", field=field, hint=f"use one of {', '.join(usable)}"
        )
    return found
