"""Cells as columns: what the engine reads is what a reader of JSON reads; the rest it leaves."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.checkers.history.text_columns import ABSENT, CellReader, words_of

pytestmark = pytest.mark.unit

PLAIN = st.text(
    st.characters(min_codepoint=0x20, exclude_characters='"\\', exclude_categories=("Cs",)),
    max_size=5,
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**18) + 1, 10**18 - 1),
    PLAIN,
)
KEYS = st.sampled_from(("tag", "flag", "name", "other", "na", "tagged"))
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


def read(*cells: str | None) -> Any:
    column = pa.chunked_array([pa.array(cells, pa.string())])
    return CellReader(column).read(
        np.arange(len(cells)), integers=("tag",), truths=("flag",), texts=("name",)
    )


@given(st.lists(OBJECTS, min_size=1, max_size=8), st.sampled_from((None, 1)))
def test_flat_objects_are_read_as_any_reader_reads_them(
    objects: list[dict[str, Any]], indent: int | None
) -> None:
    found = read(*(json.dumps(each, indent=indent, ensure_ascii=False) for each in objects))
    for place, said in enumerate(objects):
        of_its_kind = (
            type(said.get("tag")) in (int, type(None))
            and type(said.get("flag")) in (bool, type(None))
            and type(said.get("name")) in (str, type(None))
        )
        assert (place in found.odd) is not of_its_kind
        if of_its_kind:
            tag = said.get("tag")
            assert found.values["tag"][place] == (ABSENT if tag is None else tag)
            assert found.truths("flag")[place] == (said.get("flag") is True)
            words = found.texts["name"]
            assert words.names[words.codes[place]] == (said.get("name") or "")


@pytest.mark.parametrize(
    "cell",
    [
        '{"tag":1.5}',
        '{"tag":1e3}',
        '{"tag":01}',
        '{"tag":1234567890123456789}',
        '{"tag":-}',
        '{"tag":1,"tag":2}',
        '{"name":"a\\n"}',
        '{"name":"a\nb"}',
        '{"deaths":[{"queue":"q"}],"tag":1}',
        '{"more":{}}',
        '{"tag":1',
        '{"tag":1}}',
        '{"tag":1,}',
        '{"tag" 1}',
        '{"flag":truely}',
        "[1]",
        "nothing",
        "{",
        '{"name":"open}',
    ],
)
def test_what_is_not_plain_is_left(cell: str) -> None:
    found = read('{"tag":7}', cell, '{"tag":8}')
    assert found.odd.tolist() == [1]
    assert found.integers("tag", -1).tolist() == [7, -1, 8]


def test_nulls_and_empty_cells_say_nothing() -> None:
    found = read(None, "", "{}", " { } ")
    assert not len(found.odd)
    assert found.integers("tag", 5).tolist() == [5, 5, 5, 5]


def test_rows_are_picked_out_of_many_chunks() -> None:
    chunks = [
        pa.array(["-", '{"tag":1}', '{"tag":2}'])[1:],
        pa.array([], pa.string()),
        pa.array([None, '{"tag":3}']),
    ]
    column = pa.chunked_array(chunks)
    reader = CellReader(column)
    assert reader.read(np.array([3, 0, 1]), integers=("tag",)).values["tag"].tolist() == [3, 1, 2]
    encoded = pa.chunked_array([chunk.dictionary_encode() for chunk in chunks])
    again = CellReader(encoded).read(np.array([3, 2]), integers=("tag",))
    assert again.integers("tag", 0).tolist() == [3, 0]


def test_what_lies_under_a_null_is_not_read() -> None:
    whole = pa.array(['{"tag":1}', '{"tag":2}'])
    hidden = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), *whole.buffers()[1:]], null_count=1
    )
    found = CellReader(pa.chunked_array([hidden])).read(np.arange(2), integers=("tag",))
    assert found.integers("tag", -1).tolist() == [-1, 2]


@given(
    st.lists(st.sampled_from((None, "", "{}", '{"tag": 1}', "ä", "a" * 40)), max_size=30),
    st.integers(0, 6),
)
def test_the_different_cells_are_counted_up_to_a_limit(cells: list[str | None], most: int) -> None:
    rows = np.arange(len(cells))[::-1]
    found = CellReader(pa.chunked_array([pa.array(cells, pa.string())])).distinct(rows, most)
    texts = [cells[row] or "" for row in rows]
    if found is None:
        assert len(set(texts)) > most
    else:
        assert [found.names[code] for code in found.codes] == texts
        assert found.names == tuple(dict.fromkeys(texts))
        assert len(found.names) <= most


@given(st.lists(st.lists(st.one_of(st.none(), st.text(max_size=12)), max_size=9), max_size=4))
def test_texts_in_chunks_are_words(chunks: list[list[str | None]]) -> None:
    column = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())
    texts = [text or "" for chunk in chunks for text in chunk]
    for kind in (pa.string(), pa.large_string()):
        words = words_of(column.cast(kind))
        assert [words.names[code] for code in words.codes] == texts
        assert words.names == tuple(dict.fromkeys(texts))
    if len(texts) > 1:  # a slice begins within the memory of the whole
        words = words_of(column.slice(1))
        assert [words.names[code] for code in words.codes] == texts[1:]
