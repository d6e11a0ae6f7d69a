"""What a history does not say, read each way: does the verdict depend on it?

A compare-and-set failed, and nothing says whether it was compared. A read returned nil: nothing was
there, or nothing was looked at. The first read saw 0, and nothing says what the register held at
first. The lines, the times and the indexes of a file name different orders. For each of these the
strictest reading is checked; if that is valid, so are the others. If it is invalid, the others are
checked, and if one of them is valid the verdict is "unknown" and says on what it depends. An option
that was given (``nil=value``) is how it is meant, and not asked about.

Readings that are stricter than the one that EDN and Jepsen have are told in notes, and change no
verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import Words, exact
from shalott.checkers.history.concurrent import (
    FAIL,
    NEVER,
    NOTHING,
    OK,
    ConcurrentHistory,
)
from shalott.checkers.history.failures import Said, what_it_says
from shalott.checkers.history.value_text import value_text
from shalott.checkers.linearizability.explanation import Reading, Verdict
from shalott.checkers.models import Model, meanings_of, own_name

Bools = npt.NDArray[np.bool_]
Check = Callable[[ConcurrentHistory, Model], Verdict]
Change = Callable[[ConcurrentHistory, Model], tuple[ConcurrentHistory, Model]]

LOGS_OF_ETCD: Final = "porcupine-etcd"  # in which a compare-and-set that failed was compared
_FIRST_VALUES: Final = 4  # that are tried
_EARLY: Final = 1_000  # operations that may have seen the first value
_PERMITS: Final = 64
_FEW: Final = 20_000  # operations that are checked again for a note


@dataclass(frozen=True, slots=True)
class Other:
    """Another reading than the strictest. Of those of one ``about`` at most one is taken."""

    about: str
    option: str  # how to ask for it: "nil=any"
    words: str  # "valid if ..."
    change: Change


def judge_readings(
    history: ConcurrentHistory,
    model: Model,
    check: Check,
    *,
    given: Collection[str] = (),
    orders: Callable[[str], ConcurrentHistory | None] = lambda _: None,
) -> Verdict:
    """``check`` of the strictest reading, and of the others if that is invalid.

    ``given``: names of options that say how it is meant. ``orders``: the history in the order of
    its "time" or "index", None if it has none.
    """
    verdict = check(history, model)
    if verdict.cause == "cancelled" or verdict.valid == "unknown":
        return verdict
    if verdict.valid is True:
        return _with_stricter(verdict, history, model, check, orders)
    others = [*_of_model(history, model, given), *_of_order(history, orders)]
    if not others:
        return verdict
    found = _first_valid(history, model, check, others)
    if found is None:
        return verdict
    readings, as_read = found
    if as_read.cause == "cancelled":
        return as_read
    return replace(
        verdict,
        valid="unknown",
        cause="it depends on the reading",
        progress="",
        readings=tuple(Reading(each.option, each.words, as_read.valid) for each in readings),
        how=verdict.violation.by if verdict.violation is not None else verdict.how,
    )


def _first_valid(
    history: ConcurrentHistory, model: Model, check: Check, others: Sequence[Other]
) -> tuple[Sequence[Other], Verdict] | None:
    """The fewest readings that together are not invalid; None: all of them are."""
    undecided: tuple[Sequence[Other], Verdict] | None = None
    for count in range(1, len({each.about for each in others}) + 1):
        for chosen in combinations(others, count):
            if len({each.about for each in chosen}) < count:
                continue
            read, read_model = history, model
            for each in chosen:
                read, read_model = each.change(read, read_model)
            verdict = check(read, read_model)
            if verdict.valid is True or verdict.cause == "cancelled":
                return chosen, verdict
            if verdict.valid == "unknown" and undecided is None:
                undecided = chosen, verdict
    return undecided


# --- of a model's options -------------------------------------------------------------------------


def _of_model(history: ConcurrentHistory, model: Model, given: Collection[str]) -> Iterator[Other]:
    name = own_name(model)
    is_checked = name == "cas-register" and _option(model, "failed_cas") == "checked"
    if is_checked and "failed_cas" not in given and history.dialect != LOGS_OF_ETCD:
        yield from _silent_failures(history, model)
    if _option(model, "nil") == "value" and "nil" not in given and _reads_nil(history, model):
        yield Other(
            "nil", "nil=any", "a read of nil is one that did not look", _changing("nil", "any")
        )
    if _option(model, "initial") in (None, 0) and "initial" not in given:
        for value in _first_values(history, model):
            text = value_text(value)
            words = f"the {_OBJECTS.get(name, 'register')} held {text} at first"
            yield Other("initial", f"initial={text}", words, _changing("initial", value))
    if name == "semaphore" and "permits" not in given:
        most = int(np.count_nonzero(history.type == OK))
        for permits in range(2, min(_PERMITS, most) + 1):
            words = f"there are {permits} permits"
            yield Other("permits", f"permits={permits}", words, _changing("permits", permits))
    if name == "priority-queue" and _option(model, "first") == "highest" and "first" not in given:
        yield Other(
            "first", "first=lowest", "the lowest number comes first", _changing("first", "lowest")
        )


_OBJECTS: Final = {"multi-register": "registers", "counter": "counter"}


def _option(model: Model, name: str) -> object:
    return getattr(model, name, ...) if own_name(model) else ...


def _changing(option: str, value: Hashable) -> Change:
    def change(history: ConcurrentHistory, model: Model) -> tuple[ConcurrentHistory, Model]:
        return history, replace(model, **{option: value})  # type: ignore[type-var]

    return change


def _silent_failures(history: ConcurrentHistory, model: Model) -> Iterator[Other]:
    count = int(np.count_nonzero(_silent(history, model)))
    if not count:
        return

    def change(history: ConcurrentHistory, model: Model) -> tuple[ConcurrentHistory, Model]:
        return history.take(~_silent(history, model)), model

    yield Other(
        "failed",
        "failed_cas=ignored",
        f"a failed compare-and-set that does not say why ({count} of them) says nothing of the"
        " value",
        change,
    )


def _silent(history: ConcurrentHistory, model: Model) -> Bools:
    silent: Bools = _means(history, model, "cas") & (history.type == FAIL)
    if history.error is not None:
        codes = [at for at, text in enumerate(history.error.names)
                 if what_it_says(text) is Said.NOTHING]  # fmt: skip
        silent &= np.isin(history.error.codes, codes)
    return silent


def _means(history: ConcurrentHistory, model: Model, *fs: str) -> Bools:
    """Which rows are operations that the model calls by one of these names."""
    meanings = meanings_of(model) or {}
    return history.f.among(tuple([name for name, each in meanings.items() if each.f in fs]))


def _reads_nil(history: ConcurrentHistory, model: Model) -> bool:
    is_read = (history.type == OK) & _means(history, model, "read")
    if bool((is_read & (history.result.kind == NOTHING)).any()):
        return True
    if own_name(model) != "multi-register":
        return False
    return any(value is None for form in history.result.forms for _, value in _seen_in(form))


Named = tuple[Hashable, Hashable]  # which register of several, or which key; a value


def _seen_in(result: Hashable) -> Iterator[Named]:
    """What a transaction, or a read of several registers, read."""
    for each in result if isinstance(result, tuple | frozenset) else ():
        if isinstance(each, tuple) and (
            len(each) == 2 or (len(each) == 3 and each[0] in ("r", "read"))
        ):
            yield each[-2], each[-1]


def _first_values(history: ConcurrentHistory, model: Model) -> list[Hashable]:
    """What must have been there at first, since it was seen before any operation was to write it,
    and before any change had returned."""
    name = own_name(model)
    if name not in ("register", "cas-register", "multi-register", "counter"):
        return []
    early = _early(history, model)
    if not early:
        return []
    latest = max(int(history.ret[row]) for row in early)
    written = {} if name == "counter" else _first_written(history, model, latest)
    counts: Counter[Hashable] = Counter()
    values: dict[Hashable, Hashable] = {}
    for row in early:
        for place, value in _seen_by(history, model, row):
            is_late = written.get((place, exact(value)), NEVER) < history.ret[row]
            if value is None or is_late or (name == "counter" and type(value) is not int):
                continue
            counts[exact(value)] += 1
            values.setdefault(exact(value), value)
    initial = exact(getattr(model, "initial", None))
    return [values[each] for each, _ in counts.most_common() if each != initial][:_FIRST_VALUES]


def _early(history: ConcurrentHistory, model: Model) -> list[int]:
    """The rows that saw something and were called before any change of their object returned."""
    is_ok = history.type == OK
    if own_name(model) == "multi-register":
        return [int(row) for row in np.flatnonzero(is_ok)[:_EARLY]]
    saw = is_ok & _means(history, model, "read", "cas")
    changed = np.flatnonzero(is_ok & _means(history, model, "write", "cas", "inc", "dec"))
    first = np.full(len(history.key.names), NEVER, dtype=np.int64)
    np.minimum.at(first, history.key.codes[changed], history.ret[changed])
    saw &= history.call < first[history.key.codes]
    return [int(row) for row in np.flatnonzero(saw)[:_EARLY]]


def _seen_by(history: ConcurrentHistory, model: Model, row: int) -> Iterator[Named]:
    operation, key = history.operation(row), int(history.key.codes[row])
    meaning = (meanings_of(model) or {}).get(operation.f)
    if own_name(model) == "multi-register":
        yield from _seen_in(operation.result)
    elif meaning is None or meaning.f != "cas":
        yield key, operation.result
    elif isinstance(operation.argument, tuple) and operation.argument:
        yield key, operation.argument[0]


def _first_written(history: ConcurrentHistory, model: Model, until: int) -> dict[Named, int]:
    """When each value was first to be written, of those operations that were called by then."""
    rows = np.flatnonzero(_means(history, model, "write", "cas", "txn") & (history.call < until))
    written: dict[Named, int] = {}
    for row, argument in zip(rows.tolist(), history.argument.get_all(rows), strict=True):
        call, place = int(history.call[row]), int(history.key.codes[row])
        pairs: list[Named] = [(place, argument)]
        if isinstance(argument, tuple | frozenset):
            pairs += [(place, each) for each in tuple(argument)[1:]]  # of a compare-and-set
            pairs += [each[-2:] for each in argument if isinstance(each, tuple) and len(each) > 1]
        for name, value in pairs:
            written.setdefault((name, exact(value)), call)
    return written


# --- of the order, and of keys --------------------------------------------------------------------


def _of_order(
    history: ConcurrentHistory, orders: Callable[[str], ConcurrentHistory | None]
) -> Iterator[Other]:
    for clock in history.odd:
        other = orders(clock)
        if other is None:
            continue

        def change(
            history: ConcurrentHistory, model: Model, other: ConcurrentHistory = other
        ) -> tuple[ConcurrentHistory, Model]:
            return other, model

        plural = "times" if clock == "time" else "indexes"
        yield Other("order", f"the order of {plural}", f"its {plural} name the order", change)


def by_clock(history: ConcurrentHistory) -> ConcurrentHistory | None:
    """In the order of its clock, a tie in that of the lines; None: it has none."""
    if history.call_ns is None or history.ret_ns is None:
        return None
    returned = history.ret != NEVER
    clock = np.concatenate([history.call_ns, history.ret_ns[returned]])
    line = np.concatenate([history.call, history.ret[returned]])
    rank = np.empty(len(clock), dtype=np.int32)
    rank[np.lexsort((line, clock))] = np.arange(len(clock), dtype=np.int32)
    call, ret = rank[: len(history)], np.full(len(history), NEVER, dtype=np.int32)
    ret[returned] = rank[len(history) :]
    if (ret < call).any():
        return None  # an operation ends before it begins: that is no order
    order = np.argsort(call, kind="stable")
    return replace(history.take(order), call=call[order], ret=ret[order])


def merged_keys(history: ConcurrentHistory) -> ConcurrentHistory | None:
    """With one key where a string and a keyword have one text; None: there are no such keys."""
    names = [name[1:] if name[:1] == ":" else name for name in history.key.names]
    if len(set(names)) == len(names):
        return None
    merged = list(dict.fromkeys(names))
    codes = np.array([merged.index(name) for name in names], dtype=np.int32)
    return replace(history, key=Words(codes[history.key.codes], tuple(merged)))


def _with_stricter(
    verdict: Verdict,
    history: ConcurrentHistory,
    model: Model,
    check: Check,
    orders: Callable[[str], ConcurrentHistory | None],
) -> Verdict:
    """With notes on readings under which it would be invalid."""
    if len(history) > _FEW:
        return verdict
    notes = list(verdict.notes)
    is_checked = history.error is not None and _option(model, "failed_cas") == "checked"
    if notes and is_checked and check(replace(history, error=None), model).valid is False:
        notes.append("were those failures observations of another value, it would be invalid")
    for clock in history.odd:
        other = orders(clock)
        if other is not None and check(other, model).valid is False:
            notes.append(f"in the order of its {clock}s it would be invalid")
    if ":" in "".join(name[:1] for name in history.key.names):
        merged = merged_keys(history)
        if merged is not None and check(merged, model).valid is False:
            notes.append("were those keys one and the same, it would be invalid")
    return replace(verdict, notes=tuple(notes)) if len(notes) > len(verdict.notes) else verdict
