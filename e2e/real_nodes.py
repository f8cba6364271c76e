"""Real nodes: a kubelet and a containerd each, containers by runc, GPUs by a device plugin with made-up devices."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from e2e.api import STRATEGIC
from e2e.control_plane import ControlPlane
from e2e.prerequisites import CNI_PLUGINS
from e2e.processes import LOCAL, NotReady, Program, free_ports, until

HERE = Path(__file__).resolve().parent
CGROUPS = Path("/sys/fs/cgroup")
GPU = "nvidia.com/gpu"
SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward")
"""Kernel settings that the kubelet and CNI change; ``stop`` puts them back."""


class RealNodes:
    """Nodes ``real-0`` … with the label ``e2e/real=true``. Their names must be in the control plane's options.

    ``gpus``: of the resource ``nvidia.com/gpu`` on each. Write the id of a device (``fake-3``) into :meth:`sick` and it
    turns unhealthy."""

    def __init__(self, plane: ControlPlane, names: list[str], gpus: int = 0) -> None:
        self.plane = plane
        self.names = names
        self.gpus = gpus
        self.programs: list[Program] = []
        self._group = f"e2e-{secrets.token_hex(4)}"  # a process id is not its own outside its namespace
        self._sysctls: dict[str, str] = {}

    def __enter__(self) -> RealNodes:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes; each is Ready, and shows its GPUs, when this returns. Raises NotReady."""
        self._sysctls = {name: Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}
        try:
            for name in self.names:
                self._start(name)
            for name in self.names:
                self._wait(name)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all. With a node's process 1 the kernel ends its containers and mounts."""
        for program in reversed(self.programs):
            program.stop(signal.SIGKILL)
        for top in [*CGROUPS.glob(f"*/{self._group}"), *CGROUPS.glob(self._group)]:
            _remove_cgroup(top)
        for name, value in self._sysctls.items():
            Path("/proc/sys", name).write_text(value)

    def folder(self, name: str) -> Path:
        """Logs (``kubelet.log``, ``containerd.log``), configuration and state of a node."""
        return self.plane.folder / name

    def cdi(self, name: str) -> Path:
        """Where a node's containerd looks for CDI specifications."""
        return self.folder(name) / "cdi"

    def plugins(self, name: str) -> Path:
        """The kubelet's folder of device plugins on a node."""
        return self.folder(name) / "kubelet" / "device-plugins"

    def restart(self, name: str, program: str) -> None:
        """End a node's ``kubelet`` or ``containerd`` at once and let it start again; containers stay."""
        folder = self.folder(name)
        (folder / "restart").write_text(program)
        config = f"{folder}/{program}.{'json' if program == 'kubelet' else 'toml'}".encode()
        binary = str(self.plane.built.program(program)).encode()
        for one in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = one.read_bytes().split(b"\0")
            except OSError:
                continue  # it has ended
            if words[0] == binary and any(config in word for word in words):
                os.kill(int(one.parent.name), signal.SIGKILL)
                return
        raise NotReady(f"{name}: no {program} runs")

    def sick(self, name: str) -> Path:
        """The file that lists the node's unhealthy devices, one id a line."""
        return self.folder(name) / "sick-devices"

    # ---- one node ----

    def _start(self, name: str) -> None:
        folder = self.folder(name)
        for part in ("cni", "kubelet"):
            (folder / part).mkdir(parents=True)
        port, health = free_ports(2)
        group = f"/{self._group}/{name}"
        _make_cgroup(group)
        (folder / "resolv.conf").write_text("")
        (folder / "cni" / "10-e2e.conflist").write_text(json.dumps(self._network()))
        (folder / "containerd.toml").write_text(_containerd_config(folder))
        (folder / "kubelet.json").write_text(json.dumps(_kubelet_config(folder, port, health, group), indent=1))
        (folder / "commands.json").write_text(json.dumps(self._commands(name)))
        alone = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=SIGKILL"]
        words = [*alone, sys.executable, str(HERE / "node_init.py"), str(folder)]
        program = Program(name, words, folder / "init.log", lambda: self._import_images(folder))
        self.programs.append(program)
        program.start()
        (folder / "go").write_text("")
        if self.gpus:
            self._start_plugin(name)

    def _commands(self, name: str) -> dict[str, list[str]]:
        folder, program = self.folder(name), self.plane.built.program
        kubelet = [
            str(program("kubelet")),
            f"--config={folder}/kubelet.json",
            f"--kubeconfig={self.plane.kubeconfig(name)}",
            f"--hostname-override={name}",
            "--root-dir=/var/lib/kubelet",
            f"--cert-dir={folder}/kubelet-pki",
            "--cloud-provider=external",
            "--node-labels=e2e/real=true",
        ]
        return {"containerd": [str(program("containerd")), "--config", f"{folder}/containerd.toml"], "kubelet": kubelet}

    def _import_images(self, folder: Path) -> bool:
        """Import the images, as soon as containerd answers."""
        program = str(self.plane.built.program("ctr"))
        tool = [program, "--address", f"{folder}/containerd.sock", "--namespace", "k8s.io"]
        if subprocess.run([*tool, "version"], capture_output=True, check=False).returncode:
            return False
        subprocess.run([*tool, "images", "import", str(self.plane.built.images)], capture_output=True, check=True)
        return True

    def _start_plugin(self, name: str) -> None:
        folder = self.folder(name)
        self.sick(name).write_text("")
        plugins = self.plugins(name)
        words = [
            str(self.plane.built.program("fakedeviceplugin")),
            f"-resource={GPU}",
            f"-count={self.gpus}",
            f"-health={self.sick(name)}",
            f"-dir={plugins}",
        ]
        until(f"{name}: the kubelet's folder for device plugins", (plugins / "kubelet.sock").exists)
        plugin = Program(f"{name}-plugin", words, folder / "plugin.log")
        self.programs.append(plugin)
        plugin.start()

    def _wait(self, name: str) -> None:
        self._adopt(name)
        path = f"/api/v1/nodes/{name}"

        def ready() -> bool:
            node = self.plane.api().get(path)
            conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
            gpus = int(node["status"].get("allocatable", {}).get(GPU, 0))
            taints = [t["key"] for t in node["spec"].get("taints", [])]
            return conditions.get("Ready") == "True" and gpus == self.gpus and not any("not-ready" in t for t in taints)

        until(f"{name}: Ready with {self.gpus} GPUs; see {self.folder(name)}", ready, 90, 0.2)

    def _adopt(self, name: str) -> None:
        """Do a cloud provider's part: give the Node its address and lift its taint.

        The kubelet refuses a loopback --node-ip, and without an address `kubectl logs` and `exec` fail. With
        --cloud-provider=external it leaves the address to others, and the API takes 127.0.0.1."""
        api, path = self.plane.api(), f"/api/v1/nodes/{name}"
        until(f"{name}: registered; see {self.folder(name)}", lambda: api.raw("GET", path)[0] == 200, 90)
        addresses = [{"type": "InternalIP", "address": LOCAL}, {"type": "Hostname", "address": name}]
        api.patch(f"{path}/status", {"status": {"addresses": addresses}}, STRATEGIC)
        api.patch(path, {"spec": {"taints": None}})

    def _network(self) -> dict[str, Any]:
        """One bridge for the pods of all nodes, made by CNI. No masquerade, no way out of this machine."""
        addresses = {
            "type": "host-local",
            "ranges": [[{"subnet": "10.244.0.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.plane.folder / "cni-addresses"),
        }
        bridge = {"type": "bridge", "bridge": "e2e0", "isGateway": True, "ipMasq": False, "hairpinMode": True}
        return {"cniVersion": "1.0.0", "name": "e2e", "plugins": [bridge | {"ipam": addresses}, {"type": "loopback"}]}


def _kubelet_config(folder: Path, port: int, health: int, group: str) -> dict[str, Any]:
    socket = f"unix://{folder}/containerd.sock"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": LOCAL,
        "port": port,
        "healthzPort": health,
        "readOnlyPort": 0,
        # Reached from this machine only, so the API server may come as anyone (kubectl logs, exec).
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": group,
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "containerRuntimeEndpoint": socket,
        "imageServiceEndpoint": socket,
        "makeIPTablesUtilChains": False,
        "resolvConf": f"{folder}/resolv.conf",
        "clusterDomain": "cluster.local",
        "evictionHard": {"memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        "maxPods": 50,
        "nodeStatusUpdateFrequency": "5s",
        "volumePluginDir": f"{folder}/volumeplugins",
        "podLogsDir": f"{folder}/pod-logs",
        "logging": {"verbosity": 2},
    }


def _containerd_config(folder: Path) -> str:
    return f"""version = 3
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "registry.test/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true   # root in a container may lack CAP_SYS_RESOURCE
  disable_apparmor = true
  enable_cdi = true
  cdi_spec_dirs = ["{folder}/cdi"]
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{folder}/cni"
"""


def _make_cgroup(group: str) -> None:
    """The kubelet wants its root cgroup to be there. cgroup v1: in each hierarchy, a new cpuset being unusable until it
    is filled. v2: with the controllers handed down to it."""
    unified = (CGROUPS / "cgroup.controllers").exists()
    for top in [CGROUPS] if unified else [p for p in CGROUPS.iterdir() if p.is_dir() and not p.is_symlink()]:
        part = top
        for step in group.strip("/").split("/"):
            if unified:
                wanted = " ".join(f"+{name}" for name in (part / "cgroup.controllers").read_text().split())
                (part / "cgroup.subtree_control").write_text(wanted)
            part /= step
            part.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):
                if top.name == "cpuset" and not (part / name).read_text().strip():
                    (part / name).write_text((part.parent / name).read_text())


def _remove_cgroup(top: Path) -> None:
    for folder, _, _ in os.walk(top, topdown=False):
        end = time.monotonic() + 5
        while time.monotonic() < end:  # busy while the last process goes
            try:
                Path(folder).rmdir()
                break
            except OSError:
                time.sleep(0.1)
