"""The stream of entries: what is read is what stands there, in any pieces; the rest is refused."""

from __future__ import annotations

import gc
import json
import random
from collections.abc import Hashable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest

from shalott.checkers.engine import lib, new_budget
from shalott.checkers.history.column_values import Keyword, Symbol
from shalott.checkers.reading import entries as module
from shalott.checkers.reading.edn import EdnMap, encode
from shalott.checkers.reading.entries import NEMESIS, NO_PROCESS, Entry, EntrySource
from shalott.core.errors import UnreadableHistory

pytestmark = pytest.mark.unit

TRANSACTIONS = """\
; made by hand
{:type :invoke, :f :txn, :value [[:append 9 1] [:r "x" nil]], :process 0, :time 5, :index 0}
#jepsen.history.Op{:index 1, :time 7, :type :info, :process :nemesis, :f :kill, :value {"n1" :ok}}
{:type :ok, :f :txn, :value [[:append 9 1] [:r "x" [1 2]]], :process 0, :time 9, :index 2,
 :error [:timeout "a text that is too long to be worth an id"], :latency 1.25, :node "n1"}
"""


def read(text: str | bytes, dialect: str = "edn") -> list[Entry]:
    content = text if isinstance(text, bytes) else text.encode()
    return list(EntrySource.of_text(content, dialect).entries())


def value(text: str) -> Hashable:
    return read(f"{{:process 1, :type :ok, :f :f, :value {text}}}")[0].value


def complaint(text: str | bytes, dialect: str = "edn") -> str:
    with pytest.raises(UnreadableHistory) as raised:
        read(text, dialect)
    return str(raised.value)


def test_entries_say_what_the_file_says() -> None:
    first, second, third = read(TRANSACTIONS)
    assert first == Entry(
        type="invoke",
        process=0,
        f="txn",
        value=((Keyword("append"), 9, 1), (Keyword("r"), "x", None)),
        index=0,
        time_ns=5,
        error=None,
        line=2,
        extra=EdnMap(),
    )
    assert (second.process, second.f, second.line) == (NEMESIS, "kill", 3)
    assert second.value == EdnMap({"n1": Keyword("ok")})
    assert third.error == ("timeout", "a text that is too long to be worth an id")
    assert third.extra == EdnMap({"latency": 1.25, "node": "n1"})
    assert third.line == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nil", None),
        ("true", True),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", 2**63),
        ("12N", 12),
        ("1.5e3", 1500.0),
        ("1.50M", Decimal("1.50")),
        ("2/6", Fraction(1, 3)),
        (":a/b", Keyword("a/b")),
        ("sym", Symbol("sym")),
        ("\\newline", Symbol("\\newline")),
        ('#inst "2026-01-01"', Symbol('#inst "2026-01-01"')),
        ("#elle.Thing{:x 1}", EdnMap({Keyword("x"): 1})),
        ('"a\\n\\u00e9\\ud83d\\ude00\\101"', "a\n\u00e9\U0001f600A"),
        ("#{1 [2] {}}", frozenset({1, (2,), EdnMap()})),
        ("(1 #_2 3 ; four\n)", (1, 3)),
        ("{nil {1 2}}", EdnMap({None: EdnMap({1: 2})})),
        ("[[[[]]]]", ((((),),),)),
    ],
)
def test_values(text: str, expected: Hashable) -> None:
    found = value(text)
    assert found == expected and type(found) is type(expected)
    assert value(encode(found)) == expected


