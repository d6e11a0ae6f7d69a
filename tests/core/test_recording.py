"""The recorder: what was flushed survives anything."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from shalott.core.errors import StoreError
from shalott.core.history import HISTORY_SCHEMA, events_table, read_history, write_history
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.op import Completion, Invocation
from shalott.core.recording import HistoryWriter, recover
from shalott.core.sums import sums_text
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit


class Ticks:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.ns = 1000

    def __call__(self) -> int:
        return self.ns


def record_three(writer: HistoryWriter, clock: Ticks) -> None:
    first = writer.invoke(0, "n1", Invocation(f="enqueue", key="q", value=7), due_ns=-3)
    second = writer.invoke(1, "n2", Invocation(f="dequeue", key="q"))
    clock.ns += 50
    writer.complete(second, Completion(type="ok", value=7, redelivered=True))
    writer.complete(first, Completion(type="ok"))
    third = writer.invoke(-1, "", Invocation(f="kill", extra={"fault": 3}))
    assert third == 2


def test_what_happened_is_one_row_that_begins_and_ends_at_one_moment(tmp_path: Path) -> None:
    clock = Ticks()
    writer = HistoryWriter(tmp_path / "history.jsonl", clock_ns=clock)
    memory = MemoryRecorder(clock, clock)
    for recorder in (writer, memory):
        first = recorder.invoke(0, "n1", Invocation(f="enqueue", key="q", value=7))
        recorder.happened(
            3,
            "n2",
            "deliver",
            Completion(type="ok", key="q", value=7, redelivered=True, extra={"tag": 1}),
        )
        recorder.complete(first, Completion(type="ok"))
        recorder.close()
        assert recorder.counts == {"ok": 2, "fail": 0, "info": 0}
    rows = recover(tmp_path / "history.jsonl").ops.to_pylist()
    assert rows == memory.history().ops.to_pylist()
    happened = rows[1]
    assert happened["invoke_ns"] == happened["complete_ns"] == rows[0]["invoke_ns"] + 1
    assert (happened["type"], happened["process"], happened["f"]) == ("ok", 3, "deliver")
    assert (happened["value"], happened["redelivered"]) == (7, True)
    assert happened["extra"] == '{"tag":1}'


def test_pairs_invocations_with_completions(tmp_path: Path) -> None:
    clock = Ticks()
    writer = HistoryWriter(tmp_path / "history.jsonl", clock_ns=clock)
    record_three(writer, clock)
    writer.close()
    history = recover(tmp_path / "history.jsonl")
    assert history.complete
    assert history.ops.schema.equals(HISTORY_SCHEMA)
    rows = history.ops.to_pylist()
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert rows[0]["type"] == "ok" and rows[0]["value"] == 7 and rows[0]["complete_ns"] == 51
    assert rows[1]["value"] == 7 and rows[1]["redelivered"] is True and rows[1]["node"] == "n2"
    assert [row["due_ns"] for row in rows] == [-3, None, None]
    # An operation that never completed: nobody knows, and no completion time.
    assert rows[2]["type"] == "info" and rows[2]["complete_ns"] is None
    assert rows[2]["extra"] == '{"fault":3}' and rows[2]["process"] == -1
    assert writer.counts == {"ok": 2, "fail": 0, "info": 0}


def test_what_happens_at_one_moment_of_the_clock_keeps_its_order(tmp_path: Path) -> None:
    """A process completes before it begins the next operation, whatever the clock can resolve."""
    clock = Ticks()
    for recorder in (
        HistoryWriter(tmp_path / "history.jsonl", clock_ns=clock),
        MemoryRecorder(clock, lambda: 0),
    ):
        for _ in range(3):
            index = recorder.invoke(0, "n1", Invocation(f="enqueue", key="q", value=1))
            recorder.complete(index, Completion(type="ok"))
        recorder.close()
        if isinstance(recorder, MemoryRecorder):
            ops = recorder.history().ops
        else:
            ops = recover(tmp_path / "history.jsonl").ops
        rows = ops.to_pylist()
        times = [ns for row in rows for ns in (row["invoke_ns"], row["complete_ns"])]
        assert times == list(range(6))


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_dropped(tmp_path: Path, cut: int) -> None:
    clock = Ticks()
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path, clock_ns=clock)
    record_three(writer, clock)
    writer.flush()
    whole = path.read_bytes()
    check = whole.rindex(b'{"index":-1,"type":"check"')  # a write may be torn before it, too
    path.write_bytes(whole[: check - cut])
    history = recover(path)
    assert not history.complete and history.damage == ()
    assert history.ops.num_rows == 2  # the third invocation was torn
    writer.close()


def test_damage_in_the_middle_is_told_and_what_is_behind_it_is_read(tmp_path: Path) -> None:
    clock = Ticks()
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path, clock_ns=clock)
    record_three(writer, clock)
    writer.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[3] = b'\x00\x00"{garbage\n'
    path.write_bytes(b"".join(lines))
    history = recover(path)
    assert history.complete
    assert history.damage[0] == "line 4 of history.jsonl can't be read"
    assert "1 parts of history.jsonl are not as they were written" in history.damage
    assert history.ops["f"].to_pylist() == ["enqueue", "dequeue", "kill"]
    assert history.ops["type"].to_pylist() == ["ok", "info", "info"]


def recorded(tmp_path: Path, count: int = 400) -> bytes:
    clock = Ticks()
    path = tmp_path / "whole.jsonl"
    writer = HistoryWriter(path, clock_ns=clock)
    for number in range(count):
        clock.ns += 1000
        index = writer.invoke(0, "n1", Invocation(f="enqueue", key="q", value=number))
        writer.complete(index, Completion(type="ok"))
        if number % 50 == 0:
            writer.flush()
    writer.close()
    return path.read_bytes()


def test_a_number_that_fits_nowhere_is_damage_and_no_traceback(tmp_path: Path) -> None:
    whole = recorded(tmp_path)
    path = tmp_path / "history.jsonl"
    for name in (b"value", b"index", b"at_ns", b"process"):
        torn = whole[: whole.rindex(b'"type":"check"')]  # a killed harness's
        at = torn.index(b'"' + name + b'":', len(torn) // 2) + len(name) + 3
        path.write_bytes(torn[:at] + b"1180591620717411303424" + torn[at + 1 :])
        history = recover(path)
        assert history.damage and history.ops.num_rows >= 399, name
        assert history.ops["index"].to_pylist() == list(range(history.ops.num_rows))


def test_an_invocation_that_is_gone_takes_no_other_ones_completion(tmp_path: Path) -> None:
    lines = recorded(tmp_path).splitlines(keepends=True)
    path = tmp_path / "history.jsonl"
    gone = next(n for n, line in enumerate(lines) if b'"value":7,' in line or b'"value":7}' in line)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    history = recover(path)
    assert history.damage and history.ops.num_rows == 399
    assert set(history.ops["type"].to_pylist()) == {"ok"}


@pytest.mark.explore
def test_no_flipped_bit_of_a_recording_is_read_as_another_history(tmp_path: Path) -> None:
    whole = recorded(tmp_path)
    path = tmp_path / "history.jsonl"
    path.write_bytes(whole)
    first = recover(path)
    assert first.complete and first.damage == ()
    draw = random.Random(1)
    for _ in range(300):
        at, bit = draw.randrange(len(whole)), draw.randrange(8)
        changed = bytearray(whole)
        changed[at] ^= 1 << bit
        path.write_bytes(changed)
        history = recover(path)
        assert history.damage or not history.complete, (at, bit, whole[at - 40 : at + 40])


def test_no_flipped_bit_of_a_stored_history_is_read_as_another(tmp_path: Path) -> None:
    path = tmp_path / "history.parquet"
    (tmp_path / "history.jsonl").write_bytes(recorded(tmp_path))
    write_history(recover(tmp_path / "history.jsonl").ops, path)
    whole = path.read_bytes()
    (tmp_path / "SHA256SUMS").write_text(sums_text(tmp_path, ["history.parquet"]))
    read_history(path)
    draw = random.Random(2)
    for _ in range(300):
        changed = bytearray(whole)
        changed[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(StoreError, match="is damaged, or was changed"):
            read_history(path)


def test_an_empty_recording_is_an_empty_history(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"")
    history = recover(path)
    assert history.ops.num_rows == 0 and not history.complete
    assert history.ops.schema.equals(HISTORY_SCHEMA)


@pytest.mark.explore
def test_survives_kill_9_to_the_last_flush(tmp_path: Path) -> None:
    """A child records and is killed; what it had flushed is all there."""
    path = tmp_path / "history.jsonl"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    with child.stdout:
        recorded = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    child.wait()
    history = recover(path)
    assert not history.complete
    assert history.ops.num_rows >= recorded


CHILD = """
import asyncio, pathlib, sys
from shalott.core.op import Completion, Invocation
from shalott.core.recording import HistoryWriter

