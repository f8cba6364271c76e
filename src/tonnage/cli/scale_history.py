"""A history of metrics, in files or on a Prometheus server, with the autoscalers of manifests looking at it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from tonnage.cli import files, prometheus_options
from tonnage.control import past
from tonnage.control.opt_in import AUTOSCALE, opted_in
from tonnage.control.replicas import Autoscalers, ReplicaPlanner
from tonnage.control.shadow import ScalerStep, ShadowAutoscalers, ShadowPlanner, in_order
from tonnage.decisions import Ref
from tonnage.errors import InputError
from tonnage.live import prometheus_answers
from tonnage.metrics.samples import read, stored
from tonnage.metrics.store import SeriesStore
from tonnage.objects import apps, core, load
from tonnage.objects.load import where
from tonnage.scaling import admission, manifests
from tonnage.scaling.policies import POLICIES
from tonnage.traffic.readings import StoredReadings
from tonnage.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class HistorySource:
    """``samples``: files; ``server``: the options of a Prometheus server and its times, as given. ``replicas``: where
    what is decided is followed, the number at the start; ``ready_after_ns``: what a replica then takes to be Ready."""

    samples: tuple[Path, ...]
    server: dict[str, Any]
    replicas: int | None
    ready_after_ns: int


def looked_at(
    paths: Sequence[Path], history: HistorySource
) -> tuple[int, tuple[ScalerStep, ...], tuple[str, ...], str]:
    """(the start in ns, all steps, why some look at nothing, what the history is).

    Raises InputError for manifests, samples and times that cannot be read, and where the server does not answer."""
    manifest = load.read(paths)
    admitted = admission.apply_in_order(manifest.objects)
    plain = [manifests.hpa_spec(one) for one in admitted.hpas if not manifests.made_by_keda(one)]
    scaled = [manifests.keda_spec(one) for one in admitted.scaled_objects]
    targets = [*(one.target for one in plain), *(one.target for one in scaled)]
    for deployment in manifest.of(apps.Deployment):
        if AUTOSCALE in deployment.metadata.annotations:
            targets.append(Ref("Deployment", deployment.name, deployment.namespace or "default"))
    steps: list[ScalerStep] = []
    with _measured(history) as (measured, start_ns, end_ns, name):
        for target in sorted(set(targets)):
            if target.kind not in past.REPLICAS:
                message = f"{target}: only Deployments and StatefulSets are looked at"
                raise InputError.at(message, file=str(paths[0]), hint="leave its autoscaler out")
            alone = [one for one in plain if one.target == target], [one for one in scaled if one.target == target]
            scalers = Autoscalers(*alone, admitted.ambiguous)
            workload = _workload(target, manifest, history.replicas)
            _play(measured, workload, ShadowAutoscalers(scalers, steps.append).loops(), history, start_ns, end_ns)
            for policy in POLICIES if workload.annotations.get(AUTOSCALE) in POLICIES else ():
                _refuse_wrong(workload, manifest)
                planner = ReplicaPlanner(policy, lambda snapshot: opted_in(snapshot)[0])
                _play(measured, workload, ShadowPlanner(planner, steps.append).loops(), history, start_ns, end_ns)
    left_out = tuple(f"{one.object}: {one.message}" for one in admitted.findings if one.severity == "error")
    for target in sorted(set(targets)):
        if all(one.target.workload != target.workload for one in steps):
            asked = _workload(target, manifest, None).query(past.REPLICAS)
            left_out = (*left_out, f"{target}: no data of {asked}; give --replicas N to follow what is decided")
    if not any(one.by in POLICIES for one in steps):
        left_out = (*left_out, f"slo: no Deployment in FILES has the annotation {AUTOSCALE}")
    return start_ns, in_order(steps), left_out, name


def _play(
    measured: past.MeasuredPast,
    workload: past.PastWorkload,
    loops: Sequence[Any],
    history: HistorySource,
    start: int,
    end: int,
) -> None:
    past.play(past.Past(measured, [workload], history.ready_after_ns), loops, start, end)


def _workload(target: Ref, manifest: load.Manifest, replicas: int | None) -> past.PastWorkload:
    for one in apps.replicated(manifest.objects):
        if (one.kind, one.name, one.namespace or "default") == (
            target.kind,
            target.name,
            target.namespace or "default",
        ):
            annotations, template = one.metadata.annotations, one.spec.template.spec
            return past.PastWorkload(target.kind, target.namespace, target.name, template, annotations, replicas)
    return past.PastWorkload(target.kind, target.namespace, target.name, core.PodSpec(containers=[]), {}, replicas)


def _refuse_wrong(workload: past.PastWorkload, manifest: load.Manifest) -> None:
    """Raises InputError where the annotations do not say what the policy has to know."""
    world = past.Past(StoredReadings(SeriesStore()), [replace(workload, replicas=1)])
    world.begin(0)
    _, refused = opted_in(world.snapshot())
    for one in refused:
        owner = next(o for o in manifest.of(apps.Deployment) if o.name == workload.name)
        place = where(owner, "metadata.annotations")
        raise InputError.at(
            one.message, file=place.file, line=place.line, field=place.field, hint="see docs/reference/annotations.md"
        )


@contextmanager
def _measured(history: HistorySource) -> Iterator[tuple[past.MeasuredPast, int, int, str]]:
    if history.samples:
        store = _stored(history.samples)
        times = [at for series in store for at in (series.times[0], series.times[-1])]
        given = {**history.server, "prometheus": ""}
        start_ns, end_ns = min(times), max(times)
        if given["start"] or given["end"]:
            whole = {"start": str(start_ns // NS_PER_S), "end": str(-(-end_ns // NS_PER_S))}
            asked = _asked({**given, **{name: given[name] or whole[name] for name in whole}})
            start_ns = asked.start_ns if given["start"] else start_ns
            end_ns = asked.end_ns if given["end"] else end_ns
        yield StoredReadings(store), start_ns, end_ns, ", ".join(path.name for path in history.samples)
        return
    asked = _asked(dict(history.server))
    with asked.open() as server:
        yield server, asked.start_ns, asked.end_ns, "Prometheus"


def _asked(given: dict[str, Any]) -> prometheus_options.PrometheusRange:
    return prometheus_options.asked({**given, "selector": "", "gateway": "", "context": None})


def _stored(paths: Sequence[Path]) -> SeriesStore:
    samples, series = [], []
    for path in paths:
        text = files.text(path, "expected samples with times, or Prometheus' JSON")
        if not text.lstrip().startswith("{"):
            samples += read(text, str(path))
            continue
        hint = "expected what /api/v1/query_range, or /api/v1/query with a range, answers"
        try:
            answer = prometheus_answers.decode_body(text.encode())
            if answer.status == "error":
                said = f"{answer.error_type}: {answer.error}".strip(": ") or "error"
                raise InputError.at(f"Prometheus refused the query: {said}", file=str(path), hint=hint)
            series += prometheus_answers.read_window(answer.data)
        except msgspec.DecodeError as error:
            raise InputError.at(f"not an answer of Prometheus: {error}", file=str(path), hint=hint) from None
        except prometheus_answers.Unreadable as error:
            raise InputError.at(f"not a range of samples: {error.what}", file=str(path), hint=hint) from None
    store = stored(samples, series)
    if not len(store):
        raise InputError.at("no samples", file=str(paths[0]), hint="give a file with samples of the triggers' metrics")
    return store
