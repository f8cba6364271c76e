"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler on loopback, ready in about five seconds.

Everything that they write lies in one folder: logs, kubeconfigs (``<user>.kubeconfig``), certificates, data.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from e2e import pki
from e2e.api import Api, Json
from e2e.build import Built
from e2e.processes import LOCAL, Program, free_ports, until

ADMIN = "admin"
API_SERVER, ETCD = "kube-apiserver", "etcd"
MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
SERVICE_CIDR, POD_CIDR = "10.0.0.0/24", "10.244.0.0/16"
UNTOUCHED = ("TaintNodesByCondition", "ServiceAccount")
"""Admission plugins to leave out where no controllers run: each wants one to do its part."""
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@dataclass(frozen=True)
class Options:
    """How a control plane differs from the usual.

    ``controllers``: kube-controller-manager's; without any it is not started. ``users``: name → groups; each has a
    token and a kubeconfig, and no rights until :meth:`ControlPlane.grant`. ``audit``: record every request at level
    Metadata. ``client_qps``: the limit of requests a second of controllers and scheduler, 0 for their defaults.
    ``flags``: more flags by component.
    """

    controllers: Sequence[str] = ("*",)
    scheduler: bool = True
    admission_off: Sequence[str] = ()
    users: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nodes: Sequence[str] = ()
    """Names of nodes that kubelets will register: each has a kubeconfig ``<name>.kubeconfig``."""
    held: Sequence[str] = ()
    """Components that are defined and not started: ``programs[name].start()`` does it."""
    audit: bool = False
    client_qps: int = 0
    flags: Mapping[str, Sequence[str]] = field(default_factory=dict)


