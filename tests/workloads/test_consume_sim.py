"""The workload consume, simulated: each feature is used, and the rows keep their contract."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from shalott.core.history import History
from shalott.core.plan import Plan
from shalott.harness.run.simulate import SimOutcome, simulate
from shalott.harness.scenarios.swarm import USUAL, Subject, draw_plan

pytestmark = pytest.mark.sim

Row = dict[str, Any]

CALM: Mapping[str, tuple[Any, ...]] = {
    "schedule": (),
    "nodes": (3,),
    "time_limit_ms": (6000,),
    "queues": (2,),
    "kind-1": ("plain",),
    "kind-2": ("plain",),
    "consumers": (2,),
    "clients_a_node": (1,),
    **dict.fromkeys(("fanout", "unrouted", "unroutable", "patterns"), (0.0,)),
    **dict.fromkeys(("cancels", "closes", "hang_ups", "rests"), (0.0,)),
    **dict.fromkeys(("per_channel", "no_ack", "cancel_on_failover"), (0.0,)),
    **dict.fromkeys(("consumer_priorities", "shared_channels", "batches", "shuffled"), (0.0,)),
    **dict.fromkeys(("nacks", "rejects", "never", "recovers"), (0.0,)),
    "prefetch": ("window",),
    "settle_ms": (50,),
    "away_ms": (500,),
}

# One consumer, which is often away.
AWAY: Mapping[str, tuple[Any, ...]] = {
    "consumers": (1,),
    "cancels": (0.1,),
    "away_ms": (4000,),
    "time_limit_ms": (12_000,),
}


def plan_of(seed: int = 1, **knobs: Any) -> Plan:
    swarm = USUAL.but(**{**CALM, **knobs})
    return draw_plan(Subject(system="mirrored", workload="consume", swarm=swarm), seed)


@dataclass(frozen=True)
class Told:
    """What a history says, decoded."""

    rows: list[Row] = field(default_factory=list)

    @classmethod
    def of(cls, history: History) -> Told:
        rows = [
            {**row, "extra": json.loads(row["extra"] or "{}")}
            for row in history.ops.to_pylist()
            if row["process"] >= 0
        ]
        return cls(rows)

    def of_f(self, *fs: str, key: str = "") -> list[Row]:
        return [row for row in self.rows if row["f"] in fs and (not key or row["key"] == key)]

    def ended(self, f: str) -> Counter[str]:
        return Counter(row["extra"]["ended"] for row in self.of_f(f))


def told_of(outcome: SimOutcome) -> Told:
    assert outcome.error is None, outcome.error
    assert outcome.history is not None
    return Told.of(outcome.history)


def run(**knobs: Any) -> Told:
    outcome = simulate(plan_of(**knobs))
    assert outcome.valid is True, [
        (r.checker, r.valid, r.notes, r.anomalies) for r in outcome.results
    ]
    return told_of(outcome)


def some(rows: list[Row], at_least: int = 3) -> None:
    assert len(rows) >= at_least, len(rows)


def test_publishers_and_consumers_that_stay() -> None:
    told = run()
    assert told.ended("consumer") == {"cancelled": 4}
    acks = told.of_f("ack")
    some(acks, 50)
    assert {row["type"] for row in acks} == {"ok"}
    published = {row["value"] for row in told.of_f("enqueue")}
    assert {row["value"] for row in told.of_f("deliver")} == published
    assert not [row for row in told.of_f("deliver") if row["redelivered"]]
    assert {row["key"] for row in told.of_f("deliver")} == {"shalott.1", "shalott.2"}


def test_a_queue_that_rests_has_no_consumer_and_fills() -> None:
    knobs = {"queues": (1,), "rests": (0.03,), "rest_ms": (2000,), "time_limit_ms": (12_000,)}
    told = run(**knobs)
    spans = sorted((row["invoke_ns"], row["complete_ns"]) for row in told.of_f("consumer"))
    sent = [row["complete_ns"] for row in told.of_f("enqueue")]
    until, rested = spans[0][1], 0
    for begin, end in spans[1:]:
        if begin - until > 500_000_000 and any(until < at < begin for at in sent):
            rested += 1
        until = max(until, end)
    assert rested >= 2
    assert set(told.ended("consumer")) == {"cancelled"}


def test_queues_are_spread_over_the_nodes() -> None:
    outcome = simulate(plan_of(**{"time_limit_ms": (2000,), "queues": (3,), "kind-3": ("ttl",)}))
    assert outcome.history is not None
    masters = [
        (row["group"], row["node"])
        for row in outcome.history.events.to_pylist()
        if row["kind"] == "role" and row["role"] == "master"
    ]
    assert [node for _, node in masters[:3]] == ["n1", "n2", "n3"], masters


def test_what_a_fanout_exchange_copies_comes_out_of_every_queue() -> None:
    told = run(fanout=(0.3,))
    copied = [row for row in told.of_f("enqueue") if row["key"] == "exchange/shalott.fanout"]
    some(copied, 10)
    for row in copied:
        assert row["extra"]["to"] == ["shalott.1", "shalott.2"]
    by_queue = {
        queue: {row["value"] for row in told.of_f("deliver", key=queue)}
        for queue in ("shalott.1", "shalott.2")
    }
    values = {row["value"] for row in copied}
    assert values <= by_queue["shalott.1"] & by_queue["shalott.2"]


def test_what_patterns_and_headers_route_comes_out_where_it_should() -> None:
    told = run(patterns=(0.5,))
    deliveries = {(row["key"], row["value"]) for row in told.of_f("deliver", "dequeue")}
    for exchange in ("shalott.topic", "shalott.headers"):
        sent = [row for row in told.of_f("enqueue", key=f"exchange/{exchange}") if row["extra"]]
        some([row for row in sent if row["type"] == "ok" and row["extra"]["to"]])
        for row in sent:
            came = sorted(queue for queue, value in deliveries if value == row["value"])
            assert came == (sorted(row["extra"]["to"]) if row["type"] == "ok" else [])


def test_a_purged_queue_is_empty_afterwards() -> None:
    told = run(**{"kind-1": ("purged",), "purges": (0.2,), "rests": (0.03,), "rest_ms": (4000,)})
    purges = [row for row in told.of_f("purge-queue") if row["type"] == "ok"]
    some(purges, 2)
    came = {row["value"] for row in told.of_f("deliver", "dequeue")}
    sent = [row for row in told.of_f("enqueue", key="shalott.1") if row["type"] == "ok"]
    gone = [row for row in sent if row["value"] not in came]
    some(gone)
    assert all(row["invoke_ns"] < purges[-1]["complete_ns"] for row in gone)


def test_what_has_no_route_lies_in_the_alternate_queue_or_comes_back() -> None:
    told = run(unrouted=(0.2,), unroutable=(0.1,))
    sent = {
        row["value"]
        for row in told.of_f("enqueue")
        if row["extra"].get("to") == ["shalott.unrouted"]
    }
    found = {row["value"] for row in told.of_f("dequeue", key="shalott.unrouted")} - {None}
    assert sent == found and len(sent) >= 5
    silent = told.of_f("enqueue", key="exchange/shalott.silent")
    some(silent)
    assert {(row["type"], row["error"]) for row in silent} == {("fail", "returned: 312 NO_ROUTE")}


@pytest.mark.parametrize(
    ("knobs", "ended"),
    [
        ({"cancels": (0.1,)}, "cancelled"),
        ({"closes": (0.1,)}, "channel-closed"),
        ({"hang_ups": (0.1,)}, "hung-up"),
        ({"queues": (1,), "kind-1": ("recreated",), "deletes": (0.1,)}, "cancelled-by-server"),
        ({"queues": (1,), "kind-1": ("exclusive",)}, "refused"),
    ],
)
def test_consumers_end_in_every_way_and_are_subscribed_again(
    knobs: Mapping[str, Any], ended: str
) -> None:
    told = run(**knobs)
    assert told.ended("consumer")[ended] >= 3
    some(told.of_f("subscribe"), told.ended("consumer")[ended])


def test_unacknowledged_messages_of_who_hangs_up_are_delivered_again_flagged() -> None:
    told = run(hang_ups=(0.1,), settle_ms=(600,))
    again = [row for row in told.of_f("deliver") if row["redelivered"]]
    some(again)


@pytest.mark.parametrize(
    ("knobs", "uses"),
    [
        ({"batches": (1.0,)}, lambda told: [r for r in told.of_f("ack") if "upto" in r["extra"]]),
        ({"nacks": (0.15,), "requeued": (1.0,)}, lambda told: told.of_f("nack")),
        ({"rejects": (0.05,)}, lambda told: told.of_f("reject")),
        ({"recovers": (0.01,), "time_limit_ms": (20_000,)}, lambda told: told.of_f("recover")),
        (
            {"per_channel": (1.0,), "shared_channels": (0.8,)},
            lambda told: [r for r in told.of_f("consumer") if r["extra"]["global"]],
        ),
        (
            {"no_ack": (0.5,), "cancels": (0.03,), "time_limit_ms": (15_000,)},
            lambda told: [r for r in told.of_f("consumer") if r["extra"]["no_ack"]],
        ),
        (
            {"consumer_priorities": (0.5,), "cancels": (0.03,)},
            lambda told: [r for r in told.of_f("consumer") if r["extra"]["priority"]],
        ),
        (
            {"cancel_on_failover": (1.0,)},
            lambda told: [r for r in told.of_f("consumer") if r["extra"]["cancel_on_failover"]],
        ),
        (
            {"queues": (1,), "kind-1": ("expires",), "hang_ups": (0.05,), "away_ms": (4000,),
             "time_limit_ms": (30_000,)},
            lambda told: told.of_f("declare-queue")[2:],
        ),
        (
            {"queues": (1,), "kind-1": ("reject",), "max_length": (3,), **AWAY},
            lambda told: [r for r in told.of_f("enqueue") if r["type"] == "info"],
        ),
    ],
)  # fmt: skip
def test_it_is_used(knobs: Mapping[str, Any], uses: Callable[[Told], list[Row]]) -> None:
    some(uses(run(**knobs)), 2)


def test_priorities_of_messages_are_sent_and_delivered() -> None:
    told = run(**{"queues": (1,), "kind-1": ("priorities",), "max_priority": (3,)})
    sent = {row["value"]: row["extra"]["priority"] for row in told.of_f("enqueue")}
    assert set(sent.values()) == {0, 1, 2, 3}
    for row in told.of_f("deliver"):
        assert row["extra"]["priority"] == sent[row["value"]]


@pytest.mark.parametrize(
    ("kind", "reason", "knobs"),
    [
        ("ttl+dead-letters", "expired", {"ttl_ms": (200,)}),
        ("message-ttl+dead-letters", "expired", {"ttl_ms": (200,)}),
        ("length+dead-letters", "maxlen", {"max_length": (3,)}),
        ("dead-letters", "rejected", {"rejects": (0.05,), "requeued": (0.0,)}),
    ],
)
def test_dead_letters_lie_in_their_queue_with_their_deaths(
    kind: str, reason: str, knobs: Mapping[str, Any]
) -> None:
    told = run(**{"queues": (1,), "kind-1": (kind,), **AWAY, **knobs})
    dead = [row for row in told.of_f("dequeue", key="shalott.1.dead") if row["type"] == "ok"]
    some(dead)
    deaths = [row["extra"]["deaths"][0] for row in dead]
    assert {(one["queue"], one["reason"]) for one in deaths} == {("shalott.1", reason)}


def test_one_consumer_is_active_where_one_is_promised() -> None:
    told = run(**{"queues": (1,), "kind-1": ("single-active",), "consumers": (3,)})
    assert len({row["extra"]["consumer"] for row in told.of_f("deliver")}) == 1
    assert len(told.of_f("consumer")) == 3


BUSY: Mapping[str, Any] = {
    "schedule": None, "faults": {"kill": 1.0}, "fault_share": 1.0, "time_limit_ms": (15_000,),
    "queues": (3,), "kind-1": ("dead-letters",), "kind-2": ("recreated",),
    "kind-3": ("single-active",), "fanout": (0.3,), "cancels": (0.03,), "closes": (0.03,),
    "hang_ups": (0.02,), "per_channel": (0.3,), "cancel_on_failover": (0.5,),
    "shared_channels": (0.8,), "batches": (0.3,), "shuffled": (0.3,), "nacks": (0.15,),
    "rejects": (0.05,), "never": (0.02,), "recovers": (0.01,), "prefetch": ("mixed",),
    "settle_ms": (200,),
}  # fmt: skip


def busy_plan(seed: int) -> Plan:
    return plan_of(seed, **BUSY)


@cache
def busy(seed: int) -> SimOutcome:
    return simulate(busy_plan(seed))


def test_one_plan_is_one_run() -> None:
    again = simulate(busy_plan(1))
    assert again.digest == busy(1).digest
    assert again.history is not None and busy(1).history is not None
    assert again.history.ops.equals(busy(1).history.ops)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_rows_keep_their_contract_while_masters_die(seed: int) -> None:
    told = told_of(busy(seed))
    channels = {row["extra"]["channel"]: row for row in told.of_f("channel")}
    consumers = {row["extra"]["consumer"]: row for row in told.of_f("consumer")}
    assert len(channels) == len(told.of_f("channel"))
    assert len(consumers) == len(told.of_f("consumer"))
    assert {"ended"} <= set().union(*(row["extra"] for row in channels.values()))
    for row in consumers.values():
        extra, channel = row["extra"], channels[row["extra"]["channel"]]
        assert {"active_ns", "leaving_ns", "ended"} <= set(extra)
        assert channel["invoke_ns"] < row["invoke_ns"] < row["complete_ns"] < channel["complete_ns"]
        assert (extra["ended"] == "refused") == (row["type"] == "fail")
        assert (extra["active_ns"] is None) == (row["type"] != "ok")
    given: dict[tuple[str, int], Row] = {}
    for row in told.of_f("deliver"):
        extra = row["extra"]
        consumer, channel = consumers[extra["consumer"]], channels[extra["channel"]]
        assert consumer["key"] == row["key"] and consumer["extra"]["channel"] == extra["channel"]
        assert consumer["process"] == row["process"] == channel["process"]
        assert consumer["invoke_ns"] < row["invoke_ns"] < channel["complete_ns"]
        assert given.setdefault((extra["channel"], extra["tag"]), row) is row
    settled = check_settlements(told, given, channels)
    assert len(settled) > 100


def check_settlements(
    told: Told, given: Mapping[tuple[str, int], Row], channels: Mapping[str, Row]
) -> dict[tuple[str, int], Row]:
    """Each settles what was delivered before and was not settled; returns what was settled."""
    settled: dict[tuple[str, int], Row] = {}
    rows = told.of_f("ack", "nack", "reject", "recover")
    for row in sorted(rows, key=lambda row: int(row["invoke_ns"])):
        extra = row["extra"]
        channel = extra["channel"]
        assert channels[channel]["invoke_ns"] < row["invoke_ns"] < channels[channel]["complete_ns"]
        assert row["type"] in ("ok", "info") and row["complete_ns"] is not None
        if row["f"] != "recover":
            own = given[channel, extra["tag"]]
            assert own["invoke_ns"] < row["invoke_ns"] and own["key"] == row["key"]
            assert row["value"] == (None if "upto" in extra else own["value"])
            assert ("requeue" in extra) == (row["f"] != "ack")
        first = 1 if "upto" in extra else extra["tag"]
        for tag in range(first, extra.get("upto", extra.get("tag")) + 1):
            if (channel, tag) in given and (channel, tag) not in settled:
                settled[channel, tag] = row
            else:
                assert "upto" in extra, "settled twice"
    return settled


def test_a_master_that_dies_cancels_who_asked_for_it() -> None:
    ended: Counter[str] = Counter()
    for seed in (1, 2, 3):
        ended += told_of(busy(seed)).ended("consumer")
    assert {"cancelled", "cancelled-by-server", "channel-closed", "hung-up", "lost"} <= set(ended)
