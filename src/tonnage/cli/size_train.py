"""`tonnage size --train`: what training takes on each GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tonnage.cli import lines, terminal
from tonnage.cli.size_json import SCHEMA
from tonnage.cli.size_report import print_parts, say
from tonnage.inference.sizing import training
from tonnage.units import GIB

if TYPE_CHECKING:
    from tonnage.inference.sizing.request import SizingRequest
    from tonnage.inference.sizing.training import TrainingMemory, TrainingRecipe


class Fitted(msgspec.Struct, frozen=True):
    """The fewest GPUs of a kind that hold the training, or the most that were tried."""

    gpu: str
    gpus: int
    memory: TrainingMemory


def fitted(request: SizingRequest, asked: TrainingRecipe) -> list[Fitted]:
    """Of each whole GPU of the request; those that fit first, then fewest GPUs, then the smallest."""
    found = []
    for card in request.cards:
        if card.kind == "gpu":
            used, count = training.smallest(request.shape, card.gpu, asked)
            found.append(Fitted(card.name, count, used))
    return sorted(found, key=lambda row: (not row.memory.fits, row.gpus, row.memory.visible))


def document(request: SizingRequest, asked: TrainingRecipe, found: list[Fitted]) -> dict[str, Any]:
    """For `-o json`."""
    plain = msgspec.to_builtins(asked)
    plain["stored"] = asked.stored.name
    rows = [
        {
            "gpu": row.gpu,
            "gpus": row.gpus,
            "fits": row.memory.fits,
            "visible_bytes": row.memory.visible,
            "used_bytes": row.memory.used,
            "parts": row.memory.parts,
        }
        for row in found
    ]
    return {"schema": SCHEMA, "model": request.shape.name, "training": plain, "gpus": rows}


def show(request: SizingRequest, asked: TrainingRecipe, found: list[Fitted]) -> None:
    """Print a table, and the parts on the first GPU."""
    say(
        f"{request.shape.name}, {asked.method} training in {asked.stored.name}: sequences of {asked.sequence:,} "
        f"tokens, {asked.micro_batch} per GPU, {asked.optimizer}, ZeRO {asked.zero}, recompute {asked.recompute}"
    )
    if not found:
        say("No whole GPU was named: MIG instances and shares of a GPU are for serving.")
        return
    terminal.echo()
    rows = [("  GPU", "GPUs", "of each", "needs", "")]
    for row in found:
        count = str(row.gpus) if row.memory.fits else "-"
        visible, used = row.memory.visible / GIB, row.memory.used / GIB
        verdict = "" if row.memory.fits else "does not fit"
        rows.append((f"  {row.gpu}", count, f"{visible:.1f} GiB", f"{used:.1f} GiB", verdict))
    lines.show_table(rows, (0, 4))
    if not found[0].memory.fits:
        say("Nothing fits: use TP (--tensor-parallel), shorter sequences (--context) or --train lora.")
    terminal.echo()
    terminal.echo(f"On each of {found[0].gpus} {found[0].gpu}")
    print_parts(found[0].memory.parts)
