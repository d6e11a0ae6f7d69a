"""What the checkers of messages say: their outcomes, what was skipped, what came again, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from shalott.checkers.groups.case import Case, Findings, Found, anomalies_of
from shalott.checkers.groups.messages.deliveries import (
    AFTER_COMMIT,
    CAUSES,
    CLASSES,
    UNEXPLAINED,
)
from shalott.checkers.groups.messages.fates import FATES, final_offsets
from shalott.checkers.groups.rows.reading import DAMAGED, UNKNOWN
from shalott.checkers.history.columns import NEVER, Ints
from shalott.checkers.logs.records import FAIL


def told_fates(case: Case) -> Findings:
    """group-fates: one row a group and message, and what is gone."""
    story, fates = case.story, case.fates
    lost = fates.of("lost")
    plain = lost[story.messages.delay[fates.message[lost]] == 0]
    found = [
        Found(
            "lost",
            int(fates.group[row]),
            f"Of group {case.group(fates.group[row])}: {case.message(int(fates.message[row]))} was"
            " acknowledged, and no node's log has it.",
            case.sent([int(fates.message[row])]),
        )
        for row in plain.tolist()
    ]
    counts: dict[str, int | float] = {f"{name}-count": int((fates.fate == code).sum())
                                      for code, name in enumerate(FATES)}  # fmt: skip
    unread = int(counts["unread-count"])
    notes = list(story.final.missing) if unread else []
    if unread:
        notes.append(f"What became of {unread} messages is not known.")
    if story.malformed:
        notes.append(f"{story.malformed} rows were not recorded as they should be.")
    if not len(story.messages):
        notes.append("Nothing was sent.")
    return Findings(
        kinds=("lost",),
        anomalies=anomalies_of(case, found),
        counts={
            "message-count": len(story.messages),
            "delivery-count": len(story.deliveries),
            **counts,
        },
        unknown=tuple(notes),
        detail={"groups": [_of_group(case, number) for number in range(len(story.rules.groups))]},
    )


def _of_group(case: Case, number: int) -> dict[str, Any]:
    """What the report draws of a group: outcomes, deliveries, and how far behind it ended."""
    story, judged = case.story, case.judged
    group, own = story.rules.groups[number], case.story.deliveries.group == number
    classes = np.bincount(judged.class_[own], minlength=len(CLASSES))
    causes = np.bincount(judged.cause[own], minlength=len(CAUSES))
    took_ns = _first_success_ns(case, number)
    return {
        "group": group.name,
        "orderly": group.orderly,
        "broadcast": group.broadcast,
        "members": int((story.lives.group == number).sum()),
        "assignments": int((story.assignments.group == number).sum()),
        "fates": {} if group.broadcast else {f: case.fates.count(number, f) for f in FATES},
        "deliveries": {name: int(classes[code]) for code, name in enumerate(CLASSES)},
        "causes": {
            name: int(causes[code]) for code, name in enumerate(CAUSES) if name and causes[code]
        },
        "lag": {} if group.broadcast else _lag(case, number),
        "seconds_to_consume": [round(float(each) / 1e9, 6) for each in np.quantile(
            took_ns, (0.5, 0.9, 0.99, 1.0))] if len(took_ns) else [],
    }  # fmt: skip


def _lag(case: Case, number: int) -> dict[str, int]:
    """By queue: how many messages stand behind the group's offset at the end."""
    story, offsets = case.story, final_offsets(case.story, number)
    topics = story.rules.groups[number].topics
    lag = {}
    for code, name in enumerate(story.keys.names):
        if story.keys.topics[code] in topics or story.keys.retry_of[code] == number:
            there = np.unique(story.final.offset[story.final.key == code])
            lag[name] = int((there >= max(int(offsets[code]), 0)).sum())
    return lag


def _first_success_ns(case: Case, number: int) -> Ints:
    """How long after they were sent the group's messages were first consumed."""
    story, rows = case.story, case.story.deliveries
    own = np.flatnonzero((rows.group == number) & (rows.message >= 0) & (rows.outcome == 1))
    own = own[rows.end_ns[own] != NEVER]
    message, first = np.unique(rows.message[own], return_index=True)
    return np.asarray(rows.end_ns[own][first] - story.messages.begin_ns[message])


