"""Which API server, and as whom: kubeconfig files and the service account of a pod, read by lightkube.

What is done here and not there: the list in ``KUBECONFIG``, exec plugins of ``client.authentication.k8s.io/v1``, and
errors that a person can act on.
"""

from __future__ import annotations

import difflib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tonnage.errors import InputError
from tonnage.kube.credentials import Anonymous, Credentials, ExecPlugin, FromAuth

if TYPE_CHECKING:
    from lightkube.config.kubeconfig import KubeConfig, SingleConfig

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_FILE_FIELDS = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_REFUSED = {
    "auth-provider": "use an exec plugin: kubectl has not known auth-provider since v1.26",
    "as": "impersonation is not supported; use a context of the user meant",
}


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
    _require_lightkube()
    files = _files(kubeconfig, env)
    if files:
        merged = _merged(files)
        source = os.pathsep.join(str(file) for file in files)
        return _access(merged, context, source)
    if not context and env.get("KUBERNETES_SERVICE_HOST") and (Path(service_account) / "token").is_file():
        return _in_cluster(service_account)
    looked = f"KUBECONFIG={env['KUBECONFIG']}" if env.get("KUBECONFIG") else "~/.kube/config"
    raise InputError.at(
        f"no kubeconfig: {looked} does not exist, and this is not a pod with a service account",
        hint="name one with --kubeconfig FILE or KUBECONFIG",
    )


def _require_lightkube() -> None:
    try:
        import lightkube  # noqa: F401
    except ImportError:
        raise InputError.at(
            "a cluster needs the package lightkube, which is not installed", hint="pip install 'tonnage[kube]'"
        ) from None


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


