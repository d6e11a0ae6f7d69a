"""Acknowledgements of an original's brokers, by what clients saw."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shalott.cluster.systems.rocketmq_original.acknowledged import acknowledged_events
from tests.checkers.histories import Story, ns

pytestmark = pytest.mark.unit

HOSTS = {"10.1.1.11": "n1", "10.1.1.12": "n2"}
WALL_NS = 1_000_000_000_000  # at the run's start


def told(node: str, at: float, role: str, epoch: int = 0) -> dict[str, Any]:
    """A row of a node's log."""
    return {
        "node": node, "group": "broker-a", "kind": "role", "role": role, "epoch": epoch,
        "run_ns": ns(at), "wall_ns": WALL_NS + ns(at), "at_ns": WALL_NS + ns(at),
        "incarnation": 1, "detail": None,
    }  # fmt: skip


def sent(story: Story, at: float, log_offset: int, took: float = 0.01, host: str = "11") -> None:
    extra = {"broker": f"10.1.1.{host}:10911", "log_offset": log_offset}
    story.row("send", at, took=took, extra=extra)


def events(story: Story, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found = acknowledged_events(story.history(), rows, HOSTS)
    return [{**row, "detail": json.loads(row["detail"])} for row in found]


def test_a_masters_acknowledgements_have_its_epoch_and_the_end_of_its_log() -> None:
    story = Story()
    sent(story, 2.0, 100)
    sent(story, 2.1, 300)
    (one,) = events(story, [told("n1", 1.0, "master", 4)])
    assert (one["kind"], one["node"], one["role"], one["epoch"]) == ("acked", "n1", "master", 4)
    assert (one["detail"]["end"], one["detail"]["count"]) == (301, 2)
    assert one["detail"]["first_ns"] == WALL_NS + ns(2.0)
    assert one["detail"]["last_ns"] == WALL_NS + ns(2.1)
    assert one["run_ns"] == ns(2.11)


def test_a_send_across_a_change_of_roles_is_left_out() -> None:
    """Nobody knows in which epoch it was taken."""
    story = Story()
    sent(story, 1.95, 100, took=0.1)
    rows = [told("n1", 1.0, "master", 4), told("n1", 2.0, "slave", 5)]
    assert events(story, rows) == []


def test_who_was_no_master_by_its_own_log_acknowledges_nothing_in_an_epoch() -> None:
    story = Story()
    sent(story, 2.0, 100, host="12")
    assert events(story, [told("n2", 1.0, "slave", 4)]) == []
    assert events(story, []) == []


def test_what_took_long_was_taken_when_it_was_answered_at_the_latest() -> None:
    story = Story()
    sent(story, 2.0, 100, took=3.0)
    sent(story, 4.9, 200)
    rows = events(story, [told("n1", 1.0, "master", 4)])
    assert len(rows) == 2
    late = next(row for row in rows if row["detail"]["end"] == 101)
    assert late["detail"]["first_ns"] == late["detail"]["last_ns"] == WALL_NS + ns(5.0)


def test_no_line_goes_across_tenures() -> None:
    story = Story()
    sent(story, 1.9, 100)
    sent(story, 2.05, 200)
    rows = [told("n1", 1.0, "master", 4), told("n1", 2.0, "master", 6)]
    assert [row["epoch"] for row in events(story, rows)] == [4, 6]
