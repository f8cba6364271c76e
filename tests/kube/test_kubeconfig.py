"""Kubeconfig files, service accounts and exec plugins: what is read, and what is said when it cannot be."""

from __future__ import annotations

import base64
import json
import os
import ssl
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import certificates
import pytest
from raw_server import RawServer, answer

import yaml_text
from tonnage.documents import Document, compose
from tonnage.errors import InputError
from tonnage.kube.credentials import ExecPlugin, TokenFile
from tonnage.kube.entries import Kubeconfig
from tonnage.kube.explain import explain
from tonnage.kube.http import HttpTransport, open_cluster
from tonnage.kube.kubeconfig import Access, load
from tonnage.kube.resources import NODE_CLAIMS, PODS
from tonnage.kube.transport import ApiError, Unreachable

VERSION = answer(200, {"gitVersion": "v1.36.3"})
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def made(
        name: str = "config",
        context: str = "one",
        cluster: dict[str, Any] | None = None,
        user: dict[str, Any] | None = None,
        **top: Any,
    ) -> Path:
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "clusters": [{"name": context, "cluster": {"server": "http://127.0.0.1:1", **(cluster or {})}}],
            "users": [{"name": context, "user": user or {}}],
            **top,
        }
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml_text.dump(content))
        return file

    return made


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


def plugin(tmp_path: Path, script: str) -> dict[str, Any]:
    file = tmp_path / "plugin"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": str(file), "args": ["token"]}


def credential(token: str) -> str:
    return f"""echo '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"{token}"}}}}'"""


def test_the_current_context_is_used_unless_another_is_named(write: Write) -> None:
    one = write(user={"token": "t1"}, cluster={"server": "http://127.0.0.1:8001/prefix/"})
    found = load(str(one))
    assert (found.server, found.context, found.namespace) == ("http://127.0.0.1:8001/prefix", "one", "default")
    assert found.credentials.header() == "Bearer t1"
    two = write("two", "two", user={"username": "u", "password": "p"})
    env = {"KUBECONFIG": f"{one}{os.pathsep}{two}"}
    assert load(env=env).context == "one"
    assert load(context="two", env=env).credentials.header() == "Basic dTpw"


def test_of_a_name_in_two_files_the_first_counts_and_missing_files_are_passed_over(write: Write) -> None:
    one = write("a", user={"token": "first"})
    two = write("b", user={"token": "second"})
    for order, token in (((one, two), "first"), ((two, one), "second")):
        env = {"KUBECONFIG": os.pathsep.join(["/does/not/exist", *(str(file) for file in order)])}
        assert load(env=env).credentials.header() == f"Bearer {token}"


def test_the_file_in_the_home_folder_is_found(write: Write, tmp_path: Path) -> None:
    write(".kube/config", user={"token": "home"})
    assert load(env={"HOME": str(tmp_path)}).credentials.header() == "Bearer home"


def test_relative_files_are_relative_to_their_kubeconfig(write: Write, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "token").write_text("from-file\n")
    file = write("deep/config", user={"tokenFile": "token"})
    assert load(env={"KUBECONFIG": str(file)}).credentials.header() == "Bearer from-file"


def test_a_token_file_is_read_again_when_the_server_refuses_what_was_in_it(write: Write, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    credentials = load(str(write(user={"tokenFile": str(token)}))).credentials
    assert credentials.header() == "Bearer old"
    assert not credentials.renew("Bearer old")
    token.write_text("new")
    assert credentials.header() == "Bearer old"
    assert credentials.renew("Bearer old")
    assert credentials.header() == "Bearer new"
    assert credentials.renew("Bearer old"), "another thread has renewed it"


def test_in_a_pod_the_service_account_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certs: Any) -> None:
    for name, text in (("token", "sa"), ("namespace", "ml"), ("ca.crt", certs.ca.read_text())):
        (tmp_path / name).write_text(text)
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/nowhere"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = load(env=env, service_account=str(tmp_path))
    assert (found.server, found.namespace, found.context) == ("https://[fd00::1]:443", "ml", "in-cluster")
    assert found.credentials.header() == "Bearer sa"
    (tmp_path / "token").write_text("rotated")
    assert found.credentials.renew("Bearer sa")


