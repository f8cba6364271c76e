"""Who holds GPUs among a set of objects, and what bounds their replicas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tonnage.control.opt_in import AUTOSCALE, MAX_REPLICAS, MIN_REPLICAS
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.fleet.asks import Kind
from tonnage.fleet.filters import shape_of
from tonnage.objects import apps, autoscaling, keda
from tonnage.objects.base import KubeObject
from tonnage.objects.kind_words import kind_of
from tonnage.scaling import manifests
from tonnage.scaling.reallocation import BOUNDS, Bounded, GpuHolder

_WHOLE = Kind.WHOLE


def holder(objects: Sequence[KubeObject], name: str, namespace: str = "", field: str = "") -> GpuHolder:
    """The workload of this name, ``namespace/name`` or ``KIND/name``. Raises InputError for none, and for several."""
    kind, slash, rest = name.partition("/")
    there = [one for one in apps.replicated(objects) if namespace in ("", _space(one))]
    found = [one for one in there if name == one.name or (slash and (kind, rest) == (_space(one), one.name))]
    if not found and slash:
        wanted = kind_of(kind, {one.kind for one in there})
        found = [one for one in there if (wanted, rest) == (one.kind, one.name)]
    if len(found) != 1:
        what = "several workloads have this name" if found else "there is no workload of this name"
        known = sorted({f"{_space(one)}/{one.name}" for one in there})
        hint = f"workloads: {', '.join(known[:8])}{' …' if len(known) > 8 else ''}" if known else "give their manifests"
        raise InputError.at(f'"{name}": {what}', field=field, hint=hint)
    return _holder(found[0], objects)


def _holder(one: apps.Replicated, objects: Iterable[KubeObject]) -> GpuHolder:
    ref = Ref(one.kind, one.name, _space(one), one.metadata.uid)
    template = one.spec.template
    ask = shape_of(template.spec, template.metadata.annotations).ask
    whole = ask.kind is _WHOLE
    written = one.spec.replicas
    return GpuHolder(
        ref,
        1 if written is None else written,
        ask.count if whole else 0,
        ask.resource if whole else "",
        tuple(_bounds(one, ref, objects)),
        written,
    )


def _bounds(owner: apps.Replicated, ref: Ref, objects: Iterable[KubeObject]) -> Iterator[Bounded]:
    for one in objects:
        if isinstance(one, autoscaling.HorizontalPodAutoscaler) and not manifests.made_by_keda(one):
            spec = manifests.hpa_spec(one)
            if _same(spec.target, ref):
                bounds = (spec.min_replicas, spec.max_replicas)
                yield Bounded(_ref(one), BOUNDS[one.kind], *bounds, (one.spec.min_replicas, spec.max_replicas))
        elif isinstance(one, keda.ScaledObject):
            target = one.spec.scale_target_ref
            if _same(Ref(target.kind, target.name, _space(one)), ref):
                least, most = one.spec.min_replica_count, one.spec.max_replica_count
                held = manifests.paused(one).replicas
                spelt = one.written.get("spec", {})
                shown = spelt.get("minReplicaCount"), spelt.get("maxReplicaCount")
                yield Bounded(_ref(one), BOUNDS[one.kind], least, most, shown, paused=held)
    annotations = owner.metadata.annotations
    if AUTOSCALE in annotations and MAX_REPLICAS in annotations:
        low, high = annotations.get(MIN_REPLICAS), annotations[MAX_REPLICAS]
        if high.isdecimal() and (low or "1").isdecimal():
            paths = tuple(("metadata", "annotations", name) for name in (MIN_REPLICAS, MAX_REPLICAS))
            yield Bounded(ref, (paths[0], paths[1]), int(low or "1"), int(high), (low, high), texts=True)


def _same(target: Ref, ref: Ref) -> bool:
    return (target.kind, target.name, target.namespace or "default") == (ref.kind, ref.name, ref.namespace)


def _ref(one: KubeObject) -> Ref:
    return Ref(one.kind, one.name, _space(one), one.metadata.uid)


def _space(one: KubeObject) -> str:
    return one.namespace or "default"
