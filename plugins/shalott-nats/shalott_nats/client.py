"""Clients of NATS JetStream, by nats-py: queues, logs, and the names of both.

Every request is one of the library's own, with one connection a client, which neither reconnects
nor sends again by itself: a second copy of a message would be the client's, not the server's.

    Unreachable   no connection
    Definite      "no responders": the server had no one to hand the request to; a message of a
                  sequence that is not the expected one; a read that failed in any way
    Indefinite    no answer in time, a connection that ended, and every other error: the leader
                  answers some after it has proposed, when others may have stored the message

A queue is a stream with the work-queue policy and one durable pull consumer. A log is one stream;
a partition is a subject in it, and a message's sequence its offset. It is read at the client's own
node, from that node's copy: by a consumer without replicas, which reads the store of the node on
which it lies. The servers lay it where they like, so it is made again until it lies there. Where
the meta group's leader knows no such stream any more, there is nothing in it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client as Connection
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

import shalott.api as api

LOG, CONSUMER = "log", "shared"
BATCH = 256  # messages of a poll, at most
NO_STREAM = 10059  # an error's code
PLACINGS = 40  # of a consumer: in a cluster of five, one in 7,500 is never where it should be
NO_MESSAGES = ("404", "408")
IDLE_S = 30.0  # after which the server forgets a reader
API_PREFIX = "$JS.API"


def stream_of(queue: str) -> str:
    """A stream's name has no dots."""
    return queue.replace(".", "_")


def subject_of(queue: str) -> str:
    return f"queues.{queue}"