def test_an_exec_plugin_gives_a_token_once_and_again_when_it_is_refused(write: Write, tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    script = f"""echo "$1 $KUBERNETES_EXEC_INFO $EXTRA" >> {counter}; n=$(wc -l < {counter})
    {credential("XX")} | sed "s/XX/t$n/" """
    given = plugin(tmp_path, script) | {"env": [{"name": "EXTRA", "value": "e"}], "provideClusterInfo": True}
    credentials = load(str(write(user={"exec": given}))).credentials
    assert not counter.exists(), "not before it is needed"
    assert [credentials.header() for _ in range(3)] == ["Bearer t1"] * 3
    assert credentials.renew("Bearer t1")
    assert credentials.header() == "Bearer t2"
    line = counter.read_text().splitlines()[0]
    assert line.startswith("token {")
    assert '"server": "http://127.0.0.1:1"' in line
    assert line.endswith(" e")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'session expired' >&2; exit 3", r"failed with 3: session expired \(run it by hand, or log in again\)"),
        ("echo hello", "printed no ExecCredential"),
        ('echo \'{"kind":"ExecCredential"}\'', "printed no ExecCredential"),
    ],
    ids=["fails", "rubbish", "no status"],
)
def test_an_exec_plugin_that_fails_says_why(write: Write, tmp_path: Path, script: str, message: str) -> None:
    file = write(user={"exec": plugin(tmp_path, script)})
    with pytest.raises(InputError, match=message) as caught:
        open_cluster(str(file))
    assert len(str(caught.value).splitlines()) == 1


def test_an_exec_plugin_that_is_not_there_comes_with_its_own_hint(write: Write) -> None:
    given = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "no-such-plugin-here",
        "installHint": "get it from\n  example.test",
    }
    with pytest.raises(
        InputError,
        match=r"exec plugin no-such-plugin-here cannot be run: .* \(get it from example.test\)",
    ):
        open_cluster(str(write(user={"exec": given})))


def test_tls_with_a_client_certificate(write: Write, certs: certificates.Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server, certs.server_key)
    context.load_verify_locations(certs.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    data = {field: base64.b64encode(file.read_bytes()).decode() for field, file in _files(certs).items()}
    with RawServer(deque([VERSION]), context) as server:
        for cluster, user in (
            (
                {"certificate-authority": str(certs.ca)},
                {"client-certificate": str(certs.client), "client-key": str(certs.client_key)},
            ),
            (
                {"certificate-authority-data": data["ca"], "certificate-authority": "/not/used"},
                {"client-certificate-data": data["cert"], "client-key-data": data["key"]},
            ),
            (
                {"certificate-authority": str(certs.ca), "tls-server-name": "api.test"},
                {"client-certificate": str(certs.client), "client-key": str(certs.client_key)},
            ),
        ):
            client = open_cluster(str(write(cluster={"server": server.url, **cluster}, user=user)))
            client.transport.close()
        assert len(server.got) == 3


def _files(certs: certificates.Certificates) -> dict[str, Path]:
    return {"ca": certs.ca, "cert": certs.client, "key": certs.client_key}


def test_an_exec_plugin_can_give_a_certificate(write: Write, tmp_path: Path, certs: certificates.Certificates) -> None:
    def oneline(file: Path) -> str:
        return file.read_text().replace("\n", "\\\\n")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server, certs.server_key)
    context.load_verify_locations(certs.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    printed = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{'
        f'"clientCertificateData":"{oneline(certs.client)}","clientKeyData":"{oneline(certs.client_key)}"}}}}'
    )
    given = plugin(tmp_path, f"printf '%b' '{printed}'")
    with RawServer(deque([VERSION]), context) as server:
        cluster = {"server": server.url, "certificate-authority": str(certs.ca)}
        client = open_cluster(str(write(cluster=cluster, user={"exec": given})))
        client.transport.close()
        assert "authorization" not in server.got[0].headers


def test_a_server_whose_certificate_another_signed_is_refused(write: Write, certs: certificates.Certificates) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certs.server, certs.server_key)
    with RawServer(deque([VERSION]), context) as server:
        for cluster in ({}, {"certificate-authority": str(certs.ca), "tls-server-name": "other.test"}):
            with pytest.raises(InputError, match="its certificate is not accepted"):
                open_cluster(str(write(cluster={"server": server.url, **cluster})))
        open_cluster(str(write(cluster={"server": server.url, "insecure-skip-tls-verify": True}))).transport.close()


PROXY = r"clusters\[0\].cluster.proxy-url: proxy socks5://h:1: not supported \(expected http://HOST:PORT\)"
EXEC = {"command": "x", "apiVersion": "client.authentication.k8s.io/v1"}


