"""Generators of the workload consume: who subscribes when, and how a run is brought to its end."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.core.consumer_generator import (
    Churn,
    ConsumeOut,
    ConsumerMix,
    DeclareQueues,
    Fates,
    Route,
    Slot,
    StopConsumers,
    consumer_mix,
)
from shalott.core.generator import Completed, Context, Generator, Pending, Scheduled
from shalott.core.op import Invocation, OpType
from shalott.core.subscription import (
    PATIENCE_MS,
    Habits,
    Settling,
    Subscription,
    subscription_of,
)

pytestmark = pytest.mark.unit

S = 1_000_000_000
SLOTS = (Slot("a", 0, 0), Slot("a", 1, 1), Slot("b", 0, 0, exclusive=True))
QUIET = Churn()


def mix(churn: Churn = QUIET, **more: Any) -> ConsumerMix:
    given: dict[str, Any] = {
        "slots": SLOTS,
        "threads": 2,
        "routes": (Route("a", 1.0), Route("b", 1.0)),
        "fates": Fates(),
        "habits": Habits(),
        "seed": 1,
    }
    return consumer_mix(**{**given, "churn": churn, **more})


class Walk:
    """Asks as workers do whose operations all end at once."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.now_ns = 0

    def ask(self, process: int, *holds: str) -> Invocation | None:
        context = Context(self.now_ns, process, "n1", holds=holds)
        answer, self.generator = self.generator.next(context)
        return answer.invocation if isinstance(answer, Scheduled) else None

    def end(
        self, invocation: Invocation, kind: OpType = "ok", error: str = "", process: int = 0
    ) -> None:
        done = Completed(self.now_ns, process, "n1", invocation, kind, error or None)
        self.generator = self.generator.update(done)

    def many(self, count: int, *holds: str) -> list[Invocation]:
        return [one for _ in range(count) if (one := self.ask(0, *holds)) is not None]


def test_each_thread_subscribes_its_own_slots_first_and_publishes_then() -> None:
    walk = Walk(mix())
    first, second, third = walk.ask(0), walk.ask(0, "a#0"), walk.ask(0, "a#0", "b#0")
    assert first is not None and second is not None and third is not None
    assert [(one.f, one.key) for one in (first, second)] == [("subscribe", "a"), ("subscribe", "b")]
    assert subscription_of(second.extra).exclusive
    assert third.f == "enqueue"
    other = walk.ask(1)
    assert other is not None and subscription_of(other.extra).slot == 1
    successor = walk.ask(2, "b#0")  # process 2 is thread 0, and its client does not hold a#0
    assert successor is not None and successor.f == "enqueue"  # not at once again
    walk.now_ns = S
    successor = walk.ask(2, "b#0")
    assert successor is not None and (successor.f, successor.key) == ("subscribe", "a")


def test_values_are_unique_and_the_seed_decides_everything() -> None:
    walk, again, other = Walk(mix()), Walk(mix()), Walk(mix(seed=2))
    asked = [one.many(50, "a#0", "b#0") for one in (walk, again, other)]
    assert asked[0] == asked[1] != asked[2]
    values = [one.value for one in asked[0]]
    assert len(set(values)) == 50 and None not in values
    assert set(values).isdisjoint(one.value for one in asked[2])


def test_whoever_was_ended_on_purpose_rests() -> None:
    walk = Walk(mix(Churn(cancel=0.2, away_ms=1000)))
    asked = walk.many(200, "a#0", "b#0")
    cancels = [one for one in asked if one.f == "unsubscribe"]
    assert {one.key for one in cancels} == {"a", "b"}
    assert cancels[0].extra == {"slot": 0}
    assert 20 < len(cancels) < 60
    assert {one.f for one in walk.many(20)} <= {"enqueue"}  # both rest
    walk.now_ns = 2 * S
    assert [one.f for one in walk.many(2)] == ["subscribe", "subscribe"]


