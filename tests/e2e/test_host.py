"""A real node writes nothing to the places of the machine's own container runtime and kubelet."""

from __future__ import annotations

from typing import Any

import pytest
from e2e_builders import await_running, deployment, pod_spec

from e2e import host, prerequisites
from e2e.real_nodes import RealNodes


def test_a_real_node_leaves_the_machine_as_it_was(start_plane: Any) -> None:
    if why := prerequisites.for_real_nodes():
        pytest.skip(why)
    before = host.seen()
    plane = start_plane(nodes=["real-0"])
    with RealNodes(plane, ["real-0"], gpus=1):
        plane.api().create("/apis/apps/v1/namespaces/default/deployments", deployment("web", 1, pod_spec(gpus=1)))
        (pod,) = await_running(plane.api(), "web", 1)
        assert pod["spec"]["nodeName"] == "real-0"
        running = host.seen()
    settings = {name for name in before if name.startswith("/proc/sys/")}  # the kubelet's, put back at the end
    while_running = [one for one in host.differences(before, running) if one.partition(":")[0] not in settings]
    assert while_running == []
    assert host.differences(before, host.seen()) == []


def test_a_difference_is_seen_and_named() -> None:
    before = {"/run/nri": "absent", "/proc/sys/kernel/panic": "0", "/var/lib/cni": "40755 3 1"}
    after = {"/run/nri": "40755 40 7", "/run/nri/nri.sock": "140755 0 7", "/proc/sys/kernel/panic": "10"}
    assert host.differences(before, after) == [
        "/proc/sys/kernel/panic: 0 → 10",
        "/run/nri: absent → 40755 40 7",
        "/run/nri/nri.sock: not there → 140755 0 7",
        "/var/lib/cni: 40755 3 1 → not there",
    ]