def edited(write: Write, change: Callable[[dict[str, Any]], object]) -> Path:
    file = write()
    content = yaml_text.load(file.read_text())
    change(content)
    file.write_text(yaml_text.dump(content))
    return file


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("current-context"), r"no current-context \(name one with --context: one\)"),
        (lambda c: c.update(contexts=[]), r"no context 'one' \(it has no contexts\)"),
        (lambda c: c.update(contexts=None), r"no context 'one' \(it has no contexts\)"),
        (
            lambda c: c.update(clusters=[]),
            r":5:contexts\[0\].context.cluster: names the cluster 'one', which is not there \(add it to clusters\)",
        ),
        (
            lambda c: c["users"][0].update(name="two"),
            r":9:contexts\[0\].context.user: names the user 'one', which is not there \(there is: two\)",
        ),
        (lambda c: c.update(clusters="x"), r':2:clusters: "x": expected array, got str \(expected a kubeconfig'),
        (lambda c: c.update(clusters=["x"]), r':3:clusters\[0\]: "x": expected object, got str'),
        (lambda c: c["users"].append({"user": {}}), r":16:users\[1\].name: the field is missing"),
        (
            lambda c: c["clusters"][0].update(cluster={"server": "ftp://x"}),
            r":4:clusters\[0\].cluster.server: server: 'ftp://x' \(expected http",
        ),
        (lambda c: c["clusters"][0].update(cluster=None), r"server: '' \(expected http"),
        (lambda c: c["clusters"][0]["cluster"].update({"proxy-url": "socks5://u:secret@h:1"}), PROXY),
        (
            lambda c: c["users"][0].update(user={"auth-provider": {"name": "gcp"}}),
            r"users\[0\].user.auth-provider: auth-provider is not supported",
        ),
        (lambda c: c["users"][0].update(user={"as": "admin"}), "impersonation is not supported"),
        (lambda c: c["users"][0].update(user={"token": 3}), r":16:users\[0\].user.token: expected str, got int"),
        (
            lambda c: c["users"][0].update(user={"token": "t", "username": "u"}),
            "users\\[0\\].user.username: a token and a password: expected one of them",
        ),
        (
            lambda c: c["users"][0].update(user={"exec": {"command": "x"}}),
            r"user.exec.apiVersion: the field is missing",
        ),
        (lambda c: c["users"][0].update(user={"exec": EXEC | {"apiVersion": "v1"}}), "apiVersion v1 .expected client"),
        (lambda c: c["users"][0].update(user={"exec": EXEC | {"interactiveMode": "Always"}}), "needs a terminal"),
        (lambda c: c.update(kind="Pod"), r":12:kind: not a kubeconfig: Pod"),
    ],
)
def test_a_kubeconfig_that_will_not_do_is_refused_in_one_line(
    write: Write, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    file = edited(write, change)
    with pytest.raises(InputError, match=message) as caught:
        load(str(file))
    assert str(caught.value).startswith(str(file))
    assert len(str(caught.value).splitlines()) == 1


def test_a_wrong_context_names_those_like_it(write: Write) -> None:
    with pytest.raises(InputError, match=r"no context 'onee' \(there is: one\)"):
        load(str(write()), "onee")


def test_without_any_kubeconfig_it_says_where_it_looked(tmp_path: Path) -> None:
    for env, looked in (
        ({"HOME": str(tmp_path)}, "~/.kube/config"),
        ({"HOME": str(tmp_path), "KUBECONFIG": "/no/where"}, "KUBECONFIG=/no/where"),
    ):
        with pytest.raises(InputError, match=f"no kubeconfig: {looked} does not exist.*name one with --kubeconfig"):
            load(env=env, service_account=str(tmp_path))
    with pytest.raises(InputError, match="/no/where: no such kubeconfig"):
        load("/no/where")


def test_what_is_not_yaml_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("kind: Config\nclusters: [\n")
    with pytest.raises(InputError, match=f"{file}:3: not valid YAML"):
        load(str(file))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


NO_PEM = _base64("not a certificate")
BROKEN = _base64("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("cluster", "user", "message"),
    [
        ({"certificate-authority": "gone.crt"}, {}, "cluster.certificate-authority: gone.crt cannot be read: No such"),
        ({"certificate-authority-data": "!!"}, {}, "cluster.certificate-authority-data: not base64"),
        ({"certificate-authority-data": NO_PEM}, {}, "certificate-authority-data: cannot be used: no PEM certificate"),
        ({"certificate-authority-data": BROKEN}, {}, "certificate-authority-data: cannot be used: "),
        ({}, {"client-certificate": "c.crt", "client-key": "c.key"}, "user.client-certificate: c.crt cannot be read"),
        ({}, {"client-certificate-data": NO_PEM}, "come together: one is missing .add the client-key"),
        ({}, {"client-key-data": NO_PEM}, "come together: one is missing .add the client-certificate"),
        ({}, {"client-certificate-data": NO_PEM, "client-key-data": BROKEN}, "cannot be used with the client-key"),
    ],
)
def test_certificates_that_cannot_be_used_are_named(
    write: Write, cluster: dict[str, Any], user: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(str(write(cluster={"server": "https://127.0.0.1:1", **cluster}, user=user)))


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


def asked(write: Write, given: dict[str, Any], clock: Clock) -> ExecPlugin:
    """The exec plugin of a kubeconfig, on a clock of ours."""
    file = write(user={"exec": given})
    root = compose(file.read_text(), file, "")
    assert root is not None
    merged = Kubeconfig()
    merged.add(Document(file, root, ""))
    user = merged.users["one"]
    assert user.content.exec is not None
    return ExecPlugin(user.content.exec, user, merged.clusters["one"], None, clock)


@pytest.mark.parametrize("expires", ["2027-01-15T08:10:00Z", "2027-01-15T09:10:00+01:00"])
def test_an_exec_plugin_is_asked_again_once_what_it_gave_has_expired(
    write: Write, tmp_path: Path, expires: str
) -> None:
    counter, clock = tmp_path / "runs", Clock()
    status = f'"status":{{"token":"XX","expirationTimestamp":"{expires}"}}'
    printed = f'{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",{status}}}'
    script = f"""echo x >> {counter}; n=$(wc -l < {counter}); echo '{printed}' | sed "s/XX/t$n/" """
    credentials = asked(write, plugin(tmp_path, script), clock)
    assert credentials.header() == "Bearer t1"
    clock.now_s += 599
    assert credentials.header() == "Bearer t1"
    clock.now_s += 2
    assert credentials.header() == "Bearer t2"
    assert credentials.renew("Bearer t1"), "another thread has renewed it"
    assert len(counter.read_text()) == 4


@pytest.mark.parametrize(
    ("status", "message"),
    [
        ("{}", "printed an ExecCredential with neither token nor certificate"),
        ('{"token":"t","clientKeyData":"k"}', "printed a certificate without its key, or a key alone"),
        (
            '{"token":"t","expirationTimestamp":"tomorrow"}',
            "printed no ExecCredential that can be used: Invalid RFC3339",
        ),
    ],
)
def test_an_exec_credential_that_will_not_do_is_refused(
    write: Write, tmp_path: Path, status: str, message: str
) -> None:
    printed = f'{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{status}}}'
    credentials = asked(write, plugin(tmp_path, f"echo '{printed}'"), Clock())
    with pytest.raises(InputError, match=f"exec plugin .*/plugin {message}"):
        credentials.header()


def test_an_exec_credential_of_another_version_is_refused(write: Write, tmp_path: Path) -> None:
    given = plugin(tmp_path, credential("t")) | {"apiVersion": "client.authentication.k8s.io/v1beta1"}
    with pytest.raises(InputError, match=r"of client.authentication.k8s.io/v1, expected ExecCredential of .*/v1beta1"):
        asked(write, given, Clock()).header()


@pytest.mark.parametrize("whole", [False, True])
def test_an_exec_plugin_is_told_of_the_cluster_where_it_asks(write: Write, tmp_path: Path, whole: bool) -> None:
    told = tmp_path / "told"
    script = f'printf %s "$KUBERNETES_EXEC_INFO" > {told}\n{credential("t")}'
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "ml"}}
    cluster = {"server": "https://127.0.0.1:1", "tls-server-name": "api.test", "extensions": [extension]}
    given = plugin(tmp_path, script) | {"provideClusterInfo": whole}
    assert load(str(write(cluster=cluster, user={"exec": given}))).credentials.header() == "Bearer t"
    spec = json.loads(told.read_text())["spec"]
    expected = {"server": "https://127.0.0.1:1", "tls-server-name": "api.test", "config": {"audience": "ml"}}
    assert spec == {"interactive": False, **({"cluster": expected} if whole else {})}


