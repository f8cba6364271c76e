"""The topology domains of a node label: which node is in which, and sums over them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.state import HOSTNAME, Fleet
from tonnage.scheduling.view import Ints


@dataclass(frozen=True, slots=True)
class TopologyDomains:
    """The topology domains of one key: the number of each node row's domain, -1 where the node lacks the label.

    ``rows``: of the nodes that have it; ``numbers``: their domains."""

    of_node: NDArray[np.int64]
    count: int
    rows: NDArray[np.intp] = field(init=False)
    numbers: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", np.flatnonzero(self.of_node >= 0))
        object.__setattr__(self, "numbers", self.of_node[self.rows])

    def sums(self, per_node: Ints) -> Ints:
        """The sum of ``per_node`` over each domain."""
        return np.bincount(self.numbers, per_node[self.rows], self.count).astype(np.int64)

    def among(self, included: NDArray[np.bool_]) -> TopologyDomains:
        """The same domains with these nodes alone."""
        return TopologyDomains(np.where(included, self.of_node, -1), self.count)

    def spread_out(self, by_domain: Ints) -> Ints:
        """For each node its domain's value; 0 where the node has no domain."""
        return np.append(by_domain, 0)[self.of_node]


def domains_of(fleet: Fleet, key: str) -> TopologyDomains:
    """Those of the fleet's nodes as they are now."""
    of_node = np.full(len(fleet.alive), -1, np.int64)
    if key != HOSTNAME:
        numbers, values = fleet.label_columns.of(key)
        of_node[fleet.alive] = numbers[fleet.label_set[fleet.alive]]
        return TopologyDomains(of_node, len(values))
    rows = list(fleet.node_by_name.values())
    names = [node.labels.get(key) for row in rows if (node := fleet.nodes[row]) is not None]
    hosts: dict[str | None, int] = {None: -1}
    of_node[rows] = [hosts.setdefault(name, len(hosts) - 1) for name in names]
    return TopologyDomains(of_node, len(hosts) - 1)
