"""The recording of a run: what happens, written to a file as it happens, and read back.

While a run lasts its history is a file of JSON lines, one for each invocation and one for each
completion, so that a harness that is killed leaves what happened before. Reading it pairs the two
into one row an operation, column by column.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from shalott.core.errors import StoreError
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History, Recorder
from shalott.core.op import NEMESIS, Completion, Invocation

FLUSH_INTERVAL_S = 0.1  # the contract is 250 ms
HAPPENED = "happened"
CHECK = "check"  # a line whose value is the CRC of all since the last such line
LINES_TOLD = 3  # of those that can't be read
_CHECK = re.compile(rb'^\{"index":-1,"type":"check","at_ns":0,"value":(\d+)\}\n', re.MULTILINE)
PARSE_BLOCK_BYTES = 8 << 20  # larger than any line: observations grow with queues and nodes


class Record(msgspec.Struct, omit_defaults=True):
    """One line of the recording. ``type``: invoke; ok, fail, info; happened, which is a whole row;
    begin and end frame the file."""

    index: int
    type: str
    at_ns: int
    process: int | None = None
    node: str | None = None
    f: str | None = None
    key: str | None = None
    value: int | None = None
    offset: int | None = None
    redelivered: bool | None = None
    error: str | None = None
    extra: str | None = None
    due_ns: int | None = None


_DECODER, _ENCODER = msgspec.json.Decoder(Record), msgspec.json.Encoder()
_WHOLE_NUMBERS = (
    *((name, 64) for name in ("index", "at_ns", "value", "offset", "due_ns")),
    ("process", 32),
)
_TYPES = ("begin", "end", CHECK, "invoke", "ok", "fail", "info", HAPPENED)
RECORD_SCHEMA = pa.schema(
    [
        ("index", pa.int64()),
        ("type", pa.string()),
        ("at_ns", pa.int64()),
        ("process", pa.int32()),
        ("node", pa.string()),
        ("f", pa.string()),
        ("key", pa.string()),
        ("value", pa.int64()),
        ("offset", pa.int64()),
        ("redelivered", pa.bool_()),
        ("error", pa.string()),
        ("extra", pa.string()),
        ("due_ns", pa.int64()),
    ]
)


class RunRecorder(Recorder, Protocol):
    """A Recorder as the flow of a run keeps it: counted, flushed, closed, and read at the end."""

    counts: dict[str, int]  # client operations by outcome
    start_wall_ns: int

    async def keep_flushed(self) -> None:
        """Keep what was recorded safe until cancelled; raises StoreError if it can't be."""
        ...

    def close(self) -> None:
        """Nothing more happened. Raises StoreError; a second call does nothing."""
        ...

    def history(self, events: pa.Table = EMPTY_EVENTS) -> History:
        """What was recorded, one row an operation. ``complete`` if it was closed."""
        ...


def loop_clock_ns() -> Callable[[], int]:
    """The running event loop's clock: the same for timers and records, also where it is virtual."""
    loop_time = asyncio.get_running_loop().time
    return lambda: round(loop_time() * 1e9)


def record_to_file(path: Path) -> RunRecorder:
    """A recorder on the running loop's clock that survives the harness."""
    return HistoryWriter(path, clock_ns=loop_clock_ns())