def test_an_exec_plugin_with_a_relative_path_is_relative_to_its_kubeconfig(write: Write, tmp_path: Path) -> None:
    plugin(tmp_path, credential("near"))
    given = {"apiVersion": "client.authentication.k8s.io/v1", "command": "../plugin", "args": None, "env": None}
    assert load(str(write("deep/config", user={"exec": given}))).credentials.header() == "Bearer near"


def test_a_token_file_is_read_again_each_minute_and_what_was_in_it_kept_while_it_is_gone(tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    file.write_text("one\n")
    credentials = TokenFile(file, clock)
    assert credentials.header() == "Bearer one"
    file.write_text("two")
    clock.now_s += 59
    assert credentials.header() == "Bearer one"
    clock.now_s += 2
    assert credentials.header() == "Bearer two"
    file.unlink()
    clock.now_s += 61
    assert credentials.header() == "Bearer two"
    with pytest.raises(InputError, match=f"{file}: no token: No such file"):
        credentials.renew("Bearer two")


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("", "the file is empty")])
def test_a_token_file_without_a_token_is_named(write: Write, tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / "token").write_text(text)
    with pytest.raises(InputError, match=f"{tmp_path}/token: no token: {why}"):
        open_cluster(str(write(user={"tokenFile": "token"})))


