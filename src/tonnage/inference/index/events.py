"""vLLM's KV cache events as they are on the wire: bytes in, typed events out. No sockets here.

A batch is msgpack ``[ts, events, data_parallel_rank?]``. Recent vLLM writes each event as a map with a ``type`` key,
older ones as an array that begins with the type (vllm/distributed/kv_events.py); defaults may be left out in both.
A ZeroMQ message has three frames: topic, 8-byte big-endian sequence number, batch. What cannot be read is a
:class:`MalformedMessage` value that says why; of a batch with some bad events the good ones are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

DEVICE, HOST, DISK = 0, 1, 2
"""Tiers, nearest first."""

_TIERS = {None: DEVICE, "GPU": DEVICE, "CPU": HOST, "DISK": DISK, "STORAGE": DISK, "REMOTE": DISK}
END_OF_REPLAY = -1
_UNREADABLE = (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError)  # bad UTF-8 is a ValueError
_tokens = msgspec.msgpack.Decoder(list[int])


def tier_of(medium: str | None) -> int | None:
    """DEVICE, HOST or DISK of an event's medium; None for one that is not known."""
    return _TIERS.get(medium)


class BlockStored(Struct, gc=False):
    """These consecutive blocks can now be hit. ``parent_block_hash``: the block before, None at a prompt's begin."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None = None
    token_ids: Raw = Raw(b"\x90")
    block_size: int = 0
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[list[Any] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None

    @property
    def lora(self) -> str | None:
        """The adapter: its name, or its number in events that have only that."""
        return self.lora_name or (str(self.lora_id) if self.lora_id else None)

    def tokens(self) -> list[int]:
        """The token ids. Raises msgspec.MsgspecError unless they are a list of integers."""
        return _tokens.decode(self.token_ids)

    def token_count(self) -> int:
        """How many tokens there are, without reading them (msgpack array headers); -1 if they are not a list."""
        head = memoryview(self.token_ids)
        kind = head[0] if head else 0
        if kind == 0xDC:
            return head[1] << 8 | head[2]
        if kind & 0xF0 == 0x90:
            return kind & 0x0F
        return int.from_bytes(head[1:5], "big") if kind == 0xDD else -1

    @property
    def main_attention(self) -> bool:
        """False for the cache groups of hybrid models that keep only part of a prompt (sliding window, Mamba):
        they do not say how far a prefix can be reused."""
        kind = self.kv_cache_spec_kind
        return kind is None or "full" in kind or (kind.startswith("mla"))


class BlockRemoved(Struct, gc=False):
    """These blocks, or one physical copy of each, are gone. ``remaining_copy_counts``: copies left, where told."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None
    remaining_copy_counts: list[int] | None = None


class AllBlocksCleared(Struct, gc=False):
    """Nothing can be hit any more; in one medium only where that is given."""

    medium: str | None = None


class _StoredMap(BlockStored, tag_field="type", tag="BlockStored", gc=False): ...


class _RemovedMap(BlockRemoved, tag_field="type", tag="BlockRemoved", gc=False): ...


class _ClearedMap(AllBlocksCleared, tag_field="type", tag="AllBlocksCleared", gc=False): ...


class _StoredArray(BlockStored, array_like=True, tag="BlockStored", gc=False): ...


class _RemovedArray(BlockRemoved, array_like=True, tag="BlockRemoved", gc=False): ...


class _ClearedArray(AllBlocksCleared, array_like=True, tag="AllBlocksCleared", gc=False): ...


Event = BlockStored | BlockRemoved | AllBlocksCleared


class Batch(Struct, gc=False):
    """``ts``: the engine's clock, seconds."""

    ts: float
    events: Sequence[Event]
    data_parallel_rank: int | None = None

    @property
    def problems(self) -> tuple[str, ...]:
        """What was left out, and why."""
        return ()


