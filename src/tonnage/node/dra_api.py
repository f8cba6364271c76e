"""The kubelet's plugin registration, its DRA API v1 and the health of DRA devices v1alpha1.

Field numbers: k8s.io/kubelet v0.36.3 pkg/apis/pluginregistration/v1, dra/v1 and dra-health/v1alpha1 (api.proto). A map
is sent as its entries are: messages of key and value.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated

from msgspec import Struct

REGISTRATION = "pluginregistration.Registration"
PLUGIN = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
HEALTH = "v1alpha1.DRAResourceHealth"
TYPE = "DRAPlugin"
SERVICES = ("v1.DRAPlugin", HEALTH)
"""What the plugin has, in the kubelet's words."""


class InfoRequest(Struct):
    """Nothing."""


class PluginInfo(Struct):
    """``endpoint``: the socket of the plugin, as the kubelet sees it."""

    type: Annotated[str, 1] = TYPE
    name: Annotated[str, 2] = ""
    endpoint: Annotated[str, 3] = ""
    supported: Annotated[list[str], 4] = []


class RegistrationStatus(Struct):
    """Whether the kubelet has taken the plugin."""

    registered: Annotated[bool, 1] = False
    error: Annotated[str, 2] = ""


class RegistrationAnswer(Struct):
    """RegistrationStatusResponse: nothing."""


class ClaimName(Struct):
    """Claim."""

    namespace: Annotated[str, 1] = ""
    uid: Annotated[str, 2] = ""
    name: Annotated[str, 3] = ""


class ClaimsRequest(Struct):
    """NodePrepareResourcesRequest and NodeUnprepareResourcesRequest."""

    claims: Annotated[list[ClaimName], 1] = []


class PreparedDevice(Struct):
    """Device: ``requests`` of the claim that it is for, and the names under which the runtime finds it."""

    requests: Annotated[list[str], 1] = []
    pool: Annotated[str, 2] = ""
    device: Annotated[str, 3] = ""
    cdi: Annotated[list[str], 4] = []
    share_id: Annotated[str | None, 5] = None


class PrepareAnswer(Struct):
    """NodePrepareResourceResponse."""

    devices: Annotated[list[PreparedDevice], 1] = []
    error: Annotated[str, 2] = ""


class PrepareEntry(Struct):
    """An entry of the map ``claims``, by UID."""

    uid: Annotated[str, 1] = ""
    answer: Annotated[PrepareAnswer | None, 2] = None


class PrepareAnswers(Struct):
    """NodePrepareResourcesResponse."""

    claims: Annotated[list[PrepareEntry], 1] = []


class UnprepareAnswer(Struct):
    """NodeUnprepareResourceResponse."""

    error: Annotated[str, 1] = ""


class UnprepareEntry(Struct):
    """An entry of the map ``claims``, by UID."""

    uid: Annotated[str, 1] = ""
    answer: Annotated[UnprepareAnswer | None, 2] = None


class UnprepareAnswers(Struct):
    """NodeUnprepareResourcesResponse."""

    claims: Annotated[list[UnprepareEntry], 1] = []


class WatchRequest(Struct):
    """NodeWatchResourcesRequest."""


class HealthStatus(IntEnum):
    """HealthStatus."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class DeviceOfPool(Struct):
    """DeviceIdentifier."""

    pool: Annotated[str, 1] = ""
    device: Annotated[str, 2] = ""


class DeviceHealthEntry(Struct):
    """DeviceHealth. ``updated_s``: unix time; ``timeout_s``: after so long without an answer it is unknown."""

    device: Annotated[DeviceOfPool | None, 1] = None
    health: Annotated[int, 2] = 0
    updated_s: Annotated[int, 3] = 0
    timeout_s: Annotated[int, 4] = 0
    message: Annotated[str, 5] = ""


class DevicesHealth(Struct):
    """NodeWatchResourcesResponse: all devices; each answer replaces the one before."""

    devices: Annotated[list[DeviceHealthEntry], 1] = []
