"""What the embedded API answers beside its resources: ``/metrics``, and a list of which nothing can ever be there.

Source of the names of metrics: kubernetes/kubernetes v1.36 component-base/metrics (kubernetes_build_info) and
apiserver/pkg/storage/etcd3/metrics (apiserver_resource_objects).
"""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from tonnage.apiserver.discovery import version
from tonnage.apiserver.kinds import Kinds
from tonnage.apiserver.render import reply
from tonnage.apiserver.request import ApiRequest
from tonnage.apiserver.status import DOCS
from tonnage.apiserver.store import Store
from tonnage.kube.transport import Reply

_NEVER_ANY = re.compile(r"/api/v1(/namespaces/[^/]+)?/replicationcontrollers")
"""`kubectl cluster-info dump` lists them, and ends when it cannot."""
_ABOUT = (
    f"# {DOCS}.\n"
    "# It says what it holds. Metrics of the cluster's nodes, pods and engines: tonnage up --prometheus-port PORT\n"
)


def answer(request: ApiRequest, store: Store, kinds: Kinds) -> Reply | None:
    """The answer to a GET of one of these paths; None for others."""
    if request.method != "GET":
        return None
    if request.path == "/metrics":
        return Reply(200, _ABOUT.encode() + _metrics(store, kinds), {"content-type": CONTENT_TYPE_LATEST})
    if _NEVER_ANY.fullmatch(request.path) and not request.is_set("watch"):
        meta = {"resourceVersion": str(store.version)}
        return reply(200, {"kind": "ReplicationControllerList", "apiVersion": "v1", "metadata": meta, "items": []})
    return None


def _metrics(store: Store, kinds: Kinds) -> bytes:
    said = version()
    labels = {"git_version": said["gitVersion"], "major": said["major"], "minor": said["minor"]}
    labels |= {"compiler": said["compiler"], "platform": said["platform"]}
    build = GaugeMetricFamily("kubernetes_build_info", "What serves this API: always 1.", labels=sorted(labels))
    build.add_metric([labels[name] for name in sorted(labels)], 1)
    objects = GaugeMetricFamily("apiserver_resource_objects", "Objects stored.", labels=["group", "resource"])
    for resource in sorted(kinds.served, key=lambda one: (one.group, one.plural)):
        objects.add_metric([resource.group, resource.plural], store.count(resource))
    registry = CollectorRegistry()
    registry.register(_Once([build, objects]))
    return generate_latest(registry)


class _Once:
    """Implements Collector over what is known already."""

    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> list[GaugeMetricFamily]:
        return self._families
