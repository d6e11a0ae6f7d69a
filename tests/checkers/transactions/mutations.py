"""Anomalies planted into histories that have none, and each one's nearest sound relative.

A case is a few transactions on keys of their own, in a notation of a line each:

    process call-ret mops           process call-ret! mops: fail         process call? mops: info

    x+1 appends 1 to x       x[1,2] read a list       x=1 writes       x~1 read a register, x~ nil

``planted`` puts them into the middle of other traffic, under other names, values and processes,
with innocent micro-operations between their own. The relative differs in one place, is as strict
as serializable gets, and must not be accused. Which levels a case breaks is not written down here:
tests ask the oracle about its transactions alone.

``disturbed`` changes a small history in one place at random: often for the worse, ask the oracle.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tests.checkers.transactions.histories import History, Mop, Semantics, Transaction

LIST: Semantics = "list-append"
REGISTER: Semantics = "rw-register"


@dataclass(frozen=True, slots=True)
class Case:
    """``kind`` is what must be found, by Elle's name; ``options`` are the judge's. ``change``: what
    of ``lines`` is put in the place of what to have the sound relative."""

    name: str
    kind: str
    semantics: Semantics
    lines: str
    change: tuple[str, str]
    options: str = ""

    def transactions(self, *, sound: bool = False) -> list[Transaction]:
        """As they stand here, without any other."""
        return _parsed(self._text(sound=sound))

    def _text(self, *, sound: bool) -> str:
        old, new = self.change
        assert self.lines.count(old) == 1, (self.name, old)
        return self.lines.replace(old, new) if sound else self.lines


def _case(
    kind: str,
    semantics: Semantics,
    lines: str,
    change: tuple[str, str],
    name: str = "",
    options: str = "",
) -> Case:
    told = " ".join(filter(None, (name, options)))
    return Case(
        f"{semantics} {kind}{' ' if told else ''}{told}", kind, semantics, lines, change, options
    )


_LINE = re.compile(r"(\d+) (\d+)(?:-(\d+)(!?)|\?) (.*)")
_MOP = re.compile(r"([a-z])(?:\+(\d+)|=(\d+)|\[([\d,]*)\]|~(\d*))$")


def _parsed(text: str) -> list[Transaction]:
    found = []
    for line in text.split("/"):
        parts = _LINE.fullmatch(" ".join(line.split()))
        assert parts, line
        process, call, ret, failed, mops = parts.groups()
        kind: Literal["ok", "fail", "info"] = "fail" if failed else "ok" if ret else "info"
        found.append(
            Transaction(
                int(process),
                tuple(map(_parsed_mop, mops.split())),
                int(call),
                int(ret) if ret else None,
                kind,
            )
        )
    return found


def _parsed_mop(text: str) -> Mop:
    parts = _MOP.match(text)
    assert parts, text
    key, appended, written, elements, seen = parts.groups()
    if appended:
        return "append", key, int(appended)
    if written:
        return "w", key, int(written)
    if elements is not None:
        return "r", key, tuple(map(int, filter(None, elements.split(","))))
    return "r", key, int(seen) if seen else None


LIST_CASES: tuple[Case, ...] = (
    _case("G0", LIST, "0 0-9 x+1 y+1 / 1 1-8 x+2 y+2 / 2 2-7 x[1,2] y[2,1]", ("y[2,1]", "y[1,2]")),
    _case(
        "G0",
        LIST,
        "0 0-9 x+1 z+2 / 1 0-9 x+2 y+1 / 2 0-9 y+2 z+1 / 3 0-9 x[1,2] y[1,2] z[1,2]",
        ("z[1,2]", "z[2,1]"),
        "of three",
    ),
    _case("G0-process", LIST, "0 0-1 x+1 / 0 2-3 x+2 / 1 0-9 x[2,1]", ("x[2,1]", "x[1,2]")),
    _case("G0-realtime", LIST, "0 0-1 x+1 / 1 2-3 x+2 / 2 0-9 x[2,1]", ("x[2,1]", "x[1,2]")),
    _case("G1c", LIST, "0 0-9 x+1 y[1] / 1 1-8 y+1 x[1]", ("x[1]", "x[]")),
    _case(
        "G1c",
        LIST,
        "0 0-9 x+1 z[1] / 1 1-8 x+2 z+1 / 2 0-9 x[1,2]",
        ("z[1]", "z[]"),
        "of a write and a read",
    ),
    _case("G1c-process", LIST, "0 0-1 x[1] / 0 2-3 x+1", ("x[1]", "x[]")),
    _case("G1c-realtime", LIST, "0 0-1 x[1] / 1 2-3 x+1", ("x[1]", "x[]")),
    _case(
        "G-single-item",
        LIST,
        "0 0-9 x+1 y+1 / 1 1-8 x[1] y[] / 2 2-7 x[1] y[1]",
        ("x[1] y[]", "x[1] y[1]"),
    ),
    _case(
        "G-single-item",
        LIST,
        "0 0? x+1 y+1 / 1 1-8 x[1] y[] / 2 2-7 x[1] y[1]",
        ("x[1] y[]", "x[1] y[1]"),
        "of a crashed one",
    ),
    _case(
        "G-single-item",
        LIST,
        "0 0-9 x+1 / 1 0-9 x[1] y+1 / 2 0-9 y[1] x[] / 3 0-9 x[1] y[1]",
        ("y[1] x[]", "y[1] x[1]"),
        "over another",
    ),
    _case("G-single-item-process", LIST, "0 0-1 x+1 / 0 2-3 x[] / 1 0-9 x[1]", ("x[]", "x[1]")),
    _case("G-single-item-realtime", LIST, "0 0-1 x+1 / 1 2-3 x[] / 2 0-9 x[1]", ("x[]", "x[1]")),
    _case(
        "G-nonadjacent-item",
        LIST,
        "0 0-9 x+1 / 1 0-9 y+1 / 2 0-9 x[1] y[] / 3 0-9 x[] y[1] / 4 0-9 x[1] y[1]",
        ("x[] y[1]", "x[1] y[1]"),
    ),
    _case(
        "G-nonadjacent-item-process",
        LIST,
        "0 0-3 x+1 / 0 4-5 y[] / 1 0-9 y+1 / 2 1-9 y[1] x[] / 3 0-9 x[1] y[1]",
        ("y[1] x[]", "y[1] x[1]"),
    ),
    _case(
        "G-nonadjacent-item-realtime",
        LIST,
        "0 0-3 x+1 / 4 4-5 y[] / 1 0-9 y+1 / 2 1-9 y[1] x[] / 3 0-9 x[1] y[1]",
        ("y[1] x[]", "y[1] x[1]"),
    ),
    _case(
        "G2-item",
        LIST,
        "0 0-9 x[] y+1 / 1 0-9 y[] x+1 / 2 0-9 x[1] y[1]",
        ("y[] x+1", "y[1] x+1"),
    ),
    _case(
        "G2-item",
        LIST,
        "0 0-9 x[] y+1 / 1 0-9 y[] z+1 / 2 0-9 z[] x+1 / 3 0-9 x[1] y[1] z[1]",
        ("z[] x+1", "z[1] x+1"),
        "of three",
    ),
    _case(
        "G2-item-process",
        LIST,
        "0 0-1 x+1 / 0 2-3 y[] / 1 0-9 y+1 x[] / 2 0-9 x[1] y[1]",
        ("y[]", "y[1]"),
    ),
    _case(
        "G2-item-realtime",
        LIST,
        "0 0-1 x+1 / 3 2-3 y[] / 1 0-9 y+1 x[] / 2 0-9 x[1] y[1]",
        ("y[]", "y[1]"),
    ),
    _case("internal", LIST, "0 0-9 x+1 x[] / 1 0-9 x[1]", ("x[]", "x[1]"), "own write unseen"),
    _case("internal", LIST, "0 0-9 x[] x[1] / 1 0-9 x+1", ("x[] x[1]", "x[1] x[1]"), "read twice"),
    _case("internal", LIST, "0 0-9 x+1 x[1] x+2 x[1]", ("x+2 x[1]", "x+2 x[1,2]"), "second write"),
    _case("future-read", LIST, "0 0-9 x[1] x+1", ("x[1] x+1", "x[] x+1")),
    _case("G1a", LIST, "0 0-1! x+1 / 1 0-9 x[1]", ("x[1]", "x[]")),
    _case("G1b", LIST, "0 0-9 x+1 x+2 / 1 0-9 x[1] / 2 0-9 x[1,2]", ("x[1] /", "x[] /")),
    _case("dirty-update", LIST, "0 0-1! x+1 / 1 0-9 x+2 / 2 0-9 x[1,2]", ("x[1,2]", "x[2]")),
    _case("duplicate-elements", LIST, "0 0-9 x+1 / 1 0-9 x[1,1]", ("x[1,1]", "x[1]")),
    _case(
        "incompatible-order",
        LIST,
        "0 0-9 x+1 / 1 0-9 x+2 / 2 0-9 x[1,2] / 3 0-9 x[2,1]",
        ("x[2,1]", "x[1,2]"),
    ),
    _case("lost-update", LIST, "0 0-9 x[] x+1 / 1 0-9 x[] x+2", ("x[] x+2", "x[1] x+2")),
    _case(
        "lost-update",
        LIST,
        "0 0-9 x+1 / 1 0-9 x[1] x+2 / 2 0-9 x[1] x+3 / 3 0-9 x[1,2,3]",
        ("x[1] x+3", "x[1,2] x+3"),
        "of a later version",
    ),
)

REGISTER_CASES: tuple[Case, ...] = (
    _case("G1c", REGISTER, "0 0-9 x=1 y~1 / 1 1-8 y=1 x~1", ("x~1", "x~")),
    _case(
        "G1c",
        REGISTER,
        "0 0-9 x=1 z~1 / 1 1-8 y=1 x~1 / 2 0-9 z=1 y~1",
        ("y~1", "y~"),
        "of three",
    ),
    _case("G1c-process", REGISTER, "0 0-1 x~1 / 0 2-3 x=1", ("x~1", "x~")),
    _case("G1c-realtime", REGISTER, "0 0-1 x~1 / 1 2-3 x=1", ("x~1", "x~")),
    _case("G-single-item", REGISTER, "0 0-9 x=1 y=1 / 1 1-8 x~1 y~", ("y~", "y~1")),
    _case(
        "G-single-item",
        REGISTER,
        "0 0? x=1 y=1 / 1 1-8 x~1 y~",
        ("y~", "y~1"),
        "of a crashed one",
    ),
    _case("G-single-item-process", REGISTER, "0 0-1 x=1 / 0 2-3 x~", ("x~", "x~1")),
    _case("G-single-item-realtime", REGISTER, "0 0-1 x=1 / 1 2-3 x~", ("x~", "x~1")),
    _case(
        "G-nonadjacent-item",
        REGISTER,
        "0 0-9 x=1 / 1 0-9 y=1 / 2 0-9 x~1 y~ / 3 0-9 x~ y~1",
        ("x~ y~1", "x~1 y~1"),
    ),
    _case(
        "G-nonadjacent-item-process",
        REGISTER,
        "0 0-3 x=1 / 0 4-5 y~ / 1 0-9 y=1 / 2 1-9 y~1 x~",
        ("y~1 x~", "y~1 x~1"),
    ),
    _case(
        "G-nonadjacent-item-realtime",
        REGISTER,
        "0 0-3 x=1 / 4 4-5 y~ / 1 0-9 y=1 / 2 1-9 y~1 x~",
        ("y~1 x~", "y~1 x~1"),
    ),
    _case("G2-item", REGISTER, "0 0-9 x~ y=1 / 1 0-9 y~ x=1", ("y~ x=1", "y~1 x=1")),
    _case("G2-item-process", REGISTER, "0 0-1 x=1 / 0 2-3 y~ / 1 0-9 y=1 x~", ("y~ /", "y~1 /")),
    _case("G2-item-realtime", REGISTER, "0 0-1 x=1 / 3 2-3 y~ / 1 0-9 y=1 x~", ("y~ /", "y~1 /")),
    _case("internal", REGISTER, "0 0-9 x=1 x~", ("x~", "x~1"), "own write unseen"),
    _case("internal", REGISTER, "0 0-9 x~ x~1 / 1 0-9 x=1", ("x~ x~1", "x~1 x~1"), "read twice"),
    _case("G1a", REGISTER, "0 0-1! x=1 / 1 0-9 x~1", ("x~1", "x~")),
    _case("G1b", REGISTER, "0 0-9 x=1 x=2 / 1 0-9 x~1", ("x~1", "x~2")),
    _case("lost-update", REGISTER, "0 0-9 x~ x=1 / 1 0-9 x~ x=2", ("x~ x=2", "x~1 x=2")),
    _case(
        "lost-update",
        REGISTER,
        "0 0-9 x=1 / 1 0-9 x~1 x=2 / 2 0-9 x~1 x=3",
        ("x~1 x=3", "x~2 x=3"),
        "of a later version",
    ),
)
# Where the order of a register's versions is not to be seen, a user may say that writes follow
# reads within a transaction.
FOLLOWS: tuple[Case, ...] = (
    _case(
        "G0",
        REGISTER,
        "0 0-9 x=1 y~1 y=2 / 1 0-9 x~1 x=2 y=1",
        ("y~1 y=2", "y~ y=2"),
        options="wfr_keys",
    ),
    _case(
        "G0-process",
        REGISTER,
        "0 0-1 x~1 x=2 / 0 2-3 x=1",
        ("x~1 x=2", "x~ x=2"),
        options="wfr_keys",
    ),
    _case(
        "G0-realtime",
        REGISTER,
        "0 0-1 x~1 x=2 / 1 2-3 x=1",
        ("x~1 x=2", "x~ x=2"),
        options="wfr_keys",
    ),
    _case(
        "G-single-item",
        REGISTER,
        "0 0-9 x=1 y=1 / 1 0-9 x~1 x=2 z=1 / 2 0-9 z~1 x~1",
        ("z~1 x~1", "z~1 x~2"),
        options="wfr_keys",
    ),
    _case(
        "cyclic-versions",
        REGISTER,
        "0 0-9 x~1 x=2 / 1 0-9 x~2 x=1",
        ("x~2 x=1", "x~ x=1"),
        options="wfr_keys",
    ),
)
CASES: tuple[Case, ...] = (*LIST_CASES, *REGISTER_CASES, *FOLLOWS)

ROOM = 100  # moments that planted transactions have to themselves


def planted(
    case: Case, traffic: History, rng: random.Random, *, sound: bool = False
) -> list[Transaction]:
    """The case in the midst of the traffic, under names that this does not use."""
    here = rng.choice(traffic).call if traffic else 0
    moved = [_moved(each, here) for each in traffic]
    names = _Names(traffic, rng)
    own = [names.transaction(each, here) for each in case.transactions(sound=sound)]
    return sorted([*moved, *own], key=lambda each: each.call)


def _moved(transaction: Transaction, here: int) -> Transaction:
    """Whatever happens from then on happens later."""

    def later(at: int) -> int:
        return at if at < here else at + ROOM

    ret = None if transaction.ret is None else later(transaction.ret)
    return replace(transaction, call=later(transaction.call), ret=ret)


class _Names:
    """What planted processes, keys and values are called; the traffic's own are left alone."""

    def __init__(self, traffic: History, rng: random.Random) -> None:
        self._rng = rng
        self._processes = 1 + max((each.process for each in traffic), default=0)
        used = {int(key) for each in traffic for _, key, _ in each.mops}
        fresh = range(1 + max(used, default=0), 100 + max(used, default=0))
        self._free = rng.sample(fresh, len(fresh))
        self._keys: dict[str, str] = {}
        self._values: dict[tuple[str, int], int] = {}

    def transaction(self, case: Transaction, here: int) -> Transaction:
        mops: list[Mop] = []
        for f, key, value in case.mops:
            mops += self._decoys(case)
            mops.append((f, self._key(key), self._value(key, value)))
        mops += self._decoys(case)
        # What the case calls one moment may be in any order: ends are behind all that begins then.
        call = here + 4 * case.call + self._rng.randrange(2)
        ret = None if case.ret is None else here + 4 * case.ret + 2 + self._rng.randrange(2)
        process = self._processes + case.process
        return Transaction(process, tuple(mops), call, ret, case.type)

    def _key(self, key: str) -> str:
        if key not in self._keys:
            self._keys[key] = str(self._free.pop())
        return self._keys[key]

    def _value(self, key: str, value: Hashable) -> Hashable:
        if isinstance(value, tuple):
            return tuple(self._value(key, each) for each in value)
        if not isinstance(value, int):
            return value
        while (key, value) not in self._values:
            drawn = self._rng.randrange(1, 1000)
            if drawn not in [v for (k, _), v in self._values.items() if k == key]:
                self._values[key, value] = drawn
        return self._values[key, value]

    def _decoys(self, case: Transaction) -> list[Mop]:
        """A key that no other transaction touches. What only reads still does."""
        if self._rng.random() < 0.7:
            return []
        lists = any(f == "append" or isinstance(value, tuple) for f, _, value in case.mops)
        key = str(self._free.pop())
        if not case.writes or self._rng.random() < 0.5:
            return [("r", key, () if lists else None)]
        return [("append" if lists else "w", key, 1)]


