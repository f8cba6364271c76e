"""The decode side of transfers: pages that wait for blocks, and when they may be used again.

Pages are reserved before anything moves. They become the running request's when all blocks are there, and are released
when nothing will come any more, but never while something may still be written into them: a read of this side
must have ended, a write of the other side must be reported as ended, or be fenced off.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tonnage.inference.disaggregation.actions import (
    Action,
    Deregister,
    Free,
    Kind,
    Leases,
    Lost,
    Send,
    StartDecode,
    StartTransfer,
)


class DestinationState(Enum):
    """Of one transfer: pages are reserved; this side's read runs; given up, but something may still be written."""

    RESERVED = 1
    MOVING = 2
    DRAINING = 3


@dataclass(slots=True)
class _Reserved:
    request: int
    blocks: int
    deadline_ns: int
    state: DestinationState = DestinationState.RESERVED


class Destination:
    """All transfers into one decode engine. ``push``: the prefill side writes; else this side reads.

    Simulated Services read. ``push`` is for whoever moves blocks by writes, and is only as true as its own tests.

    Numbers and requests are as in :class:`~tonnage.inference.disaggregation.source.Source`.
    """

    def __init__(self, leases: Leases | None = None, *, push: bool = False) -> None:
        self.leases = leases or Leases()
        self.push = push
        self._transfers: dict[int, _Reserved] = {}
        self._of_request: dict[int, int] = {}

    @property
    def held_blocks(self) -> int:
        """Blocks that are reserved, or wait for a write to end."""
        return sum(reserved.blocks for reserved in self._transfers.values())

    @property
    def transfers(self) -> dict[int, DestinationState]:
        """The state of each open transfer."""
        return {number: reserved.state for number, reserved in self._transfers.items()}

    def __contains__(self, transfer: int) -> bool:
        """Whether a transfer is open."""
        return transfer in self._transfers

    def __len__(self) -> int:
        """Open transfers."""
        return len(self._transfers)

    def next_deadline_ns(self) -> int | None:
        """When ``expire`` has something to do next if nobody says anything."""
        return min((r.deadline_ns for r in self._transfers.values() if self._waits(r)), default=None)

    def reserve(self, transfer: int, request: int, blocks: int, now_ns: int) -> list[Action]:
        """Pages were taken for a request whose prefill runs elsewhere. Raises ValueError for a number in use."""
        if transfer in self._transfers or request in self._of_request:
            raise ValueError(f"transfer {transfer} of request {request} is already here")
        self._transfers[transfer] = _Reserved(request, blocks, now_ns + self.leases.patience_ns)
        self._of_request[request] = transfer
        return [Send(transfer, "reserved")]

    def heartbeat(self) -> list[Action]:
        """Tell each prefill side that its blocks are still wanted."""
        return [Send(number, "heartbeat") for number, one in self._transfers.items() if self._wanted(one)]

    def moved(self, transfer: int, ok: bool) -> list[Action]:
        """The NIC reports that this side's read has ended."""
        reserved = self._transfers.get(transfer)
        if reserved is None:
            return []
        if reserved.state is DestinationState.DRAINING:
            return [*self._close(transfer), Send(transfer, "done")]
        if not ok:
            return [*self._close(transfer), Send(transfer, "done"), Lost(transfer, "the read failed")]
        return [*self._hand_over(transfer), Send(transfer, "done")]

    def abort(self, request: int) -> list[Action]:
        """The request was cancelled. Its pages are freed now, or as soon as nothing is written into them."""
        transfer = self._of_request.get(request)
        if transfer is None or self._transfers[transfer].state is DestinationState.DRAINING:
            return []
        # While this side reads it keeps silent: the prefill side frees its blocks on hearing of an abort.
        reading = self._transfers[transfer].state is DestinationState.MOVING
        return self._give_up(transfer, [] if reading else [Send(transfer, "abort")])

    def peer_lost(self, transfer: int) -> list[Action]:
        """The prefill side is known to be dead: it writes nothing more. A read of this side still ends by itself."""
        reserved = self._transfers.get(transfer)
        if reserved is None:
            return []
        lost: list[Action] = []
        if reserved.state is not DestinationState.DRAINING:
            lost.append(Lost(transfer, "the prefill engine is gone"))
        if self.push:
            return [Deregister(transfer), *self._close(transfer), *lost]
        if reserved.state is DestinationState.RESERVED:
            return [*self._close(transfer), *lost]
        reserved.state = DestinationState.DRAINING
        return lost

    def receive(self, transfer: int, kind: Kind, now_ns: int) -> list[Action]:
        """A message of the prefill side."""
        reserved = self._transfers.get(transfer)
        if reserved is None:
            # Nothing is read here: the prefill side need not wait for it.
            return [Send(transfer, "done")] if kind in ("ready", "abort") and not self.push else []
        if kind == "abort":
            if reserved.state is DestinationState.DRAINING:
                return []
            reading = reserved.state is DestinationState.MOVING
            answer: list[Action] = [] if self.push or reading else [Send(transfer, "done")]
            return self._give_up(transfer, [*answer, Lost(transfer, "the prefill was aborted")])
        if kind == "quiesced":
            return self._close(transfer) if self.push and reserved.state is DestinationState.DRAINING else []
        if kind == "written":
            return self._close(transfer) if reserved.state is DestinationState.DRAINING else self._hand_over(transfer)
        reserved.deadline_ns = max(reserved.deadline_ns, now_ns + self.leases.patience_ns)
        if kind == "ready" and not self.push and reserved.state is DestinationState.RESERVED:
            reserved.state = DestinationState.MOVING
            return [Send(transfer, "reading"), StartTransfer(transfer)]
        return []

    def expire(self, now_ns: int) -> list[Action]:
        """Wait no longer for silent prefill sides. A write that may be under way is fenced off first."""
        actions: list[Action] = []
        due = [n for n, r in self._transfers.items() if self._waits(r) and r.deadline_ns <= now_ns]
        for transfer in due:
            wanted = self._transfers[transfer].state is DestinationState.RESERVED
            if self.push:
                actions.append(Deregister(transfer))
            actions += self._close(transfer)
            if wanted:
                actions += [Send(transfer, "abort"), Lost(transfer, "the prefill engine is silent")]
        return actions

    def _wanted(self, reserved: _Reserved) -> bool:
        return reserved.state is not DestinationState.DRAINING

    def _waits(self, reserved: _Reserved) -> bool:
        """Whether only the other side can end this wait: a read of this side ends by itself."""
        return self.push or reserved.state is DestinationState.RESERVED

    def _give_up(self, transfer: int, told: list[Action]) -> list[Action]:
        reserved = self._transfers[transfer]
        if not self.push and reserved.state is DestinationState.RESERVED:
            return [*self._close(transfer), *told]
        reserved.state = DestinationState.DRAINING
        return told

    def _hand_over(self, transfer: int) -> list[Action]:
        reserved = self._transfers.pop(transfer)
        del self._of_request[reserved.request]
        return [StartDecode(transfer)]

    def _close(self, transfer: int) -> list[Action]:
        reserved = self._transfers.pop(transfer)
        del self._of_request[reserved.request]
        return [Free(transfer, reserved.blocks)]
