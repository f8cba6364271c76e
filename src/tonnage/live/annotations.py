"""The annotations and taints by which Tonnage speaks with people, and with itself across restarts."""

from __future__ import annotations

from tonnage.control.opt_in import PREFIX
from tonnage.objects import karpenter

LAUNCH = f"{PREFIX}/launch"
"""On a NodeClaim: the decision that launched it, as JSON."""
RETURNING = f"{PREFIX}/returning"
"""On a node: it is being terminated, and why."""
SAVED_AT = f"{PREFIX}/saved-at"
"""On a pod: when the last checkpoint of its work was written, RFC 3339. What it did before then is not lost with it."""
COST_WAS = f"{PREFIX}/deletion-cost-was"
"""On a pod that is to be removed first: its deletion cost before that, "" where it had none."""
MIG_LAYOUTS = f"{PREFIX}/mig-layouts"
"""On a node: how its GPUs are to be partitioned, as JSON (an Order of :mod:`tonnage.partitioning.node_layouts`)."""
MIG_AT_WORK = f"{PREFIX}/mig-at-work"
"""On a node: the GPUs whose MIG layout is still being changed, and for which configuration, as in ``NAME:6,7``. A
manager that changes one GPU while others are given away says so; NVIDIA's changes all of a node and does not."""
GPUS = f"{PREFIX}/gpus"
"""On a pod: the GPUs that it was given, by index; of a MIG instance its first memory slice too, as in ``0,3:4``."""

DISRUPTED_TAINT = karpenter.DISRUPTED.key
"""Karpenter's own taint of a node that is going, so that both agree. Effect NoSchedule, no value."""
