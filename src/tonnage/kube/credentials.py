"""The Authorization header of requests: a token, a file with a token that rotates, a password, or an exec plugin."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

import msgspec

from tonnage.errors import InputError
from tonnage.kube import tls
from tonnage.kube.entries import ClusterEntry, ExecEntry, NamedEntry, UserEntry
from tonnage.kube.proxy import basic

_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
_EXEC_TIMEOUT_S = 60.0
_FILE_KEPT_S = 60.0
"""A token file is read again after this long, as by client-go (transport/token_source.go)."""
_FOR_EVER = float("inf")


class Credentials(Protocol):
    """Safe to call from several threads."""

    def header(self) -> str:
        """The value of the Authorization header; empty for none. Raises InputError when there is no getting it."""
        ...

    def renew(self, refused: str) -> bool:
        """The server answered 401 to ``refused``: whether there is another value now."""
        ...


class Fixed:
    """A value that stays: a token, a password; empty for no credentials, or a client certificate."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    def header(self) -> str:
        return self._value

    def renew(self, refused: str) -> bool:
        return False


class _Asked:
    """A value that is asked for when it is first needed, once it has expired, and when the server refuses it.
    ``now``: seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._value: str | None = None
        self._until = _FOR_EVER

    def header(self) -> str:
        value = self._value
        if value is None or self._now() >= self._until:
            with self._lock:
                if self._value is None or self._now() >= self._until:
                    self._value, self._until = self._ask()
                value = self._value
        return value

    def renew(self, refused: str) -> bool:
        with self._lock:
            if self._value == refused:
                self._value, self._until = self._ask()
            return self._value != refused

    def _ask(self) -> tuple[str, float]:
        """The value, and until when it holds. Raises InputError."""
        raise NotImplementedError


class TokenFile(_Asked):
    """A file with a token that somebody else renews, as the kubelet does for a pod's service account."""

    def __init__(self, file: Path, now: Callable[[], float] = time.time) -> None:
        super().__init__(now)
        self._file = file

    def _ask(self) -> tuple[str, float]:
        try:
            token = self._file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            if self._value is not None and self._now() >= self._until:
                return self._value, self._now() + _FILE_KEPT_S  # it is being replaced: what was there may still hold
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise InputError.at(f"no token: {why}", file=str(self._file), hint="check tokenFile of the user") from error
        if not token:
            raise InputError.at("no token: the file is empty", file=str(self._file), hint="check tokenFile of the user")
        return f"Bearer {token}", self._now() + _FILE_KEPT_S