class ControlPlane:
    """Started by ``start`` or a ``with`` block. ``programs``: by component, to be killed and started again."""

    def __init__(self, built: Built, folder: Path, options: Options | None = None) -> None:
        self.built = built
        self.folder = folder
        self.options = options or Options()
        self.programs: dict[str, Program] = {}
        self.ready_after_s: dict[str, float] = {}
        self._ports = dict(zip((ETCD, "peer", API_SERVER, MANAGER, SCHEDULER), free_ports(5), strict=True))
        self._tokens: dict[str, str] = {}
        self._apis: dict[str, Api] = {}

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{LOCAL}:{self._ports[API_SERVER]}"

    @property
    def ca(self) -> Path:
        return self.folder / "pki" / "ca.crt"

    # ---- start and stop ----

    def __enter__(self) -> ControlPlane:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start all, each when what it needs is ready. Raises NotReady."""
        self.folder.mkdir(parents=True, exist_ok=True)
        pki.write(self.folder / "pki")
        self._write_users()
        self._define(ETCD, self._etcd_flags(), f"http://{LOCAL}:{self._ports[ETCD]}/health")
        self._define(API_SERVER, self._api_server_flags(), f"{self.server}/readyz")
        if self.options.controllers:
            self._define(MANAGER, self._manager_flags(), f"https://{LOCAL}:{self._ports[MANAGER]}/healthz")
        if self.options.scheduler:
            self._define(SCHEDULER, self._scheduler_flags(), f"https://{LOCAL}:{self._ports[SCHEDULER]}/readyz")
        try:
            for name in (ETCD, API_SERVER):
                self.ready_after_s[name] = self.programs[name].start()
            others = [
                program for name, program in self.programs.items() if name not in (ETCD, API_SERVER, *self.options.held)
            ]
            for program in others:
                program.start(wait=False)
            for program in others:
                program.wait_ready()
            if self.options.controllers:
                self._await_service_account("default")
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill all. The data is of no use afterwards, so nothing is asked to end in good order."""
        for program in reversed(self.programs.values()):
            program.stop(signal.SIGKILL)

    def kill(self, component: str) -> None:
        """End a component at once, as a crash would (kill -9)."""
        self.programs[component].stop(signal.SIGKILL)

    def restart(self, component: str = API_SERVER) -> float:
        """Kill a component and start it again; seconds until it was ready."""
        self.kill(component)
        return self.programs[component].start()

    def _define(self, name: str, flags: Sequence[str | Path], ready_url: str) -> None:
        words = [self.built.program(name), *flags, *self.options.flags.get(name, ())]
        self.programs[name] = Program(name, words, self.folder / f"{name}.log", lambda: _answers(ready_url))

    # ---- access ----

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """The kubeconfig of a user. Raises KeyError for one that the options did not name."""
        if user not in self._tokens:
            raise KeyError(user)
        return self.folder / f"{user}.kubeconfig"

    def api(self, user: str = ADMIN) -> Api:
        """A plain client with the user's token."""
        if user not in self._apis:
            self._apis[user] = Api(self.server, str(self.ca), self._tokens[user])
        return self._apis[user]

    def kubectl(
        self, *words: str | Path, user: str = ADMIN, stdin: str | bytes | Json | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the user. ``stdin``: text or an object. With ``check`` a failure raises CalledProcessError."""
        text = json.dumps(stdin) if isinstance(stdin, dict) else stdin.decode() if isinstance(stdin, bytes) else stdin
        return subprocess.run(
            [str(self.built.program("kubectl")), *map(str, words)],
            input=text,
            capture_output=True,
            text=True,
            check=check,
            env=os.environ | {"KUBECONFIG": str(self.kubeconfig(user)), "HOME": str(self.folder)},
        )

    def grant(self, user: str, rules: Sequence[Json], namespace: str = "") -> None:
        """Give a user RBAC rules, in one namespace or everywhere."""
        scope = f"/namespaces/{namespace}" if namespace else ""
        kind = "Role" if namespace else "ClusterRole"
        name = f"e2e-{user}-{secrets.token_hex(3)}"
        group = "rbac.authorization.k8s.io"
        api, meta = self.api(), {"name": name}
        path = f"{_RBAC}{scope}/{kind.lower()}"
        api.create(f"{path}s", {"apiVersion": f"{group}/v1", "kind": kind, "metadata": meta, "rules": list(rules)})
        binding = {
            "apiVersion": f"{group}/v1",
            "kind": f"{kind}Binding",
            "metadata": meta,
            "roleRef": {"apiGroup": group, "kind": kind, "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
        api.create(f"{path}bindings", binding)

    def write_kubeconfig(self, name: str, token: str, namespace: str = "default") -> Path:
        """A kubeconfig with any token; its context is ``e2e``."""
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": self.server, "certificate-authority": str(self.ca)}
        context = {"cluster": "e2e", "user": name, "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{"name": "e2e", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "e2e", "context": context}],
        }
        path.write_text(json.dumps(config, indent=1))  # JSON is YAML
        path.chmod(0o600)
        return path

    def namespace(self, name: str) -> str:
        """Make a namespace, ready for pods; returns its name."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.api().create("/api/v1/namespaces", body)
        if self.options.controllers:
            self._await_service_account(name)
        return name

    def _await_service_account(self, namespace: str) -> None:
        """Admission refuses pods until the controller has made it."""

        def there() -> bool:
            status, _ = self.api().raw("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
            return status == 200

        until(f"service account of namespace {namespace}", there, 30)

    # ---- what tests look at and break ----

    def audit(self) -> list[Json]:
        """The audit events so far, oldest first (``verb``, ``user``, ``objectRef``, ``responseStatus``, …)."""
        lines = (self.folder / "audit.log").read_bytes().split(b"\n")
        return [json.loads(line) for line in lines[:-1]]

    def compact(self) -> int:
        """Compact etcd up to now; returns the revision. A watch from an earlier resourceVersion then gets 410 Expired
        once the API server was restarted: until then its watch cache still has the events."""
        url = f"http://{LOCAL}:{self._ports[ETCD]}/v3/kv"
        revision = int(_post(f"{url}/range", {"key": "AA=="})["header"]["revision"])
        _post(f"{url}/compaction", {"revision": revision, "physical": True})
        return revision

    def backup(self) -> Path:
        """A copy of etcd's data as of now; etcd is paused meanwhile. For :meth:`restore`."""
        etcd = self.programs[ETCD].process
        assert etcd is not None
        copy = self.folder / f"etcd-backup-{secrets.token_hex(3)}"
        etcd.send_signal(signal.SIGSTOP)
        try:
            shutil.copytree(self.folder / ETCD, copy)
        finally:
            etcd.send_signal(signal.SIGCONT)
        return copy

    def restore(self, backup: Path, *, under_api_server: bool = False) -> float:
        """Put etcd's data back, with the API server stopped, as Kubernetes' documentation asks for; seconds until the
        API server is ready. Revisions go on from those of the backup, and are given out again.

        ``under_api_server``: without stopping it, as nobody should; it goes on to list what was."""
        stopped = (ETCD,) if under_api_server else (API_SERVER, ETCD)
        for component in stopped:
            self.kill(component)
        shutil.rmtree(self.folder / ETCD)
        shutil.copytree(backup, self.folder / ETCD)
        return sum(self.programs[component].start() for component in reversed(stopped))

    def metric(self, component: str, name: str, labels: str = "") -> float | None:
        """A sample that the scheduler or the controller manager shows now; ``labels`` as written there."""
        text = _get(f"https://{LOCAL}:{self._ports[component]}/metrics").decode()
        wanted = f"{name}{{{labels}}}" if labels else name
        found = [line for line in text.splitlines() if line.startswith(f"{wanted} ")]
        return float(found[0].rpartition(" ")[2]) if found else None

    # ---- flags ----

    def _write_users(self) -> None:
        users: dict[str, tuple[str, Sequence[str]]] = {
            ADMIN: (ADMIN, ["system:masters"]),
            MANAGER: (f"system:{MANAGER}", []),
            SCHEDULER: (f"system:{SCHEDULER}", []),
            **{name: (f"system:node:{name}", ["system:nodes"]) for name in self.options.nodes},
            **{name: (name, groups) for name, groups in self.options.users.items()},
        }
        lines = []
        for who, (name, groups) in users.items():
            self._tokens[who] = secrets.token_hex(16)
            lines.append(f'{self._tokens[who]},{name},{who},"{",".join(groups)}"\n')
            self.write_kubeconfig(who, self._tokens[who])
        path = self.folder / "tokens.csv"
        path.write_text("".join(lines))
        path.chmod(0o600)

    def _etcd_flags(self) -> list[str]:
        clients, peers = (f"http://{LOCAL}:{self._ports[port]}" for port in (ETCD, "peer"))
        return [
            f"--data-dir={self.folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--log-level=warn",
        ]

    def _api_server_flags(self) -> list[str]:
        keys = self.folder / "pki"
        flags = [
            f"--etcd-servers=http://{LOCAL}:{self._ports[ETCD]}",
            f"--secure-port={self._ports[API_SERVER]}",
            f"--bind-address={LOCAL}",
            f"--advertise-address={LOCAL}",
            "--endpoint-reconciler-type=none",  # a loopback address is not a valid endpoint
            f"--tls-cert-file={keys}/apiserver.crt",
            f"--tls-private-key-file={keys}/apiserver.key",
            f"--client-ca-file={keys}/ca.crt",
            f"--token-auth-file={self.folder}/tokens.csv",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={keys}/sa.pub",
            f"--service-account-signing-key-file={keys}/sa.key",
            f"--requestheader-client-ca-file={keys}/front-proxy-ca.crt",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={keys}/front-proxy-client.crt",
            f"--proxy-client-key-file={keys}/front-proxy-client.key",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
            "--v=1",
        ]
        if self.options.admission_off:
            flags.append(f"--disable-admission-plugins={','.join(self.options.admission_off)}")
        return flags + (self._audit_flags() if self.options.audit else [])

    def _audit_flags(self) -> list[str]:
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        (self.folder / "audit-policy.json").write_text(json.dumps(policy))
        return [f"--audit-policy-file={self.folder}/audit-policy.json", f"--audit-log-path={self.folder}/audit.log"]

    def _manager_flags(self) -> list[str]:
        keys = self.folder / "pki"
        return [
            *self._client_flags(MANAGER),
            f"--controllers={','.join(self.options.controllers)}",
            f"--service-account-private-key-file={keys}/sa.key",
            f"--root-ca-file={keys}/ca.crt",
            f"--cluster-signing-cert-file={keys}/ca.crt",
            f"--cluster-signing-key-file={keys}/ca.key",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=true",
            f"--cluster-cidr={POD_CIDR}",
            f"--service-cluster-ip-range={SERVICE_CIDR}",
            "--v=1",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [*self._client_flags(SCHEDULER), "--v=2"]

    def _client_flags(self, component: str) -> list[str]:
        qps = self.options.client_qps
        return [
            f"--kubeconfig={self.kubeconfig(component)}",
            "--leader-elect=false",
            f"--bind-address={LOCAL}",
            f"--secure-port={self._ports[component]}",
            f"--cert-dir={self.folder}/{component}-cert",
            "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
            *([f"--kube-api-qps={qps}", f"--kube-api-burst={2 * qps}"] if qps else []),
        ]


def _answers(url: str) -> bool:
    return bool(_get(url))


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=3, context=_unverified(url)) as reply:
        data: bytes = reply.read()
        return data


def _post(url: str, body: Any) -> Json:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        answer: Json = json.load(reply)
        return answer


def _unverified(url: str) -> ssl.SSLContext | None:
    """Each component has a certificate of its own making."""
    if not url.startswith("https"):
        return None
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
