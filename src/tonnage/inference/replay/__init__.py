"""Request logs on engines behind a router: when each request was served and from which caches; bounds and fits."""

from tonnage.inference.replay.run import Cluster, Log, Replay, Traced, log_of, replay

__all__ = ["Cluster", "Log", "Replay", "Traced", "log_of", "replay"]
