"""The links between the pods of a Service that is split: when the KV blocks of each prompt arrive."""

from __future__ import annotations

import heapq

from tonnage.inference.disaggregation.links import exposed_ns, kv_bytes, transfer_ns, wire_ns
from tonnage.machines.serving.pools import Pair, Split
from tonnage.machines.serving.replica import ServingReplica


class Wires:
    """Each pod has the links of ``split``, on which its transfers go one after the other."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self._free_ns: dict[ServingReplica, int] = {}
        self._landings: list[tuple[int, int]] = []

    def send(self, number: int, pair: Pair, blocks: int, block_size: int, now_ns: int, *, behind: bool) -> None:
        """Move ``blocks`` KV blocks of a request. ``behind``: the prefill has just ended, and where each layer is sent
        as soon as it is computed most of them are there already."""
        split = self._split
        moved = kv_bytes(blocks, block_size, split.bytes_per_token)
        if split.layerwise and behind:
            taken = exposed_ns(split.link, moved, pair.prefill_ns, split.layers, split.lanes)
        else:
            taken = transfer_ns(split.link, moved, split.lanes)
        start = max(now_ns, *(self._free_ns.get(one, 0) for one in (pair.prefill, pair.decode)))
        busy = min(taken, wire_ns(split.link, moved, split.lanes))
        self._free_ns[pair.prefill] = self._free_ns[pair.decode] = start + busy
        heapq.heappush(self._landings, (start + taken, number))

    def next_ns(self) -> int | None:
        """When the next blocks arrive."""
        return self._landings[0][0] if self._landings else None

    def land(self) -> int:
        """The request whose blocks arrive next."""
        return heapq.heappop(self._landings)[1]

    def gone(self, replica: ServingReplica) -> None:
        """A pod is dead; what is on its links arrives nowhere, at its time."""
        self._free_ns.pop(replica, None)
