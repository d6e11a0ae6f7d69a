"""What became of the messages, as a report lays it out: of queues, consumers and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Result
from shalott.harness.report.consumer_words import own_words

# outcome, colour, whether it is bad news, meaning
_OUTCOMES = (
    ("delivered-once", "ok", False, "acknowledged and delivered once"),
    ("redelivered", "again", False, "delivered again, flagged as redelivered"),
    ("duplicated", "again", False, "delivered again without the flag"),
    ("recovered", "info", False, "delivered although it was unknown whether it was taken"),
    ("lost", "lost", True, "acknowledged, and never delivered"),
    ("phantom", "fail", True, "delivered although its enqueue had certainly failed"),
    ("not-enqueued", "empty", False, "not acknowledged, and never delivered"),
    ("unexpected", "fail", True, "delivered although no client had enqueued it"),
    ("corrupted", "fail", True, "delivered with a damaged body"),
    ("too-early", "fail", True, "delivered before it was sent"),
    ("unflagged", "fail", True, "delivered again without the flag by the master that knew it"),
)
# No outcomes of enqueued messages.
_OUTSIDE_BAR = ("unexpected", "corrupted", "too-early", "unflagged")
# Of what was sent to a replicated log: the outcomes of sends, then what else the final reads tell.
_LOG_OUTCOMES = (
    ("kept", "ok", False, "acknowledged and read; nothing says that it is gone"),
    ("lost-write", "lost", True, "acknowledged, and in no log at the end"),
    ("unseen", "again", True, "acknowledged, and read by no client; not all was read"),
    (
        "recovered",
        "info",
        False,
        "in a log at the end, although it was unknown whether it was kept",
    ),
    ("not-kept", "empty", False, "not acknowledged, and in no log at the end"),
    ("lost-on-node", "lost", True, "kept, but not on every node"),
    ("vanished", "lost", True, "never acknowledged, read by a client, and gone at the end"),
    ("duplicate", "again", True, "at more than one place of the log"),
    ("phantom", "fail", True, "read although its send had certainly failed"),
    ("unexpected", "fail", True, "read although no client had sent it"),
    ("corrupted", "fail", True, "read with a damaged body"),
    ("too-early", "fail", True, "read before it was sent"),
)
_LOG_BAR = ("kept", "lost-write", "unseen", "recovered", "not-kept")


@dataclass(frozen=True, slots=True)
class MessageOutcome:
    name: str
    count: int
    colour: str
    is_bad: bool
    in_bar: bool
    meaning: str


@dataclass(frozen=True, slots=True)
class OutcomeTable:
    total: int
    rows: list[MessageOutcome]
    sent: str = "enqueued"  # how the messages got there
    each: str = ""  # how often one counts, if not once


def message_outcomes(results: Sequence[Result]) -> OutcomeTable | None:
    """What became of the messages, by the checker that counted them."""
    counts = next((r.counts for r in results if r.checker == "total-queue" and r.counts), None)
    if counts is None and (of_consumers := _outcomes_of_consumers(results)):
        return of_consumers
    if counts is None:
        return _log_outcomes(results)
    rows = [
        MessageOutcome(
            name, int(counts.get(f"{name}-count", 0)), colour, bad, name not in _OUTSIDE_BAR, text
        )
        for name, colour, bad, text in _OUTCOMES
    ]
    return OutcomeTable(int(counts.get("attempt-count", 0)), rows)


def _outcomes_of_consumers(results: Sequence[Result]) -> OutcomeTable | None:
    """Of queues with consumers, or of groups: there a message counts for each group."""
    for result in results:
        if not (
            own_words(result.checker)
            and {"consumed-count", "delivery-count"} <= result.counts.keys()
        ):
            continue
        is_group = "filtered-count" in result.counts
        kinds = OF_GROUPS if is_group else OF_QUEUES
        sent, each = ("acknowledged", ", one for each group") if is_group else ("published", "")
        rows = [
            MessageOutcome(
                name, int(result.counts.get(f"{name}-count", 0)), colour, bad,
                name not in OUTSIDE_BAR, text,
            )
            for name, colour, bad, text in kinds
        ]  # fmt: skip
        return OutcomeTable(sum(row.count for row in rows if row.in_bar), rows, sent, each)
    return None


def _log_outcomes(results: Sequence[Result]) -> OutcomeTable | None:
    """What became of the messages of a log: of those acknowledged, kept is what is not gone."""
    counts = next((r.counts for r in results if r.checker == "log" and r.counts), None)
    if counts is None:
        return None
    of = {name: int(counts.get(f"{name}-count", 0)) for name, *_ in _LOG_OUTCOMES}
    of["kept"] = int(counts["acknowledged-count"]) - of["lost-write"] - of["unseen"]
    of["not-kept"] = int(counts["attempt-count"] - counts["acknowledged-count"]) - of["recovered"]
    rows = [
        MessageOutcome(name, of[name], colour, bad, name in _LOG_BAR, text)
        for name, colour, bad, text in _LOG_OUTCOMES
    ]
    return OutcomeTable(int(counts["attempt-count"]), rows, "sent")


# Outcome, colour, whether it is bad news, meaning. In the order of the bar.
OF_QUEUES = (
    ("consumed", "ok", False, "delivered and acknowledged, and the broker had heard it"),
    ("drained", "ok", False, "still there when the consumers were gone, and taken then"),
    ("consumed-unsure", "info", False, "delivered; it is unknown whether its acknowledgement came"),
    ("dead-lettered", "again", False, "found among the dead letters"),
    ("rejected", "again", False, "refused by a consumer, and there are no dead letters"),
    ("expired", "again", False, "its time to live was over"),
    ("dropped", "again", False, "pushed out by the queue's length"),
    ("deleted", "again", False, "went with its queue"),
    ("dead-letter-unsafe", "info", False, "should be a dead letter, and a fault was near"),
    ("dead-letter-missing", "lost", True, "should be a dead letter, and is none"),
    ("doubtful", "info", True, "not seen again, but its queue was not drained"),
    ("lost", "lost", True, "acknowledged to its publisher, and nothing explains where it is"),
    ("recovered", "info", False, "delivered although it was unknown whether it was taken"),
    ("phantom", "fail", True, "delivered although its publish had certainly failed"),
    ("not-enqueued", "empty", False, "not acknowledged to its publisher, and never delivered"),
    ("dead-lettered-twice", "again", True, "more than once among the dead letters"),
    ("unexpected", "fail", True, "delivered although no client had published it"),
    ("corrupted", "fail", True, "delivered with a damaged body"),
    ("too-early", "fail", True, "delivered before it was published"),
)
OF_GROUPS = (
    ("consumed", "ok", False, "a listener returned success for it"),
    ("pending", "info", False, "waits for the group in its queue, or for a retry"),
    ("consumed-unsure", "info", False, "delivered, and it was not seen how that ended"),
    ("dead-lettered", "again", False, "in the group's dead letters"),
    ("filtered", "empty", False, "the group does not subscribe to its tag"),
    ("passed-over", "empty", False, "before where the group was told to begin"),
    ("unread", "info", True, "not all was read at the end: unknown"),
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
        groups: object = result.detail.get("groups")
        if not own_words(result.checker):
            continue
        if isinstance(by_queue, Mapping):
            return _table(by_queue, OF_QUEUES)
        if result.checker.startswith("group-") and isinstance(groups, list | tuple):
            return _table(
                {str(one["group"]): one["fates"] for one in groups if one["fates"]}, OF_GROUPS
            )
    return None


def _table(
    lanes: Mapping[str, Mapping[str, int]], kinds: Sequence[tuple[str, str, bool, str]]
) -> LaneTable:
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
    "unknown-owner": "it is unknown whose the queue was",
    "unexplained": "nothing explains it",
}


def explained_causes(results: Sequence[Result]) -> list[tuple[str, int]]:
    """(what explains that messages came again, how often), most frequent first."""
    found: dict[str, int] = {}
    for result in results:
        causes = result.detail.get("redeliveries-by-cause")
        if isinstance(causes, Mapping):
            for name, number in causes.items():
                if number:
                    found[_CAUSES.get(name, str(name))] = int(number)
        for name, number in result.counts.items():
            cause = name.removeprefix("by-").removesuffix("-count")
            if name.startswith("by-") and cause in _CAUSES and number:
                found[_CAUSES[cause]] = int(number)
    return sorted(found.items(), key=lambda item: (-item[1], item[0]))
