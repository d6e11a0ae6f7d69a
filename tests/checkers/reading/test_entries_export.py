"""From any format to any other and back: what comes back is what went, as far as the other can say.

Entries are drawn at random, with every kind of value.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shalott.checkers.history.column_values import Keyword, Symbol
from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn import EdnMap, encode
from shalott.checkers.reading.entries import Entry, EntrySource
from shalott.checkers.reading.entries_export import TEXTS, write_store
from shalott.checkers.reading.own_entries import edn_of_table
from shalott.checkers.reading.run_rows import rows_of_entries
from shalott.core.history import write_history
from tests.checkers.reading.test_formats import OPENCHAOS
from tests.checkers.reading.written import seen

pytestmark = pytest.mark.unit

WORDS = st.sampled_from(
    ["a", "x/y", "append", "r", "ok", "list-append", "v1.2", "?!", "gr\u00fc\u00dfe"]
)
TEXTS_DRAWN = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).filter(lambda each: each != 0),
    st.fractions(max_denominator=99).filter(lambda each: each.denominator > 1),
)
JSON_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), TEXTS_DRAWN,
    st.floats(allow_nan=False, allow_infinity=False),
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    WORDS.map(Keyword),
    TEXTS_DRAWN,
    st.sampled_from(
        ["sym", "\\c", "\\newline", '#inst "2026-01-01T00:00:00Z"', '#"re.*"', "a/b"]
    ).map(Symbol),
)


KEYS = st.one_of(WORDS.map(Keyword), st.integers(0, 9))


def is_apart(values: list[Hashable]) -> bool:
    """No two are one to Python that EDN has for two: 1, 1.0 and true."""
    return len(set(values)) == len({(type(each), each) for each in values})


def nested(leaves: st.SearchStrategy[Hashable]) -> st.SearchStrategy[Hashable]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4).map(tuple),
            st.lists(inner, max_size=4).filter(is_apart).map(frozenset),
            st.dictionaries(
                st.one_of(WORDS.map(Keyword), st.integers(0, 9)), inner, max_size=3
            ).map(EdnMap),
        ),
        max_leaves=8,
    )


def entries_of(values: st.SearchStrategy[Hashable]) -> st.SearchStrategy[list[EdnMap]]:
    """Invocations and completions of three processes, and the nemesis."""
    entry = st.fixed_dictionaries(
        {"process": st.sampled_from([0, 1, 2, Keyword("nemesis")]), "value": values},
        optional={"error": values, "node": TEXTS_DRAWN, "extra-field": values},
    )
    return st.lists(entry, min_size=1, max_size=8).map(_sequence)


def _sequence(drawn: list[dict[str, Hashable]]) -> list[EdnMap]:
    is_open: dict[Hashable, bool] = {}
    found = []
    for index, each in enumerate(drawn):
        process = each["process"]
        kind = "ok" if is_open.get(process) else "invoke"
        is_open[process] = not is_open.get(process)
        kind = "info" if process == "nemesis" else kind
        entry = {
            "index": index,
            "type": Keyword(kind),
            "f": Keyword("do"),
            "time": 100 * index,
            **each,
        }
        found.append(EdnMap({Keyword(name): value for name, value in entry.items()}))
    return found


def source_of(entries: list[EdnMap]) -> EntrySource:
    text = "".join(f"{encode(each)}\n" for each in entries)
    return EntrySource.of_text(text.encode())


def same(one: Hashable | list[EdnMap], other: Hashable | list[EdnMap]) -> bool:
    """Of one type throughout, too: a keyword is equal to a string otherwise."""
    return one == other and _shown(one) == _shown(other)


def _shown(value: Hashable | list[EdnMap]) -> str:
    return encode(tuple(value) if isinstance(value, list) else value)


SOME = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@SOME
@given(entries_of(nested(LEAVES)))
def test_edn_says_everything(entries: list[EdnMap]) -> None:
    source = source_of(entries)
    assert same(list(source.maps()), entries)
    again = EntrySource.of_text(b"".join(TEXTS["edn"](source)))
    assert same(list(again.maps()), entries)


@SOME
@given(entries_of(nested(LEAVES)))
def test_a_store_of_jepsens_says_everything(tmp_path: Path, entries: list[EdnMap]) -> None:
    write_store(tmp_path, source_of(entries), EdnMap({Keyword("name"): "x"}), None)
    for name in ("test.jepsen", "history.edn"):
        assert same(list(EntrySource.of_path(tmp_path / name).maps()), _in_order(entries))


def _in_order(entries: list[EdnMap]) -> list[EdnMap]:
    """Jepsen's record has its fields in its own order."""
    order = ("index", "time", "type", "process", "f", "value")
    return [
        EdnMap({Keyword(key): each[key] for key in (*order, *(k for k in each if k not in order))})
        for each in entries
    ]


