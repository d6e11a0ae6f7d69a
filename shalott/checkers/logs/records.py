"""The sends and polls of a log workload, as columns: one row a send, a poll, a polled record.

A ``send`` has the message's run-unique id as value and, when it is ok, the queue offset that the
broker answered. A poll's ``extra`` is {"from": n, "records": [[offset, value], ...]}: what the
client asked for and what came, a value being null where the body was damaged. A poll whose own
value is null went on from where its process stood; any other one was told where to read. One that
found nothing there is a fail with the error "empty", like a dequeue; one whose offset the queue
does not have is a fail with {"from": n, "moved": m}: the broker says that reading goes on at m. The
words are those of jepsen/src/jepsen/tests/kafka.clj; a key is one queue, "topic/queue".

A send's ``extra`` may have {"sent": n}: a library that retries by itself sent it n times, and each
time it may have been stored. {"transaction": "commit"} is a send that brokers decide later: it is
ok without an offset, and has to be there once they have said that nothing waits to be decided
(``settle``; clients/rocketmq/transactions.py). Our own client's settle tells more: {"again": [...]}
are the values of which more than one commit was sent, {"twice": [...]} those of which a decision
was accepted after another, and one that fails has {"undecided": n}.

Offsets of fillers, the others of a batch, stand in a poll's {"others": [n, ...]}.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.columns import Bools, Codes, Ints, Operations, client_operations
from shalott.core.history import History

NOWHERE = -1  # the offset of a send that was told none
OK, FAIL, INFO = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Sends:
    """One row a send with a value, in the operations' order."""

    row: Ints  # position in the operations
    key: Codes
    value: Ints
    offset: Ints  # NOWHERE if none was told
    outcome: Codes  # OK, FAIL, INFO
    attempts: Ints  # how often its client sent it: 1, unless a library says more
    is_transaction: Bools  # its place in the queue comes later than its acknowledgement

    @property
    def is_acked(self) -> Bools:
        return np.asarray(self.outcome == OK)


@dataclass(frozen=True, slots=True)
class Polls:
    """One row a poll that was answered, in the operations' order.

    Its records are [first, first + count).
    """

    row: Ints
    key: Codes
    start: Ints  # the offset that was asked for
    goes_on: Bools  # from where its process stood
    first: Ints
    count: Ints
    stand: Ints  # behind all that came
    moved: Ints  # where the broker sent the reader instead; NOWHERE if it did not


@dataclass(frozen=True, slots=True)
class Records:
    """One row a polled record, in the order of the polls, and in each as they came."""

    row: Ints  # the poll's position in the operations
    key: Codes
    offset: Ints
    begins: Ints  # the offset, or that of the first filler right before it
    value: Ints  # 0 where it was damaged
    is_sound: Bools


class Settling(msgspec.Struct, frozen=True, kw_only=True):
    """What the last question whether transactions are decided was told. ``row``: its position in
    the operations. Without ``again`` it is not known of what several commits were sent."""

    row: int = NOWHERE
    ok: bool = False
    discarded: int = 0  # transactions that brokers gave up asking about
    again: tuple[int, ...] | None = None
    twice: tuple[int, ...] = ()
    undecided: int = 0

    @property
    def is_decided(self) -> bool:
        """Whether brokers said that no transaction waits, and that none was put aside."""
        return self.ok and not self.discarded


@dataclass(frozen=True, slots=True)
class LogHistory:
    """``malformed`` counts rows that are no poll or send as described above: the harness's own
    fault. ``undecided``: sends that would be OK, had the brokers said that they had decided all
    transactions; they are INFO."""

    ops: Operations
    sends: Sends
    polls: Polls
    records: Records
    malformed: int
    undecided: int  # committed transactions whose decision was not seen
    settling: Settling


class _Send(msgspec.Struct):
    sent: int = 1
    transaction: str = ""


class _Poll(msgspec.Struct):
    start: int = msgspec.field(name="from")
    records: list[tuple[int, int | None]] | None = None
    others: list[int] = []
    moved: int = NOWHERE


def read_log(history: History) -> LogHistory:
    """Everything that the clients of a log workload asked and were told."""
    ops = client_operations(history)
    table = history.ops
    is_client = np.asarray(table["process"].to_numpy() >= 0)
    if not is_client.all():
        table = table.filter(pa.array(is_client))
    offsets = pc.fill_null(table["offset"], NOWHERE).to_numpy()
    sends, unplaced = _sends(ops, offsets, table["extra"])
    settling = _settling(ops, table["extra"])
    undecided = 0 if settling.is_decided else _made_indefinite(sends)
    polls, records, unreadable = _polls(ops, table["extra"])
    return LogHistory(ops, sends, polls, records, unplaced + unreadable, undecided, settling)


def _settling(ops: Operations, extra: pa.ChunkedArray) -> Settling:
    rows = np.flatnonzero(ops.f.equal("settle"))
    if not len(rows):
        return Settling()
    row = int(rows[-1])
    try:
        said = msgspec.json.decode(extra[row].as_py() or "{}", type=Settling)
    except msgspec.MsgspecError:
        return Settling(row=row)
    return msgspec.structs.replace(said, row=row, ok=bool(ops.type.equal("ok")[row]))


