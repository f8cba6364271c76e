"""The pods by row: which there are, of which class, and how many of each stand on which node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Literal

from tonnage.fleet.classes import ClassTable, PodClass
from tonnage.fleet.columns import BindingJournal
from tonnage.fleet.node_columns import Requests
from tonnage.fleet.rows import Conflict, FleetPod, PodRow


class PodColumns:
    """Rows of pods, and what is counted of those that are bound.

    ``pending``: the rows of pods without a node, in the order in which they came. ``bound``: class id → node row →
    number of pods of that class bound there; ``leaving``: the same of those of them that are being deleted.
    ``gangs``: gang → rows of its pods, bound and pending. ``priorities``: priority → number of bound pods that have
    it. ``journal``: every change of a binding.
    """

    def __init__(self) -> None:
        self.rows: list[PodRow | None] = []
        self.by_key: dict[tuple[str, str], int] = {}
        self.classes = ClassTable()
        self.pending: dict[int, None] = {}
        self.bound: dict[int, dict[int, int]] = {}
        self.leaving: dict[int, dict[int, int]] = {}
        self.gangs: dict[str, dict[int, None]] = {}
        self.priorities: Counter[int] = Counter()
        self.journal = BindingJournal()
        self._requests: dict[int, Requests] = {}
        self._vacant: list[int] = []

    def pod(self, row: int) -> PodRow:
        """The pod in this row. Raises Conflict when there is none."""
        try:
            pod = self.rows[row]
        except IndexError:
            pod = None
        if pod is None or row < 0:
            raise Conflict(f"no pod in row {row}")
        return pod

    def pods(self, rows: Iterable[int]) -> list[PodRow]:
        """The pods in these rows. Raises Conflict when there is none in one of them."""
        rows, table = list(rows), self.rows
        if rows and min(rows) >= 0 and max(rows) < len(table):
            found = [pod for row in rows if (pod := table[row]) is not None]
            if len(found) == len(rows):
                return found
        return [self.pod(row) for row in rows]

    def class_of(self, pod: PodRow) -> PodClass:
        """The class of a pod."""
        return self.classes.rows[pod.class_id]

    def class_id(self, spec: FleetPod) -> int:
        """The id of the class of such a pod, made when it is first seen."""
        return self.classes.intern(spec.namespace, spec.labels, spec.spec, spec.annotations, spec.volumes, spec.claims)

    def requests(self, shape_id: int, column_of: Callable[[str], int]) -> Requests:
        """(column, amount) of each resource that pods of this shape request, by column; zero requests are left out."""
        known = self._requests.get(shape_id)
        if known is None:
            shape = self.classes.shapes[shape_id]
            written = {**shape.requests, **dict(shape.numbers)}
            known = tuple(sorted((column_of(name), amount) for name, amount in written.items() if amount))
            self._requests[shape_id] = known
        return known

    def vacant(self) -> int:
        """A row without a pod: the one that was given up last, else a new one."""
        if self._vacant:
            return self._vacant.pop()
        self.rows.append(None)
        return len(self.rows) - 1

    def put(self, row: int, pod: PodRow) -> None:
        """Put a pending pod into a vacant row."""
        self.rows[row] = pod
        self.by_key[pod.spec.namespace, pod.spec.name] = row
        self.pending[row] = None
        if pod.spec.gang:
            self.gangs.setdefault(pod.spec.gang, {})[row] = None

    def drop(self, row: int) -> None:
        """Give up the row of a pending pod."""
        pod = self.pod(row)
        self.rows[row] = None
        del self.by_key[pod.spec.namespace, pod.spec.name]
        del self.pending[row]
        if pod.spec.gang:
            members = self.gangs[pod.spec.gang]
            del members[row]
            if not members:
                del self.gangs[pod.spec.gang]
        self._vacant.append(row)

    def count(self, pod: PodRow, node_row: int, sign: Literal[1, -1]) -> None:
        """One bound pod more (+1) or less (-1) on the node."""
        on_nodes = self.bound.get(pod.class_id)
        if on_nodes is None:
            on_nodes = self.bound[pod.class_id] = {}
        count = on_nodes.get(node_row, 0) + sign
        if count:
            on_nodes[node_row] = count
        else:
            del on_nodes[node_row]
        spec = pod.spec
        if spec.leaving:
            self.count_leaving(pod, node_row, sign)
        _add(self.priorities, spec.priority, sign)
        self.journal.append((sign, pod.class_id, node_row))

    def count_leaving(self, pod: PodRow, node_row: int, sign: Literal[1, -1]) -> None:
        """One bound pod that is being deleted more or less on the node."""
        _add(self.leaving.setdefault(pod.class_id, {}), node_row, sign)

    def forget_classes(self) -> None:
        """Drop the classes that no pod has any more; the others get new numbers, and the journal begins again."""
        self.classes, self.journal = ClassTable(), BindingJournal()
        self._requests.clear()
        self.bound.clear()
        self.leaving.clear()
        for pod in filter(None, self.rows):
            pod.class_id = self.class_id(pod.spec)
            if pod.node >= 0:
                _add(self.bound.setdefault(pod.class_id, {}), pod.node, 1)
                if pod.spec.leaving:
                    self.count_leaving(pod, pod.node, 1)


def _add(counts: dict[int, int], key: int, more: int) -> None:
    """Count this many more; what is counted zero times is left out."""
    count = counts.get(key, 0) + more
    if count:
        counts[key] = count
    else:
        del counts[key]
