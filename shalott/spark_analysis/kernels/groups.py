"""What consumer groups got, group by group: checkers/groups, in the columns of CONSUMED."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from shalott.checkers.groups.deliveries import CAUSES, FIRST
from shalott.checkers.groups.group_case import Case
from shalott.checkers.groups.group_fates import FATE, subscribed
from shalott.checkers.history.columns import Bools, Ints
from shalott.checkers.logs.records import OK
from shalott.core.history import History
from shalott.spark_analysis.kernels.consumers import gap_row
from shalott.spark_analysis.kernels.tables import OPERATIONS_MAX, Row

Tables = dict[str, list[Row]]


def group_rows(run: str, case: Case, history: History) -> Tables:
    numbers = range(len(case.story.rules.groups))
    flagged = _flagged(case, history)
    return {
        "consumed_messages": [_consumed(run, case, number, flagged) for number in numbers],
        "redeliveries": [_again(run, case, number, flagged) for number in numbers],
        "redelivery_causes": [row for number in numbers for row in _causes(run, case, number)],
        "consumer_gaps": [_gap(run, case, number) for number in numbers],
    }


def _deliveries(case: Case, number: int) -> tuple[Bools, Bools]:
    """Those of a group; and of them those that were not the first of their message."""
    own = case.story.deliveries.group == number
    return own, own & (case.judged.class_ != FIRST)


def _consumed(run: str, case: Case, number: int, flagged: Bools) -> Row:
    story, fates, group = case.story, case.fates, case.story.rules.groups[number]
    own, again = _deliveries(case, number)
    mine = fates.group == number
    # A broadcast has no wanted messages: its members keep their own offsets.
    codes = [code for code, topic in enumerate(story.keys.topics) if topic in group.topics]
    wanted = np.isin(story.messages.key, codes) & subscribed(story, number)
    acked = wanted & (story.messages.outcome == OK)
    counts = {name: int((mine & (fates.fate == code)).sum()) for name, code in FATE.items()}
    seen = ("filtered", "consumed", "dead-lettered", "consumed-unsure")
    lists = {name: fates.message[mine & (fates.fate == FATE[name])] for name in ("lost", "skipped")}
    return {
        "run": run, "kind": "group", "lane": group.name,
        "attempts": 0 if group.broadcast else int(wanted.sum()),
        "acknowledged": 0 if group.broadcast else int(acked.sum()),
        "deliveries": int(own.sum()), "again": int(again.sum()),
        "again_unflagged": int((again & ~flagged).sum()),
        "consumed": counts["consumed"], "drained": 0, "dead_lettered": counts["dead-lettered"],
        "unsure": counts["consumed-unsure"], "skipped": counts["skipped"],
        "gone": sum(counts.values()) - sum(counts[name] for name in seen),
        "lost": counts["lost"],
        "lost_operations": _first(story.messages.index[lists["lost"]]),
        "skipped_operations": _first(story.messages.index[lists["skipped"]]),
        "again_operations": _first(story.deliveries.index[again]),
    }  # fmt: skip


def _flagged(case: Case, history: History) -> Bools:
    """Of each delivery whether its broker said that it comes again."""
    said = pc.fill_null(history.ops["redelivered"], False).to_numpy()
    rows = np.searchsorted(history.ops["index"].to_numpy(), case.story.deliveries.index)
    return np.asarray(said[rows], dtype=np.bool_)


def _first(indexes: Ints) -> list[int]:
    return [int(index) for index in np.unique(indexes)[:OPERATIONS_MAX]]


def _again(run: str, case: Case, number: int, flagged: Bools) -> Row:
    own, again = _deliveries(case, number)
    message = case.story.deliveries.message[own]
    times = np.bincount(message[message >= 0]) if (message >= 0).any() else np.zeros(1, np.int64)
    return {
        "run": run, "kind": "group", "lane": case.group(number),
        "deliveries": int(own.sum()), "again": int(again.sum()),
        "unflagged": int((again & ~flagged).sum()),
        "by_one_master": None, "most": int(times.max()),
    }  # fmt: skip


def _causes(run: str, case: Case, number: int) -> Iterator[Row]:
    own, _ = _deliveries(case, number)
    counts = np.bincount(case.judged.cause[own], minlength=len(CAUSES))
    for code in np.flatnonzero(counts).tolist():
        if CAUSES[code]:
            yield {
                "run": run, "kind": "group", "lane": case.group(number),
                "cause": CAUSES[code], "deliveries": int(counts[code]),
            }  # fmt: skip


def _gap(run: str, case: Case, number: int) -> Row:
    story = case.story
    own, _ = _deliveries(case, number)
    lives = story.lives.group == number
    begin_ns, end_ns = 0, story.end_ns
    if lives.any():
        begin_ns = int(story.lives.begin_ns[lives].min())
        end_ns = int(np.minimum(story.lives.end_ns[lives], story.end_ns).max())
    stuck = sum(len(each.stuck) for each in case.waiting if each.group == number)
    row = gap_row(
        run, "group", case.group(number), story.deliveries.begin_ns[own], begin_ns, end_ns, stuck
    )
    skipped = case.fates.message[
        (case.fates.group == number) & (case.fates.fate == FATE["skipped"])
    ]
    proof = _first(story.messages.index[skipped])
    return row | {"skipped": len(skipped), "skipped_operations": proof}
