"""Workers: one name for each, and a slot (a bit) that is used again after the worker has left."""

from __future__ import annotations

from itertools import compress

from tonnage.inference.index.runs import Groups

_SCHEMES = ("tcp://", "http://", "https://", "grpc://")
_BITS = bytes(1 if byte == ord("1") else 0 for byte in range(256))
_MANY = 20  # from this many workers on, reading a mask as text is quicker than bit by bit


def canonical(address: str, rank: int | None = None, port: int = 8000) -> str:
    """One spelling of a worker: ``host:port``, with ``/dpN`` for a data-parallel rank above 0.

    Takes ``host``, ``host:port``, either with a scheme, and IPv6 with or without brackets; without a port it is
    ``port``. So a pod known by its IP and the same pod known by its endpoint are one worker.
    """
    text = address.strip().lower()
    for scheme in _SCHEMES:
        text = text.removeprefix(scheme)
    text, _, told = text.rstrip("/").partition("/dp")
    if rank is None and told.isdigit():
        rank = int(told)
    if text.startswith("["):
        host, _, tail = text[1:].partition("]")
        text = f"[{host}]{tail or f':{port}'}"
    elif text.count(":") > 1:
        text = f"[{text}]:{port}"
    elif ":" not in text:
        text = f"{text}:{port}"
    return owner(text, rank)


def owner(worker: str, rank: int | None) -> str:
    """Who holds the blocks that a worker's data-parallel rank announces: the worker, with ``/dpN`` for a rank above 0.
    A name that says so already is that rank's. Each rank has a cache, a publisher and message numbers of its own
    (vllm/distributed/kv_events.py)."""
    return f"{worker}/dp{rank}" if rank and not worker.endswith(f"/dp{rank}") else worker


def from_topic(topic: str, rank: int | None = None, port: int = 8000) -> tuple[str, str] | None:
    """(worker, model) of a topic ``kv@ip:port@model``, as llm-d's engines use; None for any other topic."""
    parts = topic.split("@", 2)
    if len(parts) != 3 or parts[0] != "kv" or not parts[1]:
        return None
    return canonical(parts[1], rank, port), parts[2]


class Slots:
    """Names to bits. A slot that was released goes to the next newcomer, with a new generation."""

    def __init__(self) -> None:
        self.slot: dict[str, int] = {}
        self.names: list[str] = []
        self.bits: list[int] = []
        self.generations: list[int] = []
        self.live = 0  # mask of the slots in use
        self._free: list[int] = []
        self._names_from_one = [""]  # by bit_length, which counts from 1
        self._bits_from_one = [0]

    def add(self, name: str) -> int:
        """The slot of this worker, a new one if it has none."""
        slot = self.slot.get(name)
        if slot is not None:
            return slot
        if self._free:
            slot = self._free.pop()
            self.names[slot] = name
            self._names_from_one[slot + 1] = name
            self.generations[slot] += 1
        else:
            slot = len(self.names)
            self.names.append(name)
            self.bits.append(1 << slot)
            self.generations.append(0)
            self._names_from_one.append(name)
            self._bits_from_one.append(1 << slot)
        self.slot[name] = slot
        self.live |= self.bits[slot]
        return slot

    def release(self, name: str) -> None:
        """Give the slot back. Its bit must be in no mask any more. Raises KeyError for an unknown worker."""
        slot = self.slot.pop(name)
        self.live ^= self.bits[slot]
        self._free.append(slot)

    def named(self, mask: int) -> list[str]:
        """The workers of a mask, by slot."""
        return list(compress(self.names, format(mask, "b")[::-1].encode().translate(_BITS)))

    def scores(self, groups: Groups) -> dict[str, int]:
        """Groups as a number for each worker."""
        out: dict[str, int] = {}
        names, bits = self._names_from_one, self._bits_from_one
        for depth, mask in groups:
            if mask.bit_count() >= _MANY:
                out.update(dict.fromkeys(self.named(mask), depth))
                continue
            while mask:
                top = mask.bit_length()
                out[names[top]] = depth
                mask ^= bits[top]
        return out