# -- at random -------------------------------------------------------------------------------------


def disturbed(history: History, semantics: Semantics, rng: random.Random) -> list[Transaction]:
    """One thing of it is otherwise."""
    changed = list(history)
    change = rng.choice(
        (_another_read, _another_read, _another_outcome, _elsewhere, _another_order)
    )
    at = rng.randrange(len(changed))
    changed[at] = change(changed[at], history, rng)
    return changed


def _another_read(who: Transaction, history: History, rng: random.Random) -> Transaction:
    """A read saw less, or something else that was in the key at some time."""
    places = [at for at, mop in enumerate(who.mops) if mop[0] == "r"]
    if not places:
        return who
    at = rng.choice(places)
    key, value = who.mops[at][1:]
    of_key = [mop for each in history for mop in each.mops if mop[1] == key]
    written = [mop[2] for mop in of_key if mop[0] != "r"]
    new: Hashable = rng.choice([None, *written])
    if isinstance(value, tuple):
        seen = [mop[2] for mop in of_key if isinstance(mop[2], tuple)]
        new = rng.choice([*_less(value, rng), rng.choice(seen)])
        if rng.random() < 0.3 and written:
            new = (*new, rng.choice(written))
    mops = (*who.mops[:at], ("r", key, new), *who.mops[at + 1 :])
    return replace(who, mops=mops)


