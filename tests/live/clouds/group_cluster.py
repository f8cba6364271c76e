"""A cluster whose nodes come from Auto Scaling groups: moto, the embedded API, and kubelets that join for instances."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from fake_aws import CLUSTER, Aws

from tonnage.apiserver.api import Api
from tonnage.apiserver.inprocess import InProcess
from tonnage.control.loops import tick
from tonnage.control.policy import DEFAULT, Policy
from tonnage.decisions import Decision, Outcome
from tonnage.facts import instances
from tonnage.kube.informer import Informers
from tonnage.kube.resources import NODES, PODS
from tonnage.kube.verbs import Client
from tonnage.live import assembly
from tonnage.live.backends import Backend, Sizing
from tonnage.live.clouds.aws import AwsNodeGroups
from tonnage.live.recording import Silent
from tonnage.live.watching import watch_world
from tonnage.live.world import no_metrics
from tonnage.provisioning.catalogue import Catalogue
from tonnage.units import NS_PER_S

GPU = "nvidia.com/gpu"
START_NS = 1_700_000_000 * NS_PER_S
DEADLINE_S = 10.0


class SteppedClock:
    """Does not move by itself. Nodes and pods are as old as when they were seen."""

    def __init__(self) -> None:
        self.at_ns = START_NS

    def now_ns(self) -> int:
        return self.at_ns

    def of(self, timestamp: str | None) -> int:
        return self.at_ns

    def move(self, seconds: float) -> None:
        self.at_ns += round(seconds * NS_PER_S)


def pod_body(name: str, gpus: int = 1, cpu: str = "1", memory: str = "2Gi", **spec: Any) -> dict[str, Any]:
    """A pod for our scheduler; those with GPUs tolerate the taint of GPU nodes."""
    amounts = {"cpu": cpu, "memory": memory} | ({GPU: str(gpus)} if gpus else {})
    container = {"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    tolerations = [{"key": GPU, "operator": "Exists"}] if gpus else []
    own = {"schedulerName": "tonnage", "containers": [container], "tolerations": tolerations, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own}


class Kubelets:
    """Let nodes join for the instances that run. The nodes of types with GPUs are tainted."""

    def __init__(self, client: Client, aws: Aws) -> None:
        self.client = client
        self.aws = aws

    def machines(self) -> dict[str, str]:
        """The instance types of what runs in all groups, by provider id."""
        running = {"Name": "instance-state-name", "Values": ["running"]}  # moto keeps the others to the end
        pages = self.aws.ec2.get_paginator("describe_instances").paginate(Filters=[running])
        found = [one for page in pages for made in page["Reservations"] for one in made["Instances"]]
        return {
            f"aws:///{one['Placement']['AvailabilityZone']}/{one['InstanceId']}": one["InstanceType"] for one in found
        }

    def join(self, *, ready: bool = True, devices: bool = True) -> list[str]:
        """A Node for every machine; the names of all."""
        names = []
        for provider_id, type_ in sorted(self.machines().items()):
            names.append(name := f"ip-{provider_id.rpartition('-')[2]}")
            self.register(name, provider_id, type_)
            self.say(name, type_, ready=ready, devices=devices)
        return names

    def register(self, name: str, provider_id: str, type_: str, labels: dict[str, str] | None = None) -> None:
        """Make the Node unless it is there."""
        if any(node["metadata"]["name"] == name for node in self.client.list(NODES)):
            return
        own = {
            "node.kubernetes.io/instance-type": type_,
            "topology.kubernetes.io/zone": provider_id.split("/")[3],
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": instances.get(type_).arch,
            "kubernetes.io/hostname": name,
        }
        taints = [{"key": GPU, "value": "true", "effect": "NoSchedule"}] if instances.get(type_).resource else []
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {**own, **(labels or {})}},
            "spec": {"providerID": provider_id, "taints": taints},
        }
        self.client.create(NODES, body)

    def say(self, name: str, type_: str, *, ready: bool = True, devices: bool = True) -> None:
        """Write the Node's status."""
        one = instances.get(type_)
        amounts = {
            "cpu": f"{one.allocatable_cpu_milli}m",
            "memory": f"{one.allocatable_memory_mib}Mi",
            "pods": str(one.max_pods),
        }
        if devices and one.resource:
            amounts[one.resource] = str(one.resource_count)
        condition = {"type": "Ready", "status": "True" if ready else "False"}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
        self.client.patch(NODES, name, {"status": status}, subresource="status")


