"""The judge of partitions: sends and polls of logs, as in Jepsen's workload for Kafka.

What is an anomaly, and which are errors, is jepsen.tests.kafka's word: what Kafka's transactions
allow is told and no error. The engine finds them (engine/kafka.h).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.engine import lib, new_budget
from shalott.checkers.judge import JudgeRecord, Limits
from shalott.checkers.models.model import one_of
from shalott.checkers.partitions.partition_cycles import CYCLE_NAMES, Cycles, find_cycles
from shalott.checkers.partitions.partition_history import (
    FS,
    NONE,
    TYPES,
    LimitReached,
    PartitionHistory,
    take_in,
)
from shalott.checkers.partitions.partition_words import KINDS, anomaly
from shalott.core.json_value import Json

if TYPE_CHECKING:
    from shalott.checkers.reading.entries import EntrySource
    from shalott.checkers.reading.shape import Shape

TOLD_MAX: Final = 8  # cases of a kind that are told one by one
_AUTO: Final = "auto"

_ALWAYS_TOLD: Final = ("lost-write", "unseen", "duplicate")

# Why what is found is no error.
_INTERLEAVED: Final = "Kafka's transactions do not keep the sends of others out"
_REBALANCED: Final = "a subscription may be rebalanced between two polls"


@dataclass(frozen=True, slots=True)
class Kafka:
    """``sub_via``: how clients got their partitions, which says whether polls may skip and go back;
    auto: as the history shows. ``ww_deps``, ``rw_deps``: what the order of a log says of its
    writers, and of its readers and the writers behind them, is looked at for cycles, too."""

    sub_via: str = _AUTO
    ww_deps: bool = False
    rw_deps: bool = False

    name: ClassVar[str] = "kafka"

    def __post_init__(self) -> None:
        one_of("sub_via", self.sub_via, _AUTO, "assign", "subscribe")

    def judge(self, source: EntrySource, limits: Limits) -> Result:
        budget = new_budget(
            time_limit_s=limits.time_limit_s, memory_limit_bytes=limits.memory_limit_bytes
        )
        try:
            history = take_in(source, budget)
            cycles = find_cycles(
                history, budget, ww_deps=self.ww_deps, rw_deps=self.rw_deps, told=TOLD_MAX
            )
        except LimitReached as reached:
            return Result(checker=self.name, valid="unknown", notes=(str(reached),))
        return self._conclude(history, cycles)

    def _permitted(self, history: PartitionHistory) -> dict[str, str]:
        """The kinds that are no errors, and why."""
        permitted = dict.fromkeys(("int-send-skip", *_of_cycles("G0")), _INTERLEAVED)
        if self.ww_deps:
            permitted |= dict.fromkeys(_of_cycles("G1c"), _INTERLEAVED)
        subscribes = sum(history.facts.by_f[FS.index("subscribe")])
        if self.sub_via == "subscribe" or (self.sub_via == _AUTO and subscribes):
            permitted |= dict.fromkeys(("poll-skip", "nonmonotonic-poll"), _REBALANCED)
        return permitted

    def _conclude(self, history: PartitionHistory, cycles: Cycles) -> Result:
        permitted = self._permitted(history)
        counts = {kind.name: history.facts.counts[kind.code] for kind in KINDS} | cycles.counts
        found = [name for name, count in counts.items() if count]
        broken = [name for name in found if name not in permitted]
        told = {name: _cases(history, cycles, name) for name in found}
        doubts = _doubts(history, [name for name in cycles.stopped if name not in permitted])
        return Result(
            checker=self.name,
            valid=False if broken else "unknown" if doubts else True,
            counts=_counts(history, counts),
            anomalies=tuple(case for name in broken for case in told[name]),
            notes=(
                *doubts,
                *(
                    _permission(name, counts[name], permitted[name], told[name][0])
                    for name in found
                    if name in permitted
                ),
                *_notes(history),
            ),
            detail={
                "broken": broken,
                "permitted": [name for name in found if name in permitted],
                "worst-realtime-lag": _lag(history),
            },
            headline=_headline(history),
            words={name: _words(name) for name in broken},
        )


def _of_cycles(kind: str) -> tuple[str, ...]:
    return tuple(name for name in CYCLE_NAMES if name.partition("-")[0] == kind)


def _cases(history: PartitionHistory, cycles: Cycles, name: str) -> list[Anomaly]:
    """The first of a kind."""
    if name in cycles.counts:
        return cycles.anomalies[name]
    [kind] = (kind for kind in KINDS if kind.name == name)
    return [anomaly(history, kind, case) for case in history.cases(kind.code)[:TOLD_MAX]]


def _words(name: str) -> tuple[str, str]:
    clauses = {kind.name: kind.words for kind in KINDS}
    return clauses.get(name, (f"there is a cycle {name}", f"there are {{n}} cycles {name}"))


def _permission(name: str, count: int, why: str, first: Anomaly) -> str:
    times = "once" if count == 1 else f"{count:,} times"
    return f"{name}, {times}, is no error, since {why}: {first.summary}."


def _counts(history: PartitionHistory, found: dict[str, int]) -> dict[str, int | float]:
    facts = history.facts
    counts: dict[str, int | float] = {
        "operation-count": facts.ops,
        "message-count": facts.messages,
        "key-count": facts.keys,
    }
    for f, numbers in zip(FS, facts.by_f, strict=True):
        by_type = zip(TYPES, numbers, strict=True)
        counts |= {f"{f}-{type_}-count": number for type_, number in by_type if number}
    counts |= {
        f"{name}-count": number for name, number in found.items() if number or name in _ALWAYS_TOLD
    }
    counts["unseen-count"] = facts.unseen
    counts["consumed-again-count"] = facts.counts[lib.SHL_KAFKA_CONSUMED_AGAIN]
    counts["worst-realtime-lag-s"] = facts.lag / 1e9
    return counts


def _lag(history: PartitionHistory) -> dict[str, Json]:
    """Of the poll that was furthest behind, as jepsen.tests.kafka tells it; {}: none was."""
    facts = history.facts
    if facts.lag_op == NONE:
        return {}
    return {
        "time-ns": facts.lag_time,
        "process": facts.lag_process,
        "key": history.key(facts.lag_key),
        "lag-ns": facts.lag,
    }


def _doubts(history: PartitionHistory, stopped: list[str]) -> list[str]:
    """Why it is not known to be valid."""
    facts = history.facts
    doubts = []
    if not sum(facts.by_f[FS.index(f)][TYPES.index("ok")] for f in ("poll", "send", "txn")):
        doubts.append("No send and no poll was acknowledged: there is nothing to judge.")
    if facts.odd:
        doubts.append(
            f"{_number(facts.odd, 'value is', 'values are')} no micro-operations, the first at"
            f" line {facts.odd_line}: nothing is known from them."
        )
    doubts += [f"There may be cycles {name}: their search came to its limit." for name in stopped]
    return doubts


def _notes(history: PartitionHistory) -> list[str]:
    facts = history.facts
    notes = []
    if facts.unknown_f:
        notes.append(
            f"{_number(facts.unknown_f, 'entry does', 'entries do')} what this judge does not read,"
            f" the first at line {facts.unknown_line}: they were left out."
        )
    if facts.reused:
        notes.append(
            f"{_number(facts.reused, 'time', 'times')} a process began an operation before its last"
            " one had ended: the outcome of that one is taken to be unknown."
        )
    if facts.uncalled:
        notes.append(
            f"{_number(facts.uncalled, 'completion has', 'completions have')} no invocation."
        )
    if facts.processless:
        notes.append(
            "No entry says its process: what a client sees between two polls was not judged."
        )
    if facts.cause_count:
        told = [f"{history.text(facts.causes[at])} ({facts.cause_counts[at]:,})"
                for at in range(facts.cause_count)]  # fmt: skip
        notes.append(f"Outcomes are unknown because of {', '.join(told)}.")
    if facts.lag_op != NONE:
        notes.append(
            f"The poll at {history.at(facts.lag_op)} was furthest behind: by at least"
            f" {facts.lag / 1e9:,.3g} s on key {history.key(facts.lag_key)}."
        )
    return notes


def _number(count: int, one: str, several: str) -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {several}"


def _headline(history: PartitionHistory) -> str:
    facts = history.facts
    return (
        f"{_number(facts.messages, 'message', 'messages')} in"
        f" {_number(facts.keys, 'partition', 'partitions')} were kept as Kafka promises"
    )


def _wants(shape: Shape) -> bool:
    return shape.has_any("poll", "send", "txn") and bool(shape.mops.keys() & {"send", "poll"})


KAFKA: Final = JudgeRecord(
    name="kafka",
    summary="sends and polls of partitions: nothing is lost, doubled, skipped or out of order",
    make=Kafka,
    promise=(
        "A partition has one message an offset; what was sent is polled, by each client in order"
        " and without gaps, and not before it is committed."
    ),
    source="jepsen.tests.kafka",
    fs=("poll", "send", "txn", "assign", "subscribe", "crash", "debug", "debug-topic-partitions"),
    wants=_wants,
)
