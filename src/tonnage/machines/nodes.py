"""Nodes as they join and leave the cluster, and the DaemonSets' pods on them."""

from __future__ import annotations

from tonnage.costs.ledger import Resources
from tonnage.facts import instances
from tonnage.facts.instances import InstanceType
from tonnage.facts.labels import GPU, GPU_COUNT, GPU_PRESENT, GPU_PRODUCT, NODE_POOL
from tonnage.facts.prices import OWNED
from tonnage.fleet.asks import SHARED_GPU
from tonnage.fleet.state import Conflict, FleetNode, FleetPod
from tonnage.machines.dra_driver import offered, publish
from tonnage.machines.objects import SimulatedNode, SimulatedNodeClaim
from tonnage.machines.pods import end_pod, lose, replace, stop_pod
from tonnage.machines.site import Site
from tonnage.objects import core, karpenter
from tonnage.partitioning.node_cuts import NodeCuts, cut_node
from tonnage.provisioning.auto_mode import as_auto
from tonnage.provisioning.catalogue import EFA, EPHEMERAL_STORAGE
from tonnage.provisioning.labels import REBALANCE_TAINT
from tonnage.provisioning.node_groups import labels_of_machine
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.units import MIB
from tonnage.workloads import daemons
from tonnage.workloads.failures import Cause


def start_node(cluster: Site, claim: SimulatedNodeClaim, machine: InstanceType | None = None) -> SimulatedNode:
    """The instance runs, and is billed from now on. ``machine``: what it is, where its labels are all that it has."""
    launch, physics = claim.launch, cluster.physics
    itype = machine or instances.get(launch.instance_type)
    name = launch.claim.name
    pool = physics.pools.get(launch.node_pool)
    node = SimulatedNode(
        name=name,
        uid=f"node-{name}",
        instance_type=itype.name,
        gpu=itype.gpu,
        gpus=itype.gpu_count,
        node_pool=launch.node_pool,
        capacity_type=launch.capacity_type,
        zone=launch.zone,
        price_micro_usd_per_hour=launch.price_micro_usd_per_hour,
        launched_ns=cluster.now_ns,
        disk_bytes_per_s=physics.disk_bytes_per_s(launch.node_pool, itype),
        gpu_product=launch.labels.get(GPU_PRODUCT, "") if machine else physics.gpu_product(itype),
        machine=machine,
        taints=launch.taints if machine else (),
        gpu_memory_mib=itype.gpu_memory_mib,
        images_on_disk=pool is not None and pool.images_on_disk,
        labels=launch.labels,
        allocatable=launch.allocatable or allocatable(itype, pool.storage if pool else NodeStorage()),
    )
    made = cuts_of(cluster, node)
    if made.cuts or made.problems:
        whole = {key: n for key, n in node.allocatable.items() if key != itype.resource}
        node.allocatable = {**whole, **made.offers}
    cluster.nodes[name] = node
    claim.node = name
    cluster.records.ledger.open_node(
        name,
        cluster.now_ns,
        price_micro_usd_per_hour=node.price_micro_usd_per_hour,
        capacity=Resources(itype.gpu_count, itype.vcpu * 1000, itype.memory_mib * MIB),
    )
    return node


def allocatable(itype: instances.InstanceType, storage: NodeStorage) -> dict[str, int]:
    """What such a node can hold once everything on it is up."""
    found = {
        "cpu": itype.allocatable_cpu_milli,
        "memory": itype.allocatable_memory_mib * MIB,
        "pods": itype.max_pods,
        EPHEMERAL_STORAGE: storage.allocatable_bytes(itype),
        EFA: itype.efa,
    }
    if itype.resource:
        found[itype.resource] = itype.resource_count
    return {name: amount for name, amount in found.items() if amount}


def cuts_of(cluster: Site, node: SimulatedNode) -> NodeCuts:
    """What its labels make of the node's GPUs as it joins."""
    itype = node.kind
    if itype.resource != GPU:
        return NodeCuts()
    pool = cluster.physics.pools.get(node.node_pool)
    labels = {**(pool.labels if pool is not None else {}), **node.labels}
    renamed = bool(node.allocatable.get(SHARED_GPU))
    return cut_node(cluster.physics.configurations, labels, itype.gpu, itype.resource_count, renamed=renamed)