class _MapBatch(Batch, array_like=True, gc=False):
    ts: float
    events: list[_StoredMap | _RemovedMap | _ClearedMap]
    data_parallel_rank: int | None = None


class _ArrayBatch(Batch, array_like=True, gc=False):
    ts: float
    events: list[_StoredArray | _RemovedArray | _ClearedArray]
    data_parallel_rank: int | None = None


class _PartBatch(Batch, gc=False):
    left_out: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        return self.left_out


class MalformedMessage(Struct, frozen=True):
    """A message that cannot be used at all."""

    reason: str


class Message(Struct):
    """One message of a publisher."""

    topic: str
    sequence: int
    batch: Batch


_map_batch: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_MapBatch)
_array_batch: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_ArrayBatch)
_one_map = msgspec.msgpack.Decoder(_StoredMap | _RemovedMap | _ClearedMap)
_one_array = msgspec.msgpack.Decoder(_StoredArray | _RemovedArray | _ClearedArray)


class BatchDecoder:
    """Reads the batches of one publisher, in the encoding that it used last if it can."""

    def __init__(self) -> None:
        self._first: msgspec.msgpack.Decoder[_MapBatch | _ArrayBatch] = _map_batch
        self._second: msgspec.msgpack.Decoder[_MapBatch | _ArrayBatch] = _array_batch

    def decode(self, payload: bytes) -> Batch | MalformedMessage:
        """The batch, or why there is none."""
        try:
            return self._first.decode(payload)
        except _UNREADABLE:
            try:
                read = self._second.decode(payload)
            except _UNREADABLE:
                return _salvage(payload)
            self._first, self._second = self._second, self._first
            return read


def decode_batch(payload: bytes) -> Batch | MalformedMessage:
    """One batch in either encoding."""
    return BatchDecoder().decode(payload)


def _salvage(payload: bytes) -> Batch | MalformedMessage:
    """Event by event, so that one bad or unknown event does not cost the others."""
    try:
        read = msgspec.msgpack.decode(payload)
    except _UNREADABLE as error:
        return MalformedMessage(f"not msgpack: {error}")
    if isinstance(read, dict):
        read = [read.get("ts"), read.get("events"), read.get("data_parallel_rank")]
    if not isinstance(read, list) or len(read) < 2 or not isinstance(read[1], list):
        return MalformedMessage("a batch must be [ts, events, data_parallel_rank]")
    stamp = read[0] if isinstance(read[0], int | float) else 0.0
    rank = read[2] if len(read) > 2 and isinstance(read[2], int) else None
    events: list[Event] = []
    problems = []
    for number, one in enumerate(read[1]):
        decoder = _one_map if isinstance(one, dict) else _one_array
        try:
            events.append(decoder.decode(msgspec.msgpack.encode(one)))
        except _UNREADABLE as error:
            problems.append(f"event {number}: {error}")
    return _PartBatch(float(stamp), events, rank, tuple(problems))


def decode_message(frames: Sequence[bytes], decoder: BatchDecoder) -> Message | MalformedMessage:
    """The three frames of a published or replayed message; a replayed one may come without the topic."""
    if len(frames) not in (2, 3):
        return MalformedMessage(f"a message has 3 frames (topic, sequence, batch), this one {len(frames)}")
    number, payload = frames[-2], frames[-1]
    if len(number) != 8:
        return MalformedMessage(f"a sequence number has 8 bytes, this one {len(number)}")
    sequence = int.from_bytes(number, "big", signed=True)
    topic = frames[0].decode("utf-8", "replace") if len(frames) == 3 else ""
    if sequence == END_OF_REPLAY:
        return Message(topic, sequence, Batch(0.0, ()))
    batch = decoder.decode(payload)
    return batch if isinstance(batch, MalformedMessage) else Message(topic, sequence, batch)


def replay_request(start: int) -> list[bytes]:
    """Frames that ask a publisher's replay socket for everything from this sequence number on."""
    return [b"", start.to_bytes(8, "big", signed=True)]
