"""JavaLogClient: sends with RocketMQ's Java producer and polls with its lite pull consumer.

    send    as sends.py says. The library chooses the queue, since it retries nothing that was
            sent to a queue of the application's choice: an ok send's key is where it was stored
    poll    ok      messages, from where this client stands in the queue, or so many back
            fail    "empty" if a broker said that there is nothing beyond; else that nothing came in
                    time, or why, as polls have no effect. A broker that moves the library's reading
                    is told as our own client tells it (log_client.py)

A poll that names its offset reads at this node's own broker, which a library can't be told: our own
client (``own``) does that, and goes on with that queue from then on. So it does all other things.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.clients.cpp.process import LibraryLine
from shalott.clients.cpp.tap import RemotingTap
from shalott.clients.java.machine import JavaInstance, JavaMachine
from shalott.clients.java.sends import Attempts, fate_of_send, fate_of_transaction
from shalott.clients.rocketmq.log_client import EMPTY
from shalott.clients.rocketmq.rocket_client import Dial
from shalott.clients.rocketmq.transactions import Transactions
from shalott.core.client import Client, ClientRows, Recording
from shalott.core.errors import Definite, Unreachable
from shalott.core.history import Recorder
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation

PRODUCERS, READERS = "shalott-producers", "shalott-readers"
POLL_WAIT_MS = 500
ANSWER_SHARE = 0.9  # of an operation's time: then the library has said nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What users of the library set. ``timeout_ms``: sendMsgTimeout, for all attempts together.
    ``retries``: retryTimesWhenSendFailed. ``again``: retryAnotherBrokerWhenNotStoreOK."""

    timeout_ms: int
    retries: int = 2
    again: bool = False
    transactions: Transactions = Transactions()
    heartbeat_ms: int = 30_000
    route_poll_ms: int = 30_000


class JavaLogClient:
    """``name_server`` is the node's, as host:port; ``own`` does what a library can't."""

    def __init__(
        self,
        name_server: str,
        own: Client,
        *,
        machine: JavaMachine,
        dial: Dial,
        settings: Settings,
        body_bytes: int,
        op_timeout_ms: int,
    ) -> None:
        self._name_server = name_server
        self._own = own
        self._machine = machine
        self._dial = dial
        self._settings = settings
        self._body_bytes = body_bytes
        self._patience_s = op_timeout_ms / 1000 * ANSWER_SHARE
        self._rows: ClientRows | None = None
        self._library: _Library | None = None
        self._stands: dict[str, int] = {}  # of the library's reading: offset of the next poll
        self._seeks: dict[str, None] = {}  # queues in which the library does not stand there
        self._read_by_own: dict[str, None] = {}

    def record_in(self, recorder: Recorder, process: int, node: str) -> None:
        self._rows = ClientRows(recorder, process, node)
        if isinstance(self._own, Recording):
            self._own.record_in(recorder, process, node)

    async def open(self) -> None:
        await self._own.open()

    async def close(self) -> None:
        await self._forget_library()
        await self._own.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f == "send":
            return await self._send(invocation)
        if invocation.f == "poll" and not self._is_own(invocation):
            return await self._poll(invocation)
        return await self._own.invoke(invocation)

    async def _the_library(self, deadline_s: float) -> _Library:
        """Raises Unreachable: nothing was asked of a broker."""
        if self._library is None or self._library.is_gone:
            await self._forget_library()
            library = _Library(self._machine, self._dial, self._rows)
            self._library = library
            address = await library.tap.address(self._name_server)
            await library.begin(address, self._settings, deadline_s)
        return self._library

    def _deadline_s(self) -> float:
        return asyncio.get_running_loop().time() + self._patience_s

    async def _forget_library(self) -> None:
        library, self._library = self._library, None
        self._seeks.update(dict.fromkeys(self._stands))
        if library is not None:
            await library.end()

    # -- send --------------------------------------------------------------------------------------

    async def _send(self, invocation: Invocation) -> Completion:
        assert invocation.value is not None
        deadline_s = self._deadline_s()
        try:
            library = await self._the_library(deadline_s)
        except Unreachable as error:
            await self._forget_library()
            raise Definite(f"nothing was sent: {error}") from error
        extra = invocation.extra or {}
        message = {
            "topic": invocation.key.rpartition("/")[0],
            "queue": -1,
            "body": encode_body(invocation.value, self._body_bytes).hex(),
            "tag": extra.get("tag", ""),
            "delay": extra.get("delay", 0),
        }
        decision = self._settings.transactions.of(invocation.value)
        if decision is not None:
            message |= {"decision": decision.decision, "told": decision.told}
        do = "send" if decision is None else "transact"
        try:
            said = await library.ask("producer", do, message, deadline_s)
        except Unreachable as error:
            said = {"error": str(error)}
        # It is settled here: what the library still tries does not go out.
        attempts = library.attempts.settle(invocation.value)
        if decision is not None:
            return fate_of_transaction(invocation, said, attempts, decision)
        return fate_of_send(invocation, said, attempts)

    # -- poll --------------------------------------------------------------------------------------

    def _is_own(self, invocation: Invocation) -> bool:
        if invocation.value is not None and invocation.value >= 0:
            self._read_by_own[invocation.key] = None
        return invocation.key in self._read_by_own

    async def _poll(self, invocation: Invocation) -> Completion:
        key = invocation.key
        topic, _, number = key.rpartition("/")
        deadline_s = self._deadline_s()
        try:
            library = await self._the_library(deadline_s)
            start = max(0, self._stands.get(key, 0) + (invocation.value or 0))
            goes_on = start == self._stands.get(key) and key not in self._seeks
            if not goes_on:
                library.attempts.moved.pop(key, None)
            self._seeks.pop(key, None)
            wanted = {
                "topic": topic,
                "queue": int(number),
                "from": -1 if goes_on else start,
                "wait_ms": POLL_WAIT_MS,
            }
            said = await library.ask("reader", "poll", wanted, deadline_s)
        except Unreachable as error:
            await self._forget_library()
            raise Definite(str(error)) from error
        if "error" in said:
            self._seeks[key] = None
            raise Definite(str(said["error"]))
        return self._read(key, start, said, library.attempts)

    def _read(self, key: str, start: int, said: LibraryLine, seen: Attempts) -> Completion:
        moved = seen.moved.get(key, {})
        records = [(offset, decode_body(bytes.fromhex(body))) for offset, body in said["records"]]
        kept = before_move(start, records, moved)
        if len(kept) < len(records):  # the next poll begins there, and is told that it is moved
            self._seeks[key] = None
        if not kept and start in moved:
            self._stands[key], self._seeks[key] = moved[start], None
            error = f"there is no offset {start}: the broker says {moved[start]}"
            extra: dict[str, object] = {"from": start, "moved": moved[start]}
            return Completion(type="fail", error=error, extra=extra)
        records = kept
        if records:
            self._stands[key] = records[-1][0] + 1
            return Completion(type="ok", extra={"from": start, "records": records})
        self._stands[key] = start
        if seen.empty.get(key, -1) == start:
            return Completion(type="fail", error=EMPTY, extra={"from": start, "records": []})
        raise Definite(f"nothing came in {POLL_WAIT_MS} ms")


