"""PikaPublisher: pika publishes from a thread of its own, one message after the other.

Each is waited for until it is confirmed, so a node that does not answer holds up all that come
behind it. Whoever waits may give up: what was not begun by then is never sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue as queues
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shalott.clients.recovering.library import Outgoing
from shalott.core.errors import Definite, Indefinite

if TYPE_CHECKING:
    import pika

PUMP_S = 0.5  # an idle publisher answers heartbeats so often
END_S = 1.0  # its thread is waited for so long


@dataclass(slots=True)
class _Job:
    message: Outgoing | None  # None: only connect
    done: asyncio.Future[None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: bool = False
    given_up: bool = False

    def give_up(self) -> bool:
        """Nobody waits for it any more. Whether it was not begun, and never will be."""
        with self.lock:
            self.given_up = True
            return not self.begun

    def begin(self) -> bool:
        """Whether it is still to be done."""
        with self.lock:
            self.begun = not self.given_up
            return self.begun


class PikaPublisher(threading.Thread):
    """Publishes one message after the other, each until it is confirmed; connects when it must.
    Nothing is published twice: pika's README has no loop for that."""

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        super().__init__(name="pika publisher", daemon=True)
        self._parameters = parameters
        self._loop = asyncio.get_running_loop()
        self._jobs: queues.SimpleQueue[_Job | None] = queues.SimpleQueue()
        self._connection: Any = None
        self._channel: Any = None

    async def do(self, message: Outgoing | None, timeout_s: float) -> None:
        """Raises what pika raises; Definite if nothing was begun in time, else Indefinite."""
        job = _Job(message, self._loop.create_future())
        self._jobs.put(job)
        try:
            async with asyncio.timeout(timeout_s):
                await job.done
        except TimeoutError as error:
            if job.give_up():
                raise Definite("pika's publisher is busy") from error
            raise Indefinite(f"pika: no answer in {timeout_s:g} s") from error
        finally:
            job.give_up()  # whoever waited may have been cancelled: it must not be sent later

    async def end(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self.join, END_S)

    def run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=PUMP_S)
            except queues.Empty:
                self._pump()
                continue
            if job is None:
                break
            if job.begin():
                self._finish(job)
        self._disconnect()

    def _finish(self, job: _Job) -> None:
        error: Exception | None = None
        try:
            self._publish(job.message)
        except Exception as raised:  # noqa: BLE001 - whoever waits for it is told, whatever it is
            error = raised
        with contextlib.suppress(RuntimeError):  # the run is over
            self._loop.call_soon_threadsafe(_settle, job.done, error)

    def _publish(self, message: Outgoing | None) -> None:
        import pika

        if self._connection is None or not self._connection.is_open:
            self._connection = pika.BlockingConnection(self._parameters)
            self._channel = None
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()
        if message is None:
            return
        properties = pika.BasicProperties(
            delivery_mode=pika.DeliveryMode.Persistent.value,
            expiration=None if message.ttl_ms is None else str(message.ttl_ms),
            priority=message.priority,
        )
        self._channel.basic_publish(
            message.exchange, message.routing_key, message.body, properties, mandatory=True
        )

    def _pump(self) -> None:
        """Heartbeats are answered only while something is done with the connection."""
        if self._connection is not None and self._connection.is_open:
            with contextlib.suppress(Exception):
                self._connection.process_data_events(0)

    def _disconnect(self) -> None:
        if self._connection is not None and self._connection.is_open:
            with contextlib.suppress(Exception):
                self._connection.close()


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
