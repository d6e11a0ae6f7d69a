"""What is said of the anomalies of consumers: a sentence for one of a kind, and for several.

In order of weight, as in harness/report/verdict_words.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shalott.checkers.checker import Result
from shalott.checkers.consumers.consumer_checkers import PROMISES as OF_QUEUES
from shalott.checkers.groups.group_checkers import PROMISES as OF_GROUPS

Words = Mapping[str, tuple[str, str]]

_OUTCOMES_OF_QUEUES, _OUTCOMES_OF_GROUPS = "consumer-fates", "group-fates"

_KINDS: Words = {
    "lost": (
        "1 acknowledged message was lost to its consumers",
        "{n} acknowledged messages were lost to their consumers",
    ),
    "dead-letter-missing": (
        "1 message was taken by a policy, and is not among the dead letters",
        "{n} messages were taken by policies, and are not among the dead letters",
    ),
    "acked-again": (
        "1 message was delivered again though its acknowledgement had taken effect",
        "{n} messages were delivered again though their acknowledgements had taken effect",
    ),
    "twice-at-once": (
        "1 message was with two living consumers at once",
        "{n} messages were with two living consumers at once",
    ),
    "dual-active-consumer-effective": (
        "two consumers of a queue with a single active one acknowledged at once",
        "two consumers of a queue with a single active one acknowledged at once, {n} times",
    ),
    "dual-active-consumer-claimed": (
        "two consumers of a queue with a single active one were served at once",
        "two consumers of a queue with a single active one were served at once, {n} times",
    ),
    "not-exclusive-effective": (
        "two consumers acknowledged at once of a queue that one had for itself",
        "two consumers acknowledged at once of a queue that one had for itself, {n} times",
    ),
    "not-exclusive-claimed": (
        "another consumer was admitted to a queue that one had for itself",
        "other consumers were admitted to queues that one had for itself, {n} times",
    ),
    "unflagged": (
        "1 message was delivered again without the flag by the master that knew it",
        "{n} messages were delivered again without the flag by the master that knew it",
    ),
    "phantom": (
        "1 message was delivered although its publish had certainly failed",
        "{n} messages were delivered although their publishes had certainly failed",
    ),
    "to-cancelled": (
        "1 message was delivered to a consumer that had been cancelled",
        "{n} messages were delivered to consumers that had been cancelled",
    ),
    "not-cancelled": (
        "1 message was delivered to a consumer that a failover should have cancelled",
        "{n} messages were delivered to consumers that a failover should have cancelled",
    ),
    "cancelled-for-nothing": (
        "1 consumer was cancelled by the server, though its queue was there",
        "{n} consumers were cancelled by the server, though their queues were there",
    ),
    "stuck": (
        "a consumer was stuck while messages waited: {summary}",
        "consumers were stuck while messages waited, {n} times: {summary}, and more",
    ),
    "prefetch": (
        "a consumer was given more than its prefetch allows: {summary}",
        "consumers were given more than their prefetch allows, {n} times",
    ),
    "order": (
        "1 message overtook another of its queue",
        "{n} messages overtook others of their queues",
    ),
    "requeue-order": (
        "1 requeued message lost its place",
        "{n} requeued messages lost their places",
    ),
    "expired-early": (
        "1 message expired before its time to live was over",
        "{n} messages expired before their time to live was over",
    ),
    "delivered-expired": (
        "1 message was delivered long after its time to live was over",
        "{n} messages were delivered long after their time to live was over",
    ),
    "too-long": (
        "a queue held more than its length allows",
        "queues held more than their length allows, {n} times",
    ),
    "priority": (
        "1 message overtook one of higher priority",
        "{n} messages overtook others of higher priority",
    ),
    "consumer-priority": (
        "1 message went past a consumer of higher priority that had room",
        "{n} messages went past consumers of higher priority that had room",
    ),
    "dead-letter-undue": (
        "1 dead letter tells of a reason that was not there",
        "{n} dead letters tell of reasons that were not there",
    ),
    "dead-letter-unsafe": (
        "1 message that a policy took near a fault is not among the dead letters",
        "{n} messages that policies took near faults are not among the dead letters",
    ),
}

_GROUP_KINDS: Words = {
    "lost": (
        "1 acknowledged message was lost to a group",
        "{n} acknowledged messages were lost, counted for each group",
    ),
    "skipped": (
        "a group's offset passed 1 message that none of its members was given to the end",
        "groups' offsets passed {n} messages that none of their members was given to the end",
    ),
    "after-commit": (
        "1 message came again though its group had committed an offset behind it",
        "{n} messages came again though their groups had committed offsets behind them",
    ),
    "unexplained": (
        "1 message came again to its group, and nothing explains it",
        "{n} messages came again to their groups, and nothing explains it",
    ),
    "work-of-two": (
        "two members worked on one queue of an orderly group at once",
        "two members worked on one queue of an orderly group at once, {n} times",
    ),
    "lock-of-two": (
        "two members were told at once that they hold the lock of one queue",
        "two members were told at once that they hold the lock of one queue, {n} times",
    ),
    "order-back": (
        "an orderly member was led back in a queue",
        "orderly members were led back in their queues, {n} times",
    ),
    "order-over": (
        "an orderly member was led past a message",
        "orderly members were led past messages, {n} times",
    ),
    "order-at-once": (
        "an orderly member was given two messages of a queue at once",
        "orderly members were given two messages of a queue at once, {n} times",
    ),
    "offset-back": (
        "a group's offset went back without a reset or a failover",
        "groups' offsets went back without resets or failovers, {n} times",
    ),
    "commit-back": (
        "a member committed an offset before one that it had committed",
        "members committed offsets before those that they had committed, {n} times",
    ),
    "offset-not-taken": (
        "a committed offset was not taken",
        "committed offsets were not taken, {n} times",
    ),
    "spurious-zero": (
        "a group that had committed an offset began at 0 again",
        "groups that had committed offsets began at 0 again, {n} times",
    ),
    "spurious-end": (
        "a group that had committed an offset began at its queue's end",
        "groups that had committed offsets began at their queues' ends, {n} times",
    ),
    "retry-lost": (
        "1 message that was sent back never came again",
        "{n} messages that were sent back never came again",
    ),
    "retry-early": (
        "1 retry came before its delay was over",
        "{n} retries came before their delays were over",
    ),
    "retry-over": (
        "1 message was retried more often than its group allows",
        "{n} messages were retried more often than their groups allow",
    ),
    "retry-unasked": (
        "1 message was retried though no consumer had sent it back",
        "{n} messages were retried though no consumer had sent them back",
    ),
    "retry-twice": ("1 retry came twice", "{n} retries came twice"),
    "dead-letter-missing": (
        "1 message whose retries were used up is not among the dead letters",
        "{n} messages whose retries were used up are not among the dead letters",
    ),
    "dead-letter-early": (
        "1 message became a dead letter though it had retries left",
        "{n} messages became dead letters though they had retries left",
    ),
    "dead-letter-twice": (
        "1 message is twice among the dead letters",
        "{n} messages are twice among the dead letters",
    ),
    "delayed-lost": ("1 delayed message was lost", "{n} delayed messages were lost"),
    "delayed-early": (
        "1 delayed message came before its time",
        "{n} delayed messages came before their time",
    ),
    "delayed-twice": ("1 delayed message came twice", "{n} delayed messages came twice"),
    "unsubscribed": (
        "1 message was given to a group that does not subscribe to its tag",
        "{n} messages were given to groups that do not subscribe to their tags",
    ),
    "broadcast-hole": (
        "1 message was not given to a member of a broadcast group that was given later ones",
        "{n} messages were not given to members of broadcast groups that were given later ones",
    ),
    "broadcast-unseen": (
        "1 message was never given to a living member of a broadcast group",
        "{n} messages were never given to living members of broadcast groups",
    ),
    "stuck": (
        "a group with living members is stuck: 1 message waits",
        "groups with living members are stuck: {n} messages wait",
    ),
    "foreign": (
        "1 message was given to a group that has nothing to do with its topic",
        "{n} messages were given to groups that have nothing to do with their topics",
    ),
    "phantom": (
        "1 message was delivered although its send had certainly failed",
        "{n} messages were delivered although their sends had certainly failed",
    ),
}


def own_words(checker: str) -> Words:
    """What is said of a checker's anomalies; nothing of its own if it judges no consumers."""
    if checker == _OUTCOMES_OF_QUEUES or any(each.name == checker for each in OF_QUEUES):
        return _KINDS
    return _GROUP_KINDS if any(each.name == checker for each in OF_GROUPS) else {}


def good_news(results: Sequence[Result]) -> str:
    """What a valid run with consumers has to tell; "" of runs without."""
    for result in results:
        counts = result.counts
        if result.checker == _OUTCOMES_OF_QUEUES:
            acked = counts.get("acknowledged-count", 0)
            again = int(counts.get("delivery-count", 0) - counts.get("first-delivery-count", 0))
            of = f"{acked:,.0f} acknowledged {'message' if acked == 1 else 'messages'}"
            return f"nothing was lost of {of}; {_deliveries(counts, again)}"
        if result.checker == _OUTCOMES_OF_GROUPS:
            groups = result.detail.get("groups", ())
            classes = [group["deliveries"] for group in groups]
            again = sum(n for own in classes for name, n in own.items() if name != "first")
            acked = sum(
                n for group in groups for name, n in group["fates"].items() if name != "filtered"
            )
            return (
                f"nothing was lost or skipped of {acked:,} acknowledged messages, counted for each"
                f" group; {_deliveries(counts, again)}"
            )
    return ""


def _deliveries(counts: Mapping[str, float], again: int) -> str:
    number = int(counts.get("delivery-count", 0))
    return f"{number:,} {'delivery' if number == 1 else 'deliveries'}, {again:,} of them again"
