"""The worlds that keep the contract, but for the real API server (tests/e2e)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tonnage.apiserver.api import Api
from tonnage.apiserver.http import Server
from tonnage.apiserver.inprocess import InProcess
from tonnage.kube.transport import Transport

APIS = ("embedded", "http")
WORLDS = ("simulated", *APIS, "faulty")


@contextmanager
def opened(kind: str) -> Iterator[Transport | None]:
    """The way to the API of a world of this kind; None where there is none."""
    if kind == "simulated":
        yield None
    elif kind == "http":
        from tonnage.apiserver import kubeconfig
        from tonnage.kube.http import open_cluster

        with Server(Api()) as server:
            client = open_cluster(str(kubeconfig.write(_temporary(), server.url)))
            yield client.transport
            client.transport.close()
    else:
        transport = InProcess(Api())
        yield transport
        transport.close()


def _temporary() -> object:
    import tempfile
    from pathlib import Path

    return Path(tempfile.mkdtemp()) / "config"
