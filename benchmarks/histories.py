"""Large histories of known verdict, for the benchmarks of the linearizability engine.

    history = make("cas-register", Load(1_000_000, clients=10, violation="stale"))

A history is drawn backwards: operations stand in the order in which an object did them (their
linearization points are 0, 1, 2, ...), the object answers, and only then each gets a call before
its point and a return after it. So it is linearizable, whatever the checkers think. Clients are
saturated: a client's return and its next call are two random times between its points, which keeps
two thirds of the clients in flight. A violation is one that can be proved without a checker: what
is done to make it impossible to explain is said where it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.column_values import Words
from shalott.checkers.history.concurrent import (
    FAIL,
    FORM,
    INFO,
    INTEGER,
    NEVER,
    NOTHING,
    OK,
    ConcurrentHistory,
    Values,
)

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

CAS_VALUES: Final = 5
_NONE: Final = -1  # in a draft's columns: nil
_PAIRS: Final = 1 << 40  # in a draft's columns: _PAIRS + from * 8 + to is a pair
_BOOLS: Final = _PAIRS + 64  # and this plus 0 or 1 is false or true


@dataclass(frozen=True, slots=True)
class Load:
    """What is drawn. ``crashed`` is a share of all operations; ``at`` is where it goes wrong."""

    operations: int
    clients: int = 10
    crashed: float = 0.0
    violation: str = ""
    seed: int = 1
    at: float = 0.9
    keys: int = 1
    values: int = 5  # of a compare-and-set register; at most 8
    durations: str = "saturated"  # or "exponential": see _give_durations


@dataclass(slots=True)
class Draft:
    """Operations in the order of their linearization points. Those not ``kept`` are left out."""

    names: tuple[str, ...]
    f: Ints
    argument: Ints
    result: Ints
    type: Ints
    client: Ints
    key: Ints | None = None
    kept: Bools | None = None
    call: Floats = field(default_factory=lambda: np.empty(0))
    ret: Floats = field(default_factory=lambda: np.empty(0))


def make(model: str, load: Load) -> ConcurrentHistory:
    """A history of one of ``MODELS``; linearizable, unless ``load`` names a violation."""
    rng = np.random.default_rng(load.seed)
    draft = MODELS[model](load, rng)
    if not len(draft.call):
        _give_times(draft, load, rng)
    return _history(draft, load)


# --- times ----------------------------------------------------------------------------------------


def _clients(load: Load, rng: np.random.Generator) -> Ints:
    return rng.integers(0, load.clients, load.operations)


def _give_times(draft: Draft, load: Load, rng: np.random.Generator) -> None:
    """Between two points of a client, first the return of the one, then the call of the other."""
    if load.durations == "exponential":
        _give_durations(draft, load, rng)
        return
    n = len(draft.f)
    order = np.argsort(draft.client, kind="stable")
    point = order.astype(np.float64)
    same = draft.client[order][1:] == draft.client[order][:-1]
    early, late = np.sort(rng.random((2, n + 1)), axis=0)
    after = np.full(n, float(load.clients))
    before = np.full(n, float(load.clients))
    after[:-1][same] = (point[1:] - point[:-1])[same]
    before[1:][same] = after[:-1][same]
    draft.call, draft.ret = np.empty(n), np.empty(n)
    draft.ret[order] = point + early[1:] * after
    # The call lies at ``late`` of the gap that the return before it shares.
    draft.call[order] = point - (1 - late[:-1]) * before
    draft.ret[draft.type == INFO] = np.inf


def _give_durations(draft: Draft, load: Load, rng: np.random.Generator) -> None:
    """Each client calls again at once; durations are exponential, and an operation takes effect at
    any moment of its own. So all clients are in flight at any time, and some operations last for
    hundreds of others. Only for histories in which nothing crashes and nothing is wrong."""
    n, clients = len(draft.f), load.clients
    client = np.arange(n) % clients
    draft.call, draft.ret = np.empty(n), np.empty(n)
    for each in range(clients):
        mine = np.flatnonzero(client == each)
        lengths = rng.exponential(1.0, len(mine))
        draft.ret[mine] = rng.random() + np.cumsum(lengths) + 1e-9 * np.arange(len(mine))
        draft.call[mine] = draft.ret[mine] - lengths
    order = np.argsort(draft.call + rng.random(n) * (draft.ret - draft.call), kind="stable")
    draft.client, draft.call, draft.ret = client[order], draft.call[order], draft.ret[order]


def _ranks(call: Floats, ret: Floats) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    n, ends = len(call), np.flatnonzero(np.isfinite(ret))
    order = np.argsort(np.concatenate((call, ret[ends])), kind="stable")
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    by_row = np.full(n, NEVER, dtype=np.int32)
    by_row[ends] = rank[n:]
    return rank[:n], by_row


def _history(draft: Draft, load: Load) -> ConcurrentHistory:
    rows = np.argsort(draft.call, kind="stable")
    if draft.kept is not None:
        rows = rows[draft.kept[rows]]
    call, ret = _ranks(draft.call[rows], draft.ret[rows])
    kind, client = draft.type[rows], draft.client[rows]
    # A client that crashed goes on as another process.
    crashes = np.zeros(len(rows), dtype=np.int64)
    by_client = np.argsort(client, kind="stable")
    crashed = (kind[by_client] == INFO).astype(np.int64)
    first = np.searchsorted(client[by_client], np.arange(load.clients))
    before = np.cumsum(crashed) - crashed
    crashes[by_client] = before - before[np.minimum(first, len(rows) - 1)][client[by_client]]
    keys = tuple(f"k{number}" for number in range(load.keys)) if draft.key is not None else ("",)
    n = len(rows)
    codes = np.zeros(n, dtype=np.int32) if draft.key is None else draft.key[rows].astype(np.int32)
    return ConcurrentHistory(
        f=Words(draft.f[rows].astype(np.int32), draft.names),
        key=Words(codes, keys),
        argument=_values(draft.argument[rows]),
        result=_values(np.where(kind == OK, draft.result[rows], _NONE)),
        type=kind.astype(np.uint8),
        process=(client + crashes * load.clients).astype(np.int32),
        call=call,
        ret=ret,
        call_ns=None,
        ret_ns=None,
        place=np.arange(n, dtype=np.int64),
    )


def _values(drawn: Ints) -> Values:
    kind = np.where(drawn == _NONE, NOTHING, np.where(drawn >= _PAIRS, FORM, INTEGER))
    if not (kind == FORM).any():
        return Values(kind.astype(np.uint8), np.where(kind == INTEGER, drawn, 0))
    forms = (*((number // 8, number % 8) for number in range(64)), False, True)
    number = np.where(kind == FORM, drawn - _PAIRS, np.where(kind == INTEGER, drawn, 0))
    return Values(kind.astype(np.uint8), number, forms)


def _crashes(load: Load, rng: np.random.Generator, allowed: Bools) -> Bools:
    """A share ``load.crashed`` of all operations, among those that are allowed to."""
    share = load.crashed * load.operations / max(1, int(allowed.sum()))
    return np.asarray(allowed & (rng.random(load.operations) < share))


def _first(where: Bools, what: str) -> int:
    found = np.flatnonzero(where)
    if not len(found):
        raise ValueError(f"the history is too short to have {what}")
    return int(found[0])


# --- queues ---------------------------------------------------------------------------------------


def _queue(load: Load, rng: np.random.Generator, is_fifo: bool) -> Draft:
    """Half enqueues, half dequeues, often empty. What was crashed took effect half the time."""
    n = load.operations
    dequeues = rng.random(n) < 0.5
    crashes = _crashes(load, rng, ~dequeues if load.violation == "lost" else np.ones(n, bool))
    happens = ~crashes | (rng.random(n) < 0.5)
    steps = np.where(dequeues, -1, 1) * happens
    # Reflected at 0: a dequeue at a new lowest point finds nothing.
    level = np.cumsum(steps)
    lowest = np.minimum.accumulate(np.minimum(level, 0))
    empty = dequeues & happens & (lowest < np.concatenate(([0], lowest[:-1])))
    value = np.full(n, _NONE)
    ids = rng.permutation(n) + 1
    added = np.flatnonzero(~dequeues & happens)
    value[~dequeues] = ids[~dequeues]
    taken = np.flatnonzero(dequeues & happens & ~empty)
    value[taken] = value[added[: len(taken)]] if is_fifo else _mixed(value, added, taken, rng)
    draft = Draft(
        ("enqueue", "dequeue"),
        f=dequeues.astype(np.int64),
        argument=np.where(dequeues, _NONE, value),
        result=value,
        type=np.where(crashes, INFO, OK),
        client=_clients(load, rng),
    )
    _give_times(draft, load, rng)
    if load.violation:
        _spoil_queue(draft, load, taken, added)
    return draft


def _mixed(value: Ints, added: Ints, taken: Ints, rng: np.random.Generator) -> list[int]:
    """What an unordered queue gives: any of its values."""
    held: list[int] = []
    given = []
    values = value[added].tolist()
    draws = rng.random(len(taken)).tolist()
    ready = np.searchsorted(added, taken).tolist()
    at = 0
    for draw, until in zip(draws, ready, strict=True):
        held.extend(values[at:until])
        at = until
        which = int(draw * len(held))
        held[which], held[-1] = held[-1], held[which]
        given.append(held.pop())
    return given


def _spoil_queue(draft: Draft, load: Load, taken: Ints, added: Ints) -> None:
    done = taken[draft.type[taken] == OK]
    late = int(np.searchsorted(done, load.at * load.operations))
    one = int(done[late])
    if load.violation == "fresh":
        draft.result[one] = load.operations + 7
    elif load.violation == "repeated":
        draft.result[one] = draft.result[done[late // 2]]
    elif load.violation == "lost":
        # Its enqueue completed and no dequeue crashed that might have taken it.
        enqueue_of = dict(zip(draft.argument[added].tolist(), added.tolist(), strict=True))
        while draft.type[enqueue_of[int(draft.result[done[late]])]] != OK:
            late += 1
        draft.kept = np.ones(len(draft.f), dtype=np.bool_)
        draft.kept[done[late]] = False
    elif load.violation == "order":
        # Swapped: b's dequeue returned before a's was called, and a's enqueue before b's.
        enqueue_of = dict(zip(draft.argument[added].tolist(), added.tolist(), strict=True))
        for other in done[late + load.clients :].tolist():
            a, b = (enqueue_of[int(draft.result[row])] for row in (one, other))
            if draft.ret[a] < draft.call[b] and draft.ret[one] < draft.call[other]:
                draft.result[[one, other]] = draft.result[[other, one]]
                return
        raise ValueError("the history is too short for two dequeues that far apart")
    else:
        raise ValueError(f"a queue has no violation {load.violation!r}")


# --- registers ------------------------------------------------------------------------------------


def _register(load: Load, rng: np.random.Generator) -> Draft:
    """Half reads, half writes, each of a value of its own; of ``load.keys`` registers."""
    n = load.operations
    reads = rng.random(n) < 0.5
    crashes = _crashes(load, rng, np.ones(n, bool))
    value = np.where(reads, _NONE, rng.permutation(n) + 1)
    writer = np.where(~reads & (~crashes | (rng.random(n) < 0.5)), np.arange(n), -1)
    key = rng.integers(0, load.keys, n) if load.keys > 1 else None
    last = _last(writer, key)
    result = np.where(reads, np.where(last >= 0, value[last], _NONE), value)
    draft = Draft(
        ("read", "write"),
        f=(~reads).astype(np.int64),
        argument=value,
        result=result,
        type=np.where(crashes, INFO, OK),
        client=_clients(load, rng),
        key=key,
    )
    if load.violation:
        one = _first(reads & ~crashes & (np.arange(n) >= load.at * n), "a late read")
        if load.violation == "fresh":
            draft.result[one] = n + 7
        elif load.violation == "stale":  # overwritten long ago: what wrote over it has returned
            mine = ~reads & ~crashes & (np.arange(n) >= n // 2)
            if key is not None:
                mine &= key == key[one]
            draft.result[one] = value[_first(mine, "an early write")]
        else:
            raise ValueError(f"a register has no violation {load.violation!r}")
    return draft


def _last(writer: Ints, key: Ints | None) -> Ints:
    """The last write at or before each row, of the same key."""
    if key is None:
        return np.asarray(np.maximum.accumulate(writer))
    order = np.argsort(key, kind="stable")
    first = np.concatenate(([True], key[order][1:] != key[order][:-1]))
    n = len(writer)
    # Each key's rows are lifted above all earlier keys', so that the maximum starts anew.
    lifted = np.where(writer[order] >= 0, writer[order] + 1, 0) + np.cumsum(first) * (n + 1)
    last = np.empty(n, dtype=np.int64)
    last[order] = np.maximum.accumulate(lifted) - np.cumsum(first) * (n + 1) - 1
    return last


def _cas(load: Load, rng: np.random.Generator) -> Draft:
    """Reads, writes and compare-and-sets over five values; four of five compare-and-sets fail.

    Only what may change the value crashes, all 30 kinds in turn.
    """
    n, values = load.operations, load.values
    f = rng.integers(0, 3, n)
    before, after = rng.integers(0, values, n), rng.integers(0, values, n)
    crashes = np.flatnonzero(_crashes(load, rng, f > 0))
    kinds = np.arange(len(crashes)) % (values * (values + 1))
    f[crashes] = np.where(kinds < values, 1, 2)
    before[crashes], after[crashes] = np.maximum(kinds // values - 1, 0), kinds % values
    client = _clients(load, rng)
    quiet = _make_unexplained(load, f, after, crashes, client)
    crashed = np.zeros(n, dtype=np.bool_)
    crashed[crashes] = True
    happens = ~crashed | (rng.random(n) < 0.5)
    result, failed = _run_cas(f, before, after, happens)
    pair = _PAIRS + before * 8 + after
    draft = Draft(
        ("read", "write", "cas"),
        f=f,
        argument=np.choose(f, (np.full(n, _NONE), after, pair)),
        result=np.choose(f, (result, after, pair)),
        type=np.where(crashed, INFO, np.where(failed, FAIL, OK)),
        client=client,
    )
    _give_times(draft, load, rng)
    if load.violation:
        _spoil_cas(draft, load, quiet, rng)
    return draft


def _run_cas(f: Ints, before: Ints, after: Ints, happens: Bools) -> tuple[Ints, Bools]:
    """What each read found (nil at first), and which compare-and-sets failed."""
    state = _NONE
    found, failed = [], []
    columns = (f.tolist(), before.tolist(), after.tolist(), happens.tolist())
    for which, expected, new, counts in zip(*columns, strict=True):
        found.append(state)
        failed.append(which == 2 and state != expected)
        if counts and (which == 1 or (which == 2 and state == expected)):
            state = new
    return np.array(found), np.array(failed)


def _make_unexplained(
    load: Load, f: Ints, after: Ints, crashes: Ints, client: Ints
) -> tuple[int, int]:
    """Where a read of 4 can't be right, (first, past the last); it changes what is done there.

    "stale": nothing writes 4 for a while, and nothing that crashed ever does. "exhausted": one
    client alone acts, and reads 4 and 3 in turn, more often than there is anything that crashed, or
    is open, to write a 4.
    """
    n, wrong = load.operations, CAS_VALUES - 1
    begin = int(load.at * n)
    if load.violation == "stale":
        end = min(n, begin + 40 * load.clients)
        writes = np.flatnonzero((f > 0) & (after == wrong))
        crashed = np.isin(writes, crashes)
        here = crashed | ((writes >= begin) & (writes < end))
        after[writes[here]] = np.arange(int(here.sum())) % wrong
        return begin, end
    if load.violation == "exhausted":
        movers = int((after[crashes[crashes < n]] == wrong).sum()) + 2 * load.clients + 1
        end = begin + 2 * movers
        if end > n:
            raise ValueError("the history is too short for as many reads")
        f[begin:end] = 0
        client[begin:end] = 0
        return begin, end
    return begin, n


def _spoil_cas(draft: Draft, load: Load, quiet: tuple[int, int], rng: np.random.Generator) -> None:
    n, wrong = load.operations, CAS_VALUES - 1
    begin, end = quiet
    rows = np.arange(n)
    reads = (draft.f == 0) & (draft.type == OK) & (rows >= begin) & (rows < end)
    if load.violation == "fresh":
        draft.result[_first(reads, "a late read")] = CAS_VALUES
    elif load.violation == "random":  # what it finds need not be wrong: no verdict is known
        one = _first(reads, "a late read")
        draft.result[one] = (draft.result[one] + 1 + rng.integers(0, 4)) % CAS_VALUES
    elif load.violation == "exhausted":
        draft.result[begin:end] = np.where((rows[begin:end] - begin) % 2 == 0, wrong, wrong - 1)
    elif load.violation == "stale":
        _read_stale(draft, reads, begin, wrong)
    else:
        raise ValueError(f"a cas-register has no violation {load.violation!r}")


def _read_stale(draft: Draft, reads: Bools, begin: int, wrong: int) -> None:
    """A read of what was certainly overwritten before: by a write that was called when everything
    that wrote it had returned, and that itself returned before the read was called."""
    argument = np.where(draft.f == 2, (draft.argument - _PAIRS) % 8, draft.argument)
    writers = (draft.f > 0) & (draft.type != FAIL) & (argument == wrong)
    rows = np.arange(len(draft.f))
    early = writers & (rows < begin)
    gone = float(draft.ret[early].max(initial=-np.inf))
    covers = (draft.f == 1) & (draft.type == OK) & (draft.call > gone) & (argument != wrong)
    covered = float(draft.ret[covers].min(initial=np.inf))
    again = float(draft.call[writers & (rows >= begin)].min(initial=np.inf))
    one = _first(reads & (draft.call > covered) & (draft.ret < again), "a read in time")
    draft.result[one] = wrong


# --- locks, logs, sets ----------------------------------------------------------------------------


def _lock(load: Load, rng: np.random.Generator) -> Draft:
    """Holds, one after the other; who waits has called already. Releases crash after the fact."""
    n = load.operations // 2 * 2
    releases = np.arange(n) % 2 == 1
    crashes = releases & (rng.random(n) < 2 * load.crashed)
    draft = Draft(
        ("acquire", "release"),
        f=releases.astype(np.int64),
        argument=np.full(n, _NONE),
        result=np.full(n, _NONE),
        type=np.where(crashes, INFO, OK),
        client=np.repeat(rng.integers(0, load.clients, n // 2), 2),
    )
    if load.violation:
        if load.violation != "overlap":
            raise ValueError(f"a lock has no violation {load.violation!r}")
        # Two releases were never called: there are two acquires more than releases.
        draft.kept = np.ones(n, dtype=np.bool_)
        late = int(load.at * n) // 2 * 2 + 1
        draft.kept[[late, late + 2]] = False
    return draft


def _log(load: Load, rng: np.random.Generator) -> Draft:
    """Appends, reads of an offset (some past the end) and of the tail."""
    n = load.operations
    f = rng.integers(0, 3, n)
    crashes = _crashes(load, rng, np.ones(n, bool))
    happens = (f == 0) & (~crashes | (rng.random(n) < 0.5))
    length = np.cumsum(happens) - happens
    value = rng.permutation(n) + 1
    appended = value[happens]
    offset = (rng.random(n) * (length + 2)).astype(np.int64)
    found = np.append(appended, _NONE)[np.minimum(offset, len(appended))]
    found = np.where(offset < length, found, _NONE)
    none = np.full(n, _NONE)
    draft = Draft(
        ("append", "read", "tail"),
        f=f,
        argument=np.choose(f, (value, offset, none)),
        result=np.choose(f, (length, found, length)),
        type=np.where(crashes, INFO, OK),
        client=_clients(load, rng),
    )
    if load.violation:
        late = (f == 1) & ~crashes & (found != _NONE) & (np.arange(n) >= load.at * n)
        one = _first(late, "a late read")
        if load.violation == "fresh":
            draft.result[one] = n + 7
        elif load.violation == "differs":  # another offset's value
            draft.result[one] = appended[(offset[one] + length[one] // 2) % length[one]]
        else:
            raise ValueError(f"a log has no violation {load.violation!r}")
    return draft


def _set(load: Load, rng: np.random.Generator) -> Draft:
    """Adds of new elements, removes of each at most once, looks at any."""
    n = load.operations
    f = rng.integers(0, 3, n)
    crashes = _crashes(load, rng, np.ones(n, bool))
    happens = ~crashes | (rng.random(n) < 0.5)
    adds = np.flatnonzero(f == 0)
    element = np.empty(n, dtype=np.int64)
    element[adds] = rng.permutation(len(adds)) + 1
    known = np.searchsorted(adds, np.arange(n))
    which = (rng.random(n) * known).astype(np.int64)
    element[f > 0] = np.where(known > 0, element[adds[which]], 1)[f > 0]
    _, first = np.unique(np.where(f == 1, element, -1), return_index=True)
    again = (f == 1) & ~np.isin(np.arange(n), first)
    f[again] = 2
    moment = np.full((2, len(adds) + 2), n)  # when each element came, and went
    for way in (0, 1):
        rows = np.flatnonzero((f == way) & happens)
        moment[way][element[rows]] = rows
    came, went = moment[0][element], moment[1][element]
    present = (came < np.arange(n)) & ~((went < np.arange(n)) & (went > came))
    draft = Draft(
        ("add", "remove", "contains"),
        f=f,
        argument=element,
        result=np.where(f == 2, _BOOLS + present, _NONE),
        type=np.where(crashes & (f < 2), INFO, OK),
        client=_clients(load, rng),
    )
    if load.violation:
        if load.violation != "fresh":
            raise ValueError(f"a set has no violation {load.violation!r}")
        looks = (f == 2) & present & (np.arange(n) >= load.at * n)
        draft.argument[_first(looks, "a late look")] = len(adds) + 7
    return draft


def _fifo(load: Load, rng: np.random.Generator) -> Draft:
    return _queue(load, rng, is_fifo=True)


def _bag(load: Load, rng: np.random.Generator) -> Draft:
    return _queue(load, rng, is_fifo=False)


MODELS: Final[dict[str, Callable[[Load, np.random.Generator], Draft]]] = {
    "fifo-queue": _fifo,
    "unordered-queue": _bag,
    "register": _register,
    "cas-register": _cas,
    "mutex": _lock,
    "log": _log,
    "set": _set,
}
