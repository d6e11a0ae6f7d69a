"""Histories written as EDN: what stands in a line, and that reading gives the same history."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory, Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn_export import NemesisEntry, edn_lines
from tests.checkers.random_histories import MODELS, mutated
from tests.checkers.random_histories import random_history as history_of
from tests.checkers.reading.written import as_jepsen_has_it, is_whole, seen

pytestmark = pytest.mark.unit


def timed(history: ConcurrentHistory, step_ns: int = 10) -> ConcurrentHistory:
    """With clock times: a rank's is its number of steps."""
    return replace(
        history,
        call_ns=history.call.astype(np.int64) * step_ns,
        ret_ns=np.where(history.ret == NEVER, -1, history.ret.astype(np.int64) * step_ns),
    )


def test_a_client_that_goes_on_after_a_crash_stays_the_owner(tmp_path: Path) -> None:
    """It is written as another process, which could not release what the first one holds."""
    history = from_rows(
        [Row(0, "acquire", None, None, 0, None), Row(0, "release", None, None, 1, 2)]
    )
    text = "".join(edn_lines(history))
    assert ":process 1, :client 0, :type :ok, :f :release" in text
    for content, valid in ((text, True), (text.replace(", :client 0", ""), False)):
        (tmp_path / "lock.edn").write_text(content)
        assert check(read_history(tmp_path / "lock.edn"), "owner-lock").valid is valid


def test_an_entry_a_line() -> None:
    history = timed(
        from_rows(
            [
                Row(0, "enqueue", 5, 5, 0, 2),
                Row(1, "dequeue", None, None, 1, 3),
                Row(2, "cas", (1, 2), (1, 2), 4, 6, "fail"),
                Row(3, "read", None, 'a "b"', 5, 7),
                Row(4, "write", 9, None, 8, None),
            ]
        )
    )
    told = replace(history, ret_ns=np.array([20, 30, 60, 70, 95]))
    nemesis = [NemesisEntry(35, "partition", "n1"), NemesisEntry(500, "partition")]
    assert (
        "".join(edn_lines(told, nemesis=nemesis))
        == """\
{:index 0, :process 0, :type :invoke, :f :enqueue, :value 5, :time 0}
{:index 1, :process 1, :type :invoke, :f :dequeue, :value nil, :time 10}
{:index 2, :process 0, :type :ok, :f :enqueue, :value 5, :time 20}
{:index 3, :process 1, :type :fail, :f :dequeue, :value nil, :time 30, :error :empty}
{:index 4, :process :nemesis, :type :info, :f :partition, :value "n1", :time 35}
{:index 5, :process 2, :type :invoke, :f :cas, :value [1 2], :time 40}
{:index 6, :process 3, :type :invoke, :f :read, :value nil, :time 50}
{:index 7, :process 2, :type :fail, :f :cas, :value [1 2], :time 60}
{:index 8, :process 3, :type :ok, :f :read, :value "a \\"b\\"", :time 70}
{:index 9, :process 4, :type :invoke, :f :write, :value 9, :time 80}
{:index 10, :process 4, :type :info, :f :write, :value 9, :time 95}
{:index 11, :process :nemesis, :type :info, :f :partition, :value nil, :time 500}
"""
    )
    without_answer = "".join(edn_lines(history)).splitlines()
    assert without_answer[-1].startswith("{:index 8, :process 4, :type :invoke")


def test_keys_are_tuples_if_there_are_several() -> None:
    rows = [Row(0, "read", None, 1, 0, 1, key="a"), Row(0, "read", None, 2, 2, 3, key="b")]
    first, *lines = edn_lines(from_rows(rows))
    assert first == "; values are [key value]\n"
    assert [line.partition(":value ")[2] for line in lines] == [
        '["a" nil]}\n', '["a" 1]}\n', '["b" nil]}\n', '["b" 2]}\n'
    ]  # fmt: skip
    assert [line.partition(":value ")[2] for line in edn_lines(from_rows(rows), keyed=False)] == [
        'nil, :key "a"}\n', '1, :key "a"}\n', 'nil, :key "b"}\n', '2, :key "b"}\n'
    ]  # fmt: skip
    assert '[""' not in "".join(edn_lines(from_rows([Row(0, "read", None, 1, 0, 1)])))


