"""A concurrent history as EDN that Jepsen and Knossos read: one map an entry, in the order of time.

Read back (checkers/reading), it means the same to every model. What they want otherwise than it is
kept here:

- The value of a completion is that of its invocation, unless the operation found something out: so
  a write that returned nothing repeats what it wrote, and what failed what it was asked for.
- A dequeue that found nothing is written as one that failed, with ``:error :empty``, because
  Knossos's queues know no empty dequeue.
- A process has one operation at a time, and none after one that crashed: where it does (equal clock
  times make two overlap; a client went on), the later one gets a process of its own. ``:client``
  says which one it is for us: locks have owners.
- A history of keyed values says so in a comment on its first line, by which it is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from shalott.checkers.history.concurrent import (
    FAIL,
    INFO,
    INTEGER,
    NEVER,
    NOTHING,
    OK,
    ConcurrentHistory,
    Values,
)
from shalott.checkers.reading.edn import KEYED_COMMENT, encode

_KEYWORD: Final = re.compile(r"[A-Za-z*!_?$%&=<>+-][\w*!?$%&=<>.+/-]*")
_TAKES: Final = (
    "dequeue",
    "drain",
    "remove",
    "poll",
    "pop",
    "receive",
    "consume",
    "take",
)  # without an argument
_FINDS_NOTHING_OUT: Final = (
    "write", "put", "set", "push", "cas", "compare-and-set", "enqueue", "offer", "add", "insert",
    "remove", "delete", "inc", "increment", "dec", "decrement", "acquire", "lock", "release",
    "unlock",
)  # fmt: skip
_ENTRIES_AT_ONCE: Final = 1 << 16
_NOWHERE: Final = np.inf

Places = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NemesisEntry:
    """Something that the nemesis began or ended, at a time of the history's clock."""

    at_ns: int
    f: str
    value: str = ""
    told: str = ""  # more fields, as EDN: ":targets [...]"


NOTHING_TOLD: Final[Mapping[int, str]] = {}


def edn_lines(
    history: ConcurrentHistory,
    *,
    keyed: bool | None = None,
    nemesis: Sequence[NemesisEntry] = (),
    told: Mapping[int, str] = NOTHING_TOLD,
) -> Iterator[str]:
    """The entries, each with its newline.

    ``keyed``: values are ``[key value]``, as jepsen.independent has them; None: if there are
    several keys. Otherwise a key that has a name is written as ``:key``. ``nemesis``: entries of
    process :nemesis, put where their times belong; in a history without clock times they come
    first. ``told``: by place, more fields of an operation's completion, as EDN.
    """
    clients = history.process
    history = _one_at_a_time(history)
    keyed = len(history.key.names) > 1 if keyed is None else keyed
    writer = _Writer(history, keyed, nemesis, clients, told)
    if keyed:
        yield f"{KEYED_COMMENT}\n"
    order = _order(history, nemesis)
    for begin in range(0, len(order), _ENTRIES_AT_ONCE):
        chunk = order[begin : begin + _ENTRIES_AT_ONCE].tolist()
        yield from map(writer.line, range(begin, begin + len(chunk)), chunk)


def _order(history: ConcurrentHistory, nemesis: Sequence[NemesisEntry]) -> npt.NDArray[np.int64]:
    """Entries by their place in time: i < n is row i's invocation, i < 2n row (i - n)'s end, what
    follows is of the nemesis."""
    clock = _clock(history)
    ends = np.where(history.ret == NEVER, _crash_places(history, clock), history.ret)
    at_ns = np.array([entry.at_ns for entry in nemesis], dtype=np.int64)
    faults = np.searchsorted(clock, at_ns) - 0.5
    places = np.concatenate([history.call.astype(np.float64), ends, faults])
    order = np.argsort(places, kind="stable")
    return order[places[order] < _NOWHERE]


def _clock(history: ConcurrentHistory) -> npt.NDArray[np.int64]:
    """The time of each rank, never falling; nothing in a history without clock times."""
    if history.call_ns is None or history.ret_ns is None:
        return np.empty(0, dtype=np.int64)
    returned = history.ret != NEVER
    clock = np.zeros(len(history) + int(returned.sum()), dtype=np.int64)
    clock[history.call] = history.call_ns
    clock[history.ret[returned]] = history.ret_ns[returned]
    return np.maximum.accumulate(clock)


def _crash_places(history: ConcurrentHistory, clock: npt.NDArray[np.int64]) -> Places:
    """Where the completion of each row stands if it crashed: at its time, and before its process
    invokes again. What was never heard of again has none, unless its process went on."""
    next_call = _next_calls(history)
    if history.ret_ns is None:
        at_end = float(2 * len(history))
        told = np.where(history.type == INFO, at_end, _NOWHERE)
        return np.asarray(np.minimum(told, next_call - 0.25))
    told = np.searchsorted(clock, history.ret_ns, side="right") - 0.5
    told = np.where(history.ret_ns < 0, _NOWHERE, np.maximum(told, history.call + 0.25))
    return np.asarray(np.minimum(told, next_call - 0.25))


def _next_calls(history: ConcurrentHistory) -> Places:
    """When each row's process invokes again; infinity: it does not."""
    by_process = np.lexsort((history.call, history.process))
    process, call = history.process[by_process], history.call[by_process]
    following = np.full(len(history), _NOWHERE)
    following[:-1] = np.where(process[1:] == process[:-1], call[1:], _NOWHERE)
    next_call = np.empty(len(history))
    next_call[by_process] = following
    return next_call


