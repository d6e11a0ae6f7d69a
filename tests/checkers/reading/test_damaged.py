"""One damaged place in a file: never silently fewer operations than it holds.

Whatever byte is lost or changed, the reader raises, or reads as many records as before, or leaves
out the last one and says that the file is cut off.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from shalott.checkers.history.concurrent import NEVER, ConcurrentHistory
from shalott.checkers.reading import read_history
from shalott.core.errors import UnreadableHistory
from shalott.core.history import write_history
from shalott.core.recording import recover
from shalott.harness.cli.main import run_command
from tests.checkers.reading.test_edn import REGISTER
from tests.checkers.reading.test_logs import ETCD, VIOLIN, record

KEYED = """\
{:process 0, :type :invoke, :f :put, :key "x", :value "a"}
{:process 1, :type :invoke, :f :get, :key "y", :value nil}
{:process 0, :type :ok, :f :put, :key "x", :value "a"}
{:process 1, :type :ok, :f :get, :key "y", :value ""}
{:process 1, :type :invoke, :f :append, :key "x", :value "b"}
{:process 1, :type :ok, :f :append, :key "x", :value "b"}
"""
PLAIN_LOG = ETCD.replace("INFO  jepsen.util - ", "")


def recording(directory: Path) -> str:
    writer = record(directory / "recorded.jsonl")
    writer.close()
    return (directory / "recorded.jsonl").read_text()


def texts(directory: Path) -> dict[str, str]:
    return {
        "edn": REGISTER,
        "edn-vector": "[" + REGISTER + "]",
        "edn-one-line": "[" + REGISTER.replace("\n", " ") + "]",
        "edn-many-lines": REGISTER.replace(", ", ",\n "),
        "porcupine-kv": KEYED,
        "porcupine-etcd": ETCD,
        "log-without-logger": PLAIN_LOG,
        "violin": VIOLIN,
        "jsonl": recording(directory),
    }


NAMES = ("edn", "edn-vector", "edn-one-line", "edn-many-lines", "porcupine-kv", "porcupine-etcd",
         "log-without-logger", "violin", "jsonl")  # fmt: skip


def records(history: ConcurrentHistory) -> int:
    """Invocations, and completions that tell what became of one."""
    return len(history) + int(np.count_nonzero(history.ret != NEVER))


def attempt(path: Path, content: bytes) -> ConcurrentHistory | None:
    path.write_bytes(content)
    try:
        return read_history(path)
    except UnreadableHistory:
        return None


def is_told(read: ConcurrentHistory | None, whole: ConcurrentHistory) -> bool:
    """Whether a damaged file was refused, or read as it should be."""
    if read is None or records(read) >= records(whole):
        return True
    return bool(read.cut) and records(read) == records(whole) - 1


def with_one_byte_damaged(content: bytes) -> Iterator[bytes]:
    rng = random.Random(len(content))
    for at in range(len(content)):
        yield content[:at] + content[at + 1 :]
        for byte in {*b'{}[]()"\\;:#-, \n', rng.randrange(256)} - {content[at]}:
            yield content[:at] + bytes([byte]) + content[at + 1 :]


# Each byte at night; each submission has a few thousand.
MANY, SOME = 10**6 if os.environ.get("SHALOTT_NIGHTLY") else 2500, 300


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "count",
    [
        pytest.param(SOME, marks=pytest.mark.unit, id="some"),
        pytest.param(MANY, marks=pytest.mark.explore, id="many"),
    ],
)
def test_no_single_byte_costs_an_operation_in_silence(
    tmp_path: Path, name: str, count: int
) -> None:
    content = texts(tmp_path)[name].encode()
    whole = attempt(tmp_path / "history", content)
    assert whole is not None and not whole.cut
    refused = 0
    cases = list(with_one_byte_damaged(content))
    for damaged in random.Random(7).sample(cases, min(count, len(cases))):
        read = attempt(tmp_path / "history", damaged)
        refused += read is None
        assert is_told(read, whole), damaged.decode(errors="replace")
    assert refused > 100


@pytest.mark.unit
@pytest.mark.parametrize("name", NAMES)
def test_a_cut_end_costs_its_record_alone_and_is_told(tmp_path: Path, name: str) -> None:
    content = texts(tmp_path)[name].encode()
    whole = attempt(tmp_path / "history", content)
    assert whole is not None
    for end in range(len(content) * 3 // 4, len(content.rstrip())):
        read = attempt(tmp_path / "history", content[:end])
        assert read is None or records(read) <= records(whole)
        if read is not None and not content[:end].endswith((b"}", b"\n", b" ", b",")):
            assert read.cut, content[:end].decode()


def put(line: int, what: Callable[[str], str]) -> Callable[[str], str]:
    """Changes one line."""

    def changed(text: str) -> str:
        lines = text.splitlines(keepends=True)
        lines[line] = what(lines[line])
        return "".join(lines)

    return changed


def last_bracket_lost(line: str) -> str:
    at = max(line.rfind("}"), line.rfind("]"), line.rfind(")"))
    return line[:at] + line[at + 1 :]


def quote_put_in(line: str) -> str:
    return line[:5] + '"' + line[5:]


def bracket_put_in(line: str) -> str:
    return line[:-2] + "]}" + line[-2:]


def stray_byte(line: str) -> str:
    return line[:3] + "\x00" + line[3:]


FIRST, MIDDLE = 1, 4


@pytest.mark.unit
@pytest.mark.parametrize("name", ["edn", "porcupine-kv", "jsonl"])
@pytest.mark.parametrize("line", [FIRST, MIDDLE], ids=["start", "middle"])
@pytest.mark.parametrize("what", [last_bracket_lost, quote_put_in, bracket_put_in, stray_byte])
def test_damage_before_the_last_record_is_refused_with_its_line(
    tmp_path: Path, name: str, line: int, what: Callable[[str], str]
) -> None:
    path = tmp_path / "history"
    path.write_text(put(line, what)(texts(tmp_path)[name]))
    with pytest.raises(UnreadableHistory, match=r"line \d+, column \d+: ") as refused:
        read_history(path)
    assert abs(int(str(refused.value).partition("line ")[2].partition(",")[0]) - line - 1) <= 1


@pytest.mark.unit
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("porcupine-etcd", "\t:invoke", "\tinvoke"),
        ("porcupine-etcd", "jepsen.util - 0", "jepsen.util 0"),
        ("porcupine-etcd", "\t:invoke", "\t:invoke\x00"),
        ("porcupine-etcd", "nil\nINFO", "nilINFO"),
        ("log-without-logger", "\n0", "\nx"),
        ("log-without-logger", "nil\n", "nil "),
        ("violin", "[2]", "[2"),
        ("violin", "[2]", "#[2]"),
        ("violin", "[2]", "\x00[2]"),
        ("violin", "queue\n", "queue "),
        ("edn", "{:index 3", ";{:index 3"),
        ("edn", "{:index 3", "#_ {:index 3"),
    ],
)
def test_a_line_that_could_have_been_an_operation_is_refused(
    tmp_path: Path, name: str, old: str, new: str
) -> None:
    text = texts(tmp_path)[name]
    assert old in text
    (tmp_path / "history").write_text(text.replace(old, new, 1))
    with pytest.raises(UnreadableHistory, match="line"):
        read_history(tmp_path / "history")


def long_register(lines: int) -> str:
    """A register's history of whole pairs, each write read back."""
    return "".join(
        f"{{:process 0, :type {kind}, :f {f}, :value {at // 4 if shown else 'nil'}}}\n"
        for at in range(0, lines, 4)
        for kind, f, shown in ((":invoke", ":write", True), (":ok", ":write", True),
                               (":invoke", ":read", False), (":ok", ":read", True))
    )  # fmt: skip


