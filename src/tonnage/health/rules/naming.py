"""What helps where an object is named that does not exist."""

from __future__ import annotations

from tonnage.health.inventory import Inventory


def remedy(inventory: Inventory, kind: str, name: str, namespace: str = "") -> str:
    """The change that makes a reference right: the name that was meant, or the object that is missing."""
    near = inventory.near(kind, name, namespace)
    within = f" in namespace {namespace}" if namespace else ""
    if near:
        return f"did you mean {near}? Else add {kind} {name}{within}"
    elsewhere = [place for place in inventory.elsewhere(kind, name) if place != namespace] if namespace else []
    if elsewhere:
        return f"{kind} {name} is in namespace {', '.join(elsewhere)}: add it in {namespace}"
    return f"add {kind} {name}{within} to the files"
