"""The policy of this project: the least predicted seconds, for the request and for everyone it disturbs."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec

from tonnage.errors import InputError
from tonnage.inference.routing.book import Book, Booking, WorkerLoad
from tonnage.inference.routing.policies import RouteChoice, RoutingPolicy, most_hits
from tonnage.inference.routing.predicted import PredictedInserts
from tonnage.inference.routing.types import CostParts, CostsOf, Overlap, Reason, RouteRequest, StepCosts, Worker

_DECAY_NS = 100_000_000  # averages are aged in steps of this
_SESSIONS = 1 << 16  # sessions whose worker is remembered
_STEPS = 100.0  # tokens that a sequence is taken to generate where nothing is known


class TonnageSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Weights of the policy. All are at least 0; ``tonnage route tune`` fits the first four to a log.

    - ``later_weight``: how much the delay counts that computing a prompt causes to requests that come later. Work adds
      to the queue of all that arrive before the worker is idle again, which is busy / (1 - busy) seconds for each
      second computed; the busy share is observed.
    - ``evict_weight``: how much the recomputation counts that evicting others' blocks may cause.
    - ``decode_weight``: what a second counts by which the prefill delays the next token of one other request there, in
      seconds of time to first token. Requests still in prefill count too: they decode by the time this one is computed,
      and if they did not count, prefills would pile up on the worker that decodes least. Who is delayed stays longer
      and is in the way of requests that come later: it counts with them, the more the busier the workers are.
    - ``tie_s``, ``tie_share``: workers whose cost is within ``tie_s`` + ``tie_share`` · least are as good as the best;
      the less loaded of two drawn at random is taken.
    - ``session_s``: what going to the worker of the session's last request is worth, in seconds; a bonus, not a rule.
    - ``host_block_s``, ``disk_block_s``: seconds to bring one block up from host memory or disk, for workers of which
      it is not known (``Worker``). The defaults suit blocks of about 10 MB on PCIe 5.0 and one NVMe drive.
    - ``lora_load_s``: seconds to load an adapter.
    - ``event_lag_s``: how long after its end a request's blocks are expected on its worker without an event.
    - ``busy_memory_s``: the time over which the busy share and the reuse are averaged.
    - ``later_most``: the most that one second of work counts for later requests.
    """

    later_weight: float = 1.0
    evict_weight: float = 1.0
    decode_weight: float = 0.07
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
    """One candidate: its cost and what it is made of, in seconds; prompt tokens to compute; blocks held.

    ``later``, ``decode``: what a second of ``own`` costs later requests, and those in flight there."""

    total: float
    worker: Worker
    wait: float
    own: float
    tokens: int
    held: int
    later: float
    decode: float
    evict: float
    session: float = 0.0

    def parts(self) -> tuple[int, CostParts]:
        own = self.own
        made = CostParts(self.wait, own, own * self.later, own * self.decode, self.evict, self.session)
        return self.worker.index, made


