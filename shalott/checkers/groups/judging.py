"""What the checkers of queues, offsets, retries and members say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from shalott.checkers.base import OPERATIONS_MAX, Anomaly
from shalott.checkers.groups.case import Case, Findings, Found, anomalies_of
from shalott.checkers.groups.messages.deliveries import assignment_of
from shalott.checkers.groups.messages.fates import subscribed
from shalott.checkers.groups.messages.offsets import Fall, falling_commits, wrong_answers
from shalott.checkers.groups.messages.orderly import Clash, out_of_order, two_holders, two_workers
from shalott.checkers.groups.messages.retries import (
    Breach,
    dead_letters,
    delayed_early,
    delayed_twice,
    too_early,
    wrong_numbers,
)

SPURIOUS = ("spurious-zero", "spurious-end")


def exclusive(case: Case) -> Findings:
    """orderly-exclusive: claimed and effective."""
    claimed, effective = list(two_holders(case.story)), list(two_workers(case.story))
    return Findings(
        kinds=("lock-of-two", "work-of-two"),
        anomalies=_of_clashes(case, [*claimed, *effective]),
        counts={"lock-count": len(case.story.locks)},
    )


def in_order(case: Case) -> Findings:
    """orderly-order."""
    return Findings(
        kinds=("order-back", "order-over", "order-at-once"),
        anomalies=_of_clashes(case, out_of_order(case.story, case.assignment)),
    )


def _of_clashes(case: Case, clashes: Iterable[Clash]) -> tuple[Anomaly, ...]:
    names = case.story.keys.names
    return anomalies_of(case, (
        Found(each.kind, each.group, f"Group {case.group(each.group)}, queue {names[each.key]}, at"
              f" {each.at_ns / 1e9:.3f} s: {each.text}.", each.operations)
        for each in clashes))  # fmt: skip


def _falls(case: Case) -> Iterator[Fall]:
    yield from case.beginnings
    yield from wrong_answers(case.story, case.book)
    yield from falling_commits(case.story, assignment_of(case.story, case.story.commits))


def forward(case: Case) -> Findings:
    """offsets-forward."""
    falls = [fall for fall in _falls(case) if fall.kind not in SPURIOUS]
    return Findings(
        kinds=("offset-back", "commit-back", "offset-not-taken"),
        anomalies=_of_falls(case, falls),
        counts={"commit-count": len(case.story.commits)},
        detail={"offsets_follow_ms": case.story.rules.offsets_follow_ms},
    )


def no_new_beginning(case: Case) -> Findings:
    """spurious-zero."""
    falls = [fall for fall in _falls(case) if fall.kind in SPURIOUS]
    return Findings(
        kinds=SPURIOUS,
        anomalies=_of_falls(case, falls),
        counts={"assignment-count": len(case.story.assignments)},
    )


_SAID = {
    "offset-back": "its offset was {told}, and at least {floor} by what had been committed",
    "commit-back": "its member committed {told} after {floor}",
    "offset-not-taken": "its offset was {told} right after {floor} was committed",
    "spurious-zero": "it began at {told}, and at least {floor} had been committed",
    "spurious-end": "it began at the queue's end, {told}, and at least {floor} had been committed",
}


def _of_falls(case: Case, falls: Iterable[Fall]) -> tuple[Anomaly, ...]:
    names = case.story.keys.names
    return anomalies_of(case, (
        Found(each.kind, each.group, f"Group {case.group(each.group)}, queue {names[each.key]}, at"
              f" {each.at_ns / 1e9:.3f} s: "
              f"{_SAID[each.kind].format(told=each.told, floor=each.floor)}.", each.operations)
        for each in falls))  # fmt: skip


def retry_delay(case: Case) -> Findings:
    """retry-delay: neither early nor never."""
    fates, sent = case.fates, case.story.send_backs
    found = list(_breaches(case, too_early(case.story)))
    for number, row in enumerate(fates.of("retry-lost").tolist()):
        group, message = int(fates.group[row]), int(fates.message[row])
        own = (sent.group == group) & (sent.message == message)
        proof = tuple(sent.index[own].tolist()) if number < OPERATIONS_MAX else ()
        text = (
            f"Group {case.group(group)} sent back {case.message(message)}, which was acknowledged;"
            " it is due, and neither in the retry topic nor in the dead letters."
        )
        found.append(Found("retry-lost", group, text, proof))
    return Findings(
        kinds=("retry-early", "retry-lost"),
        anomalies=anomalies_of(case, found),
        counts={"send-back-count": len(sent)},
    )


def retry_count(case: Case) -> Findings:
    """retry-count: one more each time, no more than the limit, and one dead letter."""
    story = case.story
    found = _breaches(case, [*wrong_numbers(story), *dead_letters(story)])
    return Findings(
        kinds=(
            *("retry-over", "retry-unasked", "retry-twice"),
            *("dead-letter-early", "dead-letter-twice", "dead-letter-missing"),
        ),
        anomalies=anomalies_of(case, found),
        counts={"dead-lettered-count": len(case.fates.of("dead-lettered"))},
    )


def delayed(case: Case) -> Findings:
    """delayed: neither early nor never, and once."""
    story, fates = case.story, case.fates
    found = list(_breaches(case, [*delayed_early(story), *delayed_twice(story)]))
    lost = fates.of("lost")
    own = np.unique(fates.message[lost][story.messages.delay[fates.message[lost]] > 0])
    for message in own.tolist():
        text = f"{case.message(message)} was acknowledged and is due, and its topic has it not."
        found.append(Found("delayed-lost", -1, text, case.sent([message])))
    return Findings(
        kinds=("delayed-early", "delayed-twice", "delayed-lost"),
        anomalies=anomalies_of(case, found),
        counts={"delayed-count": int((story.messages.delay > 0).sum())},
    )


def _breaches(case: Case, breaches: Iterable[Breach]) -> Iterator[Found]:
    for each in breaches:
        of = f" of group {case.group(each.group)}" if each.group >= 0 else ""
        text = f"{case.message(each.message)}{of}: {each.text}."
        yield Found(each.kind, each.group, text, each.operations)


def tags(case: Case) -> Findings:
    """tags: nothing that nobody subscribed to."""
    story, rows = case.story, case.story.deliveries
    found = []
    for number, group in enumerate(story.rules.groups):
        own = np.flatnonzero((rows.group == number) & (rows.message >= 0))
        wrong = own[~subscribed(story, number)[rows.message[own]]]
        for row in wrong.tolist():
            tag = story.tags[story.messages.tag[rows.message[row]]]
            text = (
                f"Group {group.name} wants {', '.join(group.tags)} and was given"
                f" {case.message(int(rows.message[row]))} with the tag {tag or 'none'}."
            )
            found.append(Found("unsubscribed", number, text, (int(rows.index[row]),)))
    return Findings(
        kinds=("unsubscribed",),
        anomalies=anomalies_of(case, found),
        counts={"filtered-count": len(case.fates.of("filtered"))},
    )


def broadcast_complete(case: Case) -> Findings:
    """broadcast-complete."""
    story, owned, result = case.story, case.story.assignments, case.broadcast
    found = []
    for each in result.missed:
        row = each.assignment
        member, group = story.members[owned.member[row]], int(owned.group[row])
        for message in each.messages.tolist():
            text = (
                f"{member} of group {case.group(group)} began at {owned.offset[row]} and was never"
                f" given {case.message(message)}."
            )
            found.append(Found(each.kind, group, text, case.sent([message])))
    return Findings(
        kinds=("broadcast-hole", "broadcast-unseen"),
        anomalies=anomalies_of(case, found),
        counts={"due-count": result.judged, "given-count": result.given},
        detail={"judged": result.judged, "given": result.given},
    )


def liveness(case: Case) -> Findings:
    """group-liveness."""
    fates, found, notes = case.fates, list[Found](), list[str]()
    lives = undecided = 0
    for each in case.waiting:
        name = case.group(each.group)
        lives += each.lives
        undecided += len(each.undecided)
        for row in each.stuck.tolist():
            message = int(fates.message[row])
            text = (
                f"Group {name} had living members for {case.story.rules.stuck_after_ms / 1e3:.0f} s"
                f" after the heal, and {case.message(message)} still waits."
            )
            found.append(Found("stuck", each.group, text, case.sent([message])))
        if len(each.undecided):
            notes.append(
                f"{len(each.undecided)} messages still wait for group {name}, whose members did not"
                " have the time that it takes to call that stuck."
            )
    settled = case.story.final.settled
    if found and not settled:
        notes.append("The cluster had not settled, so groups may be stuck for that.")
    return Findings(
        kinds=("stuck",) if settled else (),
        anomalies=anomalies_of(case, found),
        counts={"living-count": lives, "undecided-count": undecided, "stuck-count": len(found)},
        unknown=tuple(notes),
    )
