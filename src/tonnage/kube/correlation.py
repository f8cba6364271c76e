"""Which events are written, and as what: repeats, look-alikes and floods.

The rules are those of client-go's tools/record (EventCorrelator, v0.36): of events about one object that differ only
in their message, from the tenth message within ten minutes on they are one combined event; an object gets 25 events at
once and then one every five minutes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

SIMILAR = 10
SIMILAR_WITHIN_S = 600.0
BURST = 25
REFILL_S = 300.0
REMEMBERED = 4096
COMBINED = "(combined from similar events): "

V = TypeVar("V")
Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def key(self) -> Key:
        return self.api_version, self.kind, self.namespace, self.name, self.uid


@dataclass(slots=True)
class _Similar:
    messages: set[str] = field(default_factory=set)
    last: float = 0.0


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class Recent(Generic[V]):
    """A dict that forgets what was not used for longest."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, V] = OrderedDict()

    def get(self, key: Key, make: Callable[[], V]) -> V:
        value = self._kept.get(key)
        if value is None:
            value = self._kept[key] = make()
            if len(self._kept) > REMEMBERED:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return value

    def knows(self, key: Key) -> bool:
        """Whether it is kept."""
        return key in self._kept


class Correlator:
    """Which events of one component to write, and as what: pure but for its memory. Not for several threads."""

    def __init__(self) -> None:
        self._similar: Recent[_Similar] = Recent()
        self._buckets: Recent[_Bucket] = Recent()

    @staticmethod
    def key(about: About, type_: str, reason: str, message: str) -> Key:
        """What an event has in common with its repetitions; of combined events all have the same."""
        return (*about.key, type_, reason, COMBINED if message.startswith(COMBINED) else message)

    def message(self, about: About, type_: str, reason: str, message: str, at: float) -> str | None:
        """The message to write it under; None when the object has had its share of events."""
        similar = self._similar.get((*about.key, type_, reason), _Similar)
        if at - similar.last > SIMILAR_WITHIN_S:
            similar.messages.clear()
        similar.last = at
        similar.messages.add(message)
        if len(similar.messages) >= SIMILAR:
            similar.messages.discard(message)
            message = COMBINED + message
        bucket = self._buckets.get(about.key, lambda: _Bucket(BURST, at))
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, at - bucket.at) / REFILL_S)
        bucket.at = at
        if bucket.tokens < 1:
            return None
        bucket.tokens -= 1
        return message
