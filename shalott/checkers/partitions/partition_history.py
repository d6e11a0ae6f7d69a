"""A history of partitions in the engine (engine/kafka.h), as Python asks for it.

Messages, operations and keys are numbers here; their texts are in the history's own syntax.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.engine import Budget, CData, ffi, lib
from shalott.checkers.history.column_values import Keyword

if TYPE_CHECKING:
    from shalott.checkers.reading.entries import EntrySource, Stream

_ELEMENT: Final = np.dtype([("offset", "i8"), ("message", "i4"), ("mop", "i4")])
_MESSAGE: Final = np.dtype(
    {
        "names": ["key", "flags"],
        "formats": ["i4", "u1"],
        "offsets": [ffi.offsetof("shl_kafka_message", field) for field in ("key", "flags")],
        "itemsize": ffi.sizeof("shl_kafka_message"),
    }
)
_SENT_OR_READ: Final = lib.SHL_KAFKA_SENT_OK | lib.SHL_KAFKA_READ_OK
_NIL, _FALSE, _TRUE, _INTEGER, _KEYWORD, _TEXT = (
    lib.SHL_NODE_NIL, lib.SHL_NODE_FALSE, lib.SHL_NODE_TRUE, lib.SHL_NODE_INTEGER,
    lib.SHL_NODE_KEYWORD, lib.SHL_NODE_TEXT,
)  # fmt: skip
_CONSTANTS: Final = {_NIL: None, _FALSE: False, _TRUE: True}
NONE: Final = lib.SHL_NONE
FS: Final = ("poll", "send", "txn", "assign", "subscribe", "other")
TYPES: Final = ("ok", "fail", "info")


class LimitReached(Exception):
    """Time or memory ended: says which."""


class PartitionHistory:
    """What the engine holds of one history. It lives as long as this does."""

    def __init__(self, source: EntrySource, stream: Stream, kafka: CData) -> None:
        self._source = source
        self._stream = stream  # the engine asks it for texts
        self._kafka = kafka
        self.facts = lib.shl_kafka_found(kafka)
        self._ops = lib.shl_kafka_ops(kafka)
        self._messages = lib.shl_kafka_messages(kafka)
        self._keys = lib.shl_kafka_keys(kafka)

    @property
    def engine(self) -> CData:
        return self._kafka

    def cases(self, kind: int) -> list[CData]:
        """The most telling ones of a kind, in the order of the history."""
        cases = lib.shl_kafka_cases(self._kafka, kind)
        kept = [cases[number] for number in range(self.facts.kept[kind])]
        return sorted(kept, key=lambda case: (case.op, case.other, case.first))

    # --- operations ---------------------------------------------------------------------------

    def place(self, op: int) -> int:
        """Where people find an operation: its index, or the line of its last entry."""
        found = self._ops[op]
        return int(found.index if found.index >= 0 else found.line)

    def at(self, op: int, *, begun: bool = False) -> str:
        """Where its last entry stands, or where it was begun."""
        found = self._ops[op]
        index, line = (
            (found.called_index, found.called_line) if begun else (found.index, found.line)
        )
        return f"line {line}" if self._source.name != "text" or index < 0 else f"index {index}"

    def type_of(self, op: int) -> str:
        return TYPES[self._ops[op].type]

    def process(self, op: int) -> int:
        return int(self._ops[op].process)

    def noun(self, op: int) -> str:
        found = self._ops[op]
        return "transaction" if FS[found.f] == "txn" else FS[found.f]

    # --- messages -----------------------------------------------------------------------------

    def value(self, message: int) -> str:
        found = self._messages[message]
        return self._shown(found.kind, found.number)

    def key(self, key: int) -> str:
        found = self._keys[key]
        return self._shown(found.kind, found.number)

    def key_of(self, message: int) -> int:
        return int(self._messages[message].key)

    def offset(self, message: int) -> int:
        """Where it was seen first; -1: nowhere."""
        return int(self._messages[message].offset)

    def index(self, message: int) -> int:
        """Its place among those of its key, the first one if it has several."""
        return int(self._messages[message].first)

    def unseen(self, key: int, most: int) -> list[int]:
        """Messages of a key that were acknowledged and never polled."""
        rows = np.frombuffer(
            ffi.buffer(self._messages, self.facts.messages * _MESSAGE.itemsize), _MESSAGE
        )
        acknowledged = (rows["flags"] & _SENT_OR_READ) == lib.SHL_KAFKA_SENT_OK
        return [int(each) for each in np.flatnonzero(acknowledged & (rows["key"] == key))[:most]]

    def with_offset(self, message: int) -> str:
        """ "5 (offset 7)", without the offset where none is known."""
        offset = self.offset(message)
        value = self.value(message)
        return value if offset < 0 else f"{value} (offset {offset})"

    def between(self, first: int, second: int, most: int) -> list[int]:
        """Up to ``most`` messages that stand between two of one key."""
        low, high = self._messages[first].index, self._messages[second].index
        begin = self._keys[self._messages[first].key].begin
        order = lib.shl_kafka_order(self._kafka)
        return [order[begin + at] for at in range(low + 1, min(high, low + 1 + most))]

    def sightings(self, key: int) -> Iterator[tuple[int, int]]:
        """(offset, message) of a key, each once, by offset."""
        found = self._keys[key]
        rows = lib.shl_kafka_sightings(self._kafka)
        for at in range(found.sightings, found.sightings + found.sighted):
            yield rows[at].offset, rows[at].message

    def sighting(self, message: int, offset: int) -> tuple[str, int]:
        """What first showed a message at an offset: "sent" or "polled", and the operation."""
        elements = self._elements()
        shown = np.flatnonzero((elements["message"] == message) & (elements["offset"] == offset))
        for at in shown.tolist():
            what = elements["mop"][at] & 3
            if what <= lib.SHL_KAFKA_POLLED:
                return ("polled" if what else "sent"), self._op_of(at)
        raise AssertionError(f"message {message} was seen at offset {offset} by no operation")

    def _elements(self) -> npt.NDArray[np.void]:
        count = self.facts.elements
        memory = lib.shl_kafka_elements(self._kafka)
        return np.frombuffer(ffi.buffer(memory, count * _ELEMENT.itemsize), _ELEMENT)

    def _op_of(self, element: int) -> int:
        """Elements stand in the order of the operations."""
        low, high = 0, int(self.facts.ops)
        while high - low > 1:
            middle = (low + high) // 2
            if self._ops[middle].begin <= element:
                low = middle
            else:
                high = middle
        return low

    def _shown(self, kind: int, number: int) -> str:
        if kind in _CONSTANTS:
            return self._source.show(_CONSTANTS[kind])
        if kind == _INTEGER:
            return str(number)
        text = self._stream.text(number)
        if kind == _KEYWORD:
            return self._source.show(Keyword(text))
        return self._source.show(text) if kind == _TEXT else text

    def text(self, number: int) -> str:
        return self._stream.text(number)


def take_in(source: EntrySource, budget: Budget) -> PartitionHistory:
    """Reads a source and judges what can be judged without a graph.

    Raises LimitReached, and UnreadableHistory where the file is malformed.
    """
    try:
        stream = source.batches(budget)
        kafka = lib.shl_kafka_new(stream.reader, budget)
        if kafka == ffi.NULL:
            raise LimitReached(limit_words(budget))
        kafka = ffi.gc(kafka, lib.shl_kafka_free)
        for batch in stream:
            if not lib.shl_kafka_take(kafka, batch):
                raise LimitReached(limit_words(budget))
    except (MemoryError, TimeoutError) as stopped:
        raise LimitReached(limit_words(budget)) from stopped
    if not lib.shl_kafka_judge(kafka):
        raise LimitReached(limit_words(budget))
    return PartitionHistory(source, stream, kafka)


def limit_words(budget: Budget) -> str:
    limit = "memory" if budget.stopped == lib.SHL_MEMORY else "time"
    return f"The {limit} that the limit allows ended before the judgement did."
