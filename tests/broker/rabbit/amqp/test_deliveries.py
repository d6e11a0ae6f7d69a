"""Delivery tags: what may be settled, what is stale, and what queues hear of it."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.amqp.deliveries import Deliveries, Delivery, by_process
from shalott.broker.rabbit.amqp.errors import AmqpError
from shalott.broker.rabbit.processes.messages import Pid

pytestmark = pytest.mark.unit

A, B = Pid("n1", 1, 1), Pid("n2", 1, 1)


def given_out(*processes: Pid) -> Deliveries:
    deliveries = Deliveries()
    for ack_id, process in enumerate(processes, 100):
        deliveries.add(deliveries.next_tag(), Delivery(process, ack_id, counted=True))
    return deliveries


def ack_ids(deliveries: list[Delivery]) -> list[int]:
    return [delivery.ack_id for delivery in deliveries]


def test_one_tag_settles_one_delivery() -> None:
    deliveries = given_out(A, A, A)
    settled = deliveries.settle(2, multiple=False)
    assert ack_ids(settled) == [101]
    assert (len(deliveries), deliveries.counted) == (2, 3)
    deliveries.commit(settled)
    assert (len(deliveries), deliveries.counted) == (2, 2)


def test_rolled_back_deliveries_are_unsettled_in_their_order() -> None:
    deliveries = given_out(A, B, A)
    deliveries.settle(2, multiple=False)
    deliveries.settle(1, multiple=False)
    deliveries.process_down(B)
    deliveries.roll_back()
    assert (len(deliveries), deliveries.counted) == (3, 2)
    assert by_process(deliveries.settle(3, multiple=True)) == {A: (100, 102)}


def test_multiple_settles_everything_up_to_the_tag() -> None:
    deliveries = given_out(A, B, A, B)
    deliveries.settle(2, multiple=False)
    settled = deliveries.settle(3, multiple=True)
    assert by_process(settled) == {A: (100, 102)}
    assert len(deliveries) == 1


def test_zero_with_multiple_is_everything_even_of_nothing() -> None:
    deliveries = given_out(A, B)
    assert by_process(deliveries.settle(0, multiple=True)) == {A: (100,), B: (101,)}
    assert deliveries.settle(0, multiple=True) == []


@pytest.mark.parametrize("multiple", [True, False])
@pytest.mark.parametrize("tag", [-1, 4, 99])
def test_unknown_tag_is_406(tag: int, multiple: bool) -> None:
    with pytest.raises(AmqpError, match=f"406 .*unknown delivery tag {tag}"):
        given_out(A, A, A).settle(tag, multiple=multiple)


def test_zero_without_multiple_and_settled_twice_are_406() -> None:
    deliveries = given_out(A)
    with pytest.raises(AmqpError, match="unknown delivery tag 0"):
        deliveries.settle(0, multiple=False)
    deliveries.settle(1, multiple=False)
    with pytest.raises(AmqpError, match="unknown delivery tag 1"):
        deliveries.settle(1, multiple=False)


def test_stale_tags_settle_silently_once() -> None:
    deliveries = given_out(A, B, A)
    deliveries.process_down(A)
    assert deliveries.counted == 1
    assert by_process(deliveries.settle(1, multiple=False)) == {}
    settled = deliveries.settle(3, multiple=True)
    assert by_process(settled) == {B: (101,)}
    deliveries.commit(settled)
    assert deliveries.counted == 0
    with pytest.raises(AmqpError):
        deliveries.settle(1, multiple=False)


def test_tags_are_never_reused() -> None:
    deliveries = given_out(A)
    deliveries.settle_all()
    assert deliveries.next_tag() == 2
