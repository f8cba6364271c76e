"""Labels of the pods that have devices of a node, as labels of their metrics: looked up once in a while, never more
than a fixed number.

Names are made valid for Prometheus as dcgm-exporter does it, by ``_`` for every other character; what would hide one of
the exporter's own labels is left out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from tonnage.errors import InputError
from tonnage.units import NS_PER_S

Labels = dict[str, str]
Pod = tuple[str, str]
"""(namespace, name)."""

MOST_PODS = 1024
"""Pods whose labels are kept at once: more than a kubelet runs."""
MOST_LABELS = 32
"""Of one pod, by name."""
AGAIN_NS = 60 * NS_PER_S
"""After this long a pod's labels are looked up again."""
PER_READING = 50
"""Pods looked up for one reading at most: the others follow with the next ones."""
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_OWN = frozenset(
    (
        *("gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "shared"),
        *("container", "namespace", "pod", "hpc_job", "dra_claim_name", "dra_claim_namespace"),
        *("xid", "err_code", "err_msg", "window_size_in_ms", "health_watch", "health_error_code", "cause", "action"),
    )
)


def allowed(expressions: Sequence[str], field: str = "--pod-label") -> list[re.Pattern[str]]:
    """Regular expressions of which one has to be found in a label's key; they stand in ``field``. Raises InputError for
    what is none."""
    found = []
    for text in expressions:
        try:
            found.append(re.compile(text))
        except re.error as error:
            raise InputError.at(f"{text!r} is no regular expression: {error}", field=field) from error
    return found


class PodLabels:
    """``ask``: a pod's labels, None where there is no such pod (any more); it may raise InputError. ``allow``: which
    keys; none: every one."""

    def __init__(self, ask: Callable[[Pod], Mapping[str, str] | None], allow: Sequence[re.Pattern[str]]) -> None:
        self._ask, self._allow = ask, allow
        self._known: dict[Pod, tuple[int, Labels]] = {}
        self.problem = ""
        """Why the last look was in vain; those that were known stay."""

    def of(self, pods: Iterable[Pod], now_ns: int) -> dict[Pod, Labels]:
        """The labels of these pods as far as they are known. All others are forgotten."""
        wanted = sorted(set(pods))[:MOST_PODS]
        self._known = {pod: self._known[pod] for pod in wanted if pod in self._known}
        due = [pod for pod in wanted if pod not in self._known or now_ns - self._known[pod][0] >= AGAIN_NS]
        self.problem = ""
        for pod in sorted(due, key=lambda one: (self._known.get(one, (0, {}))[0], one))[:PER_READING]:
            try:
                found = self._ask(pod)
            except InputError as error:
                self.problem = str(error)
                break
            self._known[pod] = now_ns, self._shown(found or {})
        return {pod: labels for pod, (_, labels) in self._known.items()}

    def __len__(self) -> int:
        return len(self._known)

    def _shown(self, labels: Mapping[str, str]) -> Labels:
        found: Labels = {}
        for key, value in sorted(labels.items()):
            name = _NOT_IN_NAMES.sub("_", key)
            name = f"_{name}" if name[:1].isdigit() else name
            if name in _OWN or name in found or (self._allow and not any(one.search(key) for one in self._allow)):
                continue
            found[name] = value
            if len(found) == MOST_LABELS:
                break
        return found
