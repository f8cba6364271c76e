"""What never runs behind an API: diagnosed again whenever somebody changes what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tonnage.apiserver.store import Store
from tonnage.errors import InputError
from tonnage.health.blocker import Blocker
from tonnage.health.diagnose import diagnose
from tonnage.machines.blocked import by_object
from tonnage.objects.base import KubeObject, Origin
from tonnage.objects.decode import convert, without_nulls
from tonnage.objects.load import KINDS
from tonnage.simulation.configure import Configuration, configure
from tonnage.simulation.run import SetUp
from tonnage.simulation.standing import machines

Key = tuple[str, str, str]
"""Kind, namespace and name."""
_OTHERS = frozenset({"Pod", "Node", "NodeClaim", "Event", "Lease", "Namespace", "ControllerRevision"})
"""Kinds that controllers write: of these nothing is diagnosed."""
_OF_SERVER = ("status", "metadata")
_BY_CONTROLLERS = ("replicas", "volumeName", "claimRef")
"""Fields of specs that controllers write."""
_NOTES = ("deployment.", "kubectl.", "volume.", "pv.")
"""How annotations begin that controllers write."""


class Diagnosis:
    """``changed`` is told of each new configuration. Begin it when everything of the manifests has been created.

    Objects that nobody has changed are those of the manifests, so that causes keep their lines."""

    def __init__(self, made: SetUp, store: Store, changed: Callable[[Configuration], None]) -> None:
        self._made, self._changed = made, changed
        objects = made.configuration.manifest.objects
        self._objects: dict[Key, KubeObject] = {_key(one): one for one in objects}
        said = set(diagnose(made.configuration.setting))
        self._outlook = [one for one in made.configuration.blockers if one not in said]
        self._subscription = store.subscribe(since=store.version)

    def catch_up(self) -> None:
        """Look at what has changed since the last call."""
        stale = False
        while self._subscription.pending():
            change = self._subscription.get(0)
            assert change is not None
            before = change.old.object if change.old is not None else None
            stale |= self._see(before, None if change.type == "DELETED" else change.now.object, change.now.object)
        if stale:
            self._diagnose()

    def _see(self, before: dict[str, Any] | None, now: dict[str, Any] | None, one: dict[str, Any]) -> bool:
        """Take note of a change; whether it matters."""
        meta = one["metadata"]
        if one["kind"] in _OTHERS or any(owner.get("controller") for owner in meta.get("ownerReferences") or ()):
            return False
        key = one["kind"], meta.get("namespace", ""), meta["name"]
        if now is None:
            return self._objects.pop(key, None) is not None
        if _said(now) == _said(before) if before is not None else key in self._objects:
            return False
        type_ = KINDS.get((now["apiVersion"], now["kind"]))
        content = without_nulls(now)
        if one["kind"] == "PersistentVolumeClaim":  # who binds claims is at work here: they count as they were written
            content = {**content, "metadata": {**content["metadata"], "uid": ""}, "status": {}}
        read = convert(content, type_, {}) if type_ is not None else None
        if read is None or isinstance(read, list):
            return False
        self._objects[key] = read.remember(Origin(), {}, content)
        self._outlook = [b for b in self._outlook if _ref(b) != key and one["kind"] not in ("NodePool", "EC2NodeClass")]
        return True

    def _diagnose(self) -> None:
        given = self._made.configuration
        manifest = replace(given.manifest, objects=tuple(self._objects.values()))
        try:
            made = configure(manifest, given.catalogue, machines(self._made.scenario, given.manifest))
        except InputError:
            return  # how GPUs are partitioned cannot be read; the GPU operator's side says so
        cluster = self._made.cluster
        made = made.with_blockers(self._outlook, nodes=bool(cluster.fleet.node_by_name))
        cluster.declared.blockers = by_object(made.blockers)
        self._changed(made)


def _key(one: KubeObject) -> Key:
    namespace = one.namespace or ("" if one.kind in _CLUSTERED else "default")
    return one.kind, namespace, one.name


_CLUSTERED = frozenset(
    {"NodePool", "EC2NodeClass", "PriorityClass", "StorageClass", "PersistentVolume", "RuntimeClass", "ClusterPolicy"}
)


def _ref(blocker: Blocker) -> Key:
    return blocker.object.kind, blocker.object.namespace or "default", blocker.object.name


def _said(one: dict[str, Any]) -> dict[str, Any]:
    """What somebody has written: without what the server and controllers add."""
    said = {name: value for name, value in one.items() if name not in _OF_SERVER}
    if isinstance(said.get("spec"), dict):
        said["spec"] = {name: value for name, value in said["spec"].items() if name not in _BY_CONTROLLERS}
    return {**said, "labels": one["metadata"].get("labels"), "annotations": _noted(one)}


def _noted(one: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = one["metadata"].get("annotations") or {}
    return {name: value for name, value in found.items() if not name.startswith(_NOTES)}
