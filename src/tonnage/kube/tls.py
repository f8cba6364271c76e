"""TLS contexts: whom to trust, and the certificate to show."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from tonnage.kube.entries import ClusterEntry, NamedEntry, UserEntry

_BEGIN = b"-----BEGIN "


def trusting(authority: bytes) -> ssl.SSLContext:
    """One that trusts these certificates (PEM) alone; without any, those of the system. Raises ValueError."""
    if not authority:
        return _as_go(ssl.create_default_context())
    if _BEGIN not in authority:
        raise ValueError("no PEM certificate in it")
    # What stands between the certificates is for people, in any encoding.
    return _as_go(ssl.create_default_context(cadata=authority.decode("ascii", errors="ignore")))


def _as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Python 3.13 asks for extensions that RFC 5280 wants and Go, hence Kubernetes, does not: many clusters' own
    authorities lack them."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Let the context show this certificate (PEM, its chain behind it) and prove it with the key. Raises ValueError."""
    with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads certificates from files only
        pair = Path(folder, "pair.pem")
        pair.touch(mode=0o600)
        pair.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            context.load_cert_chain(pair, password=_locked)
        except OSError as error:  # ssl.SSLError is one
            reason = getattr(error, "reason", None) or error.strerror or error
            raise ValueError(f"{reason}") from error


def _locked() -> str:
    raise ValueError("the key is encrypted with a passphrase")


def context_for(cluster: NamedEntry[ClusterEntry], user: NamedEntry[UserEntry] | None) -> ssl.SSLContext:
    """How the connection to the cluster is encrypted. Raises InputError with the field of what cannot be used."""
    known = cluster.content
    authority = cluster.pem("certificate-authority", known.certificate_authority, known.certificate_authority_data)
    if authority and known.insecure_skip_tls_verify:
        hint = "remove insecure-skip-tls-verify, or the certificate-authority"
        raise cluster.refusal("insecure-skip-tls-verify", "true beside a certificate-authority", hint)
    try:
        context = trusting(authority)
    except (ValueError, OSError) as error:
        name = "certificate-authority-data" if known.certificate_authority_data else "certificate-authority"
        raise cluster.refusal(name, f"cannot be used: {error}", "expected certificates in PEM") from error
    if known.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if user is not None:
        _show_as(context, user)
    return context


def _show_as(context: ssl.SSLContext, user: NamedEntry[UserEntry]) -> None:
    who = user.content
    certificate = user.pem("client-certificate", who.client_certificate, who.client_certificate_data)
    key = user.pem("client-key", who.client_key, who.client_key_data)
    if bool(certificate) != bool(key):
        there, missing = ("client-certificate", "client-key") if certificate else ("client-key", "client-certificate")
        raise user.refusal(there, f"{there} and {missing} come together: one is missing", f"add the {missing}")
    if not certificate:
        return
    try:
        show(context, certificate, key)
    except ValueError as error:
        hint = "expected a certificate and its own key in PEM, without a passphrase"
        raise user.refusal("client-certificate", f"cannot be used with the client-key: {error}", hint) from error
