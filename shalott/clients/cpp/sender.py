"""CppSender: sends are those of RocketMQ's C++ producer, polls are our own client's.

The producer sends again by itself what was not acknowledged, and then to another queue of the
topic. So what a send came to is decided by what it said and by what was on the wire (tap.py):

    send    ok      it says OK, and the message was sent once, to its queue
            fail    nothing was sent
            info    anything else. ``sent`` in the error's text: how often and where to
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.clients.cpp.process import CppProcess, LibraryLine
from shalott.clients.cpp.tap import RemotingTap
from shalott.clients.rocketmq.rocket_client import Dial
from shalott.core.client import Client
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation

GROUP = "shalott"
RETRIES = 3  # the package's default
_SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2)
READING_S = 0.05  # what was sent is read by the tap within this


@dataclass(slots=True)
class SentRows:
    """Listens to the tap of a producer: which queues each message was sent to."""

    queues: dict[int, list[str]] = field(default_factory=dict)  # by value

    def asked(self, behind: str, request: Command) -> None:
        if request.code not in _SENDS:
            return
        value = decode_body(request.body)
        if value is not None:
            topic = request.ext.get("topic", request.ext.get("b", ""))
            number = request.ext.get("queueId", request.ext.get("e", ""))
            self.queues.setdefault(value, []).append(f"{topic}/{number}")

    def answered(self, behind: str, request: Command, answer: Command) -> None:
        pass

    def unanswered(self, behind: str, request: Command) -> None:
        pass


class CppSender:
    """``own`` polls. The producer's process begins with the first send."""

    def __init__(
        self, name_server: str, own: Client, *, dial: Dial, body_bytes: int, op_timeout_ms: int
    ) -> None:
        self._name_server = name_server
        self._own = own
        self._body_bytes = body_bytes
        self._timeout_ms = op_timeout_ms
        self._sent = SentRows()
        self._tap = RemotingTap(dial, self._sent)
        self._process: CppProcess | None = None
        self._waiting: asyncio.Future[LibraryLine] | None = None

    async def open(self) -> None:
        await self._own.open()

    async def close(self) -> None:
        if self._process is not None:
            await self._process.kill()
        await self._tap.close()
        await self._own.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f != "send":
            return await self._own.invoke(invocation)
        assert invocation.value is not None
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                said = await self._send(invocation, invocation.value)
        except TimeoutError as error:
            raise Indefinite("the C++ producer does not say what became of it") from error
        except Unreachable as error:
            # Its process is gone or was never there: the next send begins another.
            await self._forget_process()
            said = {"error": str(error)}
        await asyncio.sleep(0 if "status" in said else READING_S)
        return fate_of_send(invocation, said, self._sent.queues.pop(invocation.value, []))

    async def _send(self, invocation: Invocation, value: int) -> LibraryLine:
        process = await self._producer()
        extra, (topic, _, number) = invocation.extra or {}, invocation.key.rpartition("/")
        self._waiting = asyncio.get_running_loop().create_future()
        message = {
            "id": value,
            "topic": topic,
            "queue": int(number),
            "body": encode_body(value, self._body_bytes).hex(),
            "tag": extra.get("tag", ""),
            "delay": extra.get("delay", 0),
            "retries": RETRIES,
        }
        process.tell("send", message)
        return await self._waiting

    async def _producer(self) -> CppProcess:
        """Raises Unreachable."""
        if self._process is None:
            process = CppProcess(self._body_bytes, self._said, self._ended)
            self._process = process
            await process.start()
            wanted = {
                "name_server": await self._tap.address(self._name_server),
                "group": GROUP,
                "instance": f"producer-{id(self)}",
                "timeout_ms": max(1000, self._timeout_ms // 3),
            }
            await process.ask("produce", wanted, self._timeout_ms / 1000)
        return self._process

    async def _forget_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(Unreachable):
                await process.kill()

    def _said(self, said: LibraryLine) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(said)

    def _ended(self, words: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Unreachable(words))


def fate_of_send(invocation: Invocation, said: LibraryLine, queues: list[str]) -> Completion:
    """By what the producer said and the queues that it was sent to. Raises Definite, Indefinite."""
    if not queues:
        raise Definite(f"nothing was sent: {said.get('error', '')}")
    status = said.get("status", said.get("error", ""))
    if status != "OK" or queues != [invocation.key]:
        raise Indefinite(f"{status}; sent {len(queues)} times: {', '.join(queues)}")
    is_delayed = "delay" in (invocation.extra or {})
    return Completion(type="ok", offset=None if is_delayed else int(said["offset"]))
