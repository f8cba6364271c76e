"""Proxies between us and an API server."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tonnage.errors import InputError

EXPECTED = "expected http://HOST:PORT"
_LOOPBACK: Final = re.compile(r"localhost|127(\.\d+){3}|::1")


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy that is asked to CONNECT. ``authorization``: the header for it, empty for none."""

    host: str
    port: int
    authorization: str = ""

    @classmethod
    def of(cls, url: str) -> Proxy:
        """``http://USER:PASSWORD@HOST:PORT``, or without some of it. Raises ValueError without the password."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"proxy {parts.scheme}://{parts.netloc.rpartition('@')[2]}: not supported")
        userinfo = f"{parts.username}:{parts.password or ''}" if parts.username else ""
        return cls(parts.hostname, parts.port or 80, basic(userinfo) if userinfo else "")


def basic(userinfo: str) -> str:
    """The Basic credentials of ``user:password``."""
    return f"Basic {base64.b64encode(userinfo.encode()).decode()}"


def proxy_for(url: str, scheme: str, host: str) -> Proxy | None:
    """The proxy of the cluster in the kubeconfig (``url``), or of the environment; none for this machine itself.
    Raises InputError for one of another kind."""
    if _LOOPBACK.fullmatch(host):
        return None
    if not url and not proxy_bypass(host):
        url = getproxies().get(scheme, "")
    if not url:
        return None
    try:
        return Proxy.of(url)
    except ValueError as error:
        raise InputError.at(str(error), hint=EXPECTED) from error
