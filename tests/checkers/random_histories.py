"""Random small histories of every model: good ones from a hidden execution, and mutated ones.

A good history comes from an object that is really there (a Python list, dict or integer, written
without a look at the models): clients call, at some moment the object does it, later they return.
Crashed operations may have been done, be done later, or never. Which is why a good history is
linearizable whatever the models say, and a model that refuses one is wrong.

    rng = random.Random(seed)
    rows = random_history("fifo-queue", rng)            # good
    rows = mutated(rows, rng)                           # often bad: ask the oracle
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from shalott.checkers.history.concurrent import Row


class Blocked(Exception):
    """It can't be done now: a lock that is held."""


class Refused(Exception):
    """It was done, and the answer was no: a compare-and-set that did not match."""


Draw = tuple[str, Hashable]


class Thing(Protocol):
    """An object that does what it is asked."""

    def draw(self, rng: random.Random, process: int) -> Draw:
        """What a client may ask for: (f, argument)."""
        ...

    def do(self, f: str, argument: Any, process: int) -> Hashable: ...


@dataclass
class Values:
    """Small values that repeat, or (``distinct``) never do."""

    rng: random.Random
    distinct: bool
    several: int = 3
    fresh: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def written(self) -> int:
        return next(self.fresh) if self.distinct else self.rng.randrange(self.several)

    def known(self) -> int:
        """One that may have been written."""
        return self.rng.randrange(1, 6) if self.distinct else self.rng.randrange(self.several)


@dataclass
class ARegister:
    values: Values
    compares: bool
    held: Hashable = None

    def draw(self, rng: random.Random, process: int) -> Draw:
        if self.compares and rng.random() < 0.4:
            before = self.held if rng.random() < 0.5 else self.values.known()
            return "cas", (before, self.values.written())
        return ("write", self.values.written()) if rng.random() < 0.5 else ("read", None)

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "read":
            return self.held
        if f == "write":
            self.held = argument
        elif self.held == argument[0]:
            self.held = argument[1]
        else:
            raise Refused
        return None


@dataclass
class SomeRegisters:
    values: Values
    held: dict[str, Hashable] = field(default_factory=dict)

    def draw(self, rng: random.Random, process: int) -> Draw:
        names = rng.sample("xyz", rng.randrange(1, 3))
        f = rng.choice(["read", "write", "txn"])
        if f == "read":
            return "read", tuple((name, None) for name in names)
        if f == "write":
            return "write", tuple((name, self.values.written()) for name in names)
        return "txn", tuple(
            ("r", name, None) if rng.random() < 0.5 else ("w", name, self.values.written())
            for name in names
        )

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "read":
            return tuple((name, self.held.get(name)) for name, _ in argument)
        if f == "write":
            self.held.update(argument)
            return None
        done = []
        for word, name, value in argument:
            if word == "w":
                self.held[name] = value
            done.append((word, name, self.held.get(name)))
        return tuple(done)


@dataclass
class AString:
    rng: random.Random
    held: str = ""

    def draw(self, rng: random.Random, process: int) -> Draw:
        f = rng.choice(["get", "put", "append", "append"])
        return f, None if f == "get" else rng.choice("abc")

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "get":
            return self.held
        self.held = argument if f == "put" else self.held + argument
        return None


@dataclass
class AQueue:
    values: Values
    take: Callable[[int], int]  # how many there are -> which
    held: list[int] = field(default_factory=list)

    def draw(self, rng: random.Random, process: int) -> Draw:
        return ("enqueue", self.values.written()) if rng.random() < 0.5 else ("dequeue", None)

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "dequeue":
            return self.held.pop(self.take(len(self.held))) if self.held else None
        self.held.append(argument)
        return None


