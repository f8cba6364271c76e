"""Thresholds of a ScaledObject for a traffic and an SLO, by a fixed search in the simulator.

Settings are a threshold, a scale-down window and a minReplicaCount. For each window and minimum the highest threshold
is looked for that attains the share of requests within the SLO, by bisection over fixed multiples of the written one: a
lower threshold holds more replicas. Of those found the cheapest is the best. It is searched on one half of a trace, or
with one seed, and scored on the other half, or with the next seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from tonnage.errors import InputError
from tonnage.objects import autoscaling, keda, load
from tonnage.objects.base import KubeObject
from tonnage.objects.load import where
from tonnage.scaling.behavior import DEFAULT_DOWN
from tonnage.simulation import run
from tonnage.simulation.result import Result, ServiceResult
from tonnage.simulation.scenario import Scenario
from tonnage.traffic.traces import Trace
from tonnage.units import NS_PER_S

FACTORS = (2.0, 1.5, 1.25, 1.0, 0.75, 0.5, 0.35)
"""Of the written threshold, from the highest down."""
WINDOWS_S = (120, 300)
MINIMA = (1, 2, 4)
"""Beside what is written."""


class ScalerSetting(msgspec.Struct, frozen=True, order=True):
    """``threshold`` of the trigger, ``stabilizationWindowSeconds`` of scaleDown, ``minReplicaCount``."""

    threshold: float
    window_s: int
    minimum: int


class ScalerScore(msgspec.Struct, frozen=True):
    """What a setting gave: the share of requests outside the grace within the SLO (None: there was none), what the
    nodes cost, GPU-hours paid and held by pods."""

    setting: ScalerSetting
    share: float | None
    micro_usd: int
    paid_gpu_hours: float
    allocated_gpu_hours: float

    @property
    def cost(self) -> tuple[float, ...]:
        """What is to be small; where nodes are paid for anyway, the GPUs that are held."""
        return self.micro_usd, self.allocated_gpu_hours, -(self.share or 0.0)


class TunedScaler(msgspec.Struct, frozen=True):
    """``best``: the cheapest that attains ``wanted`` on what was searched, None where none does; ``held_out_best`` and
    ``held_out_written``: on what was not. ``tried`` in order."""

    scaled_object: str
    service: str
    wanted: float
    written: ScalerScore
    best: ScalerScore | None
    held_out_written: ScalerScore
    held_out_best: ScalerScore | None
    tried: tuple[ScalerScore, ...]

    @property
    def runs(self) -> int:
        """Simulations that it took."""
        return len(self.tried) + 1 + (self.best is not None and self.best.setting != self.written.setting)


@dataclass(frozen=True, slots=True)
class SearchGrid:
    """What is tried beside what is written; nothing else where ``windows_s`` or ``minima`` are given."""

    windows_s: Sequence[int] = ()
    minima: Sequence[int] = ()

    def lines(self, written: ScalerSetting, maximum: int) -> list[tuple[int, int]]:
        """(window, minimum) of each line of thresholds."""
        windows = sorted({*self.windows_s} or {*WINDOWS_S, written.window_s})
        minima = sorted({*self.minima} or {*MINIMA, written.minimum})
        return [(window, low) for window in windows for low in minima if low <= maximum]


@dataclass(slots=True)
class Tuning:
    """One ScaledObject in a policy of a scenario. ``halves``: of the trace that is played, or None: the scenario's own
    traffic, with the next seed for what is not searched. ``done`` is called after each run."""

    scenario: Scenario
    policy: str
    scaled_object: keda.ScaledObject
    share: float
    halves: tuple[Trace, Trace] | None = None
    seed: int = 0
    done: Callable[[int], object] = lambda runs: None
    _tried: dict[ScalerSetting, ScalerScore] = field(default_factory=dict)

    def find(self, grid: SearchGrid) -> TunedScaler:
        """Search. Raises InputError for a ScaledObject without a threshold to tune, or whose target serves nothing."""
        written = written_setting(self.scaled_object)
        before = self._fitted(written)
        lines = grid.lines(written, self.scaled_object.spec.max_replica_count)
        found = [one for line in lines if (one := self._highest(written, *line)) is not None]
        best = min(found, key=lambda one: (one.cost, one.setting), default=None)
        held_before, service = self._play(written, fitted=False)
        held_best = held_before if best is not None and best.setting == written else None
        if best is not None and held_best is None:
            held_best, _ = self._play(best.setting, fitted=False)
        return TunedScaler(
            f"{self.scaled_object.namespace}/{self.scaled_object.name}",
            service,
            self.share,
            before,
            best,
            held_before,
            held_best,
            tuple(self._tried.values()),
        )

    def _highest(self, written: ScalerSetting, window_s: int, minimum: int) -> ScalerScore | None:
        """The score of the highest threshold that attains the share."""
        best, low, high = None, 0, len(FACTORS) - 1
        while low <= high:
            middle = (low + high) // 2
            threshold = float(f"{written.threshold * FACTORS[middle]:.4g}")
            got = self._fitted(ScalerSetting(threshold, window_s, minimum))
            if (got.share or 0.0) >= self.share:
                best, high = got, middle - 1
            else:
                low = middle + 1
        return best

    def _fitted(self, setting: ScalerSetting) -> ScalerScore:
        if setting not in self._tried:
            self._tried[setting], _ = self._play(setting, fitted=True)
        return self._tried[setting]

    def _play(self, setting: ScalerSetting, *, fitted: bool) -> tuple[ScalerScore, str]:
        trace = None if self.halves is None else self.halves[0 if fitted else 1]
        seed = self.seed + (0 if fitted or self.halves is not None else 1)
        name = (self.scaled_object.namespace, self.scaled_object.name)

        def tune(manifest: load.Manifest) -> load.Manifest:
            return replace(manifest, objects=tuple(_changed(one, name, setting) for one in manifest.objects))

        result = run.run(self.scenario, self.policy, run.RunOptions(seed=seed, trace=trace, tune=tune))
        self.done(1)
        service = self._service(result)
        hours = result.gpu_hours
        score = ScalerScore(setting, service.overall.share, result.cost.total_micro_usd, hours.paid, hours.allocated)
        return score, service.name

    def _service(self, result: Result) -> ServiceResult:
        """The service of the ScaledObject's target. Raises InputError where it has none."""
        source = self.scaled_object
        spec = source.spec.scale_target_ref
        found = [one for one in result.services if one.workload.rsplit("/", 1)[-1] == spec.name]
        found = [one for one in found if one.workload.startswith(f"{source.namespace or 'default'}/")]
        if not found:
            served = ", ".join(one.workload for one in result.services) or "nobody"
            place = where(source, "spec.scaleTargetRef.name")
            message = f"no traffic of the scenario goes to {spec.kind} {spec.name}"
            raise InputError.at(
                message, file=place.file, line=place.line, field=place.field, hint=f"it goes to {served}"
            )
        return found[0]