def gpus_up_s(cluster: Site, node: SimulatedNode) -> float:
    """Seconds from the node's readiness until it offers its GPUs. Where they are partitioned into MIG instances,
    mig-manager stops the clients of the GPUs first, sets MIG mode, makes the instances, and starts the device plugin
    again."""
    if not node.gpus:
        return 0
    durations, instances_made = cluster.physics.durations, cuts_of(cluster, node).instances
    if not instances_made:
        return durations.device_plugin_s
    cutting_s = durations.mig_mode_s + instances_made * durations.mig_instance_s
    return durations.device_plugin_s + cutting_s + durations.mig_plugin_s


def register_node(cluster: Site, node: SimulatedNode) -> None:
    """The Node object appears with its labels and taints, not yet with its GPUs."""
    itype = node.kind
    pool = cluster.physics.pools.get(node.node_pool)
    labels = (
        {}
        if node.machine
        else dict(
            itype.labels(node.zone, "" if node.capacity_type == OWNED else node.capacity_type, cluster.physics.region)
        )
    )
    if pool is not None and pool.group:
        labels = labels_of_machine(itype.name, node.zone, pool.labels)
    elif pool is not None:
        labels = as_auto(labels) if pool.auto else labels
        labels |= {NODE_POOL: node.node_pool, **pool.labels, **node.labels}
    else:
        labels |= node.labels
    if node.gpus and not node.machine:
        labels |= {
            GPU_PRESENT: "true",
            GPU_COUNT: str(node.gpus),
            GPU_PRODUCT: node.gpu_product,
        }
    made = cuts_of(cluster, node)
    later = {itype.resource, *made.offers}
    row = cluster.fleet.add_node(
        FleetNode(
            node.name,
            {name: amount for name, amount in node.allocatable.items() if name not in later},
            labels,
            taints=pool.taints if pool else node.taints,
            uid=node.uid,
            instance_type=node.instance_type,
            gpu=node.gpu,
            device_resource=itype.resource,
            node_pool=node.node_pool,
            capacity_type=node.capacity_type,
            zone=node.zone,
            price_micro_usd_per_hour=node.price_micro_usd_per_hour,
            created_ns=cluster.now_ns,
            cuts=made.cuts,
        ),
        schedulable=False,
    )
    if pool is not None and pool.do_not_disrupt:
        cluster.fleet.note(row, do_not_disrupt=True)
    cluster.mirror.node_changed(node)


def initialize_node(cluster: Site, node: SimulatedNode) -> None:
    """Karpenter's Initialized: Ready, and every resource allocatable."""
    fleet = cluster.fleet
    row = fleet.node_by_name[node.name]
    made = cuts_of(cluster, node)
    if made.labels:
        fleet.set_labels(row, {**fleet.node(row).labels, **made.labels})
    fleet.set_allocatable(row, offered(node, fleet.node(row).labels))
    publish(cluster, node)
    fleet.set_schedulable(row, True)
    fleet.note(row, initialized=True, last_pod_event_ns=cluster.now_ns)
    node.ready_ns = cluster.now_ns
    node.kubelet_ready = True
    cluster.cloud.claims.pop(node.name, None)
    message = "every resource is allocatable"
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Normal", "Initialized", message)
    for problem in made.problems:
        cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", "GPUsNotOffered", problem.message)
    cluster.mirror.node_changed(node)
    _start_daemons(cluster, node, row)
    cluster.wake("node")


def drain_node(cluster: Site, node: SimulatedNode, reason: str, message: str) -> None:
    """Cordon the node and delete its pods gracefully; their workloads make new ones at once."""
    node.leaving = True
    row = cluster.fleet.node_by_name[node.name]
    cluster.fleet.set_schedulable(row, False)
    cluster.fleet.note(row, leaving=True)
    cluster.mirror.node_changed(node)
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", reason, message)
    for pod in [p for p in cluster.pods.values() if p.node == node.name]:
        if not pod.terminating:
            stop_pod(cluster, pod)
            replace(cluster, pod, Cause.EVICTION)


