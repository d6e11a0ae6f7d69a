"""What the engine found in a history of transactions (engine/txn.h), with values as Python's.

``find_anomalies`` reads a source batch by batch into the engine, which holds transactions as
columns, and judges them. The rest gives names and values to the numbers of its answer.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Literal

from shalott.checkers.engine import Budget, CData, ffi, lib, owned
from shalott.checkers.history.column_values import Keyword, Symbol
from shalott.checkers.reading.edn import EdnMap, decode
from shalott.checkers.reading.entries import EntrySource, Stream

NONE: Final = lib.SHL_NONE
NEVER: Final = lib.SHL_NEVER

Object = Literal["lists", "registers", "sets"]
_OBJECTS: Final[dict[str, int]] = {
    "lists": lib.SHL_TXN_LISTS,
    "registers": lib.SHL_TXN_REGISTERS,
    "sets": lib.SHL_TXN_SETS,
}
# How each object's writes are called: the first is how they are told.
WRITES: Final[dict[str, tuple[str, ...]]] = {
    "lists": ("append",),
    "registers": ("w", "write"),
    "sets": ("add",),
}
FOUND: Final = (
    "duplicate-elements",
    "cyclic-versions",
    "internal",
    "garbage-read",
    "G1a",
    "dirty-update",
    "G1b",
    "future-read",
    "incompatible-order",
    "lost-update",
)
CONTESTED: Final = lib.SHL_FOUND_CONTESTED
CYCLES: Final = ("G0", "G1c", "G-single-item", "G-nonadjacent-item", "G2-item")
EDGES: Final = ("ww", "wr", "rw", "process", "realtime")
TYPES: Final = ("ok", "fail", "info")
SOURCES: Final = {1: "wfr-keys", 2: "sequential-keys", 4: "linearizable-keys"}


_NO_SET: Final[frozenset[Hashable]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What to look for, and what may be assumed of the versions of registers."""

    object: Object
    wfr_keys: bool = False
    sequential_keys: bool = False
    linearizable_keys: bool = False
    unwritten_initial: bool = False
    no_lost_updates: bool = False
    unwritten_ignored: bool = False
    contested_ignored: bool = False
    kept: int = 32
    search_steps: int = 50_000_000


@dataclass(frozen=True, slots=True)
class Mop:
    """A micro-operation. ``value``: what was written or read; ``is_known`` is False of a read that
    did not say."""

    f: str  # "r", or the object's write
    key: Hashable
    value: Hashable
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """An edge of a cycle: from ``txn`` to that of the next step. ``version``: what its end wrote,
    or read, of which key; None of an edge without data."""

    txn: int
    kind: str  # one of EDGES
    key: int
    version: int


@dataclass(frozen=True, slots=True)
class Cycle:
    name: str  # as Elle names it: G-single-item-realtime
    steps: tuple[Step, ...]
    is_shortest: bool


