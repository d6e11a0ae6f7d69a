"""UnconfirmedMessages: which queue processes still owe a confirm for which publish. Pure.

Theory (RabbitMQ's unconfirmed_messages.erl): a channel sends a publish to the master and to every
mirror of each queue that it routes to, and acknowledges it to its client when every one of those
processes has confirmed. A process that goes down is forgotten: the rest decide. When the last
process of a queue is gone and none had confirmed, no process is known to have the message and the
client gets a nack, unless all of them ended normally: the queue was deleted, and its messages with
it, so that there is nothing left to wait for.

Two rules are stricter than RabbitMQ's. A confirm of a mirror that is not synchronised does not
count when the master died unconfirmed: under promote-on-failure=when-synced such a mirror is thrown
away, and the message with it, so an ack would be a lie. And one of those that confirmed must be the
*recorded* master (``master_of``): should everything die now, the queue comes back from that one's
disk alone. So what a dead master had not confirmed is *in question* until
its successor is recorded; if that is none of those that confirmed, or there is none in time, the
client gets a nack.

A third rule holds where metadata need a majority: a process that is only out of reach (``suspect``)
may live and be promoted, so it owes its confirm until the queue's row is without it. Its debts can
still come to a nack, which promises nothing, and do in time: its confirm may have been lost.

Acknowledgements are coalesced. ``basic.ack(n, multiple)`` settles *everything* up to n at the
client, so it is legal only if nothing up to n is still undecided, and only after the nacks among
them were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from shalott.broker.rabbit.processes.messages import Pid

IN_QUESTION_MAX_NS = 10_000_000_000  # a failover that takes longer is not waited for


class Verdict(msgspec.Struct, frozen=True):
    """What to tell the client: basic.ack or basic.nack of ``seq``, or of everything up to it."""

    seq: int
    ack: bool
    multiple: bool = False


class _Debt:
    """What one queue owes for one publish."""

    __slots__ = ("all_normal", "confirmed", "owing", "processes", "since_ns", "unsynchronised")

    def __init__(self, processes: Sequence[Pid], unsynchronised: Sequence[Pid]) -> None:
        self.processes = tuple(processes)
        self.owing: dict[Pid, bool] = dict.fromkeys(processes, True)  # -> whether in reach
        self.unsynchronised = tuple(unsynchronised)
        self.confirmed: dict[Pid, None] = {}  # by these, which were the master or synchronised
        self.since_ns: int | None = None  # when it was first found in question
        self.all_normal = True  # every process that went down unconfirmed ended normally


class UnconfirmedMessages:
    """One channel's publishes in confirm mode. ``seq`` counts up from 1.

    ``master_of``: a queue's master, as it is recorded; without it every confirm counts alike.
    ``counted`` hears of a queue's publish that counts: whose confirms made it so.
    """

    def __init__(
        self,
        master_of: Callable[[str], Pid | None] | None = None,
        *,
        counted: Callable[[int, str, Iterable[Pid]], None] = lambda seq, queue, processes: None,
    ) -> None:
        self._master_of = master_of
        self._counted = counted
        self._in_question: dict[int, dict[str, None]] = {}  # seq -> queues
        self._debts: dict[int, dict[str, _Debt]] = {}  # seq -> queue -> debt; in order of seq
        self._owed_by: dict[Pid, dict[int, str]] = {}  # process -> seq -> queue
        self._acks: list[int] = []  # decided, not yet taken
        self._nacks: list[int] = []

    def __len__(self) -> int:
        """How many publishes are undecided."""
        return len(self._debts)

    @property
    def in_question(self) -> bool:
        """Whether ``reconsider`` is to be called again."""
        return bool(self._in_question)

    @property
    def decided(self) -> int:
        """How many verdicts wait to be taken."""
        return len(self._acks) + len(self._nacks)

    def sent(
        self,
        seq: int,
        queues: Mapping[str, Sequence[Pid]],
        unsynchronised: Mapping[str, Sequence[Pid]] | None = None,
    ) -> None:
        """``seq`` went to these processes. Without any queue it was unroutable: acknowledged.

        ``unsynchronised`` are those among them that are mirrors without all that their master has.
        """
        if not queues:
            self._acks.append(seq)
            return
        weak = unsynchronised or {}
        debts = {
            queue: _Debt(processes, weak.get(queue, ())) for queue, processes in queues.items()
        }
        if any(not debt.owing for debt in debts.values()):
            self._nacks.append(seq)  # a queue without a process: none there can have it
            return
        self._debts[seq] = debts
        for queue, debt in debts.items():
            for process in debt.owing:
                self._owed_by.setdefault(process, {})[seq] = queue

    def confirm(self, process: Pid, seqs: Iterable[int]) -> None:
        """``process`` has these publishes. Those that it does not owe (any more) are ignored."""
        for seq in seqs:
            queue = self._owed_by.get(process, {}).pop(seq, None)
            if queue is not None:
                debt = self._debts[seq][queue]
                if process in debt.unsynchronised:
                    debt.all_normal = False  # it lives: the queue was not deleted
                else:
                    debt.confirmed[process] = None
                del debt.owing[process]
                self._settle(seq, queue)
        self._tidy(process)

    def refuse(self, process: Pid, seqs: Iterable[int]) -> None:
        """``process`` rejected these publishes: one refusal is enough for a nack."""
        for seq in seqs:
            if seq in self._owed_by.get(process, {}):
                self._nack(seq)
        self._tidy(process)

    def down(self, process: Pid, *, normal: bool) -> None:
        """``process`` is gone, or out of reach."""
        for seq, queue in self._owed_by.pop(process, {}).items():
            debt = self._debts[seq][queue]
            debt.all_normal = debt.all_normal and normal
            del debt.owing[process]
            self._settle(seq, queue)

    def reconsider(self, now_ns: int) -> None:
        """Decide what a new master decides, and what was in question for too long."""
        for seq, queues in list(self._in_question.items()):
            for queue in list(queues):
                debt = self._debts[seq][queue] if seq in self._debts else None
                if debt is None:
                    break  # a nack on another queue's account
                if debt.since_ns is None:
                    debt.since_ns = now_ns
                if now_ns - debt.since_ns >= IN_QUESTION_MAX_NS:
                    self._nack(seq)
                else:
                    self._settle(seq, queue)

    def suspect(self, process: Pid) -> None:
        """``process`` is out of reach, and may have a part in the queue nevertheless."""
        for seq, queue in list(self._owed_by.get(process, {}).items()):
            debt = self._debts[seq][queue]
            debt.owing[process] = debt.all_normal = False
            if not debt.confirmed and not any(debt.owing.values()):
                self._nack(seq)

    def give_up(self, process: Pid) -> None:
        """Its confirm of what it owed when it was found out of reach is not waited for any more."""
        for seq, queue in list(self._owed_by.get(process, {}).items()):
            if seq in self._debts and not self._debts[seq][queue].owing[process]:
                self._nack(seq)

    def queues_owed_by(self, process: Pid) -> list[str]:
        """The queues for which it still owes a confirm."""
        return list(dict.fromkeys(self._owed_by.get(process, {}).values()))

    def take_nacks(self) -> list[Verdict]:
        """Nacks decided since the last call, in order. To be sent before any ``take_acks``."""
        nacks, self._nacks = sorted(self._nacks), []
        return [Verdict(seq, ack=False) for seq in nacks]

    def take_acks(self) -> list[Verdict]:
        """Acks decided since the last call, coalesced. Sorted, the multiple one first."""
        assert not self._nacks, "an ack of many must not overtake a nack"
        acks, self._acks = sorted(self._acks), []
        oldest_undecided = next(iter(self._debts), None)
        below = (
            len(acks)
            if oldest_undecided is None
            else sum(1 for seq in acks if seq < oldest_undecided)
        )
        if below <= 1:
            return [Verdict(seq, ack=True) for seq in acks]
        singles = [Verdict(seq, ack=True) for seq in acks[below:]]
        return [Verdict(acks[below - 1], ack=True, multiple=True), *singles]

    def _settle(self, seq: int, queue: str) -> None:
        debts = self._debts[seq]
        debt = debts[queue]
        if debt.owing:
            return
        verdict = self._judge(queue, debt)
        if verdict is None:
            self._in_question.setdefault(seq, {})[queue] = None
            return
        if not verdict:
            self._nack(seq)
            return
        self._answered(seq, queue)
        self._counted(seq, queue, debt.confirmed)
        del debts[queue]
        if not debts:
            del self._debts[seq]
            self._acks.append(seq)

    def _judge(self, queue: str, debt: _Debt) -> bool | None:
        """No process owes a confirm any more. None: in question."""
        if not debt.confirmed:
            return debt.all_normal
        if self._master_of is None:
            return True
        master = self._master_of(queue)
        if master in debt.confirmed:
            return True
        if master is None:  # deleted; or down without a mirror, and it will be another process
            return True if debt.all_normal else None
        return None if master in debt.processes else False

    def _answered(self, seq: int, queue: str) -> None:
        queues = self._in_question.get(seq, {})
        queues.pop(queue, None)
        if not queues:
            self._in_question.pop(seq, None)

    def _nack(self, seq: int) -> None:
        self._in_question.pop(seq, None)
        for debt in self._debts.pop(seq).values():
            for process in debt.owing:
                self._owed_by.get(process, {}).pop(seq, None)
                self._tidy(process)
        self._nacks.append(seq)

    def _tidy(self, process: Pid) -> None:
        if not self._owed_by.get(process, True):
            del self._owed_by[process]


# -- rules, and the known bugs that break them -----------------------------------------------------

# When a channel may acknowledge a publish to its client: the rules, and what each known bug makes
# of them.
#
# The rules are those of confirms.py. ``confirm_rules`` reads the switches
# (broker/rabbit/known_bugs) once, when a channel opens; the code asks the rules only.

# KB-RMQ-24: the ends that rabbit_misc:is_abnormal_exit calls benign, in this broker's words. Only
# another reason made a nack; a process that ended so was struck off as if it had confirmed.
BENIGN_ENDS = ("normal", "shutdown", "noproc", "noconnection", "dropped", "stopped by its master")


@dataclass(frozen=True, slots=True)
class ConfirmRules:
    """One field a rule. All hold by default.

    needs_recorded_master: a confirm counts only with that of the recorded master; in the original a
    confirm is a confirm, whose ever it is (OUR-01, KB-RMQ-24). discounts_unsynchronised: the
    confirm of a mirror that is not synchronised does not count (OUR-01). waits_for_rows: a process
    out of reach owes its confirm as long as a queue's row names it; the original strikes it off at
    once (OUR-08, OUR-09, KB-RMQ-24). settling_ends: the reasons of an end that leave nothing to
    confirm, which is the deletion of the queue only (KB-RMQ-24, before 3.8.0: every benign one).
    """

    needs_recorded_master: bool = True
    discounts_unsynchronised: bool = True
    waits_for_rows: bool = True
    settling_ends: tuple[str, ...] = ("normal",)


def confirm_rules(has_bug: Callable[[str], bool]) -> ConfirmRules:
    """The rules of a node with these bugs switched on."""
    any_end_settles = has_bug("KB-RMQ-24")
    return ConfirmRules(
        needs_recorded_master=not (has_bug("OUR-01") or any_end_settles),
        discounts_unsynchronised=not has_bug("OUR-01"),
        waits_for_rows=not (has_bug("OUR-08") or has_bug("OUR-09") or any_end_settles),
        settling_ends=BENIGN_ENDS if any_end_settles else ("normal",),
    )
