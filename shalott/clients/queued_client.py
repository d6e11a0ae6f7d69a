"""A system's queues, as its record has them (``Queued``), as a client of the harness.

enqueue   ok      the system acknowledged it
          fail    certainly not sent, or refused
          info    anything else

dequeue   ok      a message came and was settled
          info    a message came, and it is not known whether it was settled; or no answer came
          fail    there is none (error "empty"); a message came that certainly was not settled
                  (error "given back: ...", the value in ``extra`` as ``given_back``): it counts
                  for nothing, and must be delivered again
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import msgspec

from shalott.checkers.queues.redelivery import GIVEN_BACK, GIVEN_BACK_VALUE
from shalott.clients.amqp.queue_client import CORRUPTED, EMPTY
from shalott.core.errors import Definite
from shalott.core.message_body import decode_body, encode_body
from shalott.core.op import Completion, Invocation
from shalott.core.queued import Queued, Received
from shalott.core.worker import describe

LEAST_S = 0.1  # for settling, however late the message came


@dataclass(slots=True)
class QueuedClient:
    """``settles``: whether what was received has to be settled, so long after it came.

    An operation has ``timeout_ms`` in all: the worker, which gives up later, would not know the
    value of a message whose settling was not answered.
    """

    queued: Queued
    body_bytes: int
    timeout_ms: int
    settles: bool = True
    ack_after_ms: int = 0

    async def open(self) -> None:
        await self.queued.open()

    async def close(self) -> None:
        await self.queued.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f == "enqueue":
            assert invocation.value is not None
            await self.queued.send(invocation.key, encode_body(invocation.value, self.body_bytes))
            return Completion(type="ok")
        if invocation.f == "dequeue":
            until = asyncio.get_running_loop().time() + self.timeout_ms / 1000
            received = await self.queued.receive(invocation.key)
            if received is None:
                return Completion(type="fail", error=EMPTY)
            return await self._settled(received, until)
        raise Definite(f"a client of queues knows no {invocation.f}")

    async def _settled(self, received: Received, until: float) -> Completion:
        value = decode_body(received.body)
        came = _came(received, value)
        if not self.settles:
            return came
        if self.ack_after_ms:
            await asyncio.sleep(self.ack_after_ms / 1000)
        try:
            async with asyncio.timeout_at(max(until, asyncio.get_running_loop().time() + LEAST_S)):
                await self.queued.settle(received)
        except Definite as error:
            return Completion(
                type="fail",
                redelivered=received.redelivered,
                error=f"{GIVEN_BACK}: {error}",
                extra={GIVEN_BACK_VALUE: value},
            )
        except Exception as error:  # noqa: BLE001 - of any kind: the message is here, told or not
            return msgspec.structs.replace(came, type="info", error=came.error or describe(error))
        return came


def _came(received: Received, value: int | None) -> Completion:
    if value is None:
        head = {"body_hex": received.body[:64].hex(), "body_bytes": len(received.body)}
        return Completion(type="ok", redelivered=received.redelivered, error=CORRUPTED, extra=head)
    return Completion(type="ok", value=value, redelivered=received.redelivered)
