"""What a ServiceMonitor makes Prometheus scrape, and the labels that a sample has once it is stored.

Sources: prometheus-operator/prometheus-operator pkg/prometheus/promcfg.go (targets and their labels) and
prometheus/prometheus scrape/scrape.go (mutateSampleLabels: honor_labels and the exported_ prefix).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from tonnage.decisions import Finding, Ref
from tonnage.errors import Where
from tonnage.objects.core import Container, ContainerPort, Pod, Service, ServicePort
from tonnage.objects.load import where
from tonnage.objects.monitoring import Endpoint, ServiceMonitor
from tonnage.objects.selectors import matches

EXPORTED = "exported_"
"""Prefix of a metric's own label that the target's label of the same name has pushed aside."""

_FINISHED = ("Failed", "Succeeded")


class Selected(Struct, frozen=True):
    """One Service port that an endpoint of a ServiceMonitor selects; ``port`` None: by container port
    only.
    """

    service: Service
    endpoint: Endpoint
    port: ServicePort | None


class ScrapeTarget(Struct, frozen=True):
    """One pod's port as a scrape target. ``labels`` are put on every sample scraped from it."""

    pod: Ref
    labels: Mapping[str, str]
    honor_labels: bool = False
    path: str = "/metrics"
    interval: str = ""


@dataclass(frozen=True, slots=True)
class Selection:
    """What a ServiceMonitor selects, and what is wrong with it."""

    selected: tuple[Selected, ...] = ()
    findings: tuple[Finding, ...] = ()


def select(monitor: ServiceMonitor, services: Iterable[Service]) -> Selection:
    """The Service ports that a ServiceMonitor selects among ``services``.

    Findings: ``servicemonitor-selects-no-service`` when no Service has the labels in the namespaces it
    looks in, ``servicemonitor-unknown-port`` for an endpoint whose port no selected Service has, and
    ``servicemonitor-relabeling-ignored`` for relabelings, which are not evaluated here.
    """
    everything = sorted(services, key=lambda service: (service.namespace, service.name))
    labelled = [s for s in everything if matches(monitor.spec.selector, s.metadata.labels)]
    chosen = [s for s in labelled if _looks_in(monitor, s.namespace)]
    if not chosen:
        return Selection(findings=(_no_service(monitor, labelled),))
    selected, findings = [], []
    for index, endpoint in enumerate(monitor.spec.endpoints):
        found = [Selected(s, endpoint, port) for s in chosen for port in _ports(s, endpoint)]
        selected += found
        if not found:
            findings.append(_no_port(monitor, index, endpoint, chosen))
        if endpoint.relabelings or endpoint.metric_relabelings:
            name = "relabelings" if endpoint.relabelings else "metricRelabelings"
            place = where(monitor, f"spec.endpoints[{index}].{name}")
            message = f"{name} are not evaluated: the labels shown are those before them"
            findings.append(_finding("servicemonitor-relabeling-ignored", "info", monitor, place, message))
    return Selection(tuple(selected), tuple(findings))


def targets(
    monitor: ServiceMonitor,
    selected: Iterable[Selected],
    pods: Sequence[Pod],
    addresses: Mapping[str, str] | None = None,
) -> tuple[ScrapeTarget, ...]:
    """The scrape targets behind the selected Service ports: every pod of the Service that has not finished.

    ``addresses`` maps ``namespace/name`` of a pod to its address; without one the pod's name stands in
    for it.
    """
    found = []
    for choice in selected:
        for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name)):
            if not _backs(choice.service, pod) or pod.status.phase in _FINISHED:
                continue
            port = _container_port(choice, pod)
            if port is None:
                continue
            container, number = port
            host = (addresses or {}).get(f"{pod.namespace}/{pod.name}", pod.name)
            labels = _target_labels(monitor, choice, pod, container, f"{host}:{number}")
            endpoint = choice.endpoint
            ref = Ref("Pod", pod.name, pod.namespace, pod.metadata.uid)
            path = endpoint.path or "/metrics"
            found.append(ScrapeTarget(ref, labels, endpoint.honor_labels, path, endpoint.interval))
    return tuple(found)


