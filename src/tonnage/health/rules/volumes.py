"""Claims for volumes that are not there, or that nothing is ever bound to.

Sources: kubernetes/kubernetes v1.36 pkg/scheduler/framework/plugins/volumebinding,
pkg/controller/volume/persistentvolume/pv_controller.go; the drivers named in facts/provisioners.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tonnage.errors import Where
from tonnage.facts import provisioners
from tonnage.health.blocker import NO_NODE, UNSCHEDULABLE, Blocker
from tonnage.health.inventory import content
from tonnage.health.rules.naming import remedy
from tonnage.health.setting import Pods, Setting
from tonnage.objects import apps
from tonnage.objects.base import KubeObject, ObjectMeta, where
from tonnage.objects.storage import (
    NO_PROVISIONER,
    WAIT_FOR_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    StorageClass,
)
from tonnage.scheduling.topology import IN_USE_ALONE
from tonnage.workloads import stateful
from tonnage.workloads.volumes.book import NOTHING_TO_BIND, ONE_POD, UNBOUND, Volumes
from tonnage.workloads.volumes.claims import best, mismatch
from tonnage.workloads.volumes.reach import ZONE_LABELS

MOST = 64
"""Pods of a StatefulSet whose claims are looked at; what holds for this many holds for more."""


class _Use(msgspec.Struct, frozen=True):
    """A claim that pods use. ``at``: where it is named, or its template stands; ``field`` gives the place of one of its
    fields."""

    pods: Pods
    claim: PersistentVolumeClaim
    at: Where
    template: str = ""

    def field(self, name: str) -> Where:
        spec = f"spec.{name}" if name else "spec"
        return where(self.pods.object, f"{self.template}.{spec}") if self.template else where(self.claim, spec)


def claims(setting: Setting) -> Iterator[Blocker]:
    """One blocker for each claim that keeps pods from ever having a node."""
    for pods in setting.pods:
        made = _made_with(pods)
        for index, volume in enumerate(pods.template.needs.volumes):
            named = volume.persistent_volume_claim
            at = pods.where(f"volumes[{index}].persistentVolumeClaim.claimName")
            if named is not None and volume.name not in made:
                if not setting.inventory.has("PersistentVolumeClaim", named.claim_name, pods.namespace):
                    yield _missing(setting, pods, named.claim_name, at)
                    continue
                claim = setting.volumes.claims.get((pods.namespace, named.claim_name))
                if claim is not None:
                    yield from _of(setting, _Use(pods, claim, at))
            elif volume.ephemeral is not None:
                template = f"{pods.template.field}.volumes[{index}].ephemeral.volumeClaimTemplate"
                written = volume.ephemeral.get("volumeClaimTemplate")
                yield from _of_template(setting, pods, written, template)
        for template, written in made.values():
            if isinstance(pods.object, apps.StatefulSet):
                yield from _of_numbered(setting, pods, pods.object, written, template)
            else:
                yield from _of_template(setting, pods, written, template)


def out_of_reach(blocker: Blocker, limits: Iterable[tuple[str, KubeObject, str]], book: Volumes) -> Blocker | None:
    """The blocker of pods that are unschedulable because of where their volumes are. ``limits``: (claim, what says from
    where its volume is reached, the field of it that does)."""
    first = next(iter(limits), None)
    if first is None:
        return None
    claim, one, field = first
    rule = "volume-out-of-reach"
    if isinstance(one, PersistentVolumeClaim):
        class_ = book.storage_class(book.class_of(one))
        zone = book.zone_of(one, class_)[1] if class_ is not None else ""
        return msgspec.structs.replace(
            blocker,
            rule=rule,
            where=where(one, field),
            message=f"the class of claim {claim} binds at once, and its provisioner makes the volume in {zone} before "
            f"any pod is placed: {blocker.said}",
            help=f"set volumeBindingMode: {WAIT_FOR_CONSUMER} in the StorageClass, or let nodes be in {zone}",
        )
    places = ", ".join(_values(one))
    return msgspec.structs.replace(
        blocker,
        rule=rule,
        where=where(one, field),
        message=f"{one.kind} {one.name} of claim {claim} is reached from {places or 'some nodes'} only, where no node "
        f"is feasible for the pods: {blocker.said}",
        help=f"let nodes be in {places or 'its reach'}, or use a volume that is where the nodes are",
    )


def _values(one: KubeObject) -> list[str]:
    """The places from which a volume, or those of a class, can be reached."""
    if isinstance(one, StorageClass):
        return [value for term in one.allowed_topologies for e in term.match_label_expressions for value in e.values]
    if not isinstance(one, PersistentVolume):
        return []
    affinity = one.spec.node_affinity
    if affinity is None or affinity.required is None:
        return [value for key, value in sorted(one.metadata.labels.items()) if key in ZONE_LABELS]
    terms = affinity.required.node_selector_terms
    return [value for term in terms for e in term.match_expressions for value in e.values]


def _missing(setting: Setting, pods: Pods, name: str, at: Where) -> Blocker:
    return Blocker(
        "missing-persistent-volume-claim",
        UNSCHEDULABLE,
        pods.ref,
        at,
        f"PersistentVolumeClaim {name} does not exist in namespace {pods.namespace}: the pods are unschedulable",
        remedy(setting.inventory, "PersistentVolumeClaim", name, pods.namespace),
        NO_NODE,
        f'persistentvolumeclaim "{name}" not found',
    )


def _made_with(pods: Pods) -> dict[str, tuple[str, object]]:
    """The claim templates of a StatefulSet or LeaderWorkerSet, by the name of the volume that each replaces: (path,
    what stands there)."""
    found: dict[str, tuple[str, object]] = {}
    for path in ("spec.volumeClaimTemplates", "spec.leaderWorkerTemplate.volumeClaimTemplates"):
        value: object = content(pods.object)
        for step in path.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        for index, one in enumerate(value if isinstance(value, list) else ()):
            metadata = one.get("metadata") if isinstance(one, dict) else None
            if isinstance(metadata, dict) and isinstance(metadata.get("name"), str):
                found[metadata["name"]] = f"{path}[{index}]", one
    return found


def _of_template(setting: Setting, pods: Pods, written: object, path: str) -> Iterator[Blocker]:
    spec = written.get("spec") if isinstance(written, dict) else None
    try:
        read = msgspec.convert(spec or {}, PersistentVolumeClaimSpec, strict=False)
    except msgspec.ValidationError:
        return
    named = written.get("metadata") if isinstance(written, dict) else None
    own = named.get("name") if isinstance(named, dict) else None
    metadata = ObjectMeta(name=str(own or "of the volume"), namespace=pods.namespace)
    claim = PersistentVolumeClaim(api_version="v1", kind="PersistentVolumeClaim", metadata=metadata, spec=read)
    yield from _of(setting, _Use(pods, claim, where(pods.object, path), path))


def _of_numbered(setting: Setting, pods: Pods, obj: apps.StatefulSet, written: object, path: str) -> Iterator[Blocker]:
    """What keeps the claims of a StatefulSet's pods from being bound, once: those that are there already, and those
    that are made of the template. Where some of them are bound, the others keep their pods waiting."""
    own = [one for one in obj.spec.volume_claim_templates if path.endswith(f"[{_index(obj, one)}]")]
    found: list[list[Blocker]] = []
    for number in stateful.wanted(obj, min(MOST, max(1, obj.spec.replicas))) if own else ():
        name = stateful.claim_name(own[0].metadata.name, stateful.pod_name(obj.name, number))
        claim = setting.volumes.claims.get((pods.namespace, name))
        if claim is not None:
            found.append(list(_of(setting, _Use(pods, claim, where(obj, path), path))))
    if found and not all(found):
        yield from (msgspec.structs.replace(one, some=True) for one in next(filter(None, found), ()))
    elif not found or found[0]:
        yield from list(_of_template(setting, pods, written, path)) or (found[0] if found else ())


def _index(obj: apps.StatefulSet, one: apps.ClaimTemplate) -> int:
    return next(n for n, other in enumerate(obj.spec.volume_claim_templates) if other is one)


def _of(setting: Setting, use: _Use) -> Iterator[Blocker]:
    """What keeps a claim that is there from being bound, and who else uses it."""
    book, claim = setting.volumes, use.claim
    if not book.is_written(claim):
        volume = book.bound_to(claim)
        if volume is None and claim.status.phase != "Bound":
            why = f"is {claim.status.phase or 'not bound'} in the cluster"
            yield _unbound(use, use.at, why, "see the events of the claim, and bind it", UNBOUND)
        return
    if book.bound_to(claim) is not None:
        yield from _shared(use)
        return
    name = book.class_of(claim)
    class_ = book.storage_class(name)
    if class_ is None and name and not _is_static(setting, claim):
        yield Blocker(
            "storage-class-missing",
            UNSCHEDULABLE,
            use.pods.ref,
            use.field("storageClassName"),
            f"StorageClass {name} of claim {claim.name} does not exist: no volume is made, and the pods stay Pending",
            f"{remedy(setting.inventory, 'StorageClass', name)}, or leave it out for the default class",
            NO_NODE,
            UNBOUND,
        )
    elif class_ is None and not _by_default(setting, claim):
        yield from _static(setting, use, name, UNBOUND)
    elif class_ is not None and not book.is_made(claim, class_):
        if class_.volume_binding_mode != WAIT_FOR_CONSUMER or best(claim, name, book.volumes.values()) is None:
            waits = class_.volume_binding_mode == WAIT_FOR_CONSUMER
            said = NOTHING_TO_BIND if waits else UNBOUND
            named = bool(claim.spec.volume_name) or claim.spec.selector is not None
            lacking = [] if named else book.not_provided(claim, class_)
            if lacking:
                yield _not_provided(use, class_, lacking[0], said)
                return
            yield from _static(setting, use, name, said)
    else:
        yield from _shared(use)


def _is_static(setting: Setting, claim: PersistentVolumeClaim) -> bool:
    """Whether volumes of the claim's class are there without the class being an object."""
    name = setting.volumes.class_of(claim)
    return any(one.spec.storage_class_name == name for one in setting.volumes.volumes.values())


