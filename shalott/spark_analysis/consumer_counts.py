"""Runs with consumers: which of a report's counts there are, and what their checkers counted.

Names are those of CONSUMED. The checkers' results are read leniently, as everything of a store is:
what they do not tell is not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from shalott.spark_analysis.kernels.tables import Row

QUEUES, GROUPS = "consume", "group"  # the workloads
COMPARED = (
    *("attempts", "acknowledged", "deliveries", "again", "consumed", "drained", "dead_lettered"),
    *("unsure", "skipped", "gone", "lost"),
)

# Features of a queue by which something else than a consumer may take its messages, and the names
# of a plan's queues: as workloads/consume has them.
_TAKING = ("ttl", "message-ttl", "length", "expires")
_QUEUE = "shalott.{}"

# Outcomes of acknowledged messages that CONSUMED has columns for; all others are ``gone``.
_SEEN = {
    "consumed": "consumed",
    "drained": "drained",
    "dead-lettered": "dead_lettered",
    "consumed-unsure": "unsure",
}
Detail = Mapping[str, Any]  # of a checker's result, or parameters of a plan
_UNWANTED = "filtered"  # by a group, which does not subscribe to it


def taking_queues(workload: str, parameters: Detail) -> tuple[str, ...]:
    """Queues of a plan from which policies may take messages, as CONSUMED has it."""
    kinds = parameters.get("kinds")
    if workload != QUEUES or not isinstance(kinds, list | tuple) or not kinds:
        return ()
    count = int(parameters.get("queues") or len(kinds))
    features = [str(kinds[number % len(kinds)]).split("+") for number in range(count)]
    return tuple(
        _QUEUE.format(number + 1)
        for number, own in enumerate(features)
        if any(feature in _TAKING for feature in own)
    )


def counted(rows: Iterable[Row], undrained: Sequence[str]) -> dict[str, int]:
    """The counts of a run, of its rows of CONSUMED; none if it has none.

    In a queue that was not drained nothing is lost for certain.
    """
    found: dict[str, int] = {}
    for row in rows:
        for name in COMPARED:
            own = 0 if name == "lost" and row["lane"] in undrained else int(row[name])
            found[name] = found.get(name, 0) + own
    return found


def judged(results: Iterable[tuple[Mapping[str, float], object]]) -> dict[str, int]:
    """What the checkers counted; ``results``: (counts, detail) of each. What tells that a run had
    consumers is what its checkers wrote."""
    found: dict[str, int] = {}
    for counts, detail in results:
        if not isinstance(detail, Mapping):
            continue
        if isinstance(detail.get("fates-by-queue"), Mapping):
            found |= _of_queues(counts, detail)
        if isinstance(detail.get("groups"), list | tuple):
            found |= _of_groups(counts, detail["groups"])
    return found


def _of_queues(counts: Mapping[str, float], detail: Detail) -> dict[str, int]:
    by_queue: Mapping[str, Mapping[str, int]] = detail["fates-by-queue"]
    causes: Mapping[str, int] = detail.get("redeliveries-by-cause", {})
    return {
        "attempts": int(counts.get("attempt-count", 0)),
        "deliveries": int(counts.get("delivery-count", 0)),
        "again": sum(causes.values()),
        **_outcomes(by_queue.values()),
        "lost": sum(own.get("lost", 0) for own in by_queue.values()),
    }


def _of_groups(counts: Mapping[str, float], groups: Sequence[Detail]) -> dict[str, int]:
    classes = [one.get("deliveries", {}) for one in groups]
    fates = [one.get("fates", {}) for one in groups]
    return {
        "deliveries": int(counts.get("delivery-count", 0)),
        "again": sum(n for own in classes for name, n in own.items() if name != "first"),
        **_outcomes(fates),
        "lost": sum(own.get("lost", 0) for own in fates),
        "skipped": sum(own.get("skipped", 0) for own in fates),
    }


def _outcomes(fates: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums over queues or groups: of each outcome, and of all that are wanted."""
    found = {"acknowledged": 0, "gone": 0, **dict.fromkeys(_SEEN.values(), 0)}
    for own in fates:
        for name, number in own.items():
            if name != _UNWANTED:
                found["acknowledged"] += number
                found[_SEEN.get(name, "gone")] += number
    return found