def _merged(files: list[Path]) -> dict[str, Any]:
    """The files as one: of a name that occurs twice, and of current-context, the first counts, as for kubectl."""
    merged: dict[str, Any] = {"clusters": [], "users": [], "contexts": []}
    for file in files:
        content = _read(file)
        merged["current-context"] = merged.get("current-context") or content.get("current-context")
        for plural in ("clusters", "users", "contexts"):
            known = {entry["name"] for entry in merged[plural]}
            for entry in _entries(content, plural, file):
                if entry["name"] not in known:
                    merged[plural].append(_absolute(entry, plural[:-1], file))
    return merged


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError.at(f"cannot be read: {error}", file=str(file)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        raise InputError.at("not YAML", file=str(file), line=line, hint="expected a kubeconfig") from error
    if content is None:
        return {}
    if not isinstance(content, dict) or content.get("kind", "Config") != "Config":
        raise InputError.at("not a kubeconfig", file=str(file), hint="expected kind: Config with clusters and contexts")
    return content


def _entries(content: dict[str, Any], plural: str, file: Path) -> list[dict[str, Any]]:
    entries = content.get(plural) or []
    what = plural[:-1]
    good = isinstance(entries, list) and all(
        isinstance(e, dict) and isinstance(e.get("name"), str) and isinstance(e.get(what) or {}, dict) for e in entries
    )
    if not good:
        raise InputError.at(f"expected a list of name and {what}", file=str(file), field=plural)
    return [{**entry, what: entry.get(what) or {}} for entry in entries]


def _absolute(entry: dict[str, Any], what: str, file: Path) -> dict[str, Any]:
    """Relative paths are relative to the file that they stand in."""
    content = dict(entry[what])
    for field in _FILE_FIELDS.get(what, ()):
        if content.get(field):
            content[field] = str(file.parent.absolute() / str(content[field]))
    plugin = content.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command", "")):
        content["exec"] = {**plugin, "command": str(file.parent.absolute() / plugin["command"])}
    return {**entry, what: content}


def _access(merged: dict[str, Any], context: str, source: str) -> Access:
    from lightkube.config.kubeconfig import KubeConfig

    name = context or merged.get("current-context") or ""
    names = [entry["name"] for entry in merged["contexts"]]
    if not name:
        raise InputError.at(
            "no current-context", file=source, hint=f"name one with --context: {', '.join(names) or 'there is none'}"
        )
    if name not in names:
        near = difflib.get_close_matches(name, names, 3, 0.5) or sorted(names)[:8]
        raise InputError.at(
            f"no context {name!r}", file=source, hint=f"there is: {', '.join(near)}" if near else "it has no contexts"
        )
    chosen = _raw(merged, "context", name, source)
    cluster = _raw(merged, "cluster", str(chosen.get("cluster", "")), source)
    user = _raw(merged, "user", str(chosen["user"]), source) if chosen.get("user") else {}
    for field, hint in _REFUSED.items():
        if user.get(field):
            raise InputError.at(f"{field} is not supported", file=source, field=f"users.{chosen['user']}", hint=hint)
    if not str(cluster.get("server", "")).startswith(("http://", "https://")):
        raise InputError.at(
            f"server: {cluster.get('server', '')!r}", file=source, hint="expected http://… or https://…"
        )
    if cluster.get("certificate-authority-data"):
        # In lightkube the file wins, in kubectl the data.
        cluster.pop("certificate-authority", None)
    one = {
        "current-context": name,
        "contexts": [{"name": name, "context": {**chosen, "user": name if user else None}}],
        "clusters": [{"name": chosen["cluster"], "cluster": cluster}],
        "users": [{"name": name, "user": user}] if user else [],
    }
    try:
        config = _single(KubeConfig.from_dict(one))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError.at(f"context {name}: {error}", file=source) from error
    return _ready(config, source, str(cluster.get("tls-server-name") or ""), str(cluster.get("proxy-url") or ""))


def _raw(merged: dict[str, Any], what: str, name: str, source: str) -> dict[str, Any]:
    for entry in merged[f"{what}s"]:
        if entry["name"] == name:
            return dict(entry[what])
    raise InputError.at(f"a context names the {what} {name!r}, which is not there", file=source, field=f"{what}s")


def _in_cluster(service_account: str) -> Access:
    from lightkube.config.kubeconfig import KubeConfig
    from lightkube.core.exceptions import ConfigError

    try:
        config = _single(KubeConfig.from_service_account(service_account))
    except (ConfigError, OSError, KeyError) as error:
        raise InputError.at(f"the pod's service account cannot be read: {error}", file=service_account) from error
    return _ready(config._replace(context_name="in-cluster"), service_account, "", "")


def _single(config: KubeConfig) -> SingleConfig:
    single = config.get()
    assert single is not None  # without a default, get returns a config or raises
    return single


def _ready(config: SingleConfig, source: str, server_name: str, proxy: str) -> Access:
    tls = _tls(config, source) if config.cluster.server.startswith("https://") else None
    return Access(
        config.cluster.server.rstrip("/"),
        config.context_name,
        config.namespace,
        source,
        tls,
        _credentials(config, tls),
        server_name,
        proxy,
    )


def _tls(config: SingleConfig, source: str) -> ssl.SSLContext:
    from lightkube.config.client_adapter import verify_cluster
    from lightkube.config.models import User
    from lightkube.core.exceptions import ConfigError

    user = config.user or User()
    if bool(user.client_cert or user.client_cert_data) != bool(user.client_key or user.client_key_data):
        raise InputError.at(
            "client certificate and key come together: one is missing",
            file=source,
            field=f"users.{config.context_name}",
        )
    try:
        return verify_cluster(config.cluster, user, config.abs_file)
    except (OSError, ValueError, ConfigError) as error:  # ssl.SSLError is an OSError, binascii.Error a ValueError
        named = (config.cluster.certificate_auth, user.client_cert, user.client_key)
        missing = next((name for name in named if name and not _readable(name)), None)
        if missing:
            message = f"{missing} cannot be read"
        else:
            message = f"its certificates or keys cannot be used: {error}"
        hint = "check certificate-authority, client-certificate and client-key of the context's cluster and user"
        raise InputError.at(f"context {config.context_name}: {message}", file=source, hint=hint) from error


def _readable(file: str) -> bool:
    try:
        with Path(file).open("rb"):
            return True
    except OSError:
        return False


def _credentials(config: SingleConfig, tls: ssl.SSLContext | None) -> Credentials:
    from lightkube.config.client_adapter import user_auth

    user = config.user
    if user is not None and user.exec and not (user.token or user.token_file):
        return ExecPlugin(user.exec, config.cluster, tls)
    auth = user_auth(user)
    return FromAuth(auth) if auth is not None else Anonymous()
