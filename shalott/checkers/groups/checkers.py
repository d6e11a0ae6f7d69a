"""The checkers of the workload ``group``: one a promise (promises.py), all of one reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.base import Checker, Result
from shalott.checkers.groups import judging, stories
from shalott.checkers.groups.case import Case, Findings, Shared
from shalott.checkers.groups.promises import PROMISES
from shalott.checkers.groups.rows.rules import GroupRules
from shalott.core.history import History

NOTES_MAX = 8

_JUDGES: Mapping[str, Callable[[Case], Findings]] = {
    "group-fates": stories.told_fates,
    "group-not-skipped": stories.not_skipped,
    "group-redelivery": stories.redelivery,
    "group-deliveries": stories.what_was_delivered,
    "orderly-exclusive": judging.exclusive,
    "orderly-order": judging.in_order,
    "offsets-forward": judging.forward,
    "spurious-zero": judging.no_new_beginning,
    "retry-delay": judging.retry_delay,
    "retry-count": judging.retry_count,
    "delayed": judging.delayed,
    "tags": judging.tags,
    "broadcast-complete": judging.broadcast_complete,
    "group-liveness": judging.liveness,
}


def group_checkers(rules: GroupRules) -> Sequence[Checker]:
    """Everything that a run of the workload ``group`` promises, in the order of PROMISES."""
    shared = Shared(rules)
    return tuple(GroupChecker(promise.name, _JUDGES[promise.name], shared) for promise in PROMISES)


@dataclass(frozen=True, slots=True)
class GroupChecker:
    """One promise. False if it was broken; "unknown" if nobody can know that it was kept."""

    name: str
    judge: Callable[[Case], Findings]
    shared: Shared

    def check(self, history: History) -> Result:
        found = self.judge(self.shared.case(history))
        counts: dict[str, int | float] = {f"{kind}-count": 0 for kind in found.kinds}
        for anomaly in found.anomalies:
            counts[f"{anomaly.kind}-count"] = int(anomaly.detail["count"])
        broken = [anomaly.kind for anomaly in found.anomalies if anomaly.kind in found.kinds]
        more = len(found.unknown) - NOTES_MAX
        notes = (*found.unknown[:NOTES_MAX], *((f"And {more} more.",) if more > 0 else ()))
        return Result(
            checker=self.name,
            valid=False if broken else ("unknown" if found.unknown else True),
            counts={**found.counts, **counts},
            anomalies=found.anomalies,
            notes=notes,
            detail={**found.detail, "broken": broken},
        )
