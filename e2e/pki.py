"""The certificates and keys of a test cluster, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

NAMES = (
    "IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,"
    "DNS:kubernetes.default.svc.cluster.local"
)
_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_DAYS = "30"


def write(folder: Path) -> None:
    """Make ``ca``, ``apiserver``, ``front-proxy-ca``, ``front-proxy-client`` (.crt, .key), ``sa.key`` and ``sa.pub``.

    The front proxy's is what the apiserver shows to the servers behind APIServices."""
    folder.mkdir()
    _authority(folder, "ca")
    _certificate(folder, "apiserver", "ca", f"subjectAltName={NAMES}\nextendedKeyUsage=serverAuth\n")
    _authority(folder, "front-proxy-ca")
    _certificate(folder, "front-proxy-client", "front-proxy-ca", "extendedKeyUsage=clientAuth\n")
    private, public = folder / "sa.key", folder / "sa.pub"
    _openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", private)
    _openssl("pkey", "-in", private, "-pubout", "-out", public)


def _authority(folder: Path, name: str) -> None:
    usage = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
    files = ("-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt")
    _openssl("req", "-x509", *_EC, "-days", _DAYS, "-subj", f"/CN=e2e-{name}", "-addext", usage, *files)


def _certificate(folder: Path, name: str, authority: str, extensions: str) -> None:
    """With the authority's key id: OpenSSL 3 and Python 3.13 refuse a chain without it."""
    key, request, text = (folder / f"{name}.{end}" for end in ("key", "csr", "ext"))
    text.write_text(f"{extensions}authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\n")
    _openssl("req", *_EC, "-subj", f"/CN={name}", "-keyout", key, "-out", request)
    signer = ("-CA", folder / f"{authority}.crt", "-CAkey", folder / f"{authority}.key", "-CAcreateserial")
    out = folder / f"{name}.crt"
    _openssl("x509", "-req", "-in", request, *signer, "-days", _DAYS, "-extfile", text, "-out", out)


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)
