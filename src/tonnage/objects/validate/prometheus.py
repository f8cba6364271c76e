"""What Prometheus is told. Source: prometheus-operator/prometheus-operator pkg/apis/monitoring/v1."""

from __future__ import annotations

from tonnage.objects import duration
from tonnage.objects.monitoring import PrometheusRule, ServiceMonitor
from tonnage.objects.validate.common import Report


def service_monitor(obj: ServiceMonitor, report: Report) -> None:
    report.selector("spec.selector")
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
