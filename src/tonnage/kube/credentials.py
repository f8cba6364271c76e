"""The Authorization header of requests: from lightkube's credentials, or from an exec plugin."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tonnage.errors import InputError

if TYPE_CHECKING:
    import httpx2
    from lightkube.config.models import Cluster, UserExec

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_TIMEOUT_S = 60.0


class Credentials(Protocol):
    """Safe to call from several threads."""

    def header(self) -> str:
        """The value of the Authorization header; empty for none. Raises InputError when there is no getting it."""
        ...

    def renew(self, refused: str) -> bool:
        """The server answered 401 to ``refused``: whether there is another value now."""
        ...


class Anonymous:
    """No header: no credentials, or a client certificate."""

    def header(self) -> str:
        return ""

    def renew(self, refused: str) -> bool:
        return False


class FromAuth:
    """The header that one of lightkube's auth objects sets: a token, a file with a token that rotates, a password."""

    def __init__(self, auth: httpx2.Auth) -> None:
        self._auth = auth
        self._lock = threading.Lock()
        self._value: str | None = None

    def header(self) -> str:
        value = self._value
        if value is None:
            with self._lock:
                value = self._value = self._ask(refused=False)
        return value

    def renew(self, refused: str) -> bool:
        with self._lock:
            if self._value == refused:
                self._value = self._ask(refused=True)
            return self._value != refused

    def _ask(self, refused: bool) -> str:
        """Play the auth flow: it sets the header, and once more when it sees a 401."""
        import httpx2
        from lightkube.core.exceptions import ConfigError

        request = httpx2.Request("GET", "http://localhost/")
        try:
            flow = self._auth.sync_auth_flow(request)
            next(flow)
            if refused:
                with contextlib.suppress(StopIteration):  # it has no second answer
                    flow.send(httpx2.Response(401))
            flow.close()
        except (ConfigError, OSError) as error:
            raise InputError.at(f"no credentials: {error}", hint="check the user of the context") from error
        return str(request.headers.get("Authorization", ""))


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _ExecStatus


class ExecPlugin:
    """What the command of a kubeconfig prints: a token, or a certificate that goes into the TLS context.

    Source: kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins. It is run
    once, and again when the server refuses what it gave. It gets no terminal.
    """

    def __init__(self, plugin: UserExec, cluster: Cluster, tls: ssl.SSLContext | None) -> None:
        self._plugin, self._cluster, self._tls = plugin, cluster, tls
        self._lock = threading.Lock()
        self._value: str | None = None

    def header(self) -> str:
        value = self._value
        if value is None:
            with self._lock:
                if self._value is None:
                    self._value = self._run()
                value = self._value
        return value

    def renew(self, refused: str) -> bool:
        with self._lock:
            if self._value == refused:
                self._value = self._run()
            return self._value != refused

    def _run(self) -> str:
        plugin = self._plugin
        if plugin.apiVersion not in _EXEC_VERSIONS:
            raise InputError.at(
                f"exec plugin {plugin.command}: apiVersion {plugin.apiVersion}", hint=f"expected {_EXEC_VERSIONS[0]}"
            )
        try:
            done = subprocess.run(
                [plugin.command, *(plugin.args or ())],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_EXEC_TIMEOUT_S,
                check=False,
            )
        except (FileNotFoundError, PermissionError) as error:
            hint = " ".join((plugin.installHint or "install it, or put it on PATH").split())
            raise InputError.at(f"exec plugin {plugin.command} cannot be run: {error.strerror}", hint=hint) from error
        except subprocess.TimeoutExpired as error:
            raise InputError.at(
                f"exec plugin {plugin.command} gave no answer in {_EXEC_TIMEOUT_S:.0f} s", hint="does it ask something?"
            ) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
            raise InputError.at(
                f"exec plugin {plugin.command} failed with {done.returncode}: {said[-1]}",
                hint="run it by hand, or log in again",
            )
        return self._use(done.stdout)

    def _environment(self) -> dict[str, str]:
        cluster: dict[str, Any] = {"server": self._cluster.server, "insecure-skip-tls-verify": self._cluster.insecure}
        if self._cluster.certificate_auth_data:
            cluster["certificate-authority-data"] = self._cluster.certificate_auth_data
        info = {
            "apiVersion": self._plugin.apiVersion,
            "kind": "ExecCredential",
            "spec": {"cluster": cluster, "interactive": False},
        }
        given = {pair.name: pair.value for pair in self._plugin.env or ()}
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _use(self, printed: bytes) -> str:
        try:
            status = msgspec.json.decode(printed, type=_ExecCredential).status
            if status.client_certificate_data and self._tls is not None:
                _load(self._tls, status)
        except (msgspec.DecodeError, OSError) as error:
            raise InputError.at(
                f"exec plugin {self._plugin.command} printed no ExecCredential that can be used: {error}"
            ) from error
        return f"Bearer {status.token}" if status.token else ""


def _load(tls: ssl.SSLContext, status: _ExecStatus) -> None:
    """OpenSSL reads certificates from files only."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_text(f"{status.client_certificate_data}\n{status.client_key_data}\n", encoding="ascii")
        tls.load_cert_chain(pair)


def basic(userinfo: str) -> str:
    """The Basic credentials of ``user:password``."""
    return f"Basic {base64.b64encode(userinfo.encode()).decode()}"