async def main():
    writer = HistoryWriter(pathlib.Path(sys.argv[1]))
    flusher = asyncio.create_task(writer.keep_flushed())
    for value in range(1000):
        index = writer.invoke(0, "n1", Invocation(f="enqueue", value=value))
        writer.complete(index, Completion(type="ok"))
    started = writer.now_ns()
    while writer.path.read_bytes().count(b"invoke") < 1000:
        await asyncio.sleep(0.01)
    assert writer.now_ns() - started < 250_000_000
    print(1000, flush=True)
    while True:
        index = writer.invoke(0, "n1", Invocation(f="enqueue", value=1))
        writer.complete(index, Completion(type="ok"))
        await turns()

asyncio.run(main())
"""


class FullDisk:
    """Takes ``room`` bytes, then answers ENOSPC until ``room`` grows."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __call__(self, file: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = os.write(file, data[: self.room])
        self.room -= taken
        return taken


def test_a_full_disk_stops_the_flusher_with_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    disk = FullDisk(room=1500)
    writer = HistoryWriter(path, write=disk)

    async def fill() -> None:
        flusher = asyncio.create_task(writer.keep_flushed())
        while not flusher.done():
            index = writer.invoke(0, "n1", Invocation(f="enqueue", value=1))
            writer.complete(index, Completion(type="ok"))
            await turns()
        await flusher

    with pytest.raises(StoreError, match="No space left on device.*free some space"):
        asyncio.run(fill())
    readable = recover(path)
    assert not readable.complete and readable.ops.num_rows > 3
    with pytest.raises(StoreError):
        writer.close()
    assert recover(path).ops.num_rows == readable.ops.num_rows


