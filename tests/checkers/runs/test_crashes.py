"""crashes: a process that ends by its own exception, unless the disk under it is broken."""

from __future__ import annotations

import pytest

from shalott.checkers.runs.deaths import Crashes
from tests.checkers.histories import Story

pytestmark = pytest.mark.unit

ASSERTION = "crash: AssertionError: the row names another master"
STORAGE = "crash: StorageError: queues/q/journal: Input/output error"


def crashed(at: float = 20, reason: str = ASSERTION, node: str = "n2") -> Story:
    story = Story().role("n1", 0, "master")
    return story.event(node, at, "crashed", group="", process="the process of queue 'q'",
                       reason=reason)  # fmt: skip


def test_a_run_without_crashes_is_valid() -> None:
    result = Crashes().check(Story().role("n1", 0, "master").history())
    assert result.valid is True and not result.anomalies
    assert result.counts == {"crashed-count": 0, "excused-crash-count": 0}


def test_a_crash_is_reported_with_its_process_and_reason() -> None:
    history = crashed().history()
    result = Crashes().check(history)
    assert result.valid is False and result.counts["crashed-count"] == 1
    (anomaly,) = result.anomalies
    assert anomaly.kind == "crashed"
    assert anomaly.summary == (
        "the process of queue 'q' on n2 at 20.000 s: AssertionError: the row names another master"
    )
    assert history.events["kind"].to_pylist()[anomaly.detail["events"][0]] == "crashed"


def test_only_crashes_of_one_kind_count_where_that_is_asked() -> None:
    history = crashed().history()
    assert Crashes("names another master").check(history).valid is False
    other = Crashes("case_clause").check(history)
    assert other.valid is True and other.counts["crashed-count"] == 0


@pytest.mark.parametrize("kind", ["disk-full", "disk-error", "disk-corrupt"])
@pytest.mark.parametrize(
    "error",
    [
        "StorageError: short",
        "the ledger is damaged at 17160",
        "DiskFull: no room",
        "OSError: [Errno 5] Input/output error",
        "checkpoint: Input/output error",
        "journal: No space left on device",
    ],
)
def test_a_storage_error_under_a_disk_fault_is_excused(kind: str, error: str) -> None:
    story = crashed(reason=f"crash: {error}").fault(1, kind, 15, 25, ["n2"])
    result = Crashes().check(story.history())
    assert result.valid is True and not result.anomalies
    assert result.counts == {"crashed-count": 0, "excused-crash-count": 1}


def test_a_fault_in_a_moment_excuses_what_it_does_in_that_instant() -> None:
    """Rows of one instant follow each other by a nanosecond, and the fault's comes last."""
    story = crashed(reason="crash: StorageError: short")
    story.fault(1, "disk-error", 20 + 1e-8, 25, ["n2"])
    assert Crashes().check(story.history()).valid is True


@pytest.mark.parametrize("kind", ["disk-error", "disk-corrupt"])
def test_what_a_disk_lost_may_be_met_later(kind: str) -> None:
    story = crashed(40, STORAGE).fault(1, kind, 15, 25, ["n2"])
    assert Crashes().check(story.history()).valid is True


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        (STORAGE, None),
        (STORAGE, ("disk-error", 15, 25, ["n1", "n3"])),  # another node's
        (STORAGE, ("disk-error", 30, 35, ["n2"])),  # later
        (STORAGE, ("disk-full", 5, 10, ["n2"])),  # long over, and nothing was lost
        (STORAGE, ("disk-short", 15, 25, ["n2"])),  # a short write is to be continued
        (STORAGE, ("disk-slow", 15, 25, ["n2"])),
        (STORAGE, ("power", 15, 18, ["n2"])),  # a power loss must be survived
        (ASSERTION, ("disk-error", 15, 25, ["n2"])),  # no error of the disk's
    ],
)
def test_nothing_else_is_excused(
    reason: str, fault: tuple[str, float, float, list[str]] | None
) -> None:
    story = crashed(reason=reason)
    if fault is not None:
        story.fault(1, *fault)
    result = Crashes().check(story.history())
    assert result.valid is False and [a.kind for a in result.anomalies] == ["crashed"]


def test_a_skipped_fault_excuses_nothing() -> None:
    story = crashed(reason=STORAGE).fault(1, "disk-error", 15, 25, ["n2"], skipped="too late")
    assert Crashes().check(story.history()).valid is False


@pytest.mark.parametrize(
    ("effects", "is_excused"), [(["troubles-disk", "breaks-disk"], True), (["cuts-links"], False)]
)
def test_a_fault_of_somebody_elses_excuses_by_what_it_did(
    effects: list[str], is_excused: bool
) -> None:
    story = crashed(reason=STORAGE).fault(1, "moth", 15, 25, ["n2"], effects=effects)
    assert Crashes().check(story.history()).valid is is_excused
