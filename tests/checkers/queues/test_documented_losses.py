"""A loss that a system's own record names has the name only if all that its manual says is seen.

Messages 20 to 29 are lost, acknowledged from 20 to 29.01 s. For each way of loss there is a history
in which it happened, and that history without one part of it at a time: then no manual documents
the loss, and the headline says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.queues.guarantees import ClientGuarantees
from shalott.checkers.queues.loss_windows import WINDOWS
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.core.documented_loss import DocumentedLoss
from shalott.harness.report.losses import loss_accounts, loss_tables
from shalott.harness.report.verdict_words import headline
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit

MANUAL = "https://example.org/manual"
FAILOVER = DocumentedLoss(
    name="asynchronous",
    text="a replica became master that lacked it",
    manual=MANUAL,
    closed_by="--copies all",
    effects=("ends-processes", "suspends", "cuts-links"),
    before_ms=5000,
    after_ms=4000,
    successor="another",
)
UNSYNCED = DocumentedLoss(
    name="unsynced", text="it was on no disk", manual=MANUAL,
    effects=("loses-unsynced",), hits="majority", before_ms=10_000,
)  # fmt: skip
EMPTY = DocumentedLoss(
    name="empty", text="the master came back empty", manual=MANUAL,
    effects=("ends-processes",), but_not=("in-order",), before_ms=None, successor="same",
)  # fmt: skip
CUT = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1"))
Part = Callable[[Story], Any]


def sent() -> Story:
    story = Story()
    for value in range(60):
        story.enqueue(value, value, process=value % 3)
        if not 20 <= value < 30:
            story.dequeue(value, value + 0.5)
    return story.phases().empty(64.5)


def masters(first: float, last: float, node: str = "n1", epoch: int = 1) -> Part:
    """Polled once a second, with the others, under the name of a group that is no queue."""

    def tell(story: Story) -> None:
        for second in range(int(last - first)):
            told = {"claims": [{"group": "all", "role": "master", "epoch": epoch}]}
            at = first + second
            story.around("observe", at, at + 0.01, node=node, extra=told)
            for other in set(NODES) - {node}:
                story.around("observe", at, at + 0.01, node=other, extra={"claims": []})

    return tell


def fault(kind: str, begin: float, end: float, *nodes: str, links: Any = ()) -> Part:
    return lambda story: story.fault(1, kind, begin, end, nodes, links)


@dataclass(frozen=True)
class Told:
    """``without``: of a change, the part that is replaced, and by what; None: it is not there."""

    loss: DocumentedLoss
    parts: Mapping[str, Part]
    without: Mapping[str, tuple[str, Part | None]]

    def story(self, change: tuple[str, Part | None] | None = None) -> Story:
        story, parts = sent(), dict(self.parts)
        if change is not None:
            parts.pop(change[0])
            parts |= {"changed": change[1]} if change[1] is not None else {}
        for part in parts.values():
            part(story)
        return story


TOLD = {
    "a master dies": Told(
        replace(FAILOVER, before_ms=11_000),
        {
            "master": masters(0, 30),
            "fault": fault("kill", 30, 40, "n1"),
            "next": masters(32, 60, "n2", 2),
        },
        {
            "no fault": ("fault", None),
            "another node dies": ("fault", fault("kill", 30, 40, "n3")),
            "it is slow alone": ("fault", fault("cpu-starve", 30, 40, "n1")),
            "it dies before they were sent": ("fault", fault("kill", 10, 12, "n1")),
            "it dies long after": ("fault", fault("kill", 33, 40, "n1")),
            "nobody takes over": ("next", masters(32, 60)),
            "it was never master": ("master", masters(0, 30, "n3")),
            "nobody tells who is master": ("master", None),
        },
    ),
    "a master is cut off": Told(
        FAILOVER,
        {
            "master": masters(0, 34),
            "fault": fault("partition", 21, 32, links=CUT),
            "next": masters(24, 60, "n2", 2),
        },
        {
            "after the first of them, too late": ("fault", fault("partition", 28, 40, links=CUT)),
            "it was healed before": ("fault", fault("partition", 15, 20, links=CUT)),
            "of the others alone": ("fault", fault("partition", 21, 32, links=[("n2", "n3")])),
            "nobody takes over": ("next", None),
        },
    ),
    "a majority loses its power": Told(
        UNSYNCED,
        {
            "master": masters(0, 60),
            "n1": fault("power", 30, 33, "n1"),
            "n2": fault("lose-unsynced", 29.5, 33, "n2"),
        },
        {
            "one alone": ("n2", None),
            "the other one was killed": ("n2", fault("kill", 29.5, 33, "n2")),
            "the other one before": ("n2", fault("power", 15, 18, "n2")),
            "the other one long after": ("n2", fault("power", 45, 48, "n2")),
            "twice the same": ("n2", fault("power", 29.5, 33, "n1")),
        },
    ),
    "a master comes back empty": Told(
        EMPTY,
        {"master": masters(0, 60), "fault": fault("kill", 50, 51, "n1")},
        {
            "it was stopped in order": ("fault", fault("stop", 50, 51, "n1")),
            "another one was killed": ("fault", fault("kill", 50, 51, "n2")),
            "it was killed before": ("fault", fault("kill", 15, 16, "n1")),
            "another one follows": (
                "master",
                lambda s: (masters(0, 50)(s), masters(52, 60, "n2", 2)(s)),
            ),
        },
    ),
}
WITHOUT = [(name, change) for name, told in TOLD.items() for change in told.without]


def judged(story: Story, *documented: DocumentedLoss) -> Result:
    closed = tuple(WINDOWS)  # as for all systems but those of mirrored queues
    return TotalQueue(
        guarantees=ClientGuarantees(closed=closed, documented=documented)
    ).check(story.history())  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_its_manual_says_is_told_with_the_manuals_address(name: str) -> None:
    told = TOLD[name]
    result = judged(told.story(), told.loss)
    assert result.valid is False, "no document excuses a loss"
    assert result.counts["lost-unexplained-count"] == 0
    assert headline([result]) == (
        f"Invalid: 10 acknowledged messages were lost, as is documented ({MANUAL})."
    )
    [anomaly] = result.anomalies
    assert anomaly.detail["cause"] == told.loss.name
    assert MANUAL in anomaly.summary
    assert all(step["says"] for step in anomaly.detail["steps"])


@pytest.mark.parametrize(("name", "change"), WITHOUT)
def test_without_one_part_of_it_no_manual_documents_it(name: str, change: str) -> None:
    told = TOLD[name]
    result = judged(told.story(told.without[change]), told.loss)
    assert headline([result]) == (
        "Invalid: 10 acknowledged messages were lost, in no documented way."
    )


@pytest.mark.parametrize("name", TOLD)
def test_a_system_whose_record_does_not_name_it_has_no_such_excuse(name: str) -> None:
    result = judged(TOLD[name].story())
    assert "in no documented way" in headline([result])


def test_a_run_may_lose_in_both_ways_and_only_the_others_are_called_undocumented() -> None:
    told = TOLD["a master dies"]
    result = judged(told.story().enqueue(99, 45.5), told.loss)
    assert headline([result]) == (
        "Invalid: 11 acknowledged messages were lost, 1 of them in no documented way."
    )
    [cause, *_] = loss_tables([result])
    assert {row.cells[0]: row.cells[2] for row in cause.rows} == {
        "asynchronous": "10",
        "unexplained": "1",
    }


def test_the_report_says_what_it_is_where_it_is_documented_and_what_closes_it() -> None:
    told = TOLD["a master dies"]
    result = judged(told.story(), told.loss)
    [cause, *_] = loss_tables([result])
    assert cause.rows[0].cells == [
        *("asynchronous", f"{told.loss.text} ({MANUAL})", "10", "--copies all")
    ]
    [account] = loss_accounts([result])
    assert account.cause == f"{told.loss.text} ({MANUAL})"
    assert [step.says for step in account.steps] == [
        "n1 was master, and fault 1 kill n1 hit it",
        "what is lost had been acknowledged, at most 11 s before it",
        "another node became master in its place",
    ]
