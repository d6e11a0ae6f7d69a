"""AMQP over TLS, and clients who are who their certificate says (EXTERNAL)."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from pamqp import commands

from shalott.broker.base.errors import ConfigError
from shalott.broker.base.tls import Certificate, TlsConfig, expiry_of, login_name, session_of
from tests.broker.rabbit.amqp.pika_flows import Address
from tests.world.rabbit.asking import ask, get, on_node
from tests.world.rabbit.management_node import FakeNode
from tests.world.rabbit.node_thread import NodeThread
from tests.world.rabbit.raw_client import PROTOCOL_HEADER, RawClient


@dataclass(frozen=True)
class Made:
    """Certificates of one authority."""

    folder: Path

    def tls(self, **more: object) -> TlsConfig:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        return TlsConfig(
            port=port,
            certfile=str(self.folder / "server.pem"),
            keyfile=str(self.folder / "server.key"),
            cacertfile=str(self.folder / "ca.pem"),
            **more,  # type: ignore[arg-type]
        )

    def client(self, name: str | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        context.check_hostname = False
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make(folder: Path, name: str, subject: str) -> None:
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(*new, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject, folder=folder)
    (folder / "san").write_text(f"subjectAltName=DNS:{name}.example\n")
    signed = ("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key")
    openssl(*signed, "-CAcreateserial", "-extfile", "san", "-out", f"{name}.pem", folder=folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("certificates")
    own = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl(*own, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", folder=folder)
    for name, subject in (
        ("server", "/CN=localhost"),
        ("guest", "/O=Shalott, Ltd./CN=guest"),
        ("stranger", "/CN=stranger"),
    ):
        make(folder, name, subject)
    return Made(folder)


class TlsClient(RawClient):
    def __init__(self, node: NodeThread, context: ssl.SSLContext) -> None:
        tls = node.world.services.config.ssl
        assert tls is not None
        super().__init__(Address(node.host, tls.port))
        plain = self._socket
        try:
            self._socket = context.wrap_socket(plain, server_hostname="localhost")
        except OSError:
            plain.close()
            raise


def start(client: RawClient) -> str:
    """The mechanisms that are offered."""
    client.send_bytes(PROTOCOL_HEADER)
    return str(client.expect(commands.Connection.Start).mechanisms)


def external(client: RawClient) -> object:
    """What comes of it."""
    properties = {"capabilities": {"authentication_failure_close": True}}
    client.send(0, commands.Connection.StartOk(properties, "EXTERNAL", ""))  # type: ignore[arg-type]
    return client.receive()[1]


@pytest.fixture
def node(made: Made) -> Iterator[NodeThread]:
    mechanisms = ("EXTERNAL", "PLAIN")
    with NodeThread(
        ssl=made.tls(verify="verify_peer"),
        auth_mechanisms=mechanisms,
        ssl_cert_login_from="common_name",
    ) as running:
        yield running


@pytest.mark.local
def test_over_tls_all_is_as_without_it(made: Made, node: NodeThread) -> None:
    client = TlsClient(node, made.client(None))
    client.shake_hands()
    client.open_channel()
    client.declare("q")
    body = b"x" * 100_000
    client.publish("q", body)
    client.send(1, commands.Basic.Get(queue="q", no_ack=True))
    assert client.expect_content(commands.Basic.GetOk)[1] == body
    client.send(0, commands.Connection.Close(200, "", 0, 0))
    client.expect(commands.Connection.CloseOk)
    client.close()
    with RawClient(Address(node.host, node.port)) as plain:
        assert start(plain) == "PLAIN"


@pytest.mark.local
def test_a_certificate_is_a_login(made: Made, node: NodeThread) -> None:
    client = TlsClient(node, made.client("guest"))
    assert start(client) == "EXTERNAL PLAIN"
    assert isinstance(external(client), commands.Connection.Tune)
    client.close()


@pytest.mark.local
def test_a_certificate_of_no_user_is_refused(made: Made, node: NodeThread) -> None:
    client = TlsClient(node, made.client("stranger"))
    start(client)
    close = external(client)
    assert isinstance(close, commands.Connection.Close)
    assert "Login was refused using authentication mechanism EXTERNAL" in str(close.reply_text)
    client.close()


@pytest.mark.local
def test_without_a_certificate_there_is_no_such_login(made: Made, node: NodeThread) -> None:
    client = TlsClient(node, made.client(None))
    assert start(client) == "PLAIN"
    close = external(client)
    assert isinstance(close, commands.Connection.Close) and close.reply_code == 503
    client.close()


@pytest.mark.local
def test_who_must_show_a_certificate(made: Made) -> None:
    tls = made.tls(verify="verify_peer", fail_if_no_peer_cert=True)
    with NodeThread(ssl=tls) as node:
        client = TlsClient(node, made.client("stranger"))
        start(client)
        client.close()
        with (
            pytest.raises((OSError, EOFError)),
            TlsClient(node, made.client(None)) as client,
        ):
            start(client)


SUBJECT: Certificate = {
    "subject": ((("organizationName", "A, B+C"),), (("commonName", "x"),), (("commonName", "y"),)),
    "subjectAltName": (("email", "e"), ("DNS", "d.example"), ("DNS", "other")),
}


@pytest.mark.unit
def test_names_in_a_certificate() -> None:
    assert login_name(SUBJECT, "distinguished_name") == r"CN=y,CN=x,O=A\, B\+C"
    assert login_name(SUBJECT, "common_name") == "x,y"
    assert login_name(SUBJECT, "subject_alternative_name") == "d.example"
    assert login_name({}, "common_name") is None
    assert login_name({}, "subject_alternative_name") is None


@pytest.mark.unit
def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    for name in ("x", "absent"):
        file = str(tmp_path / name)
        with pytest.raises(ConfigError, match="the files of TLS on port 5671 can't be used"):
            TlsConfig(port=5671, certfile=file, keyfile=file).context()


@pytest.mark.unit
def test_when_certificates_expire(made: Made) -> None:
    tls = made.tls()
    asked = ("openssl", "x509", "-in", "server.pem", "-noout", "-enddate", "-dateopt", "iso_8601")
    told = subprocess.run(asked, cwd=made.folder, check=True, capture_output=True, text=True)
    assert told.stdout == f"notAfter={expiry_of(tls.certfile)}Z\n"
    assert expiry_of("") == ""

    async def body(node: FakeNode) -> None:
        path = "/api/health/checks/certificate-expiration"
        assert await get(node, f"{path}/1/years") == {"status": "ok"}, "without TLS"
        node.config = msgspec.structs.replace(node.config, ssl=tls)
        assert await get(node, f"{path}/1/days") == {"status": "ok"}
        for within in ("10/weeks", "99999999/years"):
            answer = await get(node, f"{path}/{within}", 503)
            (expired,) = answer["expired"]
            assert expired["certfile_expires_on"] == [expiry_of(tls.certfile)]
        for wrong in ("1/eons", "x/days"):
            assert (await ask(node, "GET", f"{path}/{wrong}")).status == 400

    on_node(body)


@pytest.mark.unit
def test_a_session_is_told_as_rabbitmqctl_tells_it() -> None:
    assert session_of(None, None) == {"ssl": False}
    assert session_of(("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256), None) == {
        "ssl": True,
        "ssl_protocol": "tlsv1.3",
        "ssl_key_exchange": "any",
        "ssl_cipher": "aes_256_gcm",
        "ssl_hash": "sha384",
    }
    names = ((("organizationName", "S"),), (("commonName", "al"),))
    certificate = {"subject": names, "issuer": names[1:], "notBefore": "a", "notAfter": "b"}
    told = session_of(("ECDHE-RSA-AES128-GCM-SHA256", "TLSv1.2", 128), certificate)  # type: ignore[arg-type]
    assert (told["ssl_key_exchange"], told["ssl_cipher"]) == ("ecdhe_rsa", "aes128_gcm")
    assert (told["peer_cert_subject"], told["peer_cert_issuer"]) == ("CN=al,O=S", "CN=al")
    assert told["peer_cert_validity"] == "a - b"


@pytest.mark.local
def test_a_connection_over_tls_says_so(made: Made, node: NodeThread) -> None:
    client = TlsClient(node, made.client("guest"))
    client.shake_hands()
    (info,) = node.world.listener.connections()
    assert (info.tls["ssl"], info.tls["peer_cert_issuer"]) == (True, "CN=authority")
    client.close()
