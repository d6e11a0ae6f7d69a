"""QueueAccess: how a channel finds a queue and talks to its master, and the errors when it can't.

A mirrored queue whose master just died has no master for a moment; a request that comes then waits
for the promotion, but not for long. A queue that has no mirror is simply down, and 404 says so at
once.
"""

from __future__ import annotations

import asyncio

from shalott.broker.base.env import pause_ms
from shalott.broker.base.errors import ProcessError
from shalott.broker.rabbit.amqp.errors import INTERNAL_ERROR, NOT_FOUND, RESOURCE_LOCKED, AmqpError
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.metadata.records import QueueRow, queue_key
from shalott.broker.rabbit.processes.messages import Failed, Message

PROMOTION_WAIT_MS = 2000  # how long a request waits for a mirror to be promoted
POLL_MS = 30


class QueueAccess:
    """Lookups in the channel's vhost, with the rights of the channel's connection."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.last_declared = ""  # what an empty queue name means

    def name(self, given: str) -> str:
        if given:
            return given
        if not self.last_declared:
            raise AmqpError(NOT_FOUND, "no previously declared queue")
        return self.last_declared

    def find(self, name: str) -> QueueRow:
        """The row, wherever its master may be. Raises 404, or 405 for another's queue."""
        row = self._context.services.queues.lookup(self._context.session.vhost, name)
        if row is None:
            raise self.absent(name)
        self.check_owner(row)
        return row

    def check_owner(self, row: QueueRow) -> None:
        if row.exclusive_owner not in (None, self._context.session.connection):
            raise AmqpError(
                RESOURCE_LOCKED,
                f"cannot obtain exclusive access to locked queue '{row.name}'"
                f" in vhost '{row.vhost}'",
            )

    def down(self, name: str) -> AmqpError | None:
        """The 404 for a durable queue that exists, but none of whose processes does."""
        key = queue_key(self._context.session.vhost, name)
        row = self._context.services.metadata.read("durable_queue", key)
        return _home_node_down(row) if isinstance(row, QueueRow) else None

    def absent(self, name: str) -> AmqpError:
        vhost = self._context.session.vhost
        return self.down(name) or AmqpError(NOT_FOUND, f"no queue '{name}' in vhost '{vhost}'")

    async def available(self, name: str) -> QueueRow:
        """The row of a queue whose master can be reached."""
        deadline = asyncio.get_running_loop().time() + PROMOTION_WAIT_MS / 1000
        while True:
            row = self.find(name)
            if row.pid is not None and self._context.services.queues.is_available(row):
                return row
            if not row.slave_pids or asyncio.get_running_loop().time() >= deadline:
                raise _absent(row)
            await pause_ms(POLL_MS)

    async def ask(self, name: str, request: Message) -> tuple[QueueRow, Message]:
        """Call the queue's master; once more if it dies meanwhile and another takes its place."""
        deadline = asyncio.get_running_loop().time() + PROMOTION_WAIT_MS / 1000
        while True:
            row = await self.available(name)
            assert row.pid is not None
            try:
                # No timeout: a master that synchronises its mirrors answers late, and one that is
                # gone ends the call.
                answer = await self._context.services.runtime.call(
                    row.pid, request, timeout_ms=None, caller=self._context.pid
                )
            except ProcessError as error:
                if asyncio.get_running_loop().time() >= deadline:
                    raise _absent(row) from error
                await pause_ms(POLL_MS)
                continue
            return row, answer


def _absent(row: QueueRow) -> AmqpError:
    """Why a queue that exists can't be reached, in the words of rabbit_misc:absent."""
    queue = f"queue '{row.name}' in vhost '{row.vhost}'"
    if row.state == "crashed":
        return AmqpError(NOT_FOUND, f"{queue} has crashed and failed to restart")
    if row.state == "stopped":
        return AmqpError(NOT_FOUND, f"{queue} process is stopped by supervisor")
    return _home_node_down(row)


def _home_node_down(row: QueueRow) -> AmqpError:
    node = "unknown" if row.pid is None else row.pid.node
    kind = "durable queue" if row.durable else "queue"
    return AmqpError(
        NOT_FOUND,
        f"home node '{node}' of {kind} '{row.name}' in vhost '{row.vhost}' is down or inaccessible",
    )


def unexpected_answer(row: QueueRow, answer: Message) -> AmqpError:
    """A queue process refused for a reason that the protocol has no code for."""
    text = f"{answer.kind} {answer.text}" if isinstance(answer, Failed) else type(answer).__name__
    return AmqpError(
        INTERNAL_ERROR, f"queue '{row.name}' in vhost '{row.vhost}' answered: {text.strip()}"
    )