def test_connections_and_channels_are_ended_too_but_not_what_is_not_there() -> None:
    churn = Churn(close=0.1, hang_up=0.1)
    fs = {one.f for one in Walk(mix(churn)).many(200, "a#0")}
    assert {"close-channel", "hang-up"} <= fs
    walk = Walk(mix(churn))
    walk.many(2)  # both subscriptions are tried
    assert {one.f for one in walk.many(100)} == {"enqueue"}


def test_a_deleted_queue_is_declared_again_before_anybody_consumes_it() -> None:
    walk = Walk(mix(Churn(delete=0.2, away_ms=100), fates=Fates(deletable=("b",), fading=("b",))))
    asked = walk.many(100, "a#0", "b#0")
    (delete,) = [one for one in asked if one.f == "delete-queue"]
    assert delete.key == "b"
    walk.end(delete)
    assert all(one.key != "b" for one in walk.many(50, "a#0") if one.f != "enqueue")
    walk.now_ns = S // 2
    declare = walk.ask(0, "a#0")
    assert declare is not None and (declare.f, declare.key) == ("declare-queue", "b")
    walk.end(declare)
    walk.now_ns = S
    subscribe = walk.ask(0, "a#0")
    assert subscribe is not None and (subscribe.f, subscribe.key) == ("subscribe", "b")


def test_a_queue_that_expired_is_missed_by_who_subscribes() -> None:
    walk = Walk(mix(fates=Fates(fading=("b",))))
    subscribe = walk.ask(0, "a#0")
    assert subscribe is not None and subscribe.key == "b"
    walk.end(subscribe, "fail", "channel closed: 404 NOT_FOUND - no queue 'b' in vhost '/'")
    declare = walk.ask(0, "a#0")
    assert declare is not None and (declare.f, declare.key) == ("declare-queue", "b")
    walk.end(declare, "info")
    assert all(one.f == "enqueue" for one in walk.many(10, "a#0"))
    walk.now_ns = 3 * S
    again = walk.ask(0, "a#0")
    assert again is not None and again.f == "declare-queue"


def test_a_queue_that_may_be_full_is_left_alone_for_a_while() -> None:
    walk = Walk(mix())
    publish = next(one for one in walk.many(20, "a#0", "b#0") if one.key == "a")
    walk.end(publish, "info", "nack")
    assert {one.key for one in walk.many(30, "a#0", "b#0")} == {"b"}
    walk.now_ns = S
    assert {one.key for one in walk.many(30, "a#0", "b#0")} == {"a", "b"}


def test_messages_say_where_they_go_and_what_they_have() -> None:
    routes = (
        Route("exchange/x", 1.0, to=("a", "b"), routing_key="k"),
        Route("a", 1.0, ttls_ms=(0, 100), priorities=2),
    )
    asked = Walk(mix(routes=routes)).many(200, "a#0", "b#0")
    copied = [one for one in asked if one.key == "exchange/x"]
    assert copied and all(one.extra == {"to": ["a", "b"], "routing_key": "k"} for one in copied)
    plain = [one.extra or {} for one in asked if one.key == "a"]
    assert {one.get("ttl_ms") for one in plain} == {None, 100}
    assert {one["priority"] for one in plain} == {0, 1, 2}


def test_consuming_out_ends_when_every_queue_was_found_empty() -> None:
    walk = Walk(ConsumeOut(SLOTS, 2))
    subscribe = walk.ask(0, "b#0")
    assert subscribe is not None and (subscribe.f, subscribe.key) == ("subscribe", "a")
    assert subscription_of(subscribe.extra).settling == Settling()
    look = walk.ask(0, "a#0", "b#0")
    assert look is not None and (look.f, look.key) == ("look", "b")
    walk.end(look, "fail", "3 ready, 0 unsettled")
    walk.end(look, "ok")
    look = walk.ask(0, "a#0")
    assert look is not None
    walk.end(look, "ok")
    assert walk.ask(0) is None  # the other thread still has one
    other = walk.ask(1, "a#1")
    assert other is not None and other.f == "look"
    walk.end(other, "ok", process=1)
    assert walk.generator.next(Context(0, 0, "n1"))[0] is None


