"""Certificates for tests, made by the openssl program."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificates:
    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make(folder: Path) -> Certificates:
    """A CA, a server's certificate for 127.0.0.1 and api.test, and a client's. Skips without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to make certificates")

    def openssl(*args: str) -> None:
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")
    ca = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign")
    openssl("req", "-x509", *new, "-subj", "/CN=test-ca", "-keyout", "ca.key", "-out", "ca.crt", *ca)
    for who, names in (("server", "subjectAltName=IP:127.0.0.1,DNS:api.test"), ("client", "subjectAltName=DNS:client")):
        openssl("req", *new, "-subj", f"/CN={who}", "-keyout", f"{who}.key", "-out", f"{who}.csr")
        folder.joinpath("ext").write_text(names)
        sign = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "30", "-extfile", "ext")
        openssl("x509", "-req", "-in", f"{who}.csr", "-out", f"{who}.crt", *sign)
    at = folder.joinpath
    return Certificates(at("ca.crt"), at("server.crt"), at("server.key"), at("client.crt"), at("client.key"))
