"""Each documented window of loss has its name only if each of its steps is seen.

For each there is a history in which it happened, and that history without one of its steps at a
time: then the loss is unexplained. Messages 20 to 29 are lost, acknowledged from 20 to 29.01 s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from shalott.checkers.checker import Anomaly, Result
from shalott.checkers.queues.guarantees import CAREFUL, ClientGuarantees
from shalott.checkers.queues.loss_windows import REPLICA_WINDOWS
from shalott.checkers.queues.total_queue import TotalQueue
from shalott.harness.report.verdict_words import headline
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit

CUT = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"), ("n3", "n1"))
UNCONFIRMED = ClientGuarantees(confirms=False)
TRANSIENT = ClientGuarantees(persistent=False)
Part = Callable[[Story], Any]
Change = tuple[str, Part | None]  # the name of a part, and what is in its place


def sent(node: str = "n1", lost: range = range(20, 30)) -> Story:
    """A message a second from 0 s, through one node; those in ``lost`` never come out."""
    story = Story()
    for value in range(60):
        story.enqueue(value, value, node=node, process=value % 3)
        if value not in lost:
            story.dequeue(value, value + 0.5)
    return story.phases().empty(64.5)


@dataclass(frozen=True)
class Told:
    """A window, the parts of a history that shows it, and changes that take one step away."""

    window: str
    parts: Mapping[str, Part]
    without: Mapping[str, Change]
    guarantees: ClientGuarantees = CAREFUL

    def story(self, change: Change | None = None) -> Story:
        story = sent()
        for name, part in self.parts.items():
            if change is None or name != change[0]:
                part(story)
            elif change[1] is not None:
                change[1](story)
        return story


def promotion(story: Story, at: float = 31, **detail: Any) -> Story:
    told = {"synchronised": False, "master_was": "n1", **detail}
    return story.event("n2", at, "promoted", "master", 3, **told)


def promoted(extra: Mapping[str, Part], without: Mapping[str, Change], window: str) -> Told:
    """What the windows of unsynchronised mirrors have in common."""
    return Told(
        window,
        {
            "master": lambda s: s.role("n1", 0, "master"),
            "join": lambda s: s.role("n2", 29.5, "mirror", incarnation=1),
            "death": lambda s: s.fault(9, "kill", 30.5, 40, ["n1"]),
            "promotion": promotion,
            **extra,
        },
        {
            "it was synchronised": ("promotion", lambda s: promotion(s, synchronised=True)),
            "nobody was promoted": ("promotion", None),
            "it was promoted before": ("promotion", lambda s: promotion(s, at=18)),
            "another queue's mirror was": ("promotion", lambda s: promotion(s, group="other")),
            "its master lives": (
                "death",
                lambda s: s.role("n1", 45, "master").role("n1", 59, "master"),
            ),
            "it had the messages": ("join", lambda s: s.role("n2", 10, "mirror")),
            "nobody saw it join": ("join", None),
            **without,
        },
    )


def synchronising(story: Story, joined: float, begun: float, mirror: str = "n2") -> Story:
    return story.role("n2", joined, "mirror").event("n1", begun, "sync_started", mirrors=[mirror])


def double(story: Story) -> Story:
    """n2 is master beside n1 from 23 s; n1 gives up at 36 s."""
    story.role("n2", 23, "master", 2).role("n2", 59, "master", 2)
    return story.role("n1", 36, "mirror", 3)


def confirmed(story: Story, node: str = "n1") -> Story:
    return story.acked(node, 20, 29)


def paused(story: Story, node: str = "n1") -> Story:
    story.event(node, 29.6, "role", "paused", group="")
    return story.role("n2", 29.8, "master", 2).role("n2", 59, "master", 2)


def cut(story: Story, begin: float = 19, node: str = "n1") -> Story:
    links = tuple((a, b) for a in NODES for b in NODES if a != b and node in (a, b))
    return story.fault(1, "partition-one", begin, 35, [node], links)


SPLIT = {
    "the partition began later": ("cut", lambda s: cut(s, 27)),
    "there was no partition": ("cut", None),
    "another node was cut off": ("cut", lambda s: s.fault(1, "partition-one", 19, 35, ["n3"],
                                                          (("n3", "n2"), ("n2", "n3")))),
    "it confirmed nothing then": ("acked", lambda s: confirmed(s, "n2")),
    "it was not master": ("master", None),
}  # fmt: skip

WINDOWS = [
    promoted(
        {"join": lambda s: synchronising(s, 29.5, 30)},
        {"it had the messages": ("join", lambda s: synchronising(s, 10, 12))},
        "L1",
    ),
    promoted({}, {}, "L2"),
    promoted(
        {"restart": lambda s: s.fault(1, "kill", 5, 28, ["n2"])},
        {},
        "L4",
    ),
    promoted(
        {"stop": lambda s: s.event("n1", 30.4, "loss_window", reason="L8: on shutdown")},
        {},
        "L8",
    ),
    Told(
        "L3",
        {
            "cut": cut,
            "master": lambda s: s.role("n1", 0, "master"),
            "acked": confirmed,
            "double": double,
        },
        {**SPLIT, "nobody else was master": ("double", lambda s: s.role("n1", 36, "mirror", 3))},
    ),
    Told(
        "L3",
        {
            "cut": cut,
            "master": lambda s: s.role("n1", 0, "master"),
            "other": lambda s: s.role("n2", 59, "master", 2),
            "acked": confirmed,
            "discard": lambda s: s.event("n1", 37, "discarded", count=10, reason="autoheal"),
        },
        {
            **SPLIT,
            "it threw nothing away": (
                "discard",
                lambda s: s.event("n1", 37, "discarded", count=0, reason="autoheal"),
            ),
            "another node threw its own away": (
                "discard",
                lambda s: s.event("n2", 37, "discarded", count=10, reason="autoheal"),
            ),
            "it threw away before": (
                "discard",
                lambda s: s.event("n1", 18, "discarded", count=10, reason="autoheal"),
            ),
            "nobody else was master": ("other", None),
        },
    ),
    Told(
        "L3",
        {
            "cut": cut,
            "master": lambda s: s.role("n1", 0, "master"),
            "acked": confirmed,
            "paused": paused,
        },
        {**SPLIT, "another node paused": ("paused", lambda s: paused(s, "n3"))},
    ),
    Told(
        "L11",
        {
            "pause": lambda s: s.fault(1, "pause", 19.5, 28, ["n1"]),
            "master": lambda s: s.role("n1", 0, "master"),
            "acked": confirmed,
            "double": double,
        },
        {
            "nobody was suspended": ("pause", None),
            "another node was": ("pause", lambda s: s.fault(1, "pause", 19.5, 28, ["n3"])),
            "long before": ("pause", lambda s: s.fault(1, "pause", 2, 4, ["n1"])),
            "after the first of them": ("pause", lambda s: s.fault(1, "pause", 24, 28, ["n1"])),
            "it was not master": ("master", None),
            "nobody took over": ("double", lambda s: s.role("n1", 36, "mirror", 3)),
            "it confirmed nothing": ("acked", lambda s: confirmed(s, "n2")),
        },
    ),
    Told(
        "L12",
        {
            "up": lambda s: s.event("n2", 1, "up", group="").event("n3", 1, "up", group=""),
            "master": lambda s: s.role("n1", 0, "master"),
            "stop": lambda s: s.fault(1, "restart-all", 30, 33, NODES),
            "recovery": lambda s: s.role("n3", 34, "master", 1, incarnation=2),
        },
        {
            "one node ran on": ("stop", lambda s: s.fault(1, "restart-all", 30, 33, NODES[:2])),
            "before the messages": ("stop", lambda s: s.fault(1, "restart-all", 15, 18, NODES)),
            "nobody recovered it": ("recovery", None),
            "the last master did": (
                "recovery",
                lambda s: s.role("n1", 34, "master", 1, incarnation=2),
            ),
        },
    ),
    Told(
        "L6",
        {
            "master": lambda s: s.role("n1", 0, "master"),
            "up": lambda s: s.event("n2", 0, "role", "running", group=""),
            "stop": lambda s: s.fault(1, "kill", 31, 35, ["n1"]),
            "recovery": lambda s: s.role(
                "n1", 36, "master", 5, incarnation=2, started_as="recovered"
            ),
        },
        {
            "nobody recovered it": (
                "recovery",
                lambda s: s.role("n1", 36, "master", 5, incarnation=2),
            ),
            "before the messages": (
                "recovery",
                lambda s: s.role("n1", 15, "master", 5, incarnation=2, started_as="recovered"),
            ),
        },
        TRANSIENT,
    ),
    Told(
        "L7",
        {
            "cut": cut,
            "master": lambda s: s.role("n1", 0, "master"),
            "acked": confirmed,
            "paused": paused,
        },
        {},
        UNCONFIRMED,
    ),
]


def explained(story: Story, guarantees: ClientGuarantees) -> dict[str, Any]:
    result = TotalQueue(guarantees=guarantees).check(story.history())
    assert result.valid is False
    (told,) = result.detail["loss"]["stories"]
    return dict(told)


@pytest.mark.parametrize("told", WINDOWS, ids=lambda told: told.window)
def test_a_window_all_of_whose_steps_are_seen_is_named_with_their_evidence(told: Told) -> None:
    story = told.story()
    found = explained(story, told.guarantees)
    assert found["cause"] == told.window
    (window,) = [each for each in REPLICA_WINDOWS if each.id == told.window]
    assert [step["says"] for step in found["steps"]] == [step.says for step in window.steps]
    events = story.history().events.to_pylist()
    rows = [step["event"] for step in found["steps"] if "event" in step]
    assert all(0 <= row < len(events) for row in rows)


@pytest.mark.parametrize(
    ("told", "name"),
    [
        pytest.param(told, name, id=f"{told.window}-{name}")
        for told in WINDOWS
        for name in told.without
    ],
)
def test_without_one_step_it_is_unexplained(told: Told, name: str) -> None:
    assert explained(told.story(told.without[name]), told.guarantees)["cause"] == "unexplained"


@pytest.mark.parametrize("told", WINDOWS, ids=lambda told: told.window)
def test_a_window_that_the_settings_rule_out_is_no_excuse(told: Told) -> None:
    given = told.guarantees
    closed = ClientGuarantees(
        persistent=given.persistent, confirms=given.confirms, closed=(told.window, "L3", "L6")
    )
    found = explained(told.story(), closed)
    # Without confirms a fault that was near is reason enough (checkers/queues/guarantees.py).
    assert found["cause"] == ("unexplained" if given.confirms else "L7")


def test_every_window_has_a_history() -> None:
    assert {window.id for window in REPLICA_WINDOWS} == {told.window for told in WINDOWS}


def test_a_synchronisation_of_another_mirror_is_none_of_it() -> None:
    (told,) = [each for each in WINDOWS if each.window == "L1"]
    change = ("join", lambda s: synchronising(s, 29.5, 30, "n3"))
    assert explained(told.story(change), CAREFUL)["cause"] == "L2"


class TestExcusesThatWereNone:
    """Faults of a broker that stood beside a documented window, and were taken for it."""

    def test_a_lost_requeue_under_pauses_is_not_l11(self) -> None:
        """A wipe after a pause says nothing of messages that were acknowledged before it."""
        story = sent(lost=range(5, 8)).role("n1", 0, "master").acked("n1", 0, 59)
        story.fault(1, "pause", 19.5, 28, ["n2"])
        story.event("n2", 29, "wiped", count=8)
        assert explained(story, CAREFUL)["cause"] == "unexplained"

    def test_nor_is_one_of_a_master_that_was_replaced_in_its_sleep(self) -> None:
        story = sent(lost=range(5, 8)).role("n1", 0, "master").acked("n1", 0, 19)
        double(story.fault(1, "pause", 19.5, 28, ["n1"]))
        story.event("n1", 37, "wiped", count=8)
        assert explained(story, CAREFUL)["cause"] == "unexplained"

    def test_an_early_acknowledgement_under_a_quorum_is_not_l3(self) -> None:
        story = cut(sent()).role("n1", 0, "master").acked("n1", 20, 29)
        quorum = ClientGuarantees(closed=("L3", "L11", "L12"))
        assert explained(double(story), quorum)["cause"] == "unexplained"

    def test_nor_without_one_if_it_was_before_the_partition(self) -> None:
        story = cut(sent(lost=range(5, 8))).role("n1", 0, "master").acked("n1", 0, 29)
        assert explained(double(story), CAREFUL)["cause"] == "unexplained"

    def test_what_was_published_on_the_other_side_is_not_lost_with_this_one(self) -> None:
        story = cut(sent(node="n2")).role("n1", 0, "master").acked("n1", 20, 29)
        assert explained(double(story), CAREFUL)["cause"] == "unexplained"


class TestByPolls:
    """What is known of a system whose nodes log neither first masters nor promotions."""

    def test_two_masters(self) -> None:
        story = cut(sent())
        for second in range(60):
            story.observe("n1", second, "master" if second < 36 else "mirror")
            story.observe("n2", second + 0.1, "mirror" if second < 21 else "master", 2)
        assert explained(story, CAREFUL)["cause"] == "L3"

    def test_an_unlisted_mirror_that_was_restarted(self) -> None:
        story = sent().fault(1, "kill", 5, 8, ["n2"]).fault(2, "kill", 30, 50, ["n1"])
        for second in range(30):
            story.observe("n1", second, "master", synchronised=["n3"] if second > 5 else ["n2"])
        for second in range(31, 60):
            story.observe("n2", second, "master", 2)
        assert explained(story, CAREFUL)["cause"] == "L4"

    def test_the_word_of_the_promoted_goes_before_an_old_poll(self) -> None:
        story = sent().fault(2, "kill", 30, 50, ["n1"])
        story.observe("n1", 29, "master", synchronised=["n3"])
        story.observe("n2", 31, "master", 2).observe("n2", 32, "master", 2)
        assert explained(story, CAREFUL)["cause"] == "L2"
        story.event("n2", 30.8, "promoted", "master", 2, synchronised=True)
        assert explained(story, CAREFUL)["cause"] == "unexplained"

    def test_a_listed_mirror(self) -> None:
        story = sent().fault(2, "kill", 30, 50, ["n1"])
        for second in range(30):
            story.observe("n1", second, "master", synchronised=["n2", "n3"])
        for second in range(31, 60):
            story.observe("n2", second, "master", 2)
        assert explained(story, CAREFUL)["cause"] == "unexplained"


def test_an_unexplained_loss_is_counted_and_makes_the_headline() -> None:
    story = sent()
    explained_too = TotalQueue().check(story.history())
    assert explained_too.counts["lost-unexplained-count"] == 10
    assert headline([explained_too]) == (
        "Invalid: 10 acknowledged messages were lost, in no documented way."
    )
    (told,) = [each for each in WINDOWS if each.window == "L2"]
    known = TotalQueue().check(told.story().history())
    assert known.counts["lost-unexplained-count"] == 0
    assert headline([known]) == "Invalid: 10 acknowledged messages were lost."


def test_the_unexplained_is_told_before_longer_losses_and_before_other_checkers() -> None:
    (told,) = [each for each in WINDOWS if each.window == "L2"]
    story = told.story()
    story.enqueue(99, 45.5)
    result = TotalQueue().check(story.history())
    causes = [anomaly.detail["cause"] for anomaly in result.anomalies]
    assert causes == ["unexplained", "L2"]
    other = Result(
        checker="crashes",
        valid=False,
        anomalies=(Anomaly(kind="crashed", summary="n1: x"),),
    )
    assert headline([other, result]).startswith(
        "Invalid: 11 acknowledged messages were lost, 1 of them in no documented way, and a"
    )
