"""One answer from all sources: each worker by the one that may be believed."""

from __future__ import annotations

from collections.abc import Sequence

from tonnage.inference.index import workers
from tonnage.inference.index.answers import TierBlocks
from tonnage.inference.index.approximate import LONG_TTL_NS, SHORT_TTL_NS, PredictedIndex
from tonnage.inference.index.events import DEVICE, END_OF_REPLAY, AllBlocksCleared, Message, tier_of
from tonnage.inference.index.exact import KvIndex
from tonnage.inference.index.streams import EventStream, Received
from tonnage.inference.index.trust import TrustedSource, TrustSettings, WorkerTrust


class CacheView:
    """The exact index fed from streams of messages, predictions beside it, and trust for each worker.

    Data-parallel ranks that publish under one worker's name are told apart by the rank in their batches: rank 0 is the
    worker, each further one a worker of its own, ``name/dpN`` (:func:`~tonnage.inference.index.workers.owner`)."""

    def __init__(
        self,
        index: KvIndex,
        *,
        settings: TrustSettings | None = None,
        short_ttl_ns: int = SHORT_TTL_NS,
        long_ttl_ns: int = LONG_TTL_NS,
        predicted_blocks: int = 1 << 16,
    ) -> None:
        self.index = index
        self.recent = PredictedIndex(short_ttl_ns, predicted_blocks)
        self.predicted = PredictedIndex(long_ttl_ns, predicted_blocks)
        self.settings = settings or TrustSettings()
        self.problems = 0
        self._trust: dict[str, WorkerTrust] = {}
        self._streams: dict[str, EventStream] = {}
        self._cleared: dict[str, None] = {}
        self._ranks: dict[str, dict[str, None]] = {}

    def add_worker(self, name: str) -> None:
        """A worker that requests may go to."""
        if name not in self._trust:
            self._trust[name] = WorkerTrust(self.settings)
            self._streams[name] = EventStream()
            self.index.add_worker(name)

    def remove_worker(self, name: str) -> None:
        """Forget all about a worker, and about its data-parallel ranks."""
        for rank in self._ranks.pop(name, ()):
            self.remove_worker(rank)
        self._trust.pop(name, None)
        self._cleared.pop(name, None)
        self._streams.pop(name, None)
        for source in (self.index, self.recent, self.predicted):
            source.remove_worker(name)

    def receive(self, name: str, frames: Sequence[bytes], now_ns: int) -> list[bytes] | None:
        """A published message of this worker. Returns frames for its replay socket when messages are missing."""
        message = self._read(name, frames)
        if isinstance(message, Received):
            return self._apply(name, message)
        owner = self._owner(name, message)
        return self._apply(owner, self._streams[owner].accept(message, now_ns))

    def replayed(self, name: str, frames: Sequence[bytes]) -> None:
        """A message from this worker's replay socket."""
        message = self._read(name, frames)
        if isinstance(message, Received):
            self._apply(name, message)
            return
        owners = [self._owner(name, message)]
        if message.sequence == END_OF_REPLAY:  # which does not say whose
            owners = [one for one in (name, *self._ranks.get(name, ())) if self._streams[one].gap] or owners
        for owner in owners:
            self._apply(owner, self._streams[owner].accept_replayed(message))

    def _read(self, name: str, frames: Sequence[bytes]) -> Message | Received:
        self.add_worker(name)
        return self._streams[name].read(frames)

    def _owner(self, name: str, message: Message) -> str:
        """The worker, or its rank, that a message is of."""
        owner = workers.owner(name, message.batch.data_parallel_rank)
        if owner != name:
            self._ranks.setdefault(name, {})[owner] = None
            self.add_worker(owner)
            self._trust[name].answered()
        return owner

    def tick(self, now_ns: int) -> None:
        """Gives up on replays that do not come; call it every second or so."""
        for name, stream in self._streams.items():
            if stream.gap:
                self._apply(name, stream.tick(now_ns))

    def dispatched(self, name: str, keys: Sequence[int], now_ns: int) -> None:
        """A prompt with these keys is sent to this worker."""
        self.add_worker(name)
        known = self.index.scores(keys).get(name, 0)
        self._trust[name].dispatched(len(keys) - known, now_ns)
        self.recent.dispatched(name, keys, now_ns)
        self.predicted.dispatched(name, keys, now_ns)

    def reported(self, name: str, keys: Sequence[int], said: TierBlocks, predicted: int, cached_blocks: int) -> None:
        """The engine's answer told how many blocks of the prompt it had cached; ``said`` and ``predicted`` are what the
        exact index and :attr:`predicted` said when the prompt was routed."""
        self.add_worker(name)
        self._trust[name].reported(sum(said), predicted, cached_blocks, len(keys))

    def verdict(self, name: str, now_ns: int) -> TrustedSource:
        """Which source speaks for this worker, and why no better one."""
        trust = self._trust.get(name)
        return trust.verdict(now_ns) if trust is not None else TrustedSource("load", "unknown worker")

    def overlap(self, keys: Sequence[int], now_ns: int, *, recent: bool = True) -> dict[str, TierBlocks]:
        """Leading blocks of the prompt by worker and tier; workers with none are left out.

        With exact trust the greater of events and, unless not ``recent``, dispatches of the last seconds counts; with
        approximate trust dispatches count as GPU blocks; with neither a worker has none.
        """
        exact = self.index.overlap(keys)
        sent = self.recent.scores(keys, now_ns) if recent else {}
        predicted = self.predicted.scores(keys, now_ns)
        out: dict[str, TierBlocks] = {}
        for name, trust in self._trust.items():
            source = trust.verdict(now_ns).source
            if source == "exact":
                blocks = exact.get(name)
                soon = sent.get(name, 0)
                if soon and (blocks is None or soon > blocks.device):
                    blocks = _at_least(soon, blocks or TierBlocks(0))
                if blocks is not None:
                    out[name] = blocks
            elif source == "approximate" and name in predicted:
                out[name] = TierBlocks(predicted[name])
        return out

    def take_cleared(self) -> list[str]:
        """Workers that restarted or whose GPU cache was emptied since the last call."""
        taken, self._cleared = list(self._cleared), {}
        return taken

    def _forget_sent(self, name: str) -> None:
        """The worker's GPU cache is empty: what was sent there before is not there any more."""
        self.recent.clear(name)
        self.predicted.clear(name)
        self._cleared[name] = None

    def _apply(self, name: str, received: Received) -> list[bytes] | None:
        trust = self._trust[name]
        self.problems += len(received.problems)
        if received.restarted:
            self.index.clear(name)
            self._forget_sent(name)
            trust.restarted()
        for batch in received.batches:
            self.index.apply_batch(name, batch)
            if any(isinstance(event, AllBlocksCleared) and tier_of(event.medium) == DEVICE for event in batch.events):
                self._forget_sent(name)
        if received.batches or received.request is not None or received.lost:
            trust.heard(self._streams[name].gap, received.lost)
        return received.request


def _at_least(device: int, blocks: TierBlocks) -> TierBlocks:
    """The same prefix with this many of its blocks on the GPU."""
    host_end = blocks.device + blocks.host
    return TierBlocks(device, max(0, host_end - device), max(0, sum(blocks) - max(device, host_end)))
