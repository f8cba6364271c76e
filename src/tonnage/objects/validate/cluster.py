"""Nodes, Services, ConfigMaps, PriorityClasses, PodDisruptionBudgets and what Prometheus is told.

Sources: kubernetes/kubernetes pkg/apis/core/validation/validation.go, pkg/apis/scheduling/validation/validation.go,
pkg/apis/policy/validation/validation.go; prometheus-operator/prometheus-operator pkg/apis/monitoring/v1.
"""

from __future__ import annotations

import re

from tonnage.objects import duration
from tonnage.objects.core import ConfigMap, Node, PriorityClass, Service
from tonnage.objects.monitoring import PrometheusRule, ServiceMonitor
from tonnage.objects.policy import PodDisruptionBudget
from tonnage.objects.validate.common import PROTOCOLS, Report, Rule

_SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer", "ExternalName")
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PERCENT = re.compile(r"[0-9]+%")


def node(obj: Node, report: Report) -> None:
    report.taints("spec.taints", obj.spec.taints, set())
    for name, written in obj.status.capacity.items():
        report.quantity(f"status.capacity.{name}", written)
    for name, written in obj.status.allocatable.items():
        report.quantity(f"status.allocatable.{name}", written)


def service(obj: Service, report: Report) -> None:
    spec = obj.spec
    report.one_of("spec.type", spec.type, _SERVICE_TYPES)
    report.labels("spec.selector", spec.selector)
    if not spec.ports and spec.cluster_ip != "None" and spec.type != "ExternalName":
        report.add("spec.ports", "a Service needs at least one port", "or clusterIP: None")
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(spec.ports):
        path = f"spec.ports[{index}]"
        report.within(f"{path}.port", port.port, 1, 65535)
        report.one_of(f"{path}.protocol", port.protocol, PROTOCOLS)
        if port.name:
            report.matches(f"{path}.name", port.name, Rule.LABEL)
        elif len(spec.ports) > 1:
            report.add(f"{path}.name", "the field is missing", "with several ports each needs a name")
        if isinstance(port.target_port, int):
            report.within(f"{path}.targetPort", port.target_port, 1, 65535)
        elif port.target_port is not None:
            report.matches(f"{path}.targetPort", port.target_port, Rule.PORT_NAME)
        if (port.port, port.protocol) in seen:
            report.add(f"{path}.port", f"port {port.port}/{port.protocol} stands twice", "remove one of them")
        seen.add((port.port, port.protocol))
    report.unique("spec.ports[{}].name", [port.name for port in spec.ports], "a port of this name")


def config_map(obj: ConfigMap, report: Report) -> None:
    for key in obj.data:
        report.matches(f"data.{key}", key, Rule.CONFIG_KEY)


def priority_class(obj: PriorityClass, report: Report) -> None:
    report.one_of("preemptionPolicy", obj.preemption_policy, ("PreemptLowerPriority", "Never"))
    if _SYSTEM_PRIORITIES.get(obj.name) == obj.value:
        return
    if obj.name.startswith("system-"):
        report.refuse("metadata.name", obj.name, "a name without system-, which is Kubernetes' own")
    if obj.value > _HIGHEST_PRIORITY:
        report.refuse("value", obj.value, f"at most {_HIGHEST_PRIORITY}", "what is above is Kubernetes' own")


def pod_disruption_budget(obj: PodDisruptionBudget, report: Report) -> None:
    report.selector("spec.selector", obj.spec.selector)
    if obj.spec.min_available is not None and obj.spec.max_unavailable is not None:
        report.add("spec.maxUnavailable", "minAvailable and maxUnavailable stand together", "remove one of them")
    for name, value in (
        ("minAvailable", obj.spec.min_available),
        ("maxUnavailable", obj.spec.max_unavailable),
    ):
        if isinstance(value, int):
            report.within(f"spec.{name}", value, 0)
        elif value is not None and (not _PERCENT.fullmatch(value) or int(value[:-1]) > 100):
            report.refuse(f"spec.{name}", value, 'a number or a percentage up to "100%"')
    if obj.spec.unhealthy_pod_eviction_policy:
        policies = ("IfHealthyBudget", "AlwaysAllow")
        report.one_of("spec.unhealthyPodEvictionPolicy", obj.spec.unhealthy_pod_eviction_policy, policies)


def service_monitor(obj: ServiceMonitor, report: Report) -> None:
    report.selector("spec.selector", obj.spec.selector)
    if not obj.spec.endpoints:
        report.add("spec.endpoints", "there are no endpoints", "name a port of the Service to scrape")
    for index, endpoint in enumerate(obj.spec.endpoints):
        for name, written in (("interval", endpoint.interval), ("scrapeTimeout", endpoint.scrape_timeout)):
            _duration(f"spec.endpoints[{index}].{name}", written, report)
        if endpoint.scheme:
            report.one_of(f"spec.endpoints[{index}].scheme", endpoint.scheme, ("http", "https", "HTTP", "HTTPS"))


def prometheus_rule(obj: PrometheusRule, report: Report) -> None:
    report.unique("spec.groups[{}].name", [group.name for group in obj.spec.groups], "a group of this name")
    for index, group in enumerate(obj.spec.groups):
        report.not_empty(f"spec.groups[{index}].name", group.name)
        _duration(f"spec.groups[{index}].interval", group.interval, report)
        for position, rule in enumerate(group.rules):
            path = f"spec.groups[{index}].rules[{position}]"
            if bool(rule.record) == bool(rule.alert):
                report.add(path, "expected either record or alert", "set exactly one of them")
            _duration(f"{path}.for", rule.hold, report)


def _duration(field: str, written: str, report: Report) -> None:
    """A Prometheus duration, or nothing."""
    if not written:
        return
    try:
        duration.parse_prometheus(written)
    except ValueError:
        report.refuse(field, written, "a duration, e.g. 15s, 1m or 1h30m")
