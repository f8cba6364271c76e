"""Topology levels: the domains that node labels put each node in, as integers.

A domain is known by its path, from the outermost level inwards: racks called ``r1`` in two zones are two domains, and
so are ``a`` / ``bc`` and ``ab`` / ``c``. A node without a level's label is in no domain of that level, but keeps its
domains of the levels further in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from tonnage.facts import interconnects
from tonnage.fleet.columns import Latest
from tonnage.fleet.gangs import TopologyRule
from tonnage.fleet.labels import alike
from tonnage.fleet.state import HOSTNAME, Fleet

INSIDE_ZONE = 30
"""``level`` of the table of topology labels from which on labels divide a zone."""

Path = tuple[str | None, ...]


class UnknownLevel(Exception):
    """A rule names a topology or a level that is not there; says which."""


@dataclass(frozen=True, slots=True)
class LevelKeys:
    """The label keys of levels, outermost first, the hostname last. ``wanted``: those that rules refer to. ``loose``:
    those of which only region and zone are known to be outside; the domains of the others are known by all levels
    before them."""

    keys: tuple[str, ...]
    wanted: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()

    def outside(self, level: int, kept: tuple[str, ...]) -> list[str]:
        """The keys among ``kept`` whose values are part of the path of the domains of this level."""
        outer = kept[:level]
        if kept[level] in self.loose:
            return [key for key in outer if _LEVEL_OF.get(key, INSIDE_ZONE) < INSIDE_ZONE]
        return [key for key in outer if key not in self.loose]


_LEVEL_OF = {row.label: row.level for row in interconnects.topology_labels()}
_NOT_NETWORK = frozenset(row.label for row in interconnects.topology_labels() if row.span != "network")


@dataclass(frozen=True, slots=True)
class Levels:
    """Levels, outermost first, by their label ``keys``. ``of_node[row, level]``: the domain of the node, -1 for none.

    ``rows``: the node rows by name. ``paths[level][domain]``: the values of the labels that tell the domain from
    others; None where one is missing. Domains are numbered in the order of their paths. The last level is the host."""

    keys: tuple[str, ...]
    of_node: NDArray[np.int64]
    rows: NDArray[np.int64]
    paths: tuple[Sequence[Path], ...]

    def index(self, key: str) -> int:
        """The number of a level that a rule refers to."""
        return self.keys.index(key)

    def count(self, level: int) -> int:
        """How many domains the level has."""
        return len(self.paths[level])

    def sums(self, level: int, values: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
        """The sum over each domain of the level; ``values`` are those of all node rows, or of ``rows``."""
        domains = self.of_node[:, level] if rows is None else self.of_node[rows, level]
        found: NDArray[np.int64] = np.bincount(domains + 1, values, self.count(level) + 1)[1:].astype(np.int64)
        return found

    def name(self, level: int, domain: int) -> str:
        """The domain's path as text: ``zone-a/r1``."""
        return "/".join(value for value in self.paths[level][domain] if value is not None)


def order_of(rules: Iterable[TopologyRule], topologies: Mapping[str, tuple[str, ...]]) -> LevelKeys:
    """The levels that these rules of one gang refer to.

    Those of the Topology object if one is named. Else the well-known labels; labels that the rules name besides stand
    just inside the zone, a rule's ``required`` before its ``preferred`` before its ``slice_required``. Raises
    UnknownLevel for a Topology that is not there, for two of them, and for a level that the Topology lacks."""
    rules = tuple(rules)
    named = sorted({rule.topology for rule in rules if rule.topology})
    wanted = [key for rule in rules for key in (rule.required, rule.preferred, rule.slice_required) if key]
    if len(named) > 1:
        raise UnknownLevel(f"the gang names several topologies: {', '.join(named)}")
    if named:
        if named[0] not in topologies:
            raise UnknownLevel(f"topology {named[0]} does not exist")
        keys = tuple(key for key in topologies[named[0]] if key != HOSTNAME)
        missing = [key for key in wanted if key not in keys and key != HOSTNAME]
        if missing:
            raise UnknownLevel(f"topology {named[0]} has no level {missing[0]}")
        return LevelKeys((*keys, HOSTNAME), frozenset(wanted))
    others = tuple(dict.fromkeys(key for key in wanted if key not in _LEVEL_OF))
    outer = tuple(key for key, level in _LEVEL_OF.items() if level < INSIDE_ZONE)
    inner = tuple(key for key, level in _LEVEL_OF.items() if level >= INSIDE_ZONE)
    return LevelKeys((*outer, *others, *inner), frozenset(wanted), _NOT_NETWORK | set(others))


class LevelTables:
    """The levels of one fleet, by their order; rebuilt when nodes or labels change."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._tables: Latest[dict[LevelKeys, Levels]] = Latest(dict)

    def get(self, order: LevelKeys) -> Levels:
        """The levels in this order. Those of which no node has the label are left out, unless a rule refers to them:
        then they have no domain."""
        tables = self._tables.at(self._fleet.topology_revision)
        found = tables.get(order)
        if found is None:
            found = tables[order] = _levels(self._fleet, order)
        return found


class _Hosts(Sequence[Path]):
    """The paths of the hosts, whose names these are."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, number: int) -> Path: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Path]: ...
    def __getitem__(self, number: int | slice) -> Path | Sequence[Path]:
        return (self._names[number],) if isinstance(number, int) else _Hosts(self._names[number])


def _levels(fleet: Fleet, order: LevelKeys) -> Levels:
    """Worked out once for label sets that these keys cannot tell apart; the hostname, which none has, once a node."""
    rows = np.array(fleet.node_rows(), np.int64)
    used, sets = np.unique(fleet.label_set[rows], return_inverse=True)
    columns = {key: fleet.label_columns.of(key) for key in order.keys if key != HOSTNAME}
    present = {key for key, (numbers, _) in columns.items() if (numbers[used] >= 0).any()} | order.wanted | {HOSTNAME}
    kept = tuple(key for key in order.keys if key in present)
    of_node = np.full((len(fleet.alive), len(kept)), -1, np.int64)
    paths: list[Sequence[Path]] = []
    for level, key in enumerate(kept):
        if key == HOSTNAME:
            of_node[rows, level] = np.arange(len(rows))  # rows are in the order of the names
            paths.append(_Hosts(sorted(fleet.node_by_name)))
            continue
        parts = [columns[one] for one in (*order.outside(level, kept), key)]
        having = np.flatnonzero(parts[-1][0][used] >= 0)
        first, numbers = alike([part[used][having] for part, _ in parts], len(having))
        found = [
            tuple([values[part[at]] if part[at] >= 0 else None for part, values in parts]) for at in used[having][first]
        ]
        ordered = sorted(range(len(found)), key=lambda at: [value or "" for value in found[at]])
        by_set = np.full(len(used), -1, np.int64)
        by_set[having] = np.argsort(np.array(ordered, np.intp))[numbers]
        of_node[rows, level] = by_set[sets]
        paths.append(tuple([found[at] for at in ordered]))
    return Levels(kept, of_node, rows, tuple(paths))
