"""The checkers of the workload ``group``: one a promise, all of one reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Checker, Result
from shalott.checkers.groups import group_judges as judging
from shalott.checkers.groups import group_judges as stories
from shalott.checkers.groups.group_case import Case, Findings, Shared
from shalott.checkers.groups.group_rules import GroupRules
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
    """One promise. False if it was broken; "unknown" if it can't be known that it was kept."""

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


# What RocketMQ promises its consumer groups, each promise with who says so.
#
# docs/reference/consumers.md tells them to people, with what explains a breach under failover.


@dataclass(frozen=True, slots=True)
class Promise:
    name: str
    promise: str
    source: str


PROMISES: tuple[Promise, ...] = (
    Promise(
        "group-fates",
        "Every acknowledged message is in its topic's log, and each group has one outcome for it.",
        "RocketMQ's documentation, Best Practice for Producer: SEND_OK; shalott/checkers/logs",
    ),
    Promise(
        "group-not-skipped",
        "A group's offset passes no message that its members were not given to an end.",
        "RocketMQ's documentation, Features: At least Once; ProcessQueue.removeMessage",
    ),
    Promise(
        "group-redelivery",
        "A message is given to a group again only if an event explains it, and none that was"
        " committed comes again but by a failover within the copies' age.",
        "RocketMQ's documentation, Features: At least Once; SlaveSynchronize",
    ),
    Promise(
        "orderly-exclusive",
        "One member at a time has a queue of an orderly group, and works on it.",
        "RocketMQ's documentation, FIFO messages; RebalanceLockManager",
    ),
    Promise(
        "orderly-order",
        "An orderly member is given a queue's messages in their order, one after the other.",
        "RocketMQ's documentation, FIFO messages; ConsumeMessageOrderlyService",
    ),
    Promise(
        "offsets-forward",
        "An offset that was committed does not go back without reset or failover.",
        "RocketMQ's documentation, Consumer Progress; RemoteBrokerOffsetStore (increaseOnly)",
    ),
    Promise(
        "spurious-zero",
        "A group that has committed an offset does not begin anew, at 0 or at the end.",
        "RocketMQ's documentation, Consumer Progress; RebalancePushImpl.computePullFromWhere",
    ),
    Promise(
        "retry-delay",
        "What is sent back comes again, and not before the delay of its level.",
        "RocketMQ's documentation, Consumption Retry; ScheduleMessageService",
    ),
    Promise(
        "retry-count",
        "Each retry counts one more, up to the group's limit; then the dead letters have it once.",
        "RocketMQ's documentation, Consumption Retry; AbstractSendMessageProcessor",
    ),
    Promise(
        "delayed",
        "A delayed message is delivered, once, and not before the delay of its level.",
        "RocketMQ's documentation, Delay Message; ScheduleMessageService",
    ),
    Promise(
        "tags",
        "A group is given only messages with the tags that it subscribes to.",
        "RocketMQ's documentation, Message Filtering",
    ),
    Promise(
        "broadcast-complete",
        "Each member of a broadcast group is given every message from where it began.",
        "RocketMQ's documentation, Consumer Group: Broadcasting",
    ),
    Promise(
        "group-liveness",
        "No group with a living member is stuck while messages wait.",
        "RocketMQ's documentation, Consumer Load Balancing; RebalanceImpl",
    ),
    Promise(
        "group-deliveries",
        "What is delivered was sent, to a topic of the group, before, and whole.",
        "shalott/checkers/logs: phantom, unexpected, too-early, corrupted",
    ),
)
