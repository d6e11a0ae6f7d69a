"""pika as its users have it: a BlockingConnection in a thread, in the loop that its README
recommends for recovery.

    while True:
        try:
            connect, open a channel, consume, start_consuming()
        except ConnectionClosedByBroker: break      (a node that stops in order says so)
        except AMQPChannelError: break
        except AMQPConnectionError: continue

So a consumer whose channel the server closes does not come back by itself, and neither does one
whose node stopped in order; asking for it again starts another thread. Each channel has a
thread and a connection of its own, and so has the publisher. Acknowledgements are handed to the
thread as pika's examples do it (add_callback_threadsafe, and not if the channel is closed).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shalott.clients.amqp_libraries.library import Outgoing, Settler
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.subscription import Subscription, Verdict

if TYPE_CHECKING:
    import pika
    from pika.adapters.blocking_connection import BlockingChannel
    from pika.spec import Basic

import queue as queues
from dataclasses import field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pika
    from pika.adapters.blocking_connection import BlockingChannel
    from pika.spec import Basic

HEARTBEAT_S = 10
SOCKET_TIMEOUT_S, STACK_TIMEOUT_S = 2.0, 5.0
RETRY_DELAY_S = 1.0
END_S = 1.0  # threads are waited for so long


def _parameters(host: str, port: int, vhost: str) -> pika.ConnectionParameters:
    import pika

    return pika.ConnectionParameters(
        host,
        port,
        vhost,
        heartbeat=HEARTBEAT_S,
        socket_timeout=SOCKET_TIMEOUT_S,
        stack_timeout=STACK_TIMEOUT_S,
        retry_delay=RETRY_DELAY_S,
    )


class Pika:
    """A Library."""

    def __init__(self, op_timeout_ms: int, vhost: str = "/") -> None:
        self._timeout_s = op_timeout_ms / 1000
        self._vhost = vhost
        self._parameters: pika.ConnectionParameters | None = None
        self._publisher: PikaPublisher | None = None
        self._threads: list[_ConsumerThread] = []
        self._calm = False

    @property
    def holds(self) -> tuple[str, ...]:
        return tuple(name for thread in self._threads for name in thread.wanted)

    async def open(self, host: str, port: int) -> None:
        self._parameters = _parameters(host, port, self._vhost)
        self._publisher = PikaPublisher(self._parameters)
        self._publisher.start()
        try:
            await self._publisher.do(None, self._timeout_s)
        except (Definite, Indefinite) as error:
            await self.drop()
            raise Unreachable(str(error)) from error

    async def publish(self, message: Outgoing) -> None:
        assert self._publisher is not None
        await self._publisher.do(message, self._timeout_s)

    async def subscribe(self, name: str, queue: str, wanted: Subscription) -> None:
        assert self._parameters is not None
        thread = self._threads[-1] if wanted.join and self._threads else None
        began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        one = _Wanted(queue, wanted, began)
        if thread is None:
            thread = _ConsumerThread(self._parameters, wanted, self._ended, calm=self._calm)
            self._threads.append(thread)
            thread.wanted[name] = one
            thread.start()
        else:
            thread.wanted[name] = one
            thread.hand_over(functools.partial(thread.consume, name))
        try:
            async with asyncio.timeout(self._timeout_s):
                await began
        except TimeoutError as error:
            raise Indefinite("pika goes on trying to consume") from error

    def _ended(self, thread: _ConsumerThread, error: str) -> None:
        """Its loop is over, by itself or because it was asked to end."""
        if thread in self._threads:
            self._threads.remove(thread)
        for one in thread.wanted.values():
            if not one.began.done():
                one.began.set_exception(Definite(error))
                one.began.exception()  # the waiter may be gone

    async def cancel(self, name: str) -> None:
        for thread in self._threads:
            if name in thread.wanted:
                await thread.ask(functools.partial(thread.cancel, name), self._timeout_s)
                return

    async def close_channel(self, name: str) -> None:
        for thread in list(self._threads):
            if name in thread.wanted:
                self._threads.remove(thread)
                await thread.end()

    async def calm(self) -> None:
        self._calm = True
        for thread in list(self._threads):
            thread.calm()
            if thread.settler is not None and thread.settler.kept:
                self._threads.remove(thread)
                await thread.end()

    def unsettled(self, queue: str) -> int:
        settlers = [thread.settler for thread in self._threads if thread.settler is not None]
        return sum(name == queue for settler in settlers for name in settler.unsettled.values())

    async def drop(self) -> None:
        await self._end()

    async def close(self) -> None:
        await self._end()

    async def _end(self) -> None:
        threads, self._threads = self._threads, []
        await asyncio.gather(*(thread.end() for thread in threads))
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            await publisher.end()


# -- consuming -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Wanted:
    """``began``: consume-ok came, or the reason why it never will."""

    queue: str
    subscription: Subscription
    began: asyncio.Future[None]
    tag: str = ""


class _ConsumerThread(threading.Thread):
    """One channel, and the loop that brings it back. What it is told comes from the event loop;
    what it tells goes there."""

    def __init__(
        self,
        parameters: pika.ConnectionParameters,
        first: Subscription,
        ended: Callable[[_ConsumerThread, str], None],
        *,
        calm: bool,
    ) -> None:
        super().__init__(name="pika consumer", daemon=True)
        self.wanted: dict[str, _Wanted] = {}
        self.settler: Settler | None = None  # of the channel that is open; the event loop's
        self._parameters = parameters
        self._first = first
        self._ended = ended
        self._calm = calm
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._connection: pika.BlockingConnection | None = None
        self._channel: BlockingChannel | None = None

    # In the thread.

    def run(self) -> None:
        from pika import exceptions

        error = "it was asked to end"
        while not self._stopping.is_set():
            try:
                self._consume_all()
                if not self.wanted:
                    break
            except exceptions.ConnectionClosedByBroker as closed:
                error = f"connection closed: {closed}"
                break
            except exceptions.AMQPChannelError as closed:
                error = f"channel closed: {closed}"
                break
            except exceptions.AMQPConnectionError:
                self._stopping.wait(RETRY_DELAY_S)
                continue
            finally:
                self._tell(self._over)
                self._close()
        self._tell(self._ended, self, error)

    def _consume_all(self) -> None:
        import pika

        self._connection = pika.BlockingConnection(self._parameters)
        self._channel = self._connection.channel()
        self._tell(self._opened, self._channel)
        for name in list(self.wanted):
            self.consume(name)
        self._channel.start_consuming()

    def consume(self, name: str) -> None:
        one = self.wanted.get(name)
        if one is None:
            return
        channel, wanted, queue = self._channel, one.subscription, one.queue
        assert channel is not None
        if not self._first.per_channel or wanted is self._first:
            channel.basic_qos(prefetch_count=wanted.prefetch, global_qos=wanted.per_channel)
        arguments: dict[str, object] = {}
        if wanted.priority:
            arguments["x-priority"] = wanted.priority
        if wanted.cancel_on_failover:
            arguments["x-cancel-on-ha-failover"] = True

        def came(
            channel: BlockingChannel, method: Basic.Deliver, _properties: object, _body: bytes
        ) -> None:
            if not wanted.no_ack:
                self._tell(self._delivered, channel, int(method.delivery_tag), queue)

        one.tag = channel.basic_consume(
            queue, came, auto_ack=wanted.no_ack, exclusive=wanted.exclusive, arguments=arguments
        )
        self._tell(_set, one.began)

    def cancel(self, name: str) -> None:
        one = self.wanted.pop(name, None)
        if one is not None and one.tag:
            assert self._channel is not None
            self._channel.basic_cancel(one.tag)

    def _say(self, channel: BlockingChannel, tag: int, verdict: Verdict, settler: Settler) -> None:
        if not channel.is_open:
            return  # pika's examples: "we can't ACK this message; log and/or do something"
        match verdict.said:
            case "ack":
                channel.basic_ack(tag, verdict.multiple)
            case "nack":
                channel.basic_nack(tag, verdict.multiple, verdict.requeue)
            case "reject":
                channel.basic_reject(tag, verdict.requeue)
            case "recover":
                channel.basic_recover(requeue=True)
                self._tell(settler.recovered)

    def _ask(self, channel: BlockingChannel, queue: str) -> None:
        if channel.is_open:
            channel.queue_declare(queue, passive=True)

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.is_open:
            with contextlib.suppress(Exception):
                connection.close()

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the run is over
            self._loop.call_soon_threadsafe(what, *arguments)

    # In the event loop.

    def hand_over(self, work: Callable[[], None]) -> None:
        """Do it in the thread, if it has a connection."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(Exception):  # the connection has ended meanwhile
                connection.add_callback_threadsafe(work)

    async def ask(self, work: Callable[[], None], timeout_s: float) -> None:
        """As ``hand_over``, until it is done. Raises Indefinite if it is not in time."""
        done: asyncio.Future[None] = self._loop.create_future()

        def work_and_tell() -> None:
            work()
            self._tell(_set, done)

        self.hand_over(work_and_tell)
        try:
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError as error:
            raise Indefinite("pika did not do it in time") from error

    def calm(self) -> None:
        self._calm = True
        if self.settler is not None:
            self.settler.calm()

    async def end(self) -> None:
        """In order if that is soon."""
        self._stopping.set()
        self._over()
        channel = self._channel
        if channel is not None:
            self.hand_over(channel.stop_consuming)
        await asyncio.to_thread(self.join, END_S)

    def _opened(self, channel: BlockingChannel) -> None:
        came = 0 if self.settler is None else self.settler.came

        def say(tag: int, verdict: Verdict) -> None:
            self.hand_over(functools.partial(self._say, channel, tag, verdict, settler))

        def ask(queue: str) -> None:
            self.hand_over(functools.partial(self._ask, channel, queue))

        settler = Settler(self._first.settling, say, ask, came)
        if self._calm:
            settler.calm()
        self.settler = settler
        self._channel_of_settler = channel

    def _delivered(self, channel: BlockingChannel, tag: int, queue: str) -> None:
        if self.settler is not None and channel is self._channel_of_settler:
            self.settler.delivered(tag, queue)

    def _over(self) -> None:
        if self.settler is not None:
            self.settler.over()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


PUMP_S = 0.5  # an idle publisher answers heartbeats so often


@dataclass(slots=True)
class _Job:
    message: Outgoing | None  # None: only connect
    done: asyncio.Future[None]
    lock: threading.Lock = field(default_factory=threading.Lock)
    begun: bool = False
    given_up: bool = False

    def give_up(self) -> bool:
        """Its caller waits no more. Returns whether it was not begun, and never will be."""
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

    A node that does not answer holds up all messages behind it. A caller may give up: what was not
    begun by then is never sent. Nothing is published twice: pika's README has no loop for that.
    """

    def __init__(self, parameters: pika.ConnectionParameters) -> None:
        super().__init__(name="pika publisher", daemon=True)
        self._parameters = parameters
        self._loop = asyncio.get_running_loop()
        self._jobs: queues.SimpleQueue[_Job | None] = queues.SimpleQueue()
        self._connection: pika.BlockingConnection | None = None
        self._channel: BlockingChannel | None = None

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
            job.give_up()  # the waiter may have been cancelled: it must not be sent later

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
        except Exception as raised:  # noqa: BLE001 - its waiter gets any error
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