def test_a_keyword_and_a_string_of_one_text_have_one_id() -> None:
    stream = EntrySource.of_text(b'{:process 1, :type :ok, :f :f, :value [:x "x"]}').batches()
    (batch,) = stream
    node = batch.entries[0].value
    first, second = batch.nodes[node + 1], batch.nodes[node + 2]
    assert (first.kind, second.kind) == (lib.SHL_NODE_KEYWORD, lib.SHL_NODE_TEXT)
    assert first.number == second.number == stream.id_of("x")
    assert stream.text(first.number) == "x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{:process 0, :type :ok, :f :r, :value [1 2}", "line 1, column 43: a bracket is closed"),
        ("{:process 0, :type :ok, :f :r, :value 12x}", "this is no value: 12x"),
        ("{:process 0, :type :ok, :f :r, :value \"a\\q\"}", "this is no value: \\q"),
        ("{:process 0, :type :ok, :f :r, :f :w}", "an operation says :f twice"),
        ("{:process 0, :type :ok, :f :r, :value {1}}", "a map has a key without a value"),
        ("{:process 0, :type :maybe, :f :r}", "a type is :invoke, :ok, :fail or :info"),
        ("{:process 0, :type :ok, :f 7}", "an f is a word, not 7"),
        ("{:process 0, :type :ok, :f :r, :index -1}", "an index is a number from 0, not -1"),
        ("{:process 0, :type :ok, :f :r, :time 1.5}", "a time is a number of nanoseconds"),
        ("{:process :other, :type :ok, :f :r}", "a process is a number or :nemesis, not :other"),
        ("{:process 0, :type :ok, :f :r}\n; {:process 0, :type :ok, :f :r}", "in a comment"),
        ("{:process 0, :type :ok, :f :r}\n{:type :ok, :f :r}", "line 2, column 1: an operation"),
        ("{:type :ok, :f :r}\n{:process 0, :type :ok, :f :r}", "the first one has none"),
        ("{:type :ok, :value 1}\n{:f :r, :type :ok, :value 1}", "the first one has none"),
        ("{:process 0, :type :ok, :f :r\n{:process 0, :type :ok, :f :r}", "is not closed"),
        ("{:process 0, :type :ok, :f :r, :value " + "[" * 200, "more than 128 brackets"),
        ("7", "no operation stands here"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_refused_with_its_place(text: str, said: str) -> None:
    found = complaint(text)
    assert said in found and found.startswith("text, line ")


def test_a_file_may_name_no_processes_and_no_fs() -> None:
    for each in read("{:index 1, :type :invoke, :value [[:r 1 nil]]}\n" * 2):
        assert (each.process, each.f, each.index) == (NO_PROCESS, "", 1)


def test_an_end_that_is_cut_off_is_told() -> None:
    source = EntrySource.of_text(TRANSACTIONS[: TRANSACTIONS.index(", :index 2")].encode())
    assert [entry.index for entry in source.entries()] == [0, 1]
    assert source.cut == "line 4" and "cut off at line 4" in source.notes[0]


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, in_json = read(TRANSACTIONS), read(JSON_TRANSACTIONS, "json")
    for size in range(1, 60):
        monkeypatch.setattr(module, "_PIECE_BYTES", size)
        assert read(TRANSACTIONS) == whole
        assert read(JSON_TRANSACTIONS, "json") == in_json
        assert complaint(TRANSACTIONS + "{:process 1, :type :ok}\n") == (
            "text, line 6, column 1: an operation without an f"
        )


JSON_TRANSACTIONS = """\
[{"index": 0, "type": "invoke", "process": 0, "time": 5, "value": [["append", 9, 1], ["r", "x", null]], "f": "txn"},
 {"index":1,"time":7,"type":"info","process":"nemesis","f":"kill","value":{"n1":"ok"}}
,{"type":"ok","f":"txn","value":[["append",9,1],["r","x",[1,2]]],"process":0,"time":9,"index":2,
  "error":["timeout","a text that is too long to be worth an id"],"latency":1.25,"node":"n1"}]
"""  # noqa: E501


def test_json_says_the_same() -> None:
    for in_edn, in_json in zip(read(TRANSACTIONS), read(JSON_TRANSACTIONS, "json"), strict=True):
        assert replace(in_edn, line=0) == replace(in_json, line=0)
    one_by_one = JSON_TRANSACTIONS.strip()[1:-1].replace("\n,", "\n").replace("},\n", "}\n")
    assert [each.index for each in read(one_by_one, "json")] == [0, 1, 2]


@pytest.mark.parametrize(
    "text",
    ["null", "true", "false", "-0", "123456789012345678901234567890", "-1.5e-3", '"\\u00e9\\n\\/"',
     '"\\ud83d\\ude00"', "[]", "{}", '[1,[2,{"a":[null]}]]', '{"a":{"b":1},"c":"d"}'],
)  # fmt: skip
def test_json_values(text: str) -> None:
    entry = read(f'{{"process":1,"type":"ok","f":"f","value":{text}}}', "json")[0]
    assert as_json(entry.value) == json.loads(text)
    shown = EntrySource.of_text(b"", "json").show(entry.value)
    assert json.loads(shown) == json.loads(text)


def as_json(value: Hashable) -> object:
    if isinstance(value, EdnMap):
        return {name: as_json(each) for name, each in value.items()}
    return [as_json(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"process":0,"type":"ok","f":"r","value":[1 2]}', "line 1, column 45: this can't stand"),
        ('{"process":0,"type":"ok","f":"r","value":[1}}', "a bracket is closed by one of another"),
        ('{"process":0,"type":"ok","f":"r","value":01}', "this is no value: 01"),
        ('{"process":0,"type":"ok","f":"r","value":nul}', "this is no value: nul"),
        ('{"process":0,"type":"ok","f":"r","value":"\\q"}', "this is no value: \\q"),
        ('{"process":0,"type":"ok","f":"r","value":"a\nb"}', "this can't stand here"),
        ('{"process":0,"type":"ok","f":"r","f":"w"}', 'says "f": twice'),
        ('{"process":0,"type":"ok",}', "this can't stand here"),
        ('[{"process":0,"type":"ok","f":"r"} {"process":0}]', "this can't stand here"),
        ('[{"process":0,"type":"ok","f":"r"}] {}', "this can't stand here"),
        ('[{"process":0,"type":"ok","f":"r"},]', "no operation stands here"),
        ("[1]", "no operation stands here"),
        ('{"process":0,"type":"ok","f":"r","value":' + "[" * 200, "more than 128 brackets"),
    ],
)
def test_malformed_json_is_refused_with_its_place(text: str, said: str) -> None:
    assert said in complaint(text, "json")


