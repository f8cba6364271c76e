"""Which nodes selectors cannot tell apart: those of which each of their requirements says the same.

Nodes have labels of their own (when features were discovered, say), so what is worked out once a label set would be
worked out once a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tonnage.fleet.labels import alike
from tonnage.fleet.state import HOSTNAME, Fleet
from tonnage.objects import core
from tonnage.objects.selectors import term_matches

Value = str | bool | None
NO_NAME = ""


class Seen:
    """The nodes of one fleet as a node selector and terms of node affinity see them, and who looks at other labels
    (``also``). ``examples``: labels and name of one node of each kind, by number; the name is empty where none counts.
    """

    def __init__(
        self,
        fleet: Fleet,
        terms: Sequence[core.NodeSelectorTerm],
        selector: Mapping[str, str] | None = None,
        also: Iterable[str] = (),
    ) -> None:
        self._fleet = fleet
        expressions = [e for term in terms for e in term.match_expressions]
        keys = dict.fromkeys([*(selector or {}), *(e.key for e in expressions), *also])
        self._hosts = HOSTNAME in keys
        """Whether the label of the host name counts; ``_host_names``: what is said of it, all there is if None."""
        on_host = [e for e in expressions if e.key == HOSTNAME]
        said = {value for e in on_host for value in e.values} | {(selector or {}).get(HOSTNAME, NO_NAME)}
        self._host_names = None if any(e.operator in ("Gt", "Lt") for e in on_host) else said
        self._names = {value for term in terms for f in term.match_fields for value in f.values}
        self._named = any(term.match_fields for term in terms)
        self._keys = [key for key in keys if key != HOSTNAME]
        self._also = [key for key in dict.fromkeys(also) if key != HOSTNAME]
        asked = [e for e in expressions if e.key != HOSTNAME]
        asked += [
            core.NodeSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in (selector or {}).items()
            if key != HOSTNAME
        ]
        self._asked = [core.NodeSelectorTerm(match_expressions=[one]) for one in asked]
        self._of_answers: dict[tuple[Value, ...], int] = {}
        self._of_set: NDArray[np.intp] = np.zeros(0, np.intp)
        self._numbers: dict[tuple[int, Value, Value], int] = {}
        self.examples: list[tuple[Mapping[str, str], str]] = []

    def refresh(self) -> NDArray[np.intp]:
        """The number of each node row's kind; what those of rows without a node are says nothing."""
        by_set = self._by_set()
        if not (self._hosts or self._named):
            return by_set
        fleet, kinds = self._fleet, np.zeros(len(self._fleet.alive), np.intp)
        numbers = by_set.tolist()
        if not self.examples:
            self.examples.append(({}, NO_NAME))  # of rows without a node
        for row in fleet.node_by_name.values():
            node = fleet.node(row)
            host: Value = node.labels.get(HOSTNAME)
            if host is not None and self._host_names is not None and host not in self._host_names:
                host = True
            name = node.spec.name if node.spec.name in self._names else None
            what = numbers[row], host if self._hosts else None, name
            number = self._numbers.get(what)
            if number is None:
                number = self._numbers[what] = len(self.examples)
                self.examples.append((node.labels, node.spec.name))
            kinds[row] = number
        return kinds

    def _by_set(self) -> NDArray[np.intp]:
        fleet, plain = self._fleet, not (self._hosts or self._named)
        sets, read = fleet.label_sets.rows, len(self._of_set)
        if read < len(sets):
            columns = [fleet.label_columns.of(key)[0][read:] for key in self._keys]
            first, numbers = alike(columns, len(sets) - read)
            of_values: list[int] = []
            for labels in (sets[read + at] for at in first.tolist()):
                answers = (*map(labels.get, self._also), *(term_matches(one, labels, NO_NAME) for one in self._asked))
                number = self._of_answers.setdefault(answers, len(self._of_answers))
                of_values.append(number)
                if plain and number == len(self.examples):
                    self.examples.append((labels, NO_NAME))
            self._of_set = np.append(self._of_set, np.array(of_values, np.intp)[numbers])
        return self._of_set[fleet.label_set] if len(sets) else np.zeros(len(fleet.label_set), np.intp)
