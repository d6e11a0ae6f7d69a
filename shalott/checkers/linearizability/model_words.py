"""What a model's states, and its refusals, are called in the domain's words."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Sequence
from itertools import pairwise
from os.path import commonprefix
from typing import Final

from shalott.checkers.history.column_values import exact, original
from shalott.checkers.history.concurrent import FAILED, NEVER, UNKNOWN, Operation
from shalott.checkers.history.value_text import value_text
from shalott.checkers.linearizability.order_search import Part
from shalott.checkers.linearizability.window import LogPart
from shalott.checkers.models import Model, own_name
from shalott.checkers.models.locks import FREE

_VALUE_MAX: Final = 80  # characters of a value in a sentence
_STATES_MAX: Final = 4  # named in a sentence

# What the object is called in a sentence.
_OBJECTS: Final = {
    "register": "the register",
    "cas-register": "the register",
    "multi-register": "the registers",
    "key-value": "the key",
    "fifo-queue": "the queue",
    "unordered-queue": "the queue",
    "stack": "the stack",
    "priority-queue": "the queue",
    "log": "the log",
    "mutex": "the lock",
    "owner-lock": "the lock",
    "reentrant-lock": "the lock",
    "fenced-lock": "the lock",
    "reentrant-fenced-lock": "the lock",
    "semaphore": "the semaphore",
    "owned-semaphore": "the semaphore",
    "set": "the set",
    "counter": "the counter",
}


LOCKS: Final = ("mutex", "owner-lock", "reentrant-lock", "fenced-lock", "reentrant-fenced-lock")


def whole(value: Hashable) -> str:
    """A value as a state holds it: as ``exact`` has it."""
    return value_text(original(value))


def plain(value: Hashable) -> str:
    """The same, not too long."""
    return cut_apart([whole(value)], _VALUE_MAX)[0]


def object_name(model: str) -> str:
    """``model``: the name of one of our own, or "" (``own_name``)."""
    return _OBJECTS.get(model, "the object")


def state_text(model: Model, state: Hashable) -> str:
    """What the object is or has: "holds 3", "is free", "is empty". One value may be long."""
    name = own_name(model)
    if isinstance(model, LogPart) and isinstance(state, tuple):
        return _log_text(state)
    if name in ("register", "cas-register", "key-value") and isinstance(state, tuple):
        return f"holds {whole(state[0])}"
    if name == "multi-register" and isinstance(state, frozenset):
        pairs = sorted(f"{value_text(key)} = {plain(value)}" for key, value in state)
        return f"hold {', '.join(pairs)}" if pairs else "hold nothing yet"
    if name in ("fifo-queue", "priority-queue", "set", "stack", "unordered-queue") and not state:
        return "is empty"
    if name == "fifo-queue" and isinstance(state, tuple):
        return f"holds {_listed(map(plain, state))}"
    if name == "stack" and isinstance(state, tuple):
        return f"holds {_listed(map(plain, reversed(state)))}"  # the next one first, as in a queue
    if name == "priority-queue" and isinstance(state, tuple):
        return f"holds {_listed(plain(value) for _, value in state)}"
    if name == "unordered-queue" and isinstance(state, frozenset):
        return f"holds {_listed(sorted(plain(v) + (f' ×{n}' if n > 1 else '') for v, n in state))}"
    if name == "set" and isinstance(state, frozenset):
        return f"holds {_listed(sorted(map(plain, state)))}"
    if name == "log" and isinstance(state, tuple):
        return _log_text(tuple(enumerate(state)))
    return _lock_text(name, state)


def _lock_text(model: str, state: Hashable) -> str:
    if model == "mutex":
        return "is held" if state else "is free"
    if model == "owner-lock":
        return "is free" if state == FREE else f"is held by process {state}"
    if model in ("reentrant-lock", "fenced-lock") and isinstance(state, tuple):
        owner, number = state
        held = "is free" if owner == FREE else f"is held by process {owner}"
        if model == "reentrant-lock":
            return f"{held}, {number} times" if owner != FREE and number > 1 else held
        return held if number is None else f"{held}, last token {number}"
    if model == "reentrant-fenced-lock" and isinstance(state, tuple):
        owner, number, _, token = state
        held = _lock_text("reentrant-lock", (owner, number))
        return held if token is None else f"{held}, last token {token}"
    if model == "owned-semaphore" and isinstance(state, frozenset):
        return f"is held by {_listed(sorted(f'process {p} ×{n}' for p, n in state)) or 'none'}"
    if model == "semaphore":
        return f"has {state} free"
    if model == "counter":
        return f"is at {state}"
    if model == "":
        return f"is {state!r}"  # what the state of a foreign model means
    return f"is {value_text(state)}"


def _log_text(filled: tuple[tuple[int, Hashable], ...]) -> str:
    """The last (offset, value) pairs."""
    shown = ", ".join(f"{plain(value)} at {offset}" for offset, value in filled[-6:])
    return f"holds {'… ' if len(filled) > 6 else ''}{shown}" if filled else "is empty"


def _listed(values: Iterable[str]) -> str:
    known = list(values)
    return ", ".join(known[:6]) + (f" and {len(known) - 6} more" if len(known) > 6 else "")


def states_text(model: Model, states: Iterable[Hashable], saw: str = "") -> str:
    """ "could only hold 1 or 5": all that was possible. Long ones are cut where they differ, from
    ``saw``, too."""
    texts = list(dict.fromkeys(state_text(model, state) for state in states))
    verb, parts = "", texts
    words = {text.partition(" ")[0] for text in texts}
    if len(words) == 1:
        verb = words.pop()
        parts = [text.partition(" ")[2] for text in texts]
    infinitive = {"holds": "hold", "is": "be", "has": "have", "hold": "hold"}.get(verb, verb)
    parts = sorted(parts, key=_by_number)
    parts = cut_apart(parts, _VALUE_MAX, [saw])
    if len(parts) > _STATES_MAX + 1:
        parts = [*parts[:_STATES_MAX], f"{len(parts) - _STATES_MAX} others"]
    return f"could only {infinitive} {' or '.join(parts)}".replace("  ", " ")


def _by_number(text: str) -> tuple[bool, int, str]:
    """Numbers by size, and before all else."""
    is_number = text.lstrip("-").isdigit()
    return not is_number, int(text) if is_number else 0, text


def why_not(model: Model, state: Hashable, operation: Operation) -> str:
    """Why ``operation`` can't be next in ``state``: what it saw, and what it would have seen."""
    if operation.result is UNKNOWN:
        saw = ""
    else:
        saw = observed(operation) if own_name(model) else _returned(operation.result)
    holds = state_text(model, state)
    (verb, before), (word, rest) = (_split(text) for text in (saw, holds))
    before, rest = cut_apart([before, rest], _VALUE_MAX)
    saw, now = verb + before, f"{object_name(own_name(model))} {word}{rest}"
    return f"{saw}, but {now}" if saw else f"can't be next: {now}"


