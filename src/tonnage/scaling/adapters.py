"""Who among a set of objects serves custom.metrics.k8s.io and external.metrics.k8s.io, and which metrics.

Sources: kubernetes-sigs/prometheus-adapter docs/config.md, docs/externalmetrics.md; the READMEs of the other adapters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct

from tonnage.objects.autoscaling import HorizontalPodAutoscaler
from tonnage.objects.base import KubeObject, Unknown
from tonnage.objects.keda import ScaledObject

CUSTOM = "custom"
EXTERNAL = "external"

_PROGRAMS = re.compile(
    r"prometheus-adapter|kube-metrics-adapter|stackdriver-adapter|custom-metrics-adapter|cloudwatch-adapter|"
    r"azure-k8s-metrics-adapter|cluster-agent"
)
"""Images and charts of adapters: what they serve is said by rules that need not be here."""
_API = re.compile(r"\.(custom|external)\.metrics\.k8s\.io$")
_SERIES = re.compile(r"""seriesQuery["']?:\s*['"]?([^\s'",]*)""")
_NAMED = re.compile(r"""\bas["']?:\s*['"]?([^\s'",}]+)""")


class AdapterMetrics(Struct, frozen=True):
    """``apis``: the APIs that somebody serves; ``names``: the metrics by the rules that can be read, None: any."""

    apis: frozenset[str] = frozenset()
    names: frozenset[str] | None = None

    def has(self, api: str, metric: str) -> bool:
        """Whether the metric is served, as far as can be known."""
        return api in self.apis and (self.names is None or metric in self.names)


def served(objects: Iterable[KubeObject]) -> AdapterMetrics:
    """What adapters among the objects serve; KEDA, which serves only what its ScaledObjects ask, is none."""
    apis, names, any_name = set[str](), set[str](), False
    for one in objects:
        if isinstance(one, HorizontalPodAutoscaler | ScaledObject):
            continue
        found = _API.search(one.name) if one.kind == "APIService" else None
        if found is not None:
            apis.add(found[1])
        for text in _texts(one.content if isinstance(one, Unknown) else one.written):
            if _PROGRAMS.search(text):
                apis |= {CUSTOM, EXTERNAL}
            if "seriesQuery" in text:
                apis.add(CUSTOM if "\nrules:" in f"\n{text}" else EXTERNAL)
                apis |= {EXTERNAL} if "externalRules:" in text else set()
                names |= {series.partition("{")[0] for series in _SERIES.findall(text)}
                as_ = _NAMED.findall(text)
                names |= set(as_)
                any_name = any_name or "matches" in text or any("$" in name for name in as_) or "" in names
    return AdapterMetrics(frozenset(apis), frozenset(names) if names and not any_name else None)


def _texts(value: Any, key: str = "") -> Iterator[str]:
    """Every text in an object; rules that are written as fields as the text that they would be."""
    if isinstance(value, dict):
        if "seriesQuery" in value:
            naming = value.get("name")
            as_ = naming.get("as", "$") if isinstance(naming, dict) else value["seriesQuery"]
            yield f"rules:\nexternalRules:\nseriesQuery: {value['seriesQuery']}\nas: {as_}"
        for name, inner in value.items():
            yield from _texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner, key)
    elif isinstance(value, str):
        yield value
