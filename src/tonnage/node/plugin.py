"""The device plugin of a node: one server a resource, kept true to the cards, their health and the configuration.

Every look (:meth:`DevicePlugin.look`) takes in what the cards reported, and what of them changed since: MIG instances
make other resources and another CDI specification, a fault makes a card and all that is on it unhealthy. A kubelet that
starts again finds every resource registered again. Nothing is announced that has no cause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from tonnage.errors import InputError
from tonnage.node import cdi, mps_daemon
from tonnage.node.allocate import AllocationError, Handing, answer
from tonnage.node.device_health import HealthChange
from tonnage.node.devices import Devices, Link
from tonnage.node.driver_files import DriverFiles
from tonnage.node.health_watch import HealthWatch
from tonnage.node.kubelet_api import (
    HEALTHY,
    KUBELET_SOCKET,
    UNHEALTHY,
    ContainerAllocateResponse,
    ContainerPreferredRequest,
)
from tonnage.node.mps_daemon import MpsCard, MpsDaemon
from tonnage.node.offers import NodeOffer, OfferedDevice, offer, preferred
from tonnage.node.plugin_server import PluginServer
from tonnage.partitioning import device_plugin, mps
from tonnage.partitioning.device_plugin import Config

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Places:
    """``kubelet``: its folder of device plugins. ``cdi``: the runtime's folder of specifications. ``mps``: that of MPS
    control daemons."""

    kubelet: Path
    cdi: Path = cdi.FOLDER
    mps: Path = mps_daemon.ROOT


class DevicePlugin:
    """``say``: is told of every change, in a line. ``run``: how programs of MPS are run. Not safe for several threads,
    but for what the kubelet asks."""

    def __init__(
        self,
        devices: Devices,
        files: DriverFiles,
        places: Places,
        config: Config,
        watch: HealthWatch,
        say: Say,
        run: mps_daemon.Run = mps_daemon.run_program,
    ) -> None:
        self._run, self._daemons, self._mps_said = run, dict[str, MpsDaemon](), ""
        self._devices, self._files, self._places, self._say = devices, files, places, say
        self.health = watch.health
        self._watch = watch
        self._links: Sequence[Link] = devices.links()
        self._servers: dict[str, PluginServer] = {}
        self._offer = NodeOffer()
        self._lock = threading.Lock()
        self._kubelet: tuple[int, int] | None = None
        self._waiting = False
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Go by another configuration from the next look on."""
        settings = device_plugin.settle(config)
        self._strategy = str(settings["migStrategy"].value)
        self._sharing = config.sharing
        self._packed = settings["plugin.sharedDevicesAllocationPolicy"].value == "packed"
        self._how = Handing.of(settings, one_each=config.sharing.one_each and config.sharing.strategy != "none")

    def look(self, now_ns: int, wait_s: float = 0) -> None:
        """Take in what happened, waiting up to ``wait_s`` for the first of it. Raises InputError where the driver
        fails."""
        events = self._devices.events(wait_s)
        for change in self._watch.take(events, now_ns):
            self._say(_said(change))
        self._refresh(now_ns)
        self._serve()

    def close(self) -> None:
        """End all servers, and the MPS control daemons that were started here."""
        for server in self._servers.values():
            server.stop()
        for daemon in self._daemons.values():
            daemon.stop()

    def _refresh(self, now_ns: int) -> None:
        """Offer what there is now; the CDI specification first, so that nothing is offered that it has not."""
        found = offer(self._devices, self._strategy, self._sharing)
        spec = cdi.spec_of(self._devices, self._files, cdi.PLUGIN_KIND, cdi.NameStrategies(("uuid",)))
        if cdi.write(spec, self._spec):
            self._say(f"CDI specification {self._spec}: {len(spec['devices'])} devices")
        for problem in found.problems:
            if problem not in self._offer.problems:
                self._say(problem)
        waiting = self._share(found, now_ns)
        with self._lock:
            self._offer = found
        for resource in found.resources:
            if resource not in self._servers:
                server = PluginServer(resource, self._places.kubelet, self._allocate, self._prefer)
                self._servers[resource] = server
        for resource, server in self._servers.items():
            devices = found.resources.get(resource, ())
            well_shared = resource not in waiting
            listed = [(one.id, self._state(one) if well_shared else UNHEALTHY, one.numa) for one in devices]
            if server.publish(listed):
                well = sum(health == HEALTHY for _, health, _ in listed)
                self._say(f"{resource}: {len(listed)} devices, {well} healthy")

    def _share(self, found: NodeOffer, now_ns: int) -> set[str]:
        """Have an MPS control daemon for each resource that is shared so; those whose daemon does not answer."""
        wanted = self._mps_cards(found)
        for resource, daemon in list(self._daemons.items()):
            if daemon.made_of != wanted.get(resource):
                daemon.stop()
                del self._daemons[resource]
        waiting, said = set(), []
        for resource, (cards, replicas) in wanted.items():
            if resource not in self._daemons:
                made = MpsDaemon(resource, self._places.mps, cards, replicas, self._run)
                self._daemons[resource] = made
            if not self._daemons[resource].look(now_ns):
                waiting.add(resource)
                said.append(self._daemons[resource].problem)
        if (text := "; ".join(said)) != self._mps_said:
            self._mps_said = text
            self._say(text or "the MPS control daemons answer")
        return waiting

    def _mps_cards(self, found: NodeOffer) -> dict[str, tuple[tuple[MpsCard, ...], int]]:
        """By resource whose replicas share cards by MPS: those cards, and the number of replicas of each."""
        if self._sharing.strategy != "mps":
            return {}
        gpus = {one.uuid: one.gpu for one in self._devices.cards()}
        wanted = {}
        for resource, offered in found.resources.items():
            replicas = 1 + max((one.replica if one.replica is not None else 0 for one in offered), default=0)
            if replicas < 2:
                continue
            cards = {one.gpu_uuid: one.card for one in offered}
            each = (
                MpsCard(uuid, index, mps.limits(gpus[uuid], replicas).memory_mib if gpus[uuid] else None)
                for uuid, index in cards.items()
            )
            wanted[resource] = tuple(each), replicas
        return wanted

    def _state(self, one: OfferedDevice) -> str:
        return HEALTHY if self.health.healthy(one.gpu_uuid) else UNHEALTHY

    def _serve(self) -> None:
        """Every resource is served and registered with the kubelet that runs now."""
        try:
            found = (self._places.kubelet / KUBELET_SOCKET).stat()
        except OSError as error:
            if not self._waiting:
                self._say(
                    f"no {KUBELET_SOCKET} in {self._places.kubelet} ({error.strerror}): nothing is registered yet"
                )
            self._waiting = True
            return
        self._waiting = False
        another = (found.st_ino, found.st_ctime_ns) != self._kubelet
        self._kubelet = (found.st_ino, found.st_ctime_ns)
        for resource, server in self._servers.items():
            if server.serving and not another:
                continue
            server.start()
            try:
                server.register()
            except grpc.RpcError as error:
                server.stop()
                self._kubelet = None
                self._say(f"{resource}: the kubelet does not register it: {error}; tried again")
            else:
                self._say(f"{resource}: registered")

    # ---- what the kubelet asks, in threads of the servers ----

    def _known(self, resource: str) -> Mapping[str, OfferedDevice]:
        with self._lock:
            return {one.id: one for one in self._offer.resources.get(resource, ())}

    def _allocate(self, resource: str, ids: Sequence[str]) -> ContainerAllocateResponse:
        known = self._known(resource)
        nodes = self._nodes()
        if any(known[one].uuid not in nodes for one in ids if one in known):
            self._write_spec()
            nodes = self._nodes()
        made = answer(resource, known, ids, self._how, nodes)
        daemon = self._daemons.get(resource)
        if daemon is not None:
            if not mps_daemon.answers(mps_daemon.pipe_folder(resource, self._places.mps)):
                raise AllocationError(f"{resource}: its MPS control daemon does not answer")
            environment, mounts = mps_daemon.handed_out(resource, self._places.mps)
            made.envs |= environment
            made.mounts = [*made.mounts, *mounts]
        return made

    def _prefer(self, resource: str, asked: ContainerPreferredRequest) -> list[str]:
        known = self._known(resource)
        return preferred(known, asked.available, asked.must_include, asked.size, self._links, packed=self._packed)

    def _write_spec(self) -> None:
        spec = cdi.spec_of(self._devices, self._files, cdi.PLUGIN_KIND, cdi.NameStrategies(("uuid",)))
        try:
            cdi.write(spec, self._spec)
        except InputError as error:
            raise AllocationError(str(error)) from error

    def _nodes(self) -> dict[str, list[str]]:
        """Device nodes by name, of the specification as it stands on disk."""
        found = cdi.read(self._spec)
        devices = found.get("devices", ()) if found is not None else ()
        return {
            one["name"]: [node["path"] for node in one.get("containerEdits", {}).get("deviceNodes", ())]
            for one in devices
        }

    @property
    def _spec(self) -> Path:
        return cdi.path_of(cdi.PLUGIN_KIND, self._places.cdi)


def _said(change: HealthChange) -> str:
    return f"GPU {change.gpu} is {'healthy' if change.healthy else 'unhealthy'}: {change.message}"