@SOME
@given(entries_of(nested(LEAVES)))
def test_rows_of_ours_say_everything(entries: list[EdnMap]) -> None:
    table = rows_of_entries(source_of(entries).maps())
    again = EntrySource.of_text(b"".join(edn_of_table(table)))
    assert same(list(again.maps()), entries)


JSON_VALUES = st.recursive(
    JSON_LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(TEXTS_DRAWN, inner, max_size=3).map(EdnMap),
    ),
    max_leaves=8,
)


@SOME
@given(entries_of(JSON_VALUES))
def test_json_says_what_json_can(entries: list[EdnMap]) -> None:
    text = b"".join(TEXTS["json"](source_of(entries)))
    found = list(EntrySource.of_text(text, "json").entries())
    expected = list(source_of(entries).entries())
    assert [replace(each, line=0) for each in found] == [replace(each, line=0) for each in expected]
    back = b"".join(TEXTS["json"](EntrySource.of_text(text, "json")))
    assert back == text


def test_elles_words_become_keywords() -> None:
    text = b'[{"process":0,"type":"ok","f":"txn","value":[["append",9,1],["r","x",[1]]]}]'
    edn = b"".join(TEXTS["edn"](EntrySource.of_text(text, "json")))
    assert edn == b'{:process 0, :type :ok, :f :txn, :value [[:append 9 1] [:r "x" [1]]]}\n'


def test_openchaos_and_back(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(OPENCHAOS)
    source = EntrySource.of_path(tmp_path / "x")
    assert b"".join(TEXTS["openchaos"](source)).decode() == OPENCHAOS
    write_history(rows_of_entries(source.maps()), tmp_path / "history.parquet")
    again = EntrySource.of_path(tmp_path / "history.parquet")
    assert b"".join(TEXTS["openchaos"](again)).decode() == OPENCHAOS


def test_history_txt_and_back(tmp_path: Path) -> None:
    text = (
        b"{:process 0, :type :invoke, :f :w, :value [1 :a]}\n"
        b'{:process 0, :type :info, :f :w, :value [1 :a], :error "gone away"}\n'
    )
    entries = list(EntrySource.of_text(text).maps())
    (tmp_path / "x").write_bytes(b"".join(TEXTS["log"](source_of(entries))))
    assert same(list(EntrySource.of_path(tmp_path / "x").maps()), entries)


def test_columns_come_back_through_rows_of_ours(tmp_path: Path) -> None:
    """A register's history, with a cas: rows have one value, their entries two."""
    text = (
        "{:process 0, :type :invoke, :f :cas, :value [0 2], :time 5}\n"
        "{:process 1, :type :invoke, :f :read, :value nil, :time 5}\n"
        "{:process 0, :type :ok, :f :cas, :value [0 2], :time 6}\n"
        "{:process 1, :type :ok, :f :read, :value 2, :time 7}\n"
    )
    (tmp_path / "x.edn").write_text(text)
    source = EntrySource.of_path(tmp_path / "x.edn")
    write_history(rows_of_entries(source.maps()), tmp_path / "history.parquet")
    assert seen(read_history(tmp_path / "history.parquet")) == seen(
        read_history(tmp_path / "x.edn")
    )


@SOME
@given(nested(LEAVES))
def test_what_is_shown_is_read_back(value: Hashable) -> None:
    entry = f"{{:process 1, :type :ok, :f :f, :value {encode(value)}}}".encode()
    (found,) = EntrySource.of_text(entry).entries()
    assert same(found.value, value)


def test_the_kinds_that_were_drawn() -> None:
    """Else the tests above would say little."""
    for kind in (Decimal("1.5"), Fraction(1, 3), math.inf, Keyword("a"), Symbol("b"), 2**70):
        assert encode(kind) != encode(str(kind)), kind
    entry = Entry("ok", 0, "f", None, 0, 0, None, 1, EdnMap())
    assert entry.extra == {}
