"""What happens to nodes and pods once a decision has taken effect: each event is one step of a life."""

from __future__ import annotations

from dataclasses import dataclass

from tonnage.health.blocker import CRASHING, CREATING
from tonnage.inference.engine import Engine
from tonnage.machines import ailing, loading, nodes, pods, sharing
from tonnage.machines.blocked import blocked
from tonnage.machines.crashes import crash
from tonnage.machines.events import Later
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim, SimulatedPod, gated_by_probe, probe_period_s
from tonnage.machines.site import Site
from tonnage.units import NS_PER_S, ns


@dataclass(slots=True)
class NodeRunning:
    """The instance runs: it boots, and its kubelet registers."""

    claim: SimulatedNodeClaim

    def handle(self, cluster: Site) -> Later:
        if cluster.cloud.claims.get(self.claim.launch.claim.name) is not self.claim:
            return  # given up before it ran
        node = nodes.start_node(cluster, self.claim)
        cluster.mirror.claim_running(self.claim)
        yield cluster.now_ns + cluster.vary("register", cluster.physics.durations.register_s), NodeRegistered(node)


@dataclass(slots=True)
class NodeRegistered:
    """The Node object exists; the kubelet is not Ready yet."""

    node: SimulatedNode

    def handle(self, cluster: Site) -> Later:
        if self.node.ended_ns is not None:
            return
        nodes.register_node(cluster, self.node)
        yield cluster.now_ns + cluster.vary("ready", cluster.physics.durations.ready_s), NodeReady(self.node)


@dataclass(slots=True)
class NodeReady:
    """Ready, but without its GPUs until the driver and the device plugin are up."""

    node: SimulatedNode

    def handle(self, cluster: Site) -> Later:
        if self.node.ended_ns is not None:
            return
        self.node.kubelet_ready = True
        cluster.mirror.node_changed(self.node)
        told = f"Node {self.node.name} status is now: NodeReady"
        cluster.events.add(cluster.now_ns, f"Node {self.node.name}", "Normal", "NodeReady", told)
        plugin_s = nodes.gpus_up_s(cluster, self.node)
        yield cluster.now_ns + cluster.vary("plugin", plugin_s), NodeInitialized(self.node)


@dataclass(slots=True)
class NodeInitialized:
    """Every resource that was asked for is there: pods can be bound."""

    node: SimulatedNode

    def handle(self, cluster: Site) -> Later:
        if self.node.ended_ns is None:
            nodes.initialize_node(cluster, self.node)
        return ()


@dataclass(slots=True)
class PodBound:
    """The kubelet pulls the image, unless the node has it, and starts the container."""

    pod: SimulatedPod

    def handle(self, cluster: Site) -> Later:
        if pods.gone(self.pod):
            return
        blocker = blocked(cluster, self.pod, CREATING)
        if blocker is not None and not ailing.uses_image(blocker):
            yield cluster.now_ns, ailing.ContainerNotCreated(self.pod, blocker, self)
            return
        pulled = loading.image_ready_ns(cluster, self.pod)
        if blocker is not None:
            yield pulled, ailing.ContainerNotCreated(self.pod, blocker, self)
            return
        yield pulled + cluster.vary("container", cluster.physics.durations.container_start_s), PodStarted(self.pod)


@dataclass(slots=True)
class PodStarted:
    """The container runs; an engine reads its weights and compiles."""

    pod: SimulatedPod

    def handle(self, cluster: Site) -> Later:
        pod = self.pod
        if pods.gone(pod):
            return
        pod.started_ns = cluster.now_ns
        pod.starts += 1
        cluster.mirror.pod_changed(pod)
        if ailing.stops(cluster, pod, self):
            return
        if pod.workload.server is None:
            sharing.join(cluster, pod)
            pods.pod_ready(cluster, pod)
            return
        crowded = loading.claim_memory(cluster, pod)
        if crowded:
            ailing.mark(cluster, pod, CRASHING, ailing.NO_ENGINE, crowded, f"BackOff: {crowded}")
            yield crash(cluster, pod, crowded), self
            return
        if not gated_by_probe(pod.template.spec) and not isinstance(loading.engine_setup(cluster, pod), str):
            pods.pod_ready(cluster, pod)  # nothing says otherwise: requests come before it can serve them
        loaded = loading.weights_loaded_ns(cluster, pod)
        yield loaded + cluster.vary("engine", loading.engine_start_s(cluster, pod)), EngineUp(pod, pod.starts)


