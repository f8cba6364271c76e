"""What a person chooses by name: which controllers run and whether they write, and how GPUs are partitioned and nodes
launched.

It imports nothing, so that a command can list the choices without what carries them out.
"""

from __future__ import annotations

SCHEDULER, REPLICAS, NODES = "scheduler", "replicas", "nodes"
CONTROLLERS = (SCHEDULER, REPLICAS, NODES)

OBSERVE, APPLY = "observe", "apply"
MODES = (OBSERVE, APPLY)
"""Whether decisions on a real cluster are only said, or carried out."""

NODE_CLAIMS, AWS, REPORT = "nodeclaims", "aws", "report"
BACKENDS = (NODE_CLAIMS, AWS, REPORT)
"""How nodes are launched there: NodeClaims for Karpenter, AWS Auto Scaling groups, or not at all."""

STATIC, RELAYOUT = "static", "relayout"
PARTITIONING = (STATIC, RELAYOUT)
"""Whether MIG layouts stay, or are changed when pods wait for an instance that no GPU offers."""

KARPENTER, OPTIMAL, CLUSTER_AUTOSCALER = "karpenter", "optimal", "cluster-autoscaler"
PROVISIONING = (KARPENTER, OPTIMAL, CLUSTER_AUTOSCALER)
"""Provisioning policies: Karpenter's order, the cheapest set of nodes, and node groups as the Cluster Autoscaler sizes
them."""
