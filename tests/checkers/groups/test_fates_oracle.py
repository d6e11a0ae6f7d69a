"""Fates against an interpreter that knows nothing of columns: one group and message at a time, from
the words of the definition (checkers/groups/group_fates.py). Small random histories, most of
them wild.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from shalott.checkers.groups.group_case import Case
from shalott.checkers.groups.group_fates import FATES
from shalott.checkers.groups.group_rules import Group, GroupRules
from shalott.core.history import History
from shalott.core.rng import Stream
from tests.checkers.groups.telling import (
    CONCURRENT,
    LEVELS_MS,
    ORDERLY,
    QUEUE,
    TAGGED,
    Told,
    dead,
    retry,
)

GROUPS = (CONCURRENT, TAGGED, ORDERLY)
S = 1_000_000_000


def random_history(rng: Stream) -> tuple[History, GroupRules]:
    """Whatever may stand in a history, in any combination."""
    told = Told(*GROUPS)
    values = list(range(100, 101 + rng.below(6)))
    for value in values:
        told.send(
            value,
            rng.between(1, 60),
            kind=rng.choice(["ok", "ok", "ok", "info", "fail"]),
            tag=rng.choice(["x", "x", "y"]),
            delay=rng.choice([0, 0, 0, 1, 3]),
            key=rng.choice([QUEUE, "t/1", "other/0"]),
            logged=bool(rng.below(5)),
        )
    for group in GROUPS:
        _random_group(rng, told, group, values)
    keys = list(told.logs)
    unread = [key for key in keys if not rng.below(12)]
    untold = [group.name for group in GROUPS if not rng.below(8)]
    return told.history(unread=unread, untold=untold), told.rules


def _random_group(rng: Stream, told: Told, group: Group, values: list[int]) -> None:
    name = f"{group.name}.1"
    own = retry(group.name)
    told.member(name)
    for _ in range(rng.below(6)):
        value, key = rng.choice(values), rng.choice([QUEUE, "t/1", own])
        outcome = rng.choice(["success", "later", "suspend", "dropped", ""])
        told.given(name, value, rng.below(4), rng.between(2, 60), outcome, key=key)
    for _ in range(rng.below(3)):
        told.sent_back(
            name,
            rng.choice(values),
            rng.below(4),
            rng.between(2, 63),
            level=rng.choice([-1, 0, 1, 2, 3]),
            reconsumed=rng.below(3),
            kind=rng.choice(["ok", "ok", "info", "fail"]),
        )
    for key in (own, dead(group.name)):
        told.log(key, *(rng.choice(values) for _ in range(rng.choice([0, 0, 1, 2]))))
    for key in (QUEUE, "t/1", own):
        told.ends_at(group.name, rng.choice([None, 0, 1, 2, 3]), key=key)
        if not rng.below(3):
            told.assigned(name, rng.between(1, 30), offset=rng.below(4), why="last", key=key)
    if not rng.below(3):
        at, kind = rng.between(1, 30), rng.choice(["ok", "info", "fail"])
        told.story.row(
            "reset", at, kind=kind, offset=rng.below(4), key=rng.choice([QUEUE, "t/1"]),
            extra={"group": group.name},
        )  # fmt: skip


class Naive:
    """Row by row."""

    def __init__(self, history: History, rules: GroupRules) -> None:
        self.rules = rules
        self.rows = [row for row in history.ops.to_pylist() if row["process"] >= 0]
        for row in self.rows:
            row["said"] = json.loads(row["extra"] or "{}")
        self.end_ns = max(row["complete_ns"] or row["invoke_ns"] for row in history.ops.to_pylist())

    def fates(self) -> Counter[tuple[str, int, str]]:
        found: Counter[tuple[str, int, str]] = Counter()
        for group in self.rules.groups:
            for send in self.of("send"):
                if send["type"] == "ok" and send["key"].rsplit("/")[0] in group.topics:
                    found[group.name, send["value"], self.fate(group, send)] += 1
        return found

    def of(self, f: str, group: Group | None = None) -> list[dict[str, Any]]:
        rows = [row for row in self.rows if row["f"] == f]
        return [row for row in rows if group is None or row["said"].get("group") == group.name]

    def fate(self, group: Group, send: dict[str, Any]) -> str:
        value, key = send["value"], send["key"]
        given = [row for row in self.of("deliver", group) if row["value"] == value]
        outcomes = [row["said"].get("outcome", "") for row in given]
        sent = [row for row in self.of("send-back", group) if row["value"] == value]
        sent = [row for row in sent if row["type"] != "fail"]
        if group.tags and send["said"]["tag"] not in group.tags:
            return "filtered"
        if "success" in outcomes:
            return "consumed"
        if value in self.log(dead(group.name)).values():
            return "dead-lettered"
        if self.is_retried(group, value, sent):
            return "pending"
        whole = self.is_read(key) and self.offset(group, key) != "untold"
        retries_read = self.is_read(retry(group.name)) and self.is_read(dead(group.name))
        if not whole or (sent and not retries_read):
            return "unread"
        places = [offset for offset, there in self.log(key).items() if there == value]
        delay = send["said"].get("delay", 0)
        if not places:
            due_ns = send["complete_ns"] + (LEVELS_MS[delay - 1] * 10**6 if delay else 0)
            waits = delay and due_ns + 5 * S > self.read_ns(key)
            return "pending" if waits else "lost"
        if max(places) >= self.offset(group, key):
            return "pending"
        if "" in outcomes:
            return "consumed-unsure"
        if any(row["type"] == "ok" for row in sent):
            return "retry-lost"
        return "passed-over" if self.is_passed(group, key, max(places)) else "skipped"

    def is_retried(self, group: Group, value: int, sent: list[dict[str, Any]]) -> bool:
        key = retry(group.name)
        places = [offset for offset, there in self.log(key).items() if there == value]
        if places:
            offset = self.offset(group, key)
            return max(places) >= (0 if offset == "untold" else offset)
        return any(self.due_ns(row) + 5 * S > self.read_ns(key) for row in sent)

    def due_ns(self, row: dict[str, Any]) -> int:
        level, times = row["said"]["level"], row["said"]["reconsumed"]
        if level < 0:
            return int(row["complete_ns"])
        level = min(level or self.rules.first_retry_level + times, len(LEVELS_MS))
        return int(row["complete_ns"]) + LEVELS_MS[level - 1] * 10**6

    def is_passed(self, group: Group, key: str, place: int) -> bool:
        resets = [row for row in self.of("reset", group) if row["key"] == key]
        resets = [row for row in resets if row["type"] != "fail"]
        for row in self.of("assignment", group):
            # A reset before that makes no offset known: it is the broker's word to members.
            last = row["said"]["why"] == "last" and row["key"] == key
            if last and place < row["offset"]:
                return True
        return any(place < row["offset"] for row in resets)

    def log(self, key: str) -> dict[int, int]:
        polls = [row for row in self.of("poll") if row["key"] == key]
        return {offset: value for row in polls for offset, value in row["said"]["records"]}

    def is_read(self, key: str) -> bool:
        return any(row["key"] == key for row in self.of("poll"))

    def read_ns(self, key: str) -> int:
        at_ns = [row["invoke_ns"] for row in self.of("poll") if row["key"] == key]
        return int(min(at_ns, default=self.end_ns))

    def offset(self, group: Group, key: str) -> Any:
        told = [row for row in self.of("final-offset", group) if row["key"] == key]
        return (told[0]["offset"] or 0) if told else "untold"


def compare(number: int) -> list[str]:
    """Compare one history by the columns and by the oracle; returns the outcomes that were seen."""
    history, rules = random_history(Stream(15, f"fates-{number}"))
    case = Case(history, rules)
    fates, messages = case.fates, case.story.messages
    found = Counter(
        (case.group(group), int(messages.value[message]), FATES[fate])
        for group, message, fate in zip(
            fates.group.tolist(), fates.message.tolist(), fates.fate.tolist(), strict=True
        )
    )
    expected = Naive(history, rules).fates()
    assert found == expected, f"history {number}: {found - expected} is not {expected - found}"
    # A partition: every group and acknowledged message of its topics, once.
    pairs = Counter((group, value) for group, value, _ in found.elements())
    assert all(count == 1 for count in pairs.values()) and len(pairs) == len(fates.fate)
    return [fate for _, _, fate in found]


@pytest.mark.unit
def test_fates_are_those_of_the_oracle() -> None:
    seen: Counter[str] = Counter()
    for number in range(150):
        seen.update(compare(number))
    assert set(seen) == set(FATES), "every fate should have been drawn"


@pytest.mark.explore
@pytest.mark.nightly("hundreds more of what the unit tier has")
def test_fates_are_those_of_the_oracle_for_long() -> None:
    for number in range(1000, 1500):
        compare(number)