@dataclass
class APriorityQueue:
    """Of several with the highest priority any may come; pairs have a priority of their own."""

    values: Values
    rng: random.Random
    pairs: bool
    held: list[Any] = field(default_factory=list)

    def draw(self, rng: random.Random, process: int) -> Draw:
        if rng.random() < 0.5:
            return "dequeue", None
        value = self.values.written()
        return "enqueue", (rng.randrange(3), value) if self.pairs else value

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "enqueue":
            self.held.append(argument)
            return None
        if not self.held:
            return None
        most = max(each[0] if self.pairs else each for each in self.held)
        ready = [each for each in self.held if (each[0] if self.pairs else each) == most]
        found: Hashable = self.rng.choice(ready)
        self.held.remove(found)
        return found


@dataclass
class ALog:
    values: Values
    held: list[int] = field(default_factory=list)

    def draw(self, rng: random.Random, process: int) -> Draw:
        f = rng.choice(["append", "append", "read", "read", "tail"])
        if f == "append":
            return f, self.values.written()
        return f, rng.randrange(len(self.held) + 2) if f == "read" else None

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "append":
            self.held.append(argument)
            return len(self.held) - 1
        if f == "tail":
            return len(self.held)
        return self.held[argument] if argument < len(self.held) else None


@dataclass
class ALock:
    """``owned``: clients release what they hold only; ``again``: and acquire what they hold."""

    owned: bool
    again: bool = False
    tokens: bool = False
    owner: int | None = None
    times: int = 0
    token: int = 0
    asked: dict[int, int] = field(default_factory=dict)

    def draw(self, rng: random.Random, process: int) -> Draw:
        if not self.owned:
            return rng.choice(["acquire", "release"]), None
        held = self.asked.get(process, 0)
        acquires = not held or (self.again and held < 2 and rng.random() < 0.5)
        self.asked[process] = held + (1 if acquires else -1)
        return ("acquire" if acquires else "release"), None

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "acquire":
            if self.times and not (self.again and self.owner == process):
                raise Blocked
            self.token += not self.times  # of one hold it stays
            self.owner, self.times = process, self.times + 1
            return self.token if self.tokens else None
        if not self.times or (self.owned and self.owner != process):
            raise Blocked
        self.times -= 1
        return None


@dataclass
class ASemaphore:
    permits: int
    free: int

    def draw(self, rng: random.Random, process: int) -> Draw:
        return rng.choice(["acquire", "release"]), rng.choice([None, 1, 1, 2])

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        count = argument or 1
        free = self.free - count if f == "acquire" else self.free + count
        if not 0 <= free <= self.permits:
            raise Blocked
        self.free = free
        return None


@dataclass
class AnOwnedSemaphore:
    """Two permits, released by who holds one only; most clients release what they hold."""

    held: dict[int, int] = field(default_factory=dict)

    def draw(self, rng: random.Random, process: int) -> Draw:
        return rng.choice(["acquire", "release"]), None

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        own = self.held.get(process, 0)
        if not own if f == "release" else sum(self.held.values()) == 2:
            raise Blocked
        self.held[process] = own + (1 if f == "acquire" else -1)
        return None


@dataclass
class ASet:
    values: Values
    whole: bool
    held: dict[int, None] = field(default_factory=dict)

    def draw(self, rng: random.Random, process: int) -> Draw:
        f = rng.choice(["add", "add", "remove", "contains", "read" if self.whole else "contains"])
        if f == "read":
            return f, None
        return f, self.values.written() if f == "add" else self.values.known()

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "read":
            return tuple(sorted(self.held))
        there = argument in self.held
        if f == "add":
            self.held[argument] = None
            return not there
        if f == "remove":
            self.held.pop(argument, None)
        return there


@dataclass
class ACounter:
    held: int = 0

    def draw(self, rng: random.Random, process: int) -> Draw:
        f = rng.choice(["inc", "dec", "read", "read"])
        return f, None if f == "read" else rng.choice([None, 1, 2])

    def do(self, f: str, argument: Any, process: int) -> Hashable:
        if f == "read":
            return self.held
        self.held += (argument or 1) * (1 if f == "inc" else -1)
        return None