def scaled_object(objects: Iterable[object], name: str) -> keda.ScaledObject:
    """The ScaledObject of this name, or namespace/name. Raises InputError for none, or several."""
    there = [one for one in objects if isinstance(one, keda.ScaledObject)]
    found = [one for one in there if name in (one.name, f"{one.namespace or 'default'}/{one.name}")]
    if len(found) != 1:
        known = ", ".join(sorted(f"{one.namespace or 'default'}/{one.name}" for one in there)) or "none"
        what = "several have this name" if found else "there is no ScaledObject of this name"
        raise InputError.at(f'"{name}": {what}', field="SCALEDOBJECT", hint=f"ScaledObjects of this policy: {known}")
    return found[0]


def written_setting(source: keda.ScaledObject) -> ScalerSetting:
    """What it says now. Raises InputError where several triggers or a formula decide: no one threshold does then."""
    advanced = source.spec.advanced
    place = where(source, "spec.triggers")
    message = ""
    if advanced is not None and advanced.scaling_modifiers is not None:
        message = "a formula of scalingModifiers decides, not a threshold"
    elif [one.type for one in source.spec.triggers] != ["prometheus"]:
        types = ", ".join(one.type for one in source.spec.triggers)
        message = f"the triggers are {types}: expected one of type prometheus"
    if message:
        hint = "tune a ScaledObject with one prometheus trigger"
        raise InputError.at(message, file=place.file, line=place.line, field=place.field, hint=hint)
    config = advanced.horizontal_pod_autoscaler_config if advanced is not None else None
    down = config.behavior.scale_down if config is not None and config.behavior is not None else None
    window_s = down.stabilization_window_seconds if down is not None else None
    return ScalerSetting(
        float(source.spec.triggers[0].metadata["threshold"]),
        DEFAULT_DOWN.window_ns // NS_PER_S if window_s is None else window_s,
        source.spec.min_replica_count,
    )


def most_runs(grid: SearchGrid, source: keda.ScaledObject) -> int:
    """The most simulations that a search takes, what is scored included."""
    lines = grid.lines(written_setting(source), source.spec.max_replica_count)
    return 3 + len(lines) * len(FACTORS).bit_length()


def halves(trace: Trace) -> tuple[Trace, Trace]:
    """The requests of the first and of the second half of its time. Raises InputError where one has none but one."""
    cut = int((trace.arrivals_ns < trace.span_ns / 2).sum())
    if min(cut, len(trace) - cut) < 2:
        message = f"{len(trace)} requests, too few for two halves"
        raise InputError.at(message, file=trace.source, hint="give a longer trace")
    return _part(trace, slice(0, cut)), _part(trace, slice(cut, None))


def _part(trace: Trace, part: slice) -> Trace:
    arrivals = trace.arrivals_ns[part]
    return replace(
        trace,
        arrivals_ns=arrivals - arrivals[0],
        prompt=trace.prompt[part],
        output=trace.output[part],
        hashes=trace.hashes[part] if trace.hashes is not None else None,
    )


def _changed(one: KubeObject, name: tuple[str, str], setting: ScalerSetting) -> KubeObject:
    """The object, and the ScaledObject of this name with the setting."""
    if not isinstance(one, keda.ScaledObject) or (one.namespace, one.name) != name:
        return one
    made = copy.copy(one)
    made.spec = with_setting(one.spec, setting)
    return made


def with_setting(spec: keda.ScaledObjectSpec, setting: ScalerSetting) -> keda.ScaledObjectSpec:
    """The spec with the threshold of its first trigger, its scale-down window and its minimum as set."""
    set_to = msgspec.structs.replace
    advanced = spec.advanced or keda.Advanced()
    config = advanced.horizontal_pod_autoscaler_config or keda.HorizontalPodAutoscalerConfig()
    behavior = config.behavior or autoscaling.HPABehavior()
    down = behavior.scale_down or autoscaling.HPAScalingRules()
    down = set_to(down, stabilization_window_seconds=setting.window_s)
    config = set_to(config, behavior=set_to(behavior, scale_down=down))
    first, *others = spec.triggers
    first = set_to(first, metadata={**first.metadata, "threshold": f"{setting.threshold:.4g}"})
    return set_to(
        spec,
        min_replica_count=setting.minimum,
        triggers=[first, *others],
        advanced=set_to(advanced, horizontal_pod_autoscaler_config=config),
    )
