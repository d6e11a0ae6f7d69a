"""Which model or judge a history wants, as its operations and the forms of their values tell.

Judges say themselves what they want (``JudgeRecord.wants``); what models want stands here. Several
may fit one history, where one promises more than another: a FIFO queue is an unordered queue, a
lock with an owner is a lock. Then the one that promises least is taken, since what breaks its
promise breaks the others', and the others are named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from shalott.checkers.judge import JUDGES, find_judge
from shalott.checkers.reading.entries import NEMESIS, EntrySource
from shalott.checkers.reading.history_files import (
    FOREIGN,
    JEPSEN,
    JSON,
    KEY_VALUE,
    read_history,
    told_dialect,
)
from shalott.checkers.reading.shape import (
    EMPTY,
    ENTRIES,
    INTEGER,
    LIST,
    MAP,
    MOPS,
    NIL,
    PAIR,
    SET,
    Shape,
    ShapeOf,
    shape_of_history,
)
from shalott.checkers.reading.text_history import read_text
from shalott.core.errors import UnreadableHistory

_HEAD_BYTES: Final = 4 << 20
_TAIL_BYTES: Final = 256 << 10
_TRANSACTION: Final = "txn"  # to Elle, what has no f is one


@dataclass(frozen=True, slots=True)
class Wanted:
    """What fits a history. ``name``: what is taken, "" if none, or several that have nothing in
    common (``others``). ``others``: what fits, too, and promises more."""

    name: str
    others: tuple[str, ...] = ()
    keyed: bool = False  # values are [key value]


def wanted(shape: Shape) -> Wanted:
    if not shape.fs:
        return Wanted("register")  # nothing was done, which every model allows
    if _is_of_knossos(shape):
        return Wanted("multi-register", (), shape.keyed)
    judges = [name for name in JUDGES if find_judge(name).wants(shape)]
    rather = next((name for name in _RATHER if name in judges), "")
    if rather or len(judges) == 1:
        return Wanted(rather or judges[0], (), shape.keyed)
    if judges:
        return Wanted("", tuple(judges), shape.keyed)
    for fits, names in _MODELS:
        if fits(shape):
            return Wanted(names[0], names[1:], shape.keyed)
    return Wanted("")


# Of several judges that want one history, who looks at all that the others look at.
_RATHER: Final = ("set-full", "total-queue")


# --- what models want -----------------------------------------------------------------------------

_READS, _WRITES = ("read", "get"), ("write", "put", "set")
_GIVES = ("enqueue", "offer", "publish", "produce", "send", "put", "add")
_TAKES = ("dequeue", "poll", "receive", "consume", "take", "remove", "drain")
_CAS = ("cas", "compare-and-set")
_VALUES: Final = frozenset({LIST, PAIR, EMPTY, SET})


def _is_log(shape: Shape) -> bool:
    """Sent or appended at an offset, and read from one."""
    if not shape.within("append", "send", "read", "poll", "tail"):
        return False
    placed = shape.result("append") | shape.result("send")
    asked = shape.argument("read") | shape.argument("poll")
    return placed <= {INTEGER, NIL} and asked == {INTEGER}


def _is_queue(shape: Shape) -> bool:
    takes = [f for f in _TAKES if f in shape.fs]
    asks_for_nothing = all(shape.argument(f) <= {NIL} for f in takes)
    return (
        shape.within(*_GIVES, *_TAKES)
        and shape.has_any(*_GIVES)
        and asks_for_nothing
        and (bool(takes) or shape.has_any("enqueue", "publish", "produce"))
    )


def _is_set(shape: Shape) -> bool:
    if not shape.within("add", "insert", "remove", "delete", "contains", "read"):
        return False
    return shape.has_any("add", "insert") and shape.result("read") <= _VALUES


def _is_counter(shape: Shape) -> bool:
    changes = ("inc", "dec", "increment", "decrement", "add")
    return shape.within(*changes, *_READS) and shape.has_any(*changes)


def _has_tokens(shape: Shape) -> bool:
    told = (shape.result("acquire") | shape.result("lock")) - {NIL}
    keys = shape.map_keys.get("acquire", frozenset()) | shape.map_keys.get("lock", frozenset())
    return told == {INTEGER} or (told == {MAP} and bool(keys & {"fence", "token"}))


def _is_lock(shape: Shape) -> bool:
    return shape.within("acquire", "release", "lock", "unlock") and shape.has_any("acquire", "lock")


def _counts_permits(shape: Shape) -> bool:
    return INTEGER in shape.argument("acquire") and shape.within("acquire", "release")


def _is_transactional(shape: Shape) -> bool:
    return (
        shape.within("txn", *_READS, *_WRITES)
        and shape.has("txn")
        and set(shape.mops) <= {"read", "write", "r", "w"}
        and MOPS in shape.argument("txn")
    )


def _is_of_knossos(shape: Shape) -> bool:
    """Its model of several registers spells its words out; Elle's transactions have :r and :w."""
    return _is_transactional(shape) and not {"r", "w"} & set(shape.mops)