def _split(text: str) -> tuple[str, str]:
    """The first word, and what follows: "returned ", "3"."""
    word, blank, rest = text.partition(" ")
    return word + blank, rest


def _returned(result: Hashable) -> str:
    """What an operation saw whose meaning only a foreign model knows."""
    if result is FAILED:
        return "failed"
    return "" if result is None else f"returned {value_text(result)}"


def observed(operation: Operation) -> str:
    """What its outcome says about the object."""
    f, result = operation.f, operation.result
    if f == "cas" and isinstance(operation.argument, tuple) and len(operation.argument) == 2:
        before = value_text(operation.argument[0])
        failed = result is FAILED or result is False
        return f"failed, so it was not {before}" if failed else f"needs {before}"
    if f in ("dequeue", "pop"):
        return "found it empty" if result is None else f"took {value_text(result)}"
    if f in ("acquire", "release") and result is None:
        return "needs it free" if f == "acquire" else "needs it held"
    if f == "append" and result is not None:
        return f"went to offset {value_text(result)}"
    if f in ("read", "get", "tail", "contains", "acquire"):
        return f"returned {value_text(result)}"
    return ""


def stuck_sentence(
    model: Model,
    text: str,
    process: int,
    operation: Operation,
    states: Sequence[Hashable],
    cause: str,
) -> str:
    """ "read → 3 of process 7 returned when the register could only hold 1 or 5: ..."."""
    saw = "failed" if operation.result is FAILED else "returned"
    seen = "" if operation.result is UNKNOWN else value_text(operation.result)
    could = states_text(model, states, seen)
    if seen and text.endswith(seen):
        others = [state_text(model, state).partition(" ")[2] for state in states]
        short = cut_apart([seen], _VALUE_MAX, others)[0]
        text, cause = text.removesuffix(seen) + short, cause.replace(seen, short)
    sentence = f"{text} of process {process} {saw} when {object_name(own_name(model))} "
    sentence = sentence.replace(" failed of ", " of ") + could
    return sentence + (f": {cause}" if cause else "")