def test_recording_goes_on_where_it_stopped_when_there_is_room_again(tmp_path: Path) -> None:
    disk = FullDisk(room=100)
    writer = HistoryWriter(tmp_path / "history.jsonl", write=disk)
    writer.invoke(0, "n1", Invocation(f="enqueue", value=1))
    with pytest.raises(StoreError):
        writer.flush()
    writer.invoke(0, "n1", Invocation(f="enqueue", value=2))
    disk.room = 10_000
    writer.close()
    history = recover(tmp_path / "history.jsonl")
    assert history.complete and history.ops["value"].to_pylist() == [1, 2]


def test_an_unwritable_place_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot record the history in"):
        HistoryWriter(tmp_path / "missing" / "history.jsonl")


def test_parquet_round_trip_and_encodings(tmp_path: Path) -> None:
    clock = Ticks()
    writer = HistoryWriter(tmp_path / "history.jsonl", clock_ns=clock)
    record_three(writer, clock)
    writer.close()
    history = recover(tmp_path / "history.jsonl")
    path = tmp_path / "history.parquet"
    write_history(history.ops, path)
    assert read_history(path).ops.equals(history.ops)
    with pq.ParquetFile(path) as file:
        columns = [file.metadata.row_group(0).column(n) for n in range(len(HISTORY_SCHEMA))]
    by_name = {column.path_in_schema: column for column in columns}
    assert "DELTA_BINARY_PACKED" in by_name["invoke_ns"].encodings
    assert by_name["f"].has_dictionary_page
    assert {column.compression for column in columns} == {"ZSTD"}


def test_events_are_sorted_and_their_detail_is_text() -> None:
    common = {"wall_ns": 1, "incarnation": 1, "group": "q", "kind": "role", "role": "", "epoch": 1}
    table = events_table(
        [
            {"at_ns": 2, "run_ns": 20, "node": "n1", "detail": {"a": 1}, **common},
            {"at_ns": 1, "run_ns": 10, "node": "n2", "detail": None, **common},
        ]
    )
    assert table["run_ns"].to_pylist() == [10, 20]
    assert table["detail"].to_pylist() == [None, '{"a":1}']


@pytest.mark.explore
def test_pairs_a_hundred_thousand_operations(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    writer = HistoryWriter(path)
    for value in range(100_000):
        index = writer.invoke(value % 8, "n1", Invocation(f="enqueue", key="q", value=value))
        writer.complete(index, Completion(type="ok"))
    writer.close()
    history = recover(path)
    assert history.ops.num_rows == 100_000
    assert history.ops["complete_ns"].null_count == 0
