"""Dynamic resource allocation: resource.k8s.io/v1, v1beta2 and v1beta1, read alike.

Source: kubernetes/kubernetes v1.36 staging/src/k8s.io/api/resource/{v1,v1beta1,v1beta2,v1alpha3}/types.go.

Quantities stay as they are written; :mod:`tonnage.objects.quantity` reads them. A qualified name is `domain/id`, or an
`id` alone, which is of the driver's domain.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from tonnage.objects.base import Field, KubeObject, ObjectMeta
from tonnage.objects.core import NodeSelector

GROUP = "resource.k8s.io"
V1, V1BETA1, V1BETA2 = (f"{GROUP}/{version}" for version in ("v1", "v1beta1", "v1beta2"))
Quantity: TypeAlias = str | int | float

EXACT_COUNT, ALL = "ExactCount", "All"
"""Allocation modes: so many devices, or every device that the selectors match."""
MOST_RESULTS = 32
"""Devices of a claim (AllocationResultsMaxSize), also requests and constraints."""
MOST_CONSUMERS = 256
"""Pods for which a claim can be reserved (ResourceClaimReservedForMaxSize)."""
DELETE_PROTECTION = "resource.kubernetes.io/delete-protection"
"""The finalizer of a claim that has devices."""
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""The annotation of a claim that was made for a pod: which of the pod's claims it is."""
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
"""The annotation, "true", of a claim that a scheduler made for the extended resources of a pod."""
NODE_NAME_FIELD = "metadata.name"


# ---- what a driver publishes ----


class DeviceAttribute(Field, frozen=True, kw_only=True):
    """One value: exactly one of the fields is set. Lists need the gate DRAListTypeAttributes."""

    int_value: int | None = msgspec.field(default=None, name="int")
    bool_value: bool | None = msgspec.field(default=None, name="bool")
    string_value: str | None = msgspec.field(default=None, name="string")
    version_value: str | None = msgspec.field(default=None, name="version")
    int_values: list[int] = msgspec.field(default=[], name="ints")
    bool_values: list[bool] = msgspec.field(default=[], name="bools")
    string_values: list[str] = msgspec.field(default=[], name="strings")
    version_values: list[str] = msgspec.field(default=[], name="versions")


class CapacityRequestPolicyRange(Field, frozen=True, kw_only=True):
    """From ``min`` in steps of ``step`` up to ``max``; a request is rounded up to the next one."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Field, frozen=True, kw_only=True):
    """How much of a capacity a request takes: ``default`` without a figure, else the next valid value."""

    default: Quantity | None = None
    valid_values: list[Quantity] = []
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Field, frozen=True, kw_only=True):
    """An amount that a device has."""

    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


class Counter(Field, frozen=True, kw_only=True):
    """An amount of a counter."""

    value: Quantity = "0"


class CounterSet(Field, frozen=True, kw_only=True):
    """What the partitions of a physical device share, e.g. its memory slices."""

    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Field, frozen=True, kw_only=True):
    """What a device takes of a counter set while it is allocated."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Field, frozen=True, kw_only=True):
    """Keeps claims off a device unless they tolerate it. ``effect``: NoSchedule, NoExecute, None."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Device(Field, frozen=True, kw_only=True):
    """One device, or one partition of one."""

    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class ResourcePool(Field, frozen=True, kw_only=True):
    """Which slices belong together: of a pool only the highest generation counts, once all its slices are there."""

    name: str
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(Field, frozen=True, kw_only=True):
    """Devices, or the counter sets of a pool. Where they can be reached is said once, here or by each device."""

    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] = []
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] = []


class ResourceSlice(KubeObject, kw_only=True):
    """resource.k8s.io ResourceSlice."""

    spec: ResourceSliceSpec


class DeviceTaintSelector(Field, frozen=True, kw_only=True):
    """The devices of a driver, a pool or a name; what is absent selects all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Field, frozen=True, kw_only=True):
    """A taint, and the devices that it is put on; without a selector on none."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRule(KubeObject, kw_only=True):
    """resource.k8s.io DeviceTaintRule."""

    spec: DeviceTaintRuleSpec


# ---- what is asked for ----


class CelDeviceSelector(Field, frozen=True, kw_only=True):
    """A CEL expression over one device."""

    expression: str = ""


class DeviceSelector(Field, frozen=True, kw_only=True):
    """What a device has to be."""

    cel: CelDeviceSelector | None = None


class OpaqueDeviceConfiguration(Field, frozen=True, kw_only=True):
    """Parameters that a driver understands."""

    driver: str = ""
    parameters: Any = None


class DeviceClassConfiguration(Field, frozen=True, kw_only=True):
    """Configuration of every device that is allocated by the class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Field, frozen=True, kw_only=True):
    """Which devices are of the class, and the extended resource that it serves."""

    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(KubeObject, kw_only=True):
    """resource.k8s.io DeviceClass."""

    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequirements(Field, frozen=True, kw_only=True):
    """How much of a device's capacities a request takes, by their names."""

    requests: dict[str, Quantity] = {}


class DeviceToleration(Field, frozen=True, kw_only=True):
    """Lets a request have devices with a taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceSubRequest(Field, frozen=True, kw_only=True):
    """One way to serve a request. ``count``: devices, with ExactCount."""

    name: str = ""
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class ExactDeviceRequest(Field, frozen=True, kw_only=True):
    """The one way to serve a request. ``admin_access``: beside whoever has the devices."""

    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None


class DeviceRequest(Field, frozen=True, kw_only=True):
    """Devices for a claim: ``exactly`` these, or the ``first_available`` of several ways."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Field, frozen=True, kw_only=True):
    """What the devices of some requests have in common, or not; of all requests without names."""

    requests: list[str] = []
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Field, frozen=True, kw_only=True):
    """Configuration of the devices of some requests; of all without names."""

    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Field, frozen=True, kw_only=True):
    """What a claim asks for."""

    requests: list[DeviceRequest] = []
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(Field, frozen=True, kw_only=True):
    """What is asked for."""

    devices: DeviceClaim = DeviceClaim()


# ---- what has been allocated ----


class DeviceRequestAllocationResult(Field, frozen=True, kw_only=True):
    """One device of a claim. ``request``: `NAME`, or `NAME/SUBREQUEST`. ``share_id``: of a device that others share."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Quantity] = {}


class DeviceAllocationConfiguration(Field, frozen=True, kw_only=True):
    """Configuration that goes with an allocation. ``source``: FromClass, FromClaim."""

    source: str
    requests: list[str] = []
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(Field, frozen=True, kw_only=True):
    """The devices of a claim, with their configuration."""

    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(Field, frozen=True, kw_only=True):
    """What a claim has been given. ``node_selector``: the nodes from which it can be reached; None: all."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Field, frozen=True, kw_only=True):
    """Who uses a claim: a pod, as a rule."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(Field, frozen=True, kw_only=True):
    """What the driver says of a device that a claim has."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(default=None, name="shareID")
    conditions: list[dict[str, Any]] = []


class ResourceClaimStatus(Field, frozen=True, kw_only=True):
    """What has become of a claim: nothing yet, allocated, reserved for pods."""

    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(KubeObject, kw_only=True):
    """resource.k8s.io ResourceClaim."""

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class ResourceClaimTemplateSpec(Field, frozen=True, kw_only=True):
    """The claim that each pod gets."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(KubeObject, kw_only=True):
    """resource.k8s.io ResourceClaimTemplate."""

    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()