@pytest.mark.unit
def test_one_missing_bracket_in_line_2_of_many_is_no_valid_history(tmp_path: Path) -> None:
    path = tmp_path / "long.edn"
    path.write_text(put(1, last_bracket_lost)(long_register(2_000)) + long_register(4)[:40])
    with pytest.raises(UnreadableHistory, match="the operation that begins in line 2 is not clos"):
        read_history(path)


@pytest.mark.unit
@pytest.mark.parametrize(
    "tail",
    ["{:process 7, :type :invoke\n", "{:process 7, :type :invoke\n {:process 8, :type :invoke",
     '{:process 7, :error "a\n{:process 8, :type :invoke}\n', "{:process 7\n\n:f [1 2\n3"],
)  # fmt: skip
def test_only_the_beginning_of_one_record_may_be_missing_its_end(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "torn.edn"
    path.write_text(REGISTER + tail)
    if tail.count("\n") == 1 and tail.endswith("\n"):
        assert read_history(path).cut == "line 11"
        return
    with pytest.raises(UnreadableHistory, match="the operation that begins in line 11 is not clos"):
        read_history(path)


@pytest.mark.unit
def test_a_file_of_one_torn_record_holds_no_history(tmp_path: Path) -> None:
    (tmp_path / "torn.edn").write_text("{:process 0, :type :inv")
    with pytest.raises(UnreadableHistory, match="line 1: the file ends before its first entry"):
        read_history(tmp_path / "torn.edn")


@pytest.mark.unit
def test_an_operation_that_became_the_nemesiss_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = [
        '{"index":0,"type":"invoke","at_ns":1,"process":11,"f":"read"}',
        '{"index":0,"type":"ok","at_ns":2,"value":1}',
        '{"index":1,"type":"invoke","at_ns":3,"process":1,"f":"read"}',
    ]
    path.write_text("\n".join(lines).replace(":11,", ":-1,"))
    with pytest.raises(UnreadableHistory, match=r"line 1, .*process -1 is the nemesis, but does r"):
        read_history(path)
    path.write_text("\n".join(lines).replace(":11,", ":-5,"))
    with pytest.raises(UnreadableHistory, match="a process is a number"):
        read_history(path)


@pytest.mark.explore
def test_a_damaged_parquet_file_is_refused_or_as_long_as_it_was(tmp_path: Path) -> None:
    record(tmp_path / "recording").close()
    write_history(recover(tmp_path / "recording").ops, tmp_path / "history.parquet")
    content = (tmp_path / "history.parquet").read_bytes()
    whole = attempt(tmp_path / "damaged", content)
    assert whole is not None
    rng = random.Random(5)
    refused = 0
    for at in rng.sample(range(len(content)), 400):
        changed = content[:at] + bytes([content[at] ^ rng.randrange(1, 256)]) + content[at + 1 :]
        for damaged in (content[:at], content[:at] + content[at + 1 :], changed):
            read = attempt(tmp_path / "damaged", damaged)
            refused += read is None
            assert read is None or len(read) >= len(whole)
    assert refused > 800


@pytest.mark.unit
def test_the_verdicts_line_says_that_the_file_is_cut_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.edn"
    path.write_text(long_register(40) + "{:process 0, :type :inv")
    assert run_command(["check", str(path), "--model", "register"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == f"{path}: valid up to line 41, where the file is cut off"
    path.write_text(long_register(40).replace("read, :value 7", "read, :value 8") + "{:process 0")
    assert run_command(["check", str(path), "--model", "register"]) == 1
    assert ": INVALID up to line 41, where the file is cut off: " in capsys.readouterr().out
