"""What a router is told about a request and its workers, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import msgspec

from tonnage.inference.prompts import Path

Reason: TypeAlias = Literal[
    "turn",  # the next in order, or drawn
    "load",  # the least load decided
    "prefix",  # cached blocks decided
    "session",  # the worker of the session, by its bonus
    "lora",  # a worker that has the adapter loaded
    "replicate",  # a cached prefix was left behind for a quicker worker
    "tie",  # a draw between near-equal workers
    "no-worker",  # no live worker: 503
    "saturated",  # every worker is full and the request cannot wait: 429
    "queue-full",  # the queue of its priority is full: 429
    "expired",  # it waited longer than allowed: 503
]
"""Why a request went where it went, or was refused."""

STATUS: Mapping[str, int] = {"no-worker": 503, "saturated": 429, "queue-full": 429, "expired": 503}
"""HTTP status of the reasons that refuse a request: 429 tells the client to send less, 503 to come again."""


class RouteRequest(msgspec.Struct, frozen=True, gc=False):
    """A request that asks for a worker.

    ``blocks`` counts the full KV blocks of the prompt and ``path`` names them (may be empty where no policy looks at
    content); ``expected_output`` is in tokens, None when unknown. A higher ``priority`` is served first, a negative
    one may be shed; engines count the other way (``engine_priority``).
    """

    request_id: int
    arrival_ns: int
    prompt_tokens: int
    blocks: int = 0
    path: Path = ()
    expected_output: int | None = None
    session: str | None = None
    priority: int = 0
    tenant: str = ""
    lora: str | None = None

    @property
    def engine_priority(self) -> int:
        """The same priority for an engine, where the lower value goes first (vLLM's ``priority``, Engine.submit)."""
        return -self.priority


class Overlap(msgspec.Struct, frozen=True, gc=False):
    """Leading blocks of a prompt that workers hold, by worker index; a worker that is absent holds none.

    ``host`` and ``disk`` count blocks beyond the tiers above them, so the sum is the whole prefix that is held.
    """

    device: Mapping[int, int] = {}
    host: Mapping[int, int] = {}
    disk: Mapping[int, int] = {}

    def held(self, worker: int) -> int:
        """Blocks that the worker holds in any tier."""
        return self.device.get(worker, 0) + self.host.get(worker, 0) + self.disk.get(worker, 0)


NOTHING_CACHED = Overlap()


class Worker(msgspec.Struct, gc=False):
    """An engine that requests can be sent to. ``index`` names it for as long as it lives and is not given again.

    ``host_block_s`` and ``disk_block_s`` are the seconds to bring a block up from host memory or disk (they are those
    of ``Tiers.block_s``), None when unknown.
    """

    index: int
    name: str = ""
    zone: str = ""
    total_blocks: int = 16_384
    block_size: int = 16
    max_num_batched_tokens: int = 8_192
    max_num_seqs: int = 256
    loras: frozenset[str] = frozenset()  # adapters loaded
    max_loras: int = 0  # adapters that fit; 0 = no adapters are served dynamically
    host_block_s: float | None = None
    disk_block_s: float | None = None
    lower_blocks: int = 0  # that the largest tier below the GPU holds
    healthy: bool = True
    draining: bool = False

    @property
    def eligible(self) -> bool:
        """Whether it may get new requests."""
        return self.healthy and not self.draining


class StepCosts(Protocol):
    """The engine's timing model as the router uses it."""

    def prefill_s(self, tokens: int, context: int) -> float:
        """Seconds to compute ``tokens`` prompt tokens after ``context`` cached ones, chunking included."""

    def decode_s(self, sequences: int, context: int) -> float:
        """Seconds of a step that decodes ``sequences`` sequences which hold ``context`` tokens together."""


CostsOf: TypeAlias = Callable[[int], StepCosts]
"""The times of the engine of a worker, by its index."""


class CostParts(msgspec.Struct, frozen=True, gc=False):
    """What the cost of a candidate is made of, in seconds; they add up to it.

    ``wait`` for what is booked there, ``own`` prefill and loads from lower tiers, delay of requests that come ``later``
    and of those that ``decode`` there, recomputation of what it makes the worker ``evict``, less the ``session`` bonus.
    """

    wait: float
    own: float
    later: float = 0.0
    decode: float = 0.0
    evict: float = 0.0
    session: float = 0.0

    @property
    def total(self) -> float:
        """The cost."""
        return self.wait + self.own + self.later + self.decode + self.evict - self.session

    def text(self) -> str:
        """The parts that are not zero, as a sum: ``wait 0.1 + own 0.75``."""
        terms = [f"{name} {value:.4g}" for name in self.__struct_fields__[:5] if (value := getattr(self, name))]
        total = " + ".join(terms) or "0"
        return f"{total} - session {self.session:.4g}" if self.session else total


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """One decision: where a request went and what spoke for it. ``worker`` is -1 when it was refused.

    ``costs`` holds the cost of each candidate (worker index, cost; lower is better, in ``unit``); ``predicted_s`` is
    the expected time to first token, None where the policy predicts none. ``parts`` says what the costs of the chosen
    worker and of the best other one are made of, where the policy tells.
    """

    request_id: int
    worker: int
    policy: str
    reason: Reason
    costs: tuple[tuple[int, float], ...] = ()
    device: int = 0  # blocks of the prompt that the chosen worker holds
    host: int = 0
    disk: int = 0
    blocks: int = 0
    predicted_s: float | None = None
    unit: str = ""
    parts: tuple[tuple[int, CostParts], ...] = ()

    @property
    def refused(self) -> bool:
        """Whether no worker was chosen."""
        return self.worker < 0

    @property
    def status(self) -> int:
        """HTTP status that the decision amounts to: 200, 429 or 503."""
        return STATUS.get(self.reason, 200)

    def text(self, names: Mapping[int, str] | None = None) -> str:
        """The decision in a sentence, with the candidates it beat. ``names`` gives workers' names by index."""
        if self.refused:
            return f"request {self.request_id} refused with {self.status} ({self.reason}) by {self.policy}"
        known = names or {}
        parts = [f"request {self.request_id} to {_name(self.worker, known)} by {self.policy} ({self.reason})"]
        if self.blocks:
            tiers = f"{self.device} on the GPU, {self.host} in host memory, {self.disk} on disk"
            parts.append(f"holds {self.device + self.host + self.disk} of {self.blocks} blocks ({tiers})")
        if self.predicted_s is not None:
            parts.append(f"first token expected after {self.predicted_s:.3f} s")
        if len(self.costs) > 1:
            ranked = sorted(self.costs, key=lambda pair: (pair[1], pair[0]))
            listed = ", ".join(f"{_name(worker, known)} {cost:.4g}" for worker, cost in ranked[:4])
            more = f" and {len(ranked) - 4} more" if len(ranked) > 4 else ""
            parts.append(f"cost{f' in {self.unit}' if self.unit else ''}: {listed}{more}")
        parts += [f"{_name(worker, known)}: {made.text()} = {made.total:.4g}" for worker, made in self.parts]
        return "; ".join(parts)


def _name(worker: int, names: Mapping[int, str]) -> str:
    return names.get(worker) or f"worker {worker}"
