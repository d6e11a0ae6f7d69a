"""What a verdict "invalid" is explained with, as data: timeline.py draws it, results.json keeps it.

An explanation is about one object. Operations are those of its window: the one at whose return no
order was left (the stuck one), those that prove it, those concurrent with that return, and what a
person needs to read them. An operation's ``call`` (a rank) names it: ranks are unique in a history.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shalott.checkers.history.concurrent import (
    FAIL,
    FAILED,
    INFO,
    INTEGER,
    NOTHING,
    OK,
    UNKNOWN,
    ConcurrentHistory,
    Operation,
    Values,
)
from shalott.checkers.history.value_text import value_text
from shalott.checkers.models.model import Meaning

STUCK: Final = "stuck"  # at its return no order of the operations was left
WITNESS: Final = "witness"  # with the stuck one it proves that there is no order
CONCURRENT: Final = "concurrent"  # it was under way when the stuck one returned
EARLIER: Final = "earlier"  # it had returned before, and the proof needs it
CONTEXT: Final = "context"  # it is near; the proof does not need it
TYPES: Final = ("ok", "fail", "info")  # by the codes of ConcurrentHistory.type

# What these return is what they are about; others are about what they were given.
_OBSERVERS: Final = frozenset(
    {"read", "dequeue", "pop", "poll", "receive", "get", "take", "tail", "contains"}
)
TEXT_MAX: Final = 200  # characters of an operation on a page (model_words.py)


class ShownOperation(msgspec.Struct, frozen=True, kw_only=True):
    process: int
    text: str  # "write 5", "read → 3"
    type: str  # ok, fail, info
    role: str  # stuck, witness, concurrent, earlier, context
    call: int  # rank of its invocation
    ret: int | None  # rank of its completion; None: it never completed
    call_ns: int | None = None
    ret_ns: int | None = None
    place: int  # of its invocation, in the file; Explanation.place_name says what it counts


class Step(msgspec.Struct, frozen=True, array_like=True):
    """An operation takes effect: its position in ``Explanation.operations``, the state after it."""

    operation: int
    state: str


class Blocked(msgspec.Struct, frozen=True, array_like=True):
    """An operation that could not be next, and why."""

    operation: int
    why: str


class PartialLinearization(msgspec.Struct, frozen=True):
    """An order that goes as far as any does, and what stops it."""

    begin: str  # the state in which the window begins
    steps: tuple[Step, ...]
    blocked: tuple[Blocked, ...] = ()
    before: tuple[int, ...] = ()  # called before the window; they took effect before it, too


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why the history of one object is not linearizable."""

    model: str
    reason: str  # one sentence in the domain's words
    by: str  # who found it: a monitor's name, or the general search
    key: str = ""  # the object; "" where there is one only
    operation_count: int = 0  # of the object's whole history
    prefix: int | None = None  # the prefix that is not linearizable ends with this return's rank
    prefix_count: int = 0  # operations called in that prefix
    prefix_is_shortest: bool = True  # False: a shorter one was not ruled out in time
    operations: tuple[ShownOperation, ...] = ()  # in the order of their calls
    linearizations: tuple[PartialLinearization, ...] = ()
    is_proof: bool = True  # the window alone is not linearizable
    is_minimal: bool = False  # and nothing more was found that the proof does not need
    meanings: dict[str, Meaning] = {}  # of the model, by f; none: it takes every f as it is
    fs: tuple[str, ...] = ()  # of a run's operations that were judged; of no run: ()
    place_name: str = "index"
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def stuck(self) -> int | None:
        """The stuck operation's position in ``operations``."""
        found = (i for i, shown in enumerate(self.operations) if shown.role == STUCK)
        return next(found, None)


def to_detail(explanations: Iterable[Explanation]) -> dict[str, object]:
    """For ``Result.detail``: what the report looks for to draw."""
    return {"linearizability": [msgspec.to_builtins(each) for each in explanations]}


def from_detail(detail: dict[str, object]) -> list[Explanation]:
    """What ``to_detail`` put there; empty if nothing did, or if what is there is another thing."""
    try:
        return msgspec.convert(detail.get("linearizability", []), list[Explanation])
    except msgspec.ValidationError:
        return []