def not_skipped(case: Case) -> Findings:
    """group-not-skipped: what an offset passed, though nobody had it to the end."""
    fates = case.fates
    found = []
    offsets = [final_offsets(case.story, group) for group in range(len(case.story.rules.groups))]
    for row in fates.of("skipped").tolist():
        group, message = int(fates.group[row]), int(fates.message[row])
        offset = offsets[group][case.story.messages.key[message]]
        text = (
            f"Group {case.group(group)} skipped {case.message(message)}: its offset there is"
            f" {offset}, and no member was given it to the end."
        )
        found.append(Found("skipped", group, text, case.sent([message])))
    unread = len(fates.of("unread"))
    return Findings(
        kinds=("skipped",),
        anomalies=anomalies_of(case, found),
        counts={"judged-count": len(fates.fate) - unread, "passed-over-count": len(
            fates.of("passed-over"))},
        unknown=(f"{unread} messages may have been skipped: not all was read.",) if unread else (),
    )  # fmt: skip


def redelivery(case: Case) -> Findings:
    """group-redelivery: what came again, and what explains it."""
    story, rows, judged = case.story, case.story.deliveries, case.judged
    found = []
    for code, why in (
        (AFTER_COMMIT, "though an offset behind it was committed before"),
        (UNEXPLAINED, "and nothing explains it"),
    ):
        for row in np.flatnonzero(judged.class_ == code).tolist():
            then = int(judged.before[row])
            first = () if then < 0 else (int(rows.index[then]),)
            text = (
                f"{case.message(int(rows.message[row]))} came again to group"
                f" {case.group(rows.group[row])} at {rows.begin_ns[row] / 1e9:.3f} s, {why}."
            )
            found.append(
                Found(CLASSES[code], int(rows.group[row]), text, (*first, int(rows.index[row])))
            )
    classes = np.bincount(judged.class_, minlength=len(CLASSES))
    causes = np.bincount(judged.cause, minlength=len(CAUSES))
    return Findings(
        kinds=(CLASSES[AFTER_COMMIT], CLASSES[UNEXPLAINED]),
        anomalies=anomalies_of(case, found),
        counts={
            **{f"{name}-count": int(classes[code]) for code, name in enumerate(CLASSES)},
            **{f"by-{name}-count": int(causes[c]) for c, name in enumerate(CAUSES) if name},
        },
        detail={"offsets_follow_ms": story.rules.offsets_follow_ms},
    )


def what_was_delivered(case: Case) -> Findings:
    """group-deliveries: sent, to a topic of the group, before, and whole."""
    rows = case.story.deliveries
    found = [
        Found(
            kind,
            int(rows.group[row]),
            f"Group {case.group(rows.group[row])} was given {_named(case, row)} at"
            f" {rows.begin_ns[row] / 1e9:.3f} s: {why}.",
            (int(rows.index[row]),),
        )
        for kind, why, those in _unfounded(case)
        for row in those.tolist()
    ]
    kinds = ("phantom", "unexpected", "corrupted", "too-early", "foreign")
    return Findings(
        kinds=kinds, anomalies=anomalies_of(case, found), counts={"delivery-count": len(rows)}
    )


def _named(case: Case, row: int) -> str:
    rows = case.story.deliveries
    where = f"{case.story.keys.names[rows.key[row]]}:{rows.offset[row]}"
    return f"{case.message(int(rows.message[row]))} from {where}"


def _unfounded(case: Case) -> Iterator[tuple[str, str, Ints]]:
    story, rows, messages = case.story, case.story.deliveries, case.story.messages
    known = np.flatnonzero(rows.message >= 0)
    number = rows.message[known]
    yield "phantom", "its send had failed", known[messages.outcome[number] == FAIL]
    yield "unexpected", "nobody sent it", np.flatnonzero(rows.message == UNKNOWN)
    yield "corrupted", "its body was damaged", np.flatnonzero(rows.message == DAMAGED)
    early = rows.begin_ns[known] < messages.begin_ns[number]
    yield "too-early", "it was sent later", known[early]
    topics = story.keys.topics
    for group, each in enumerate(story.rules.groups):
        own = [code for code, topic in enumerate(topics) if topic in each.topics]
        mine = known[rows.group[known] == group]
        wrong = ~np.isin(messages.key[rows.message[mine]], own)
        elsewhere = ~np.isin(rows.key[mine], own) & (story.keys.retry_of[rows.key[mine]] != group)
        yield "foreign", "the group has nothing to do with that topic", mine[wrong | elsewhere]
