"""Queues of a RocketMQ topic as partitions (core/partitions.py): one send or one poll at a time.

A poll asks for each key in turn. A queue that has nothing more, or whose broker refuses, is left
out, for a poll has no effect; if no broker answers, the poll has failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.clients.rocketmq.log_client import EMPTY, LogClient
from shalott.core.errors import Definite, Indefinite
from shalott.core.op import Invocation
from shalott.core.partitions import POLL, SEND, Mop, Pairs


class _Records(msgspec.Struct, frozen=True):
    """What is read of a poll's ``extra``."""

    records: list[tuple[int, int | None]] = []


@dataclass(slots=True)
class QueuePartitions:
    """``queues``: of each key, the queue ("topic/number")."""

    client: LogClient
    queues: Sequence[str]

    async def open(self) -> None:
        await self.client.open()

    async def close(self) -> None:
        await self.client.close()

    async def transact(
        self, mops: Sequence[Mop], places: Mapping[int, int]
    ) -> Sequence[tuple[int, int] | Mapping[int, Pairs]]:
        if len(mops) != 1:
            raise Definite("several sends and polls are no transaction here")
        if mops[0] == (POLL,):
            return (await self._poll(places),)
        f, key, value = mops[0]
        assert f == SEND and isinstance(key, int) and isinstance(value, int)
        sent = await self.client.invoke(Invocation(f=SEND, key=self.queues[key], value=value))
        if sent.offset is None:
            raise Indefinite("the broker told no offset")
        return ((sent.offset, value),)

    async def _poll(self, places: Mapping[int, int]) -> Mapping[int, Pairs]:
        polled: dict[int, Pairs] = {}
        refusal = Definite("no key is assigned")
        answered = False
        for key, place in places.items():
            try:
                answer = await self.client.invoke(
                    Invocation(f=POLL, key=self.queues[key], value=place)
                )
            except Definite as error:
                refusal = error
                continue
            answered |= answer.type == "ok" or answer.error == EMPTY
            records = msgspec.convert(answer.extra or {}, _Records).records
            if records:
                polled[key] = [(offset, _sound(value)) for offset, value in records]
        if not answered:
            raise refusal
        return polled


def _sound(value: int | None) -> int:
    if value is None:
        raise Indefinite("a message came back corrupted")
    return value
