"""The annotations and taints by which Tonnage speaks with people, and with itself across restarts."""

PREFIX = "tonnage.dev"

LAUNCH = f"{PREFIX}/launch"
"""On a NodeClaim: the decision that bought it, as JSON."""
RETURNING = f"{PREFIX}/returning"
"""On a node: it is being given back, and why."""
SAVED_AT = f"{PREFIX}/saved-at"
"""On a pod: when the last checkpoint of its work was written, RFC 3339. What it did before then is not lost with it."""
COST_WAS = f"{PREFIX}/deletion-cost-was"
"""On a pod that is to be removed first: its deletion cost before that, "" where it had none."""

DISRUPTED_TAINT = "karpenter.sh/disrupted"
"""Karpenter's own taint of a node that is going, so that both agree. Effect NoSchedule, no value."""
