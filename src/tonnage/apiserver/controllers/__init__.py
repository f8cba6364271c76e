"""What kube-controller-manager does for a cluster, as far as the embedded API needs it."""

from tonnage.apiserver.controllers.feeds import Subscribe, WatchFeed
from tonnage.apiserver.controllers.loop import WATCHED, ControllerManager, ManagerOptions

__all__ = ["WATCHED", "ControllerManager", "ManagerOptions", "Subscribe", "WatchFeed"]