class _ExecStatus(msgspec.Struct, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str
    kind: str
    status: _ExecStatus


class ExecPlugin(_Asked):
    """What the command of a kubeconfig prints: a token, or a certificate that goes into the TLS context.

    Source: kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins. It is run
    once, again when what it gave has expired, and when the server refuses that. It gets no terminal.
    """

    def __init__(
        self,
        plugin: ExecEntry,
        user: NamedEntry[UserEntry],
        cluster: NamedEntry[ClusterEntry],
        context: ssl.SSLContext | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(now)
        self._plugin, self._user, self._cluster, self._context = plugin, user, cluster, context
        if plugin.api_version not in _EXEC_VERSIONS:
            message = f"exec plugin {plugin.command}: apiVersion {plugin.api_version}"
            raise user.refusal("exec.apiVersion", message, f"expected {' or '.join(_EXEC_VERSIONS)}")
        if plugin.interactive_mode == "Always":
            hint = "use a plugin that works without one (interactiveMode: IfAvailable or Never), or log in beforehand"
            raise user.refusal("exec.interactiveMode", f"exec plugin {plugin.command} needs a terminal", hint)

    def _ask(self) -> tuple[str, float]:
        plugin = self._plugin
        command = plugin.command
        if os.sep in command:
            command = str(self._user.path("command", command))
        try:
            done = subprocess.run(
                [command, *plugin.args],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_EXEC_TIMEOUT_S,
                check=False,
            )
        except OSError as error:
            hint = " ".join((plugin.install_hint or "install it, or put it on PATH").split())
            raise self._failed(f"cannot be run: {error.strerror}", hint) from error
        except subprocess.TimeoutExpired as error:
            raise self._failed(f"gave no answer in {_EXEC_TIMEOUT_S:.0f} s", "does it ask something?") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines() or ["it says nothing"]
            raise self._failed(f"failed with {done.returncode}: {said[-1]}", "run it by hand, or log in again")
        return self._use(done.stdout)

    def _environment(self) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.provide_cluster_info:
            spec["cluster"] = self._cluster_info()
        info = {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}
        given = {one.name: one.value for one in self._plugin.env}
        return {**os.environ, **given, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _cluster_info(self) -> dict[str, Any]:
        known = self._cluster.content
        authority = self._cluster.pem(
            "certificate-authority", known.certificate_authority, known.certificate_authority_data
        )
        extensions = {one.get("name"): one.get("extension") for one in known.extensions}
        info: dict[str, Any] = {
            "server": known.server,
            "tls-server-name": known.tls_server_name,
            "insecure-skip-tls-verify": known.insecure_skip_tls_verify,
            "certificate-authority-data": base64.b64encode(authority).decode(),
            "proxy-url": known.proxy_url,
            "config": extensions.get(_EXEC_EXTENSION),
        }
        return {name: value for name, value in info.items() if value}

    def _use(self, printed: bytes) -> tuple[str, float]:
        version = self._plugin.api_version
        try:
            found = msgspec.json.decode(printed, type=_ExecCredential)
            if found.kind != "ExecCredential" or found.api_version != version:
                raise ValueError(f"{found.kind} of {found.api_version}, expected ExecCredential of {version}")
        except ValueError as error:  # msgspec.DecodeError is one
            raise self._failed(f"printed no ExecCredential that can be used: {error}") from error
        status = found.status
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("printed a certificate without its key, or a key alone")
        if not status.token and not status.client_certificate_data:
            raise self._failed("printed an ExecCredential with neither token nor certificate")
        if status.client_certificate_data and self._context is not None:
            try:
                tls.show(self._context, status.client_certificate_data.encode(), status.client_key_data.encode())
            except ValueError as error:
                raise self._failed(f"printed a certificate that cannot be used: {error}") from error
        expires = status.expiration_timestamp
        return f"Bearer {status.token}" if status.token else "", expires.timestamp() if expires else _FOR_EVER

    def _failed(self, what: str, hint: str = "") -> InputError:
        return InputError.at(f"exec plugin {self._plugin.command} {what}", hint=hint)


def credentials_of(
    user: NamedEntry[UserEntry] | None, cluster: NamedEntry[ClusterEntry], context: ssl.SSLContext | None
) -> Credentials:
    """Those of the user. Raises InputError: what is not supported, or two of a kind, as kubectl does.

    A token's file counts before the token itself, as in client-go, and both before an exec plugin."""
    if user is None:
        return Fixed()
    who = user.content
    if who.auth_provider:
        hint = "use an exec plugin: kubectl has not known auth-provider since v1.26"
        raise user.refusal("auth-provider", "auth-provider is not supported", hint)
    if who.impersonate:
        hint = "use a context of the user meant"
        raise user.refusal("as", "impersonation is not supported", hint)
    if (who.token or who.token_file) and (who.username or who.password):
        raise user.refusal("username", "a token and a password: expected one of them", "remove the other")
    if who.token_file:
        return TokenFile(user.path("tokenFile", who.token_file))
    if who.token:
        return Fixed(f"Bearer {who.token}")
    if who.exec is not None:
        return ExecPlugin(who.exec, user, cluster, context)
    return Fixed(basic(f"{who.username}:{who.password}")) if who.username or who.password else Fixed()