def recommend_rebalance(cluster: Site, node: SimulatedNode) -> None:
    """An event; where a node termination handler says so, the node gets a taint, and nothing new is placed there."""
    if cluster.cloud.taints_rebalance:
        row = cluster.fleet.node_by_name[node.name]
        taint = core.Taint(key=REBALANCE_TAINT, value="true", effect="NoSchedule")
        cluster.fleet.set_taints(row, (*cluster.fleet.node(row).taints, taint))
    message = "EC2 sees an elevated risk of interruption"
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Normal", "SpotRebalanceRecommendation", message)
    cluster.mirror.node_changed(node)
    cluster.wake("node")


def taint_node(cluster: Site, node: SimulatedNode, why: str) -> None:
    """The node takes no more pods but those that tolerate it; those that it has stay for now."""
    _set_disrupted(cluster, node, True)
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Normal", "DisruptionLaunching", why)


def untaint_node(cluster: Site, node: SimulatedNode, why: str) -> None:
    """The node is schedulable again."""
    _set_disrupted(cluster, node, False)
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", "DisruptionFailed", why)
    cluster.wake("node")


def _set_disrupted(cluster: Site, node: SimulatedNode, disrupted: bool) -> None:
    node.leaving = disrupted
    row = cluster.fleet.node_by_name[node.name]
    own = tuple(taint for taint in cluster.fleet.node(row).taints if taint.key != karpenter.DISRUPTED.key)
    cluster.fleet.set_taints(row, (*own, karpenter.DISRUPTED) if disrupted else own)
    cluster.fleet.note(row, leaving=disrupted)
    cluster.mirror.node_changed(node)


def lose_node(cluster: Site, node: SimulatedNode, why: str) -> None:
    """The machine is gone: its pods and their requests with it."""
    lose_pods(cluster, node)
    cluster.events.add(cluster.now_ns, f"Node {node.name}", "Warning", "NodeLost", why)
    remove_node(cluster, node, why)


def lose_pods(cluster: Site, node: SimulatedNode) -> None:
    """What is on the node ends now, and its workloads make others."""
    for pod in [p for p in cluster.pods.values() if p.node == node.name]:
        lose(cluster, pod, Cause.NODE)


def remove_node(cluster: Site, node: SimulatedNode, reason: str) -> None:
    """The node holds nothing but DaemonSets' pods, and is no longer billed."""
    row = cluster.fleet.node_by_name[node.name]
    for pod_row in sorted(cluster.fleet.node(row).pods):
        spec = cluster.fleet.pod(pod_row).spec
        pod = cluster.pods.get((spec.namespace, spec.name))
        if pod is None:
            cluster.fleet.remove_pod(pod_row)
        else:  # it came from outside, and is known as others are
            end_pod(cluster, pod)
    cluster.fleet.remove_node(row)
    cluster.fleet.device_claims.forget_node(node.name)
    node.ended_ns, node.end_reason = cluster.now_ns, reason
    cluster.records.ledger.close_node(node.name, cluster.now_ns)
    cluster.mirror.node_gone(node)
    cluster.wake("node")


def daemons_on(cluster: Site, node: str) -> list[FleetPod]:
    """The pods of DaemonSets on the node, by name, whoever made them."""
    fleet = cluster.fleet
    on_node = (fleet.pod(row).spec for row in fleet.node(fleet.node_by_name[node]).pods)
    return sorted((spec for spec in on_node if spec.daemon), key=lambda spec: (spec.namespace, spec.name))


def _start_daemons(cluster: Site, made: SimulatedNode, row: int) -> None:
    for namespace, name, template in cluster.declared.daemon_sets:
        started = daemons.start(cluster.fleet, row, namespace, name, template, f"{namespace}/{name}")
        if isinstance(started, Conflict):
            pod = f"Pod {namespace}/{name}-{made.name}"
            cluster.events.add(cluster.now_ns, pod, "Warning", "FailedScheduling", str(started))
        elif started is not None:
            cluster.mirror.daemon_created(started, made)
