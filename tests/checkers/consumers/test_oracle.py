"""What is computed for all rows at once, against an interpreter that goes from row to row."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from shalott.checkers.consumers.consume_case import Case, read_case
from shalott.checkers.consumers.consume_rules import ConsumeRules, QueueRules
from shalott.checkers.consumers.consumer_checkers import consumer_checkers
from shalott.checkers.consumers.consumer_fates import FATES, message_fates
from shalott.checkers.consumers.redeliveries import CLASSES
from shalott.core.history import EMPTY_EVENTS, HISTORY_SCHEMA, History
from tests.checkers.consumers.interpreter import Told, interpret

MS = 1_000_000
SETTLEMENTS = ("unsettled", "acknowledged", "requeued", "rejected", "recovered", "automatic")
MISSING = ("dead-letter-missing", "dead-letter-unsafe")


class Drawn:
    """A random history: not one that a broker would leave, but one with every kind of row."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self.at_ns = 0
        chance = self.rng.random
        self.rules = ConsumeRules(
            queues=(
                QueueRules(
                    name="a",
                    ttl_ms=self.rng.choice((0, 0, 20, 10_000)),
                    max_length=self.rng.choice((0, 0, 3)),
                    dead_letters="d" if chance() < 0.4 else "",
                ),
                QueueRules(name="b", max_length=self.rng.choice((0, 2))),
                QueueRules(name="d"),
            )
        )
        self.channels = ["x", "y", "z"]
        self.tags = dict.fromkeys(self.channels, 0)
        self.values: list[int] = []
        self.silent = self.rng.choice((None, "z"))
        for name in self.channels:
            self.row("consumer", extra={"consumer": name, "channel": name, "prefetch": 0,
                     "no_ack": name == self.silent, "ended": "closed"})  # fmt: skip
        steps = (self.publish, self.deliver, self.deliver, self.settle, self.settle, self.odd)
        for _ in range(self.rng.randrange(5, 60)):
            self.rng.choice(steps)()
        for queue in "abd":
            self.row("dequeue", key=queue, kind="fail", error="empty")

    def row(
        self, f: str, *, key: str = "", kind: str = "ok", took: int | None = 1, **more: Any
    ) -> None:
        self.at_ns += self.rng.randrange(1, 10) * MS
        extra = more.pop("extra", None)
        row = dict.fromkeys(HISTORY_SCHEMA.names) | more
        row |= {"index": len(self.rows), "process": 0, "node": "n1", "f": f, "key": key}
        row |= {"type": kind, "invoke_ns": self.at_ns}
        row["complete_ns"] = None if took is None else self.at_ns + took
        row["extra"] = json.dumps(extra) if extra else None
        self.rows.append(row)

    def publish(self) -> None:
        self.values.append(len(self.values) * 7 + (1 << 41))
        extra: dict[str, Any] = {}
        if self.rng.random() < 0.3:
            extra["to"] = self.rng.sample(["a", "b", "d"], self.rng.randrange(1, 4))
        if self.rng.random() < 0.2:
            extra["ttl_ms"] = self.rng.choice((0, 30, 20_000))
        kind = self.rng.choice(("ok", "ok", "ok", "info", "fail"))
        took = None if kind == "info" else self.rng.randrange(1, 20) * MS
        self.row("enqueue", key=self.rng.choice("ab"), kind=kind, took=took,
                 value=self.values[-1], extra=extra)  # fmt: skip

    def deliver(self) -> None:
        name = self.rng.choice(self.channels)
        self.tags[name] += 1
        extra = {"consumer": name, "channel": name, "tag": self.tags[name]}
        value = self.rng.choice(self.values) if self.values else 5
        queue = self.rng.choice("aabbd")
        if self.rng.random() < 0.15:
            reasons = self.rng.sample([("a", "expired"), ("b", "rejected"), ("d", "maxlen")], 2)
            deaths = [{"queue": q, "reason": r, "count": 1} for q, r in reasons]
            extra |= {"deaths": deaths[: self.rng.randrange(1, 3)]}
        self.row("deliver", key=queue, value=value, took=0, extra=extra)

    def settle(self) -> None:
        name = self.rng.choice(self.channels)
        last = self.tags[name]
        extra: dict[str, Any] = {"channel": name}
        f = self.rng.choice(("ack", "ack", "nack", "reject", "recover"))
        if f == "recover" or (f != "reject" and self.rng.random() < 0.4):
            extra["upto"] = self.rng.randrange(0, last + 1)
            extra |= {} if f == "recover" else {"multiple": True, "tag": 0}
        else:
            extra["tag"] = self.rng.randrange(0, last + 1)
        if f in ("nack", "reject"):
            extra["requeue"] = self.rng.random() < 0.5
        kind = self.rng.choice(("ok", "ok", "info", "fail"))
        self.row(f, key="", kind=kind, took=None if kind == "info" else 1, extra=extra)

    def odd(self) -> None:
        chance = self.rng.random()
        if chance < 0.4 and self.values:
            self.row("dequeue", key=self.rng.choice("abd"), value=self.rng.choice(self.values))
        elif chance < 0.6:
            kind = self.rng.choice(("ok", "info", "fail"))
            f = self.rng.choice(("delete-queue", "delete-queue", "purge-queue"))
            self.row(f, key=self.rng.choice("abd"), kind=kind)
        elif chance < 0.8:
            extra = {"consumer": "x", "channel": "x", "tag": self.tags["x"] + 1}
            self.tags["x"] += 1
            self.row("deliver", key="a", took=0, error="corrupted", extra=extra)

    def history(self) -> History:
        end = self.at_ns + 1
        phase = dict.fromkeys(HISTORY_SCHEMA.names)
        phase |= {"index": len(self.rows), "process": -1, "node": "", "f": "phase", "key": ""}
        phase |= {"type": "ok", "invoke_ns": 0, "complete_ns": end}
        phase["extra"] = json.dumps({"phase": "drain"})
        return History(
            ops=pa.Table.from_pylist([*self.rows, phase], HISTORY_SCHEMA), events=EMPTY_EVENTS
        )