def test_of_a_token_and_its_file_the_file_counts(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    assert load(str(write(user={"tokenFile": "token", "token": "t"}))).credentials.header() == "Bearer from-file"


def test_no_message_tells_a_secret(write: Write) -> None:
    for field in ("token", "password", "client-key-data"):
        with pytest.raises(InputError, match=rf"user\.{field}: expected str, got int") as caught:
            load(str(write(user={field: 271828})))
        assert "271828" not in str(caught.value)


def test_an_authority_beside_no_verification_is_refused(write: Write, certs: certificates.Certificates) -> None:
    both = {"certificate-authority": str(certs.ca), "insecure-skip-tls-verify": True}
    with pytest.raises(InputError, match=r"cluster.insecure-skip-tls-verify: true beside a certificate-authority"):
        load(str(write(cluster={"server": "https://127.0.0.1:1", **both})))


def test_a_key_that_is_of_another_certificate_is_refused(write: Write, certs: certificates.Certificates) -> None:
    user = {"client-certificate": str(certs.client), "client-key": str(certs.server_key)}
    with pytest.raises(InputError, match=r"users\[0\].user.client-certificate: cannot be used with the client-key"):
        load(str(write(cluster={"server": "https://127.0.0.1:1"}, user=user)))


def test_text_around_the_certificates_of_an_authority_is_passed_over(
    write: Write, tmp_path: Path, certs: certificates.Certificates
) -> None:
    file = tmp_path / "bundle.crt"
    file.write_text(f"# Zertifizierungsstelle für Kölner\n{certs.ca.read_text()}", encoding="utf-8")
    found = load(str(write(cluster={"server": "https://127.0.0.1:1", "certificate-authority": "bundle.crt"})))
    assert found.tls is not None
    assert len(found.tls.get_ca_certs()) == 1
    assert not found.tls.verify_flags & ssl.VERIFY_X509_STRICT


def test_no_connection_is_one_line_with_the_context(write: Write) -> None:
    with pytest.raises(
        InputError, match=r"context one: no connection to the API server: .*Connection refused"
    ) as caught:
        open_cluster(str(write()))
    assert len(str(caught.value).splitlines()) == 1


def test_an_expired_token_is_one_line(write: Write) -> None:
    with RawServer(deque([answer(401, {"code": 401, "message": "Unauthorized"})])) as server:
        file = write(cluster={"server": server.url}, user={"token": "old"})
        with pytest.raises(InputError, match=r"context one: .* credentials \(log in again"):
            open_cluster(str(file))


@pytest.mark.parametrize(
    ("error", "verb", "resource", "text"),
    [
        (
            ApiError(403, "Forbidden", 'pods is forbidden: User "x" cannot create resource "pods"'),
            "create",
            PODS,
            "not allowed: create pods (grant the verb by RBAC; the API server says: pods is forbidden: "
            'User "x" cannot create resource "pods")',
        ),
        (
            ApiError(404, "NotFound", "404 page not found"),
            "list",
            NODE_CLAIMS,
            "the cluster does not serve nodeclaims.karpenter.sh (install the CRDs of Karpenter)",
        ),
        (
            ApiError(404, "NotFound", "404 page not found"),
            "list",
            PODS,
            "the cluster does not serve pods (the API server must serve v1)",
        ),
        (ApiError(409, "Conflict", "changed"), "update", PODS, "update pods: changed (Conflict)"),
        (
            Unreachable("refused"),
            "",
            None,
            "no connection to the API server: refused (is it running, and does the address hold?)",
        ),
    ],
)
def test_errors_in_words(error: Any, verb: str, resource: Any, text: str) -> None:
    assert str(explain(error, verb, resource)) == text


def test_an_access_makes_a_transport(write: Write) -> None:
    found = load(str(write()))
    assert isinstance(found, Access)
    HttpTransport(found).close()
