"""Blocked: the step of a GM member that waits for a transaction or a call.

Where gm.erl blocks, the machine yields ``Transact`` or ``AskToJoin`` and keeps further inputs back
until it is answered, so their order is the original's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from shalott.broker.rabbit.gm.group import LostMembership
from shalott.broker.rabbit.gm.inputs import (
    AskToJoin,
    JoinAnswered,
    MembershipLost,
    Output,
    Transact,
    Transacted,
)
from shalott.broker.rabbit.metadata.records import GroupRow

# A blocked activity: yields what it must have done, is sent the answer.
Work = Generator[Transact | AskToJoin, GroupRow | JoinAnswered, None]


class Blocked:
    """At most one at a time: ``work``. ``emit`` gets the questions."""

    def __init__(self, emit: Callable[[Output], None]) -> None:
        self._emit = emit
        self.work: Work | None = None

    def begin(self, work: Work) -> None:
        """Raises LostMembership, as ``resume`` does."""
        self.work = work
        self._advance(lambda: next(work))

    def resume(self, answer: Transacted | MembershipLost | JoinAnswered) -> None:
        work = self.work
        assert work is not None, "an answer to no question"
        match answer:
            case Transacted(row):
                self._advance(lambda: work.send(row))
            case JoinAnswered():
                self._advance(lambda: work.send(answer))
            case MembershipLost():
                self._advance(lambda: work.throw(LostMembership()))

    def _advance(self, go_on: Callable[[], Transact | AskToJoin]) -> None:
        try:
            self._emit(go_on())
        except StopIteration:
            self.work = None
        except LostMembership:
            self.work = None
            raise
