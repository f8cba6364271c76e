"""That admission refuses a pod."""

from __future__ import annotations

from msgspec import Struct

SERVICE_ACCOUNT, PRIORITY, RUNTIME_CLASS, LIMIT_RANGER, QUOTA, POD_SECURITY, VALIDATION = (
    "ServiceAccount",
    "Priority",
    "RuntimeClass",
    "LimitRanger",
    "ResourceQuota",
    "PodSecurity",
    "validation",
)


class AdmissionRefusal(Struct, frozen=True):
    """``plugin``: which admission plugin. ``said``: its words, without those that name the pod. ``field``: what of the
    pod's spec it is about. ``by``: the name of the object that it looked at or for. ``early``: it refuses before the
    pod has got its name, so that kubectl shows the prefix alone."""

    plugin: str
    said: str
    field: str
    by: str = ""
    early: bool = False

    def sentence(self, name: str, prefix: str = "") -> str:
        """As the API server says it of the pod ``name``; ``prefix``: the generateName of a pod that a controller
        makes."""
        shown = prefix if prefix and self.early else name
        if self.plugin == VALIDATION:
            return f'Pod "{shown}" is invalid: {self.said}'
        return f'pods "{shown}" is forbidden: {self.said}'