def sample_labels(exposed: Mapping[str, str], target: Mapping[str, str], *, honor_labels: bool) -> dict[str, str]:
    """The labels that a sample gets in the store, given those it was exposed with and those of its target.

    With ``honorLabels`` the exposed label wins a conflict. Without, the target's wins and the exposed one
    is kept as ``exported_<name>``: a GPU exporter's ``pod`` then names the exporter, and the workload is
    ``exported_pod``.
    """
    if honor_labels:
        return _present({**target, **exposed})
    pushed = {name: value for name, value in exposed.items() if value and name in target}
    labels = {**exposed, **target}
    for name in sorted(pushed, key=lambda name: (len(name), name)):
        moved = EXPORTED + name
        while labels.get(moved):
            moved = EXPORTED + moved
        labels[moved] = pushed[name]
    return _present(labels)


def _present(labels: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if value}


def _looks_in(monitor: ServiceMonitor, namespace: str) -> bool:
    selector = monitor.spec.namespace_selector
    if selector.any:
        return True
    return namespace in (selector.match_names or [monitor.namespace])


def _ports(service: Service, endpoint: Endpoint) -> list[ServicePort | None]:
    if endpoint.port:
        return [port for port in service.spec.ports if port.name == endpoint.port]
    if endpoint.target_port is not None:
        return [None]
    return list(service.spec.ports)


def _backs(service: Service, pod: Pod) -> bool:
    selector = service.spec.selector
    same = service.namespace == pod.namespace and bool(selector)
    return same and all(pod.metadata.labels.get(key) == value for key, value in selector.items())


def _container_port(choice: Selected, pod: Pod) -> tuple[str, int] | None:
    """The container and number of the port to scrape; container "" when the number is not declared by any."""
    wanted: int | str
    if choice.port is None:
        if choice.endpoint.target_port is None:
            return None
        wanted = choice.endpoint.target_port
    else:
        wanted = choice.port.target_port if choice.port.target_port is not None else choice.port.port
    declared: list[tuple[Container, ContainerPort]] = [
        (container, port) for container in pod.spec.containers for port in container.ports
    ]
    for container, port in declared:
        if wanted in (port.name, port.container_port):
            return container.name, port.container_port
    return ("", wanted) if isinstance(wanted, int) and choice.port is not None else None


def _target_labels(
    monitor: ServiceMonitor, choice: Selected, pod: Pod, container: str, instance: str
) -> dict[str, str]:
    service, spec = choice.service, monitor.spec
    labels = {
        _sanitised(name): service.metadata.labels[name]
        for name in spec.target_labels
        if name in service.metadata.labels
    }
    labels |= {
        "job": service.metadata.labels.get(spec.job_label, "") or service.name,
        "instance": instance,
        "namespace": service.namespace,
        "service": service.name,
        "pod": pod.name,
        "container": container,
        "endpoint": choice.port.name if choice.port else str(choice.endpoint.target_port),
    }
    return _present(labels)


def _sanitised(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)


def _no_service(monitor: ServiceMonitor, elsewhere: Sequence[Service]) -> Finding:
    searched = monitor.spec.namespace_selector
    places = "any namespace" if searched.any else ", ".join(searched.match_names or [monitor.namespace])
    message = f"no Service in {places} has the labels of spec.selector: nothing is scraped"
    if elsewhere:
        message += f"; {elsewhere[0].namespace}/{elsewhere[0].name} has them, in a namespace that is not searched"
    place = where(monitor, "spec.selector")
    return _finding("servicemonitor-selects-no-service", "error", monitor, place, message)


def _no_port(monitor: ServiceMonitor, index: int, endpoint: Endpoint, chosen: Sequence[Service]) -> Finding:
    names = sorted({port.name for service in chosen for port in service.spec.ports if port.name})
    known = ", ".join(names) if names else "no named port"
    message = f"no selected Service has a port named {endpoint.port!r} (it has {known}): nothing is scraped"
    place = where(monitor, f"spec.endpoints[{index}].port")
    return _finding("servicemonitor-unknown-port", "error", monitor, place, message)


def _finding(rule: str, severity: str, monitor: ServiceMonitor, place: Where, message: str) -> Finding:
    return Finding(rule, severity, Ref("ServiceMonitor", monitor.name, monitor.namespace), place, message)
