"""What follows from the health of a node's GPUs: condition and taint, which pods go, what pods' statuses say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tonnage.facts import xids
from tonnage.node.device_health import DeviceHealth

CONDITION = "GPUHealthy"
"""The default type of the node condition. ``AcceleratedHardwareReady`` is what Amazon EKS' node auto repair reads
(aws/eks-node-monitoring-agent): with it, EKS replaces the node."""
TAINT = "tonnage.dev/gpu-unhealthy"
NEVER, REBOOT, ALL, ANY = TAINTED = ("never", "reboot", "all", "any")
"""When a node is tainted: never, when it has to be rebooted or somebody has to look at it, when all of its GPUs are
unhealthy, or when one of them is."""


@dataclass(frozen=True, slots=True)
class HealthPolicy:
    """``condition``: its type; empty: none is written. ``taint``: one of :data:`TAINTED`. ``effect``: of the taint.
    ``drain``: whether the pods on an unhealthy GPU are evicted, and no others."""

    condition: str = CONDITION
    taint: str = NEVER
    effect: str = "NoSchedule"
    drain: bool = True


class NodeVerdict(NamedTuple):
    """``status``: True, False or Unknown; ``reason``: one word; ``message``: which GPUs and why. ``taint``: key, value
    and effect; None: none."""

    status: str
    reason: str
    message: str
    taint: tuple[str, str, str] | None


def of_node(health: DeviceHealth, gpus: Sequence[str], policy: HealthPolicy) -> NodeVerdict:
    """What is said of a node with these GPUs (UUIDs, by index)."""
    bad = [(index, gpu) for index, gpu in enumerate(gpus) if not health.healthy(gpu)]
    if not bad:
        return NodeVerdict("True", "GPUsHealthy", f"{len(gpus)} GPUs are healthy", None)
    actions = {gpu: health.action(gpu) for _, gpu in bad}
    worst = max(actions.values(), key=lambda name: (xids.actions()[name].rank, name))
    said = "; ".join(f"GPU {index} ({gpu}): {_why(health, gpu)}" for index, gpu in bad)
    reached = {
        NEVER: False,
        REBOOT: any(xids.actions()[name].target in ("node", "person") for name in actions.values()),
        ALL: len(bad) == len(gpus),
        ANY: True,
    }[policy.taint]
    return NodeVerdict("False", _word(worst), said, (TAINT, worst, policy.effect) if reached else None)


def _why(health: DeviceHealth, gpu: str) -> str:
    causes = ", ".join(cause.message for cause in health.causes(gpu))
    return f"{causes}; {xids.actions()[health.action(gpu)].help}"


def _word(action: str) -> str:
    """RESET_GPU → GPUNeedsResetGpu: conditions have reasons in CamelCase."""
    return "GPUNeeds" + "".join(part.capitalize() for part in action.split("_"))


class ToEvict(NamedTuple):
    """A pod (namespace/name) on unhealthy GPUs; ``gpus``: their UUIDs; ``reason``: why."""

    pod: str
    gpus: tuple[str, ...]
    reason: str


def to_evict(
    health: DeviceHealth, holders: Mapping[str, Iterable[str]], parents: Mapping[str, str], policy: HealthPolicy
) -> list[ToEvict]:
    """The pods that have to leave, by name: those on a GPU whose action asks for it.

    ``holders``: device ids by pod (namespace/name), as pod-resources lists them; ``parents``: the GPU of each id. Pods
    on healthy GPUs of the node are left alone."""
    if not policy.drain:
        return []
    found, well = [], health.of_devices(parents)
    for pod, devices in sorted(holders.items()):
        gpus = tuple(sorted({parents[one] for one in devices if not well.get(one, True)}))
        going = [gpu for gpu in gpus if xids.actions()[health.action(gpu)].drain or _for_support(health, gpu)]
        if going:
            found.append(ToEvict(pod, tuple(going), "; ".join(_why(health, gpu) for gpu in going)))
    return found


def _for_support(health: DeviceHealth, gpu: str) -> bool:
    return xids.actions()[health.action(gpu)].target == "person"


def allocated_resources_status(resources: Mapping[str, Mapping[str, bool | None]]) -> list[dict[str, Any]]:
    """``allocatedResourcesStatus`` of a container's status (KEP-4680): of each resource the ids of its devices with
    their health; ``resources``: by resource and device id whether it is healthy, None: not known."""
    words = {True: "Healthy", False: "Unhealthy", None: "Unknown"}
    return [
        {
            "name": name,
            "resources": [{"resourceID": id_, "health": words[healthy]} for id_, healthy in sorted(devices.items())],
        }
        for name, devices in sorted(resources.items())
        if devices
    ]