class HistoryWriter:
    """The Recorder of a real run: JSON lines in an append-only file.

    ``invoke`` and ``complete`` only fill a buffer; ``keep_flushed`` (a task beside the run) hands
    it to the operating system every 100 ms, after which a kill -9 of the harness can't lose it.
    When the disk is full the bytes stay in the buffer and StoreError is raised by ``keep_flushed``
    or ``close``, so that the run stops from one place and the healing of faults is never
    interrupted by its own recording.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        wall_ns: Callable[[], int] = time.time_ns,
        write: Callable[[int, bytes], int] = os.write,
    ) -> None:
        self.path = path
        self.counts: dict[str, int] = {"ok": 0, "fail": 0, "info": 0}  # client operations only
        self._write = write
        self._clock_ns = clock_ns
        self._encode_into = msgspec.json.Encoder().encode_into
        self._buffer = bytearray()
        self._checked = 0  # bytes of the buffer that a check stands behind
        self._next_index = 0
        self._closed = False
        self._nemesis_indexes: set[int] = set()
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_EXCL, 0o644)
        except OSError as error:
            raise StoreError(f"cannot record the history in {path}: {error.strerror}") from error
        self._origin_ns = clock_ns()
        self._last_ns = -1
        self.start_wall_ns = wall_ns()
        began = {"wall_ns": self.start_wall_ns, "monotonic_ns": self._origin_ns}
        self._append(Record(-1, "begin", 0, extra=_json_text(began)))

    def now_ns(self) -> int:
        return self._clock_ns() - self._origin_ns

    def _stamp_ns(self) -> int:
        """Now, and after all that was recorded before: equal times would hide the order."""
        self._last_ns = max(self._clock_ns() - self._origin_ns, self._last_ns + 1)
        return self._last_ns

    def invoke(
        self, process: int, node: str, invocation: Invocation, due_ns: int | None = None
    ) -> int:
        index = self._next_index
        self._next_index = index + 1
        if process == NEMESIS:
            self._nemesis_indexes.add(index)
        self._append(
            Record(
                index,
                "invoke",
                self._stamp_ns(),
                process,
                node,
                invocation.f,
                invocation.key,
                invocation.value,
                extra=_json_text(invocation.extra),
                due_ns=due_ns,
            )
        )
        return index

    def complete(self, index: int, completion: Completion) -> None:
        if index in self._nemesis_indexes:
            self._nemesis_indexes.remove(index)
        else:
            self.counts[completion.type] += 1
        self._append(_ended(completion, index, self._stamp_ns()))

    def happened(self, process: int, node: str, f: str, completion: Completion) -> None:
        index = self._next_index
        self._next_index = index + 1
        self.counts["ok"] += process != NEMESIS
        row = _ended(completion, index, self._stamp_ns())
        row.type, row.process, row.node, row.f = HAPPENED, process, node, f
        row.key = completion.key or ""
        self._append(row)

    def flush(self) -> None:
        """Hand what was recorded to the operating system; raises StoreError if it won't take it."""
        if len(self._buffer) > self._checked:
            crc = zlib.crc32(memoryview(self._buffer)[self._checked :])
            self._append(Record(-1, CHECK, 0, value=crc))
            self._checked = len(self._buffer)
        try:
            while self._buffer:
                written = self._write(self._file, bytes(self._buffer))
                del self._buffer[:written]
                self._checked -= written
        except OSError as error:
            raise StoreError(
                f"cannot record the history in {self.path}: {error.strerror};"
                " what was recorded before is kept: free some space and run it again"
            ) from error

    async def keep_flushed(self) -> None:
        """Flush every 100 ms until cancelled."""
        while True:
            self.flush()
            await asyncio.sleep(FLUSH_INTERVAL_S)

    def close(self) -> None:
        """Write the end mark, flush, and make it durable. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._append(Record(-1, "end", self._stamp_ns()))
        try:
            self.flush()
            os.fsync(self._file)
        except OSError as error:
            raise StoreError(f"cannot record the history in {self.path}: {error}") from error
        finally:
            os.close(self._file)

    def history(self, events: pa.Table = EMPTY_EVENTS) -> History:
        recorded = recover(self.path)
        return dataclasses.replace(recorded, events=events)

    def _append(self, record: Record) -> None:
        buffer = self._buffer
        self._encode_into(record, buffer, -1)
        buffer += b"\n"


def recover(path: Path) -> History:
    """Read a recording, also one whose harness was killed while it wrote.

    A torn last line is dropped, and so is a damaged one, of which ``damage`` tells. ``complete`` is
    true only if the end mark was reached.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read the recording {path}: {error.strerror}") from error
    whole = data[: data.rfind(b"\n") + 1]
    records, unreadable = _parse_records(whole) if whole else (RECORD_SCHEMA.empty_table(), ())
    complete = len(whole) == len(data) and bool(
        pc.any(pc.equal(records["type"], "end"), min_count=0).as_py()
    )
    ops, odd = _pair(records)
    damage = [f"line {number} of {path.name} can't be read" for number in unreadable[:LINES_TOLD]]
    if len(unreadable) > LINES_TOLD:
        damage.append(f"{len(unreadable) - LINES_TOLD} more lines of {path.name} can't be read")
    if odd:
        damage.append(f"{odd} lines of {path.name} are no part of a history")
    damage += _changed_parts(whole, complete, path.name)
    return History(ops=ops, events=EMPTY_EVENTS, complete=complete, damage=tuple(damage))


def _ended(completion: Completion, index: int, at_ns: int) -> Record:
    return Record(
        index,
        completion.type,
        at_ns,
        key=completion.key,
        value=completion.value,
        offset=completion.offset,
        redelivered=completion.redelivered,
        error=completion.error,
        extra=_json_text(completion.extra),
    )


def _json_text(extra: Mapping[str, object] | None) -> str | None:
    return None if extra is None else msgspec.json.encode(extra).decode()


