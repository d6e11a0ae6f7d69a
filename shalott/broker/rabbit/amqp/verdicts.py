"""Verdicts: what a channel's client is told of its publishes, and when.

Acks wait for ``Services.may_confirm``; nacks promise nothing and don't. In a transaction no client
hears them: the commit's answer is made of them (transactions.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pamqp import commands

from shalott.broker.rabbit.amqp.confirms import (
    IN_QUESTION_MAX_NS,
    UnconfirmedMessages,
    Verdict,
    confirm_rules,
)
from shalott.broker.rabbit.amqp.queue_protocol import Confirmed, Refused
from shalott.broker.rabbit.amqp.services import Context
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.processes.messages import Pid

FLUSH_AT = 256  # verdicts that are sent although more may be coming


class Verdicts:
    """Of one channel. ``confirming``: the client asked for confirms. ``refused``: something that
    was committed last is not known to be in its queues."""

    def __init__(self, context: Context) -> None:
        self.confirming = False
        self.refused = False
        self.rules = confirm_rules(context.services.env.has_bug)
        self._context = context
        self._unconfirmed = UnconfirmedMessages(
            self._master_of if self.rules.needs_recorded_master else None,
            counted=self._counted,
        )
        # Out of reach, and perhaps still in a queue's row: since when.
        self._suspects: dict[Pid, int] = {}

    def __len__(self) -> int:
        """How many publishes are undecided."""
        return len(self._unconfirmed)

    @property
    def has_some(self) -> bool:
        """Whether ``flush`` has something to send, or to look at again."""
        unconfirmed = self._unconfirmed
        return unconfirmed.decided > 0 or unconfirmed.in_question or bool(self._suspects)

    @property
    def flush_due(self) -> bool:
        return self._unconfirmed.decided >= FLUSH_AT

    def sent(
        self,
        seq: int,
        queues: Mapping[str, Sequence[Pid]],
        unsynchronised: Mapping[str, Sequence[Pid]],
    ) -> None:
        self._unconfirmed.sent(seq, queues, unsynchronised)
        self._testify("published", seq, list(queues))

    def on_confirmed(self, message: Confirmed) -> None:
        self._unconfirmed.confirm(message.process, message.seqs)

    def on_refused(self, message: Refused) -> None:
        self._unconfirmed.refuse(message.process, message.seqs)

    def on_down(self, process: Pid, reason: str) -> None:
        settles = reason in self.rules.settling_ends
        if settles or not self._may_return(process):
            self._unconfirmed.down(process, normal=settles)
        else:
            self._suspects[process] = self._now_ns()
            self._unconfirmed.suspect(process)

    def _may_return(self, process: Pid) -> bool:
        """Whether a queue's row may name it: then it can be promoted, or recovered from.

        A link that broke proves nothing: without the process's confirm the message may be missing
        in the copy that survives. A majority wrote the row, so it decides.
        """
        metadata = self._context.services.metadata
        if not metadata.needs_majority or not self.rules.waits_for_rows:
            return False
        for key in self._unconfirmed.queues_owed_by(process):
            row = metadata.read("queue", key)
            named = isinstance(row, QueueRow) and process in (row.pid, *row.slave_pids)
            if named or not metadata.is_settled("queue", key):
                return True
        return False

    def _now_ns(self) -> int:
        return self._context.services.env.clock.monotonic_ns()

    def _clear_suspects(self) -> None:
        for process in list(self._suspects):
            if not self._may_return(process):
                del self._suspects[process]
                self._unconfirmed.down(process, normal=False)
            elif self._now_ns() - self._suspects[process] >= IN_QUESTION_MAX_NS:
                del self._suspects[process]
                self._unconfirmed.give_up(process)

    async def flush(self) -> bool:
        """Send the verdicts that may be sent. False if some were held back: try again later."""
        if self._unconfirmed.in_question:
            self._unconfirmed.reconsider(self._now_ns())
        self._clear_suspects()
        return await self._flush() and not self._suspects

    async def _flush(self) -> bool:
        if not self._unconfirmed.decided:
            return not self._unconfirmed.in_question
        for nack in self._unconfirmed.take_nacks():
            self.refused = True
            if self.confirming:
                self._testify("answered", nack.seq, False, False)
                await self._context.port.send(commands.Basic.Nack(nack.seq, requeue=False))
        if not self._unconfirmed.decided:
            return not self._unconfirmed.in_question
        if not self._context.services.may_confirm():
            return False
        if self.confirming:
            self._context.counts.add("confirm", self._unconfirmed.decided)
        for ack in self._unconfirmed.take_acks():
            if self.confirming:
                await self._send_ack(ack)
        return not self._unconfirmed.in_question

    def _counted(self, seq: int, queue: str, processes: Iterable[Pid]) -> None:
        self._testify("counted", seq, queue, [str(one) for one in processes])

    def committed(self) -> None:
        """The client is about to hear that its commit is done."""
        self._testify("committed")

    def _testify(self, what: str, *details: object) -> None:
        self._context.services.env.witness(what, self._context.pid, *details)

    def _master_of(self, queue: str) -> Pid | None:
        row = self._context.services.metadata.read("queue", queue)
        return row.pid if isinstance(row, QueueRow) else None

    async def _send_ack(self, ack: Verdict) -> None:
        self._testify("answered", ack.seq, True, ack.multiple)
        await self._context.port.send(commands.Basic.Ack(ack.seq, multiple=ack.multiple))
