"""Entries of kubeconfig files: clusters, users and contexts, each with the place where it stands.

Source of the fields: kubernetes/kubernetes staging/src/k8s.io/client-go/tools/clientcmd/api/v1/types.go.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from tonnage.documents import Document
from tonnage.errors import InputError

HINT = "expected a kubeconfig: kind: Config with clusters, users and contexts"
SECRET = frozenset({"token", "password", "client-key-data", "value"})
"""Fields of which no message says the value."""


class _Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    pass


class ContextEntry(_Kebab, frozen=True, kw_only=True):
    """Names a cluster, a user and the namespace that is meant where none is said."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class ClusterEntry(_Kebab, frozen=True, kw_only=True):
    """An API server, and how to know it."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    extensions: list[dict[str, Any]] = []


class ExecVariable(msgspec.Struct, frozen=True):
    """A variable of an exec plugin's environment."""

    name: str
    value: str = ""


class ExecEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An exec plugin: a command that prints credentials."""

    command: str
    api_version: str
    args: list[str] = []
    env: list[ExecVariable] = []
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class UserEntry(_Kebab, frozen=True, kw_only=True):
    """Who asks."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: ExecEntry | None = None
    auth_provider: dict[str, Any] = {}
    impersonate: str = msgspec.field(default="", name="as")


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: ContextEntry = ContextEntry()


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: ClusterEntry = ClusterEntry()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: UserEntry = UserEntry()


class _File(_Kebab, frozen=True, kw_only=True):
    kind: str = "Config"
    current_context: str = ""
    contexts: list[_NamedContext] = []
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []


Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class NamedEntry(Generic[Content]):
    """What stands under a name; ``at``: in which field of the document, such as ``users[0].user``."""

    name: str
    content: Content
    document: Document
    at: str

    def refusal(self, name: str, message: str, hint: str = "") -> InputError:
        """That something is wrong with the field of this name."""
        return InputError(self.document.problem(f"{self.at}.{name}", message, hint))

    def path(self, name: str, written: str) -> Path:
        """A path that stands in the entry: a relative one is relative to the file that it stands in."""
        return self.document.path.parent.absolute() / written

    def pem(self, name: str, written: str, data: str) -> bytes:
        """Certificates or a key as ``NAME-data`` (base64) or in the file ``NAME``; of both the data count, as for
        kubectl; empty where there is neither. Raises InputError."""
        if data:
            try:
                return base64.b64decode("".join(data.split()), validate=True)
            except (binascii.Error, ValueError) as error:
                raise self.refusal(f"{name}-data", f"not base64: {error}", "encode the PEM text in base64") from error
        if not written:
            return b""
        try:
            return self.path(name, written).read_bytes()
        except OSError as error:
            hint = "name a file that there is and that may be read"
            raise self.refusal(name, f"{written} cannot be read: {error.strerror}", hint) from error


@dataclass(slots=True)
class Kubeconfig:
    """Files as one: of a name that stands in two, and of current-context, the first counts, as for kubectl."""

    current_context: str = ""
    contexts: dict[str, NamedEntry[ContextEntry]] = field(default_factory=dict)
    clusters: dict[str, NamedEntry[ClusterEntry]] = field(default_factory=dict)
    users: dict[str, NamedEntry[UserEntry]] = field(default_factory=dict)

    def add(self, document: Document) -> None:
        """Add what a file says that those before it do not. Raises InputError: it is no kubeconfig."""
        read = document.convert(_File, SECRET)
        if read.kind != "Config":
            raise InputError(document.problem("kind", f"not a kubeconfig: {read.kind}", HINT))
        self.current_context = self.current_context or read.current_context
        for i, context in enumerate(read.contexts):
            found = NamedEntry(context.name, context.context, document, f"contexts[{i}].context")
            self.contexts.setdefault(context.name, found)
        for i, cluster in enumerate(read.clusters):
            self.clusters.setdefault(
                cluster.name, NamedEntry(cluster.name, cluster.cluster, document, f"clusters[{i}].cluster")
            )
        for i, user in enumerate(read.users):
            self.users.setdefault(user.name, NamedEntry(user.name, user.user, document, f"users[{i}].user"))
