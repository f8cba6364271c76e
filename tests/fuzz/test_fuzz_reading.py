"""Nodes and pods as no kubelet would write them and as anybody may: the live scheduler reads them, answers, and stays
small."""

from __future__ import annotations

import resource
import time
import tracemalloc
from random import Random
from typing import Any

import pytest
from fuzz_budget import seeds

from live.reading.watched import GPU, HOSTNAME, Json, Watched, node, pod
from tonnage.fleet import invariants

MIB = 1 << 20
MOST_MIB = 96
"""That a world of a few hostile objects may take beyond the objects themselves."""
MOST_S = 20.0
QUANTITIES = (
    "0", "1", "-1", "1k", "94371840", "2000000", "9223372036854775807", "9223372036854775808", "16Ei", "1E30", "1e-30",
    "1e999999", "0.1", "100m", "1500u", "999999999999999999999999999999", 3, 0.5, -7,
)  # fmt: skip
NAMES = (
    GPU, "nvidia.com/gpu.shared", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-9g.999gb", "nvidia.com/mig-", "amd.com/gpu",
    "example.com/gpu", "example.com/epc", "devices.kubevirt.io/kvm", "nvidia.com/gpumem", "hugepages-2Mi", "cpu",
    "memory", "pods", "ephemeral-storage", "attachable-volumes-aws-ebs", "x", "é.com/gpu", "a/b/gpu", "/gpu", "",
)  # fmt: skip
LABELS = (
    ("nvidia.com/gpu.product", ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB-SHARED", "", "x" * 63, "NVIDIA-")),
    ("nvidia.com/gpu.count", ("8", "-1", "99999999999999999999", "٣", "", "1e9")),
    ("nvidia.com/gpu.memory", ("81559", "999999999", "9999999999999", "٣", "")),
    ("nvidia.com/gpu.replicas", ("4", "0", "1", "999999999", "-4", "x")),
    ("nvidia.com/gpu.sharing-strategy", ("mps", "time-slicing", "")),
    ("nvidia.com/mig.config", ("all-balanced", "all-1g.10gb", "nonsense")),
    ("nvidia.com/mig.config.state", ("success", "failed", "rebooting", "?")),
    ("node.kubernetes.io/instance-type", ("p5.48xlarge", "g6e.12xlarge", "m5.large", "nonsense")),
    ("topology.kubernetes.io/zone", ("a", "b", "")),
    ("karpenter.sh/nodepool", ("gpu", "")),
    (HOSTNAME, ("n0", "other", "")),
)


class Hostile:
    """Objects from a seed."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)

    def amounts(self) -> Json:
        draw = self.draw
        found = {draw.choice(NAMES): draw.choice(QUANTITIES) for _ in range(draw.randint(0, 8))}
        if draw.random() < 0.1:
            start = draw.randint(0, 10**9)
            found |= {f"x{start + i}.example.com/{draw.choice(('gpu', 'y'))}": "1" for i in range(4000)}
        return found

    def node(self, number: int) -> Json:
        draw = self.draw
        labels = {key: draw.choice(values) for key, values in LABELS if draw.random() < 0.4}
        if draw.random() < 0.05:
            labels |= {f"l{i}": str(draw.randint(0, 9)) for i in range(100_000)}
        one = node(f"n{number}" if draw.random() < 0.9 else f"n{number}-" + "é" * 300, labels, offers=self.amounts())
        conditions = [
            {"type": draw.choice(("Ready", "", "x" * 1000)), "status": draw.choice(("True", "False", "Unknown", "?"))}
            for _ in range(draw.choice((0, 1, 2, 2000)))
        ]
        taints = [
            {
                "key": draw.choice(("", "a", "k" * 5000)),
                "effect": draw.choice(("NoSchedule", "", "Never")),
                "value": "9",
            }
            for _ in range(draw.choice((0, 0, 1, 500)))
        ]
        one["spec"] |= {"taints": taints, "unschedulable": draw.random() < 0.1}
        one["status"] |= {"conditions": conditions, "declaredFeatures": ["?"] * draw.choice((0, 1, 1000))}
        return one

    def pod(self, number: int, nodes: list[str]) -> Json:
        draw = self.draw
        more: dict[str, Any] = {}
        if draw.random() < 0.3:
            more["tolerations"] = [{"operator": draw.choice(("Exists", "Gt", "", "?")), "key": draw.choice(("", "a"))}]
        if draw.random() < 0.3:
            key, values = draw.choice((HOSTNAME, "l5", "")), draw.choice(([], ["9" * 60], ["n0"]))
            wanted = [{"key": key, "operator": draw.choice(("Gt", "In", "?")), "values": values}]
            required = {"nodeSelectorTerms": [{"matchExpressions": wanted}, {}]}
            more["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        if draw.random() < 0.2:
            more["volumes"] = [
                {"name": "v", draw.choice(("rbd", "iscsi", "x")): draw.choice(({}, {"monitors": "m"}, []))}
            ]
        there = draw.choice(nodes) if nodes and draw.random() < 0.5 else ""
        labels = {f"app{draw.randint(0, 5)}": "x" * draw.choice((1, 63, 5000))}
        one = pod(f"p{number}", there, labels=labels, requests=self.amounts(), **more)
        if draw.random() < 0.1:
            one["metadata"]["annotations"] = {"gpu-fraction": draw.choice(("0.5", "1e9", "nan", "-1", "9" * 5000))}
        if there and draw.random() < 0.3:
            said = {"name": "main", "resources": {"requests": self.amounts()}, "allocatedResources": self.amounts()}
            one["status"] = {"phase": "Running", "containerStatuses": [said]}
        return one


def storm(seed: int, steps: int) -> Watched:
    """Objects come, change and go; every pod that is pending gets an answer."""
    hostile = Hostile(seed)
    seen, nodes, pods = Watched(), {}, {}
    for step in range(steps):
        match hostile.draw.randrange(5):
            case 0 | 1:
                one = hostile.node(hostile.draw.randint(0, 6))
                nodes[one["metadata"]["name"]] = one
                seen.see(one)
            case 2 | 3:
                one = hostile.pod(hostile.draw.randint(0, 20), list(nodes))
                pods[one["metadata"]["name"]] = one
                seen.see(one)
            case _ if nodes and hostile.draw.random() < 0.5:
                seen.gone(nodes.pop(hostile.draw.choice(sorted(nodes))))
            case _ if pods:
                seen.gone(pods.pop(hostile.draw.choice(sorted(pods))))
        if step % 10 == 9:
            for row in sorted(seen.state.fleet.pending):
                assert seen.answer(seen.state.fleet.pod(row).spec.name)
    found = [text for text in invariants.violations(seen.state.fleet) if "more allocated than allocatable" not in text]
    assert not [text for text in found if "rebuild" in text or "differ" in text], found
    return seen


@pytest.mark.fuzz
def test_whatever_nodes_and_pods_say_there_is_an_answer() -> None:
    for seed in seeds(3, deep=1000):
        begun = time.process_time()
        try:
            seen = storm(seed, 60)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        assert len(seen.state.fleet.resources) < 700, seed
        assert time.process_time() - begun < MOST_S, seed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 < 1500


@pytest.mark.fuzz
@pytest.mark.parametrize("by", ["nodes", "pods"])
def test_resources_of_very_many_kinds_cost_no_memory(by: str) -> None:
    many = [{f"x{number}-{i}.example.com/y": "1" for i in range(2000)} for number in range(20)]
    first = [node(f"n{i}", offers=many[i] if by == "nodes" else {GPU: "8"}) for i in range(20)]
    others = [node(f"o{i}", offers={GPU: "8"}) for i in range(1000)]
    seen = Watched(*first[:1])
    tracemalloc.start()
    try:
        for one in (*first[1:], *others):
            seen.see(one)
        for number in range(20):
            seen.see(pod(f"p{number}", requests=many[number]))
        seen.see(pod("gpu", requests={GPU: "8"}))
        answers = {name: seen.answer(name) for name in ("p19", "gpu")}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert answers["gpu"][0] in "no"
    assert answers["p19"].startswith("0/1020 nodes are available")
    assert peak < MOST_MIB * MIB, peak / MIB