def _by_default(setting: Setting, claim: PersistentVolumeClaim) -> bool:
    """Whether the default class of whatever cluster this is makes the volume."""
    return claim.spec.storage_class_name is None and not setting.volumes.classes and not claim.spec.volume_name


def _static(setting: Setting, use: _Use, class_name: str, said: str) -> Iterator[Blocker]:
    """No volume that is there will do."""
    claim, there = use.claim, setting.volumes.volumes
    if claim.spec.volume_name:
        volume = there.get(claim.spec.volume_name)
        if volume is None:
            why = f"names PersistentVolume {claim.spec.volume_name}, which does not exist"
            help_ = remedy(setting.inventory, "PersistentVolume", claim.spec.volume_name)
            yield _unbound(use, use.field("volumeName"), why, help_, said)
            return
        there = {volume.name: volume}
    reasons = {name: mismatch(claim, class_name, one) or "another claim gets it" for name, one in sorted(there.items())}
    if not reasons:
        class_ = setting.volumes.storage_class(class_name)
        if class_ is not None and class_.provisioner == NO_PROVISIONER:
            why = f"has class {class_name}, whose provisioner is {NO_PROVISIONER}, and there is no PersistentVolume"
        elif claim.spec.selector is not None:
            why = "has a selector, for which nothing is provisioned, and there is no PersistentVolume"
        else:
            why = "has no storage class, and there is no PersistentVolume"
        help_ = "add a PersistentVolume of this class and size, or name a class with a provisioner"
        yield _unbound(use, use.field("storageClassName"), why, help_, said)
        return
    listed = "; ".join(f"PersistentVolume {name}: {why}" for name, why in list(reasons.items())[:3])
    yield _unbound(
        use, use.field(_field_of(next(iter(reasons.values())))), f"fits no volume ({listed})", _help_of(reasons), said
    )


