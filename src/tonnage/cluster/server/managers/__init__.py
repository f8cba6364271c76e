"""What kube-controller-manager does for a cluster, as far as the embedded API needs it."""

from tonnage.cluster.server.managers.feeds import Subscribe, WatchFeed
from tonnage.cluster.server.managers.loop import WATCHED, Managers, Options

__all__ = ["WATCHED", "Managers", "Options", "Subscribe", "WatchFeed"]
