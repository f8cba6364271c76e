"""One publisher's messages in order: gaps found, asked for again and filled, restarts told from repeats.

The publisher numbers its messages from 0. A first message with a later number, or a number left out, is a gap: what
follows waits (a bounded number of messages, a bounded time) while a replay is asked for, so that events are applied in
the order in which they happened. What does not come is counted as lost, and the stream goes on without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tonnage.inference.index.events import (
    END_OF_REPLAY,
    Batch,
    BatchDecoder,
    MalformedMessage,
    Message,
    decode_message,
    replay_request,
)

PATIENCE_NS = 5_000_000_000
MAX_WAITING = 4096


@dataclass(slots=True)
class Received:
    """What to do now: forget the worker's blocks first (``restarted``), apply ``batches`` in order, send ``request`` to
    the replay socket. ``lost``: messages given up. ``problems``: what was malformed."""

    batches: list[Batch] = field(default_factory=list)
    restarted: bool = False
    request: list[bytes] | None = None
    lost: int = 0
    problems: tuple[str, ...] = ()


class EventStream:
    """The state of one publisher (one worker and data-parallel rank)."""

    def __init__(self, patience_ns: int = PATIENCE_NS, max_waiting: int = MAX_WAITING) -> None:
        self.patience_ns = patience_ns
        self.max_waiting = max_waiting
        self.malformed = 0
        self.repeated = 0
        self.lost = 0
        self._decoder = BatchDecoder()
        self._next = 0  # the number of the message that is due
        self._stamp = float("-inf")  # the publisher's clock at the last message applied
        self._waiting: dict[int, Batch] = {}
        self._since_ns: int | None = None  # when the gap was found

    @property
    def gap(self) -> bool:
        """True while messages are missing."""
        return self._since_ns is not None

    def receive(self, frames: Sequence[bytes], now_ns: int) -> Received:
        """A published message."""
        message = self.read(frames)
        return message if isinstance(message, Received) else self.accept(message, now_ns)

    def accept(self, message: Message, now_ns: int) -> Received:
        """A published message that was read already."""
        out = Received(problems=message.batch.problems)
        number = message.sequence
        if number == END_OF_REPLAY:
            return out
        if number < self._next:
            if message.batch.ts <= self._stamp:
                self.repeated += 1
                return out
            out.restarted = True  # the clock went on and the numbers began again
            self._next, self._since_ns = 0, None
            self._waiting.clear()
        self._take(number, message.batch, out)
        if self._waiting and self._since_ns is None:
            self._since_ns = now_ns
            out.request = replay_request(self._next)
        if len(self._waiting) > self.max_waiting:
            self._give_up(out)
        return out

    def replayed(self, frames: Sequence[bytes]) -> Received:
        """A message from the replay socket; its end marker closes the gap, filled or not."""
        message = self.read(frames)
        return message if isinstance(message, Received) else self.accept_replayed(message)

    def accept_replayed(self, message: Message) -> Received:
        """A replayed message that was read already."""
        out = Received(problems=message.batch.problems)
        if message.sequence == END_OF_REPLAY:
            self._give_up(out)
        elif message.sequence >= self._next:
            self._take(message.sequence, message.batch, out)
            if len(self._waiting) > self.max_waiting:
                self._give_up(out)
        return out

    def tick(self, now_ns: int) -> Received:
        """Gives a gap up when the replay has not come in time."""
        out = Received()
        if self._since_ns is not None and now_ns - self._since_ns >= self.patience_ns:
            self._give_up(out)
        return out

    def read(self, frames: Sequence[bytes]) -> Message | Received:
        """The message in these frames; what is malformed is counted here and changes nothing else."""
        message = decode_message(frames, self._decoder)
        if isinstance(message, MalformedMessage):
            self.malformed += 1
            return Received(problems=(message.reason,))
        return message

    def _take(self, number: int, batch: Batch, out: Received) -> None:
        if number != self._next:
            self._waiting[number] = batch
            return
        self._apply(batch, out)
        waiting = self._waiting
        while waiting and self._next in waiting:
            self._apply(waiting.pop(self._next), out)
        if not waiting:
            self._since_ns = None

    def _apply(self, batch: Batch, out: Received) -> None:
        out.batches.append(batch)
        self._next += 1
        self._stamp = max(self._stamp, batch.ts)

    def _give_up(self, out: Received) -> None:
        lost = 0
        for number in sorted(self._waiting):
            lost += number - self._next
            self._next = number
            self._apply(self._waiting[number], out)
        self._waiting.clear()
        self._since_ns = None
        self.lost += lost
        out.lost += lost