def test_an_f_that_is_no_keyword_is_a_string() -> None:
    lines = list(edn_lines(from_rows([Row(0, "set value", 1, 1, 0, 1)])))
    assert ':f "set value"' in lines[0]


def test_operations_of_one_process_that_overlap_get_processes_of_their_own(tmp_path: Path) -> None:
    """Equal clock times put an invocation before the completion that it followed."""
    history = from_rows(
        [
            Row(3, "write", 1, 1, 0, 2),
            Row(3, "write", 2, 2, 1, 4),
            Row(3, "write", 3, 3, 3, 5),
            Row(1, "write", 4, 4, 6, 7),
        ]
    )
    path = tmp_path / "h.edn"
    path.write_text("".join(edn_lines(history)))
    back = seen(read_history(path))
    written = [int(line.split(":process ")[1].split(",")[0]) for line in edn_lines(history)]
    assert written == [3, 4, 3, 3, 4, 3, 1, 1]
    assert back == seen(history)


def random_history(rng: random.Random) -> ConcurrentHistory:
    """Up to 30 operations by up to 5 clients; a client that crashes may go on or not."""
    clients = list(range(rng.randint(1, 5)))
    open_since: dict[int, int] = {}
    rows: list[Row] = []
    values = [None, 3, -1, "x", (1, 2), frozenset({1}), True, 2.5, ("a", None)]
    at = 0
    while len(rows) < 30 and at < 60:
        client = rng.choice(clients)
        if client not in open_since:
            open_since[client] = at
        else:
            call = open_since.pop(client)
            kind = rng.choice(["ok", "ok", "ok", "fail", "info"])
            f = rng.choice(["write", "dequeue", "x/y-z"])
            result = None if kind == "info" else rng.choice(values)
            key = rng.choice(["q1", "q 2"])
            ret = at if kind != "info" else None
            rows.append(Row(client, f, rng.choice(values), result, call, ret, kind, key))
        at += 1
    for client, call in open_since.items():
        rows.append(Row(client, "write", 1, None, call, None, "info", "q1"))
    return from_rows(rows)


def assert_as_knossos_wants_it(text: str) -> None:
    """What knossos.history/complete asserts: one operation at a time, none after a crash, and what
    failed has the value that it was invoked with."""
    open_values: dict[str, str] = {}
    crashed: set[str] = set()
    for line in text.splitlines():
        if line.startswith(";"):
            continue
        process, kind, value = re.findall(
            r":process (\d+)(?:, :client \d+)?, :type :(\w+), :f \S+, (.*)}", line
        )[0]
        value = re.sub(r", :(time \d+|error :empty)", "", value)
        assert process not in crashed
        if kind == "invoke":
            assert process not in open_values
            open_values[process] = value
            continue
        invoked = open_values.pop(process)
        if kind == "info":
            crashed.add(process)
        assert kind != "fail" or value == invoked, line


def test_a_completion_has_the_value_of_its_invocation_unless_it_found_something_out() -> None:
    rows = [
        Row(0, "write", 7, None, 0, 1),
        Row(0, "cas", (1, 2), None, 2, 3),
        Row(0, "write", 8, "timed-out", 4, 5, "fail"),
        Row(0, "read", None, None, 6, 7),
        Row(0, "append", 9, None, 8, 9),  # a log's: nobody knows the offset
        Row(0, "poll", 4, None, 10, 11),  # a log's: nothing there yet
        Row(0, "remove", 5, None, 12, 13),  # from a set
        Row(0, "remove", None, None, 14, 15),  # from a queue
    ]
    ends = [line for line in edn_lines(from_rows(rows)) if ":invoke" not in line]
    told = [line.partition(":type ")[2].rstrip("}\n") for line in ends]
    assert told == [
        ":ok, :f :write, :value 7",
        ":ok, :f :cas, :value [1 2]",
        ":fail, :f :write, :value 8",
        ":ok, :f :read, :value nil",
        ":ok, :f :append, :value nil",
        ":ok, :f :poll, :value nil",
        ":ok, :f :remove, :value 5",
        ":fail, :f :remove, :value nil, :error :empty",
    ]


