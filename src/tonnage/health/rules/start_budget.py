"""Probes that end an engine before it has started: the kubelet kills a container whose startup probe, or, without one,
whose liveness probe has failed failureThreshold times in a row.

Source: kubernetes/kubernetes pkg/kubelet/prober/worker.go: the first probe comes initialDelaySeconds after the start,
each further one periodSeconds later."""

from __future__ import annotations

from collections.abc import Iterator

from tonnage.errors import InputError
from tonnage.facts import durations, instances
from tonnage.health.blocker import CRASHING, Blocker
from tonnage.health.landing import Place
from tonnage.health.rules import engines
from tonnage.health.setting import Pods, Setting
from tonnage.inference.config import weight_bytes
from tonnage.inference.servers import EngineServer
from tonnage.inference.servers.starting import engine_s, is_eager, start_s
from tonnage.objects.needs import ProbeNeeds
from tonnage.provisioning.nodeclass import NodeStorage, fill_bytes_per_s

KILLED = "Killing"


def start_budget(setting: Setting) -> Iterator[Blocker]:
    """The engine takes longer than its probe waits: surely where that is so from the fastest volume too, or by a factor
    of two; else of some pods."""
    known = durations.get()
    for pods in setting.pods:
        server = pods.engine
        if server is None or engines.starts_not(engines.causes(setting, pods, server)):
            continue
        container = pods.template.needs.containers[server.index]
        name, probe = "startupProbe", container.startup_probe
        if probe is None:
            name, probe = "livenessProbe", container.liveness_probe
        if probe is None or not _asks_the_server(probe):
            continue
        wanted = _start(setting, pods, server)
        if wanted is None:
            continue
        load, total, least = wanted
        budget = probe.initial_delay_seconds + probe.failure_threshold * probe.period_seconds
        if total <= budget:
            continue
        threshold = -int(-total * 4 / 3 // max(1, probe.period_seconds))
        help_ = f"set failureThreshold to {threshold} or more (periodSeconds {probe.period_seconds})"
        if name == "livenessProbe":
            ample = -int(-total * 4 / 3 // 10)
            help_ = (
                f"add a startupProbe with periodSeconds 10 and failureThreshold {ample}: liveness is not asked before "
                "it has succeeded"
            )
        of = f"{load:.0f} s for the weights and {total - load:.0f} s for imports and compilation"
        yield Blocker(
            "probe-shorter-than-start",
            CRASHING,
            pods.ref,
            pods.where(f"containers[{server.index}].{name}.failureThreshold"),
            f"the engine takes about {total:.0f} s to start ({of}), and the {name} gives up after {budget} s",
            help_,
            KILLED,
            f"Container {server.container.name} failed {name.removesuffix('Probe')} probe, will be restarted",
            some=budget >= max(least * (1 - known.jitter), total / 2),
        )


def _asks_the_server(probe: ProbeNeeds) -> bool:
    """Whether it fails until the server listens; a command may be anything."""
    return probe.http_get is not None or probe.tcp_socket is not None or probe.grpc is not None


def _start(setting: Setting, pods: Pods, server: EngineServer) -> tuple[float, float, float] | None:
    """Seconds for the weights, until it answers, and the latter with the fastest volume that there is, on the
    fastest of the places; None where nothing is known of its weights."""
    shape = server.shape
    places = [place for place in setting.places(pods) if place.card is not None]
    if shape is None or not places:
        return None
    try:
        size = weight_bytes(shape, server.args.dtype, server.args.quantization)
    except InputError:
        return None
    known = durations.get()
    engine = engine_s(known, eager=is_eager(server))
    rate = max(_bytes_per_s(setting, place) for place in places)
    total = start_s(size, rate, engine)
    return total - engine, total, start_s(size, max(rate, known.ebs_max_bytes_per_s), engine)


def _bytes_per_s(setting: Setting, place: Place) -> float:
    """How fast weights come to a node: over its disk, or, where its type is not known, over a volume as it comes."""
    if not instances.known(place.instance_type):
        return durations.get().ebs_bytes_per_s
    storage = setting.storage.get(place.pool, NodeStorage())
    return fill_bytes_per_s(storage, instances.get(place.instance_type))