def operations_of(history: ConcurrentHistory) -> list[Operation]:
    names = history.f.names
    outcome = (None, FAILED, UNKNOWN)  # by the codes of ConcurrentHistory.type
    columns = (
        history.f.codes.tolist(),
        _listed(history.argument),
        _listed(history.result),
        history.type.tolist(),
        history.process.tolist(),
    )
    return [
        Operation(names[f], argument, result if kind == OK else outcome[kind], process)
        for f, argument, result, kind, process in zip(*columns, strict=True)
    ]


def _listed(column: Values) -> list[Hashable]:
    numbers, forms = column.number.tolist(), column.forms
    return [
        None if kind == NOTHING else number if kind == INTEGER else forms[number]
        for kind, number in zip(column.kind.tolist(), numbers, strict=True)
    ]


def operation_text(operation: Operation, type: int, meaning: Meaning | None = None) -> str:
    """ "write 5", "read → 3", "cas 1 → 2", "dequeue → ?". ``meaning``: what its model reads.

    It may be long: see model_words.py.
    """
    f, argument, result = operation.f, operation.argument, operation.result
    parts = [f]
    is_observer = f in _OBSERVERS if meaning is None else meaning.result and f != "cas"
    if meaning is not None and not meaning.argument:
        argument = None
    elif meaning is not None and is_observer:
        # Both are read: neither is left out because it equals the other.
        end = "" if result is None and type != INFO and f not in _OBSERVERS else value_text(result)
        words = [f, value_text(argument), "failed" if type == FAIL else f"→ {end}" if end else ""]
        return " ".join(word for word in words if word)
    if f == "cas" and isinstance(argument, tuple) and len(argument) == 2:
        parts.append(f"{value_text(argument[0])} → {value_text(argument[1])}")
    elif argument is not None and not (is_observer and argument == result):
        parts.append(value_text(argument))
    if type == FAIL:
        parts.append("failed")
    elif type == INFO:
        if is_observer or (argument is None and meaning is None):
            parts.append("→ ?")
    elif is_observer or not (result is None or result is True or result == argument):
        parts.append(f"→ {value_text(result)}")
    return " ".join(parts)


@dataclass(slots=True)
class Violation:
    """Why one key's history is not linearizable. Rows are those of the history that was checked."""

    key: str
    by: str  # the monitor's name, or "general search (method)"
    reason: str  # one sentence in the domain's words
    word: str = ""  # of a monitor: order, lost, repeated, fresh, empty, stale, overlap, ...
    operations: tuple[int, ...] = ()  # rows that prove it; a monitor's word says in which order
    stuck: int | None = None  # the row at whose return no order of the operations was left
    prefix: int | None = None  # the rank of that return: the shortest invalid prefix ends there
    prefix_is_shortest: bool = True  # False: a shorter one was not ruled out in time


@dataclass(slots=True)
class Reading:
    """One way to read what a history does not say, and the verdict on it."""

    option: str  # how to ask for it: "nil=any"
    words: str  # "a read of nil is one that did not look"
    valid: bool | str  # of it and those before it, together


@dataclass(slots=True)
class Verdict:
    valid: bool | str  # True, False or "unknown"
    model: str
    how: str  # who decided: monitors, or the general search and its method
    passed_over: tuple[str, ...] = ()  # why monitors left keys to the general search
    cause: str = ""  # of "unknown": time, memory, cancelled, or what kept the engine from deciding
    progress: str = ""  # of "unknown": a sentence that says how far it got
    violation: Violation | None = None
    operations: int = 0
    keys: int = 0
    keys_decided: int = 0
    threads: int = 1
    elapsed_s: float = 0.0
    cpu_s: float = 0.0  # of all threads of the process
    memory_peak_bytes: int = 0  # that the engine and the model's states held
    notes: tuple[str, ...] = ()  # how the history was read, where it could be read otherwise
    readings: tuple[Reading, ...] = ()  # that, taken together, are not invalid, though this one is
    # What the rows of the violation are of, if not of the history that was given (drains.py).
    judged: ConcurrentHistory | None = field(default=None, repr=False)


class CheckInterrupted(KeyboardInterrupt):
    """Ctrl-C during a check. ``verdict`` is what was known by then: cause "cancelled"."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__()
        self.verdict = verdict
