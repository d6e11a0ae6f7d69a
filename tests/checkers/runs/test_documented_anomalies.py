"""A register that went back: as documented only if all that the manual says was seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeOfRuns
from shalott.checkers.runs.documented_anomalies import DocumentedAnomalies
from shalott.core.documented_loss import DocumentedLoss
from shalott.harness.report.verdict_words import headline
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit

MANUAL = "https://example.org/manual"
FAILOVER = DocumentedLoss(
    name="asynchronous", text="a replica became master that lacked it", manual=MANUAL,
    effects=("ends-processes",), before_ms=5000, successor="another",
)  # fmt: skip
UNDOCUMENTED = "in no documented way"


def masters(story: Story, first: int, last: int, node: str) -> Story:
    for second in range(first, last):
        claims = [{"group": "all", "role": "master", "epoch": 1}]
        story.around("observe", second, second + 0.01, node=node, extra={"claims": claims})
    return story


def went_back(sees_it_at: float = 40, next_master: str = "n2") -> Story:
    """A client reads 2 at 28 s, and 1 afterwards."""
    story = masters(masters(Story(), 0, 30, "n1"), 32, 50, next_master)
    story.row("write", 5, value=1).row("write", 27, value=2)
    return story.row("read", 28, value=2, process=1).row("read", sees_it_at, value=1, process=1)


def killed(at: float = 30, node: str = "n1", kind: str = "kill") -> Callable[[Story], Story]:
    return lambda story: story.fault(1, kind, at, at + 5, [node])


def judged(story: Story, *documented: DocumentedLoss) -> Result:
    judge = JudgeOfRuns("monotonic-reads", fs=("read", "write", "cas"))
    return DocumentedAnomalies(judge, documented).check(story.history())


def test_a_write_that_a_failover_lost_is_told_with_the_manuals_address() -> None:
    result = judged(killed()(went_back()), FAILOVER)
    assert result.valid is False
    assert headline([result]).endswith(f", as is documented ({MANUAL}).")


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(went_back(), id="no fault"),
        pytest.param(killed(node="n3")(went_back()), id="of another node"),
        pytest.param(killed(kind="pause")(went_back()), id="of another kind"),
        pytest.param(killed(at=36)(went_back()), id="long after"),
        pytest.param(killed()(went_back(sees_it_at=29)), id="seen before the fault"),
        pytest.param(killed()(went_back(next_master="n1")), id="no other master"),
    ],
)
def test_without_one_part_of_it_no_manual_documents_it(story: Story) -> None:
    result = judged(story, FAILOVER)
    assert result.valid is False
    assert headline([result]).endswith(f", {UNDOCUMENTED}.")


def test_where_no_loss_is_documented_nothing_is_said_of_it() -> None:
    result = judged(killed()(went_back()))
    assert result.valid is False
    assert "documented" not in headline([result])
