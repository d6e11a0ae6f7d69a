"""Clients of etcd's API v3, by HTTP and JSON through its gRPC gateway: registers, transactions, and
a log that is polled by a watch.

    Definite      the request was refused before it was proposed (REFUSED); a comparison that did
                  not hold; a read that failed in any way
    Unreachable   nothing was sent
    Indefinite    no answer in time, a connection that ended, any other status: an entry that "timed
                  out", or was proposed when the "leader changed", may yet be committed

A transaction reads first, all keys at one revision, and then writes what it wants if nothing that
it read was written since. The log is a put for each message, whose revision is its offset; it is
polled by a watch that stays open from poll to poll.

The API: https://etcd.io/docs/latest/dev-guide/api_grpc_gateway
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import h11
import msgspec

import shalott.api as api

# What gRPC's InvalidArgument, FailedPrecondition, OutOfRange, Unauthenticated, PermissionDenied,
# NotFound, ResourceExhausted and Unimplemented become.
REFUSED = (400, 401, 403, 404, 405, 412, 429)
LOG = "log/"
LINE_BYTES_MAX = 16 * 1024 * 1024
T = TypeVar("T")


class Header(msgspec.Struct, frozen=True):
    revision: str = "0"
    member_id: str = "0"


class Pair(msgspec.Struct, frozen=True):
    """A key and what it holds, both in base64."""

    key: str
    value: str = ""
    mod_revision: str = "0"

    def text(self) -> str:
        return base64.b64decode(self.value).decode()


class Found(msgspec.Struct, frozen=True):
    header: Header = Header()
    kvs: tuple[Pair, ...] = ()


class Part(msgspec.Struct, frozen=True):
    response_range: Found | None = None


class Done(msgspec.Struct, frozen=True):
    header: Header = Header()
    succeeded: bool = False
    responses: tuple[Part, ...] = ()


class Event(msgspec.Struct, frozen=True):
    kv: Pair
    type: str = "PUT"


class Watched(msgspec.Struct, frozen=True):
    """Without events, and not ``created``: how far the watch is, which was asked or is time."""

    header: Header = Header()
    created: bool = False
    canceled: bool = False
    cancel_reason: str = ""
    events: tuple[Event, ...] = ()


class Streamed(msgspec.Struct, Generic[T], frozen=True):
    result: T


async def ask(at: api.Endpoint, path: str, body: object, timeout_ms: int, kind: type[T]) -> T:
    """The answer of ``POST /v3/path``. Raises ClientError: Unreachable if nothing was sent."""
    content = msgspec.json.encode(body)
    headers = [("Host", f"{at.host}:{at.port}"), ("Content-Length", str(len(content)))]
    head = h11.Request(
        method="POST", target=f"/v3/{path}", headers=[*headers, ("Connection", "close")]
    )
    try:
        response = await api.exchange(at, head, content, timeout_ms)
    except api.Definite as error:
        raise api.Unreachable(str(error)) from error
    if response.status == 200:
        try:
            return msgspec.json.decode(response.body, type=kind)
        except msgspec.DecodeError as error:
            raise api.Indefinite(f"{path}: {error}") from error
    said = f"{response.status}: {response.body[:200].decode(errors='replace').strip()}"
    raise api.Definite(said) if response.status in REFUSED else api.Indefinite(said)


def encode(text: object) -> str:
    """Keys and values are bytes, in base64."""
    return base64.b64encode(str(text).encode()).decode()


def keys_of(prefix: str) -> dict[str, str]:
    """All keys that begin so."""
    return {"key": encode(prefix), "range_end": encode(prefix[:-1] + chr(ord(prefix[-1]) + 1))}


class Store:
    """One node, a connection a request: what all clients here are made of."""

    def __init__(
        self, host: str, port: int, *, timeout_ms: int, serializable: bool = False
    ) -> None:
        self.at = api.Endpoint(host, port)
        self.timeout_ms = timeout_ms
        self.serializable = serializable  # reads are answered from the node's own copy

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def ask(self, what: str, body: object, kind: type[T]) -> T:
        return await ask(self.at, f"kv/{what}", body, self.timeout_ms, kind)

    async def look(self, what: str, body: object, kind: type[T]) -> T:
        """What only reads has certainly done nothing if it fails."""
        try:
            return await self.ask(what, body, kind)
        except api.Indefinite as error:
            raise api.Definite(str(error)) from error

    def range_of(self, key: str) -> dict[str, object]:
        return {"key": encode(key), "serializable": self.serializable}


class RegisterClient(Store):
    """See ``core.registers.Registered``."""

    async def read(self, key: str) -> int | None:
        found = (await self.look("range", self.range_of(key), Found)).kvs
        return int(found[0].text()) if found else None

    async def write(self, key: str, value: int) -> None:
        await self.ask("put", {"key": encode(key), "value": encode(value)}, Done)

    async def cas(self, key: str, old: int, new: int) -> bool:
        there = {"key": encode(key), "target": "VALUE", "value": encode(old)}
        put = {"requestPut": {"key": encode(key), "value": encode(new)}}
        return (await self.ask("txn", {"compare": [there], "success": [put]}, Done)).succeeded


Mop = tuple[str, int, object]


class TransactionClient(Store):
    """See ``core.transactions.Transactor``. Lists are JSON."""

    async def transact(self, mops: Sequence[Mop]) -> Sequence[Mop]:
        keys = list(dict.fromkeys(key for _, key, _ in mops))
        ranges = [{"requestRange": self.range_of(f"txn/{key}")} for key in keys]
        seen = await self.look("txn", {"success": ranges}, Done)
        held: dict[int, object] = {}
        revisions: dict[int, str] = {}
        for key, part in zip(keys, seen.responses, strict=True):
            kvs = (part.response_range or Found()).kvs
            held[key] = msgspec.json.decode(kvs[0].text()) if kvs else None
            revisions[key] = kvs[0].mod_revision if kvs else "0"
        done: list[Mop] = []
        written: dict[int, object] = {}
        for f, key, value in mops:
            if f == "r":
                done.append((f, key, held[key]))
                continue
            if f == "append":
                held[key] = written[key] = [*_list(held[key]), value]
            else:
                held[key] = written[key] = value
            done.append((f, key, value))
        if written:
            await self._write(written, revisions)
        return done

    async def _write(self, written: Mapping[int, object], revisions: Mapping[int, str]) -> None:
        compare = [
            {"key": encode(f"txn/{key}"), "target": "MOD", "modRevision": revision}
            for key, revision in revisions.items()
        ]
        puts = [
            {"requestPut": {"key": encode(f"txn/{key}"),
                            "value": encode(msgspec.json.encode(value).decode())}}
            for key, value in written.items()
        ]  # fmt: skip
        body = {"compare": compare, "success": puts}
        if not (await self.ask("txn", body, Done)).succeeded:
            raise api.Definite("a key was written since it was read")


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list) else []


class Watch:
    """A watch on one node of all keys that begin so, which stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = h11.Connection(our_role=h11.CLIENT)
        self._rest = b""

    @classmethod
    async def open(cls, at: api.Endpoint, prefix: str, start: int, *, progress: bool) -> Watch:
        """``progress``: asked at once, and told again where nothing happens."""
        watch = cls(*await asyncio.open_connection(at.host, at.port))
        wanted = {**keys_of(prefix), "start_revision": str(start), "progress_notify": progress}
        content = msgspec.json.encode({"create_request": wanted})
        if progress:
            content += msgspec.json.encode({"progress_request": {}})
        headers = [("Host", f"{at.host}:{at.port}"), ("Content-Length", str(len(content)))]
        head = h11.Request(method="POST", target="/v3/watch", headers=headers)
        for part in (head, h11.Data(data=content), h11.EndOfMessage()):
            watch._writer.write(watch._http.send(part) or b"")
        try:
            await watch._writer.drain()
        except BaseException:  # also if it is cancelled: nobody else knows of the connection
            watch.close()
            raise
        return watch

    def close(self) -> None:
        self._writer.transport.abort()

    async def next(self) -> Watched:
        """Raises Definite: it has ended, or was canceled."""
        while b"\n" not in self._rest:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._reader.read(65536))
            elif isinstance(event, h11.Data):
                self._rest += event.data
            elif not isinstance(event, h11.Response) or event.status_code != 200:
                raise api.Definite(f"the watch ended: {event}")
            if len(self._rest) > LINE_BYTES_MAX:
                raise api.Definite("the watch sends a line without an end")
        line, _, self._rest = self._rest.partition(b"\n")
        told = msgspec.json.decode(line, type=Streamed[Watched]).result
        if told.canceled:
            raise api.Definite(f"the watch was canceled: {told.cancel_reason}")
        return told


