"""What the checkers of queues, offsets, retries and members say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from shalott.checkers.checker import OPERATIONS_MAX, Anomaly
from shalott.checkers.groups.deliveries import (
    AFTER_COMMIT,
    CAUSES,
    CLASSES,
    UNEXPLAINED,
    assignment_of,
)
from shalott.checkers.groups.group_case import Case, Findings, Found, anomalies_of
from shalott.checkers.groups.group_fates import FATES, final_offsets, subscribed
from shalott.checkers.groups.group_history import DAMAGED, UNKNOWN
from shalott.checkers.groups.offsets import Fall, falling_commits, wrong_answers
from shalott.checkers.groups.orderly import Clash, out_of_order, two_holders, two_workers
from shalott.checkers.groups.retries import (
    Breach,
    dead_letters,
    delayed_early,
    delayed_twice,
    too_early,
    wrong_numbers,
)
from shalott.checkers.history.columns import NEVER, Ints
from shalott.checkers.logs.records import FAIL

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
    falls = [fall for fall in _falls(case) if fall.kind not in SPURIOUS]
    return Findings(
        kinds=("offset-back", "commit-back", "offset-not-taken"),
        anomalies=_of_falls(case, falls),
        counts={"commit-count": len(case.story.commits)},
        detail={"offsets_follow_ms": case.story.rules.offsets_follow_ms},
    )


def no_new_beginning(case: Case) -> Findings:
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
    """tags: only what was subscribed to."""
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


# What the checkers of messages say: their outcomes, what was skipped, what came again, and why.


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


def _of_group(case: Case, number: int) -> dict[str, object]:
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
    """group-not-skipped: what an offset passed, though no member had it to the end."""
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
    yield "unexpected", "no client sent it", np.flatnonzero(rows.message == UNKNOWN)
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
