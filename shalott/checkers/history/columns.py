"""The client operations of a history as numpy columns, for checkers that look at every operation.

Strings become small integer codes once (dictionary encoding), so that a million operations are
compared as integers. Nullable integers come with a mask; nothing here makes a Python object a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.text_columns import words_of
from shalott.core.history import History

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

NEVER = np.iinfo(np.int64).max  # the time of what never happened

# What consumers' clients write down between the operations that they are asked for: no plan asked
# for it, and it proves no service (docs/reference/consumers.md).
BETWEEN: Final = (
    *("channel", "consumer", "deliver", "ack", "nack", "reject", "recover", "blocked"),
    *("member", "assignment", "lock", "send-back", "commit", "moved"),
)
# Asked for, but of a client alone: done without regard to what the system makes of it.
UNANSWERED: Final = ("hang-up", "close-channel", "join", "leave", "die")
# Keys of publishes that go to no queue by name.
EXCHANGE: Final = "exchange/"


@dataclass(frozen=True, slots=True)
class Operations:
    """Rows of clients (process >= 0), in the history's order."""

    index: Ints
    process: Codes
    node: Words
    f: Words
    key: Words
    value: Ints  # 0 where there is none: see has_value
    has_value: Bools
    type: Words
    invoke_ns: Ints
    complete_ns: Ints  # NEVER where there is none
    redelivered: Bools  # false where unknown
    error: Words

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Bools) -> Operations:
        return Operations(**{name: getattr(self, name)[rows] for name in self.__slots__})


_LOOKED_AT = (
    "index", "process", "node", "f", "key", "value", "type", "invoke_ns", "complete_ns",
    "redelivered", "error",
)  # fmt: skip


def client_operations(history: History) -> Operations:
    ops = history.ops.select(_LOOKED_AT)
    process = _integers(ops["process"])
    mask = None if (process >= 0).all() else pa.array(process >= 0)
    if mask is not None:
        ops = ops.filter(mask)
    value = ops["value"]
    return Operations(
        index=_integers(ops["index"]),
        process=_integers(ops["process"]).astype(np.int32, copy=False),
        node=_words(ops["node"]),
        f=_words(ops["f"]),
        key=_words(ops["key"]),
        value=_integers(value, 0),
        has_value=_booleans(pc.is_valid(value)),
        type=_words(ops["type"]),
        invoke_ns=_integers(ops["invoke_ns"]),
        complete_ns=_integers(ops["complete_ns"], NEVER),
        redelivered=_booleans(pc.fill_null(ops["redelivered"], False)),
        error=_words(ops["error"]),
    )


def asked_operations(history: History) -> Operations:
    """Those that a plan asked for: without what consumers write down between them."""
    ops = client_operations(history)
    between = ops.f.among(BETWEEN)
    return ops.take(~between) if between.any() else ops


def _integers(column: pa.ChunkedArray, default: int | None = None) -> npt.NDArray[np.int64]:
    if default is not None and column.null_count:
        column = pc.fill_null(column, default)
    return np.asarray(column.to_numpy())


def _booleans(column: pa.ChunkedArray) -> Bools:
    return np.asarray(column.combine_chunks().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _words(column: pa.ChunkedArray) -> Words:
    if column.null_count == len(column):
        return Words(np.zeros(len(column), dtype=np.int32), ("",))
    if not pa.types.is_dictionary(column.type):
        return words_of(column)
    if column.null_count:
        column = pc.fill_null(column, "")
    encoded = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
    return Words(codes, tuple(encoded.dictionary.to_pylist()))


# Rows brought together by a small integer, quickly.

RADIX_MAX = 1 << 16  # numpy sorts integers of 16 bits by radix


def by_group(group: Ints) -> Ints:
    """A stable order by group."""
    if len(group) and int(group.min()) >= 0 and int(group.max()) < RADIX_MAX:
        return np.argsort(group.astype(np.uint16), kind="stable")
    return np.argsort(group, kind="stable")


def split_by(group: Ints) -> list[Ints]:
    """The positions of each group, in order within it."""
    if not len(group):
        return []
    order = by_group(group)
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