class GroupCluster:
    """An API server with the controllers of one process; :meth:`restart` begins another process on the same cluster."""

    catalogue = Catalogue.load()

    def __init__(
        self, aws: Aws, backend: str = "aws", idle: str = "60s", groups: Any = None, policy: Policy = DEFAULT
    ) -> None:
        self.aws, self.policy = aws, policy
        self.clock = SteppedClock()
        self.client = Client(InProcess(Api()))
        self.kubelets = Kubelets(self.client, aws)
        self._how = backend, idle, groups
        self._start()

    def _start(self) -> None:
        name, idle, groups = self._how
        groups = groups or AwsNodeGroups(CLUSTER, session=self.aws.session)
        self.sizing = Sizing.of(groups, self.catalogue, self.clock, idle=idle)
        self.backend = Backend.of(name, self.client, self.clock, Silent(), sizing=self.sizing)
        self.world = self.backend.world(self.catalogue, no_metrics)
        self.informers = Informers(self.client, time.time, random.Random(1))
        watch_world(self.informers, self.world)
        self.informers.wait_synced(DEADLINE_S)
        nodes = assembly.loops_of("nodes", self.world, self.catalogue, policy=self.policy, pools=self.backend.pools)
        self.provisioner, self.disruption = nodes
        (self.scheduler,) = assembly.loops_of("scheduler", self.world, self.catalogue)

    def restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self.informers.stop()
        self.world.close()

    # ---- decisions ----

    def buy(self) -> list[tuple[Decision, Outcome]]:
        return tick(self.provisioner, self.world)

    def give_back(self) -> list[tuple[Decision, Outcome]]:
        return tick(self.disruption, self.world)

    def place(self) -> list[tuple[Decision, Outcome]]:
        return tick(self.scheduler, self.world)

    def seen(self, what: Callable[[], bool]) -> None:
        """Apply what the watches bring until it shows ``what``."""
        deadline = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < deadline, "it was not seen in time"
            self.informers.pump(0.05)

    # ---- pods ----

    def pods(self, *names: str, **how: Any) -> None:
        for name in names:
            self.client.create(PODS, pod_body(name, **how), "default")
        self.seen(lambda: all(("default", name) in self.world.fleet.pod_by_key for name in names))

    def owned(self, name: str, owner: list[dict[str, Any]], **how: Any) -> None:
        """A pod that its controller would make again."""
        body = pod_body(name, **how)
        body["metadata"]["ownerReferences"] = owner
        self.client.create(PODS, body, "default")
        self.seen(lambda: ("default", name) in self.world.fleet.pod_by_key)

    def end(self, *names: str) -> None:
        for name in names:
            self.client.delete(PODS, name, "default", grace_s=0)
        self.seen(lambda: not any(("default", name) in self.world.fleet.pod_by_key for name in names))

    def bound(self) -> dict[str, str]:
        """Pods by name with their nodes, as the API has them."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"]
            for pod in self.client.list(PODS)
            if pod["spec"].get("nodeName")
        }

    # ---- nodes ----

    def join(self, *, ready: bool = True, devices: bool = True) -> list[str]:
        """Let a kubelet join for every machine, and see it; the names of all nodes."""
        names = self.kubelets.join(ready=ready, devices=devices)
        # A Node is Ready for all that is known before its first status: what was written last must have come.
        version = max(int(node["metadata"]["resourceVersion"]) for node in self.client.list(NODES))
        assert self.informers.wait_for(NODES, version, DEADLINE_S), "it was not seen in time"
        assert all(self.knows(name, True) for name in names if ready and devices)
        return names

    def knows(self, name: str, schedulable: bool) -> bool:
        row = self.world.fleet.node_by_name.get(name)
        return row is not None and bool(self.world.fleet.schedulable[row]) == schedulable

    def machines(self) -> dict[str, str]:
        """The instance types of what runs in all groups, by provider id."""
        return self.kubelets.machines()

    def nodes(self) -> list[str]:
        """Names of the Node objects."""
        return sorted(node["metadata"]["name"] for node in self.client.list(NODES))

    def read(self) -> None:
        """What the thread of the groups does."""
        self.sizing.groups.read()

    def claims(self) -> Sequence[str]:
        """Names of the machines on their way."""
        return [claim.name for claim in self.world.snapshot().claims]
