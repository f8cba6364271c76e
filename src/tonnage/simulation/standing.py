"""The nodes of a scenario's fleet, as those see them who ask where pods may land before anything runs."""

from __future__ import annotations

from tonnage.facts import gpus, instances
from tonnage.facts.labels import GPU, GPU_COUNT, GPU_PRESENT, GPU_PRODUCT, NODE_POOL
from tonnage.health.landing import Machine
from tonnage.machines.nodes import allocatable
from tonnage.objects import gpu_operator, karpenter
from tonnage.objects.core import ConfigMap
from tonnage.objects.load import Manifest
from tonnage.partitioning.configurations import read as read_cuts
from tonnage.partitioning.node_cuts import cut_node
from tonnage.provisioning import nodeclass
from tonnage.provisioning.nodeclass import NodeStorage
from tonnage.simulation.scenario import Scenario


def machines(scenario: Scenario, manifest: Manifest) -> tuple[Machine, ...]:
    """One for each group of equal nodes and each of them, with what the node has once everything on it is up."""
    pools = {pool.name: pool for pool in manifest.of(karpenter.NodePool)}
    classes = {one.name: nodeclass.read(one) for one in manifest.of(karpenter.EC2NodeClass)}
    cuts = read_cuts(manifest.of(ConfigMap), manifest.of(gpu_operator.ClusterPolicy))
    found: list[Machine] = []
    for group in scenario.spec.fleet.nodes:
        itype = instances.get(group.instance_type)
        labels = dict(itype.labels(group.zone, group.capacity_type, scenario.spec.region))
        pool = pools.get(group.node_pool)
        storage = NodeStorage()
        if pool is not None:
            template = pool.spec.template
            labels |= {NODE_POOL: pool.name, **template.metadata.labels}
            storage = classes.get(template.spec.node_class_ref.name, storage)
        labels |= group.labels
        has = allocatable(itype, storage)
        if itype.gpu and itype.resource == GPU:
            product = {GPU_PRESENT: "true", GPU_COUNT: str(itype.gpu_count)}
            labels |= {**product, GPU_PRODUCT: gpus.get(itype.gpu).product}
            made = cut_node(cuts, labels, itype.gpu, itype.resource_count)
            if made.cuts or made.problems:
                has = {**{name: n for name, n in has.items() if name != itype.resource}, **made.offers}
                labels |= made.labels
        taints = tuple(pool.spec.template.spec.taints) if pool is not None else ()
        for _ in range(group.count):
            found.append(Machine(f"base-{len(found) + 1:02d}", labels, taints, has))
    return tuple(found)