def _is_of_registers(shape: Shape) -> bool:
    """Registers written and read together: values are maps, or lists of pairs."""
    if not shape.within(*_READS, *_WRITES):
        return False
    forms = shape.argument("write") | shape.result("read") - {NIL}
    return bool(forms) and forms <= {MAP}


# The first that fits is taken; of its names the first, which promises least.
_MODELS: Final[tuple[tuple[Callable[[Shape], bool], tuple[str, ...]], ...]] = (
    (_is_transactional, ("multi-register",)),
    (_is_of_registers, ("multi-register",)),
    (lambda shape: shape.within(*_READS, *_WRITES, *_CAS) and shape.has_any(*_CAS),
     ("cas-register",)),
    (lambda shape: shape.has_any("append") and shape.has_key
     and shape.within("append", *_READS, *_WRITES), ("key-value",)),
    (lambda shape: shape.within(*_READS, *_WRITES), ("register",)),
    (_is_log, ("log",)),
    (lambda shape: shape.within("append", *_READS, "put"), ("key-value",)),
    (lambda shape: _is_lock(shape) and _counts_permits(shape), ("semaphore",)),
    (lambda shape: _is_lock(shape) and _has_tokens(shape), ("fenced-lock",)),
    (_is_lock, ("mutex", "owner-lock", "reentrant-lock")),
    (_is_queue, ("unordered-queue", "fifo-queue")),
    (_is_set, ("set",)),
    (_is_counter, ("counter",)),
    (lambda shape: shape.within("push", "pop", "drain"), ("stack",)),
    (lambda shape: shape.within("insert", "enqueue", "dequeue", "remove"), ("priority-queue",)),
)  # fmt: skip


# --- of a file ------------------------------------------------------------------------------------


def shape_of_file(path: Path) -> Shape:
    """Of a file that is neither a pipe nor compressed. Raises UnreadableHistory."""
    head, tail = _ends(path)
    dialect = told_dialect(path, head)
    if not dialect:
        return shape_of_history(read_history(path))
    making = ShapeOf()
    if dialect in (JEPSEN, KEY_VALUE, JSON):
        entries = JSON if dialect == JSON else JEPSEN
        _add(making, EntrySource.of_text(head, entries, str(path)))
        if tail:
            _add(making, EntrySource.of_text(tail, entries, str(path)))
        return making.shape()
    if dialect in FOREIGN:
        _add(making, EntrySource.of_path(path))
        return making.shape()
    return shape_of_history(read_text(path, dialect, False))


def _ends(path: Path) -> tuple[bytes, bytes]:
    """The beginning of a file, and its end, whole lines, if that is not in it."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, 2)
            if size <= len(head):
                return head, b""
            file.seek(max(len(head), size - _TAIL_BYTES))
            tail = file.read().partition(b"\n")[2]
    except OSError as error:
        raise UnreadableHistory(f"cannot read {path}: {error.strerror}") from error
    return head[: head.rfind(b"\n") + 1] or head, tail.rstrip().rstrip(b")]")


def _add(making: ShapeOf, source: EntrySource) -> None:
    known = 0
    try:
        for entry in islice(source.entries(), ENTRIES):
            known += 1
            if entry.process != NEMESIS:
                f = entry.f or _TRANSACTION
                making.add(entry.type, f, entry.value, has_key="key" in entry.extra)
                if entry.error is not None:
                    making.add_error(source.show(entry.error))
    except UnreadableHistory:
        if not known:
            raise  # who reads all of it will say what is wrong
