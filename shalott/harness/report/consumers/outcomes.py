"""What the checkers of consumers say became of messages and deliveries, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shalott.checkers.checker import Result

# Outcome, colour, whether it is bad news, meaning. In the order of the bar.
OF_QUEUES = (
    ("consumed", "ok", False, "delivered and acknowledged, and the broker had heard it"),
    ("drained", "ok", False, "still there when the consumers were gone, and taken then"),
    ("consumed-unsure", "info", False, "delivered; nobody knows whether its acknowledgement came"),
    ("dead-lettered", "again", False, "found among the dead letters"),
    ("rejected", "again", False, "refused by a consumer, and there are no dead letters"),
    ("expired", "again", False, "its time to live was over"),
    ("dropped", "again", False, "pushed out by the queue's length"),
    ("deleted", "again", False, "went with its queue"),
    ("dead-letter-unsafe", "info", False, "should be a dead letter, and a fault was near"),
    ("dead-letter-missing", "lost", True, "should be a dead letter, and is none"),
    ("doubtful", "info", True, "not seen again, but its queue was not drained"),
    ("lost", "lost", True, "acknowledged to its publisher, and nothing explains where it is"),
    ("recovered", "info", False, "delivered although nobody knew whether it was taken"),
    ("phantom", "fail", True, "delivered although its publish had certainly failed"),
    ("not-enqueued", "empty", False, "not acknowledged to its publisher, and never delivered"),
    ("dead-lettered-twice", "again", True, "more than once among the dead letters"),
    ("unexpected", "fail", True, "delivered although nobody had published it"),
    ("corrupted", "fail", True, "delivered with a damaged body"),
    ("too-early", "fail", True, "delivered before it was published"),
)
OF_GROUPS = (
    ("consumed", "ok", False, "a listener returned success for it"),
    ("pending", "info", False, "waits for the group in its queue, or for a retry"),
    ("consumed-unsure", "info", False, "delivered, and nobody saw how that ended"),
    ("dead-lettered", "again", False, "in the group's dead letters"),
    ("filtered", "empty", False, "the group does not subscribe to its tag"),
    ("passed-over", "empty", False, "before where the group was told to begin"),
    ("unread", "info", True, "not all was read at the end: nobody knows"),
    ("retry-lost", "lost", True, "sent back, due, and nowhere"),
    ("skipped", "lost", True, "the group's offset passed it, and no member had it to the end"),
    ("lost", "lost", True, "acknowledged, and in no log at the end"),
)
OUTSIDE_BAR = ("dead-lettered-twice", "unexpected", "corrupted", "too-early")

LANES_MAX = 40


@dataclass(frozen=True, slots=True)
class LaneTable:
    """A row a queue or group, a column an outcome that there was; ``bad``: which columns are."""

    columns: list[str]
    bad: list[bool]
    rows: list[tuple[str, list[int]]]
    left_out: int


def outcomes_by_lane(results: Sequence[Result]) -> LaneTable | None:
    """What became of acknowledged messages; None if no checker told."""
    for result in results:
        by_queue = result.detail.get("fates-by-queue")
        groups: Any = result.detail.get("groups")
        if isinstance(by_queue, Mapping):
            return _table(by_queue, OF_QUEUES)
        if result.checker.startswith("group-") and isinstance(groups, list | tuple):
            return _table(
                {str(one["group"]): one["fates"] for one in groups if one["fates"]}, OF_GROUPS
            )
    return None


def _table(lanes: Mapping[str, Mapping[str, int]], kinds: Any) -> LaneTable:
    used = [kind for kind in kinds if any(own.get(kind[0]) for own in lanes.values())]
    rows = [(name, [own.get(kind[0], 0) for kind in used]) for name, own in lanes.items()]
    return LaneTable(
        columns=[name for name, *_ in used],
        bad=[bad for _, _, bad, _ in used],
        rows=rows[:LANES_MAX],
        left_out=max(0, len(rows) - LANES_MAX),
    )


# What explains that a message came again, as checkers/consumers and checkers/groups call it.
_CAUSES = {
    "requeued": "nacked or rejected, to be requeued",
    "recover": "basic.recover",
    "channel-closed": "its channel was closed",
    "connection-lost": "its connection was lost",
    "failover": "another node had become master",
    "fault-near": "a fault was near",
    "retry": "sent back for a retry",
    "suspended": "suspended by an orderly listener",
    "local-retry": "sending it back failed, so its member tried again",
    "reset": "the operator set the offset back",
    "moved": "a broker said that the offset is none of the queue's",
    "rebalanced": "its queue had been given to another member",
    "lock-lost": "its member had lost the queue's lock",
    "left": "its member had left",
    "died": "its member had died",
    "closed": "its member had been closed",
    "two-owners": "members did not agree yet on who has the queue",
    "stored-twice": "stored twice during a fault",
    "client-resent": "the client's library sent it twice",
    "unknown-owner": "nobody knows whose the queue was",
    "unexplained": "nothing explains it",
}


def explained_causes(results: Sequence[Result]) -> list[tuple[str, int]]:
    """(what explains that messages came again, how often), most frequent first."""
    found: dict[str, int] = {}
    for result in results:
        told = result.detail.get("redeliveries-by-cause")
        if isinstance(told, Mapping):
            for name, number in told.items():
                if number:
                    found[_CAUSES.get(name, str(name))] = int(number)
        for name, number in result.counts.items():
            cause = name.removeprefix("by-").removesuffix("-count")
            if name.startswith("by-") and cause in _CAUSES and number:
                found[_CAUSES[cause]] = int(number)
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))
