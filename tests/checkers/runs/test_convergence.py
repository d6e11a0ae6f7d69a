"""convergence: synchronised replicas that differ from their master at the end have diverged."""

from __future__ import annotations

import pytest

from shalott.checkers.runs.convergence import Convergence
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit


def replica(
    story: Story,
    node: str,
    role: str = "mirror",
    *,
    at: float = 63,
    depth: int = 7,
    digest: str = "same",
    synchronised: bool = True,
    epoch: int = 4,
    group: str = "q",
) -> Story:
    return story.event(node, at, "replica", role, epoch, group=group, depth=depth, digest=digest,
                       synchronised=synchronised)  # fmt: skip


def master(story: Story, node: str = "n1") -> Story:
    return replica(story, node, "master")


def test_equal_replicas_have_converged() -> None:
    story = replica(replica(master(Story()), "n2"), "n3")
    result = Convergence().check(story.history())
    assert result.valid is True and not result.anomalies and not result.notes
    assert result.counts == {"diverged-count": 0, "replica-count": 3, "synchronised-count": 3}


def test_a_synchronised_mirror_that_lacks_messages_has_diverged() -> None:
    story = replica(replica(master(Story()), "n2", depth=5, digest="other"), "n3")
    history = story.history()
    result = Convergence().check(history)
    assert result.valid is False
    (anomaly,) = result.anomalies
    assert anomaly.kind == "diverged"
    assert anomaly.summary == "n2 holds 5 messages, not the 7 that n1 holds of q"
    nodes = history.events["node"].to_pylist()
    assert [nodes[row] for row in anomaly.detail["events"]] == ["n1", "n2"]


def test_as_many_but_other_messages_have_diverged() -> None:
    story = replica(master(Story()), "n2", digest="reordered")
    (anomaly,) = Convergence().check(story.history()).anomalies
    assert anomaly.summary == "n2 holds other messages than the 7 that n1 holds of q"


def test_a_mirror_that_is_not_synchronised_may_differ() -> None:
    story = replica(master(Story()), "n2", depth=0, digest="", synchronised=False)
    assert Convergence().check(story.history()).valid is True


def test_queues_are_compared_apart() -> None:
    story = replica(master(Story()), "n2", "master", group="r", digest="another", depth=1)
    replica(story, "n1", group="r", digest="another", depth=1)
    assert Convergence().check(story.history()).valid is True
    replica(story, "n3", group="r", depth=7)
    result = Convergence().check(story.history())
    assert [anomaly.detail["group"] for anomaly in result.anomalies] == ["r"]


def test_the_last_look_counts() -> None:
    story = replica(master(Story()), "n2", depth=3, digest="behind")
    assert Convergence().check(story.history()).valid is False
    assert Convergence().check(replica(story, "n2", at=63.2).history()).valid is True


def test_two_masters_at_the_end_have_diverged() -> None:
    story = replica(master(Story()), "n2", "master", epoch=9)
    result = Convergence().check(story.history())
    (anomaly,) = result.anomalies
    assert anomaly.kind == "diverged" and anomaly.summary == "n2 and n1 are both master of q"


def test_what_was_not_compared_is_unknown() -> None:
    nothing = Convergence().check(Story().role("n1", 0, "master").history())
    assert nothing.valid == "unknown" and "nothing was compared" in nothing.notes[0]
    headless = Convergence().check(replica(Story(), "n2").history())
    assert headless.valid == "unknown" and headless.notes == (
        "q had no master to compare its mirrors with.",
    )


def test_logs_are_compared_in_bytes() -> None:
    story = Story()
    for node, role, digest in (("n1", "master", "a"), ("n2", "slave", "b")):
        story.event(node, 63, "replica", role, 4, group="shalott", depth=4096, digest=digest,
                    synchronised=True, unit="bytes")  # fmt: skip
    (anomaly,) = Convergence().check(story.history()).anomalies
    assert anomaly.summary == "n2 holds other bytes than the 4096 that n1 holds of shalott"


def test_what_a_node_cannot_read_is_said_instead_of_how_much_it_is() -> None:
    story = replica(Story(), "n1", "master", depth=0, digest="unreadable on n1: it is damaged")
    result = Convergence().check(replica(story, "n2").history())
    (anomaly,) = result.anomalies
    assert anomaly.summary == "what n1 holds of q is unreadable on n1: it is damaged"


# -- logs, by what brokers answered ----------------------------------------------------------------


def log_row(story: Story, node: str, role: str = "slave", **more: object) -> Story:
    extra = {
        "group": "g", "role": role, "epoch": 4, "depth": 7, "unit": "bytes", "digest": "same",
        "synchronised": True, **more,
    }  # fmt: skip
    return story.around("replica", 63, 63.1, node=node, extra=extra)


def test_logs_are_judged_by_rows_in_every_world() -> None:
    story = log_row(log_row(Story(), "n1", "master"), "n2")
    assert Convergence().check(story.history()).valid is True
    log_row(story, "n3", digest="other", differs_at=5)
    (anomaly,) = Convergence().check(story.history()).anomalies
    assert anomaly.summary == (
        "n3 holds other bytes than the 7 that n1 holds of g; the first byte that differs is at 5"
    )
    assert len(anomaly.operations) == 2 and not anomaly.detail["events"]


def test_bytes_that_differ_behind_where_readers_go_have_diverged() -> None:
    story = log_row(log_row(Story(), "n1", "master"), "n2", differs_at=9)
    assert Convergence().check(story.history()).valid is False


def test_a_log_that_ends_too_early_may_still_grow_where_nothing_had_settled() -> None:
    def told(settled: bool, **more: object) -> Story:
        story = log_row(log_row(Story(), "n1", "master"), "n2", depth=5, digest="d", **more)
        return story.around("phase", 60, 62, extra={"phase": "settle", "settled": settled})

    assert Convergence().check(told(True).history()).valid is False
    unsettled = Convergence().check(told(False).history())
    assert (
        unsettled.valid == "unknown" and "had not settled: n2 holds 5 bytes" in unsettled.notes[0]
    )
    assert Convergence().check(told(False, differs_at=2).history()).valid is False


def test_who_did_not_say_what_it_holds_leaves_it_open() -> None:
    story = log_row(log_row(Story(), "n1", "master"), "n2")
    story.around("replica", 63, 63.1, "info", node="n3", error="no answer")
    result = Convergence().check(story.history())
    assert result.valid == "unknown" and result.notes == (
        "n3 did not say what it holds: no answer.",
    )
