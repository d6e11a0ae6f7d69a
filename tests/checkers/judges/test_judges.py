"""What judges do not know, what they leave out, their names, options and limits."""

from __future__ import annotations

import pytest

from shalott.checkers.judge import JUDGES, Limits, find_judge, make_judge
from shalott.core.errors import UsageError
from tests.checkers.judges.test_planted import BANK, ONE_KEY, ROWS, THREE, TRANSFER
from tests.checkers.judges.written import (
    Step,
    add,
    append,
    crashed,
    done,
    fail,
    failed,
    info,
    invoke,
    judged,
    keyed,
    kinds_of,
    mops,
    ok,
    put,
    read,
    steps,
    write,
)

pytestmark = pytest.mark.unit

History = list[Step]


# -- what is not known --


@pytest.mark.parametrize(
    ("judge", "history", "why"),
    [
        ("bank", TRANSFER, "The accounts were never read."),
        ("final-set", add(1), "The set was never read."),
        (
            "final-set",
            steps(add(1), [invoke(1, "read"), fail(1, "read")]),
            "The set was never read.",
        ),
        ("set-full", steps(add(1), crashed("read")), "No element was found by the last reads"),
        ("counter-bounds", add(1), "The counter was never read."),
        ("unique-ids", crashed("generate"), "No id was generated."),
        ("monotonic", crashed("inc"), "No value was ever seen."),
        ("monotonic", ROWS, "The rows were never read."),
        ("sequential", write(1), "No key was ever read."),
        ("causal-reverse", write(1), "Nothing was ever read."),
        ("causal", crashed("write", 1), "No operation was acknowledged."),
        ("long-fork", ONE_KEY, "There was no read of a group of keys."),
        ("long-fork:n=3", read(mops(x=1, y=1)), "is of 2 keys, not of 3"),
        (
            "long-fork",
            steps(ONE_KEY, ONE_KEY, read(mops(x=1))),
            'key "x" was written more than once',
        ),
        ("long-fork", steps(read(mops(x=1)), read(mops(x=2))), "was read as 2 and as 1"),
        ("g2", failed("insert", [1, [None, 2]]), "Nothing was inserted."),
        ("replica-logs", append(1), "The log was never read."),
        ("read-your-writes", read({1}), "No process did what read-your-writes is about."),
        ("monotonic-reads", steps(add(1), done(0, "remove", 1), read({1}), read(set())), "remove"),
        (
            "total-queue",
            steps(put(1), crashed("drain")),
            "1 drains crashed, and may",
        ),
    ],
)
def test_what_is_not_known_is_said(judge: str, history: History, why: str) -> None:
    found = judged(judge, *history)
    assert found.valid == "unknown"
    assert why in " ".join(found.notes)


def test_a_crashed_dequeue_may_have_taken_what_is_missing() -> None:
    history = steps(put(1), crashed("dequeue"), done(1, "drain", []))
    found = judged("total-queue", *history)
    assert found.valid is False
    assert "1 dequeues crashed: each may have taken one element" in found.notes[0]
    assert judged("total-queue:crashed=may-have-taken", *history).valid == "unknown"
    told = steps(put(1), [invoke(1, "dequeue"), info(1, "dequeue", 1)], done(1, "drain", []))
    assert judged("total-queue", *told).valid is True


def test_a_drain_that_says_that_nothing_is_left_takes_nothing() -> None:
    for nothing in (":exhausted", None, []):
        found = judged("total-queue", put(1), done(1, "dequeue", 1), done(1, "drain", nothing))
        assert (found.valid, found.counts["ok-count"]) == (True, 1)


def test_a_total_that_was_not_told_is_taken_from_the_reads() -> None:
    found = judged("bank", *BANK)
    assert found.notes == ("The total was not told: 20, which 2 of 2 reads show, is taken for it.",)
    assert judged("bank:total=21", *BANK).counts["wrong-total-count"] == 2
    assert judged("bank:negative-balances=true", read({0: -1, 1: 21})).valid is True


def test_histories_of_maelstrom() -> None:
    """A broadcast is an add; of a counter that agrees in the end the final reads count."""
    heard = steps(done(0, "broadcast", 1), done(1, "read", []), done(1, "read", [1]))
    assert judged("set-full", heard).valid is True
    assert judged("set-full", heard, done(1, "read", [])).valid is False
    stale = steps(add(3), done(1, "read", 0))
    assert judged("counter-bounds", *stale).valid is False
    final = [invoke(1, "read"), ok(1, "read", 3, ":final? true")]
    found = judged("counter-bounds", *stale, final)
    assert (found.valid, found.counts["read-count"]) == (True, 1)


def test_a_log_with_offsets() -> None:
    log = [read([":a", [[0, 1], [1, 2]]]), read([":b", [[0, 1], [1, 3]]])]
    assert judged("replica-logs", THREE, log[0]).valid is True
    assert kinds_of(judged("replica-logs", THREE, *log)) == {"diverged"}


def test_keys_are_told_apart() -> None:
    history = steps(add(["a", 1]), add(["b", 2]), keyed("a", {1}), keyed("b", set()))
    found = judged("final-set", *history)
    assert (found.valid, found.counts["key-count"]) == (False, 2)
    assert found.anomalies[0].summary.startswith('key "b": 2 was added')


def test_what_a_judge_does_not_read_is_left_out_with_a_note() -> None:
    found = judged("unique-ids", done(0, "generate", 1), done(0, "other", 1))
    assert found.valid is True
    assert found.notes == ('1 operations "other" were left out: not judged here.',)


def test_limits_end_in_unknown() -> None:
    history = [step for value in range(5000) for step in add(value)]
    for limits in (Limits(time_limit_s=0.0), Limits(memory_limit_bytes=1)):
        found = judged("final-set", *history, read({1}), limits=limits)
        assert found.valid == "unknown"
        assert "limit was reached after" in found.notes[0]


# -- names and options --


def test_every_judge_is_found_and_says_what_it_promises() -> None:
    for name in JUDGES:
        record = find_judge(name)
        assert record.name == name
        assert all((record.summary, record.promise, record.source, record.fs))
        assert make_judge(name).judge


@pytest.mark.parametrize(
    "specification",
    ["no-such", "bank:sum=1", "total-queue:crashed=maybe", "monotonic:order=time", "set-full:x"],
)
def test_a_mistake_is_told(specification: str) -> None:
    with pytest.raises(UsageError):
        make_judge(specification)
