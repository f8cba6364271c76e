"""monitoring.coreos.com/v1."""

from __future__ import annotations

from typing import Any

import msgspec

from tonnage.objects.base import Field, KubeObject
from tonnage.objects.core import LabelSelector


class Endpoint(Field, frozen=True, kw_only=True):
    """A port of the selected Services to scrape."""

    port: str = ""
    target_port: int | str | None = None
    path: str = ""
    interval: str = ""
    scrape_timeout: str = ""
    scheme: str = ""
    honor_labels: bool = False
    relabelings: list[dict[str, Any]] = []
    metric_relabelings: list[dict[str, Any]] = []


class NamespaceSelector(Field, frozen=True, kw_only=True):
    """Namespaces to look in; the monitor's own when empty."""

    any: bool = False
    match_names: list[str] = []


class ServiceMonitorSpec(Field, frozen=True, kw_only=True):
    """Which Services' endpoints Prometheus scrapes."""

    selector: LabelSelector
    endpoints: list[Endpoint]
    namespace_selector: NamespaceSelector = NamespaceSelector()
    job_label: str = ""
    target_labels: list[str] = []


class ServiceMonitor(KubeObject, kw_only=True):
    """monitoring.coreos.com/v1 ServiceMonitor."""

    spec: ServiceMonitorSpec


class Rule(Field, frozen=True, kw_only=True):
    """A recording rule (``record``) or an alerting rule (``alert``)."""

    expr: str | int
    record: str = ""
    alert: str = ""
    hold: str = msgspec.field(default="", name="for")
    keep_firing_for: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class RuleGroup(Field, frozen=True, kw_only=True):
    """Rules that are evaluated together, one after another."""

    name: str
    rules: list[Rule] = []
    interval: str = ""
    labels: dict[str, str] = {}


class PrometheusRuleSpec(Field, frozen=True, kw_only=True):
    """Groups of rules."""

    groups: list[RuleGroup] = []


class PrometheusRule(KubeObject, kw_only=True):
    """monitoring.coreos.com/v1 PrometheusRule."""

    spec: PrometheusRuleSpec