@pytest.mark.parametrize(
    "error", ["channel closed: 404 NOT_FOUND - no queue 'a'", "403 ACCESS_REFUSED - exclusive"]
)
def test_nobody_waits_for_a_queue_that_is_gone_or_somebody_elses(error: str) -> None:
    walk = Walk(ConsumeOut(SLOTS[:1], 2))
    subscribe = walk.ask(0)
    assert subscribe is not None
    walk.end(subscribe, "fail", error)
    assert walk.generator.next(Context(0, 0, "n1"))[0] is None


def test_all_consumers_are_stopped() -> None:
    walk = Walk(StopConsumers((0, 1), 2))
    stop = walk.ask(0, "a#0")
    assert stop == Invocation(f="unsubscribe")
    answer, walk.generator = walk.generator.next(Context(0, 0, "n1"))
    assert answer == Pending()
    answer, walk.generator = walk.generator.next(Context(0, 3, "n1"))
    assert answer is None


def test_queues_are_declared_until_each_is_there() -> None:
    walk = Walk(DeclareQueues(("a", "b")))
    first, second = walk.ask(0), walk.ask(1)
    assert first is not None and second is not None
    assert [first.key, second.key] == ["a", "b"]
    assert walk.ask(0) is None
    walk.end(first)
    walk.end(second, "fail", "no quorum")
    again = walk.ask(0)
    assert again is not None and again.key == "b"
    walk.end(again)
    assert walk.generator.next(Context(0, 0, "n1"))[0] is None


def test_shares_of_verdicts_are_as_asked_for() -> None:
    settling = Settling(
        key=5, nack=0.2, reject=0.1, requeue=0.5, never=0.1, recover=0.05, after_ms=10
    )
    verdicts = [settling.verdict(number) for number in range(4000)]
    said = [verdict.said for verdict in verdicts]
    assert said.count("nack") == pytest.approx(800, rel=0.15)
    assert said.count("reject") == pytest.approx(400, rel=0.2)
    assert said.count("never") == pytest.approx(400, rel=0.2)
    assert said.count("recover") == pytest.approx(200, rel=0.3)
    again = sum(v.requeue for v in verdicts if v.said in ("nack", "reject"))
    assert again == pytest.approx(600, rel=0.15)
    assert {verdict.after_ms for verdict in verdicts} == {10}


def test_batches_are_settled_by_their_last_and_the_others_wait_longer() -> None:
    verdicts = [Settling(batch=3).verdict(number) for number in range(6)]
    assert [v.after_ms for v in verdicts] == [PATIENCE_MS, PATIENCE_MS, 0] * 2
    assert all(v.multiple for v in verdicts)


def test_shuffled_deliveries_are_settled_out_of_order() -> None:
    after = [Settling(shuffled=True, after_ms=50).verdict(number).after_ms for number in range(50)]
    assert after != sorted(after) and min(after) >= 0 and max(after) <= 100


def test_habits_draw_every_kind_of_consumer_and_say_it_in_an_operation() -> None:
    habits = Habits(
        per_channel=0.5,
        no_ack=0.2,
        cancel_on_failover=0.5,
        with_priority=0.5,
        join=0.5,
        batches=0.5,
        shuffled=0.5,
        slowest_ms=100,
    )
    drawn = [habits.draw(key, 0, exclusive=False) for key in range(300)]
    assert {one.prefetch for one in drawn} == {0, 1, 3, 10}
    for name in ("per_channel", "no_ack", "cancel_on_failover", "join"):
        assert {getattr(one, name) for one in drawn} == {False, True}, name
    assert {one.priority for one in drawn} == {0, 1, 2, 3}
    assert all(one.settling.batch <= (one.prefetch or 99) for one in drawn)
    assert max(one.settling.batch for one in drawn) == 5
    assert not [one for one in drawn if one.per_channel and not one.prefetch]
    assert all(subscription_of(one.extra()) == one for one in drawn)
    assert subscription_of(None) == Subscription()