def test_after_a_crash_a_client_goes_on_as_another_process() -> None:
    rows = [
        Row(1, "write", 1, None, 0, None, "info"),
        Row(1, "write", 2, None, 1, 2),
        Row(1, "write", 3, None, 3, None, "info"),
        Row(1, "write", 4, None, 4, 5),
        Row(2, "write", 5, None, 6, 7),
    ]
    for history in (from_rows(rows), timed(from_rows(rows))):
        text = "".join(edn_lines(history))
        assert_as_knossos_wants_it(text)
        calls = [line for line in text.splitlines() if ":invoke" in line]
        assert [":client 1" in line for line in calls] == [False, True, True, True, False]
        assert [int(re.findall(r":process (\d+)", line)[0]) for line in calls] == [1, 3, 3, 4, 2]


@pytest.mark.explore
@pytest.mark.parametrize("seed", range(150))
def test_reading_gives_the_history_that_was_written(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    history = random_history(rng)
    if rng.random() < 0.5:
        history = timed(history)
        assert history.call_ns is not None and history.ret_ns is not None
        if rng.random() < 0.5:  # what crashed was told to have
            told = np.where(history.ret_ns < 0, history.call_ns + 1, history.ret_ns)
            history = replace(history, ret_ns=told)
    path = tmp_path / "h.edn"
    path.write_text("".join(edn_lines(history, keyed=rng.choice([True, False]))))
    back = read_history(path)
    assert is_whole(back)
    assert back.notes == ()
    assert seen(back) == seen(as_jepsen_has_it(history))
    assert_as_knossos_wants_it(path.read_text())
    if history.call_ns is not None and len(history):
        assert back.call_ns is not None and (back.call_ns == history.call_ns).all()


def keyed_rows(model: str, rng: random.Random) -> list[Row]:
    """Some objects of a model, whose clients go on after a crash."""
    rows = []
    for key in range(rng.choice([1, 2, 3])):
        part = history_of(model, rng, operations=8, processes=3)
        part = mutated(part, rng) if rng.random() < 0.3 else part
        rows += [
            row._replace(
                key=f"queue {key}",
                process=row.process % 3,
                call=row.call * 3 + key,
                ret=None if row.ret is None else row.ret * 3 + key,
            )
            for row in part
        ]
    return rows


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_exported_has_the_verdict_that_it_had(
    model: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{model} {seed}")
    history = from_rows(keyed_rows(model, rng))
    history = timed(history) if rng.random() < 0.5 else history
    path = tmp_path / "h.edn"
    path.write_text("".join(edn_lines(history)))
    back = read_history(path)
    assert [row[0] for row in seen(back)] == [row[0] for row in seen(history)]
    assert check(back, model).valid is check(history, model).valid


def test_a_lock_whose_release_was_tried_again_stays_valid(tmp_path: Path) -> None:
    """The client that tries again is the owner, though Knossos must see another process."""
    rows = [
        Row(1, "acquire", None, None, 0, 1, key="a"),
        Row(1, "release", None, None, 2, None, "info", key="a"),
        Row(1, "release", None, None, 3, 4, key="a"),
        Row(2, "acquire", None, None, 5, 6, key="a"),
        Row(2, "acquire", None, None, 7, 8, key="b"),
    ]
    path = tmp_path / "locks.edn"
    path.write_text("".join(edn_lines(from_rows(rows))))
    assert check(from_rows(rows), "owner-lock").valid is True
    assert check(read_history(path), "owner-lock").valid is True