class Found:
    """The engine's answer. Indexes are those of its arrays; it lives as long as this does."""

    def __init__(self, txns: CData, stream: Stream, object_: Object) -> None:
        self._txns = txns
        self._stream = stream  # the texts' ids are the reader's
        self.object = object_
        self.view: CData = ffi.new("shl_txn_view *")
        lib.shl_txns_view(txns, self.view)

    # --- transactions -----------------------------------------------------------------------------

    def txn(self, at: int) -> CData:
        """A ``shl_txn``."""
        return self.view.txn[at]

    def place(self, at: int) -> int:
        """Its completion's index, or its line where the history has none."""
        txn = self.txn(at)
        return int(txn.index if txn.index >= 0 else txn.line)

    def process(self, at: int) -> int:
        return int(lib.shl_txn_process(self._txns, self.txn(at).process))

    def mops(self, at: int) -> list[Mop]:
        txn = self.txn(at)
        return [self.mop(number) for number in range(txn.mops, txn.mops + txn.count)]

    def mop(self, number: int) -> Mop:
        mop = self.view.mop[number]
        key = self.key(mop.key)
        if mop.f == lib.SHL_MOP_WRITE:
            return Mop(WRITES[self.object][0], key, self.version(mop.value))
        if mop.length == NONE:
            return Mop("r", key, None, is_known=False)
        if self.object == "registers":
            return Mop("r", key, None if mop.value == NONE else self.version(mop.value))
        if mop.value == NONE:
            return Mop("r", key, _NO_SET if self.object == "sets" else ())
        seen = self.list_of(mop.value, mop.length)
        return Mop("r", key, frozenset(seen) if self.object == "sets" else seen)

    def list_of(self, branch: int, length: int | None = None) -> tuple[Hashable, ...]:
        """A list, or its first elements."""
        of = self.view.branch[branch]
        count = of.length if length is None else length
        return tuple(self.version(of.version[at]) for at in range(count))

    # --- values -----------------------------------------------------------------------------------

    def key(self, key: int) -> Hashable:
        return self._value(self.view.key[key])

    def contested_keys(self) -> list[Hashable]:
        """The first of the keys to which a value was written more than once."""
        named = min(len(self.view.contested_key), self.view.contested_keys)
        return [self.key(self.view.contested_key[at]) for at in range(named)]

    def version(self, version: int) -> Hashable:
        return None if version == NONE else self._value(self.view.version[version].raw)

    def _value(self, raw: int) -> Hashable:
        nodes = ffi.new("shl_node const **")
        count = lib.shl_txn_form(self._txns, raw, nodes)
        if not count:
            return int(raw)
        return _Form([(nodes[0][at].kind, nodes[0][at].number) for at in range(count)],
                     self._stream).value()  # fmt: skip

    # --- anomalies --------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        """How many of each there are, by Elle's name; those that are not there are left out."""
        counts = {name: int(self.view.found_count[at]) for at, name in enumerate(FOUND)}
        for level, suffix in enumerate(("", "-process", "-realtime")):
            for kind, name in enumerate(CYCLES):
                counts[name + suffix] = int(self.view.cycle_count[level * len(CYCLES) + kind])
        return {name: count for name, count in counts.items() if count}

    def stopped(self) -> list[tuple[str, int]]:
        """Kinds that may be there, and at which level: their search was stopped."""
        return [
            (name, level)
            for level in range(3)
            for kind, name in enumerate(CYCLES)
            if self.view.exists_count[level * len(CYCLES) + kind]
        ]

    def findings(self) -> list[CData]:
        """``shl_txn_found``: the first of each kind."""
        return [self.view.finding[at] for at in range(self.view.found)]

    def cycles(self) -> list[Cycle]:
        return [self._cycle(self.view.cycle[at]) for at in range(self.view.cycles)]

    def _cycle(self, cycle: CData) -> Cycle:
        steps = []
        for at in range(cycle.first, cycle.first + cycle.steps):
            step = self.view.step[at]
            key = NONE if step.version == NONE else int(self.view.version[step.version].key)
            steps.append(Step(int(step.txn), EDGES[step.kind], key, int(step.version)))
        name = CYCLES[cycle.kind] + ("", "-process", "-realtime")[cycle.level]
        return Cycle(name, tuple(steps), bool(cycle.shortest))


class _Form:
    """A value that is no plain integer, from its nodes."""

    def __init__(self, nodes: list[tuple[int, int]], stream: Stream) -> None:
        self._nodes = iter(nodes)
        self._stream = stream

    def value(self) -> Hashable:
        kind, number = next(self._nodes)
        if kind == lib.SHL_NODE_INTEGER:
            return number
        if kind < lib.SHL_NODE_INTEGER:
            return None if kind == lib.SHL_NODE_NIL else kind == lib.SHL_NODE_TRUE
        if kind < lib.SHL_NODE_LIST:
            text = self._stream.text(number)
            if kind == lib.SHL_NODE_OTHER:
                value = decode(text)
                return Symbol(text) if isinstance(value, str) else value
            return Keyword(text) if kind == lib.SHL_NODE_KEYWORD else text
        children = tuple(self.value() for _ in range(number))
        if kind == lib.SHL_NODE_MAP:
            return EdnMap(zip(children[::2], children[1::2], strict=True))
        return frozenset(children) if kind == lib.SHL_NODE_SET else children


def find_anomalies(source: EntrySource, assumed: Assumptions, budget: Budget) -> Found:
    """Raises UnreadableHistory, MemoryError and TimeoutError."""
    stream = source.batches(budget)
    options = ffi.new("shl_txn_options *")
    options.object = _OBJECTS[assumed.object]
    options.wfr_keys = assumed.wfr_keys
    options.sequential_keys = assumed.sequential_keys
    options.linearizable_keys = assumed.linearizable_keys
    options.unwritten_initial = assumed.unwritten_initial
    options.no_lost_updates = assumed.no_lost_updates
    options.unwritten_ignored = assumed.unwritten_ignored
    options.contested_ignored = assumed.contested_ignored
    options.kept = assumed.kept
    options.search_steps = assumed.search_steps
    names = ffi.new("shl_txn_names *")
    names.read, names.read_long = stream.id_of("r"), stream.id_of("read")
    for at in range(len(names.write)):
        known = WRITES[assumed.object]
        names.write[at] = stream.id_of(known[at]) if at < len(known) else NONE
    made = lib.shl_txns_new(options, names, budget)
    if made == ffi.NULL:
        raise MemoryError("no memory for the history")
    txns = owned(made, lib.shl_txns_free, budget)
    for batch in stream:
        if not lib.shl_txns_feed(txns, batch):
            _raise(budget)
    if not lib.shl_txns_judge(txns):
        _raise(budget)
    return Found(txns, stream, assumed.object)


def _raise(budget: Budget) -> None:
    if budget.stopped == lib.SHL_MEMORY:
        raise MemoryError(f"the limit of memory: {budget.bytes_peak:,} bytes were held")
    raise TimeoutError("the limit of time")