def _less(value: tuple[Hashable, ...], rng: random.Random) -> list[tuple[Hashable, ...]]:
    """The list without its end, without one of its elements, and with two of them exchanged."""
    if not value:
        return [value]
    at = rng.randrange(len(value))
    swapped = list(value)
    swapped[0], swapped[at] = swapped[at], swapped[0]
    return [value[:-1], value[:at] + value[at + 1 :], tuple(swapped)]


def _another_outcome(who: Transaction, history: History, rng: random.Random) -> Transaction:
    if who.type == "info" or rng.random() < 0.5:
        return replace(who, type="fail", ret=who.call if who.ret is None else who.ret)
    return replace(who, type="info", ret=None)


def _elsewhere(who: Transaction, history: History, rng: random.Random) -> Transaction:
    """At another time, and so in another process."""
    if who.ret is None:
        return who
    last = max(each.ret or each.call for each in history)
    call = rng.randint(0, last)
    process = 1000 + max(each.process for each in history)
    return replace(who, call=call, ret=call + (who.ret - who.call), process=process)


def _another_order(who: Transaction, history: History, rng: random.Random) -> Transaction:
    """Its micro-operations the other way round."""
    return replace(who, mops=tuple(reversed(who.mops)))


CHANGES = (_another_read, _another_read, _another_outcome, _elsewhere, _another_order)


def fresh_processes(history: Sequence[Transaction]) -> bool:
    """Whether no process has two transactions at once, or one behind a crash."""
    by_process: dict[int, list[Transaction]] = {}
    for each in sorted(history, key=lambda each: each.call):
        by_process.setdefault(each.process, []).append(each)
    return all(
        earlier.ret is not None and earlier.ret < later.call
        for own in by_process.values()
        for earlier, later in zip(own, own[1:], strict=False)
    )