async def connect(host: str, port: int, timeout_ms: int, **account: str) -> Connection:
    """Raises Unreachable."""

    async def quiet(error: Exception) -> None:
        """What goes wrong is told to the one who asked."""

    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await nats.connect(
                f"nats://{host}:{port}",
                allow_reconnect=False,
                max_reconnect_attempts=1,  # of a first connection too, which 0 would mean for ever
                reconnect_time_wait=0,
                connect_timeout=max(1, timeout_ms // 1000),
                error_cb=quiet,
                **account,
            )
    except (nats.errors.Error, OSError, TimeoutError) as error:
        raise api.Unreachable(f"{host}:{port}: {error or 'no answer in time'}") from error


@asynccontextmanager
async def told(what: str) -> AsyncIterator[None]:
    """The library's errors as the harness has them."""
    try:
        yield
    except (nats.errors.NoRespondersError, nats.js.errors.NoStreamResponseError) as error:
        raise api.Definite(f"{what}: no one responds") from error
    except nats.errors.TimeoutError as error:
        raise api.Indefinite(f"{what}: no answer in time") from error
    except (nats.errors.Error, OSError) as error:
        raise api.Indefinite(f"{what}: {error or type(error).__name__}") from error


@asynccontextmanager
async def reading(what: str) -> AsyncIterator[None]:
    """As ``told``; but what only reads has certainly done nothing."""
    try:
        async with told(what):
            yield
    except api.Indefinite as error:
        raise api.Definite(str(error)) from error


@dataclass(slots=True)
class Link:
    """One connection, which is made anew when it is next needed after it ended."""

    host: str
    port: int
    timeout_ms: int
    connection: Connection | None = None

    @property
    def timeout_s(self) -> float:
        return self.timeout_ms / 1000

    async def up(self) -> Connection:
        if self.connection is None or not self.connection.is_connected:
            await self.close()
            self.connection = await connect(self.host, self.port, self.timeout_ms)
        return self.connection

    async def stream(self) -> JetStreamContext:
        return (await self.up()).jetstream(timeout=self.timeout_s)

    async def lacks(self, name: str) -> bool:
        """Whether the meta group's leader says that there is no such stream. Raises ClientError."""
        stream = await self.stream()
        async with reading("stream info"):
            try:
                await stream.stream_info(name)
            except nats.js.errors.NotFoundError as error:
                return error.err_code == NO_STREAM
        return False

    async def ask_for_message(self, subject: str, body: object) -> Msg:
        """A stream's message comes under its own subject: the library finds the request of an
        answer by that, unless the request has a subscription of its own, as in the old style."""
        connection = await self.up()
        text = json.dumps(body).encode()
        return await connection.request(subject, text, timeout=self.timeout_s, old_style=True)

    async def close(self) -> None:
        """A connection to a paused node takes no farewell."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(nats.errors.Error, OSError, TimeoutError):
                await asyncio.wait_for(connection.close(), 1)


def status_of(message: Msg) -> str:
    return (message.headers or {}).get("Status", "")


class QueueClient:
    """See ``core.queued.Queued``."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._link = Link(host, port, timeout_ms)

    async def open(self) -> None:
        await self._link.up()

    async def close(self) -> None:
        await self._link.close()

    async def send(self, queue: str, body: bytes) -> None:
        stream = await self._link.stream()
        async with told("publish"):
            await stream.publish(subject_of(queue), body, stream=stream_of(queue))

    async def receive(self, queue: str) -> api.Received | None:
        name = f"{stream_of(queue)}.{CONSUMER}"
        await self._link.up()
        try:
            async with told("fetch"):
                message = await self._link.ask_for_message(
                    f"{API_PREFIX}.CONSUMER.MSG.NEXT.{name}", {"batch": 1, "no_wait": True}
                )
        except api.Definite:  # no leader listens, or there is none to be had
            if await self._link.lacks(stream_of(queue)):
                return None
            raise
        status = status_of(message)
        if not status:
            again = message.metadata.num_delivered
            return api.Received(message.data, None if again is None else again > 1, message.reply)
        if status not in NO_MESSAGES:
            raise api.Definite(f"fetch: {status} {(message.headers or {}).get('Description', '')}")
        stream = await self._link.stream()
        async with reading("consumer info"):
            about = await stream.consumer_info(stream_of(queue), CONSUMER)
        if about.num_pending or about.num_ack_pending:
            raise api.Definite(f"{about.num_ack_pending} were delivered and are not settled")
        return None

    async def settle(self, received: api.Received) -> None:
        connection = self._link.connection
        if connection is None:
            raise api.Unreachable("the connection ended")
        async with told("acknowledge"):
            await connection.request(str(received.token), b"+ACK", timeout=self._link.timeout_s)


@dataclass(slots=True)
class Reader:
    """A consumer, and where each key's next poll begins if it goes on from there."""

    name: str
    places: dict[int, int] = field(default_factory=dict)


class LogClient:
    """See ``core.partitions.Partitioned``."""

    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._link = Link(host, port, timeout_ms)
        self._reader: Reader | None = None

    async def open(self) -> None:
        await self._link.up()

    async def close(self) -> None:
        await self._link.close()

    async def transact(
        self, mops: Sequence[tuple[object, ...]], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Sequence[tuple[int, int]]]]:
        """One send or one poll: JetStream has no transactions over several."""
        (mop,) = mops
        if mop[0] == "send":
            return [await self._send(int(str(mop[1])), int(str(mop[2])))]
        try:
            async with asyncio.timeout(self._link.timeout_s):
                return [await self._poll(places)]
        except TimeoutError as error:
            self._reader = None
            raise api.Definite("poll: no answer in time") from error
        except api.ClientError:
            self._reader = None
            raise

    async def _send(self, key: int, value: int) -> tuple[int, int]:
        stream = await self._link.stream()
        async with told("publish"):
            done = await stream.publish(f"{LOG}.{key}", b"%d" % value, stream=LOG)
        return done.seq, value

    async def _poll(self, places: Mapping[int, int]) -> Mapping[int, Sequence[tuple[int, int]]]:
        """Until there is something, or certainly nothing more."""
        reader = self._reader
        if reader is None and await self._link.lacks(LOG):
            return {}
        if reader is None or reader.places != dict(places) or self._link.connection is None:
            reader = self._reader = await self._make_reader(places)
        pending = True
        while pending:
            found, pending = await self._fetch(reader.name)
            polled: dict[int, list[tuple[int, int]]] = {}
            for offset, key, value in found:
                if key in places and offset >= places[key]:
                    polled.setdefault(key, []).append((offset, value))
            if polled:
                reader.places |= {key: pairs[-1][0] + 1 for key, pairs in polled.items()}
                return polled
        return {}

    async def _fetch(self, name: str) -> tuple[list[tuple[int, int, int]], bool]:
        """What is there, as offset, key and value; and whether there is more. The server says when
        it has come to the end: until then it may still send what would be lost unheard."""
        connection = await self._link.up()
        async with reading("poll"):
            inbox = connection.new_inbox()
            answers = await connection.subscribe(inbox)
            try:
                await connection.publish(
                    f"{API_PREFIX}.CONSUMER.MSG.NEXT.{LOG}.{name}",
                    json.dumps({"batch": BATCH, "no_wait": True}).encode(),
                    reply=inbox,
                )
                found: list[tuple[int, int, int]] = []
                while len(found) < BATCH:
                    message = await answers.next_msg(timeout=self._link.timeout_s)
                    if status := status_of(message):
                        if status not in NO_MESSAGES:
                            raise api.Definite(f"poll: {status}")
                        return found, False
                    about = message.metadata
                    key = int(message.subject.rpartition(".")[2])
                    found.append((about.sequence.stream, key, int(message.data)))
                return found, True
            finally:
                await answers.unsubscribe()

    async def _make_reader(self, places: Mapping[int, int]) -> Reader:
        """Where the node has a copy, on it."""
        stream = await self._link.stream()
        own = str((await self._link.up())._server_info["server_name"])
        wanted = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=max(1, min(places.values(), default=1)),
            ack_policy=AckPolicy.NONE,
            num_replicas=1,
            mem_storage=True,
            inactive_threshold=IDLE_S,
        )
        async with reading("consumer"):
            about = (await stream.stream_info(LOG)).cluster
            holders = {peer.name for peer in (about and about.replicas) or ()}
            holders.add(about.leader if about else own)
            for _ in range(PLACINGS):
                made = await stream.add_consumer(LOG, wanted)
                if own not in holders or made.cluster is None or made.cluster.leader == own:
                    return Reader(made.name, dict(places))
                await stream.delete_consumer(LOG, made.name)
        raise api.Definite(f"no consumer came to lie on {own}")