def _field_of(why: str) -> str:
    for words, field in (
        ("reserved", "volumeName"),
        ("class", "storageClassName"),
        ("access modes", "accessModes"),
        ("volume mode", "volumeMode"),
        ("selector", "selector"),
        ("asks for", "resources.requests.storage"),
        ("names", "volumeName"),
    ):
        if words in why:
            return field
    return ""


def _help_of(reasons: dict[str, str]) -> str:
    return f"ask for what PersistentVolume {next(iter(reasons))} has, or add a volume that the claim fits"


def _unbound(use: _Use, at: Where, why: str, help_: str, said: str) -> Blocker:
    message = f"PersistentVolumeClaim {use.claim.name} {why}: it is never bound, and the pods stay Pending"
    return Blocker("claim-never-bound", UNSCHEDULABLE, use.pods.ref, at, message, help_, NO_NODE, said)


def _not_provided(use: _Use, class_: StorageClass, lacking: str, said: str) -> Blocker:
    """``lacking``: an access mode of the claim that volumes of the class's provisioner do not have."""
    modes = provisioners.all()[class_.provisioner].modes
    return Blocker(
        "claim-never-bound",
        UNSCHEDULABLE,
        use.pods.ref,
        use.field("accessModes"),
        f"PersistentVolumeClaim {use.claim.name} asks for {lacking}, which {class_.provisioner} of class "
        f"{class_.name} does not provide ({', '.join(modes)}): no volume is provisioned, and the pods stay Pending",
        f"ask for {modes[0]}, or name a class whose volumes several nodes can mount (a shared file system)",
        NO_NODE,
        said,
    )


def _shared(use: _Use) -> Iterator[Blocker]:
    """Volumes that one node, or one pod, has at a time, and that more pods want."""
    modes, pods = use.claim.spec.access_modes, use.pods
    if use.template or pods.counted.pods < 2 or not modes:
        return
    if modes == [ONE_POD]:
        said, who = IN_USE_ALONE, "pod"
    elif modes == ["ReadWriteOnce"]:
        said, who = "Multi-Attach error for volume: Volume is already used by pod(s)", "node"
    else:
        return
    yield Blocker(
        "claim-shared",
        UNSCHEDULABLE,
        pods.ref,
        use.at,
        f"PersistentVolumeClaim {use.claim.name} ({modes[0]}) is for one {who} at a time, and {pods.counted.pods} pods "
        f"use it: those {'after the first' if who == 'pod' else 'on other nodes'} wait",
        "give each pod a claim of its own (a StatefulSet, an ephemeral volume), or use a ReadWriteMany volume",
        NO_NODE if who == "pod" else "FailedAttachVolume",
        said,
        some=True,
    )
