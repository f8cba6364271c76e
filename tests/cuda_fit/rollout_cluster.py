"""A cluster in which a rollout's edits happen at once, with an operator that upgrades what it may."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from tonnage.cuda_fit.rollout import RolloutSettings, RolloutTurn, RolloutView, decide
from tonnage.cuda_fit.users import users
from tonnage.objects import core

OLD, NEW = "535.161.08", "580.105.08"
DRIVER, STATE, SKIP = (
    "nvidia.com/cuda.driver-version.full",
    "nvidia.com/gpu-driver-upgrade-state",
    "nvidia.com/gpu-driver-upgrade.skip",
)
STAGE = "tonnage.dev/driver-upgrade"
SETTINGS = RolloutSettings()
CUDA_12 = "pytorch/pytorch:2.11.0-cuda12.6-cudnn9-runtime"


class FakeCluster:
    """Nodes of 4 H100 unless said otherwise, and pods on them. ``lost``: of how many turns the writes are lost in part,
    as a share. ``broken``: nodes on which the operator fails."""

    def __init__(self, names: list[str], *, lost: float = 0, seed: int = 0, broken: tuple[str, ...] = ()) -> None:
        self.nodes: dict[str, dict[str, Any]] = {name: self._node(name) for name in names}
        self.pods: dict[str, dict[str, Any]] = {}
        self.version, self.kept = OLD, dict[str, str]()
        self.broken, self.protected = set(broken), set[str]()
        self.now_s = 1000
        self.at_work_most = 0
        self.log: list[str] = []
        self._lost, self._rng = lost, random.Random(seed)

    def _node(self, name: str) -> dict[str, Any]:
        labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", DRIVER: OLD}
        status = {"allocatable": {"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": {"name": name, "labels": labels, "annotations": {}}, "spec": {}, "status": status}

    def pod(self, name: str, on: str, gpus: int = 1, owner: str = "", image: str = CUDA_12, **spec: Any) -> None:
        container: dict[str, Any] = {"name": "main", "image": image}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
        meta = {
            "name": name,
            "namespace": "ml",
            "uid": name,
            "ownerReferences": [{"kind": owner, "name": "x"}] if owner else [],
        }
        self.pods[f"ml/{name}"] = {"metadata": meta, "spec": {"nodeName": on, "containers": [container], **spec}}

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.nodes[name]["metadata"]["labels"]
        return found

    def stages(self) -> dict[str, str]:
        return {name: stage for name in self.nodes if (stage := self.labels(name).get(STAGE, ""))}

    def seen(self) -> RolloutView:
        nodes = [
            msgspec.convert({"apiVersion": "v1", "kind": "Node", **one}, core.Node, strict=False)
            for one in self.nodes.values()
        ]
        pods = [
            msgspec.convert({"apiVersion": "v1", "kind": "Pod", **one}, core.Pod, strict=False)
            for one in self.pods.values()
        ]
        return RolloutView(nodes, pods, self.version, self.kept)

    def turn(self, settings: RolloutSettings, to: str = NEW) -> RolloutTurn:
        """Decide, and let it happen."""
        found = decide(self.seen(), to, settings, self.now_s)
        self.happen(found)
        return found

    def happen(self, found: RolloutTurn) -> None:
        """What was decided takes place, as far as it is not lost."""
        for edit in found.edits:
            if self._happens() and self.labels(edit.node).get(STAGE, "") == edit.stage:
                self.edit(edit.node, edit.labels, edit.annotations, edit.cordon)
                self.log.append(f"{edit.node}: {edit.why}")
        if found.version is not None and self._happens():
            self.version = found.version
            self.log.append(f"version {found.version}")
        for one in found.evictions:
            if self._happens() and one.key not in self.protected:
                del self.pods[one.key]

    def edit(self, name: str, labels: dict[str, Any], annotations: dict[str, Any], cordon: bool | None) -> None:
        for key, changes in (("labels", labels), ("annotations", annotations)):
            there = self.nodes[name]["metadata"][key]
            there.update({k: v for k, v in changes.items() if v is not None})
            for gone in (k for k, v in changes.items() if v is None):
                there.pop(gone, None)
        if cordon is not None:
            self.nodes[name]["spec"]["unschedulable"] = cordon

    def operate(self) -> None:
        """What the operator does meanwhile: what it may not touch it leaves alone."""
        for name, node in self.nodes.items():
            labels = self.labels(name)
            if labels[DRIVER] == self.version or name in self.kept:
                continue
            if labels.get(SKIP) == "true" or labels.get(STATE) == "upgrade-failed":
                labels.setdefault(STATE, "upgrade-required")
                continue
            assert node["spec"].get("unschedulable"), f"{name} was given to the operator without being cordoned"
            assert not [one for one in users(self.seen().pods) if one.node == name and not one.fixed], (
                f"{name} is not drained"
            )
            if name in self.broken:
                labels[STATE] = "upgrade-failed"
            else:
                labels[STATE], labels[DRIVER] = "upgrade-done", self.version
        at_work = sum(stage in ("draining", "upgrading") for stage in self.stages().values())
        self.at_work_most = max(self.at_work_most, at_work)

    def run(self, settings: RolloutSettings = SETTINGS, most: int = 400) -> RolloutTurn:
        """Until it is over."""
        for _ in range(most):
            found = self.turn(settings)
            if found.state != "running":
                return found
            self.operate()
            self.now_s += 5
        raise AssertionError(f"not over after {most} turns: {found}")

    def _happens(self) -> bool:
        return self._rng.random() >= self._lost
