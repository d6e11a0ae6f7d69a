"""What etcd's answers mean to its client: ok, fail, or nobody knows."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import closing

import pytest

from shalott.cluster.local.backend import port_of, reserve_port
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.op import Completion, Invocation
from shalott.workloads.register import RegisterClient
from shalott_registers.client import EtcdClient

pytestmark = pytest.mark.unit

HOST = "127.0.0.1"
READ = Invocation(f="read", key="r")
WRITE = Invocation(f="write", key="r", value=3)
CAS = Invocation(f="cas", key="r", value=13)  # from 1 to 3
TIMED_OUT = {"error": "etcdserver: request timed out", "code": 14}
SILENT, CLOSED = (0, "silent"), (0, "closed")


def ask(
    invocation: Invocation, status: int, body: object, *, serializable: bool = False
) -> tuple[Completion, str, object]:
    """The completion, and what the server was asked: path and body."""
    asked: list[tuple[str, object]] = []
    served = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer_one(reader, writer)
        finally:
            served.set()

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
        content = await reader.readexactly(int(fields["Content-Length"]))
        asked.append((head.split()[1], json.loads(content)))
        answer = json.dumps(body).encode()
        if (status, body) == SILENT:
            await reader.read()
        elif (status, body) != CLOSED:
            length = f"Content-Length: {len(answer)}"
            writer.write(f"HTTP/1.1 {status} X\r\n{length}\r\n\r\n".encode() + answer)
        writer.close()

    async def scenario() -> Completion:
        server = await asyncio.start_server(serve, HOST, 0)
        port = server.sockets[0].getsockname()[1]
        # A server that answers has the time that a busy machine needs.
        timeout_ms = 1000 if (status, body) == SILENT else 30_000
        own = EtcdClient(HOST, port, timeout_ms=timeout_ms, serializable=serializable)
        client = RegisterClient(own)
        async with server:
            await client.open()
            try:
                return await client.invoke(invocation)
            finally:
                await client.close()
                await served.wait()

    completion = asyncio.run(scenario())
    ((path, sent),) = asked
    return completion, path, sent


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_read_finds_a_value_or_nothing() -> None:
    found = {"kvs": [{"key": in_base64("r"), "value": in_base64("4")}], "count": "1"}
    assert ask(READ, 200, found)[0] == Completion(type="ok", value=4)
    assert ask(READ, 200, {"header": {}})[0] == Completion(type="ok", value=None)


@pytest.mark.parametrize("serializable", [False, True])
def test_a_read_says_whether_it_may_be_stale(serializable: bool) -> None:
    _, path, sent = ask(READ, 200, {}, serializable=serializable)
    assert path == "/v3/kv/range"
    assert sent == {"key": in_base64("r"), "serializable": serializable}


def test_a_write_puts_its_value() -> None:
    completion, path, sent = ask(WRITE, 200, {"header": {}})
    assert completion == Completion(type="ok", value=3)
    assert (path, sent) == ("/v3/kv/put", {"key": in_base64("r"), "value": in_base64("3")})


def test_a_cas_compares_and_puts_in_one_transaction() -> None:
    completion, path, sent = ask(CAS, 200, {"succeeded": True})
    assert completion == Completion(type="ok", value=13)
    assert path == "/v3/kv/txn"
    assert sent == {
        "compare": [{"key": in_base64("r"), "target": "VALUE", "value": in_base64("1")}],
        "success": [{"requestPut": {"key": in_base64("r"), "value": in_base64("3")}}],
    }


def test_a_cas_that_did_not_match_certainly_did_nothing() -> None:
    assert ask(CAS, 200, {"header": {}})[0] == Completion(type="fail", error="did not match")


@pytest.mark.parametrize("invocation", [WRITE, CAS], ids=lambda each: each.f)
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (503, TIMED_OUT),
        (503, {"error": "etcdserver: leader changed", "code": 14}),
        (504, {"error": "context deadline exceeded", "code": 4}),
        (408, {"error": "context canceled", "code": 1}),
        (500, {"error": "unknown", "code": 2}),
        SILENT,
        CLOSED,
    ],
)
def test_nobody_knows_what_became_of_an_entry_that_timed_out(
    invocation: Invocation, status: int, body: object
) -> None:
    with pytest.raises(Indefinite):
        ask(invocation, status, body)


@pytest.mark.parametrize("invocation", [WRITE, CAS], ids=lambda each: each.f)
@pytest.mark.parametrize("status", [400, 403, 404, 412])
def test_what_was_refused_certainly_did_not_happen(invocation: Invocation, status: int) -> None:
    with pytest.raises(Definite) as raised:
        ask(invocation, status, {"error": "etcdserver: key is not provided", "code": 3})
    assert not isinstance(raised.value, Unreachable), "the connection is sound"


@pytest.mark.parametrize(("status", "body"), [(503, TIMED_OUT), SILENT, CLOSED])
def test_a_read_changes_nothing_so_it_certainly_did_not_happen(status: int, body: object) -> None:
    with pytest.raises(Definite):
        ask(READ, status, body)


@pytest.mark.parametrize("invocation", [READ, WRITE, CAS], ids=lambda each: each.f)
def test_nothing_was_sent_where_nobody_listens(invocation: Invocation) -> None:
    async def scenario() -> Completion:
        port = port_of(holder)
        client = RegisterClient(EtcdClient(HOST, port, timeout_ms=200))
        return await client.invoke(invocation)

    with closing(reserve_port()) as holder, pytest.raises(Unreachable):
        asyncio.run(scenario())