class LogClient(Store):
    """See ``core.partitions.Partitioned``."""

    _watch: Watch | None = None
    _floor: Mapping[int, int] = {}  # where it was when the watch began
    _places: Mapping[int, int] = {}  # that the watch goes on from
    _seen = 0  # the newest offset that it has told

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        """One send or one poll."""
        (mop,) = mops
        if mop[0] == "send":
            put = {"key": encode(f"{LOG}{mop[1]}"), "value": encode(mop[2])}
            done = await self.ask("put", put, Done)
            return [(int(done.header.revision), int(str(mop[2])))]
        why = "no answer in time"
        try:
            async with asyncio.timeout(self.timeout_ms / 1000):
                return [await self._poll(places)]
        except (OSError, h11.RemoteProtocolError, msgspec.DecodeError, api.ClientError) as error:
            why = str(error)  # a TimeoutError is an OSError
        await self.close()
        raise api.Definite(f"poll: {why or 'no answer in time'}")

    async def _poll(self, places: Mapping[int, int]) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Until the watch has come to what was the newest message when the poll began."""
        newest = {
            **keys_of(LOG), "limit": 1, "sort_order": "DESCEND", "sort_target": "MOD",
        }  # fmt: skip
        kvs = (await self.look("range", newest, Found)).kvs
        end = int(kvs[0].mod_revision) if kvs else 0
        if self._watch is None or self._places != places:
            await self.close()
            start = max(1, min(places.values(), default=1))
            self._watch = await Watch.open(self.at, LOG, start, progress=False)
            self._places, self._floor, self._seen = dict(places), dict(places), 0
        polled: dict[int, list[tuple[int, int]]] = {}
        while self._seen < end:
            for event in (await self._watch.next()).events:
                offset = int(event.kv.mod_revision)
                self._seen = max(self._seen, offset)
                key = int(base64.b64decode(event.kv.key).decode().removeprefix(LOG))
                if offset >= self._floor.get(key, offset + 1):  # what comes again is shown again
                    polled.setdefault(key, []).append((offset, int(event.kv.text())))
        self._places = {**places, **{key: pairs[-1][0] + 1 for key, pairs in polled.items()}}
        return polled
