"""Request logs on engines behind a router: when each request was served and from which caches; bounds and fits."""

from tonnage.inference.replay.run import Log, Replay, ReplayWorkers, Traced, log_of, replay

__all__ = ["Log", "Replay", "ReplayWorkers", "Traced", "log_of", "replay"]

Cluster = ReplayWorkers
"""Its former name, for callers from outside."""