@dataclass(slots=True)
class EngineUp:
    """The engine serves, unless its container has ended since; the next probe will see it."""

    pod: SimulatedPod
    start: int

    def handle(self, cluster: Site) -> Later:
        pod = self.pod
        if pods.gone(pod) or not pod.running_since(self.start):
            return
        setup = loading.engine_setup(cluster, pod)
        if isinstance(setup, str):
            ailing.mark(cluster, pod, CRASHING, ailing.NO_ENGINE, setup, f"BackOff: {setup}")
            yield crash(cluster, pod, setup), PodStarted(pod)
            return
        pod.failing = None
        assert pod.workload.server is not None
        cluster.nodes[pod.node].compiled.add(pod.workload.server.model)
        pod.replica = pod.replica or pods.new_replica(cluster, pod)
        service, server = pod.workload.service, pod.workload.server
        caching = server.prefix_caching and service is not None and service.has_content
        tiers = None
        if caching and service is not None and service.tiers is not None:
            gpu = cluster.nodes[pod.node].gpu
            tiers = service.tiers.of_engine(setup.config, setup.timing, gpu, server.args.tensor_parallel_size)
        pod.replica.engine = Engine(setup.config, setup.timing, cluster.now_ns, prefix_caching=caching, tiers=tiers)
        pod.replica.takes(setup.part)
        if service is not None:
            service.resume(cluster.now_ns)
        sharing.serves(cluster, pod)
        if pod.ready_ns is None:
            period = probe_period_s(pod.template.spec) * NS_PER_S
            assert pod.started_ns is not None
            since = cluster.now_ns - pod.started_ns
            yield pod.started_ns + -(-since // period) * period, ProbeSucceeded(pod, pod.starts)
        else:
            pods.pod_serves(cluster, pod)


@dataclass(slots=True)
class ProbeSucceeded:
    """The pod is Ready, and an endpoint of its Service, unless its container has ended since."""

    pod: SimulatedPod
    start: int

    def handle(self, cluster: Site) -> Later:
        if not pods.gone(self.pod) and self.pod.running_since(self.start):
            pods.pod_ready(cluster, self.pod)
            pods.pod_serves(cluster, self.pod)
        return ()


@dataclass(slots=True)
class Terminating:
    """A node that is terminated: its pods are told to stop, and when all are gone so is the machine."""

    node: SimulatedNode

    def begin(self, cluster: Site) -> None:
        """Start it now; an empty node goes at once."""
        row = cluster.fleet.node_by_name[self.node.name]
        if cluster.fleet.workload_pods(row):
            nodes.drain_node(cluster, self.node, "DisruptionTerminating", "its NodeClaim was deleted")
            cluster.queue.push(cluster.now_ns + NS_PER_S, self)
        else:
            nodes.remove_node(cluster, self.node, "its NodeClaim was deleted")

    def handle(self, cluster: Site) -> Later:
        if self.node.ended_ns is not None:
            return
        row = cluster.fleet.node_by_name[self.node.name]
        if cluster.fleet.workload_pods(row):
            yield cluster.now_ns + NS_PER_S, self
        else:
            nodes.remove_node(cluster, self.node, "its NodeClaim was deleted")


@dataclass(slots=True)
class RebalanceRecommended:
    """EC2 sees a higher risk that a spot instance is interrupted. The node termination handler taints its node;
    Karpenter does nothing beyond an event (aws/karpenter-provider-aws, interruption controller)."""

    node: str

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is None and not node.leaving:
            nodes.recommend_rebalance(cluster, node)
        return ()


@dataclass(slots=True)
class SpotNotice:
    """EC2 takes a spot instance back in two minutes: the node is cordoned and its pods are drained.
    As Karpenter does, the type counts as unavailable on spot in that zone for a while."""

    node: str

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is not None:
            return
        cluster.state.refused((node.instance_type, node.zone, node.capacity_type), cluster.now_ns)
        nodes.drain_node(cluster, node, "SpotInterrupted", "EC2 reclaims the instance in 2 minutes")
        yield cluster.now_ns + ns(cluster.physics.durations.spot_notice_s), NodeLost(self.node, "spot interruption")


@dataclass(slots=True)
class NodeLost:
    """The machine is gone, with everything on it."""

    node: str
    why: str

    def handle(self, cluster: Site) -> Later:
        node = cluster.nodes[self.node]
        if node.ended_ns is None:
            nodes.lose_node(cluster, node, self.why)
        return ()