def _made_indefinite(sends: Sends) -> int:
    """Those that were committed; how many."""
    committed = sends.is_transaction & sends.is_acked
    sends.outcome[committed] = INFO
    return int(committed.sum())


def _sends(ops: Operations, offset: Ints, extra: pa.ChunkedArray) -> tuple[Sends, int]:
    """All sends, and how many were acknowledged without an offset."""
    is_send = ops.f.equal("send")
    rows = np.flatnonzero(is_send & ops.has_value)
    outcome = np.full(len(rows), INFO, dtype=np.int32)
    outcome[ops.type.equal("ok")[rows]] = OK
    outcome[ops.type.equal("fail")[rows]] = FAIL
    told = np.where(outcome == OK, offset[rows], NOWHERE).astype(np.int64)
    attempts, is_transaction = _said_of_sends(extra.take(pa.array(rows)))
    unplaced = int(((outcome == OK) & (told < 0) & ~is_transaction).sum())
    valueless = int((is_send & ~ops.has_value).sum())
    sends = Sends(
        rows, ops.key.codes[rows], ops.value[rows], told, outcome, attempts, is_transaction
    )
    return sends, unplaced + valueless


def _said_of_sends(extra: pa.ChunkedArray) -> tuple[Ints, Bools]:
    """How often each was sent, and whether it is a transaction's. Few rows say so, and only those
    are decoded."""
    attempts = np.ones(len(extra), dtype=np.int64)
    is_transaction = np.zeros(len(extra), dtype=np.bool_)
    says = pc.fill_null(pc.match_substring_regex(extra, '"(sent|transaction)":'), False)
    decoder = msgspec.json.Decoder(_Send)
    for at in np.flatnonzero(says.to_numpy()).tolist():
        try:
            said = decoder.decode(extra[at].as_py())
        except msgspec.MsgspecError:
            continue
        attempts[at], is_transaction[at] = max(1, said.sent), bool(said.transaction)
    return attempts, is_transaction


def _polls(ops: Operations, extra: pa.ChunkedArray) -> tuple[Polls, Records, int]:
    """All polls that were answered, their records, and how many could not be read."""
    is_poll = ops.f.equal("poll")
    must_tell = is_poll & (ops.type.equal("ok") | ops.error.equal("empty"))
    candidates = np.flatnonzero(is_poll & ~ops.type.equal("info"))
    decoder = msgspec.json.Decoder(_Poll)
    read: list[tuple[int, _Poll]] = []
    unreadable = 0
    texts = extra.take(pa.array(candidates)).to_pylist()
    for row, text in zip(candidates.tolist(), texts, strict=True):
        poll = _decoded(decoder, text)
        told = must_tell[row] and poll is not None and poll.records is not None
        if poll is not None and (told or poll.moved != NOWHERE):
            read.append((row, poll))
        elif must_tell[row]:
            unreadable += 1
    return *_columns(ops, read), unreadable


def _decoded(decoder: msgspec.json.Decoder[_Poll], text: str | None) -> _Poll | None:
    try:
        return decoder.decode(text) if text else None
    except msgspec.MsgspecError:
        return None


def _columns(ops: Operations, read: list[tuple[int, _Poll]]) -> tuple[Polls, Records]:
    found = [record for _, poll in read for record in poll.records or ()]
    rows = np.array([row for row, _ in read], dtype=np.int64)
    count = np.array([len(poll.records or ()) for _, poll in read], dtype=np.int64)
    polls = Polls(
        row=rows,
        key=ops.key.codes[rows],
        start=np.array([poll.start for _, poll in read], dtype=np.int64),
        goes_on=~ops.has_value[rows],
        first=np.cumsum(count) - count,
        count=count,
        stand=np.array([_stand(poll) for _, poll in read], dtype=np.int64),
        moved=np.array([poll.moved for _, poll in read], dtype=np.int64),
    )
    record_rows = np.repeat(rows, count)
    values = [value for _, value in found]
    records = Records(
        row=record_rows,
        key=ops.key.codes[record_rows],
        offset=np.array([offset for offset, _ in found], dtype=np.int64),
        begins=np.array([one for _, poll in read for one in _begins(poll)], dtype=np.int64),
        value=np.array([0 if value is None else value for value in values], dtype=np.int64),
        is_sound=np.array([value is not None for value in values], dtype=np.bool_),
    )
    return polls, records


def _begins(poll: _Poll) -> list[int]:
    offsets, others = [offset for offset, _ in poll.records or ()], {*poll.others}
    if not others:
        return offsets
    begins = []
    for offset in offsets:
        while offset - 1 in others:
            offset -= 1
        begins.append(offset)
    return begins


def _stand(poll: _Poll) -> int:
    last = poll.records[-1][0] if poll.records else poll.start - 1
    return 1 + max([last, *poll.others])
