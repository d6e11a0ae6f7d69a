"""Clients that mean no good, many at once: a node neither crashes nor keeps anything of them.

Each attack is made twice as often as it takes to see what is kept: a first round warms the node up,
and after the second it has as much memory as after the first. Meanwhile an honest client is served.
By night there are as many as a large installation has.
"""

from __future__ import annotations

import os
import random
import resource
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import msgspec
import pamqp.frame
import pytest
from pamqp import commands, header

from shalott.broker.base.tls import TlsConfig
from shalott.cluster.local.backend import port_of, reserve_port
from tests.world.processes.rabbit import NodeProcess, nodes
from tests.world.rabbit.raw_client import PROTOCOL_HEADER, RawClient, raw

pytestmark = pytest.mark.local

IS_NIGHT = bool(os.environ.get("SHALOTT_NIGHTLY"))
CONNECTIONS = 5000 if IS_NIGHT else 150
CHANNELS = 10_000 if IS_NIGHT else 300
CHANNELS_EACH = 2000 if IS_NIGHT else 100
ROUNDS = 300 if IS_NIGHT else 30
KEPT_MIB_MAX = 24  # what an allocator holds back, and no more
SETTLES_S = 60.0
BODY_FRAME = b"\x03\x00\x01\x00\x01\xff\xf0" + bytes(131056) + b"\xce"


