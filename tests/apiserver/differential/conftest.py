"""Two clusters side by side: the embedded API with its managers, and a real control plane without a scheduler.

Needs kube-apiserver, etcd, kube-controller-manager and kubectl (``kube_programs``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from custom_kinds import definition
from differential_checks import Side

import kube_programs
from e2e.build import Built
from e2e.control_plane import ControlPlane, Options
from e2e.processes import until
from tonnage.apiserver import kubeconfig
from tonnage.apiserver.api import Api
from tonnage.apiserver.controllers import ControllerManager, ManagerOptions
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.http import open_cluster
from tonnage.kube.resources import ALL, CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from tonnage.kube.verbs import Client

_CONTROLLERS = (
    "*",
    "-node-lifecycle-controller",
    "-node-ipam-controller",
    "-ttl-controller",
    "-root-ca-certificate-publisher-controller",
    "-job-controller",
)
"""The embedded API's managers taint no node whose lease nobody renews, publish no certificate and make no Jobs' pods."""


@pytest.fixture(scope="session")
def programs() -> Built:
    return kube_programs.needed()


@pytest.fixture(scope="module")
def real(programs: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    folder = tmp_path_factory.mktemp("real")
    options = Options(controllers=_CONTROLLERS, scheduler=False, admission_off=("TaintNodesByCondition",))
    with ControlPlane(programs, folder, options) as plane:
        client = open_cluster(str(plane.kubeconfig()))
        _without_tokens(client)
        published = programs.folders.get("karpenter")
        for resource in ALL:
            if resource.custom:
                plane.kubectl("apply", "--server-side", "-f", "-", stdin=definition(resource, published))
        for resource in ALL:
            if resource.custom:
                until(
                    f"{resource.plural} served",
                    lambda resource=resource: plane.api().raw("GET", resource.path())[0] == 200,
                    30,
                )
        yield Side("real", plane.kubeconfig(), kube_programs.kubectl(), client)
        client.transport.close()


def _without_tokens(client: Client) -> None:
    """Pods without a token to mount, and namespaces without a certificate: what the embedded API leaves out."""
    client.patch(SERVICE_ACCOUNTS, "default", {"automountServiceAccountToken": False}, "default")
    for namespace in client.list(NAMESPACES):
        name = namespace["metadata"]["name"]
        for config_map in client.list(CONFIG_MAPS, name):
            if config_map["metadata"]["name"] == "kube-root-ca.crt":
                client.delete(CONFIG_MAPS, "kube-root-ca.crt", name)


@pytest.fixture(scope="module")
def embedded(programs: Built, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    folder = tmp_path_factory.mktemp("embedded")
    api, stop = Api(), threading.Event()
    client = Client(InProcess(api))
    options = ManagerOptions(node_grace_s=0.0)
    managers = ControllerManager(client, lambda notify: api.store.subscribe(notify=notify), time.time, 1, options)
    thread = threading.Thread(target=managers.run, args=(stop,), daemon=True)
    with Server(api) as server:
        thread.start()
        path = kubeconfig.write(folder / "embedded.kubeconfig", server.url)
        yield Side("embedded", path, kube_programs.kubectl(), client)
        stop.set()
        thread.join(10)
