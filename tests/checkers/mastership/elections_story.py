"""Stories of a replicated log's masters, for the tests of checkers/mastership/elections/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.checkers.histories import Story

IDS = {"n1": 1, "n2": 2, "n3": 3}


def ids_of(members: Sequence[str]) -> list[int]:
    return [IDS[member] for member in members]


def elected(
    told: Story,
    at: float,
    master: str,
    epoch: int,
    set_epoch: int,
    *,
    node: str = "n1",
    members: Sequence[str] = (),
    **more: Any,
) -> Story:
    """By the controller on ``node``: the set is the master alone, unless it is told again."""
    own = list(members) or ([master] if master else ["n2", "n1"])
    detail = {"master": master, "set": own, "set_ids": ids_of(own), "set_epoch": set_epoch, **more}
    return told.event(node, at, "elected", "", epoch, **detail)


def changed(
    told: Story,
    at: float,
    members: Sequence[str],
    master: str,
    set_epoch: int,
    node: str = "n1",
    **more: Any,
) -> Story:
    own = list(members)
    detail = {"master": master, "set": own, "set_ids": ids_of(own), "set_epoch": set_epoch, **more}
    return told.event(node, at, "set_changed", "", set_epoch, **detail)


def heard_set(
    told: Story, at: float, node: str, members: Sequence[int], epoch: int, set_epoch: int = 0
) -> Story:
    """A master takes this for its set. ``set_epoch`` 0: it does not say of which epoch it is."""
    told.event(node, at, "set_changed", "master", epoch, set=list(members))
    if set_epoch:
        told.events[-1]["detail"]["epoch"] = set_epoch
    return told


def began(
    told: Story, at: float, node: str, epoch: int, end: int, *epochs: tuple[int, int], **more: Any
) -> Story:
    """A master begins its tenure with a log that ends there."""
    table = [list(entry) for entry in epochs]
    return told.event(node, at, "epoch", "master", epoch, end=end, epochs=table, **more)


def good() -> Story:
    """n1 is elected and gathers a set, is killed at 10 s, and n2 follows from that set."""
    told = Story().phases().fault(1, "kill", 10, 20, ["n1"])
    elected(told, 1, "n1", 1, 1).role("n1", 1.1, "master", 1).role("n2", 1.2, "slave", 1)
    began(told, 1.1, "n1", 1, 0, (1, 0))
    changed(told, 2, ["n1", "n2"], "n1", 2)
    told.acked("n1", 2.5, 9.5, 1, end=700, holders=[2])
    elected(told, 12, "n2", 2, 3, node="n3").role("n2", 12.1, "master", 2)
    began(told, 12.1, "n2", 2, 800, (1, 0), (2, 800))
    told.role("n3", 12.2, "slave", 2)
    told.role("n1", 20, "slave", 2, incarnation=2)
    told.event("n1", 20.5, "truncated", "slave", 2, incarnation=2, to=800, **{"from": 900})
    heard_set(told, 20.9, "n2", [2], 2)
    told.acked("n2", 22, 30, 2, end=1600, holders=[1, 3])
    told.acked("n2", 30, 59, 2, end=2400, holders=[1, 3])
    return changed(told, 21, ["n2", "n1"], "n2", 4, node="n3")