class Victim:
    """A running node with TLS beside its plain port."""

    def __init__(self, node: NodeProcess, tls_port: int) -> None:
        self.node = node
        self.tls_port = tls_port

    def rss_mib(self) -> float:
        assert self.node.process is not None
        status = Path(f"/proc/{self.node.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def descriptors(self) -> int:
        assert self.node.process is not None
        return len(os.listdir(f"/proc/{self.node.process.pid}/fd"))  # noqa: PTH208

    def dial(self) -> socket.socket:
        return socket.create_connection(
            (self.node.address.host, self.node.address.port), timeout=SETTLES_S
        )

    def serves(self) -> None:
        """An honest client gets back what it publishes."""
        with raw(self.node.address, timeout_s=SETTLES_S) as client:
            client.shake_hands()
            client.open_channel()
            client.declare("honest", durable=True)
            client.send(1, commands.Confirm.Select())
            client.expect(commands.Confirm.SelectOk, 1)
            client.publish("honest", b"hello")
            client.expect(commands.Basic.Ack, 1)
            client.send(1, commands.Basic.Get(queue="honest", no_ack=True))
            assert client.expect_content(commands.Basic.GetOk)[1] == b"hello"


def until_gone(victim: Victim, descriptors: int) -> None:
    """Until the node has closed what clients left: the other side of a socket is all there is."""
    deadline = time.monotonic() + SETTLES_S
    while victim.descriptors() > descriptors:
        assert time.monotonic() < deadline, f"{victim.descriptors()} sockets, not {descriptors}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    folder = tmp_path_factory.mktemp("hostile")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout k -out c"
    subprocess.run(["openssl", *words.split()], cwd=folder, check=True, capture_output=True)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * CONNECTIONS + 1000
    if soft < wanted:
        if hard < wanted:
            pytest.skip(f"{wanted} open files are not allowed here")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    with ExitStack() as stack:
        port = port_of(held := reserve_port())
        held.close()
        (node,) = stack.enter_context(nodes(folder))
        tls = TlsConfig(port=port, certfile=str(folder / "c"), keyfile=str(folder / "k"))
        node.config = msgspec.structs.replace(node.config, ssl=tls)
        node.start()
        node.await_running()
        yield Victim(node, port)
        said = node.output
        assert "Traceback" not in said and "crash" not in said, said[-3000:]


# -- attacks ---------------------------------------------------------------------------------------


def opened_raw(victim: Victim) -> RawClient:
    client = RawClient(victim.node.address, timeout_s=SETTLES_S)
    client.shake_hands()
    client.open_channel()
    return client


def is_dropped(client: socket.socket) -> None:
    """The node ends it, with or without words."""
    with suppress(ConnectionError):
        while client.recv(65536):
            pass


def until_told_off(client: RawClient) -> None:
    """Or until what is wrong on one channel was told, and the rest of the connection is closed."""
    while not isinstance(
        client.receive()[1], commands.Connection.Close | commands.Connection.CloseOk
    ):
        pass


def garbage(victim: Victim) -> None:
    """No AMQP at all; and noise behind a true header."""
    rng = random.Random(37)
    for number in range(ROUNDS):
        with victim.dial() as client, suppress(ConnectionError):
            client.sendall((PROTOCOL_HEADER if number % 2 else b"") + rng.randbytes(20_000))
            client.shutdown(socket.SHUT_WR)
            is_dropped(client)


def oversize(victim: Victim) -> None:
    """A frame that says it has 4 GiB; a body larger than it was announced; one that is too long."""
    for number in range(ROUNDS):
        with opened_raw(victim) as client, suppress(ConnectionError, EOFError):
            if number % 3 == 0:
                client.send_bytes(struct.pack(">BHI", 3, 1, 0xFFFFFFFF) + bytes(100_000))
            elif number % 3 == 1:
                publish = commands.Basic.Publish(routing_key="honest")
                client.send(1, publish, header.ContentHeader(body_size=3))
                client.send_bytes(BODY_FRAME)
            else:
                publish = commands.Basic.Publish(routing_key="honest")
                client.send(1, publish, header.ContentHeader(body_size=1 << 40))
                client.send_bytes(BODY_FRAME * 8)
                client.send(0, commands.Connection.Close(200, "", 0, 0))
            until_told_off(client)


def half_open(victim: Victim) -> None:
    """Half a handshake, half a frame, half a message, and gone without a word."""
    for number in range(ROUNDS):
        with victim.dial() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(PROTOCOL_HEADER[: 1 + number % 8])
        client_2 = opened_raw(victim)
        client_2.send(1, commands.Basic.Publish(routing_key="honest"))
        client_2.send(1, header.ContentHeader(body_size=1 << 20))
        client_2.send_bytes(BODY_FRAME[: 1000 * number])
        client_2.close()


def never_reading(victim: Victim) -> None:
    """Consumers that are given more than sockets hold, and look at none of it."""
    with opened_raw(victim) as client:
        client.declare("unread", durable=False, auto_delete=False)
        message = pamqp.frame.marshal(commands.Basic.Publish(routing_key="unread"), 1)
        message += pamqp.frame.marshal(header.ContentHeader(body_size=131056), 1) + BODY_FRAME
        for _ in range(ROUNDS):
            client.send_bytes(message)
        client.send(1, commands.Queue.Declare(queue="unread", passive=True))
        client.expect(commands.Queue.DeclareOk, 1)
    for _ in range(4):
        with opened_raw(victim) as client:
            client.send(1, commands.Basic.Consume(queue="unread", consumer_tag="c"))
            client.expect(commands.Basic.ConsumeOk, 1)
            client.send(1, *(commands.Queue.Declare(queue="unread", passive=True),) * 500)
    with opened_raw(victim) as client:
        client.send(1, commands.Queue.Delete(queue="unread"))
        client.expect(commands.Queue.DeleteOk, 1)


def many_connections(victim: Victim) -> None:
    """All are there at once, half of them with a true header, and say no more."""
    with ExitStack() as stack:
        for number in range(CONNECTIONS):
            client = stack.enter_context(victim.dial())
            if number % 2:
                client.sendall(PROTOCOL_HEADER)
        victim.serves()


def many_channels(victim: Victim) -> None:
    with ExitStack() as stack:
        for first in range(0, CHANNELS, CHANNELS_EACH):
            client = stack.enter_context(RawClient(victim.node.address, timeout_s=SETTLES_S))
            client.shake_hands()
            count = min(CHANNELS_EACH, CHANNELS - first)
            opens = (pamqp.frame.marshal(commands.Channel.Open(), n + 1) for n in range(count))
            client.send_bytes(b"".join(opens))
            for number in range(count):
                client.expect(commands.Channel.OpenOk, number + 1)
        victim.serves()


def slow_handshakes(victim: Victim) -> None:
    """A byte at a time, by many, who are told off by the clock (``HANDSHAKE_TIMEOUT_MS``)."""
    with ExitStack() as stack:
        clients = [stack.enter_context(victim.dial()) for _ in range(ROUNDS)]
        for byte in PROTOCOL_HEADER[:7]:
            for client in clients:
                client.sendall(bytes([byte]))
        victim.serves()
        for client in clients:
            is_dropped(client)


def tls_tricks(victim: Victim) -> None:
    """Renegotiation is refused; plain text, half a hello and early ends where TLS is spoken."""
    address = (victim.node.address.host, victim.tls_port)
    for number in range(ROUNDS):
        client = socket.create_connection(address, timeout=SETTLES_S)
        with client, suppress(ConnectionError):
            client.sendall((PROTOCOL_HEADER, b"\x16\x03\x01\x02\x00\x01", b"")[number % 3])
            client.shutdown(socket.SHUT_WR)
            is_dropped(client)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(address, timeout=SETTLES_S)) as client:
        client.sendall(PROTOCOL_HEADER)
        assert client.recv(7)[0] == 1
    command = ["openssl", "s_client", "-connect", f"{address[0]}:{address[1]}", "-tls1_2"]
    asked = subprocess.run(
        command, input=b"R\nR\nR\n", capture_output=True, timeout=SETTLES_S, check=False
    )
    assert b"RENEGOTIATING" in asked.stdout + asked.stderr
    assert b"no renegotiation" in asked.stdout + asked.stderr


