"""The sockets of a DRA driver: one by which the kubelet finds it, one on which it prepares claims and says how its
devices are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tonnage.errors import InputError
from tonnage.node.dra_api import (
    HEALTH,
    PLUGIN,
    REGISTRATION,
    SERVICES,
    ClaimName,
    ClaimsRequest,
    DeviceHealthEntry,
    DevicesHealth,
    InfoRequest,
    PluginInfo,
    PrepareAnswer,
    PrepareAnswers,
    PreparedDevice,
    PrepareEntry,
    RegistrationAnswer,
    RegistrationStatus,
    UnprepareAnswer,
    UnprepareAnswers,
    UnprepareEntry,
    WatchRequest,
)
from tonnage.node.dra_claims import NotPrepared
from tonnage.node.sockets import started, streaming, unary

KUBELET = Path("/var/lib/kubelet")
TIMEOUT_S = 30
"""The kubelet takes the health of a device for unknown when it has heard nothing for so long."""
_AGAIN_S = 10.0
_THREADS = 16
_LONGEST_PATH = 107


class Prepares(Protocol):
    """Both raise NotPrepared or InputError with the reason."""

    def prepare(self, asked: ClaimName) -> list[PreparedDevice]: ...

    def unprepare(self, asked: ClaimName) -> None: ...


class DraServer:
    """The driver called ``name`` below the kubelet's folder ``root``. ``health``: the devices as they are now."""

    def __init__(
        self,
        name: str,
        root: Path,
        driver: Prepares,
        health: Callable[[], Sequence[DeviceHealthEntry]],
        say: Callable[[str], None],
    ) -> None:
        self._name, self._driver, self._health, self._say = name, driver, health, say
        self.registry = root / "plugins_registry" / f"{name}-reg.sock"
        self.socket = root / "plugins" / name / "dra.sock"
        for path in (self.registry, self.socket):
            if len(str(path).encode()) > _LONGEST_PATH:
                hint = f"a socket's path has at most {_LONGEST_PATH} bytes"
                raise InputError.at(f"{path} is too long", field="--kubelet-folder", hint=hint)
        self.registered = False
        """Whether the kubelet has taken the driver: before that no claim can be prepared."""
        self._servers: list[Any] = []
        self._changed = threading.Condition()
        self._round = 0

    def ensure(self) -> None:
        """Serve, on sockets that are there: who removes them finds them made again. Raises InputError where they cannot
        be made."""
        if self._servers and self.registry.exists() and self.socket.exists():
            return
        self.stop()
        services = {
            PLUGIN: {
                "NodePrepareResources": unary(self._prepare, ClaimsRequest),
                "NodeUnprepareResources": unary(self._unprepare, ClaimsRequest),
            },
            HEALTH: {"NodeWatchResources": streaming(self._watch, WatchRequest)},
        }
        info = PluginInfo(name=self._name, endpoint=str(self.socket), supported=list(SERVICES))
        registration = {
            "GetInfo": unary(lambda _, __: info, InfoRequest),
            "NotifyRegistrationStatus": unary(self._registered, RegistrationStatus),
        }
        self._serve(self.socket, services)
        self._serve(self.registry, {REGISTRATION: registration})  # last: the kubelet comes at once

    def _serve(self, path: Path, services: Mapping[str, Mapping[str, Any]]) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._servers.append(started(path, services, path.stem, _THREADS))
        except (OSError, RuntimeError) as error:
            hint = "name the kubelet's folder, which the agent may write"
            raise InputError.at(f"cannot serve there: {error}", file=str(path), hint=hint) from error

    def tell(self) -> None:
        """The health of some device has changed."""
        with self._changed:
            self._round += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """End both servers: the kubelet sees the driver go, and keeps what is prepared."""
        for server in self._servers:
            server.stop(grace=None)
        self._servers = []
        self.registered = False
        self.registry.unlink(missing_ok=True)
        self.tell()

    def _registered(self, status: RegistrationStatus, _: Any) -> RegistrationAnswer:
        self.registered = status.registered
        self._say("registered" if status.registered else f"the kubelet does not register it: {status.error}")
        return RegistrationAnswer()

    def _prepare(self, request: ClaimsRequest, _: Any) -> PrepareAnswers:
        return PrepareAnswers([PrepareEntry(one.uid, self._prepared(one)) for one in request.claims])

    def _prepared(self, asked: ClaimName) -> PrepareAnswer:
        try:
            return PrepareAnswer(self._driver.prepare(asked))
        except (NotPrepared, InputError) as error:
            self._say(f"not prepared: {error}")
            return PrepareAnswer(error=str(error))

    def _unprepare(self, request: ClaimsRequest, _: Any) -> UnprepareAnswers:
        return UnprepareAnswers([UnprepareEntry(one.uid, self._given_back(one)) for one in request.claims])

    def _given_back(self, asked: ClaimName) -> UnprepareAnswer:
        try:
            self._driver.unprepare(asked)
        except (NotPrepared, InputError) as error:
            self._say(f"claim {asked.namespace}/{asked.name} is not unprepared: {error}")
            return UnprepareAnswer(str(error))
        return UnprepareAnswer()

    def _watch(self, _: WatchRequest, context: Any) -> Iterator[DevicesHealth]:
        servers = self._servers
        while context.is_active() and self._servers is servers:
            with self._changed:
                round_ = self._round
            yield DevicesHealth(list(self._health()))
            with self._changed:
                if self._round == round_:
                    self._changed.wait(_AGAIN_S)
