"""What a verdict "invalid" is explained with, as data: it is drawn by timeline.py and stored as JSON.

An explanation is about one object. Operations are those of its window: the one at whose return no
order was left (the stuck one), those that prove it, those concurrent with that return, and what a
person needs to read them. An operation's ``call`` (a rank) names it: ranks are unique in a history.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

import msgspec

from checkers.concurrent import FAIL, INFO, UNKNOWN, Operation

STUCK: Final = "stuck"  # at its return no order of the operations was left
WITNESS: Final = "witness"  # with the stuck one it proves that there is no order
CONCURRENT: Final = "concurrent"  # it was under way when the stuck one returned
EARLIER: Final = "earlier"  # it had returned before; the window needs it, or it is context
TYPES: Final = ("ok", "fail", "info")  # by the codes of ConcurrentHistory.type

# What these return is what they are about; others are about what they were given.
_OBSERVERS: Final = frozenset(
    {"read", "dequeue", "poll", "receive", "get", "take", "tail", "contains"}
)
_TEXT_MAX: Final = 200


class ShownOperation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the window."""

    process: int
    text: str  # "write 5", "read → 3"
    type: str  # ok, fail, info
    role: str  # stuck, witness, concurrent, earlier
    call: int  # rank of its invocation
    ret: int | None  # rank of its completion; None: it never completed
    call_ns: int | None = None
    ret_ns: int | None = None
    place: int  # of its invocation, in the file; Explanation.place_name says what it counts


class Step(msgspec.Struct, frozen=True, array_like=True):
    """An operation takes effect: its position in ``Explanation.operations``, the state it leaves."""

    operation: int
    state: str


class Blocked(msgspec.Struct, frozen=True, array_like=True):
    """An operation that could not be next, and why."""

    operation: int
    why: str


class PartialLinearization(msgspec.Struct, frozen=True):
    """An order that goes as far as any does, and what stops it."""

    steps: tuple[Step, ...]
    blocked: tuple[Blocked, ...] = ()


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why the history of one object is not linearizable."""

    model: str
    reason: str  # one sentence in the domain's words
    by: str  # who found it: a lane's name, or the general search
    key: str = ""  # the object; "" where there is one only
    operation_count: int = 0  # of the object's whole history
    prefix: int | None = None  # the shortest prefix that is not linearizable ends with this event
    prefix_count: int = 0  # operations called in that prefix
    begin: str = ""  # the state in which the window begins; "" if it is not known
    operations: tuple[ShownOperation, ...] = ()  # in the order of their calls
    linearizations: tuple[PartialLinearization, ...] = ()
    is_proof: bool = True  # the window alone is not linearizable
    is_minimal: bool = False  # and without any one of its operations it would be
    place_name: str = "index"
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def stuck(self) -> int | None:
        """The stuck operation's position in ``operations``."""
        found = (i for i, shown in enumerate(self.operations) if shown.role == STUCK)
        return next(found, None)


def to_detail(explanations: Iterable[Explanation]) -> dict[str, Any]:
    """For ``Result.detail``: what the report looks for to draw."""
    return {"linearizability": [msgspec.to_builtins(each) for each in explanations]}


def from_detail(detail: dict[str, Any]) -> list[Explanation]:
    """What ``to_detail`` put there; empty if nothing did, or if what is there is another thing."""
    try:
        return msgspec.convert(detail.get("linearizability", []), list[Explanation])
    except msgspec.ValidationError:
        return []


def value_text(value: Hashable) -> str:
    """A value as people write it."""
    if value is None:
        return "nil"
    if value is UNKNOWN:
        return "?"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{' '.join(value_text(part) for part in value)}]"
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(value_text(part) for part in value))}}}"
    return str(value)


def operation_text(operation: Operation, type: int) -> str:
    """ "write 5", "read → 3", "cas 1 → 2", "dequeue → ?"."""
    f, argument, result, _ = operation
    parts = [f]
    is_observer = f in _OBSERVERS
    if f == "cas" and isinstance(argument, tuple) and len(argument) == 2:
        parts.append(f"{value_text(argument[0])} → {value_text(argument[1])}")
    elif argument is not None and not (is_observer and argument == result):
        parts.append(value_text(argument))
    if type == FAIL:
        parts.append("failed")
    elif type == INFO:
        if is_observer or argument is None:
            parts.append("→ ?")
    elif is_observer or not (result is None or result is True or result == argument):
        parts.append(f"→ {value_text(result)}")
    text = " ".join(parts)
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
