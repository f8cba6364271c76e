"""The annotations and taints by which Tonnage speaks with people, and with itself across restarts."""

PREFIX = "tonnage.dev"

LAUNCH = f"{PREFIX}/launch"
"""On a NodeClaim: the decision that bought it, as JSON."""
RETURNING = f"{PREFIX}/returning"
"""On a node: it is being given back, and why."""
COST_WAS = f"{PREFIX}/deletion-cost-was"
"""On a pod that is to be removed first: its deletion cost before that, "" where it had none."""

DISRUPTED_TAINT = "karpenter.sh/disrupted"
"""Karpenter's own taint of a node that is going, so that both agree. Effect NoSchedule, no value."""
