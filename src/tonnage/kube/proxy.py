"""Proxies between us and an API server."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import urlsplit

EXPECTED = "expected http://HOST:PORT"


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
