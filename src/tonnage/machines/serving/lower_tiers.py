"""The KV cache tiers below the GPUs of a Service's engines, as a scenario writes them: ``tiers: {host: 64Gi}``.

A tier's speed, rules and whether all engines share it are those of its kind (tonnage.inference.tiers); the scenario
says how large it is. Each engine has a link of its own to its host, as fast as its GPUs' generation. What a pod's own
tiers hold goes with its engine; a shared tier stays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from tonnage.facts import gpus
from tonnage.inference import tiers
from tonnage.inference.engine import EngineConfig
from tonnage.inference.timing import BatchTiming, StepTiming

_SIZE = re.compile(r"(\d+(?:\.\d+)?)(x|[KMGT]i?)B?", re.IGNORECASE)
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


class TierSize(msgspec.Struct, frozen=True):
    """How much one tier holds: bytes, or a multiple (``times``) of the GPU's own KV cache; both None: unlimited."""

    name: str
    size_bytes: int | None = None
    times: float | None = None

    def blocks(self, gpu_blocks: int, block_bytes: int) -> int | None:
        """Its KV blocks; None: without an end."""
        if self.times is not None:
            return int(self.times * gpu_blocks)
        return None if self.size_bytes is None else self.size_bytes // block_bytes


def tier_sizes(written: Mapping[str, str]) -> tuple[TierSize, ...]:
    """The tiers of a scenario, fastest first. Raises ValueError for what :func:`tier_problems` finds."""
    found = {name: _size(name, text) for name, text in written.items()}
    return tuple(found[name] for name in tiers.names() if name in found)


def tier_problems(written: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, what is wrong with it) of each tier that there is not, or whose size cannot be read."""
    for name, text in written.items():
        try:
            _size(name, text)
        except ValueError as error:
            yield name, str(error)


def _size(name: str, text: str) -> TierSize:
    if name not in tiers.names():
        raise ValueError(f'there is no KV tier "{name}", expected {", ".join(tiers.names())}')
    if text == "inf":
        return TierSize(name)
    match = _SIZE.fullmatch(text)
    number = float(match[1]) if match else 0.0
    if match is None or not 0 < number < math.inf:
        raise ValueError(f'"{text}", expected a size above 0 such as 64Gi, 4x (times the GPU\'s KV cache) or inf')
    unit = match[2].upper()
    if unit == "X":
        return TierSize(name, times=number)
    return TierSize(name, int(number * _UNITS[unit]))


@dataclass(slots=True)
class LowerTiers:
    """Makes the tiers of each engine of one Service. ``token_bytes``: KV cache of a token, on all GPUs of an engine."""

    sizes: tuple[TierSize, ...]
    token_bytes: int
    _shared: dict[str, tiers.Tier] = field(default_factory=dict)
    _made: list[tuple[tiers.Tiers, int]] = field(default_factory=list)

    def of_engine(
        self, config: EngineConfig, timing: StepTiming | BatchTiming, gpu: str, tensor_parallel: int
    ) -> tiers.Tiers:
        """The tiers of a new engine on ``tensor_parallel`` GPUs of this kind."""
        block_bytes = self.token_bytes * config.block_size
        own = [self._tier(size, config.kv_blocks, block_bytes, gpu, tensor_parallel) for size in self.sizes]
        made = tiers.Tiers(own, tiers.recompute_time(timing, config.block_size))
        self._made.append((made, config.block_size))
        return made

    def _tier(self, size: TierSize, gpu_blocks: int, block_bytes: int, gpu: str, tensor_parallel: int) -> tiers.Tier:
        if size.name in self._shared:
            return self._shared[size.name]
        spec = msgspec.structs.replace(tiers.default(size.name), blocks=size.blocks(gpu_blocks, block_bytes))
        if size.name == "host":
            spec = tiers.host_links(spec, gpus.get(gpu), tensor_parallel)
        tier = tiers.Tier(spec, block_bytes)
        if spec.shared:
            self._shared[size.name] = tier
        return tier

    @property
    def loaded_tokens(self) -> int:
        """Prompt tokens that engines loaded from lower tiers, those of unfinished and of preempted requests
        included."""
        return sum(made.loaded_blocks * block_size for made, block_size in self._made)
