"""What a judge is: it decides about a history by other means than linearizability.

A bank keeps its total, a set keeps what was added, no id is given out twice: such promises are
decided in one pass over the entries. A judge reads a history of any origin entry by entry
(checkers/reading/entries.py), so that one implementation judges what a user brings, in files of any
size, and our own runs (``JudgeOfRuns``). Judges and models are named alike: ``bank:total=80``.

A judge is right about what it says: what it can't know is "unknown" (a set that was never read), a
crashed operation may have happened or not, and an f that it does not read is left out with a note.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from shalott.checkers.checker import Result, merge_valid
from shalott.checkers.models.model import make_with
from shalott.checkers.reading.run_entries import sources_by_key
from shalott.core.errors import UsageError

if TYPE_CHECKING:
    from shalott.checkers.reading.entries import EntrySource
    from shalott.checkers.reading.shape import Shape
    from shalott.core.history import History


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one judgement. None: no limit. A judge that comes to one says "unknown", and how far it
    got."""

    time_limit_s: float | None = None
    memory_limit_bytes: int | None = None


class Judge(Protocol):
    """Configured when made: its fields are its options."""

    @property
    def name(self) -> str: ...

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        """``operations`` of its anomalies are the entries' indexes, or lines where there are none.

        What ``source`` itself notes is told by who asked, and not repeated in the result.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeRecord:
    """One judge. ``make``: a dataclass whose fields are the options, as those of models are.

    ``fs``: the operations that it reads. ``by_key``: whether it tells the keys of keyed histories
    apart itself; another one is given each key's history alone. ``wants``: whether a history of
    this shape seems to be one of its own. ``promise``: what must hold; ``source``: who says so (a
    paper, a namespace of Jepsen's).
    """

    name: str
    summary: str
    make: Callable[..., Judge]
    promise: str
    source: str
    fs: tuple[str, ...]
    by_key: bool = False
    wants: Callable[[Shape], bool] = lambda shape: False


# By name: the module and the record in it. A module is imported when its judge is asked for.
_TRANSACTIONS: Final = "shalott.checkers.transactions.judges"
JUDGES: Final[dict[str, str]] = {
    "bank": "shalott.checkers.judges.accounts:BANK",
    "final-set": "shalott.checkers.judges.sets:FINAL_SET",
    "set-full": "shalott.checkers.judges.set_timelines:SET_FULL",
    "unique-ids": "shalott.checkers.judges.counters:UNIQUE_IDS",
    "list-append": f"{_TRANSACTIONS}:LIST_APPEND",
    "rw-register": f"{_TRANSACTIONS}:RW_REGISTER",
    "add-read": f"{_TRANSACTIONS}:ADD_READ",
    "counter-bounds": "shalott.checkers.judges.counters:COUNTER_BOUNDS",
    "queue": "shalott.checkers.judges.queues:QUEUE",
    "total-queue": "shalott.checkers.judges.queues:TOTAL_QUEUE",
    "monotonic": "shalott.checkers.judges.orders:MONOTONIC",
    "sequential": "shalott.checkers.judges.orders:SEQUENTIAL",
    "causal-reverse": "shalott.checkers.judges.visibility:CAUSAL_REVERSE",
    "comments": "shalott.checkers.judges.visibility:COMMENTS",
    "causal": "shalott.checkers.judges.visibility:CAUSAL",
    "long-fork": "shalott.checkers.judges.visibility:LONG_FORK",
    "g2": "shalott.checkers.judges.visibility:ADYA_G2",
    "replica-logs": "shalott.checkers.judges.replicas:REPLICA_LOGS",
    "read-your-writes": "shalott.checkers.judges.sessions:READ_YOUR_WRITES",
    "monotonic-reads": "shalott.checkers.judges.sessions:MONOTONIC_READS",
    "monotonic-writes": "shalott.checkers.judges.sessions:MONOTONIC_WRITES",
    "writes-follow-reads": "shalott.checkers.judges.sessions:WRITES_FOLLOW_READS",
    "kafka": "shalott.checkers.partitions.kafka:KAFKA",
}


def find_judge(name: str) -> JudgeRecord:
    """Raises KeyError: there is no judge of this name."""
    module, _, attribute = JUDGES[name].partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, JudgeRecord) and found.name == name, JUDGES[name]
    return found


def make_judge(specification: str) -> Judge:
    """A judge from its name and options: ``name`` or ``name:option=value,option=value``.

    Raises UsageError: no such judge, option or value.
    """
    name, _, options = specification.partition(":")
    if name not in JUDGES:
        raise UsageError(f"no judge {name!r}: there are {', '.join(JUDGES)}")
    return make_with(find_judge(name).make, name, options)


# --- runs of ours ---------------------------------------------------------------------------------

RUN_LIMITS: Final = Limits(time_limit_s=120.0, memory_limit_bytes=2 * 1024**3)


@dataclass(frozen=True, slots=True)
class JudgeOfRuns:
    """A judge as a checker of runs: each key of the history is an object of its own.

    ``judge``: a judge, or what ``make_judge`` makes one of ("bank:total=80"). ``fs``: which
    operations it is given; () is all. The value of an operation is its column ``value``, unless
    ``extra`` holds one under "value": a list, a map, a transaction, what JSON can say. A judge that
    is told of several keys by values (transactions) finds one key in the column, such as "".
    """

    judge: Judge | str
    fs: tuple[str, ...] = ()
    limits: Limits = RUN_LIMITS

    @property
    def name(self) -> str:
        return self.judge.partition(":")[0] if isinstance(self.judge, str) else self.judge.name

    def check(self, history: History) -> Result:
        """Raises UsageError: there is no such judge."""
        judge = make_judge(self.judge) if isinstance(self.judge, str) else self.judge
        found = {
            key: judge.judge(source, self.limits)
            for key, source in sources_by_key(history, self.fs)
        }
        if not history.complete:
            found = {key: _incomplete(result) for key, result in found.items()}
        if not found:
            return Result(
                checker=self.name, valid="unknown", notes=("There was no operation to judge.",)
            )
        return merged(self.name, found)


def _incomplete(result: Result) -> Result:
    """What a recording that was cut short proves: not that something was lost."""
    if result.valid is not False or set(result.detail.get("broken", ())) - {"lost"}:
        return result
    why = "The recording was cut short: what was lost may come behind its end."
    return msgspec.structs.replace(result, valid="unknown", notes=(why, *result.notes))


def merged(name: str, found: dict[str, Result]) -> Result:
    """One result of those of several keys: counts add up, sentences name the key."""
    if len(found) == 1:
        return msgspec.structs.replace(next(iter(found.values())), checker=name)
    results = list(found.values())
    counts: dict[str, int | float] = {"object-count": len(found)}
    for result in results:
        for count, number in result.counts.items():
            counts[count] = counts.get(count, 0) + number
    broken = {kind for result in results for kind in result.detail.get("broken", ())}
    return Result(
        checker=name,
        valid=merge_valid(result.valid for result in results),
        counts=counts,
        anomalies=tuple(
            msgspec.structs.replace(each, summary=f"{key}: {each.summary}")
            for key, result in found.items()
            for each in result.anomalies
        ),
        notes=tuple(f"{key}: {note}" for key, result in found.items() for note in result.notes),
        detail={"broken": sorted(broken), "objects": {k: r.detail for k, r in found.items()}},
        headline=results[0].headline,
        words={kind: words for result in results for kind, words in result.words.items()},
    )
