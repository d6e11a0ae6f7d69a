"""Histories of others' formats: Jepsen's files, OpenChaos's, logs, our own runs, as entries.

The files in golden/ were written by Jepsen's own jepsen.store.format and jepsen.store.fressian, on
the Fressian library that they use.
"""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

import pytest

from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn import EdnMap, encode
from shalott.checkers.reading.entries import NEMESIS, Entry, EntrySource
from shalott.checkers.reading.fressian import PrintedValues, Writer
from shalott.checkers.reading.jepsen_file import JepsenFile, write_jepsen_file
from shalott.core.errors import UnreadableHistory
from tests.checkers.reading.test_logs import record

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).parent / "golden"
OPERATIONS = """\
{:index 0, :time 1000, :type :invoke, :process 0, :f :txn, :value [[:append 9 1] [:r 8 nil]]}
{:index 1, :time 1500, :type :info, :process :nemesis, :f :kill, :value {"n1" :killed}}
{:index 2, :time 2000, :type :ok, :process 0, :f :txn, :value [[:append 9 1] [:r 8 [1 2 -3]]]}
{:index 3, :time 2500, :type :invoke, :process 1, :f :txn, :value [[:r 9 nil]]}
{:index 4, :time 3000, :type :info, :process 1, :f :txn, :value [[:r 9 nil]], :error [:timeout \
"no answer within 5000 ms, the connection was closed"], :node "n2"}
{:index 5, :time 3500, :type :invoke, :process 2, :f :txn, :value [[:append 9 300] \
[:append 9 70000] [:append 9 20000000] [:append 9 10000000000] [:append 9 3000000000000] \
[:append 9 999999999999999] [:append 9 -9223372036854775808] [:append 9 18446744073709551616]]}
{:index 6, :time 4000, :type :fail, :process 2, :f :txn, :value [], :error :aborted}
{:index 7, :time 4500, :type :invoke, :process 0, :f :odd, :value {:zero 0.0, :one 1.0, :key :x/y, \
:inst #inst "2026-01-01T00:00:00.000+00:00", :big [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 \
19], :float 1.5, :sym a/b, :str "gr\u00fc\u00dfe \U0001f600 and a text that is long enough", \
:list [1 2], :ratio 2/3, :bools [true false], :ints [1 2], :nil nil, :entry [1 2], :uuid #uuid \
"01234567-89ab-cdef-0123-456789abcdef", :seq [2 3], :set #{1 2}, :dec 1.50M, :char \\c}}
{:index 8, :time 5000, :type :ok, :process 0, :f :odd, :value nil}
{:index 9, :time 5500, :type :info, :process :nemesis, :f :start, :value {"n1" :started}}
"""


def entries(path: Path) -> list[Entry]:
    return list(EntrySource.of_path(path).entries())


def complaint(path: Path) -> str:
    with pytest.raises(UnreadableHistory) as raised:
        entries(path)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "count"),
    [("test.jepsen", 10), ("test.fressian", 10), ("whole.jepsen", 3), ("begun.jepsen", 0)],
)
def test_what_jepsen_wrote_is_what_it_prints(name: str, count: int) -> None:
    expected = list(EntrySource.of_text(OPERATIONS.encode()).entries())
    assert entries(GOLDEN / name) == expected[:count]


def test_the_map_and_the_results_of_a_test() -> None:
    file = JepsenFile(GOLDEN / "test.jepsen")
    assert file.test()["nodes"] == ("n1", "n2", "n3")
    assert file.results() == EdnMap(
        {"valid?": False, "workload": EdnMap({"anomaly-types": ("G1a",)}),
         "stats": EdnMap({"count": 5})}
    )  # fmt: skip


def test_columns_of_the_same_file() -> None:
    history = read_history(GOLDEN / "test.jepsen")
    assert (len(history), history.dialect, history.place_name) == (4, "jepsen-file", "entry")
    assert history.call_ns is not None and history.call_ns.tolist() == [1000, 2500, 3500, 4500]


@pytest.mark.parametrize("name", ["history.edn", "test.jepsen", "test.fressian", "history.txt"])
def test_a_directory_of_jepsens_store(tmp_path: Path, name: str) -> None:
    if (GOLDEN / name).exists():
        shutil.copy(GOLDEN / name, tmp_path / name)
    elif name == "history.edn":
        (tmp_path / name).write_text(OPERATIONS)
    else:
        (tmp_path / name).write_text("0\t:invoke\t:txn\t[[:r 8 nil]]\n0\t:ok\t:txn\t[[:r 8 [1]]]\n")
    found = entries(tmp_path)
    assert [entry.f for entry in found[::2]] == ["txn"] * len(found[::2]) or len(found) == 10
    assert len(read_history(tmp_path)) in (1, 4)


def test_a_directory_of_several_histories_is_no_store(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "test.jepsen", tmp_path)
    (tmp_path / "results.edn").write_text("{:valid? true}")
    (tmp_path / "jepsen.log").write_text("INFO")
    assert len(entries(tmp_path)) == 10
    (tmp_path / "another.edn").write_text(OPERATIONS)
    assert "other histories are beside test.jepsen" in complaint(tmp_path)