def test_a_json_array_without_its_end_is_cut_off() -> None:
    source = EntrySource.of_text(JSON_TRANSACTIONS.rstrip()[:-1].encode(), "json")
    assert len(list(source.entries())) == 3 and source.cut
    source = EntrySource.of_text(
        JSON_TRANSACTIONS[: JSON_TRANSACTIONS.index(',"index":2')].encode(), "json"
    )
    assert len(list(source.entries())) == 2 and source.cut == "line 3"


def test_a_budget_stops_it_and_all_memory_is_given_back() -> None:
    budget = new_budget(memory_limit_bytes=200_000)
    lines = (f"{{:process 0, :type :ok, :f :r, :value {number}}}\n" for number in range(30_000))
    content = "".join(lines).encode()
    source = EntrySource.of_text(content)
    with pytest.raises(MemoryError):
        list(source.batches(budget))
    budget = new_budget()
    assert sum(batch.count for batch in source.batches(budget)) == 30_000
    del source
    gc.collect()
    assert budget.bytes == 0 and 0 < budget.bytes_peak < 4_000_000
    late = new_budget(time_limit_s=0)
    with pytest.raises(TimeoutError):
        list(EntrySource.of_text(content).batches(late))


@pytest.mark.parametrize("seed", range(3))
def test_damage_is_refused_or_costs_no_entry_in_silence(seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    for turn in range(1400):
        dialect = ("edn", "json")[turn % 2]
        content = (TRANSACTIONS, JSON_TRANSACTIONS)[turn % 2].encode()
        at = rng.randrange(len(content))
        byte = rng.choice([b"", *(bytes([each]) for each in b'{}[]()"\\;:#-, \n_')])
        source = EntrySource.of_text(content[:at] + byte + content[at + 1 :], dialect)
        try:
            found = list(source.entries())
        except UnreadableHistory:
            refused += 1
        else:
            assert len(found) == 3 or (source.cut and len(found) == 2)
    assert refused > 100
