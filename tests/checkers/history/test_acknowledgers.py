"""Who acknowledged a message: the client's word, the nodes' lines, who was master; else nobody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shalott.checkers.history.acknowledgers import (
    Witnesses,
    acknowledgers,
    nodes_of_addresses,
)
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import client_operations
from shalott.checkers.history.faults import read_surroundings
from shalott.checkers.history.tenures import read_events
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def named(told: Story, client: Words | None = None) -> list[str]:
    """Of each enqueue, in order of time."""
    history = told.history()
    ops = client_operations(history)
    rows = np.flatnonzero(ops.f.equal("enqueue"))
    witnesses = Witnesses.read(read_events(history), read_surroundings(history))
    by = acknowledgers(ops, rows, ops.key.take(rows), witnesses, client)
    return [by.names[code] for code in by.codes]


def sent(node: str = "n3", at: float = 5.0, **more: Any) -> Story:
    return Story().phases().enqueue(1, at, node=node, **more)


def test_it_is_the_master_and_not_the_client_s_node() -> None:
    assert named(sent().role("n1", 1, "master").acked("n1", 4.9, 5.2)) == ["n1"]


def test_its_own_lines_tell_more_than_that_it_was_master() -> None:
    told = sent().role("n1", 1, "master").role("n2", 2, "master", 2).acked("n2", 4.9, 5.2, 2)
    assert named(told) == ["n2"]


def test_a_line_of_another_time_says_nothing() -> None:
    told = sent().role("n1", 1, "master").acked("n2", 3.0, 4.0, 2)
    told.event("n1", 9, "sync_done", "master", 1)  # it is still there
    assert named(told) == ["n1"], "who was master then"


def test_of_two_masters_it_is_the_client_s_own() -> None:
    told = sent(node="n2").acked("n1", 4.5, 5.5).acked("n2", 4.5, 5.5, 2)
    assert named(told) == ["n2"]


def test_of_two_masters_elsewhere_nobody_is_named() -> None:
    assert named(sent(node="n3").acked("n1", 4.5, 5.5).acked("n2", 4.5, 5.5, 2)) == [""]


def test_the_client_s_word_is_taken_before_all() -> None:
    told = sent().acked("n1", 4.5, 5.5)
    assert named(told, Words(np.array([1], dtype=np.int32), ("", "n2"))) == ["n2"]


def test_without_any_witness_nobody_is_named() -> None:
    assert named(sent()) == [""]


def test_another_queue_s_lines_say_nothing() -> None:
    assert named(sent().acked("n1", 4.5, 5.5, group="other")) == [""]


def test_each_message_has_its_own() -> None:
    told = sent(at=5.0).enqueue(2, 9.0, node="n3").acked("n1", 4.9, 5.2).acked("n2", 8.9, 9.2, 2)
    assert named(told) == ["n1", "n2"]


def test_an_address_is_the_host_s_or_that_of_the_epoch_s_master() -> None:
    told = Story(queue="g").role("n1", 1, "master").role("n2", 5, "master", 2)
    told.event("n3", 2, "route", "", 1, master="127.0.0.1:4001")
    told.event("n3", 6, "route", "", 2, master="127.0.0.1:4002")
    told.event("n3", 7, "route", "", 3, master="127.0.0.1:4003")  # nobody said it was master
    told.event("n3", 8, "route", "", 2, master="n9:10911").event("n3", 9, "route", "", 3, master="")
    events = read_events(told.history())
    assert nodes_of_addresses(events, ("n1", "n9")) == {
        "127.0.0.1:4001": "n1", "127.0.0.1:4002": "n2", "n9:10911": "n9",
    }  # fmt: skip


def test_a_node_says_itself_under_which_address_it_is_known() -> None:
    """Its word counts more than what a name server took it for."""
    told = (
        Story(queue="g").role("n1", 1, "master").event("n3", 2, "route", "", 1, master="10.0.0.2:1")
    )
    told.event("n2", 1, "role", "running", group="", address="10.0.0.2:1")
    assert nodes_of_addresses(read_events(told.history()), ("n1", "n2")) == {"10.0.0.2:1": "n2"}
