"""What a consumer's channel waits for: answers to its methods, and proofs of its settlements.

A settlement has no answer: its row is open until a passive queue.declare that was sent behind it
has come back, which the queue's master answers; one such question a while serves all that was said
before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pamqp import commands
from pamqp.base import Frame

from shalott.clients.amqp.connection import Event
from shalott.core.client import ClientRows
from shalott.core.op import Completion

PROOF_S = 0.05  # so long a settlement waits for others before the question that proves it


@dataclass(slots=True, eq=False)
class OutstandingRpcs:
    """Methods of a channel that wait for the server's answer."""

    send: Callable[..., None]
    waiters: list[Waiter] = field(default_factory=list)
    _ended: str | None = None

    async def call(self, method: Frame, kind: type[Frame], tag: str | None = None) -> None:
        """Returns with the answer, which is of that kind and consumer. Raises ChannelEnded."""
        if self._ended is not None:
            raise ChannelEnded(self._ended, refused=False)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(kind, method.index, future, tag)
        self.waiters.append(waiter)
        self.send(method)
        try:
            await future
        finally:
            self.waiters.remove(waiter)

    def answered(self, event: Event, tag: str | None) -> None:
        for waiter in self.waiters:
            if isinstance(event, waiter.kind) and waiter.tag == tag and not waiter.future.done():
                waiter.future.set_result(None)
                return

    def end(self, ended: str, why: str, caused_by: int) -> None:
        """``caused_by``: the method that the server refused, if it was one."""
        self._ended = ended
        for waiter in self.waiters:
            if not waiter.future.done():
                refused = caused_by == waiter.index
                waiter.future.set_exception(ChannelEnded(why, refused=refused))


@dataclass(slots=True, eq=False)
class Waiter:
    """A task that waits for an answer of that kind. ``index``: of the method that was sent."""

    kind: type[Frame]
    index: int
    future: asyncio.Future[None]
    tag: str | None = None


@dataclass(slots=True, eq=False)
class Proofs:
    """Settlements that no answer has proved yet, and the questions that will. ``idle`` is
    called when there may be none left."""

    rows: ClientRows
    send: Callable[..., None]
    idle: Callable[[], None]
    _cut_off: dict[str, None] = field(default_factory=dict)  # queues whose consumer was cancelled
    _unproved: dict[int, tuple[str, ...]] = field(default_factory=dict)  # row -> its queues
    _timer: asyncio.TimerHandle | None = None
    _questions: deque[Question] = field(default_factory=deque)

    @property
    def are_given(self) -> bool:
        return not (self._unproved or self._questions)

    def want(self, row: int, queues: tuple[str, ...]) -> None:
        """The settlement of this row was sent."""
        if any(queue in self._cut_off for queue in queues):
            error = "the consumer had been cancelled by the server"
            self.rows.end(row, Completion(type="info", error=error))
            self.idle()
            return
        self._unproved[row] = queues
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PROOF_S, self._ask)

    def subscribed(self, queue: str) -> None:
        self._cut_off.pop(queue, None)

    def cut_off(self, queue: str) -> None:
        """The server cancelled its consumer: nothing said of it can be proved by asking."""
        self._cut_off[queue] = None
        for row, queues in list(self._unproved.items()):
            if queue in queues:
                del self._unproved[row]
                error = "the consumer was cancelled by the server"
                self.rows.end(row, Completion(type="info", error=error))

    async def look(self, queue: str) -> int:
        """How many messages are ready in ``queue``. Raises ChannelEnded."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        question = Question([], 1, answered=answered)
        self._questions.append(question)
        self.send(commands.Queue.Declare(queue=queue, passive=True))
        await answered
        return question.ready

    def _ask(self) -> None:
        self._timer = None
        queues = dict.fromkeys(queue for own in self._unproved.values() for queue in own)
        if not queues:
            self.idle()
            return
        self._questions.append(Question(list(self._unproved), len(queues)))
        self.send(*(commands.Queue.Declare(queue=queue, passive=True) for queue in queues))
        self._unproved = {}

    def answered(self, event: commands.Queue.DeclareOk) -> None:
        if not self._questions:
            return
        question = self._questions[0]
        question.missing -= 1
        question.ready = int(event.message_count or 0)
        if question.missing:
            return
        self._questions.popleft()
        for row in question.rows:
            self.rows.end(row)
        if question.answered is not None and not question.answered.done():
            question.answered.set_result(None)
        self.idle()

    def end(self, why: str) -> None:
        """The channel has ended: what is still open stays indefinite."""
        if self._timer is not None:
            self._timer.cancel()
        asked = [row for question in self._questions for row in question.rows]
        for row in (*asked, *self._unproved):
            self.rows.end(row, Completion(type="info", error=why))

    def refuse(self, why: str) -> None:
        """Let those who look know it."""
        for question in self._questions:
            if question.answered is not None and not question.answered.done():
                question.answered.set_exception(ChannelEnded(why, refused=False))


@dataclass(slots=True, eq=False)
class Question:
    """Passive declares that were sent together; the rows that their answers prove."""

    rows: list[int]
    missing: int  # answers
    ready: int = 0  # messages, by the last answer
    answered: asyncio.Future[None] | None = None


class ChannelEnded(Exception):
    """The channel ended before it answered. ``refused``: by the method that was sent last."""

    def __init__(self, text: str, *, refused: bool) -> None:
        super().__init__(text)
        self.refused = refused