def cause_of(model: Model, parts: Sequence[Part], stuck: Part, states: Sequence[Hashable]) -> str:
    """A clause on where the value came from that the stuck operation saw; "" if not plain."""
    name, value = own_name(model), stuck.operation.result
    if value is None or value is FAILED or stuck.operation.f not in ("read", "dequeue"):
        return ""
    if name in ("register", "cas-register"):
        return _cause_of_read(parts, stuck, value)
    if name in ("fifo-queue", "unordered-queue"):
        return _cause_of_dequeue(parts, stuck, value, states)
    return ""


def _cause_of_read(parts: Sequence[Part], stuck: Part, value: Hashable) -> str:
    made = _made(parts, "write", value)
    if any(_makes(part, value) for part in parts):
        return ""
    if not made:
        return f"no operation had written {value_text(value)} by then"
    if all(part.ret < stuck.call for part in made):
        return f"{value_text(value)} had been overwritten"
    return ""


def _cause_of_dequeue(
    parts: Sequence[Part], stuck: Part, value: Hashable, states: Sequence[Hashable]
) -> str:
    text = value_text(value)
    made = _made(parts, "enqueue", value)
    if not made:
        return f"no operation had enqueued {text} by then"
    took = [p for p in parts if p is not stuck and p.operation.f == "dequeue" and p.ret != NEVER]
    if len(made) == 1 and any(exact(p.operation.result) == exact(value) for p in took):
        return f"{text} was enqueued once and dequeued twice"
    heads = []
    for state in states:
        if not isinstance(state, tuple) or exact(value) not in state[1:]:
            return ""
        heads.append(plain(state[0]))
    ahead = list(dict.fromkeys(heads))
    return f"{' or '.join(ahead)} was ahead of {text}" if 0 < len(ahead) <= 2 else ""


def _made(parts: Sequence[Part], f: str, value: Hashable) -> list[Part]:
    """The operations that wrote or enqueued ``value``."""
    wanted = exact(value)
    return [p for p in parts if p.operation.f == f and exact(p.operation.argument) == wanted]


def _makes(part: Part, value: Hashable) -> bool:
    """A compare-and-set to ``value``, which may have happened."""
    f, argument, result = part.operation.f, part.operation.argument, part.operation.result
    if f != "cas" or not isinstance(argument, tuple) or len(argument) != 2:
        return False
    return result is not FAILED and exact(argument[1]) == exact(value)


# Long texts made short without becoming the same: they are cut where they differ.

CUT = "…"
_VERB = re.compile(r"\S{1,30} (→ )?")


def cut_apart(texts: Sequence[str], most: int, also: Iterable[str] = ()) -> list[str]:
    """Each text in at most ``most`` characters (12 or more).

    A long text keeps its beginning, and what stands about the place where it first differs from the
    text that has most in common with it, of these and of ``also``.
    """
    if all(len(text) <= most for text in texts):
        return list(texts)
    shared: dict[str, int] = {}
    for one, next_one in pairwise(sorted({*texts, *also})):
        length = len(commonprefix([one, next_one]))
        for text in (one, next_one):
            shared[text] = max(shared.get(text, 0), length)
    return [_cut(text, most, shared.get(text, 0)) for text in texts]


def cut_operations(texts: Sequence[str], most: int) -> list[str]:
    """Of "write X" and "read → X" the X, in about ``most`` characters."""
    split = [_VERB.match(text) for text in texts]
    verbs = [found[0] if found else "" for found in split]
    rests = [text.removeprefix(verb) for text, verb in zip(texts, verbs, strict=True)]
    cut = cut_apart(rests, most - max(map(len, verbs), default=0))
    return [verb + rest for verb, rest in zip(verbs, cut, strict=True)]


def _cut(text: str, most: int, differs_at: int) -> str:
    if len(text) <= most:
        return text
    if differs_at < most - 1 - most // 4:
        return text[: most - 1] + CUT
    head = most // 4
    room = most - head - 2
    begin = min(max(head, differs_at - room // 2), len(text) - room - 1)
    end = begin + room
    if end >= len(text) - 1:
        return text[:head] + CUT + text[len(text) - room - 1 :]
    return text[:head] + CUT + text[begin:end] + CUT
