"""The policy of this project: the least predicted seconds, for the request and for everyone it disturbs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec

from tonnage.errors import InputError
from tonnage.inference.routing.book import Book, Booking, WorkerLoad
from tonnage.inference.routing.policies import Choice, Policy
from tonnage.inference.routing.predicted import PredictedInserts
from tonnage.inference.routing.types import Overlap, Reason, RouteRequest, StepCosts, Worker

_DECAY_NS = 100_000_000  # averages are aged in steps of this
_STEPS = 100.0  # tokens that a sequence is taken to generate where nothing is known


class TonnageSettings(msgspec.Struct, frozen=True):
    """Weights of the policy. All are at least 0; ``tonnage route tune`` fits the first four to a log.

    - ``later_weight``: how much the delay counts that computing a prompt causes to requests that come later. Work adds
      to the queue of all that arrive before the worker is idle again, which is busy / (1 - busy) seconds for each
      second computed; the busy share is observed.
    - ``evict_weight``: how much the recomputation counts that evicting others' blocks may cause.
    - ``decode_weight``: what a second counts by which the prefill delays the next token of one other request there, in
      seconds of time to first token. Requests still in prefill count too: they decode by the time this one is computed,
      and if they did not count, prefills would pile up on the worker that decodes least.
    - ``tie_s``, ``tie_share``: workers whose cost is within ``tie_s`` + ``tie_share`` · least are as good as the best;
      the less loaded of two drawn by lot is taken.
    - ``session_s``: what going to the worker of the session's last request is worth, in seconds; a bonus, not a rule.
    - ``host_block_s``, ``disk_block_s``: seconds to bring one block up from host memory or disk.
    - ``lora_load_s``: seconds to load an adapter.
    - ``event_lag_s``: how long after its end a request's blocks are expected on its worker without an event.
    - ``busy_memory_s``: the time over which the busy share and the reuse are averaged.
    - ``later_most``: the most that one second of work counts for later requests.
    """

    later_weight: float = 1.0
    evict_weight: float = 1.0
    decode_weight: float = 0.05
    session_s: float = 0.005
    tie_s: float = 0.001
    tie_share: float = 0.01
    host_block_s: float = 0.0002
    disk_block_s: float = 0.002
    lora_load_s: float = 0.5
    event_lag_s: float = 2.0
    busy_memory_s: float = 60.0
    later_most: float = 4.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if not 0 <= value < math.inf or (field == "busy_memory_s" and not value):
                raise InputError.at(f"{field} cannot be {value}", field=field, hint="give a number of 0 or more")


class _Row(NamedTuple):
    """One candidate: its cost and what it is made of, in seconds; prompt tokens to compute; blocks held."""

    total: float
    worker: Worker
    wait: float
    own: float
    tokens: int
    held: int


class Tonnage(Policy):
    """Least predicted seconds.

    cost = wait (booked prefills not yet computed, stretched by the observed slowness; room in the KV cache; an adapter
    to load) + own prefill after hits in each tier + later_weight · delay that it causes to later requests
    + decode_weight · delay of the requests in flight there + evict_weight · recomputation of what it evicts
    - session bonus. Times are those of ``costs``, the engine's own timing model.
    """

    name = "tonnage"
    unit = "s"

    def __init__(self, costs: StepCosts, settings: TonnageSettings | None = None) -> None:
        self.settings = settings or TonnageSettings()
        self._costs = costs
        self._expected = PredictedInserts(round(self.settings.event_lag_s * 1e9))
        self._sessions: dict[str, int] = {}
        self._inserted: dict[int, float] = {}  # blocks given to each worker's cache, lately
        self._filled: dict[int, int] = {}  # blocks given to each worker's cache, ever
        self._work_s = 0.0  # prefill seconds dispatched, lately
        self._wanted = 0.0  # blocks of prompts, lately
        self._hits = 0.0  # of those held where they were sent
        self._decayed_ns: int | None = None
        self._began_ns: int | None = None
        self._workers = 1
        self._held = 0  # blocks that the worker chosen last holds

    # --- choosing -----

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> Choice:
        settings = self.settings
        self._workers = len(workers)
        session = None if request.session is None else self._sessions.get(request.session)
        rows = self._rows(request, overlap, workers, book, now_ns)
        if session is not None:
            rows = [
                row._replace(total=row.total - settings.session_s) if row.worker.index == session else row
                for row in rows
            ]
        best = min(rows, key=_total)
        bound = best.total + settings.tie_s + settings.tie_share * abs(best.total)
        ties = [row for row in rows if row.total <= bound]
        chosen = best if len(ties) == 1 else self._draw(ties, book, rng)
        self._held = chosen.held
        return Choice(
            chosen.worker.index,
            self._reason(request, chosen, max(row.held for row in rows), len(ties), session),
            chosen.tokens,
            chosen.own,
            tuple([(row.worker.index, row.total) for row in rows]),
            chosen.wait + chosen.own,
        )

    def _rows(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int
    ) -> list[_Row]:
        settings, prefill_s, prompt = self.settings, self._costs.prefill_s, request.prompt_tokens
        expected = self._expected.depths(request.path, now_ns)
        known = overlap.device
        lower = overlap.host or overlap.disk
        work = 1 + self._later(now_ns)
        harm, evicting = settings.decode_weight, settings.evict_weight and self._hits
        rows = []
        for worker in workers:
            index = worker.index
            load = book.load(index)
            held = device = max(known.get(index, 0), expected.get(index, 0))
            load_s = 0.0
            if lower:
                held, load_s = self._lower_tiers(overlap, index, device, worker.block_size)
            tokens = prompt - held * worker.block_size
            tokens = max(tokens, 1)
            own = prefill_s(tokens, prompt - tokens) + load_s
            wait = self._wait_s(request, device, worker, load, now_ns) if load.requests else 0.0
            if request.lora is not None:
                wait += self._lora_s(request.lora, worker, load)
            total = wait + own * (work + harm * load.requests)
            if evicting:
                total += settings.evict_weight * self._evict_s(request, device, worker, own, tokens)
            rows.append(_Row(total, worker, wait, own, tokens, held))
        return rows

    def _lower_tiers(self, overlap: Overlap, index: int, device: int, size: int) -> tuple[int, float]:
        """Blocks held with the tiers that are quicker to load from than to recompute, and the seconds of loading."""
        held, seconds = device, 0.0
        above = overlap.device.get(index, 0)
        for tier, block_s in ((overlap.host, self.settings.host_block_s), (overlap.disk, self.settings.disk_block_s)):
            above += tier.get(index, 0)
            more = above - held
            if more <= 0:
                continue
            if more * block_s >= self._costs.prefill_s(more * size, held * size):
                break
            held, seconds = above, seconds + more * block_s
        return held, seconds

    def _wait_s(self, request: RouteRequest, device: int, worker: Worker, load: WorkerLoad, now_ns: int) -> float:
        """Seconds until the worker has computed what is booked there and has room for the request."""
        wait = load.wait_s(now_ns)
        if load.tokens_per_s is not None:
            wait += load.silent_s(now_ns)
        return wait + self._room_s(request, device, worker, load)

    def _room_s(self, request: RouteRequest, device: int, worker: Worker, load: WorkerLoad) -> float:
        """Seconds until running sequences have left enough KV blocks, if there are too few for the prompt."""
        in_use = load.blocks + load.output_tokens // worker.block_size
        missing = in_use + request.blocks - device - worker.total_blocks
        full = load.requests - worker.max_num_seqs + 1
        if missing <= 0 and full <= 0:
            return 0.0
        # Sequences end evenly over the time that one takes; so many of those that run must end first.
        running = min(load.requests, worker.max_num_seqs)
        share = max(missing / max(1, worker.total_blocks), full / running)
        steps = load.output_tokens / load.requests or _STEPS
        return share * steps * self._costs.decode_s(running, load.context_tokens)

    def _lora_s(self, adapter: str, worker: Worker, load: WorkerLoad) -> float:
        if adapter in worker.loras or adapter in load.loras:
            return 0.0
        busy = len(load.loras) >= worker.max_loras
        return self.settings.lora_load_s * (2.0 if busy else 1.0)

    def _evict_s(self, request: RouteRequest, device: int, worker: Worker, own: float, tokens: int) -> float:
        """Recomputation to expect from evicting blocks, once the worker's cache has been filled."""
        new = request.blocks - device
        if new <= 0 or self._filled.get(worker.index, 0) + new <= worker.total_blocks:
            return 0.0
        reuse = self._hits / self._wanted
        # The oldest blocks go first; a worker that is given more turns its cache over sooner and loses younger ones.
        mean = sum(self._inserted.values()) / self._workers
        age = self._inserted.get(worker.index, 0.0) / mean if mean else 1.0
        return reuse * min(2.0, age) * own * (new * worker.block_size / tokens)

    def _draw(self, ties: list[_Row], book: Book, rng: Random) -> _Row:
        """The better of two near-equal workers: the one that holds more, then the less loaded."""
        most = max(row.held for row in ties)
        warm = [row for row in ties if row.held == most] if most else ties
        drawn = rng.sample(warm, 2) if len(warm) > 2 else warm
        return min(drawn, key=lambda row: (book.load(row.worker.index).requests, row.total))

    def _reason(self, request: RouteRequest, chosen: _Row, most: int, ties: int, session: int | None) -> Reason:
        index = chosen.worker.index
        if most and chosen.held < most:
            return "replicate"
        if index == session and (ties > 1 or not chosen.held):
            return "session"
        if chosen.held:
            return "prefix"
        if request.lora is not None and request.lora in chosen.worker.loras:
            return "lora"
        return "tie" if ties > 1 else "load"

    # --- what was observed -----

    def _later(self, now_ns: int) -> float:
        """Seconds of delay that a second of prefill causes to requests that come later."""
        self._decay(now_ns)
        assert self._began_ns is not None
        window = min(self.settings.busy_memory_s, (now_ns - self._began_ns) * 1e-9 + 1.0)
        busy = min(0.95, self._work_s / (window * self._workers))
        return self.settings.later_weight * min(self.settings.later_most, busy / (1 - busy))

    def _decay(self, now_ns: int) -> None:
        last = self._decayed_ns
        if last is None:
            self._began_ns = now_ns
        elif now_ns - last >= _DECAY_NS:
            keep = math.exp((last - now_ns) * 1e-9 / self.settings.busy_memory_s)
            self._work_s *= keep
            self._wanted *= keep
            self._hits *= keep
            for index in self._inserted:
                self._inserted[index] *= keep
        else:
            return
        self._decayed_ns = now_ns

    def dispatched(self, request: RouteRequest, choice: Choice, now_ns: int) -> None:
        index = choice.worker
        self._expected.sent(request.request_id, index, request.path)
        self._work_s += choice.prefill_s
        held = min(request.blocks, self._held)
        self._wanted += request.blocks
        self._hits += held
        self._inserted[index] = self._inserted.get(index, 0.0) + request.blocks - held
        self._filled[index] = self._filled.get(index, 0) + request.blocks - held
        if request.session is not None:
            self._sessions[request.session] = index

    def freed(self, request_id: int, booking: Booking, now_ns: int) -> None:
        self._expected.ended(request_id, now_ns, computed=booking.first_token_ns is not None)

    def worker_removed(self, worker: int) -> None:
        self._expected.worker_removed(worker)
        self._inserted.pop(worker, None)
        self._filled.pop(worker, None)


def _total(row: _Row) -> float:
    return row.total
