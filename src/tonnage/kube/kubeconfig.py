"""Which API server, and as whom: kubeconfig files, and the service account of a pod."""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tonnage import documents
from tonnage.errors import InputError
from tonnage.kube import tls
from tonnage.kube.credentials import Credentials, TokenFile, credentials_of
from tonnage.kube.entries import HINT, ContextEntry, Kubeconfig, NamedEntry
from tonnage.kube.proxy import EXPECTED, Proxy
from tonnage.objects.base import DEFAULT_NAMESPACE

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach one API server. ``context`` names it to a person; ``source`` is where that was read."""

    server: str
    context: str
    namespace: str
    source: str
    tls: ssl.SSLContext | None
    credentials: Credentials
    server_name: str = ""
    proxy: str = ""


def load(
    kubeconfig: str = "",
    context: str = "",
    *,
    env: Mapping[str, str] = os.environ,
    service_account: str = SERVICE_ACCOUNT,
) -> Access:
    """The access that a kubeconfig gives, looked for where kubectl looks: the file named, the files of ``KUBECONFIG``,
    ``~/.kube/config``, and at last the service account of the pod that this runs in.

    Raises InputError when there is none, when it cannot be read, or when it lacks the context.
    """
    files = _files(kubeconfig, env)
    if files:
        merged = Kubeconfig()
        for file in files:
            text = documents.text_of(file, "a kubeconfig", HINT)
            root = documents.compose(text, file, HINT)
            if root is not None:
                merged.add(documents.Document(file, documents.without_nulls(root), HINT))
        return _access(merged, context, os.pathsep.join(str(file) for file in files))
    host, port = env.get("KUBERNETES_SERVICE_HOST"), env.get("KUBERNETES_SERVICE_PORT")
    if not context and host and port and (Path(service_account) / "token").is_file():
        return _in_cluster(host, port, Path(service_account))
    looked = f"KUBECONFIG={env['KUBECONFIG']}" if env.get("KUBECONFIG") else "~/.kube/config"
    raise InputError.at(
        f"no kubeconfig: {looked} does not exist, and this is not a pod with a service account",
        hint="name one with --kubeconfig FILE or KUBECONFIG",
    )


def _files(kubeconfig: str, env: Mapping[str, str]) -> list[Path]:
    if kubeconfig:
        file = Path(kubeconfig).expanduser()
        if not file.is_file():
            raise InputError.at("no such kubeconfig", file=kubeconfig, hint="name an existing file with --kubeconfig")
        return [file]
    listed = [Path(part).expanduser() for part in env.get("KUBECONFIG", "").split(os.pathsep) if part]
    if not listed:
        listed = [Path(env.get("HOME", "~")).expanduser() / ".kube" / "config"]
    return [file for file in listed if file.is_file()]


def _access(merged: Kubeconfig, context: str, source: str) -> Access:
    chosen = _context(merged, context or merged.current_context, source)
    wanted = chosen.content
    cluster = _named(merged.clusters, "cluster", wanted.cluster, chosen)
    user = _named(merged.users, "user", wanted.user, chosen) if wanted.user else None
    server = cluster.content.server
    if not server.startswith(("http://", "https://")):
        raise cluster.refusal("server", f"server: {server!r}", "expected http://… or https://…")
    if cluster.content.proxy_url:
        try:
            Proxy.of(cluster.content.proxy_url)
        except ValueError as error:
            raise cluster.refusal("proxy-url", str(error), EXPECTED) from error
    encrypted = tls.context_for(cluster, user) if server.startswith("https://") else None
    return Access(
        server.rstrip("/"),
        chosen.name,
        wanted.namespace or DEFAULT_NAMESPACE,
        source,
        encrypted,
        credentials_of(user, cluster, encrypted),
        cluster.content.tls_server_name,
        cluster.content.proxy_url,
    )


def _context(merged: Kubeconfig, name: str, source: str) -> NamedEntry[ContextEntry]:
    names = list(merged.contexts)
    if not name:
        hint = f"name one with --context: {', '.join(names) or 'there is none'}"
        raise InputError.at("no current-context", file=source, hint=hint)
    if name not in merged.contexts:
        near = difflib.get_close_matches(name, names, 3, 0.5) or sorted(names)[:8]
        hint = f"there is: {', '.join(near)}" if near else "it has no contexts"
        raise InputError.at(f"no context {name!r}", file=source, hint=hint)
    return merged.contexts[name]


T = TypeVar("T")


def _named(
    entries: Mapping[str, NamedEntry[T]], what: str, name: str, context: NamedEntry[ContextEntry]
) -> NamedEntry[T]:
    if name not in entries:
        known = ", ".join(sorted(entries)[:8])
        hint = f"there is: {known}" if known else f"add it to {what}s"
        raise context.refusal(what, f"names the {what} {name!r}, which is not there", hint)
    return entries[name]


def _in_cluster(host: str, port: str, account: Path) -> Access:
    """The service account of the pod that this runs in, as client-go's rest.InClusterConfig."""
    authority, namespace = account / "ca.crt", account / "namespace"
    try:
        encrypted = tls.trusting(authority.read_bytes())
        named = namespace.read_text(encoding="utf-8").strip() if namespace.exists() else ""
    except (OSError, ValueError) as error:
        raise InputError.at(f"the pod's service account cannot be read: {error}", file=str(account)) from error
    return Access(
        f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        "in-cluster",
        named or DEFAULT_NAMESPACE,
        str(account),
        encrypted,
        TokenFile(account / "token"),
    )