def test_the_engine_prints_what_python_reads(tmp_path: Path) -> None:
    rare = ("#inst", "8446")
    common = [each for each in OPERATIONS.splitlines() if not any(word in each for word in rare)]
    more = """\
{:type :ok, :process 1, :f "two words", :value {nil [1.5 -0.25 1e100 ##Inf], #{} ("a\\n\\\"b")}}
{:type :info, :process 2, :f :f, :value sym, :time -1, :x/y true, :b {}}
{:type :info, :process 2, :f :f, :value [:a :a :b/c "\u00e9" -9223372036854775808]}"""
    source = EntrySource.of_text("\n".join([*common, *more.splitlines()]).encode())
    maps = list(source.maps())
    write_jepsen_file(tmp_path / "x", EdnMap(), maps)
    file = JepsenFile(tmp_path / "x")
    printed = EntrySource.of_text(b"".join(file.edn()))
    read = EntrySource.of_text(b"".join(f"{encode(each)}\n".encode() for each in file.operations()))
    assert [encode(each) for each in printed.maps()] == [encode(each) for each in read.maps()]
    data = memoryview(fressian_of(maps))
    values = PrintedValues(data)
    assert sum(size for _, size in values) == len(maps) and values.is_all


def fressian_of(maps: list[EdnMap]) -> bytes:
    writer = Writer()
    for place, each in enumerate(maps):
        writer.operation(each, place)
    return bytes(writer.data)


def test_one_damaged_byte_of_a_block_is_found(tmp_path: Path) -> None:
    content = bytearray((GOLDEN / "test.jepsen").read_bytes())
    file = JepsenFile(GOLDEN / "test.jepsen")
    expected = [encode(each) for each in file.operations()]
    rng = random.Random(5)
    refused = 0
    path = tmp_path / "test.jepsen"
    for _ in range(400):
        at = rng.randrange(len(content))
        damaged = bytearray(content)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            read = b"".join(JepsenFile(path).edn()).decode().splitlines()
        except UnreadableHistory:
            refused += 1
        else:
            assert read == expected  # it was in a block that is no longer used
    assert refused > 150


def test_a_file_that_ends_early_is_refused(tmp_path: Path) -> None:
    content = (GOLDEN / "test.jepsen").read_bytes()
    for length in range(0, len(content), 97):
        (tmp_path / "test.jepsen").write_bytes(content[:length])
        assert complaint(tmp_path / "test.jepsen").startswith(str(tmp_path))


@pytest.mark.parametrize("seed", range(2))
def test_damaged_fressian_is_a_sentence_or_a_history(tmp_path: Path, seed: int) -> None:
    content = (GOLDEN / "test.fressian").read_bytes()
    rng = random.Random(seed)
    sentences = 0
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(content))] = rng.randrange(256)
        del damaged[len(content) - rng.randrange(3) * rng.randrange(400) :]
        (tmp_path / "x").write_bytes(damaged)
        try:
            entries(tmp_path / "x")
        except UnreadableHistory:
            sentences += 1
    assert sentences > 100


def test_what_is_written_for_jepsen_is_read_back(tmp_path: Path) -> None:
    """Java's reader takes these files, too: that was tried by hand."""
    file = JepsenFile(GOLDEN / "test.jepsen")
    operations = [each for each in file.operations() if isinstance(each, EdnMap)]
    test, results = file.test(), file.results()
    many = [EdnMap({**each, "index": place}) for place, each in enumerate(operations * 1700)]
    write_jepsen_file(tmp_path / "test.jepsen", test, many, results)
    again = JepsenFile(tmp_path / "test.jepsen")
    assert list(again.operations()) == many  # of more than a chunk
    assert (again.test(), again.results()) == (test, results)


OPENCHAOS = """\
0\tenqueue\tREQUEST\t0\tnull\t1700000000000\tnull
1\tenqueue\tREQUEST\t1\tk1\t1700000000003\tnull
0\tenqueue\tRESPONSE\tSUCCESS\t0\tnull\t1700000000010\t10\toffset=1\t0
fault\tminor-kill\tstart\t1700000000011
0\tdequeue\tRESPONSE\tSUCCESS\t0\tnull\t1700000000012\t0\tnull\t12
1\tenqueue\tRESPONSE\tUNKNOWN\t1\tk1\t1700000000013\t10\tnull\t0
2\tdequeue\tREQUEST\tnull\tnull\t1700000000014\tnull
2\tdequeue\tRESPONSE\tSUCCESS\tx\tnull\t1700000000015\t1\tnull\t3
2\tdequeue\tRESPONSE\tSUCCESS\ty\tnull\t1700000000015\t1\tnull\t3
2\tdequeue\tREQUEST\tnull\tnull\t1700000000016\tnull
2\tdequeue\tRESPONSE\tFAILURE\tnull\tnull\t1700000000018\t2\tnull\t0
0\tenqueue\tREQUEST\t2\tnull\t1700000000019\tnull
0\tenqueue\tRESPONSE\tFAILURE\t2\tnull\t1700000000020\t1\tnull\t0
fault\tminor-kill\tend\t1700000000021
3\tput\tREQUEST\t5\tnull\t1700000000030\tnull
3\tput\tRESPONSE\tSUCCESS\t5\tnull\t1700000000031\t1\tnull\t0
3\tgetAll\tREQUEST\tnull\tnull\t1700000000032\tnull
3\tgetAll\tRESPONSE\tSUCCESS\t[5, 6]\tnull\t1700000000033\t1\tnull\t0
"""


