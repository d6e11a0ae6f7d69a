"""What the report's section on consumers reads out of a history, from the smallest histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from shalott.checkers.history.columns import NEVER
from shalott.core.history import History
from shalott.harness.report import consumer_deliveries as outcomes
from shalott.harness.report.consumer_deliveries import (
    Deliveries,
    causes_of,
    dead_letters,
    deliveries_again,
    deliveries_of,
    lanes_of_messages,
)
from shalott.harness.report.consumer_lag import occupancy, passages_of, peaks
from shalott.harness.report.consumer_rows import Rows, read_rows
from shalott.harness.report.consumer_tenures import of_deliveries, packed, tenures_of
from tests.checkers.histories import S, Story, ns

pytestmark = pytest.mark.unit


def read(told: Story) -> tuple[Rows, Deliveries]:
    rows = read_rows(told.history())
    assert rows is not None
    return rows, deliveries_of(rows)


def consuming(*, no_ack: bool = False, ended: str = "lost", until: float | None = 50) -> Story:
    """One consumer on one channel."""
    took = None if until is None else until - 1
    told = Story()
    extra = {"consumer": "c", "channel": "h", "no_ack": no_ack, "prefetch": 0, "ended": ended}
    told.row("channel", 1, took=took, key="", extra={"channel": "h", "ended": ended})
    return told.row("consumer", 1, took=took, extra={**extra, "active_ns": ns(1)})


def given(told: Story, value: int, at: float, tag: int, again: bool = False) -> Story:
    extra = {"consumer": "c", "channel": "h", "tag": tag}
    return told.row("deliver", at, took=0, value=value, redelivered=again, extra=extra)


def says(told: Story, f: str, at: float, *, kind: str = "ok", **extra: object) -> Story:
    return told.row(f, at, kind=kind, extra={"channel": "h", **extra})


def ends(found: Deliveries) -> list[tuple[int, float | None]]:
    """(outcome, when it ended in seconds) of each delivery."""
    return [
        (int(outcome), None if end == NEVER else end / S)
        for outcome, end in zip(found.outcome, found.end_ns, strict=True)
    ]


def test_an_acknowledgement_settles_its_tag_and_no_other() -> None:
    told = consuming()
    for tag in (1, 2, 3):
        given(told, 10 + tag, 1 + tag, tag)
    says(told, "ack", 6, tag=2)
    _, found = read(told)
    assert ends(found) == [(outcomes.ENDED, 50), (outcomes.ACKED, 6), (outcomes.ENDED, 50)]


def test_one_with_multiple_settles_what_is_left_up_to_its_tag() -> None:
    told = consuming()
    for tag in (1, 2, 3, 4):
        given(told, 10 + tag, 1 + tag, tag)
    says(told, "nack", 6, tag=1, requeue=True)
    says(told, "ack", 7, tag=3, multiple=True, upto=3)
    _, found = read(told)
    assert ends(found) == [
        *((outcomes.REQUEUED, 6), (outcomes.ACKED, 7), (outcomes.ACKED, 7), (outcomes.ENDED, 50)),
    ]


def test_other_channels_have_tags_of_their_own() -> None:
    told = consuming()
    given(told, 11, 2, 1)
    told.row("ack", 3, extra={"channel": "another", "tag": 1})
    told.row("ack", 4, extra={"channel": "another", "tag": 9, "multiple": True, "upto": 9})
    _, found = read(told)
    assert ends(found) == [(outcomes.ENDED, 50)]


def test_recover_gives_back_and_reject_does_not() -> None:
    told = consuming(until=None)
    for tag in (1, 2, 3):
        given(told, 10 + tag, 1 + tag, tag)
    says(told, "reject", 5, tag=1, requeue=False)
    says(told, "recover", 6, upto=2)
    _, found = read(told)
    assert ends(found) == [(outcomes.DROPPED, 5), (outcomes.RECOVERED, 6), (outcomes.OPEN, None)]
    assert found.is_last.tolist() == [True, False, False]


def test_without_acknowledgements_a_delivery_is_over_as_it_comes() -> None:
    told = consuming(no_ack=True)
    given(told, 1, 2, 1)
    _, found = read(told)
    assert ends(found) == [(outcomes.NO_ACK, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_occupancy_is_what_painting_every_instant_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    begin = rng.integers(0, 1000, 50)
    end = begin + rng.integers(0, 400, 50)
    end[rng.random(50) < 0.1] = NEVER
    lane = rng.integers(0, 3, 50).astype(np.int32)
    painted = np.zeros((3, 1000))
    for one, first, last in zip(lane, begin, end, strict=True):
        painted[one, first : min(last, 1000)] += 1
    found = occupancy(lane, begin, end, 3, np.linspace(0, 1000, 11))
    assert np.allclose(found, painted.reshape(3, 10, 100).mean(axis=2))
    assert peaks(lane, begin, end, 3).tolist() == painted.max(axis=1).tolist()


def causes(told: Story) -> Mapping[str, tuple[int, int]]:
    rows, found = read(told)
    again = deliveries_again(found, lanes_of_messages(rows, found))
    return {one.words: (one.flagged, one.bare) for one in causes_of(rows.kind, found, again)}


@pytest.mark.parametrize(
    ("f", "kind", "extra", "words"),
    [
        ("nack", "ok", {"tag": 1, "requeue": True}, "nacked or rejected, and requeued"),
        ("reject", "ok", {"tag": 1, "requeue": False}, "refused for good"),
        ("recover", "ok", {"upto": 1}, "recovered"),
        ("ack", "ok", {"tag": 1}, "acknowledged, and the broker had heard it"),
        ("ack", "info", {"tag": 1}, "acknowledged, and it is unknown whether the broker heard it"),
        ("ack", "ok", {"tag": 7}, "while another consumer had it"),
    ],
)
@pytest.mark.parametrize("again", [True, False])
def test_the_cause_is_what_became_of_the_delivery_before(
    f: str, kind: str, extra: Mapping[str, object], words: str, again: bool
) -> None:
    told = consuming(until=None)
    given(told, 5, 2, 1)
    says(told, f, 3, kind=kind, **extra)
    given(told, 5, 4, 2, again=again)
    assert causes(told) == {words: (int(again), int(not again))}


def test_a_lost_connection_is_the_cause_though_its_client_notices_late() -> None:
    told = consuming(ended="lost", until=9)
    given(told, 5, 2, 1)
    given(told, 5, 4, 2, again=True)
    assert causes(told) == {"its connection was lost": (1, 0)}


def test_a_message_of_two_queues_is_two() -> None:
    told = consuming()
    extra = {"consumer": "c", "channel": "h", "tag": 1}
    told.row("deliver", 2, key="q", value=5, extra=extra)
    told.row("deliver", 3, key="r", value=5, extra={**extra, "tag": 2})
    assert causes(told) == {}


# -- passages --------------------------------------------------------------------------------------


def ways(told: Story) -> list[tuple[str, float, float | None, float | None]]:
    """(lane, published, first delivered, consumed) in seconds."""
    rows, found = read(told)
    own = passages_of(rows, found)
    times = (own.published_ns, own.first_ns, own.done_ns)
    told_times = [[None if at == NEVER else at / S for at in one.tolist()] for one in times]
    return sorted(zip(own.lane.words(), *told_times, strict=True), key=str)


def test_a_publish_is_a_message_of_every_queue_that_it_is_routed_to() -> None:
    told = consuming()
    told.row("enqueue", 1, key="exchange/x", value=7, extra={"to": ["q", "r"]})
    told.row("enqueue", 1, value=8)
    told.row("enqueue", 1, value=9, kind="fail")
    given(told, 7, 2, 1)
    says(told, "ack", 3, tag=1)
    told.row("dequeue", 60, key="r", value=7, took=0)
    assert ways(told) == [("q", 1, 2, 3), ("q", 1, None, None), ("r", 1, 60, 60)]


def test_what_is_seen_among_dead_letters_has_left_its_queue() -> None:
    told = consuming()
    told.row("enqueue", 1, value=7)
    deaths = [{"queue": "q", "reason": "expired", "count": 1}]
    told.row("dequeue", 60, key="dead", value=7, took=0, extra={"deaths": deaths})
    told.row("dequeue", 61, key="dead", value=7, took=0, extra={"deaths": deaths})
    assert ways(told) == [("q", 1, None, 60)]
    rows, _ = read(told)
    assert dead_letters(rows) == [("q", "expired", 1)]


def member(
    told: Story, name: str, group: str, tags: Sequence[str] = (), *, broadcast: bool = False
) -> Story:
    extra = {"member": name, "group": group, "tags": list(tags), "broadcast": broadcast}
    return told.row("member", 0, took=60, key=group, extra={**extra, "ended": "closed"})


def assigned(told: Story, name: str, group: str, key: str, at: float, until: float) -> Story:
    extra = {"member": name, "group": group, "why": "committed", "ended": "rebalanced"}
    return told.row("assignment", at, took=until - at, key=key, offset=0, extra=extra)


def listened(
    told: Story, name: str, group: str, value: int, at: float, outcome: str = "success",
    key: str = "t/0", reconsumed: int = 0, kind: str = "ok",
) -> Story:  # fmt: skip
    extra = {"member": name, "group": group, "outcome": outcome, "reconsumed": reconsumed}
    return told.row(
        "deliver", at, took=0.5, key=key, value=value, offset=0, kind=kind,
        redelivered=reconsumed > 0, extra=extra,
    )  # fmt: skip


def test_a_message_is_every_groups_that_wants_it() -> None:
    told = Story()
    member(told, "a", "all")
    member(told, "b", "some", ["red"])
    for name, group in (("a", "all"), ("b", "some")):
        assigned(told, name, group, "t/0", 0, 60)
    told.row("send", 1, key="t/0", value=1, offset=0, extra={"tag": "blue"})
    told.row("send", 2, key="t/0", value=2, offset=1, extra={"tag": "red"})
    told.row("send", 3, key="u/0", value=3, offset=0, extra={"tag": "red"})
    listened(told, "a", "all", 1, 4)
    listened(told, "a", "all", 2, 5, "later")
    for at in (6, 7):
        extra = {"from": 0, "records": [[0, 2]]}
        told.row("poll", at, key="%DLQ%all/0", value=0, extra=extra)
    assert ways(told) == [("all", 1, 4, 4.5), ("all", 2, 5, 6), ("some", 2, None, None)]


def test_causes_in_a_group_are_what_its_listener_said() -> None:
    told = member(Story(), "a", "g")
    assigned(told, "a", "g", "t/0", 0, 60)
    listened(told, "a", "g", 1, 1, "later")
    listened(told, "a", "g", 1, 2, key="%RETRY%g/0", reconsumed=1)
    listened(told, "a", "g", 1, 3)
    listened(told, "a", "g", 2, 1, "dropped")
    listened(told, "a", "g", 2, 1.2)
    assert causes(told) == {
        "sent back for a retry": (1, 0),
        "consumed, but its offset was not kept": (0, 1),
        "while another member was at it": (0, 1),
    }


def test_a_broadcast_is_each_members_own() -> None:
    told = member(member(Story(), "a", "g", broadcast=True), "b", "g", broadcast=True)
    for name in "ab":
        assigned(told, name, "g", "t/0", 0, 60)
        listened(told, name, "g", 1, 2)
    assert causes(told) == {}
    listened(told, "b", "g", 1, 4)
    assert list(causes(told).values()) == [(0, 1)]


# -- tenures ---------------------------------------------------------------------------------------


def test_two_members_that_have_one_queue_at_once_stand_in_two_rows() -> None:
    told = member(member(Story(), "a", "g"), "b", "g")
    assigned(told, "a", "g", "t/10", 0, 30)
    assigned(told, "b", "g", "t/10", 30, 50)
    assigned(told, "a", "g", "t/2", 0, 30)
    assigned(told, "b", "g", "t/2", 20, 50)
    listened(told, "a", "g", 1, 2, key="t/2")
    listened(told, "b", "g", 1, 31, key="t/10")
    rows, found = read(told)
    tenures = tenures_of(rows, 60 * S)
    placed = packed("group", tenures, range(len(tenures)), 1e9)
    told_rows = {(tenures[one.tenure].holder, tenures[one.tenure].queue): one.row for one in placed}
    assert told_rows == {("a", "t/2"): 0, ("b", "t/2"): 1, ("a", "t/10"): 2, ("b", "t/10"): 2}
    which = of_deliveries("group", tenures, found)
    assert [(tenures[p].holder, tenures[p].queue) for p in which] == [("a", "t/2"), ("b", "t/10")]


def test_a_delivery_belongs_to_the_tenure_that_had_begun() -> None:
    told = member(Story(), "a", "g")
    for at in (0, 10, 20):
        assigned(told, "a", "g", "t/0", at, at + 5)
        listened(told, "a", "g", at, at + 1)
    rows, found = read(told)
    tenures = tenures_of(rows, 60 * S)
    which = of_deliveries("group", tenures, found)
    assert [tenures[place].begin_ns / S for place in which] == [0, 10, 20]


def test_rows_that_are_not_by_the_contract_make_no_section() -> None:
    told = consuming()
    told.row("deliver", 2, value=1, extra={"consumer": "c", "channel": "h", "tag": "first"})
    assert read_rows(told.history()) is None


def test_a_run_of_queues_has_no_consumers() -> None:
    history: History = Story().enqueue(1, 1).dequeue(1, 2).history()
    assert read_rows(history) is None
