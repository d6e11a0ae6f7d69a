"""For each anomaly of each judge a history that has it, beside one without: found, and told in a
sentence with the history's own values and indexes."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from shalott.checkers.judge import JUDGES
from tests.checkers.judges.written import (
    Step,
    add,
    append,
    crashed,
    done,
    failed,
    invoke,
    judged,
    kinds_of,
    linked,
    mops,
    ok,
    put,
    read,
    row,
    steps,
    write,
)

pytestmark = pytest.mark.unit

History = list[Step]


class Planted(NamedTuple):
    judge: str
    kind: str
    sound: History
    wrong: History
    told: str  # of the first anomaly of the kind


TRANSFER = done(0, "transfer", {":from": 0, ":to": 1, ":amount": 5})
BANK = steps(TRANSFER, read({0: 5, 1: 15}), read({0: 5, 1: 15}))
SET = steps(add(1), add(2), read({1, 2}))
QUEUED = steps(put(1), put({":a": 1}), put("x"))
DRAINED = done(1, "drain", [1, {":a": 1}, "x"])
LOG = steps(append(1), append(2), append(3, 1), read([":a", [1, 2]]))
THREE = steps(append(1), append(2), append(3))
ROWS = steps(*(done(0, "add", row(value, value)) for value in (1, 2)))
CAUSAL = steps(linked("read-init", 0, ":init", 1), linked("write", 1, 1, 2))
ONE_KEY = done(0, "write", [[":w", "x", 1]])

PLANTED = [
    Planted("bank", "wrong-total", BANK, steps(BANK, read({0: 5, 1: 9})), "shows 14 in all"),
    Planted(
        "bank:total=20",
        "wrong-total",
        BANK,
        steps(read({0: 5, 1: 16})),
        "21 in all where 20",
    ),
    Planted("bank", "wrong-total", steps(read([5, 15])), steps(BANK, read([5, 16])), "[5 16]"),
    Planted(
        "bank", "nil-balance", BANK, steps(BANK, read({0: 5, 1: None})), "no balance of account 1"
    ),
    Planted(
        "bank", "negative-value", BANK, steps(BANK, read({0: -1, 1: 21})), "a debt of account 0"
    ),
    Planted("bank", "unexpected-key", BANK, steps(BANK, read({0: 5, 1: 15, 7: 0})), "account 7"),
    Planted(
        "bank:accounts=a b",
        "unexpected-key",
        steps(read({":a": 5, ":b": 15})),
        steps(read({":a": 5, ":c": 15})),
        "account :c",
    ),
    Planted("final-set", "lost", SET, steps(SET, read({1})), "2 was added (index 3)"),
    Planted("final-set", "unexpected", SET, steps(SET, read({1, 2, 3})), "3, which was never"),
    Planted(
        "final-set:revived=refused",
        "revived",
        steps(SET, crashed("add", 4), read({1, 2, 4})),
        steps(SET, failed("add", 4), read({1, 2, 4})),
        "4 is there in the end although",
    ),
    Planted("set-full", "lost", SET, steps(SET, read({1})), "index 7, begun later,"),
    Planted("set-full", "lost", SET, steps(add(1), add(2), read({1})), "no read showed it"),
    Planted("set-full", "duplicated", SET, steps(SET, read([1, 2, 2])), "shows 2 2 times"),
    Planted("set-full", "unexpected", SET, steps(SET, read({1, 2, "a"})), 'shows "a"'),
    Planted(
        "set-full", "unexpected", SET, steps(add(1), read({1, 2}), add(2)), "2, before it was added"
    ),
    Planted(
        "set-full:linearizable=true",
        "stale",
        SET,
        steps(add(1), add(2), read({1}), read({1, 2})),
        "2 was added (index 3), but the read at index 5, which began later, did not show it",
    ),
    Planted(
        "counter-bounds", "too-low", steps(add(1), read(1)), steps(add(1), read(0)), "shows 0, but"
    ),
    Planted(
        "counter-bounds",
        "too-high",
        steps(add(1), crashed("add", 4), read(5)),
        steps(add(1), failed("add", 4), read(5)),
        "shows 5, but the counter was 1",
    ),
    Planted(
        "unique-ids",
        "duplicated",
        steps(*(done(0, "generate", value) for value in (1, "1", [1]))),
        steps(*(done(0, "generate", value) for value in ("a", "b", "a"))),
        'the id "a" was given out 2 times: first at index 1, again at index 5',
    ),
    Planted("queue", "unexpected", QUEUED, steps(done(1, "dequeue", 9), QUEUED), "9 came out"),
    Planted(
        "queue",
        "duplicated",
        steps(put(1), put(1), done(1, "dequeue", 1), done(1, "drain", [1])),
        steps(put(1), done(1, "dequeue", 1), done(1, "drain", [1])),
        "for the 2nd time, but had been put in once",
    ),
    Planted(
        "total-queue",
        "lost",
        steps(QUEUED, DRAINED),
        steps(QUEUED, done(1, "drain", [1, "x"])),
        "{:a 1} was acknowledged (index 3), but never came out",
    ),
    Planted(
        "total-queue",
        "unexpected",
        steps(QUEUED, DRAINED),
        steps(QUEUED, DRAINED, done(1, "dequeue", {":a": 2})),
        "{:a 2} came out (index 9), but was never put in",
    ),
    Planted(
        "total-queue:duplicated=refused",
        "duplicated",
        steps(QUEUED, DRAINED),
        steps(QUEUED, DRAINED, done(1, "dequeue", "x")),
        '"x" came out (index 9) more often than it was put in',
    ),
    Planted(
        "monotonic",
        "went-back",
        steps(done(0, "inc", 1), read(1, 0), read(0, 1)),
        steps(done(0, "inc", 1), read(1, 0), read(0, 0)),
        "process 0 saw 1 (index 3), then 0 (index 5)",
    ),
    Planted(
        "monotonic",
        "time-went-back",
        steps(done(0, "inc", ["t1", 1]), read(["t2", 1], 0)),
        steps(done(0, "inc", ["t1", 1]), read(["t0", 1], 0)),
        'was told time "t1" (index 1), then "t0"',
    ),
    Planted(
        "monotonic",
        "reordered",
        steps(done(0, "inc", [1, 1]), done(1, "read-at", [0, 0])),
        steps(done(0, "inc", [1, 1]), done(1, "read-at", [0, 2])),
        "at time 0 the value was 2 (index 3), at the later time 1 it was 1",
    ),
    Planted(
        "monotonic",
        "reordered",
        steps(read({":x": 0, ":y": 1}), read({":x": 1, ":y": 1})),
        steps(read({":x": 0, ":y": 1}), read({":x": 1, ":y": 0})),
        "saw :x at 0, before index 3, which saw 1",
    ),
    Planted(
        "monotonic",
        "lost",
        steps(ROWS, read([row(1, 1), row(2, 2)])),
        steps(ROWS, read([row(1, 1)])),
        "2 was added (index 3), but the last read (index 5) lacks it",
    ),
    Planted(
        "monotonic",
        "duplicated",
        steps(ROWS, read([row(1, 1), row(2, 2)])),
        steps(ROWS, read([row(1, 1), row(2, 2), row(2, 2)])),
        "has 2 2 times",
    ),
    Planted(
        "monotonic",
        "revived",
        steps(ROWS, crashed("add", row(3, 3)), read([row(1, 1), row(2, 2), row(3, 3)])),
        steps(ROWS, failed("add", row(3, 3)), read([row(1, 1), row(2, 2), row(3, 3)])),
        "has 3, whose add failed",
    ),
    Planted(
        "monotonic",
        "time-went-back",
        steps(ROWS, read([row(1, 1), row(2, 2)])),
        steps(ROWS, read([row(1, 2), row(2, 1)])),
        "has time 2 before 1",
    ),
    Planted(
        "monotonic:rows=process",
        "reordered",
        steps(ROWS, read([row(2, 1, 0), row(1, 2, 1)])),
        steps(ROWS, read([row(2, 1, 0), row(1, 2, 0)])),
        "has 2 before 1 of process 0",
    ),
    Planted(
        "sequential",
        "bad",
        steps(write(3), [invoke(1, "read", 3), ok(1, "read", [3, [None, "3_1", "3_0"]])]),
        steps(write(3), [invoke(1, "read", 3), ok(1, "read", [3, ["3_2", None, "3_0"]])]),
        'index 3 of key 3 saw "3_2", but then not',
    ),
    Planted(
        "causal-reverse",
        "missing-write",
        steps(write(1), write(2), read({1, 2})),
        steps(write(1), write(2), read({2})),
        "shows 2, but not 1: 1 had been acknowledged (index 1) before the write of 2 was invoked"
        " (index 2)",
    ),
    Planted(
        "comments",
        "missing-write",
        steps(
            write(["k", 1]),
            write(["j", 2]),
            [invoke(1, "read", ["j", None]), ok(1, "read", ["j", {2}])],
        ),
        steps(
            write(["k", 1]),
            write(["k", 2]),
            [invoke(1, "read", ["k", None]), ok(1, "read", ["k", {2}])],
        ),
        'key "k": the read at index 5 shows 2, but not 1',
    ),
    Planted(
        "causal-reverse",
        "unexpected",
        steps(write(1), read([1])),
        steps(write(1), read([1, 5])),
        "shows 5, which no write brought",
    ),
    Planted(
        "causal",
        "broken-link",
        steps(CAUSAL, linked("read", 1, 2, 3)),
        steps(CAUSAL, linked("read", 1, 1, 3)),
        "read at index 5 is linked to position 1, but the last one was at 2",
    ),
    Planted(
        "causal",
        "wrong-value",
        steps(CAUSAL, linked("write", 2, 2, 3), linked("read", 2, 3, 4)),
        steps(CAUSAL, linked("write", 2, 2, 3), linked("read", 1, 3, 4)),
        "read 1, but 2 was written last",
    ),
    Planted(
        "causal", "wrong-value", CAUSAL, linked("read-init", 4, ":init", 1), "before anything was"
    ),
    Planted("causal", "wrong-value", CAUSAL, steps(CAUSAL, linked("write", 3, 2, 3)), "2 was next"),
    Planted(
        "long-fork",
        "long-fork",
        steps(ONE_KEY, read(mops(x=1, y=None)), read(mops(y=1, x=1), 2)),
        steps(ONE_KEY, read(mops(x=1, y=None)), read(mops(y=1, x=None), 2)),
        'index 3 shows key "x" and not "y", that at index 5 shows "y" and not "x"',
    ),
    Planted(
        "g2",
        "illegal",
        steps(done(0, "insert", [3, [1, None]]), failed("insert", [3, [None, 2]])),
        steps(done(0, "insert", [3, [1, None]]), done(1, "insert", [3, [None, 2]])),
        "[3 [1 nil]] (index 1) and [3 [nil 2]] (index 3)",
    ),
    Planted(
        "replica-logs",
        "gap",
        steps(THREE, read([":a", [1, 2, 3]]), read([":b", [1, 2]])),
        steps(THREE, read([":a", [1, 2, 3]]), read([":b", [1, 3]])),
        "position 1: 3 on :b (index 9), 2 on :a (index 7); :b lacks 2 and goes on behind it",
    ),
    Planted(
        "replica-logs",
        "reordered",
        steps(THREE, read({":node": "n1", ":log": [1, 2, 3]}), read({":node": "n2", ":log": [1]})),
        steps(
            THREE, read({":node": "n1", ":log": [1, 2, 3]}), read({":node": "n2", ":log": [2, 1]})
        ),
        'position 0: 2 on "n2" (index 9), 1 on "n1" (index 7)',
    ),
    Planted(
        "replica-logs",
        "diverged",
        steps(THREE, read([1, 2], 1), read([1, 2, 3], 2)),
        steps(THREE, read([1, 2], 1), read([1, 3], 2)),
        'position 1: 3 on "process 2"',
    ),
    Planted(
        "replica-logs",
        "shrunk",
        steps(THREE, read([":a", [1, 2]]), read([":b", [1]])),
        steps(THREE, read([":a", [1, 2]]), read([":a", [1]])),
        "replica :a had 2 values (index 7), then 1 (index 9)",
    ),
    Planted("replica-logs", "duplicated", LOG, steps(LOG, read([":b", [1, 2, 2]])), "2 2 times"),
    Planted("replica-logs", "unexpected", LOG, steps(LOG, read([":b", [1, 2, 9]])), "has 9, which"),
    Planted(
        "replica-logs",
        "lost",
        LOG,
        steps(THREE, read([":a", [1, 3]])),
        "3 stands at 1, but 2, which had been acknowledged (index 3) before its append was invoked"
        " (index 4), is in no log",
    ),
    Planted(
        "replica-logs",
        "overtaken",
        LOG,
        steps(THREE, read([":a", [2, 1]])),
        "behind it, at 1",
    ),
    Planted(
        "read-your-writes",
        "unread-write",
        steps(add(1), read({1}, 0), read(set(), 1)),
        steps(add(1), read(set(), 0)),
        "process 0 had written 1 (index 1), but its read at index 3 does not show it",
    ),
    Planted(
        "read-your-writes",
        "unread-write",
        steps(write(1), read(1, 0), crashed("write", 2), read(2, 0)),
        steps(write(1), write(2, 1), write(3), read(2, 0)),
        "process 0 wrote 3 (index 5), then read 2 (index 7), which is older",
    ),
    Planted(
        "monotonic-reads",
        "read-went-back",
        steps(add(1), add(2), read({1}, 1), read({1, 2}, 1), read({1}, 2)),
        steps(add(1), add(2), read({1, 2}, 1), read({1}, 1)),
        "process 1 had read 2 by index 5, but its read at index 7 does not show it",
    ),
    Planted(
        "monotonic-reads",
        "read-went-back",
        steps(append(1), append(2), read([1]), read([1, 2])),
        steps(append(1), append(2), read([1, 2]), read([2, 1])),
        "process 1 had read 1 before 2 (index 5), then read them in the other order (index 7)",
    ),
    Planted(
        "monotonic-reads",
        "read-went-back",
        steps(write(1), write(2), read(1), read(2)),
        steps(write(1), write(2), read(2), read(1)),
        "process 1 read 2 (index 5), then 1 (index 7), which is older",
    ),
    Planted(
        "monotonic-writes",
        "write-overtaken",
        steps(add(1), add(2), read({1}), read({1, 2})),
        steps(add(1), add(2), read({2})),
        "process 0 wrote 1 (index 1), then 2 (index 3); the read at index 5 shows 2, but does not",
    ),
    Planted(
        "monotonic-writes",
        "write-overtaken",
        steps(append(1), append(2), read([1, 2])),
        steps(append(1), append(2), read([2, 1])),
        "but shows behind it 1",
    ),
    Planted(
        "monotonic-writes",
        "write-overtaken",
        steps(write(1), write(2), read(1), read(2), read(2)),
        steps(write(1), write(2), read(2), read(1)),
        "process 1 read 2 (index 5), then 1 (index 7)",
    ),
    Planted(
        "writes-follow-reads",
        "cause-missing",
        steps(add(1), read({1}), add(2, 1), read({1, 2}, 2)),
        steps(add(1), read({1}), add(2, 1), read({2}, 2)),
        "process 1 had read 1 before it wrote 2 (index 5); the read at index 7 shows 2, but does",
    ),
    Planted(
        "writes-follow-reads",
        "cause-missing",
        steps(append(1), read([1]), append(2, 1), read([1, 2], 2)),
        steps(append(1), read([1]), append(2, 1), read([2, 1], 2)),
        "but shows behind it 1",
    ),
    Planted(
        "writes-follow-reads",
        "cause-missing",
        steps(write(1), read(1), write(2, 1), read(1, 2), read(2, 2), read(2, 2)),
        steps(write(1), read(1), write(2, 1), read(2, 2), read(1, 2)),
        "process 1 had read 1 before it wrote 2 (index 5); process 2 read 2 (index 7), then 1",
    ),
]


@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_what_is_planted_is_found_and_told(number: int) -> None:
    planted = PLANTED[number]
    found = judged(planted.judge, *planted.wrong)
    assert found.valid is False
    told = [each.summary for each in found.anomalies if each.kind == planted.kind]
    assert planted.told in told[0], told
    assert found.counts[f"{planted.kind}-count"] == len(told)
    assert planted.kind in found.detail["broken"]
    assert planted.kind in found.words
    known = range(len(planted.wrong))
    assert all(set(each.operations) <= set(known) for each in found.anomalies)


@pytest.mark.parametrize("number", range(len(PLANTED)))
def test_what_is_sound_is_not_accused(number: int) -> None:
    planted = PLANTED[number]
    found = judged(planted.judge, *planted.sound)
    assert (found.valid, kinds_of(found) - {"revived"}) == (True, set()), found
    assert found.headline


def test_each_judge_has_something_planted() -> None:
    own = {name for name, place in JUDGES.items() if ".judges." in place}
    assert {planted.judge.partition(":")[0] for planted in PLANTED} == own
    assert len(PLANTED) >= 60
