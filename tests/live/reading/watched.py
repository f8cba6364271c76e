"""A cluster as watches report it, in memory: objects as JSON in, decisions of the live scheduler out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cli.cli_builders import tonnage
from tonnage.decisions import Bind, Wait
from tonnage.live.feed import Changes
from tonnage.live.groups import Groups
from tonnage.live.observed import Observed
from tonnage.objects import core
from tonnage.objects.base import KubeObject
from tonnage.scheduling import place
from tonnage.workloads.membership import epoch

Json = dict[str, Any]
GPU, HOSTNAME = "nvidia.com/gpu", "kubernetes.io/hostname"
READY = {"type": "Ready", "status": "True"}
CONVERT = {"Node": core.Node, "Pod": core.Pod, "Namespace": core.Namespace}


class _Clock:
    """It is always noon."""

    def now_ns(self) -> int:
        return 0

    def of(self, timestamp: str | None) -> int:
        return epoch(timestamp)


def node(name: str, labels: Json | None = None, taints: list[Json] | None = None, **allocatable: Any) -> Json:
    """A Node that is Ready, with a hostname and 8 CPUs unless said otherwise."""
    more = allocatable.pop("offers", {})
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"} | allocatable | more
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {HOSTNAME: name} if labels is None else labels},
        "spec": {"taints": taints or []},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [READY]},
    }


def pod(name: str, node: str = "", namespace: str = "default", labels: Json | None = None, **spec: Any) -> Json:
    """A pod of one container; ``requests`` are its, all else is of the spec. ``node``: where it is bound."""
    requests = spec.pop("requests", {})
    limits = {resource: amount for resource, amount in requests.items() if "/" in resource}
    container = {"name": "main", "image": "x", "resources": {"requests": requests, "limits": limits}}
    container |= spec.pop("container", {})
    meta: Json = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "labels": labels or {}}
    body = {"containers": [container]} | spec | ({"nodeName": node} if node else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


class Watched:
    """``see`` an object as it is now, ``gone`` when it is deleted."""

    def __init__(self, *objects: Json) -> None:
        changes = Changes(set())
        self.changes = changes
        self.state = Observed(_Clock(), Groups(_Clock(), changes), price=lambda *_: 0, changes=changes)
        self.cache = place.Cache(self.state.fleet)
        self._there: dict[tuple[str, str, str], KubeObject] = {}
        for one in objects:
            self.see(one)

    def see(self, written: Json) -> None:
        self._tell(written, msgspec.convert(deepcopy(written), CONVERT[written["kind"]]))

    def gone(self, written: Json) -> None:
        self._tell(written, None)

    def _tell(self, written: Json, new: Any) -> None:
        key = written["kind"], written["metadata"].get("namespace", ""), written["metadata"]["name"]
        old: Any = self._there.pop(key, None)
        if new is not None:
            self._there[key] = new
        {"Node": self.state.see_node, "Pod": self.state.see_pod, "Namespace": self.state.see_namespace}[key[0]](
            old, new
        )

    def feasible(self, name: str, namespace: str = "default") -> set[str]:
        """The nodes that the pod may go to."""
        fleet = self.state.fleet
        if not self.cache.fits(fleet):
            self.cache = place.Cache(fleet)
        rows = place.feasible(fleet, fleet.pod_by_key[namespace, name], self.cache)
        return {fleet.node(row).spec.name for row in rows}

    def answer(self, name: str, strict: bool = True) -> str:
        """The node that the pod is bound to, or why it waits."""
        made = place.decide(self.state.snapshot(0), place.Settings(strict=strict))
        found = {one.pod.name: one for one in made if isinstance(one, Bind | Wait)}[name]
        return found.node.name if isinstance(found, Bind) else found.reason.verdict


def why(capfd: pytest.CaptureFixture[str], folder: Path, objects: Sequence[Json], name: str) -> str:
    """What `tonnage why` prints of a pod of a cluster that is read from a file."""
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return tonnage(capfd, "why", name, file).out