def _thing(model: str, rng: random.Random, values: Values) -> Thing:
    made: dict[str, Callable[[], Thing]] = {
        "register": lambda: ARegister(values, compares=False),
        "cas-register": lambda: ARegister(values, compares=True),
        "multi-register": lambda: SomeRegisters(values),
        "key-value": lambda: AString(rng),
        "fifo-queue": lambda: AQueue(values, lambda _: 0),
        "unordered-queue": lambda: AQueue(values, rng.randrange),
        "stack": lambda: AQueue(values, lambda count: count - 1),
        "priority-queue": lambda: APriorityQueue(values, rng, rng.random() < 0.5),
        "log": lambda: ALog(values),
        "mutex": lambda: ALock(owned=rng.random() < 0.5),
        "owner-lock": lambda: ALock(owned=True),
        "reentrant-lock": lambda: ALock(owned=True, again=True),
        "fenced-lock": lambda: ALock(owned=True, tokens=True),
        "reentrant-fenced-lock": lambda: ALock(owned=True, again=True, tokens=True),
        "semaphore:permits=2": lambda: ASemaphore(2, 2),
        "owned-semaphore": lambda: AnOwnedSemaphore(),
        "set": lambda: ASet(values, whole=rng.random() < 0.5),
        "counter": lambda: ACounter(),
    }
    return made[model]()


MODELS: Final = (
    "register",
    "cas-register",
    "multi-register",
    "key-value",
    "fifo-queue",
    "unordered-queue",
    "stack",
    "priority-queue",
    "log",
    "mutex",
    "owner-lock",
    "reentrant-lock",
    "fenced-lock",
    "semaphore:permits=2",
    "set",
    "counter",
)  # as checkers.models.make_model takes them


@dataclass
class _Call:
    process: int
    f: str
    argument: Hashable
    call: int
    done: bool = False
    result: Hashable = None
    type: str = "ok"
    crashes: bool = False
    ret: int | None = None


def random_history(
    model: str,
    rng: random.Random,
    *,
    operations: int = 7,
    processes: int = 3,
    distinct: bool | None = None,
    crash: float | None = None,
) -> list[Row]:
    """A linearizable history of ``operations`` calls at most, in the order of their calls.

    ``distinct``: no value is written twice (None: toss a coin); ``crash``: the part of operations
    that crash (None: often none, sometimes many).
    """
    values = Values(rng, rng.random() < 0.5 if distinct is None else distinct)
    crash = rng.choice([0.0, 0.0, 0.15, 0.3, 0.5]) if crash is None else crash
    thing = _thing(model, rng, values)
    clock = itertools.count()
    idle = list(range(processes))
    calls: list[_Call] = []
    open_calls: list[_Call] = []
    in_flight = rng.random()
    for _ in range(operations * 8):
        if idle and len(calls) < operations and rng.random() < max(in_flight, not open_calls):
            process = idle.pop(rng.randrange(len(idle)))
            f, argument = thing.draw(rng, process)
            made = _Call(process, f, argument, next(clock), crashes=rng.random() < crash)
            calls.append(made)
            open_calls.append(made)
            if made.crashes:  # its process is another one from now on
                idle.append(process + processes)
        elif open_calls:
            _advance(rng.choice(open_calls), thing, clock, open_calls, idle)
    for left in list(open_calls):
        while left in open_calls and _advance(left, thing, clock, open_calls, idle):
            pass
    return [
        Row(
            c.process, c.f, c.argument, c.result, c.call, c.ret, "info" if c.ret is None else c.type
        )
        for c in calls
        if c.ret is not None or c.crashes or rng.random() < 0.7 or c.done
    ]


def _advance(
    call: _Call, thing: Thing, clock: Iterator[int], open_calls: list[_Call], idle: list[int]
) -> bool:
    """The object does it, or (done) it returns. False: it can't, now."""
    if not call.done:
        try:
            call.result = thing.do(call.f, call.argument, call.process)
        except Blocked:
            return False
        except Refused:
            call.type = "fail"
        call.done = True
        if call.crashes:
            call.result = None
            open_calls.remove(call)
        return True
    call.ret = next(clock)
    open_calls.remove(call)
    idle.append(call.process)
    return True