def agree(seed: int) -> None:
    drawn = Drawn(seed)
    history = drawn.history()
    told, case = interpret(history, drawn.rules), read_case(history, drawn.rules)
    _same_settlements(told, case)
    _same_fates(told, case)
    result = consumer_checkers(drawn.rules)[0].check(history)
    counts, deliveries = (
        result.counts,
        [each for each in told.deliveries.values() if not each.taken],
    )
    assert sum(counts[f"{name}-count"] for name in FATES) == counts["acknowledged-count"]
    assert sum(counts[f"{name}-delivery-count"] for name in CLASSES) == len(deliveries)
    assert sum(result.detail["fates"].values()) == len(told.fates)


def _same_settlements(told: Told, case: Case) -> None:
    rows = case.rows.deliveries
    assert sorted(told.deliveries) == sorted(rows.index.tolist())
    by = np.append(case.rows.settlements.index, -1)[rows.settled.by]
    for place, index in enumerate(rows.index.tolist()):
        given = told.deliveries[index]
        found = (
            SETTLEMENTS[rows.settled.kind[place]],
            bool(rows.settled.ok[place]),
            int(by[place]),
        )
        assert found == (given.said, given.ok, given.by), index


def _same_fates(told: Told, case: Case) -> None:
    published, fates = case.rows.published, case.once(message_fates)
    for place, code in enumerate(fates.fate.tolist()):
        key = (case.rows.queues[published.queue[place]], int(published.value[place]))
        expected = told.fates.get(key)
        if expected is None:
            assert code == -1
        elif expected == "dead letter":
            assert FATES[code] in MISSING, key
        else:
            assert FATES[code] == expected, key


@pytest.mark.explore
def test_a_hundred_random_histories() -> None:
    for seed in range(100):
        agree(seed)


@pytest.mark.explore
@pytest.mark.parametrize(
    "block",
    [0, *(pytest.param(each, marks=pytest.mark.nightly("one by day")) for each in (1, 2, 3))],
)
def test_thousands_of_random_histories(block: int) -> None:
    for seed in range(1000 + 400 * block, 1200 + 400 * block):
        agree(seed)
