"""RecoveringClient: the client of the workload ``consume`` that a library does the work for.

Publishing and consuming are the library's, over a tap that reads along (amqp_tap.py): what it does
by itself is recorded like what it was asked to do (wire_rows.py). Declaring, deleting and the last
emptying of queues are our own client's. Operations are those of consuming/client.py; of an enqueue:

    ok      the library says that it is confirmed, and the confirm was on the wire
    fail    nothing was sent, or it came back without a route
    info    anything else; also if the library says confirmed and no confirm came, or says that it
            failed though one did. ``sent`` in ``extra``, if it is not 1: how often it was sent

The library's connections outlive the client (hosts.py): an application is not started anew because
it does not know what became of a message.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, Protocol, TypeVar

from shalott.broker.base.tasks import Tasks
from shalott.clients.amqp.consumer_client import EXCHANGE_PREFIX, ConsumerClients
from shalott.clients.amqp.queue_client import AmqpQueueClient
from shalott.clients.amqp_libraries.aio_pika_library import AioPika
from shalott.clients.amqp_libraries.amqp_tap import AmqpTap
from shalott.clients.amqp_libraries.library import Library, Outgoing, require_library
from shalott.clients.amqp_libraries.pika_library import Pika
from shalott.clients.amqp_libraries.wire_rows import Ledger, Published
from shalott.core.client import OWN, Client, ClientRows, MakeClient, refuse_in_simulation
from shalott.core.consumer_generator import slot_name
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.history import Recorder
from shalott.core.message_body import encode_body
from shalott.core.op import Completion, Invocation
from shalott.core.subscription import subscription_of

READING_S = 0.05  # what a library has sent is read by the tap within this
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # of objects that libraries name
LIBRARY_LOGGERS = ("aio_pika", "aiormq", "pika")

MakeLibrary = Callable[[int], Library]


def quieten_libraries() -> None:
    """They log every lost connection with its traceback; the history has it."""
    for name in LIBRARY_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


class LibraryHost:
    """A library behind its tap. ``open`` once; ``hang_up`` or ``close`` at the end."""

    def __init__(self, library: Library, ledger: Ledger, host: str, port: int) -> None:
        self.library = library
        self.ledger = ledger
        self._tap = AmqpTap(host, port, ledger.connection)

    async def open(self) -> None:
        """Raises Unreachable."""
        try:
            await self.library.open(*await self._tap.open())
        except Unreachable:
            await self._tap.close()
            raise

    async def hang_up(self) -> None:
        """Without a word: nothing reaches the node any more."""
        self.ledger.over = "hung-up"
        await self._tap.close()
        await self.library.drop()

    async def close(self) -> None:
        self.ledger.over = "closed"
        await self.library.close()
        await self._tap.close()


class RecoveringClient:
    """Serves one process on one node. What its library can't do is done by our own client of the
    same node, which is never told to record."""

    def __init__(self, host: str, port: int, run: RecoveringClients) -> None:
        self._host = host
        self._port = port
        self._run = run
        self._own = run.own(host, port)
        self._own_open = False
        self._rows: ClientRows | None = None
        self._host_of_library: LibraryHost | None = None

    def record_in(self, recorder: Recorder, process: int, node: str) -> None:
        self._rows = ClientRows(recorder, process, node)

    @property
    def holds(self) -> tuple[str, ...]:
        host = self._host_of_library
        return () if host is None else host.library.holds

    async def open(self) -> None:
        rows = self._rows
        if rows is None:  # it only declares
            await self._open_own()
            return
        host = self._run.hosts.take(rows.process % self._run.threads)
        if host is None:
            ledger = Ledger(rows, self._run.own.numbers)
            library = self._run.make_library(self._run.own.op_timeout_ms)
            host = LibraryHost(library, ledger, self._host, self._port)
            await host.open()
        host.ledger.rows.process = rows.process
        self._host_of_library = host

    async def close(self) -> None:
        host, self._host_of_library = self._host_of_library, None
        if host is not None and self._rows is not None:
            self._run.hosts.park(self._rows.process % self._run.threads, host)
        await self._close_own()

    async def invoke(self, invocation: Invocation) -> Completion:
        operations: dict[str, Callable[[Library, Invocation], Awaitable[Completion]]] = {
            "enqueue": self._enqueue,
            "subscribe": self._subscribe,
            "unsubscribe": self._unsubscribe,
            "close-channel": self._close_channel,
            "look": self._look,
        }
        if invocation.f == "hang-up":
            return await self._hang_up()
        operation = operations.get(invocation.f)
        if operation is None:
            return await self._do_it_ourselves(invocation)
        if self._host_of_library is None:
            try:
                await self.open()
            except Unreachable as error:
                raise Definite(str(error)) from error
        assert self._host_of_library is not None
        return await operation(self._host_of_library.library, invocation)

    # -- publishing --------------------------------------------------------------------------------

    async def _enqueue(self, library: Library, invocation: Invocation) -> Completion:
        assert invocation.value is not None and self._host_of_library is not None
        extra = invocation.extra or {}
        exchange, routing_key = "", invocation.key
        if invocation.key.startswith(EXCHANGE_PREFIX):
            exchange = invocation.key.removeprefix(EXCHANGE_PREFIX)
            routing_key = extra["routing_key"]
        message = Outgoing(
            exchange,
            routing_key,
            encode_body(invocation.value, self._run.own.body_bytes),
            extra.get("ttl_ms"),
            extra.get("priority"),
        )
        published = self._host_of_library.ledger.published
        error: Exception | None = None
        try:
            await library.publish(message)
        except Exception as raised:  # noqa: BLE001 - what was on the wire says what it means
            error = raised
            await asyncio.sleep(READING_S)
        seen = published.setdefault(invocation.value, Published())
        return fate_of_enqueue(seen, error, extra)

    # -- consuming ---------------------------------------------------------------------------------

    async def _subscribe(self, library: Library, invocation: Invocation) -> Completion:
        wanted = subscription_of(invocation.extra)
        name = slot_name(invocation.key, wanted.slot)
        if name in library.holds:
            raise Definite("there is one already")
        await self._asked(library.subscribe(name, invocation.key, wanted))
        return Completion(type="ok")

    async def _unsubscribe(self, library: Library, invocation: Invocation) -> Completion:
        names = [self._held(library, invocation)] if invocation.key else list(library.holds)
        for name in names:
            await self._asked(library.cancel(name))
        return Completion(type="ok")

    async def _close_channel(self, library: Library, invocation: Invocation) -> Completion:
        await self._asked(library.close_channel(self._held(library, invocation)))
        return Completion(type="ok")

    async def _look(self, library: Library, invocation: Invocation) -> Completion:
        await library.calm()
        self._held(library, invocation)
        looking = AmqpQueueClient(self._host, self._port, op_timeout_ms=self._run.own.op_timeout_ms)
        try:
            await looking.open()
            ready = await looking.declare_passive(invocation.key)
        except Unreachable as error:
            raise Definite(str(error)) from error
        finally:
            await looking.close()
        unsettled = library.unsettled(invocation.key)
        if ready or unsettled:
            raise Definite(f"{ready} ready, {unsettled} unsettled")
        return Completion(type="ok")

    def _held(self, library: Library, invocation: Invocation) -> str:
        name = slot_name(invocation.key, int((invocation.extra or {}).get("slot", 0)))
        if name not in library.holds:
            raise Definite("there is no such consumer")
        return name

    async def _asked(self, work: Awaitable[None]) -> None:
        """Raises Definite as the library does; Indefinite for everything else."""
        try:
            await work
        except (Definite, Indefinite):
            raise
        except Exception as error:
            raise Indefinite(f"{type(error).__name__}: {error}") from error

    async def _hang_up(self) -> Completion:
        host, self._host_of_library = self._host_of_library, None
        if host is not None:
            await host.hang_up()
        return Completion(type="ok")

    # -- our own client ----------------------------------------------------------------------------

    async def _do_it_ourselves(self, invocation: Invocation) -> Completion:
        try:
            await self._open_own()
            return await self._own.invoke(invocation)
        except Unreachable as error:
            await self._close_own()
            raise Definite(str(error)) from error
        except Indefinite:
            await self._close_own()
            raise

    async def _open_own(self) -> None:
        if not self._own_open:
            await self._own.open()
            self._own_open = True

    async def _close_own(self) -> None:
        if self._own_open:
            self._own_open = False
            await self._own.close()


def fate_of_enqueue(
    seen: Published, error: Exception | None, extra: Mapping[str, object]
) -> Completion:
    """By what was on the wire and what the library said. Raises Definite or Indefinite."""
    said = "" if error is None else _words(error)
    if isinstance(error, Indefinite):
        raise Indefinite(str(error))  # it may still be under way
    if seen.sent == 0:
        if error is None:
            raise Indefinite("the library says it is confirmed, and nothing was sent")
        raise Definite(f"nothing was sent: {said}")
    if len(seen.returned) >= seen.sent:
        raise Definite(f"returned: {seen.returned[0]}")
    times = f", sent {seen.sent} times" if seen.sent > 1 else ""
    if error is None and seen.acked:
        counted = {**extra, "sent": seen.sent} if seen.sent > 1 else extra
        return Completion(type="ok", extra=counted or None)
    if error is None:
        raise Indefinite(f"the library says it is confirmed, and no confirm came{times}")
    confirmed = ", though it was confirmed" if seen.acked else ""
    raise Indefinite(f"{said}{confirmed}{times}")


def _words(error: Exception) -> str:
    text = str(error) if isinstance(error, Definite) else f"{type(error).__name__}: {error}"
    return _ADDRESS.sub("", text).removesuffix(": ")


GRACE_S = 3.0


class Host(Protocol):
    async def close(self) -> None: ...


H = TypeVar("H", bound=Host)


class Hosts(Generic[H]):
    """What outlives clients whose processes were retired, of one run, by thread.

    A process that does not know what became of an operation is retired with its client
    (core/worker.py). An application would not be: its library goes on, and recovers. So a client
    that is closed leaves its library's connections here, and the next client of the same thread
    takes them over; if none comes soon, they are closed.
    """

    def __init__(self) -> None:
        self._parked: dict[int, tuple[H, asyncio.Event]] = {}
        self._tasks = Tasks(name="parked client")

    def park(self, thread: int, host: H) -> None:
        taken = asyncio.Event()
        self._parked[thread] = (host, taken)
        self._tasks.start(self._keep(thread, host, taken))

    def take(self, thread: int) -> H | None:
        host, taken = self._parked.pop(thread, (None, None))
        if taken is not None:
            taken.set()
        return host

    async def _keep(self, thread: int, host: H, taken: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(GRACE_S):
                await taken.wait()
        except TimeoutError:
            pass
        finally:  # the end of the run cancels what waits
            if not taken.is_set():
                self._parked.pop(thread, None)
                await host.close()


AmqpClientName = Literal["own", "aio-pika", "pika"]
_LIBRARIES: dict[str, type[AioPika | Pika]] = {"aio-pika": AioPika, "pika": Pika}


def check_client(name: AmqpClientName, backend: str) -> None:
    """Raises UsageError for a client that can't be had there."""
    refuse_in_simulation(name, backend)
    if name != OWN:
        require_library(name)


def make_clients(name: AmqpClientName, own: ConsumerClients, threads: int) -> MakeClient:
    """Clients of one run, by where their node listens."""
    if name == OWN:
        return own
    make_library = partial(_LIBRARIES[name], vhost=own.credentials.vhost)
    return RecoveringClients(own=own, make_library=make_library, threads=threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveringClients:
    """Makes the clients of one run. ``make_library`` is given the timeout of an operation, in ms;
    ``own`` makes our own clients."""

    own: ConsumerClients
    make_library: MakeLibrary
    threads: int
    hosts: Hosts[LibraryHost] = field(default_factory=lambda: Hosts())

    def __call__(self, host: str, port: int) -> Client:
        quieten_libraries()
        return RecoveringClient(host, port, self)