def _one_at_a_time(history: ConcurrentHistory) -> ConcurrentHistory:
    """The same operations, on more processes where those of one overlap or follow a crash."""
    until = np.where(history.ret == NEVER, _NOWHERE, history.ret)
    crowded = np.unique(history.process[until > _next_calls(history)])
    if not len(crowded):
        return history
    process = history.process.copy()
    fresh = int(process.max())
    free_at: dict[int, list[tuple[float, int]]] = {}  # per process: (free from, who)
    for row in np.flatnonzero(np.isin(process, crowded)).tolist():
        monitors = free_at.setdefault(int(process[row]), [(-1, int(process[row]))])
        number = next((i for i, (free, _) in enumerate(monitors) if free < history.call[row]), None)
        if number is None:
            fresh += 1
            number = len(monitors)
            monitors.append((-1, fresh))
        process[row] = monitors[number][1]
        monitors[number] = (float(until[row]), monitors[number][1])
        if until[row] == _NOWHERE:
            del monitors[number]
    return replace(history, process=process)


class _Writer:
    """Writes entries; what is the same in many of them is made once."""

    def __init__(
        self,
        history: ConcurrentHistory,
        keyed: bool,
        nemesis: Sequence[NemesisEntry],
        clients: npt.NDArray[np.int32],
        told: Mapping[int, str],
    ) -> None:
        n = self._n = len(history)
        self._nemesis = nemesis
        self._f = [keyword(name) for name in history.f.names]
        self._f_codes = history.f.codes.tolist()
        self._keys = [encode(name) for name in history.key.names]
        self._key_codes = history.key.codes.tolist()
        self._names_key = not keyed and history.key.names != ("",)
        self._keyed = keyed
        is_renamed = (history.process != clients).tolist()
        self._process = [
            f"{process}, :client {client}" if renamed else str(process)
            for process, client, renamed in zip(
                history.process.tolist(), clients.tolist(), is_renamed, strict=True
            )
        ]
        self._told = told
        self._place = history.place.tolist()
        self._type = history.type.tolist()
        self._argument = _Texts(history.argument)
        self._result = _Texts(history.result)
        nothing_told = (history.type == OK) & (history.result.kind == NOTHING)
        nothing_asked = history.argument.kind == NOTHING
        self._found_nothing = (nothing_told & nothing_asked & history.f.among(_TAKES)).tolist()
        self._repeats = (nothing_told & history.f.among(_FINDS_NOTHING_OUT)).tolist()
        timed = history.call_ns is not None and history.ret_ns is not None
        self._calls = history.call_ns.tolist() if history.call_ns is not None and timed else None
        self._rets = history.ret_ns.tolist() if history.ret_ns is not None and timed else [-1] * n

    def line(self, index: int, entry: int) -> str:
        """``entry`` as ``_order`` numbers them; ``index`` is its position in the file."""
        if entry >= 2 * self._n:
            return self._nemesis_line(index, self._nemesis[entry - 2 * self._n])
        is_end = entry >= self._n
        row = entry - self._n if is_end else entry
        kind, error = ":invoke", ""
        value = self._argument.text(row)
        time = self._calls[row] if self._calls is not None else -1
        if is_end:
            kind, value, error = self._end(row, value)
            time = self._rets[row]
            if (more := self._told.get(self._place[row])) is not None:
                error += f", {more}"
        if self._keyed:
            value = f"[{self._keys[self._key_codes[row]]} {value}]"
        elif self._names_key:
            error += f", :key {self._keys[self._key_codes[row]]}"
        clock = f", :time {time}" if time >= 0 else ""
        return (
            f"{{:index {index}, :process {self._process[row]}, :type {kind},"
            f" :f {self._f[self._f_codes[row]]}, :value {value}{clock}{error}}}\n"
        )

    def _end(self, row: int, argument: str) -> tuple[str, str, str]:
        """The completion's type, value and error."""
        if self._found_nothing[row]:
            return ":fail", "nil", ", :error :empty"
        if self._type[row] == INFO:
            return ":info", argument, ""
        if self._type[row] == FAIL:
            return ":fail", argument, ""
        return ":ok", argument if self._repeats[row] else self._result.text(row), ""

    def _nemesis_line(self, index: int, entry: NemesisEntry) -> str:
        value = encode(entry.value) if entry.value else "nil"
        return (
            f"{{:index {index}, :process :nemesis, :type :info, :f {keyword(entry.f)},"
            f" :value {value}, :time {entry.at_ns}{f', {entry.told}' if entry.told else ''}}}\n"
        )


class _Texts:
    def __init__(self, values: Values) -> None:
        self._kind = values.kind.tolist()
        self._number = values.number.tolist()
        self._forms = [encode(form) for form in values.forms]

    def text(self, row: int) -> str:
        kind = self._kind[row]
        if kind == INTEGER:
            return str(self._number[row])
        return "nil" if kind == NOTHING else self._forms[self._number[row]]


def keyword(name: str) -> str:
    """An f or a name as a keyword, or as a string if it can't be one."""
    return f":{name}" if _KEYWORD.fullmatch(name) else encode(name)
