"""What a broker's node waits for when it boots for the first time, at servers of one answer."""

from __future__ import annotations

import json
import socketserver
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shalott.cluster.images.rocketmq.await_others import (
    GET_BROKER_CLUSTER_INFO,
    UPDATE_BROKER_CONFIG,
    asked,
    is_there,
    main,
)

pytestmark = pytest.mark.unit

OWN = "10.0.0.2:10911"
MASTER = b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911"}}}}'
SLAVE = MASTER.replace(b"{0:", b"{1:")
BOTH = MASTER.replace(b'1:10911"', b'1:10911",1:"10.0.0.2:10911"')


class Server(socketserver.ThreadingTCPServer):
    """Answers requests as a name server that knows ``known``, and keeps them. Who sets a broker's
    permissions makes it known, as a broker would that registers."""

    allow_reuse_address = True
    known = MASTER

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[int, bytes]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        size, header_size = struct.unpack(">II", self.rfile.read(8))
        header = json.loads(self.rfile.read(header_size))
        body = self.rfile.read(size - 4 - header_size)
        self.server.requests.append((header["code"], body))
        if header["code"] == UPDATE_BROKER_CONFIG:
            self.server.known = b'{"brokerAddrs":{0:"%s"}}' % self.server.address.encode()
        answer = b'{"code":0}'
        content = struct.pack(">I", len(answer)) + answer + self.server.known
        self.wfile.write(struct.pack(">I", len(content)) + content)


@contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("known", "what", "there"),
    [
        (b"{}", "name-servers", True),
        (b"{}", "master", False),
        (SLAVE, "master", False),
        (MASTER, "master", True),
        (MASTER.replace(b"{0:", b'{"0": '), "master", True),
        (MASTER, "registered", False),
        (BOTH, "registered", True),
        (b"{}", "unrivalled", True),
        (SLAVE, "unrivalled", True),
        (MASTER, "unrivalled", False),
        (BOTH, "unrivalled", False),
        (MASTER.replace(b"10.0.0.1", b"10.0.0.2"), "unrivalled", True),
        (MASTER.replace(b"{0:", b'{1:"10.0.0.2:10911", "0": '), "unrivalled", False),
    ],
)
def test_what_a_name_server_says_is_looked_for(known: bytes, what: str, there: bool) -> None:
    with serving() as server:
        server.known = known
        assert is_there(server.address, what, OWN) is there
        assert server.requests == [(GET_BROKER_CLUSTER_INFO, b"")]


def test_nobody_is_not_there() -> None:
    with serving() as server:
        gone = server.address
    assert asked(gone, GET_BROKER_CLUSTER_INFO) is None
    assert not is_there(gone, "name-servers", OWN)
    assert is_there(gone, "unrivalled", OWN)


@pytest.mark.parametrize(("broker_id", "asks"), [("0", True), ("1", False)])
def test_only_a_master_has_rivals(
    broker_id: str, asks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:
        server.known = MASTER.replace(b"10.0.0.1", b"10.0.0.2")
        file = tmp_path / "broker.properties"
        file.write_text(
            f"brokerIP1=10.0.0.2\nlistenPort=10911\nbrokerId={broker_id}\n"
            f"namesrvAddr={server.address}\n"
        )
        monkeypatch.setattr(sys, "argv", ["await_others.py", str(file), "unrivalled", "60"])
        main()
        assert server.requests == ([(GET_BROKER_CLUSTER_INFO, b"")] if asks else [])


def test_a_broker_is_asked_to_register_until_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving() as server:  # the broker and its name server in one
        host, _, port = server.address.rpartition(":")
        file = tmp_path / "broker.properties"
        file.write_text(f"brokerIP1={host}\nlistenPort={port}\nnamesrvAddr={server.address}\n")
        monkeypatch.setattr(sys, "argv", ["await_others.py", str(file), "registered", "60"])
        main()
        info = (GET_BROKER_CLUSTER_INFO, b"")
        assert server.requests == [info, (UPDATE_BROKER_CONFIG, b"brokerPermission=6"), info]
