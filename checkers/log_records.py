"""The sends and polls of a log workload, as columns: one row a send, a poll, a polled record.

A ``send`` has the message's run-unique id as value and, when it is ok, the queue offset that the
broker answered. A poll's ``extra`` is {"from": n, "records": [[offset, value], ...]}: what the
client asked for and what came, a value being null where the body was damaged. A poll whose own
value is null went on from where its process stood; any other one was told where to read. One that
found nothing there is a fail with the error "empty", like a dequeue. The words are those of
jepsen/src/jepsen/tests/kafka.clj; a key is one queue, "topic/queue".
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns import Bools, Codes, Ints, Operations, client_operations
from harness.history import History

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


@dataclass(frozen=True, slots=True)
class Records:
    """One row a polled record, in the order of the polls, and in each as they came."""

    row: Ints  # the poll's position in the operations
    key: Codes
    offset: Ints
    value: Ints  # 0 where it was damaged
    is_sound: Bools


@dataclass(frozen=True, slots=True)
class LogHistory:
    """``malformed`` counts rows that are no poll or send as described above: the harness's own
    fault."""

    ops: Operations
    sends: Sends
    polls: Polls
    records: Records
    malformed: int


class _Poll(msgspec.Struct):
    start: int = msgspec.field(name="from")
    records: list[tuple[int, int | None]]


def read_log(history: History) -> LogHistory:
    """Everything that the clients of a log workload asked and were told."""
    ops = client_operations(history)
    table = history.ops
    is_client = np.asarray(table["process"].to_numpy() >= 0)
    if not is_client.all():
        table = table.filter(pa.array(is_client))
    sends, unplaced = _sends(ops, pc.fill_null(table["offset"], NOWHERE).to_numpy())
    polls, records, unreadable = _polls(ops, table["extra"])
    return LogHistory(ops, sends, polls, records, unplaced + unreadable)


def _sends(ops: Operations, offset: Ints) -> tuple[Sends, int]:
    """All sends, and how many were acknowledged without an offset."""
    is_send = ops.f.equal("send")
    rows = np.flatnonzero(is_send & ops.has_value)
    outcome = np.full(len(rows), INFO, dtype=np.int32)
    outcome[ops.type.equal("ok")[rows]] = OK
    outcome[ops.type.equal("fail")[rows]] = FAIL
    told = np.where(outcome == OK, offset[rows], NOWHERE).astype(np.int64)
    unplaced = int(((outcome == OK) & (told < 0)).sum())
    valueless = int((is_send & ~ops.has_value).sum())
    sends = Sends(rows, ops.key.codes[rows], ops.value[rows], told, outcome)
    return sends, unplaced + valueless


def _polls(ops: Operations, extra: pa.ChunkedArray) -> tuple[Polls, Records, int]:
    """All polls that were answered, their records, and how many could not be read."""
    answered = ops.type.equal("ok") | (ops.type.equal("fail") & ops.error.equal("empty"))
    candidates = np.flatnonzero(ops.f.equal("poll") & answered)
    decoder = msgspec.json.Decoder(_Poll)
    rows: list[int] = []
    starts: list[int] = []
    counts: list[int] = []
    offsets: list[int] = []
    values: list[int | None] = []
    texts = extra.take(pa.array(candidates)).to_pylist()
    for row, text in zip(candidates.tolist(), texts, strict=True):
        try:
            poll = decoder.decode(text or "")
        except msgspec.MsgspecError:
            continue
        rows.append(row)
        starts.append(poll.start)
        counts.append(len(poll.records))
        offsets.extend(record[0] for record in poll.records)
        values.extend(record[1] for record in poll.records)
    row_column = np.array(rows, dtype=np.int64)
    count = np.array(counts, dtype=np.int64)
    polls = Polls(
        row=row_column,
        key=ops.key.codes[row_column],
        start=np.array(starts, dtype=np.int64),
        goes_on=~ops.has_value[row_column],
        first=np.cumsum(count) - count,
        count=count,
    )
    record_row = np.repeat(row_column, count)
    is_sound = np.array([value is not None for value in values], dtype=np.bool_)
    records = Records(
        row=record_row,
        key=ops.key.codes[record_row],
        offset=np.array(offsets, dtype=np.int64),
        value=np.array([0 if value is None else value for value in values], dtype=np.int64),
        is_sound=is_sound,
    )
    return polls, records, len(candidates) - len(rows)
