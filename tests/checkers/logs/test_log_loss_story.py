"""The story of a log's loss: each cause by what was seen, and none where nothing was."""

from __future__ import annotations

from typing import Any

import pytest

from shalott.checkers.logs.log_loss_story import CAUSES
from tests.checkers.histories import NODES, Story
from tests.checkers.logs.test_replicated_log import WHOLE, check, final, good, send

pytestmark = pytest.mark.unit

LOST = 104
GROUP: dict[str, Any] = {"group": "shalott"}


def lost(node: str = "n3", by: str = "n1", at: float = 5.0, **more: Any) -> Story:
    """A message that ``by`` acknowledged to a client of ``node`` and nobody has at the end."""
    told = send(good(), LOST, at, 4, node=node, extra={"broker": f"{by}:10911"}, process=7)
    told.role(by, 0.1, "master", 1, **GROUP, end=0)
    told.acked(by, at - 0.1, at + 0.1, 1, **GROUP, end=800, **more)
    return final(told, WHOLE)


def story(told: Story) -> dict[str, Any]:
    result = check(told)
    assert result.valid is False, "no cause excuses a loss"
    (found,) = result.detail["loss"]["stories"]
    assert found["cause"] in CAUSES
    return found


def says(told: Story) -> list[str]:
    return [step["says"] for step in story(told)["steps"]]


def replaced(told: Story, end: int = 400, at: float = 7.0) -> Story:
    told.role("n2", at, "master", 2, **GROUP, end=end)
    return told.role("n1", at + 1, "slave", 2, **GROUP)


def test_cut_off_and_alone() -> None:
    told = replaced(lost(holders=[]))
    told.fault(1, "partition", 4, 6, links=[("n1", "n2"), ("n1", "n3")], effects=["cuts-links"])
    told.event("n2", 6.9, "elected", "", 2, **GROUP, master="n2", set=["n2", "n3"])
    told.event("n1", 8.1, "truncated", "slave", 2, **GROUP, to=400, **{"from": 800})
    assert story(told)["cause"] == "alone"
    assert says(told) == [
        "n1 was cut off: fault 1 partition",
        "n1 acknowledged as master, in epoch 1, its log up to 800, alone: it knew of no other node"
        " that had it",
        "the controllers' leader n2 elected n2 for epoch 2 out of {n2, n3}",
        "n2 became master in epoch 2 with a log that ends at 400, before 800",
        "n1 was deposed: it is a slave now",
        "n1 cut its log from 800 down to 400",
    ]


def test_suspended_and_awake_again() -> None:
    told = replaced(lost(at=6.5), at=5.0)
    told.fault(1, "pause", 3, 6, ["n1"], effects=["suspends"])
    assert story(told)["cause"] == "asleep"


def test_power_took_what_was_not_flushed() -> None:
    told = replaced(lost())
    told.fault(1, "power-all", 5.5, 6, NODES, effects=["ends-processes", "loses-unsynced"])
    assert story(told)["cause"] == "unflushed"


def deposed_and_acknowledging(elected_at: float, master: str = "n2") -> Story:
    """Nobody's log says what n1 acknowledged: an original's says no such thing."""
    told = send(good(), LOST, 9, 4, node="n3", extra={"broker": "n1:10911"}, process=7)
    told.role("n1", 0.1, "master", 1, **GROUP, end=0)
    told.fault(1, "partition", 4, 8.5, links=[("n1", "n2")], effects=["cuts-links"])
    told.event("n3", elected_at, "elected", "", 2, **GROUP, master=master)
    told.role("n1", 8.9, "slave", 2, **GROUP)
    told.role("n2", 10, "master", 2, **GROUP, end=400)
    return final(told, WHOLE)


def test_deposed_and_acknowledging_still() -> None:
    told = deposed_and_acknowledging(7.0)
    assert story(told)["cause"] == "deposed"
    assert says(told) == [
        "the controllers' leader n3 elected n2 for epoch 2",
        "n1 was deposed: it is a slave now",
        "n2 became master in epoch 2 with a log that ends at 400",
    ]


@pytest.mark.parametrize(("elected_at", "master"), [(9.5, "n2"), (7.0, "n1")])
def test_who_is_elected_later_or_again_was_not_deposed(elected_at: float, master: str) -> None:
    assert story(deposed_and_acknowledging(elected_at, master))["cause"] == "unexplained"


def test_a_successor_that_was_behind() -> None:
    told = replaced(lost())
    told.fault(1, "kill", 5.5, 6, ["n1"], effects=["ends-processes"])
    assert story(told)["cause"] == "behind"


def test_another_node_s_fault_is_no_cause() -> None:
    told = lost()
    told.fault(1, "power", 4, 6, ["n3"], effects=["ends-processes", "loses-unsynced"])
    assert story(told)["cause"] == "unexplained"


def test_a_successor_that_had_everything_explains_nothing() -> None:
    assert story(replaced(lost(), end=900))["cause"] == "unexplained"


def test_without_any_event_it_is_unexplained_and_nobody_is_named() -> None:
    told = final(send(good(), LOST, 5, 4, node="n3", process=7), WHOLE)
    found = story(told)
    assert (found["cause"], found["acknowledged-by"], found["steps"]) == ("unexplained", [], [])


def test_who_acknowledged_is_named_and_not_who_passed_it_on() -> None:
    told = replaced(lost(node="n3", by="n1"))
    result = check(told)
    loss = result.detail["loss"]
    assert loss["stories"][0]["acknowledged-by"] == ["n1"]
    assert loss["by-acknowledger"]["n1"]["lost"] == 1
    assert loss["by-node"]["n3"] == {"acknowledged": 1, "lost": 1}
    anomaly = next(a for a in result.anomalies if a.kind == "lost-write")
    assert "acknowledged by n1 to a client of n3 at 5.0 s" in anomaly.summary


def test_the_clients_word_names_who_acknowledged_beside_another_master() -> None:
    """By an address; the other master's acknowledgements of that moment are not taken for it."""
    told = send(good(), LOST, 9, 4, node="n3", extra={"broker": "10.0.0.1:10911"}, process=7)
    told.role("n1", 0.1, "master", 1, **GROUP, end=0).role("n2", 7, "master", 2, **GROUP, end=400)
    told.acked("n2", 8.9, 9.1, 2, **GROUP, end=900)
    told.event("n1", 0, "role", "running", group="", address="10.0.0.1:10911")
    told.event("n3", 6.9, "elected", "", 2, **GROUP, master="n2")
    found = story(final(told, WHOLE))
    assert (found["acknowledged-by"], found["cause"]) == (["n1"], "deposed")


def test_a_log_that_lost_nothing_tells_no_story() -> None:
    assert "loss" not in check(final(good(), WHOLE)).detail
