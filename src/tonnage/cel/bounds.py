"""Whether an expression can cost too much at all. Most cannot, and their cost need not be counted."""

from __future__ import annotations

from tonnage.cel import costs
from tonnage.cel.macros import UNUSED
from tonnage.cel.syntax import Fold, Invocation, Literal, SyntaxNode
from tonnage.cel.validators import walk

LONGEST_ATTRIBUTE = 64
"""Characters of an attribute (resource.k8s.io DeviceAttributeMaxValueLength); domains and names are shorter."""
_GROWING = frozenset(("replace", "join", "lists.range", "split", "findAll", "_+_", "flatten", "cel.@mapInsert"))
_PRODUCTS = ("matches", "find", "findAll", "contains")


def cheap(root: SyntaxNode) -> bool:
    """Whether no device that the API server admits makes the evaluation cost more than the limit."""
    nodes = list(walk(root))
    if any(isinstance(n, Fold) and n.variable != UNUSED for n in nodes):
        return False
    calls = [n for n in nodes if isinstance(n, Invocation)]
    if any(n.function in _GROWING for n in calls):
        return False
    constants = [len(n.value) for n in nodes if isinstance(n, Literal) and isinstance(n.value, str | bytes)]
    longest = max([LONGEST_ATTRIBUTE, *constants])
    products = sum(n.function in _PRODUCTS for n in calls)
    each = 4 + costs.MAP + costs.traversed(2 * longest) + len(nodes) ** 2
    return len(nodes) * each + products * (costs.traversed(longest) + 1) * (longest // 4 + 1) <= costs.LIMIT
