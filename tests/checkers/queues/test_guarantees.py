"""L5, L6 and L7: losses that clients bring on themselves. L9: duplicates after a failover."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.checkers.queues.total_queue import TotalQueue
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit


def story(lost: range, *, count: int = 40) -> Story:
    """A message a second from 0 s; those in ``lost`` never come out. Drained at the end."""
    told = Story()
    for value in range(count):
        told.enqueue(value, value)
        if value not in lost:
            told.dequeue(value, value + 0.5, process=1)
    return told.phases().empty(64.5)


def loss(told: Story, guarantees: ClientGuarantees) -> dict[str, Any]:
    """The story of the only run of losses."""
    result = TotalQueue(guarantees=guarantees).check(told.history())
    assert result.valid is False
    (found,) = result.detail["loss"]["stories"]
    assert result.detail["loss"]["by-cause"] == {found["cause"]: found["length"]}
    return dict(found)


def unanswered(told: Story, at: float, took: float | None = 5.0, key: str = "q") -> Story:
    return told.row("dequeue", at, kind="info", took=took, process=2, node="n3", key=key)


class TestL5:
    guarantees = ClientGuarantees(manual_acks=False)

    def test_a_dequeue_that_was_never_answered_took_it(self) -> None:
        told = unanswered(story(range(20, 21)), 20.5)
        found = loss(told, self.guarantees)
        assert found["cause"] == "L5"
        assert found["why"] == (
            "a dequeue without acknowledgement ended without an answer, "
            "the first of them through n3 at 20.5 s"
        )
        row = told.history().ops.to_pylist()[found["evidence"]["operation"]]
        assert (row["f"], row["node"], row["type"]) == ("dequeue", "n3", "info")

    def test_also_one_that_never_ended(self) -> None:
        assert loss(unanswered(story(range(20, 21)), 20.5, None), self.guarantees)["cause"] == "L5"

    def test_two_lost_messages_need_two_dequeues(self) -> None:
        told = unanswered(story(range(20, 22)), 20.5)
        assert loss(told, self.guarantees)["cause"] == "unexplained"
        assert loss(unanswered(told, 22), self.guarantees)["cause"] == "L5"

    @pytest.mark.parametrize(("at", "key"), [(2, "q"), (20.5, "another")])
    def test_neither_one_that_ended_before_nor_one_of_another_queue(
        self, at: float, key: str
    ) -> None:
        told = unanswered(story(range(20, 21)), at, key=key)
        assert loss(told, self.guarantees)["cause"] == "unexplained"

    def test_who_acknowledges_by_hand_loses_nothing_this_way(self) -> None:
        told = unanswered(story(range(20, 21)), 20.5)
        assert loss(told, CAREFUL)["cause"] == "unexplained"


class TestL6:
    @pytest.mark.parametrize(
        ("guarantees", "why"),
        [
            (ClientGuarantees(persistent=False), "the messages were not persistent"),
            (ClientGuarantees(durable=False), "the queue was not durable"),
        ],
    )
    @pytest.mark.parametrize("kind", ["restart-all", "power-all", "kill-all"])
    def test_every_node_was_down(self, guarantees: ClientGuarantees, why: str, kind: str) -> None:
        told = story(range(20, 30)).fault(1, kind, 31, 35, NODES)
        told.role("n1", 0, "master").role("n2", 36, "master", 5)
        found = loss(told, guarantees)
        assert found["cause"] == "L6" and found["why"].endswith(why)
        assert loss(told, CAREFUL)["cause"] == "L12"

    def test_a_lone_master_recovered_it_from_its_disk(self) -> None:
        told = story(range(20, 30)).fault(1, "kill", 31, 35, ["n1"]).role("n1", 0, "master")
        told.event("n2", 0, "role", "running", group="")
        told.event("n1", 36, "role", "master", 5, incarnation=2, started_as="recovered", depth=0)
        found = loss(told, ClientGuarantees(persistent=False))
        assert found["cause"] == "L6"
        assert found["why"] == (
            "n1 recovered the queue from its disk at 36.0 s; the messages were not persistent"
        )
        assert loss(told, CAREFUL)["cause"] == "unexplained"

    def test_what_was_acknowledged_after_the_restart_is_another_matter(self) -> None:
        told = story(range(30, 35)).fault(1, "restart-all", 15, 18, NODES)
        told.role("n1", 0, "master").role("n2", 19, "master", 5)
        assert loss(told, ClientGuarantees(persistent=False))["cause"] == "unexplained"


class TestL7:
    guarantees = ClientGuarantees(confirms=False)

    def test_a_fault_was_near_when_the_channel_took_it(self) -> None:
        found = loss(story(range(20, 22)).fault(3, "kill", 21.5, 25, ["n1"]), self.guarantees)
        assert found["cause"] == "L7" and found["why"] == "fault 3 kill n1 began at 21.5 s"

    def test_no_fault_was_near(self) -> None:
        told = story(range(20, 22)).fault(1, "kill", 2, 4, ["n1"])
        assert loss(told, self.guarantees)["cause"] == "unexplained"

    def test_a_window_of_the_replicas_goes_first(self) -> None:
        told = story(range(20, 22)).fault(3, "kill", 22, 25, ["n1"]).role("n2", 21.5, "mirror")
        told.event("n2", 23, "promoted", "master", 3, synchronised=False, master_was="n1")
        assert loss(told, self.guarantees)["cause"] == "L2"

    def test_a_master_that_paused_in_a_minority_had_promised_nothing(self) -> None:
        links = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1"))
        told = story(range(20, 24)).fault(3, "partition-one", 19, 28, ["n1"], links)
        told.role("n1", 0, "master").role("n1", 24, "none").role("n2", 25, "master", 2)
        told.event("n1", 24.1, "role", "paused", group="")
        assert loss(told, self.guarantees)["cause"] == "L7"
        assert loss(told, CAREFUL)["cause"] == "L3"

    def test_who_awaits_confirms_may_not_lose_it(self) -> None:
        told = story(range(20, 22)).fault(3, "kill", 21.5, 25, ["n1"])
        assert loss(told, CAREFUL)["cause"] == "unexplained"


class TestL9:
    """The master dies before its mirrors heard that message 20 was acknowledged."""

    def told(self, *, flagged: bool) -> Story:
        told = story(range(0)).fault(1, "kill", 20.7, 25, ["n1"]).role("n1", 0, "master")
        told.event("n2", 21, "promoted", "master", 2, synchronised=True)
        return told.dequeue(20, 23, redelivered=flagged, node="n2", process=1)

    @pytest.mark.parametrize(("flagged", "kind"), [(True, "redelivered"), (False, "duplicated")])
    def test_exactly_once_forbids_it_and_at_least_once_counts_it(
        self, flagged: bool, kind: str
    ) -> None:
        history = self.told(flagged=flagged).history()
        strict = TotalQueue(delivery="exactly-once").check(history)
        assert strict.valid is False and strict.detail["broken"] == [kind]
        (anomaly,) = strict.anomalies
        assert anomaly.kind == kind and anomaly.detail["values"] == [20]
        rows = history.ops.to_pylist()
        assert [(rows[i]["f"], rows[i]["node"]) for i in anomaly.operations] == [
            ("enqueue", "n1"), ("dequeue", "n1"), ("dequeue", "n2")
        ]  # fmt: skip
        lenient = TotalQueue().check(history)
        assert lenient.valid is True and lenient.counts[f"{kind}-count"] == 1