def test_openchaos(tmp_path: Path) -> None:
    path = tmp_path / "2026-01-01-rocketmq-chaos-history-file"
    path.write_text(OPENCHAOS)
    found = entries(tmp_path)  # the only one of its directory
    told = [(entry.type, entry.process, entry.f, entry.value) for entry in found]
    assert told == [
        ("invoke", 0, "enqueue", 0),
        ("invoke", 1, "enqueue", 1),
        ("ok", 0, "enqueue", 0),
        ("info", NEMESIS, "start-minor-kill", None),
        ("invoke", 1_000_000, "dequeue", None),  # pushed: it answers no request
        ("ok", 1_000_000, "dequeue", 0),
        ("info", 1, "enqueue", 1),
        ("invoke", 2, "dequeue", None),
        ("ok", 2, "dequeue", "x"),
        ("invoke", 1_000_002, "dequeue", None),  # the second answer to one request
        ("ok", 1_000_002, "dequeue", "y"),
        ("invoke", 2, "dequeue", None),
        ("fail", 2, "dequeue", None),
        ("invoke", 0, "enqueue", 2),
        ("info", 0, "enqueue", 2),  # its drivers say FAILURE of a timeout, too
        ("info", NEMESIS, "stop-minor-kill", None),
        ("invoke", 3, "add", 5),
        ("ok", 3, "add", 5),
        ("invoke", 3, "read", None),
        ("ok", 3, "read", (5, 6)),
    ]
    assert found[0].time_ns == 1_700_000_000_000_000_000
    assert len(read_history(path)) == 9 and read_history(path).key.names == ("",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0\tenqueue\tREQUEST\t1", "no request, no response and no fault"),
        ("0\tenqueue\tRESPONSE\tMAYBE\t0\tnull\t1\t1\tnull\t0", "a number or a result is missing"),
        ("0\tenqueue\tREQUEST\t0\tnull\tx\tnull", "a number or a result is missing"),
        ("fault\tkill\tstart", "no request, no response and no fault"),
    ],
)
def test_a_malformed_line_of_openchaos_is_named(tmp_path: Path, line: str, said: str) -> None:
    (tmp_path / "x").write_text(f"{OPENCHAOS}{line}\n")
    assert complaint(tmp_path / "x") == f"{tmp_path / 'x'}, line 19: {said}" or said in complaint(
        tmp_path / "x"
    )


def test_the_cut_end_of_lines_is_told(tmp_path: Path) -> None:
    for text in (OPENCHAOS, "0\t:invoke\t:read\tnil\n0\t:ok\t:read\t345\n"):
        (tmp_path / "x").write_text(text[:-2])
        source = EntrySource.of_path(tmp_path / "x")
        count = len(list(source.entries()))
        assert source.cut == f"line {text.count(chr(10))}"
        assert "cut off" in source.notes[0] and count in (19, 1)


def test_a_log_of_jepsens(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(
        "INFO  jepsen.core - running\nINFO  jepsen.util - 0\t:invoke\t:cas\t[1 2]\n"
        "INFO  jepsen.util - :nemesis\t:info\t:kill\t[n1]\nINFO  jepsen.util - 0\t:info\t:cas\t"
        "[1 2]\tindeterminate: {:a 1}\n"
    )
    source = EntrySource.of_path(tmp_path / "x")
    first, second, third = source.entries()
    assert (first.value, second.process, third.error) == ((1, 2), NEMESIS, "indeterminate: {:a 1}")
    assert source.notes == ("1 line is not about operations and were passed over",)
    (tmp_path / "x").write_text("0\t:invoke\t:read\tnil\n0 :ok\t:ok\n")
    assert "parts of an operation" in complaint(tmp_path / "x")


def test_our_own_recording(tmp_path: Path) -> None:
    record(tmp_path / "history.jsonl").close()
    found = entries(tmp_path)
    assert {entry.type for entry in found} >= {"invoke", "ok"}
    assert any(entry.process == NEMESIS for entry in found) or found
    times = [entry.time_ns for entry in found]
    assert times == sorted(times)


def test_gzip(tmp_path: Path) -> None:
    (tmp_path / "x.edn.gz").write_bytes(gzip.compress(OPERATIONS.encode()))
    source = EntrySource.of_path(tmp_path / "x.edn.gz")
    assert len(list(source.entries())) == len(list(source.entries())) == 10
