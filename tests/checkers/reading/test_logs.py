"""Logs, recordings and key-value histories: what is read, and what is said of a malformed one."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.checkers.history.concurrent import ConcurrentHistory
from shalott.checkers.reading import read_history
from shalott.core.errors import UnreadableHistory
from shalott.core.op import Completion, Invocation
from shalott.core.recording import HistoryWriter
from tests.checkers.reading.written import is_whole, read_text, seen

pytestmark = pytest.mark.unit


def read(directory: Path, text: str, **how: object) -> ConcurrentHistory:
    history = read_text(directory, text, "history.log", **how)
    assert isinstance(history, ConcurrentHistory)
    assert is_whole(history)
    return history


def complaint(directory: Path, text: str, **how: object) -> str:
    with pytest.raises(UnreadableHistory) as caught:
        read(directory, text, **how)
    return str(caught.value).replace(f"{directory}/", "")


# --- Jepsen's log, as Porcupine keeps it ----------------------------------------------------------

ETCD = """\
INFO  jepsen.util - 0\t:invoke\t:read\tnil
INFO  jepsen.util - 1\t:invoke\t:cas\t[1 2]
INFO  jepsen.util - 0\t:ok\t:read\tnil
INFO  jepsen.util - :nemesis\t:info\t:start\tnil
INFO  jepsen.util - 1\t:fail\t:cas\t[1 2]
INFO  jepsen.util - 0\t:invoke\t:write\t4
INFO  jepsen.util - 0\t:info\t:write\t:timed-out
INFO  jepsen.util - 1\t:invoke\t:read\tnil
INFO  jepsen.util - 1\t:fail\t:read\t:timed-out
INFO  jepsen.util - 5\t:invoke\t:read\tnil
INFO  jepsen.util - 5\t:ok\t:read\t4
"""
ETCD_SEEN = [
    (0, "read", None, None, "ok", 0, 2, ""),
    (1, "cas", (1, 2), (1, 2), "fail", 1, 3, ""),
    (0, "write", 4, None, "info", 4, None, ""),
    (1, "read", None, "timed-out", "fail", 5, 6, ""),
    (5, "read", None, 4, "ok", 7, 8, ""),
]


# Four entries on one line, with clock times.
TIMED = (
    "{:process 0, :type :invoke, :f :write, :value 1, :time 10}"
    " {:process 1, :type :invoke, :f :read, :value nil, :time 20}"
    " {:process 0, :type :ok, :f :write, :value 1, :time 30}"
    " {:process 1, :type :ok, :f :read, :value 1, :time 40}\n"
)


def test_a_jepsen_log(tmp_path: Path) -> None:
    history = read(tmp_path, ETCD)
    assert seen(history) == ETCD_SEEN
    assert (history.dialect, history.notes) == ("porcupine-etcd", ())
    assert history.place.tolist() == [1, 2, 6, 8, 10]


def test_the_logger_may_stand_elsewhere_in_each_line_and_is_the_first_one(tmp_path: Path) -> None:
    lines = ETCD.splitlines(keepends=True)
    lines[1] = lines[1].removeprefix("INFO  ")
    lines[3] = "2026-11-22 01:02" + lines[3]  # where the line after the next has its second
    lines[4] = lines[4].removeprefix("INFO  jepsen.util - ")
    history = read(tmp_path, "".join(lines))
    assert [row[:2] for row in seen(history)] == [row[:2] for row in ETCD_SEEN]
    assert history.notes == ()
    lines[5:5] = ["jepsen.util - 9 INFO  jepsen.util - 1 :invoke :read nil\n"]
    with pytest.raises(UnreadableHistory, match="line 6, column 1: the line has parts of an oper"):
        read(tmp_path, "".join(lines))


@pytest.mark.parametrize("few", [0, 1 << 20])
def test_few_rows_are_copied_and_many_owned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("shalott.checkers.reading.text_history.FEW", few)
    history = read(tmp_path, ETCD)
    assert seen(history) == ETCD_SEEN
    assert history.place.tolist() == [1, 2, 6, 8, 10]
    timed = read(tmp_path, TIMED)
    assert seen(timed) == [(0, "write", 1, 1, "ok", 0, 2, ""), (1, "read", None, 1, "ok", 1, 3, "")]
    assert timed.call_ns is not None
    assert timed.ret_ns is not None
    assert (timed.call_ns.tolist(), timed.ret_ns.tolist()) == ([10, 20], [30, 40])
    assert (timed.place_name, timed.place.tolist()) == ("index", [0, 1])


def test_lines_that_are_no_operations_are_passed_over_and_told(tmp_path: Path) -> None:
    noise = "INFO  jepsen.core - Running test\n\n\tat jepsen.core$run(core.clj:1)\n"
    history = read(tmp_path, noise + ETCD.replace("INFO  jepsen.util - ", ""))
    assert seen(history) == ETCD_SEEN
    assert history.notes == ("2 lines are not about operations and were passed over",)


def test_a_last_line_without_an_end_may_be_cut(tmp_path: Path) -> None:
    history = read(tmp_path, ETCD[:-1])
    assert seen(history)[-1] == (5, "read", None, None, "info", 7, None, "")
    assert history.notes == (
        "the file is cut off at line 11: it was read up to the last whole entry",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0\t:invoke\t:read\tnil\n0\t:okay\t:read\t1\n",
         "line 2, column 3: a type is :invoke, :ok, :fail or :info, not :okay"),
        ("0\t:invoke\t:read\tnil\n0\t:ok\n", "line 2, column 6: an operation without an f"),
        ("0\t:invoke\t:read\tnil\n0\t:ok\tread\n", "line 2, column 7: an f is a word, not read"),
        ("0\t:invoke\t:cas\t[1 2\n", "line 1, column 20: the line ends within an operation"),
        ("0\t:invoke\t:cas\t[1 2}\n",
         "line 1, column 20: a bracket is closed by one of another kind"),
        ("0\t:invoke\t:read\tnil\n1\t:ok\t:read\t1\n",
         "line 2, column 1: process 1 completes an operation, but has none open"),
    ],
)  # fmt: skip
def test_a_malformed_jepsen_log(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text) == f"history.log, {said}"


# --- Porcupine's key-value histories --------------------------------------------------------------


def test_key_value_operations(tmp_path: Path) -> None:
    text = """\
{:process 0, :type :invoke, :f :append, :key "0", :value "x 0 0 y"}
{:process 1, :type :invoke, :f :get, :key "1", :value nil}
{:process 0, :type :ok, :f :append, :key "0", :value "x 0 0 y"}
{:process 1, :type :ok, :f :get, :key "1", :value ""}
"""
    history = read(tmp_path, text)
    assert history.dialect == "porcupine-kv"
    assert history.key.names == ("0", "1")
    assert seen(history) == [
        (0, "append", "x 0 0 y", "x 0 0 y", "ok", 0, 2, "0"),
        (1, "get", None, "", "ok", 1, 3, "1"),
    ]
    assert complaint(
        tmp_path, text.replace(':ok, :f :get, :key "1"', ':ok, :f :get, :key "2"')
    ) == (
        'history.log, line 4, column 1: process 1 completes an operation on key "2", but what it'
        " invoked in line 2 is on another"
    )


# --- Violin ---------------------------------------------------------------------------------------

VIOLIN = """\
# @object atomic-queue
[1] call add(7)
[2] call remove
[1] return
[3] call add(8)
[2] return 7
[4] call remove
[4] return empty
[5] call remove
"""


def test_a_violin_log(tmp_path: Path) -> None:
    history = read(tmp_path, VIOLIN)
    assert history.dialect == "violin"
    assert seen(history) == [
        (0, "add", 7, None, "ok", 0, 2, ""),
        (1, "remove", None, 7, "ok", 1, 4, ""),
        (0, "add", 8, None, "info", 3, None, ""),
        (1, "remove", None, None, "ok", 5, 6, ""),
        (1, "remove", None, None, "info", 7, None, ""),
    ]
    assert history.place.tolist() == [2, 3, 5, 7, 9]


def test_a_torn_violin_log(tmp_path: Path) -> None:
    history = read(tmp_path, VIOLIN + "[5] return 1")
    assert len(history) == 5
    assert history.notes == (
        "the file is cut off at line 10: it was read up to the last whole entry",
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1] call add(1)", "operation 1 is invoked again, after line 2"),
        ("[6] return", "operation 6 completes, but is not open"),
        ("[1] return", "operation 1 completes, but is not open"),
        ("[x] return", "an operation is a number in brackets, not [x]"),
        ("[6] calls add(1)", "a type is call or return, not calls"),
        ("[6] call add(1", "the line ends within an operation"),
        ("[6] call add(1 2)", "this can't stand here"),
        ("[6] call add(1) 2", "this can't stand here"),
        ("[6 call add(1)", "the line ends within an operation"),
        ("6 call add(1)", "no operation stands here"),
        ("[6] call", "an operation without an f"),
    ],
)
def test_a_malformed_violin_log(tmp_path: Path, line: str, said: str) -> None:
    found = complaint(tmp_path, VIOLIN + line + "\n")
    assert found.startswith("history.log, line 10, column ")
    assert found.partition(": ")[2] == said


# --- our own recording ----------------------------------------------------------------------------


class Clock:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.at_ns = 0

    def __call__(self) -> int:
        self.at_ns += 10
        return self.at_ns


def record(path: Path) -> HistoryWriter:
    writer = HistoryWriter(path, clock_ns=Clock(), wall_ns=lambda: 7)
    fault = writer.invoke(-1, "", Invocation(f="partition", extra={"fault": "p1"}))
    first = writer.invoke(0, "n1", Invocation(f="enqueue", key='q "1"', value=5))
    second = writer.invoke(1, "n2", Invocation(f="dequeue", key='q "1"'))
    writer.complete(first, Completion(type="ok"))
    third = writer.invoke(2, "n3", Invocation(f="dequeue", key="q2"))
    writer.complete(second, Completion(type="ok", value=5, redelivered=False))
    writer.complete(third, Completion(type="fail", error="empty"))
    writer.complete(fault, Completion(type="info"))
    fourth = writer.invoke(0, "n1", Invocation(f="enqueue", key="q2", value=6))
    writer.complete(fourth, Completion(type="info", error="no answer"))
    writer.invoke(1, "n2", Invocation(f="dequeue", key="q2"))
    return writer


RECORDED = [
    (0, "enqueue", 5, 5, "ok", 0, 2, 'q "1"'),
    (1, "dequeue", None, 5, "ok", 1, 4, 'q "1"'),
    (2, "dequeue", None, None, "ok", 3, 5, "q2"),
    (0, "enqueue", 6, None, "info", 6, None, "q2"),
    (1, "dequeue", None, None, "info", 7, None, "q2"),
]


def test_our_recording(tmp_path: Path) -> None:
    writer = record(tmp_path / "history.jsonl")
    writer.close()
    history = read(tmp_path, (tmp_path / "history.jsonl").read_text())
    assert seen(history) == RECORDED
    assert (history.dialect, history.notes) == ("shalott", ())
    assert history.place.tolist() == [3, 4, 6, 10, 12]
    assert history.call_ns is not None and history.call_ns.tolist() == [20, 30, 50, 90, 110]


def test_a_recording_that_was_cut_short(tmp_path: Path) -> None:
    writer = record(tmp_path / "history.jsonl")
    writer.flush()
    text = (tmp_path / "history.jsonl").read_text()
    writer.close()
    assert read(tmp_path, text).notes == (
        "the recording has no end mark: what came after its last flush is missing",
    )
    lines = [line for line in text.splitlines(keepends=True) if '"type":"check"' not in line]
    for cut in range(1, len(lines[-1]) - 1):
        history = read(tmp_path, "".join(lines[:-1]) + lines[-1][:cut])
        assert seen(history) == RECORDED[:-1]
        assert history.notes == (
            "the file is cut off at line 12: it was read up to the last whole entry",
        )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"index":0,"type":"ok","at_ns":9}', "operation 0 completes, but is not open"),
        ('{"index":8,"type":"ok","at_ns":9}', "operation 8 completes, but is not open"),
        ('{"index":0,"type":"invoke","at_ns":9,"process":1,"f":"read"}',
         "operation 0 is invoked again, after line 1"),
        ('{"index":1,"type":"invoked","at_ns":9}',
         "a type is invoke, ok, fail or info, not invoked"),
        ('{"index":1,"type":"invoke","at_ns":9,"f":"read"}', "an operation without a process"),
        ('{"index":1,"type":"invoke","at_ns":9,"process":1}', "an operation without an f"),
        ('{"type":"ok","at_ns":9}', "an operation without an index"),
        ('{"index":1,"at_ns":9}', "an operation without a type"),
        ('{"index":1,"type":"ok"}', "an operation without a time"),
        ('{"index":1,"type":"ok","at_ns":9,"value":x}', "this can't stand here"),
        ('{"index":1,"type":"ok"', "the line ends within an operation"),
        ('{"index":1 "type":"ok"}', "this can't stand here"),
        ('{"index":1,"type":"ok","extra":{"a":[1,2}]}',
         "a bracket is closed by one of another kind"),
        ("nonsense", "this can't stand here"),
        ("{} x", "this can't stand here"),
    ],
)  # fmt: skip
def test_a_malformed_recording(tmp_path: Path, line: str, said: str) -> None:
    text = (
        '{"index":0,"type":"invoke","at_ns":1,"process":0,"f":"read"}\n'
        '{"index":0,"type":"ok","at_ns":2}\n'
    )
    found = complaint(tmp_path, text.replace('"ok"', '"fail"') + line + "\n")
    assert found.startswith("history.log, line 3, column ")
    assert found.partition(": ")[2] == said


# --- which dialect --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "history.log is empty"),
        (" \n\n", "history.log is empty"),
        ("a,b\n1,2\n", "history.log is no history that is known: it begins neither like Parquet"),
        ("<html>", "history.log is no history that is known: it begins neither like Parquet"),
        ("PAR1 and no more", "cannot read history.log: "),
    ],
)
def test_what_is_no_history(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text).startswith(said)


def test_a_dialect_may_be_named(tmp_path: Path) -> None:
    assert read(tmp_path, VIOLIN, dialect="violin").dialect == "violin"
    assert complaint(tmp_path, VIOLIN, dialect="jepsen") == (
        "history.log, line 1, column 2: no operation stands here"
    )
    assert complaint(tmp_path, VIOLIN, dialect="latin") == (
        "no dialect 'latin': there are shalott, jepsen, porcupine-etcd, porcupine-kv, violin, json,"
        " jepsen-file, jepsen-fressian, openchaos"
    )
    assert complaint(tmp_path, VIOLIN, keyed=True) == (
        "history.log: only values of EDN are keyed, not those of violin"
    )


def test_a_directory_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UnreadableHistory, match="is not a run: it holds none of"):
        read_history(tmp_path)
