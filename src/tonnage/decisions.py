"""The common currency of the rooms: what is decided, why, what it beat, and what became of it.

A decision is data. It is made by a pure function from a snapshot and takes effect elsewhere, in a world
(:mod:`tonnage.control.world`), after its preconditions have been checked again. A :class:`Reason` holds references and
numbers; sentences are made when somebody asks.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TypeAlias

import msgspec

from tonnage.errors import Where
from tonnage.objects.core import ContainerExtendedResourceRequest, Taint
from tonnage.objects.dra import AllocationResult, DeviceRequest

Scalar: TypeAlias = str | int | float | bool | None
"""A number that a person can check, or a name. ``None`` is "no data", which is not zero."""


class Ref(msgspec.Struct, frozen=True, order=True, gc=False):
    """Names one object. ``uid`` tells a re-created object from its namesake; empty means any."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    def __str__(self) -> str:
        path = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {path}"

    @property
    def workload(self) -> str:
        """How what makes pods is named: namespace/name for a Deployment, namespace/kind/name for all else."""
        kind = "" if self.kind == "Deployment" else f"{self.kind.lower()}/"
        return f"{self.namespace}/{kind}{self.name}"


class Alternative(msgspec.Struct, frozen=True, gc=False):
    """Something that could have been decided instead: its name, its worth in the same unit, and why it lost."""

    name: str
    why: str
    score: float | None = None


_NUMBER = re.compile(r"(?<![\w./:-])\d+(?:[./]\d+)?(?![\w./:-])")
"""A number that stands alone: not a part of a name (``mig-1g.10gb``)."""


