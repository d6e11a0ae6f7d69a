"""The judges of transactions beside the oracle, on the same random histories.

What a judge says is violated must be: one claim that the oracle contradicts is a bug. What it does
not say may be broken all the same, where a history does not show the order of some versions; each
such miss is put into a class, by what the history lacks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from shalott.checkers.checker import Result
from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource
from tests.checkers.transactions.histories import History, Semantics, Transaction, edn
from tests.checkers.transactions.mutations import disturbed, fresh_processes
from tests.checkers.transactions.oracle import LEVELS, levels_kept
from tests.checkers.transactions.sound import DATABASES, Clients, run

LARGEST = 7  # transactions; each more makes the oracle's work sevenfold
LIMITS = Limits()
# What is asked for by itself: a judge that is asked for less may look for another proof.
ASKED = (
    *("serializable", "strong-session-serializable", "strict-serializable"),
    *("snapshot-isolation", "strong-session-snapshot-isolation", "strong-snapshot-isolation"),
    "read-committed",
)


def judged(history: History, semantics: Semantics, options: str = "") -> Result:
    """What ``shalott check`` would say."""
    judge = make_judge(f"{semantics}:{options}" if options else semantics)
    return judge.judge(EntrySource.of_text(edn(history).encode()), LIMITS)


def violated(result: Result) -> frozenset[str]:
    """The consistency models that a judge says are broken."""
    return frozenset((*result.detail["violated"], *result.detail["also-violated"]))


@dataclass(slots=True)
class Compared:
    """By level: how often it was kept; was broken, which was said; was broken, and was not said."""

    kept: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)
    unsaid: Counter[str] = field(default_factory=Counter)
    histories: int = 0
    wrong: list[tuple[frozenset[str], list[Transaction]]] = field(default_factory=list)
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)  # (level, class)


def compare(
    semantics: Semantics, histories: int, seed: int, judge: Callable[..., Result] = judged
) -> Compared:
    found = Compared()
    for history in drawn(semantics, histories, seed):
        kept = levels_kept(history, semantics)
        claims = violated(judge(history, semantics))
        claims |= {level for level in ASKED if _denies(judge, history, semantics, level)}
        found.histories += 1
        if claims & kept:
            found.wrong.append((claims & kept, history))
        for level in LEVELS:
            if level in kept:
                found.kept[level] += 1
            elif level in claims:
                found.said[level] += 1
            else:
                found.unsaid[level] += 1
                found.missed[level, why_missed(history, semantics)] += 1
    return found


def _denies(
    judge: Callable[..., Result], history: History, semantics: Semantics, level: str
) -> bool:
    """Whether the verdict is false if just this is asked for."""
    return judge(history, semantics, f"consistency={level}").valid is False


def drawn(semantics: Semantics, histories: int, seed: int) -> Iterator[list[Transaction]]:
    """Half of them as a database made them, half disturbed; some with everything read at the
    end."""
    rng = random.Random(f"transactions {semantics} {seed}")
    names = [*DATABASES, "nothing", "read-locks-not", "last-wins"]
    while histories:
        make, _ = DATABASES[rng.choice(names)]
        read_all = rng.random() < 0.4
        clients = Clients(
            transactions=rng.randint(2, 5 if read_all else 6),
            processes=rng.randint(2, 4),
            keys=rng.randint(1, 3),
            longest=rng.choice((2, 3, 4)),
            crash=rng.choice((0, 0.05, 0.2)),
            read_all=read_all,
        )
        history = run(make, semantics, rng, clients)
        for _ in range(rng.choice((0, 0, 1, 1, 2))):
            history = disturbed(history, semantics, rng)
        if len(history) <= LARGEST and fresh_processes(history):
            histories -= 1
            yield history


# -- what a history does not show ------------------------------------------------------------------


def why_missed(history: History, semantics: Semantics) -> str:
    """The first thing that it lacks."""
    for why, lacks in CLASSES[semantics].items():
        if lacks(history):
            return why
    return "nothing is lacking"


def reads(history: History) -> Iterator[tuple[Transaction, str, Sequence[object]]]:
    """Each read that is known, with the values in it."""
    for each in history:
        for f, key, value in each.mops if each.type == "ok" else ():
            if f == "r":
                alone = () if value is None else (value,)
                yield each, key, value if isinstance(value, tuple) else alone


def _reads_from_nowhere(history: History) -> bool:
    written = {(key, value) for each in history for f, key, value in each.mops if f != "r"}
    return any((key, value) not in written for _, key, seen in reads(history) for value in seen)


def _never_reads_an_append(history: History) -> bool:
    seen = {(key, value) for _, key, values in reads(history) for value in values}
    done = [each for each in history if each.type == "ok"]
    return any(
        (key, value) not in seen
        for each in done
        for key, values in each.writes.items()
        for value in values
    )


def _reads_no_one_order(history: History) -> bool:
    longest: dict[str, Sequence[object]] = {}
    for _, key, seen in reads(history):
        longest[key] = max(longest.get(key, ()), seen, key=len)
    return any(seen != longest[key][: len(seen)] for _, key, seen in reads(history))


def _reads_against_itself(history: History) -> bool:
    return any(
        len({key for f, key, _ in each.mops if f == "r"}) < sum(f == "r" for f, _, _ in each.mops)
        for each in history
    )


def _always(history: History) -> bool:
    return True


NEVER_READ = "an append was never read"
CLASSES: dict[Semantics, dict[str, Callable[[History], bool]]] = {
    "list-append": {
        "a value that none wrote was read": _reads_from_nowhere,
        "reads saw no one order": _reads_no_one_order,
        NEVER_READ: _never_reads_an_append,
    },
    "rw-register": {
        "a value that none wrote was read": _reads_from_nowhere,
        "a transaction reads a key twice": _reads_against_itself,
        "registers do not show the order of their versions": _always,
    },
}


# -- shrinking -------------------------------------------------------------------------------------


def shrunk(history: History, is_bad: Callable[[list[Transaction]], bool]) -> list[Transaction]:
    """A smallest part of it that is still bad, of which every read value was written."""

    def still(part: list[Transaction]) -> bool:
        return bool(part) and not _reads_from_nowhere(part) and is_bad(part)

    left = list(history)
    while True:
        smaller = next((part for part in _parts(left) if still(part)), None)
        if smaller is None:
            return left
        left = smaller


def _parts(history: list[Transaction]) -> Iterator[list[Transaction]]:
    for at, each in enumerate(history):
        yield history[:at] + history[at + 1 :]
        for place in range(len(each.mops)):
            fewer = each.mops[:place] + each.mops[place + 1 :]
            if fewer:
                yield [*history[:at], replace(each, mops=fewer), *history[at + 1 :]]