def mutated(rows: list[Row], rng: random.Random, times: int | None = None) -> list[Row]:
    """The history with one to four random changes. Often not linearizable any more."""
    mutations = (
        *(_other_result, _other_result, _other_result, _swap_results, _swap_results),
        *(_swap_returns, _swap_calls, _drop, _repeat, _fail),
    )
    for _ in range(rng.choice([1, 2, 3, 4]) if times is None else times):
        if rows:
            rows = rng.choice(mutations)(list(rows), rng)
    return rows


def _two(rows: list[Row], rng: random.Random, same_f: bool) -> tuple[int, int] | None:
    first = rng.randrange(len(rows))
    others = [
        i for i, row in enumerate(rows) if i != first and (not same_f or row.f == rows[first].f)
    ]
    return (first, rng.choice(others)) if others else None


def _other_result(rows: list[Row], rng: random.Random) -> list[Row]:
    """A result becomes another of the same f, or the argument of a neighbour, or a stranger."""
    at = rng.randrange(len(rows))
    old = rows[at].result
    known = [row for row in rows if row.f == rows[at].f and row.type != "info"]
    if rows[at] not in known:
        return rows
    seen: list[Hashable] = [row.result for row in known]
    if isinstance(old, bool):
        seen = [not old]
    elif isinstance(old, int):
        seen += [old + 1, max(old - 1, 0), None]
    elif rows[at].f in ("read", "dequeue") and not isinstance(old, tuple):
        seen += [row.argument for row in rows if type(row.argument) is int]
    rows[at] = rows[at]._replace(result=rng.choice(seen))
    return rows


def _swap_results(rows: list[Row], rng: random.Random) -> list[Row]:
    if pair := _two(rows, rng, same_f=True):
        one, other = rows[pair[0]], rows[pair[1]]
        if "info" not in (one.type, other.type):
            rows[pair[0]] = one._replace(result=other.result)
            rows[pair[1]] = other._replace(result=one.result)
    return rows


def _swap_returns(rows: list[Row], rng: random.Random) -> list[Row]:
    if pair := _two(rows, rng, same_f=False):
        one, other = rows[pair[0]], rows[pair[1]]
        if one.ret is not None and other.ret is not None:
            rows[pair[0]], rows[pair[1]] = one._replace(ret=other.ret), other._replace(ret=one.ret)
    return _in_order(rows)


def _swap_calls(rows: list[Row], rng: random.Random) -> list[Row]:
    if pair := _two(rows, rng, same_f=False):
        one, other = rows[pair[0]], rows[pair[1]]
        rows[pair[0]], rows[pair[1]] = one._replace(call=other.call), other._replace(call=one.call)
    return _in_order(rows)


def _in_order(rows: list[Row]) -> list[Row]:
    """Whatever returns before it was called is turned round."""
    turned = [
        row._replace(call=row.ret, ret=row.call)
        if row.ret is not None and row.ret < row.call
        else row
        for row in rows
    ]
    return sorted(turned, key=lambda row: row.call)


def _drop(rows: list[Row], rng: random.Random) -> list[Row]:
    del rows[rng.randrange(len(rows))]
    return rows


def _repeat(rows: list[Row], rng: random.Random) -> list[Row]:
    """An operation happens again, at the end, by itself."""
    end = max(max(row.call, row.ret or 0) for row in rows) + 1
    again = rng.choice(rows)
    ret = None if again.ret is None else end + 1
    process = max(row.process for row in rows) + 1
    return [*rows, again._replace(process=process, call=end, ret=ret)]


def _fail(rows: list[Row], rng: random.Random) -> list[Row]:
    """What happened is said not to have, or the other way round."""
    at = rng.randrange(len(rows))
    if rows[at].type != "info":
        rows[at] = rows[at]._replace(type="fail" if rows[at].type == "ok" else "ok")
    return rows
