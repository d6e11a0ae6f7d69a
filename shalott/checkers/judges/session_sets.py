"""Sessions' guarantees where a read shows all that was written: sets, and logs with their order.

What a guarantee demands of a read is, for each session, a beginning of a list: its own writes as
they were acknowledged, or what it has read as it came to see it. So a write remembers one number,
how long the list was when it was invoked, and a read is compared by counting: of the elements that
it shows, those that stand before that number must be as many. A read costs what it shows, times the
sessions whose writes it shows for writes-follow-reads; memory is elements times sessions there.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.judges.passes import Case, Operation, same

UNREAD_WRITE: Final = "unread-write"
WENT_BACK: Final = "read-went-back"
OVERTAKEN: Final = "write-overtaken"
CAUSE_MISSING: Final = "cause-missing"

Ids = npt.NDArray[np.int64]
_NO: Final = -1


@dataclass(slots=True)
class _Column:
    """Numbers by element, -1 where there is none; it grows."""

    values: Ids = field(default_factory=lambda: np.full(64, _NO, dtype=np.int64))

    def room(self, count: int) -> Ids:
        if count > len(self.values):
            more = np.full(max(count, 2 * len(self.values)), _NO, dtype=np.int64)
            more[: len(self.values)] = self.values
            self.values = more
        return self.values


@dataclass(slots=True)
class _Session:
    """A process. ``own``: its acknowledged writes; ``seen``: what it has read, as it saw it."""

    process: int
    own: list[int] = field(default_factory=list)
    seen: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    rank: _Column = field(default_factory=_Column)  # of each element within ``seen``
    read_place: int = _NO


@dataclass(slots=True)
class Collections:
    """One set or log, judged by one guarantee (``kind`` is what breaks it)."""

    case: Case
    kind: str
    is_log: bool = False
    ids: dict[Hashable, int] = field(default_factory=dict)
    values: list[Hashable] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # of the writes' last entries
    sessions: dict[int, _Session] = field(default_factory=dict)
    numbers: list[_Session] = field(default_factory=list)
    # By element: its writer, its number among the writer's acknowledged writes, how many of these,
    # and of what the writer has read, there were when it was invoked.
    writer: _Column = field(default_factory=_Column)
    number: _Column = field(default_factory=_Column)
    own_before: _Column = field(default_factory=_Column)
    seen_before: _Column = field(default_factory=_Column)
    scratch: _Column = field(default_factory=_Column)
    placed: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # in ``scratch``
    session_of: dict[int, int] = field(default_factory=dict)

    # -- writes --

    def write(self, op: Operation) -> None:
        value = same(op.argument if op.argument is not None else op.result)
        id_ = self._id(value)
        session = self._session(op.process)
        at = self.session_of[op.process]
        if self.writer.room(len(self.values))[id_] == _NO:
            self.writer.values[id_] = at
            self.own_before.room(len(self.values))[id_] = len(session.own)
            self.seen_before.room(len(self.values))[id_] = len(session.seen)
        self.places[id_] = op.place
        numbers = self.number.room(len(self.values))
        if op.type == "ok" and numbers[id_] == _NO and self.writer.values[id_] == at:
            numbers[id_] = len(session.own)
            session.own.append(id_)

    def _id(self, value: Hashable) -> int:
        id_ = self.ids.setdefault(value, len(self.ids))
        if id_ == len(self.values):
            self.values.append(value)
            self.places.append(_NO)
        return id_

    def _session(self, process: int) -> _Session:
        if process not in self.sessions:
            self.session_of[process] = len(self.numbers)
            self.sessions[process] = _Session(process)
            self.numbers.append(self.sessions[process])
        return self.sessions[process]

    # -- reads --

    def read(self, op: Operation, elements: list[Hashable]) -> None:
        shown = np.fromiter((self._id(value) for value in elements), np.int64, len(elements))
        if len(set(elements)) < len(elements):
            _, first = np.unique(shown, return_index=True)
            shown = shown[np.sort(first)]
        for column in (self.writer, self.number, self.own_before, self.seen_before):
            column.room(len(self.values))
        is_ordered = self.is_log and isinstance(op.result, tuple)
        session = self._session(op.process)
        if self.kind == UNREAD_WRITE:
            self._judge_own(op, session, shown)
        elif self.kind == WENT_BACK:
            self._judge_seen(op, session, shown, is_ordered)
        elif self.kind == OVERTAKEN:
            self._judge_writers(op, shown, is_ordered)
        else:
            self._judge_causes(op, shown, is_ordered)
            self._note_seen(op, session, shown)

    def _positions(self, shown: Ids) -> Ids:
        """By element: where it stands in the read; -1: nowhere. Good until the next read."""
        positions = self.scratch.room(len(self.values))
        positions[self.placed] = _NO
        positions[shown] = np.arange(len(shown))
        self.placed = shown
        return positions

    def _judge_own(self, op: Operation, session: _Session, shown: Ids) -> None:
        if not session.own:
            return
        self.case.counts["judged-count"] += 1
        own = np.array(session.own, dtype=np.int64)
        missing = own[self._positions(shown)[own] == _NO]
        if len(missing) and self.case.found(UNREAD_WRITE):
            case = self.case
            places = [self.places[id_] for id_ in missing[:2].tolist()]
            case.tell(
                UNREAD_WRITE,
                f"process {op.process} had written {self._listed(missing)} ({case.at(places[0])}),"
                f" but its read at {case.at(op.place)} does not show it",
                *places,
                op.place,
            )

    def _judge_seen(self, op: Operation, session: _Session, shown: Ids, is_ordered: bool) -> None:
        case = self.case
        if session.read_place != _NO:
            case.counts["judged-count"] += 1
            positions = self._positions(shown)[session.seen]
            missing = session.seen[positions == _NO]
            if len(missing):
                self._tell_gone(op, session, missing)
                shown = np.concatenate((shown, missing))
            elif is_ordered and (turned := np.flatnonzero(np.diff(positions) < 0)).size:
                one, other = session.seen[turned[0]], session.seen[turned[0] + 1]
                if case.found(WENT_BACK):
                    case.tell(
                        WENT_BACK,
                        f"process {op.process} had read {self._shown(one)} before"
                        f" {self._shown(other)} ({case.at(session.read_place)}), then read them in"
                        f" the other order ({case.at(op.place)})",
                        session.read_place,
                        op.place,
                    )
        session.seen, session.read_place = shown, op.place

    def _tell_gone(self, op: Operation, session: _Session, missing: Ids) -> None:
        case = self.case
        if case.found(WENT_BACK):
            case.tell(
                WENT_BACK,
                f"process {op.process} had read {self._listed(missing)} by"
                f" {case.at(session.read_place)}, but its read at {case.at(op.place)} does not show"
                " it",
                session.read_place,
                op.place,
            )

    def _judge_writers(self, op: Operation, shown: Ids, is_ordered: bool) -> None:
        """Of each session whose writes are shown: its earlier ones are shown, too."""
        shown = shown[self.writer.values[shown] != _NO]
        if not len(shown):
            return
        count = len(self.numbers)
        writers = self.writer.values[shown]
        before, numbers = self.own_before.values[shown], self.number.values[shown]
        self.case.counts["judged-count"] += int((before > 0).any())
        needed = np.zeros(count, dtype=np.int64)
        np.maximum.at(needed, writers, before)
        counted = (numbers != _NO) & (numbers < needed[writers])
        there = np.bincount(writers[counted], minlength=count)
        for at in np.flatnonzero(there < needed).tolist():
            own = np.array(self.numbers[at].own[: needed[at]], dtype=np.int64)
            missing = own[self._positions(shown)[own] == _NO]
            later = shown[(writers == at) & (before == needed[at])][0]
            self._tell_overtaken(op, int(missing[0]), int(later), "does not show")
        if is_ordered and (there == needed).all():
            self._judge_writers_order(op, shown)

    def _judge_writers_order(self, op: Operation, shown: Ids) -> None:
        """In the order of the log no write stands before fewer of its session than it followed."""
        order = np.argsort(self.writer.values[shown], kind="stable")
        grouped = shown[order]
        writers = self.writer.values[grouped]
        is_own = (self.number.values[grouped] != _NO).astype(np.int64)
        running = np.cumsum(is_own) - is_own  # acknowledged ones that stand before, of all sessions
        begins = np.searchsorted(writers, writers)  # where the session's part begins
        earlier = running - running[begins]
        for at in np.flatnonzero(earlier < self.own_before.values[grouped])[:1].tolist():
            later = int(grouped[at])
            own = np.array(self.numbers[int(writers[at])].own, dtype=np.int64)
            own = own[: self.own_before.values[later]]
            positions = self._positions(shown)
            behind = own[positions[own] > positions[later]]
            self._tell_overtaken(op, int(behind[0]), later, "shows behind it")

    def _tell_overtaken(self, op: Operation, earlier: int, later: int, what: str) -> None:
        case = self.case
        if case.found(OVERTAKEN):
            process = self.numbers[int(self.writer.values[later])].process
            case.tell(
                OVERTAKEN,
                f"process {process} wrote {self._shown(earlier)} ({case.at(self.places[earlier])}),"
                f" then {self._shown(later)} ({case.at(self.places[later])}); the read at"
                f" {case.at(op.place)} shows {self._shown(later)}, but {what}"
                f" {self._shown(earlier)}",
                self.places[earlier],
                self.places[later],
                op.place,
            )

    def _judge_causes(self, op: Operation, shown: Ids, is_ordered: bool) -> None:
        """Of each write that is shown: what its session had read before it is shown, too."""
        with_causes = shown[self.seen_before.values[shown] > 0]
        if not len(with_causes):
            return
        self.case.counts["judged-count"] += 1
        positions = self._positions(shown)
        for at in np.unique(self.writer.values[with_causes]).tolist():
            session = self.numbers[at]
            own = with_causes[self.writer.values[with_causes] == at]
            needed = self.seen_before.values[own]
            causes = session.seen[: int(needed.max())]
            at_ = positions[causes]
            missing = np.flatnonzero(at_ == _NO)
            if len(missing):
                first = int(missing[0])
                later = int(own[needed > first][0])
                self._tell_cause(op, session, int(causes[first]), later, "does not show")
            elif is_ordered:
                latest = np.maximum.accumulate(at_)[needed - 1]
                for row in np.flatnonzero(latest > positions[own])[:1].tolist():
                    behind = causes[: needed[row]][at_[: needed[row]] > positions[own[row]]]
                    later, cause = int(own[row]), int(behind[0])
                    self._tell_cause(op, session, cause, later, "shows behind it")

    def _note_seen(self, op: Operation, session: _Session, shown: Ids) -> None:
        ranks = session.rank.room(len(self.values))
        fresh = shown[ranks[shown] == _NO]
        ranks[fresh] = np.arange(len(session.seen), len(session.seen) + len(fresh))
        session.seen = np.concatenate((session.seen, fresh))
        session.read_place = op.place

    def _tell_cause(
        self, op: Operation, session: _Session, cause: int, later: int, what: str
    ) -> None:
        case = self.case
        if case.found(CAUSE_MISSING):
            case.tell(
                CAUSE_MISSING,
                f"process {session.process} had read {self._shown(cause)} before it wrote"
                f" {self._shown(later)} ({case.at(self.places[later])}); the read at"
                f" {case.at(op.place)} shows {self._shown(later)}, but {what} {self._shown(cause)}",
                self.places[later],
                op.place,
            )

    def _shown(self, id_: int) -> str:
        return self.case.shown(self.values[int(id_)])

    def _listed(self, ids: Ids) -> str:
        return self.case.listed([self.values[id_] for id_ in ids[:16].tolist()], len(ids))
