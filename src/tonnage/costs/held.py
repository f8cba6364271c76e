"""What a pod holds of its node, as the ledger charges it: GPUs, parts of GPUs, or CPU and memory."""

from __future__ import annotations

from fractions import Fraction

from tonnage.costs.ledger import Resources
from tonnage.fleet import claimed_gpus
from tonnage.fleet.asks import FULL
from tonnage.fleet.devices import How, Piece
from tonnage.fleet.state import Fleet


def held(fleet: Fleet, row: int, *, gpus: bool) -> Resources:
    """What the ledger charges a pod for: GPUs on a node that has some (``gpus``), else CPU and memory.

    One of n replicas is 1/n of a GPU. Another part counts half by its share of the compute and half by its share of the
    memory, so that parts never add up to more than the GPU; where its memory is not known, by the compute alone."""
    if not gpus:
        requests = fleet.pod_class(row).requests
        return Resources(0, requests.get("cpu", 0), requests.get("memory", 0))
    pod = fleet.pod(row)
    whole = len(set(pod.devices) - {piece.device for piece in pod.pieces})
    parts = sum((part_of(fleet, pod.node, piece) for piece in pod.pieces), Fraction(0))
    return Resources(parts + whole + claimed_gpus.share(fleet, row))


def part_of(fleet: Fleet, node: int, piece: Piece) -> Fraction:
    """The part of its GPU that a piece is, as :func:`held` counts it."""
    cut, memory = fleet.cards.cut_of(node, piece.device), int(fleet.cards.memory[node])
    if cut.how is How.REPLICAS and not (cut.instances and cut.isolated):
        return Fraction(1, cut.replicas)
    share = Fraction(piece.milli, FULL)
    return (share + Fraction(piece.mib, memory)) / 2 if memory else share
