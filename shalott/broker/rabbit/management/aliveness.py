"""The aliveness test: a message through a queue and back, from inside the node."""

from __future__ import annotations

import asyncio

from shalott.broker.rabbit.amqp.queue_protocol import Confirmed, Content, Get, Got, Publish
from shalott.broker.rabbit.amqp.queues import Queues
from shalott.broker.rabbit.management.backend import ManagementBackend
from shalott.broker.rabbit.processes.messages import Message
from shalott.broker.rabbit.processes.process import Process

QUEUE = "aliveness-test"
TIMEOUT_MS = 5000


class Probe(Process):
    """Stands in for a channel: the queue processes confirm to it and monitor it."""

    def __init__(self) -> None:
        super().__init__()
        self.confirmed = asyncio.Event()

    async def handle(self, message: Message) -> None:
        if isinstance(message, Confirmed):
            self.confirmed.set()


async def probe_queues(backend: ManagementBackend, queues: Queues, vhost: str) -> str:
    """What is wrong; empty if nothing is.

    Raises BrokerError too. The queue is left, as RabbitMQ's is.
    """
    row = await queues.declare(
        vhost=vhost,
        name=QUEUE,
        durable=False,
        auto_delete=False,
        exclusive_owner=None,
        arguments={},
    )
    if row.pid is None or not queues.is_available(row):
        return f"queue '{QUEUE}' has no master that can be reached"
    body = b"test_message"
    message_id = backend.env.rng.getrandbits(63)
    content = Content(message_id, "", QUEUE, b"\0\0", body, persistent=False)
    probe = Probe()
    channel = backend.runtime.spawn(probe)
    try:
        for process in (row.pid, *row.slave_pids):
            backend.runtime.send(process, Publish(channel, 1, content))
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await probe.confirmed.wait()
        get = Get(channel, no_ack=True)
        answer = await backend.runtime.call(row.pid, get, timeout_ms=TIMEOUT_MS, caller=channel)
    except TimeoutError:
        return f"queue '{QUEUE}' did not confirm a message in {TIMEOUT_MS} ms"
    finally:
        await backend.runtime.kill(channel)
    return "" if isinstance(answer, Got) else f"queue '{QUEUE}' did not give the message back"