def before_move(
    start: int, records: Sequence[tuple[int, int | None]], moved: Mapping[int, int]
) -> list[tuple[int, int | None]]:
    """Of the records that a library gives from ``start`` on: those before a broker moved it, which
    it does not say. Any other gap is left as it is."""
    wanted = start
    for number, (offset, _) in enumerate(records):
        if offset != wanted and wanted in moved:
            return list(records[:number])
        wanted = offset + 1
    return list(records)


def _left_s(deadline_s: float) -> float:
    return max(0.0, deadline_s - asyncio.get_running_loop().time())


class _Library:
    """A producer and a reader of one client: they share a tap, and come and go together."""

    def __init__(self, machine: JavaMachine, dial: Dial, rows: ClientRows | None) -> None:
        self.attempts = Attempts()
        self.tap = RemotingTap(dial, self.attempts)
        self.is_gone = False
        self._waiting: dict[int, asyncio.Future[LibraryLine]] = {}
        self._serial = 0
        self._instances = {
            what: JavaInstance(machine, what, self.tap, self._said, self._ended, rows)
            for what in ("producer", "reader")
        }

    async def begin(self, name_server: str, settings: Settings, deadline_s: float) -> None:
        """Raises Unreachable."""
        producer, reader = self._instances["producer"], self._instances["reader"]
        try:
            async with asyncio.timeout_at(deadline_s):
                await producer.start()
                await reader.start()
        except TimeoutError as error:
            raise Unreachable("the JVM of the Java clients takes too long to begin") from error
        both = {
            "name_server": name_server,
            "instance": producer.name,
            "heartbeat_ms": settings.heartbeat_ms,
            "route_poll_ms": settings.route_poll_ms,
        }
        wanted = both | {
            "group": PRODUCERS,
            "timeout_ms": settings.timeout_ms,
            "retries": settings.retries,
            "again": settings.again,
            "transactional": settings.transactions.share > 0,
        }
        await producer.ask("produce", wanted, _left_s(deadline_s))
        await reader.ask("read", both | {"group": READERS}, _left_s(deadline_s))

    async def ask(
        self, whom: str, do: str, what: Mapping[str, object], deadline_s: float
    ) -> LibraryLine:
        """The line that answers. Raises Unreachable: the JVM is gone, or says nothing in time;
        what was asked may have been done."""
        self._serial += 1
        number = self._serial
        future: asyncio.Future[LibraryLine] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        try:
            self._instances[whom].tell(do, {**what, "id": number})
            async with asyncio.timeout_at(deadline_s):
                return await future
        except TimeoutError as error:
            self.is_gone = True
            raise Unreachable("the Java client does not say what became of it") from error
        finally:
            del self._waiting[number]

    async def end(self) -> None:
        for instance in self._instances.values():
            await instance.kill()

    def _said(self, said: LibraryLine) -> None:
        waiting = self._waiting.get(int(said["id"]))
        if waiting is not None and not waiting.done():
            waiting.set_result(said)

    def _ended(self, words: str) -> None:
        self.is_gone = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Unreachable(words))
