"""What became of the messages, as a report lays it out: queues' enqueues, and logs' sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shalott.checkers.checker import Result
from shalott.harness.report.consumers.outcomes import OF_GROUPS, OF_QUEUES, OUTSIDE_BAR

# outcome, colour, whether it is bad news, meaning
_OUTCOMES = (
    ("delivered-once", "ok", False, "acknowledged and delivered once"),
    ("redelivered", "again", False, "delivered again, flagged as redelivered"),
    ("duplicated", "again", False, "delivered again without the flag"),
    ("recovered", "info", False, "delivered although nobody knew whether it was taken"),
    ("lost", "lost", True, "acknowledged, and never delivered"),
    ("phantom", "fail", True, "delivered although its enqueue had certainly failed"),
    ("not-enqueued", "empty", False, "not acknowledged, and never delivered"),
    ("unexpected", "fail", True, "delivered although nobody had enqueued it"),
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
    ("unseen", "again", True, "acknowledged, and read by nobody; not all was read"),
    ("recovered", "info", False, "in a log at the end, although nobody knew whether it was taken"),
    ("not-kept", "empty", False, "not acknowledged, and in no log at the end"),
    ("lost-on-node", "lost", True, "kept, but not on every node"),
    ("vanished", "lost", True, "never acknowledged, read by somebody, and gone at the end"),
    ("duplicate", "again", True, "at more than one place of the log"),
    ("phantom", "fail", True, "read although its send had certainly failed"),
    ("unexpected", "fail", True, "read although nobody had sent it"),
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
    counts = next((r.counts for r in results if "delivered-once-count" in r.counts), None)
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
        if not {"consumed-count", "delivery-count"} <= result.counts.keys():
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
    counts = next((r.counts for r in results if "lost-write-count" in r.counts), None)
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
