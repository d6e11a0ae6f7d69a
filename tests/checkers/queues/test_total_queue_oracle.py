"""total-queue against an oracle that knows nothing of columns: one message at a time, from the
words of the definition. Small random histories, with dense and with sparse ids."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shalott.checkers.queues.total_queue import TotalQueue
from shalott.core.rng import Stream
from tests.checkers.histories import Story

pytestmark = pytest.mark.explore


def random_story(rng: Stream) -> Story:
    """Half of them wild; half tame, with nothing that is forbidden whatever the promise."""
    story = Story().phases()
    tame = bool(rng.below(2))
    spread = rng.choice([1, 7919, 1 << 40])
    offset = rng.choice([0, -5, 1 << 60])
    ids = [offset + number * spread for number in range(1 + rng.below(8))]
    for value in ids:
        if tame or rng.below(10):
            kind = rng.choice(["ok", "ok", "ok", "info", "info" if tame else "fail"])
            queue = rng.choice(["q", "r"])
            took = None if kind == "info" and rng.below(2) else rng.between(0, 5)
            begin = rng.between(0, 5 if tame else 40)
            story.enqueue(value, begin, kind, key=queue, process=rng.below(3), took=took)
        for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 3])):
            story.dequeue(
                value,
                rng.between(5 if tame else 0, 60),
                redelivered=bool(rng.below(2)),
                took=rng.between(0, 10),
                kind=rng.choice(["ok", "ok", "ok", "info"]),
                node=rng.choice(["n1", "n2", "n3"]),
                key=rng.choice(["q", "r"]),
            )
    for _ in range(0 if tame else rng.below(3)):
        story.row("dequeue", rng.between(0, 60), error="corrupted")
        story.row("dequeue", rng.between(0, 60), kind="fail", error="empty")
        story.row("dequeue", rng.between(0, 60), kind="fail", value=ids[0], error="refused")
    for queue in ("q", "r"):
        story.empty(65, nodes=["n1", "n2", "n3"][: 3 - (rng.below(4) == 0)], key=queue)
    return story


def is_duplicated(deliveries: list[dict[str, Any]]) -> bool:
    """Whether no order of the deliveries that agrees with time has all but the first flagged."""
    for first in deliveries:
        others = [d for d in deliveries if d is not first]
        could_be_first = all(d["complete_ns"] >= first["invoke_ns"] for d in others)
        if could_be_first and all(d["redelivered"] for d in others):
            return False
    return True


def drained_queues(story: Story) -> set[str]:
    nodes = {row["node"] for row in story.rows if row["process"] >= 0}
    heard: dict[str, set[str]] = {"q": set(), "r": set()}
    for row in story.rows:
        if row["error"] == "empty" and row["invoke_ns"] >= 64 * 10**9:
            heard[row["key"]].add(row["node"])
    return {queue for queue, said in heard.items() if said >= nodes}


def oracle(story: Story) -> tuple[Counter[str], dict[str, bool | str]]:
    counts: Counter[str] = Counter()
    doubtful = 0
    drained = drained_queues(story)
    values = {row["value"] for row in story.rows if row["value"] is not None}
    for value in values:
        rows = [row for row in story.rows if row["value"] == value]
        enqueues = [row for row in rows if row["f"] == "enqueue"]
        deliveries = [row for row in rows if row["f"] == "dequeue" and row["type"] != "fail"]
        if not enqueues:
            counts["unexpected"] += bool(deliveries)
            continue
        (enqueue,) = enqueues
        told = enqueue["type"]
        if any(d["complete_ns"] < enqueue["invoke_ns"] for d in deliveries):
            counts["too-early"] += 1
        if not deliveries:
            outcome = "lost" if told == "ok" else "not-enqueued"
            doubtful += outcome == "lost" and enqueue["key"] not in drained
        elif told == "fail":
            outcome = "phantom"
        elif len(deliveries) > 1:
            outcome = "duplicated" if is_duplicated(deliveries) else "redelivered"
        else:
            outcome = "delivered-once" if told == "ok" else "recovered"
        counts[outcome] += 1
    counts["corrupted"] = sum(row["error"] == "corrupted" for row in story.rows)
    always = any(counts[k] for k in ("unexpected", "corrupted", "phantom", "too-early"))
    twice = bool(counts["duplicated"] or counts["redelivered"])

    def verdict(bad: bool, loss_matters: bool) -> bool | str:
        if bad or (loss_matters and counts["lost"] > doubtful):
            return False
        return "unknown" if loss_matters and doubtful else True

    return counts, {
        "at-least-once": verdict(always, True),
        "at-most-once": verdict(always or twice, False),
        "exactly-once": verdict(always or twice, True),
    }


MESSAGE_OUTCOMES = (
    "lost", "unexpected", "duplicated", "redelivered", "recovered", "phantom", "not-enqueued",
    "corrupted", "too-early", "delivered-once",
)  # fmt: skip


@pytest.mark.parametrize("block", range(5))
def test_agrees_with_the_oracle_on_random_histories(block: int) -> None:
    seen: Counter[str] = Counter()
    for number in range(100):
        story = random_story(Stream(block, "history", number))
        counts, verdicts = oracle(story)
        history = story.history()
        for delivery, verdict in verdicts.items():
            result = TotalQueue(delivery=delivery).check(history)
            assert {outcome: result.counts[f"{outcome}-count"] for outcome in MESSAGE_OUTCOMES} == {
                outcome: counts[outcome] for outcome in MESSAGE_OUTCOMES
            }, (block, number)
            assert result.valid == verdict, (block, number, delivery)
            seen[f"{delivery} {verdict}"] += 1
        seen.update(counts)
    assert set(MESSAGE_OUTCOMES) <= {outcome for outcome, count in seen.items() if count}
    assert {f"at-least-once {verdict}" for verdict in (True, False, "unknown")} <= set(seen)


@pytest.mark.parametrize("seed", range(3))
def test_outcomes_partition_the_attempted_messages(seed: int) -> None:
    for number in range(50):
        result = TotalQueue().check(random_story(Stream(seed, "sum", number)).history())
        outcomes = (
            "delivered-once", "lost", "duplicated", "redelivered", "recovered", "phantom",
            "not-enqueued",
        )  # fmt: skip
        total = sum(result.counts[f"{outcome}-count"] for outcome in outcomes)
        assert total == result.counts["attempt-count"]
        cells = sum(sum(row.values()) for row in result.detail["matrix"].values())
        assert cells == total