class Reason(msgspec.Struct, frozen=True, gc=False):
    """Why: a short verdict, the numbers weighed (name, value), and the alternatives beaten, best first."""

    verdict: str
    evidence: tuple[tuple[str, Scalar], ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    def text(self) -> str:
        """The reason as one line."""
        weighed = ", ".join(f"{name}={_show(value)}" for name, value in self.evidence)
        return f"{self.verdict} [{weighed}]" if weighed else self.verdict

    @property
    def kind(self) -> str:
        """What kind of reason it is: the names of what was weighed, or the verdict where nothing was, without numbers.
        Reasons of one kind differ in how many nodes or pods there are, which is no news to who waits."""
        return _NUMBER.sub("#", "; ".join(name for name, _ in self.evidence) or self.verdict)


def _show(value: Scalar) -> str:
    if value is None:
        return "no data"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


class ExtendedClaim(msgspec.Struct, frozen=True, gc=False):
    """A ResourceClaim that is made for the extended resources of a pod: what it asks for, and which container has what
    of it."""

    requests: tuple[DeviceRequest, ...] = ()
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class ClaimAllocation(msgspec.Struct, frozen=True, gc=False):
    """The devices that a ResourceClaim gets. ``extended``: of one that is made with that, for the extended resources
    of its pod, and is deleted where it is given up."""

    claim: Ref
    allocation: AllocationResult
    extended: ExtendedClaim | None = None


class Bind(msgspec.Struct, frozen=True, tag="Bind", gc=False):
    """Put ``pod`` on ``node``, on these devices (index on the node). ``claims``: those of the pod that have no devices
    yet, with what is allocated to them before; all of its claims are reserved for it."""

    pod: Ref
    node: Ref
    reason: Reason
    devices: tuple[int, ...] = ()
    claims: tuple[ClaimAllocation, ...] = ()

    @property
    def target(self) -> Ref:
        return self.pod

    def summary(self) -> str:
        return f"bind {self.pod} to {self.node.name}"


REMOVE_FIRST = -100
"""The deletion cost of pods that a decision wants removed; others have 0."""


class Scale(msgspec.Struct, frozen=True, tag="Scale"):
    """Set ``target``'s replicas from ``current`` to ``replicas``. ``remove`` names the pods that should go first."""

    target: Ref
    current: int
    replicas: int
    reason: Reason
    remove: tuple[Ref, ...] = ()

    def summary(self) -> str:
        return f"scale {self.target} from {self.current} to {self.replicas}"


class Launch(msgspec.Struct, frozen=True, tag="Launch"):
    """Launch one node: the offering ``instance_type``, ``zone``, ``capacity_type``, on which ``pods`` are planned.

    ``labels`` and ``allocatable`` (cpu in millicores, memory and storage in bytes, all else in units) are what the plan
    counted on: the node that joins has them. Empty: those of the instance type. ``requests`` sums the pods, ``daemons``
    is what DaemonSets take, ``capacity`` the whole machine; taints are those of the NodePool.
    """

    claim: Ref
    node_pool: str
    instance_type: str
    zone: str
    capacity_type: str
    price_micro_usd_per_hour: int
    reason: Reason
    pods: tuple[Ref, ...] = ()
    labels: dict[str, str] = {}
    allocatable: dict[str, int] = {}
    requests: dict[str, int] = {}
    daemons: dict[str, int] = {}
    capacity: dict[str, int] = {}
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()

    @property
    def target(self) -> Ref:
        return self.claim

    def summary(self) -> str:
        pods = f"{len(self.pods)} pod{'' if len(self.pods) == 1 else 's'}"
        return f"launch {self.instance_type} ({self.capacity_type}) as {self.claim.name} for {pods}"


class Disrupt(msgspec.Struct, frozen=True, tag="Disrupt"):
    """Let no more pods come to ``node``: it is going to be drained and terminated, once what replaces it is there.
    ``expired``: its time is over, and not even karpenter.sh/do-not-disrupt keeps it."""

    node: Ref
    reason: Reason
    expired: bool = False

    @property
    def target(self) -> Ref:
        return self.node

    def summary(self) -> str:
        return f"disrupt {self.node.name}"


class Keep(msgspec.Struct, frozen=True, tag="Keep"):
    """Let pods come to ``node`` again: it is not going to be terminated after all."""

    node: Ref
    reason: Reason

    @property
    def target(self) -> Ref:
        return self.node

    def summary(self) -> str:
        return f"keep {self.node.name}"


class Return(msgspec.Struct, frozen=True, tag="Return"):
    """Terminate an empty ``node``: taint, look again, delete. ``drained``: all pods that would go have gone, or had
    their time; what is left goes with the node."""

    node: Ref
    reason: Reason
    drained: bool = False

    @property
    def target(self) -> Ref:
        return self.node

    def summary(self) -> str:
        return f"terminate {self.node.name}"


class Evict(msgspec.Struct, frozen=True, tag="Evict"):
    """Take ``pod`` from its node through the Eviction API. ``by``: the pod or gang that gets the room, if one does; the
    node itself, where that is drained.

    ``to``: the node for which the pod is nominated, where it is not evicted for good but moved. ``forced``: its node
    does not wait any longer; it is deleted whatever PodDisruptionBudgets say."""

    pod: Ref
    reason: Reason
    by: Ref | None = None
    to: str = ""
    forced: bool = False

    @property
    def drains(self) -> bool:
        """Whether the pod goes because its node does."""
        return self.by is not None and self.by.kind == "Node"

    @property
    def target(self) -> Ref:
        return self.pod

    def summary(self) -> str:
        what = f"move {self.pod} to {self.to}" if self.to else f"evict {self.pod}"
        if self.by is not None and self.drains:
            return f"{what} from {self.by.name}"
        return what + (f" for {self.by}" if self.by else "")


BINDING = "binding"
"""Who could not help a pod that has its place, and that the API server would not bind."""


class Wait(msgspec.Struct, frozen=True, tag="Wait", gc=False):
    """Leave ``pod`` pending for now. Nothing takes effect; the reason is what the user asks for.

    ``by``: who could not help it, ``scheduler``, ``provisioner`` or :data:`BINDING`. ``nominated``: the node on which
    room is being made for it; what the scheduler says replaces what it said before. ``releases``: ResourceClaims of the
    pod whose devices keep it from every node, and which nobody else uses: they are given up."""

    pod: Ref
    reason: Reason
    by: str = "scheduler"
    nominated: str = ""
    releases: tuple[ClaimAllocation, ...] = ()

    @property
    def target(self) -> Ref:
        return self.pod

    def summary(self) -> str:
        return f"{self.pod} waits"


Instances: TypeAlias = tuple[tuple[str, int], ...] | None
"""The MIG instances of one GPU, (profile, first memory slice) by slice; None: it is whole, its MIG mode is off."""


class Relayout(msgspec.Struct, frozen=True, tag="Relayout"):
    """Change the MIG layout of GPU ``device`` (index on the node) of ``node`` from ``before`` to ``after``.

    It holds while the GPU has just the instances of ``before`` and none that is to go is in use."""

    node: Ref
    device: int
    before: Instances
    after: Instances
    reason: Reason

    @property
    def target(self) -> Ref:
        return self.node

    def summary(self) -> str:
        before, after = layout_text(self.before), layout_text(self.after)
        return f"change the MIG layout of GPU {self.device} on {self.node.name} from {before} to {after}"


def layout_text(instances: Instances) -> str:
    """As in ``2 x 1g.10gb + 3g.40gb``."""
    if instances is None:
        return "whole"
    counts = Counter(profile for profile, _ in sorted(instances, key=lambda one: one[1]))
    return " + ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items()) or "no instance"


Decision: TypeAlias = Bind | Scale | Launch | Disrupt | Keep | Return | Evict | Wait | Relayout


class Applied(msgspec.Struct, frozen=True, tag="Applied"):
    """The decision took effect."""


class Stale(msgspec.Struct, frozen=True, tag="Stale"):
    """The world had moved on: ``changed`` says what no longer held. Normal; the next tick decides again."""

    changed: str


SOLD_OUT = "InsufficientInstanceCapacity"
"""A cloud has none of an offering now (AWS EC2's error code)."""
PROTECTED = "TooManyRequests"
"""A PodDisruptionBudget does not let the pod be evicted now (the Eviction API's reason)."""
OBSERVING = "Observing"
"""This world only looks, or only reports what it would do."""
UNABLE = "Unable"
"""Nothing here does what the decision says."""


class Refused(msgspec.Struct, frozen=True, tag="Refused", omit_defaults=True):
    """The world would not do it: an admission rule, a quota, no capacity.

    ``code``: the kind of refusal, for programs: one of those above, or an API server's own reason (``Forbidden``,
    ``Invalid``, ``TooManyRequests``, …); empty where there is none."""

    why: str
    code: str = ""


Outcome: TypeAlias = Applied | Stale | Refused


class Finding(msgspec.Struct, frozen=True):
    """Something that the configuration will do, or never do, and where that is written.

    ``rule`` is a stable identifier (kebab case); ``severity`` is ``error``, ``warning`` or ``info``. ``help``: what
    would help, where that is known.
    """

    rule: str
    severity: str
    object: Ref
    where: Where
    message: str
    evidence: tuple[tuple[str, Scalar], ...] = ()
    help: str | msgspec.UnsetType = msgspec.UNSET