def _changed_parts(whole: bytes, complete: bool, name: str) -> list[str]:
    """What is not as it was written, by the checks that stand behind each part. A recording
    without checks, of before, tells nothing."""
    begin, wrong = 0, 0
    for check in _CHECK.finditer(whole):
        wrong += zlib.crc32(memoryview(whole)[begin : check.start()]) != int(check[1])
        begin = check.end()
    if not begin:
        return []
    wrong += complete and begin < len(whole)
    return [f"{wrong} parts of {name} are not as they were written"] if wrong else []


def _parse_records(whole: bytes) -> tuple[pa.Table, Sequence[int]]:
    """What can be read, and the numbers of the lines that can't."""
    try:
        return _parse_lines(whole), ()
    except (pa.ArrowException, UnicodeDecodeError):
        pass
    # Damage inside the file (not our own torn tail): each line for itself.
    good, bad = [], []
    for number, line in enumerate(whole.split(b"\n")[:-1], start=1):
        try:
            told = _DECODER.decode(line)
            if not all(_fits(getattr(told, name), kind) for name, kind in _WHOLE_NUMBERS):
                raise msgspec.ValidationError
            good.append(_ENCODER.encode(told) + b"\n")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            bad.append(number)
    return (_parse_lines(b"".join(good)) if good else RECORD_SCHEMA.empty_table()), bad


def _fits(value: int | None, bits: int) -> bool:
    return value is None or -(1 << bits - 1) <= value < 1 << bits - 1


def _parse_lines(lines: bytes) -> pa.Table:
    options = pa.json.ParseOptions(
        explicit_schema=RECORD_SCHEMA, unexpected_field_behavior="ignore"
    )
    blocks = pa.json.ReadOptions(block_size=PARSE_BLOCK_BYTES)
    table = pa.json.read_json(pa.BufferReader(lines), read_options=blocks, parse_options=options)
    return table.select(RECORD_SCHEMA.names)


def _pair(records: pa.Table) -> tuple[pa.Table, int]:
    """Join completions to invocations, column by column: no Python object is made for a row. And
    how many lines fit nowhere, as after damage; then the others are numbered anew."""
    lines = records.num_rows
    is_whole = pc.and_(pc.is_valid(records["index"]), pc.is_valid(records["at_ns"]))
    records = records.filter(
        pc.and_(is_whole, pc.is_in(records["type"], value_set=pa.array(_TYPES)))
    )
    odd = lines - records.num_rows
    kind = records["type"]
    begun = pc.is_in(kind, value_set=pa.array(["invoke", HAPPENED]))
    named = pc.and_(pc.is_valid(records["process"]), pc.is_valid(records["f"]))
    invocations = records.filter(pc.and_(begun, pc.and_(named, pc.is_valid(records["node"]))))
    odd += int(pc.sum(begun).as_py() or 0) - invocations.num_rows
    outcomes = pa.array(["ok", "fail", "info", HAPPENED])
    completions = records.filter(pc.is_in(kind, value_set=outcomes))
    count = invocations.num_rows
    numbers, completed = invocations["index"].to_numpy(), completions["index"].to_numpy()
    if not np.array_equal(numbers, np.arange(count)):
        numbers, first = np.unique(numbers, return_index=True)
        odd += count - len(numbers)
        invocations, count = invocations.take(pa.array(first)), len(numbers)
        found = np.minimum(np.searchsorted(numbers, completed), max(0, count - 1))
        known = numbers[found] == completed if count else np.zeros(len(completed), dtype=bool)
        completed = np.where(known, found, count)
    position = np.full(count, -1, dtype=np.int64)
    known = (completed >= 0) & (completed < count)
    odd += len(completed) - int(known.sum())
    position[completed[known]] = np.flatnonzero(known)
    ends = completions.take(pa.array(position, mask=position < 0))
    types = pc.coalesce(ends["type"], "info")
    columns = {
        "index": pa.array(np.arange(count, dtype=np.int64)),
        "process": invocations["process"],
        "node": invocations["node"],
        "f": invocations["f"],
        "key": pc.coalesce(ends["key"], invocations["key"], ""),
        "value": pc.coalesce(ends["value"], invocations["value"]),
        "offset": ends["offset"],
        "type": pc.if_else(pc.equal(types, HAPPENED), "ok", types),
        "invoke_ns": invocations["at_ns"],
        "complete_ns": ends["at_ns"],
        "redelivered": ends["redelivered"],
        "error": ends["error"],
        "extra": pc.coalesce(ends["extra"], invocations["extra"]),
        "due_ns": invocations["due_ns"],
    }
    ops = pa.Table.from_arrays(
        [columns[name] for name in HISTORY_SCHEMA.names], schema=HISTORY_SCHEMA
    )
    return ops, odd
