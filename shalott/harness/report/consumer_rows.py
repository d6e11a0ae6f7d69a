"""What the histories of the workloads ``consume`` and ``group`` say of consumers, as columns.

docs/reference/consumers.md says what each row is. A delivery is a row, so there may be a million of
them: the JSON of ``extra`` is read by Arrow, column by column, and nothing here makes a Python
object a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json

from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints
from shalott.core.history import History

Floats = npt.NDArray[np.float64]

# What a client asks a broker and waits for. Other rows say how long something was so, or came
# unasked, or are too few to be drawn as a rate.
ROUND_TRIPS = ("enqueue", "send", "dequeue", "poll", "commit", "send-back")

DEAD_LETTERS = "%DLQ%"  # what the queues of groups' dead letters begin with; no other is read here

_BLOCK_BYTES = 1 << 24  # no row is longer
_LARGE = pa.large_string()
_DEATHS = pa.list_(pa.struct([("queue", pa.string()), ("reason", pa.string())]))

# Fields of ``extra`` that are read; ``tag`` is a delivery's number in the one, a word in the other.
_CONSUME = pa.schema(
    [
        *((name, pa.string()) for name in ("consumer", "channel", "ended", "error")),
        *((name, pa.int64()) for name in ("tag", "upto", "prefetch", "active_ns")),
        *((name, pa.bool_()) for name in ("requeue", "no_ack")),
        ("to", pa.list_(pa.string())),
        ("deaths", _DEATHS),
    ]
)
_GROUP = pa.schema(
    [
        *((name, pa.string()) for name in ("member", "group", "outcome", "ended", "why", "tag")),
        *((name, pa.int64()) for name in ("delay",)),
        ("broadcast", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("records", pa.list_(pa.list_(pa.int64()))),
    ]
)
_WANTED = {
    "consume": (
        *("enqueue", "channel", "consumer", "deliver", "ack", "nack", "reject", "recover"),
        *("dequeue", "delete-queue", "purge-queue", "blocked"),
    ),
    "group": ("send", "member", "assignment", "deliver", "reset", "poll"),
}


@dataclass(frozen=True, slots=True)
class Names:
    """A string column as positions in ``names``; -1 where it is null."""

    codes: Codes
    names: tuple[str, ...]

    def take(self, rows: Ints) -> Names:
        return Names(self.codes[rows], self.names)

    def words(self) -> list[str]:
        return ["" if code < 0 else self.names[code] for code in self.codes.tolist()]


@dataclass(frozen=True, slots=True)
class Rows:
    """The clients' rows of one workload, in the history's order; ``extra`` as its columns.

    ``kind`` is ``consume`` or ``group``. ``end_ns`` is NEVER where a row has no end.
    """

    kind: str
    table: pa.Table
    f: Names
    begin_ns: Ints
    end_ns: Ints
    value: Ints  # 0 where there is none: see has_value
    has_value: Bools

    def of(self, *fs: str) -> Ints:
        """Positions of the rows with such an f."""
        wanted = [code for code, name in enumerate(self.f.names) if name in fs]
        return np.flatnonzero(np.isin(self.f.codes, wanted))

    def names(self, column: str) -> Names:
        return names_of(self.table[column])

    def names_equal(self, column: str, name: str) -> Bools:
        return flags_of(pc.equal(self.table[column], name))

    def integers(self, column: str, default: int) -> Ints:
        return integers_of(self.table[column], default)

    def flags(self, column: str) -> Bools:
        """False where unknown."""
        return flags_of(self.table[column])


def read_rows(history: History) -> Rows | None:
    """The rows about consumers; None if the run had none, or they are not as the contract says."""
    ops = history.ops
    seen = set(pc.unique(ops["f"]).to_pylist())
    if seen & {"member", "assignment"}:
        kind, fields = "group", _GROUP
    elif "consumer" in seen:
        kind, fields = "consume", _CONSUME
    else:
        return None
    mine = pc.and_(pc.greater_equal(ops["process"], 0), pc.is_in(ops["f"], pa.array(_WANTED[kind])))
    dead = pc.starts_with(ops["key"], DEAD_LETTERS)
    ops = ops.filter(pc.and_(mine, pc.or_(dead, pc.not_equal(ops["f"], "poll"))))
    try:
        extra = read_extra(ops["extra"], fields)
    except pa.ArrowInvalid:
        return None
    for name in fields.names:
        ops = ops.append_column(f"x_{name}", extra[name])
    return Rows(
        kind=kind,
        table=ops.drop_columns(["extra"]),
        f=names_of(ops["f"]),
        begin_ns=integers_of(ops["invoke_ns"], 0),
        end_ns=integers_of(ops["complete_ns"], NEVER),
        value=integers_of(ops["value"], 0),
        has_value=flags_of(pc.is_valid(ops["value"])),
    )


def read_extra(column: pa.ChunkedArray, fields: pa.Schema) -> pa.Table:
    """The objects of a column ``extra`` as a table. Raises ArrowInvalid if a field is another type.

    What is null has no field.
    """
    if not len(column):
        return fields.empty_table()
    texts = pc.fill_null(column, "{}").cast(_LARGE)
    lines = pc.binary_join_element_wise(texts, pa.scalar("", _LARGE), pa.scalar("\n", _LARGE))
    text = lines.combine_chunks().buffers()[2]
    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=fields, unexpected_field_behavior="ignore"
        ),
    )


def names_of(column: pa.ChunkedArray | pa.Array) -> Names:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    encoded = pc.dictionary_encode(column)
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return Names(np.asarray(codes, dtype=np.int32), tuple(encoded.dictionary.to_pylist()))


def integers_of(column: pa.ChunkedArray, default: int) -> Ints:
    filled = pc.fill_null(column, default).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def flags_of(column: pa.ChunkedArray) -> Bools:
    filled = pc.fill_null(column, False).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.bool_)


def pairs(*parts: tuple[Ints | Codes, Ints]) -> tuple[Ints, ...]:
    """One number for each (lane, value), the same in all parts for the same pair.

    Lanes and values are small or large integers; lanes of -1 are kept apart from the others.
    """
    values = np.concatenate([value for _, value in parts])
    lanes = np.concatenate([np.asarray(lane, dtype=np.int64) + 1 for lane, _ in parts])
    _, dense = np.unique(values, return_inverse=True)
    both = lanes * (int(dense.max(initial=0)) + 1) + dense
    cuts = np.cumsum([len(value) for _, value in parts])[:-1]
    return tuple(np.split(both, cuts))


def common(*columns: Names) -> tuple[list[Codes], tuple[str, ...]]:
    """The columns' codes in one numbering of all their names."""
    place: dict[str, int] = {}
    for column in columns:
        for name in column.names:
            place.setdefault(name, len(place))
    codes = []
    for column in columns:
        table = np.array([*(place[name] for name in column.names), -1], dtype=np.int32)
        codes.append(table[column.codes])
    return codes, tuple(place)
