"""How many connections and channels a user has, or a vhost, in the whole cluster.

RabbitMQ keeps tables of them (rabbit_connection_tracking, rabbit_channel_tracking); here each node
is asked, and only when there is a limit. A node that does not answer has none.
"""

from __future__ import annotations

from collections.abc import Callable

from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.amqp.queue_protocol import Count
from shalott.broker.rabbit.processes.messages import Message, Name, Pid
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller, Runtime

NAME = "client_counts"
TIMEOUT_MS = 1000


class CountConnections(Message):
    """call -> Count. An empty name is anyone's."""

    user: str = ""
    vhost: str = ""


class CountChannels(Message):
    """call -> Count."""

    user: str


MESSAGES: tuple[type[Message], ...] = (CountConnections, CountChannels)
Request = CountConnections | CountChannels


class ClientCounts(Process):
    """Of one node. ``count`` looks at its listener."""

    def __init__(self, count: Callable[[Request], int]) -> None:
        super().__init__()
        self._count = count

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        if isinstance(request, CountConnections | CountChannels):
            return Count(self._count(request))
        return await super().handle_call(request, caller)


async def count_clients(runtime: Runtime, request: Request, caller: Pid) -> int:
    """At all nodes."""
    total = 0
    for node in (runtime.node, *runtime.nodes()):
        try:
            answer = await runtime.call(
                Name(node, NAME), request, timeout_ms=TIMEOUT_MS, caller=caller
            )
        except ProcessError:
            continue
        total += answer.count if isinstance(answer, Count) else 0
    return total
