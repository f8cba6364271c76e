"""Where KV blocks go that the GPU has no room for, and what it takes to bring them back."""

from tonnage.inference.tiers.specs import TierFinding, TierSpec, default, find, host_links, names
from tonnage.inference.tiers.stack import HostAndDisk, Tier, Tiers, recompute_time

__all__ = [
    "HostAndDisk",
    "Tier",
    "TierFinding",
    "TierSpec",
    "Tiers",
    "default",
    "find",
    "host_links",
    "names",
    "recompute_time",
]
