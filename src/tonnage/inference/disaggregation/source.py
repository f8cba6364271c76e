"""The prefill side of transfers: who waits for which blocks, and until when they are kept.

Blocks that a prefill has filled are held until the decode side has them, gives up, or is silent for longer than the
lease; whatever happens, they are released once. What a write of this side may still touch is told to the other side
only when the NIC has reported that the write has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tonnage.inference.disaggregation.actions import Action, Cancel, Deregister, Free, Kind, Leases, Send, StartTransfer


class SourceState(Enum):
    """Of one transfer: its prefill runs; its blocks are held; they are being moved."""

    COMPUTING = 1
    HELD = 2
    MOVING = 3


@dataclass(slots=True)
class _Held:
    request: int
    state: SourceState = SourceState.COMPUTING
    blocks: int = 0
    lease_end_ns: int = 0
    wanted: bool = False  # push: the other side's pages are there
    aborted: bool = False


class Source:
    """All transfers of one prefill engine. ``push``: it writes into the decode side's pages; else that side reads.

    Simulated Services read. ``push`` is for whoever moves blocks by writes, and is only as true as its own tests.

    A transfer's number is the same on both sides; the engine's own request id is kept beside it, so an abort by
    request finds its transfer. Methods return what is to be done, in order.
    """

    def __init__(self, leases: Leases | None = None, *, push: bool = False) -> None:
        self.leases = leases or Leases()
        self.push = push
        self._transfers: dict[int, _Held] = {}
        self._of_request: dict[int, int] = {}

    @property
    def held_blocks(self) -> int:
        """Blocks that are kept for decode sides."""
        return sum(held.blocks for held in self._transfers.values())

    @property
    def transfers(self) -> dict[int, SourceState]:
        """The state of each open transfer."""
        return {number: held.state for number, held in self._transfers.items()}

    def __contains__(self, transfer: int) -> bool:
        """Whether a transfer is open."""
        return transfer in self._transfers

    def __len__(self) -> int:
        """Open transfers."""
        return len(self._transfers)

    def next_deadline_ns(self) -> int | None:
        """When ``expire`` has something to do next if nobody says anything."""
        return min((held.lease_end_ns for held in self._transfers.values() if self._leased(held)), default=None)

    def open(self, transfer: int, request: int) -> list[Action]:
        """A prefill begins whose blocks are for another engine. Raises ValueError for a number or request in use."""
        if transfer in self._transfers or request in self._of_request:
            raise ValueError(f"transfer {transfer} of request {request} is already here")
        self._transfers[transfer] = _Held(request)
        self._of_request[request] = transfer
        return []

    def computed(self, transfer: int, blocks: int, now_ns: int) -> list[Action]:
        """The prefill has ended: from now on its blocks are held here. Raises KeyError for an unknown transfer."""
        held = self._transfers[transfer]
        held.state, held.blocks = SourceState.HELD, blocks
        held.lease_end_ns = now_ns + self.leases.lease_ns
        return [Send(transfer, "ready"), *self._start(transfer, held)]

    def moved(self, transfer: int, ok: bool) -> list[Action]:
        """The NIC reports that this side's write has ended."""
        held = self._transfers.get(transfer)
        if held is None:
            return []
        if held.aborted:
            return [*self._close(transfer), Send(transfer, "quiesced")]
        return [*self._close(transfer), Send(transfer, "written" if ok else "abort")]

    def abort(self, request: int) -> list[Action]:
        """The request was cancelled, or its prefill failed. The other side hears of it at once.

        Where that side reads, it may have begun to: the blocks stay until it answers, or the lease ends.
        """
        transfer = self._of_request.get(request)
        if transfer is None:
            return []
        held = self._transfers[transfer]
        if held.aborted:
            return []
        held.aborted = True
        if held.state is SourceState.COMPUTING:
            return [Cancel(transfer), *self._close(transfer), Send(transfer, "abort"), Send(transfer, "quiesced")]
        if held.state is SourceState.HELD and self.push:
            return [*self._close(transfer), Send(transfer, "abort"), Send(transfer, "quiesced")]
        held.state = SourceState.MOVING
        return [Send(transfer, "abort")]

    def peer_lost(self, transfer: int) -> list[Action]:
        """The decode side is known to be dead: it reads nothing more. A write of this side still ends by itself."""
        held = self._transfers.get(transfer)
        if held is None:
            return []
        if held.state is SourceState.COMPUTING:
            return [Cancel(transfer), *self._close(transfer)]
        if self.push and held.state is SourceState.MOVING:
            held.aborted = True
            return []
        return [*self._fence(transfer), *self._close(transfer)]

    def receive(self, transfer: int, kind: Kind, now_ns: int) -> list[Action]:
        """A message of the decode side. One about a transfer that is over is answered: nobody waits in vain."""
        held = self._transfers.get(transfer)
        if held is None:
            return [Send(transfer, "abort"), Send(transfer, "quiesced")] if kind != "done" else []
        if kind == "done":
            return self._close(transfer)
        if kind == "abort":
            return self._told_to_stop(transfer, held)
        if held.aborted:
            return [Send(transfer, "abort")]  # said already, but that may have been lost
        held.lease_end_ns = max(held.lease_end_ns, now_ns + self.leases.extension_ns)
        if kind == "reading" and held.state is SourceState.HELD:
            held.state = SourceState.MOVING
        if kind in ("reserved", "heartbeat"):
            held.wanted = True
        told_again = held.state is SourceState.HELD and not self.push
        return [Send(transfer, "ready" if told_again else "alive"), *self._start(transfer, held)]

    def expire(self, now_ns: int) -> list[Action]:
        """Give back what is held for silent decode sides. A read that may be under way is fenced off first."""
        actions: list[Action] = []
        due = [n for n, h in self._transfers.items() if self._leased(h) and h.lease_end_ns <= now_ns]
        for transfer in due:
            actions += [*self._fence(transfer), *self._close(transfer)]
            actions += [Send(transfer, "abort"), Send(transfer, "quiesced")]
        return actions

    def _fence(self, transfer: int) -> list[Action]:
        return [] if self.push else [Deregister(transfer)]

    def _leased(self, held: _Held) -> bool:
        return held.state is SourceState.HELD or (held.state is SourceState.MOVING and not self.push)

    def _start(self, transfer: int, held: _Held) -> list[Action]:
        if not (self.push and held.wanted and held.state is SourceState.HELD):
            return []
        held.state = SourceState.MOVING
        return [StartTransfer(transfer)]

    def _told_to_stop(self, transfer: int, held: _Held) -> list[Action]:
        if self.push and held.state is SourceState.MOVING:
            held.aborted = True  # the end of the write is waited for
            return []
        # A decode side that reads says so only when no read of its is in flight.
        cancel = [Cancel(transfer)] if held.state is SourceState.COMPUTING else []
        return [*cancel, *self._close(transfer), Send(transfer, "quiesced")]

    def _close(self, transfer: int) -> list[Action]:
        held = self._transfers.pop(transfer)
        del self._of_request[held.request]
        return [Free(transfer, held.blocks)] if held.blocks else []