class Tonnage(RoutingPolicy):
    """Least predicted seconds.

    cost = wait (booked prefills not yet computed, stretched by the observed slowness; room in the KV cache; an adapter
    to load) + own prefill after hits in each tier + later_weight · delay that it causes to later requests
    + decode_weight · delay of the requests in flight there and through them of later ones
    + evict_weight · recomputation of what it evicts
    - session bonus.

    Times are those of the engines' own timing model: ``costs`` for all workers, or ``costs_of`` each. With ``predicts``
    it counts what it has sent as cached before events say so; without, only the overlap that it is given counts, for an
    index that predicts by itself. Raises ValueError unless exactly one of ``costs`` and ``costs_of`` is given.
    """

    name = "tonnage"
    unit = "s"

    def __init__(
        self,
        costs: StepCosts | None = None,
        settings: TonnageSettings | None = None,
        *,
        costs_of: CostsOf | None = None,
        predicts: bool = True,
    ) -> None:
        if (costs is None) == (costs_of is None):
            raise ValueError("the times of the engines are needed, of all alike or of each")
        self.settings = settings or TonnageSettings()
        self._costs = costs
        self._costs_of = costs_of
        self._expected = PredictedInserts(round(self.settings.event_lag_s * 1e9)) if predicts else None
        self._sessions: OrderedDict[str, int] = OrderedDict()  # worker of the last request, least recently used first
        self._inserted: dict[int, float] = {}  # blocks given to each worker's cache, lately
        self._filled: dict[int, int] = {}  # blocks given to each worker's cache since it was empty
        self._work_s = 0.0  # prefill seconds dispatched, lately
        self._wanted = 0.0  # blocks of prompts, lately
        self._hits = 0.0  # of those held where they were sent
        self._decayed_ns: int | None = None
        self._began_ns: int | None = None
        self._workers = 1  # to choose from

    def costs_of(self, worker: int) -> StepCosts:
        """The times of the engine of a worker, by its index."""
        if self._costs is not None:
            return self._costs
        assert self._costs_of is not None
        return self._costs_of(worker)

    # --- choosing -----

    def choose(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int, rng: Random
    ) -> RouteChoice:
        settings = self.settings
        self._workers = len(workers)
        session = None if request.session is None else self._sessions.get(request.session)
        rows = self._rows(request, overlap, workers, book, now_ns)
        if session is not None:
            bonus = settings.session_s
            rows = [
                row._replace(total=row.total - bonus, session=bonus) if row.worker.index == session else row
                for row in rows
            ]
        best = min(rows, key=_total)
        bound = best.total + settings.tie_s + settings.tie_share * abs(best.total)
        ties = [row for row in rows if row.total <= bound]
        chosen = best if len(ties) == 1 else self._draw(ties, book, rng)
        shown = [chosen]
        if len(rows) > 1:
            shown.append(best if best is not chosen else min((row for row in rows if row is not chosen), key=_total))
        return RouteChoice(
            chosen.worker.index,
            self._reason(request, chosen, max(row.held for row in rows), len(ties), session),
            chosen.tokens,
            chosen.own,
            tuple([(row.worker.index, row.total) for row in rows]),
            chosen.wait + chosen.own,
            min(request.blocks, chosen.held),
            tuple([row.parts() for row in shown]),
        )

    def _rows(
        self, request: RouteRequest, overlap: Overlap, workers: Sequence[Worker], book: Book, now_ns: int
    ) -> list[_Row]:
        settings, prompt = self.settings, request.prompt_tokens
        expected = {} if self._expected is None else self._expected.depths(request.path, now_ns)
        known = overlap.device
        lower = overlap.host or overlap.disk
        later = self._later(now_ns)
        harm, evicting = settings.decode_weight * (1 + later), settings.evict_weight and self._hits
        rows = []
        for worker in workers:
            index, size = worker.index, worker.block_size
            load, costs = book.load(index), self.costs_of(index)
            held = device = min(max(known.get(index, 0), expected.get(index, 0)), (prompt - 1) // size)
            load_s = 0.0
            if lower:
                held, load_s = self._lower_tiers(overlap, request, device, worker, costs)
            tokens = prompt - held * size
            own = costs.prefill_s(tokens, held * size) + load_s
            wait = self._wait_s(request, device, worker, load, now_ns, costs) if load.requests else 0.0
            if request.lora is not None:
                wait += self._lora_s(request.lora, worker, load)
            decode = harm * load.requests
            evict = 0.0
            if evicting:
                evict = settings.evict_weight * self._evict_s(request, held, worker, own, tokens)
            total = wait + own * (1 + later + decode) + evict
            rows.append(_Row(total, worker, wait, own, tokens, held, later, decode, evict))
        return rows

    def _lower_tiers(
        self, overlap: Overlap, request: RouteRequest, device: int, worker: Worker, costs: StepCosts
    ) -> tuple[int, float]:
        """Blocks held with the tiers that are quicker to load from than to recompute, and the seconds of loading."""
        index, size, settings = worker.index, worker.block_size, self.settings
        host_s = settings.host_block_s if worker.host_block_s is None else worker.host_block_s
        disk_s = settings.disk_block_s if worker.disk_block_s is None else worker.disk_block_s
        most = most_hits(request, worker)
        held, seconds = device, 0.0
        above = overlap.device.get(index, 0)
        for tier, block_s in ((overlap.host, host_s), (overlap.disk, disk_s)):
            above += tier.get(index, 0)
            more = min(above, most) - held
            if more <= 0:
                continue
            if more * block_s >= costs.prefill_s(more * size, held * size):
                break
            held, seconds = held + more, seconds + more * block_s
        return held, seconds

    def _wait_s(
        self, request: RouteRequest, device: int, worker: Worker, load: WorkerLoad, now_ns: int, costs: StepCosts
    ) -> float:
        """Seconds until the worker has computed what is booked there and has room for the request."""
        wait = load.wait_s(now_ns)
        if load.tokens_per_s is not None:
            wait += load.silent_s(now_ns)
        return wait + self._room_s(request, device, worker, load, costs)

    def _room_s(self, request: RouteRequest, device: int, worker: Worker, load: WorkerLoad, costs: StepCosts) -> float:
        """Seconds until running sequences have left enough KV blocks, if there are too few for the prompt."""
        in_use = load.blocks + load.output_tokens // worker.block_size
        missing = in_use + request.blocks - device - worker.total_blocks
        full = load.requests - worker.max_num_seqs + 1
        if missing <= 0 and full <= 0:
            return 0.0
        # Sequences end evenly over the time that one takes; this many of those that run must end first.
        running = min(load.requests, worker.max_num_seqs)
        share = max(missing / max(1, worker.total_blocks), full / running)
        steps = load.output_tokens / load.requests or _STEPS
        return share * steps * costs.decode_s(running, load.context_tokens)

    def _lora_s(self, adapter: str, worker: Worker, load: WorkerLoad) -> float:
        if adapter in worker.loras or adapter in load.loras:
            return 0.0
        busy = len(load.loras) >= worker.max_loras
        return self.settings.lora_load_s * (2.0 if busy else 1.0)

    def _evict_s(self, request: RouteRequest, held: int, worker: Worker, own: float, tokens: int) -> float:
        """Recomputation to expect from evicting blocks, once the worker's cache has been filled.

        Blocks are lost when they leave the largest tier, which only blocks push out that the worker holds nowhere."""
        new = request.blocks - held
        room = max(worker.total_blocks, worker.lower_blocks)
        if new <= 0 or self._filled.get(worker.index, 0) + new <= room:
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

    def dispatched(self, request: RouteRequest, choice: RouteChoice, now_ns: int) -> None:
        index, new = choice.worker, request.blocks - choice.held
        if self._expected is not None:
            self._expected.sent(request.request_id, index, request.path)
        self._work_s += choice.prefill_s
        self._wanted += request.blocks
        self._hits += choice.held
        self._inserted[index] = self._inserted.get(index, 0.0) + new
        self._filled[index] = self._filled.get(index, 0) + new
        if request.session is not None:
            self._sessions[request.session] = index
            self._sessions.move_to_end(request.session)
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)

    def freed(self, request_id: int, booking: Booking, now_ns: int) -> None:
        if self._expected is not None:
            self._expected.ended(request_id, now_ns, computed=booking.first_token_ns is not None)

    def worker_removed(self, worker: int) -> None:
        self.cache_cleared(worker)
        for session in [session for session, index in self._sessions.items() if index == worker]:
            del self._sessions[session]

    def cache_cleared(self, worker: int) -> None:
        if self._expected is not None:
            self._expected.cleared(worker)
        self._inserted.pop(worker, None)
        self._filled.pop(worker, None)


def _total(row: _Row) -> float:
    return row.total
