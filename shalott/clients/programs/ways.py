"""How a program does what the shared workloads need of a client.

queues        send      key, value: a text          ok: the system has acknowledged it
              receive   key                         ok, value: the text, null: there is none;
                        token: if it is to be settled; redelivered: if the system says so
              settle    key, token                  ok: it will not come again
registers     read      key                         ok, value: a number, or null
              write     key, value: a number        ok
              cas       key, value: [old, new]      ok, value: whether old was there
partitions    send      key, value: numbers         ok, value: the offset
              poll      value: {key: offset}        ok, value: {key: [[offset, value], ...]}, from
                        these offsets on, in order
transactions  txn       value: [["r", key, null], ["append", key, n], ["w", key, n], ...]
                        ok, value: the same with what was read: a list, a number, or null

Of each: fail: it was certainly not done; info, and all that is no answer: it may have been.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.clients.programs.process import ProgramProcess
from shalott.core import partitions, transactions
from shalott.core.errors import CLIENT_PROGRAM as BLAME
from shalott.core.errors import Indefinite
from shalott.core.queued import Received

Decoder = msgspec.json.Decoder
TEXT: Decoder[str | None] = Decoder(str | None)
NUMBER: Decoder[int | None] = Decoder(int | None)
SWITCH: Decoder[bool] = Decoder(bool)
OFFSET: Decoder[int] = Decoder(int)
POLLED: Decoder[dict[str, list[tuple[int, int]]]] = Decoder(dict[str, list[tuple[int, int]]])
DONE: Decoder[list[tuple[str, int | str, object]]] = Decoder(
    list[tuple[str, int | str, int | list[int] | None]]
)
NOTHING = msgspec.Raw(b"null")


@dataclass(slots=True)
class _Program:
    """A client of any of the four kinds. ``prefix``: of partitions' and transactions' keys, which
    are numbers where there is none."""

    process: ProgramProcess
    prefix: str = ""

    async def open(self) -> None:
        await self.process.open()

    async def close(self) -> None:
        await self.process.close()

    def _named(self, key: object) -> object:
        return f"{self.prefix}{key}" if self.prefix else key

    def _key(self, name: int | str) -> int:
        """Raises Indefinite: it is none of the run's."""
        number = str(name).removeprefix(self.prefix)
        if number == str(name) and self.prefix or not number.isdigit():
            raise Indefinite(f"{BLAME}: it answers of {name}, which it was not asked for")
        return int(number)


class ProgramQueued(_Program):
    """See ``Queued``. Bodies are bytes, and JSON has none: they travel in base64."""

    settling: tuple[str, msgspec.Raw] = ("", NOTHING)  # of what it received last

    async def send(self, queue: str, body: bytes) -> None:
        await self.process.ask("send", key=queue, value=base64.urlsafe_b64encode(body).decode())

    async def receive(self, queue: str) -> Received | None:
        answer = await self.process.ask("receive", key=queue)
        text = answer.read(TEXT, "receive")
        if text is None:
            return None
        try:
            body = base64.b64decode(text, altchars=b"-_", validate=True)
        except (ValueError, binascii.Error) as error:
            raise Indefinite(f"{BLAME}: it received what none sent: {text[:80]}") from error
        self.settling = (queue, answer.token)
        return Received(body, answer.redelivered)

    async def settle(self, received: Received) -> None:
        """A message without a token is gone once it came."""
        queue, token = self.settling
        if token != NOTHING:
            await self.process.ask("settle", key=queue, token=token)


class ProgramRegistered(_Program):
    """See ``Registered``."""

    async def read(self, key: str) -> int | None:
        answer = await self.process.ask("read", key=key)
        return answer.read(NUMBER, "read")

    async def write(self, key: str, value: int) -> None:
        await self.process.ask("write", key=key, value=value)

    async def cas(self, key: str, old: int, new: int) -> bool:
        answer = await self.process.ask("cas", key=key, value=(old, new))
        return answer.read(SWITCH, "cas")


class ProgramPartitioned(_Program):
    """See ``Partitioned``, of one micro-operation at a time."""

    async def transact(
        self, mops: Sequence[partitions.Mop], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, partitions.Pairs]]:
        (mop,) = mops
        if mop[0] == partitions.SEND:
            _, key, value = mop
            answer = await self.process.ask("send", key=self._named(key), value=value)
            return [(answer.read(OFFSET, "send"), int(str(value)))]
        asked = {str(self._named(key)): place for key, place in places.items()}
        answer = await self.process.ask("poll", value=asked)
        polled = answer.read(POLLED, "poll")
        found = {self._key(name): pairs for name, pairs in polled.items()}
        if not set(found) <= set(places):
            raise Indefinite(f"{BLAME}: it polled keys that it was not asked for: {sorted(found)}")
        return [found]


class ProgramTransactor(_Program):
    """See ``Transactor``."""

    async def transact(self, mops: Sequence[transactions.Mop]) -> Sequence[transactions.Mop]:
        named = [(f, self._named(key), value) for f, key, value in mops]
        answer = await self.process.ask("txn", value=named)
        return [(f, self._key(name), value) for f, name, value in answer.read(DONE, "txn")]