def header_bombs(victim: Victim) -> None:
    """Tables in tables in tables; lists whose length is a lie; thousands of headers."""
    depth = 20_000
    nested = b""
    for _ in range(2000):
        nested = b"\x01aF" + struct.pack(">I", len(nested)) + nested
    flat = b"".join(b"\x08%08dt\x01" % number for number in range(10_000))
    lie = b"\x01aA\xff\xff\xff\xff"
    arrays = b"\x01aA" + struct.pack(">I", 5 * depth) + b"A\x00\x00\x00\x00" * depth
    for table in (nested, flat, lie, arrays) * (ROUNDS // 10):
        data = b"\x20\x00" + struct.pack(">I", len(table)) + table
        with opened_raw(victim) as client, suppress(ConnectionError, EOFError):
            client.send(1, commands.Basic.Publish(routing_key="nowhere"))
            payload = struct.pack(">HHQ", 60, 0, 0) + data
            head = struct.pack(">BHI", 2, 1, len(payload))
            client.send_bytes(head + payload + b"\xce")
            client.send(0, commands.Connection.Close(200, "", 0, 0))
            until_told_off(client)


ATTACKS = (
    *(garbage, oversize, half_open, never_reading, many_connections, many_channels),
    *(slow_handshakes, tls_tricks, header_bombs),
)


@contextmanager
def bounded(victim: Victim) -> Iterator[None]:
    before, descriptors = victim.rss_mib(), victim.descriptors()
    yield
    until_gone(victim, descriptors)
    victim.serves()
    kept = victim.rss_mib() - before
    assert kept < KEPT_MIB_MAX, f"{kept:.0f} MiB more than before"


SLOW = pytest.mark.nightly("waits for the end of handshakes, twice")


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(each, id=each.__name__, marks=SLOW if each is slow_handshakes else ())
        for each in ATTACKS
    ],
)
def test_a_node_keeps_nothing_of_an_attack(
    victim: Victim, attack: Callable[[Victim], None]
) -> None:
    victim.serves()
    descriptors = victim.descriptors()
    attack(victim)
    until_gone(victim, descriptors)
    with bounded(victim):
        attack(victim)
