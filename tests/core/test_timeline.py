"""Where on a run's clock lies what was written by clocks that step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shalott.core.timeline import (
    DOUBT_NS,
    NodeClock,
    Reading,
    RunStart,
    WallClock,
    place_log,
)

pytestmark = pytest.mark.unit

S = 1_000_000_000
START_NS = 1_700_000_000 * S
BOOTED_NS = 5_000 * S  # the machine, before the run began
STEPS_S = [-60, -13.5, -1.5, -0.05, 0.05, 1.5, 13.5, 60]


def stepped(at_s: float, by_s: float) -> WallClock:
    return WallClock([(0, START_NS), (round(at_s * S), START_NS + round(by_s * S))])


@pytest.mark.parametrize("by_s", STEPS_S)
@pytest.mark.parametrize("at_s", [0.1, 5, 39])
def test_a_monotonic_time_is_placed_whatever_the_wall_clock_does(at_s: float, by_s: float) -> None:
    wall = stepped(at_s, by_s)
    start = RunStart.make(START_NS, wall, {"n1": NodeClock(wall, BOOTED_NS)}, end_ns=40 * S)
    for second in range(40):
        shown_ns = second * S + wall.ahead_at(second * S)
        assert start.place("n1", BOOTED_NS + second * S, shown_ns) == second * S
    assert start.reasons() == []


@pytest.mark.parametrize("by_s", STEPS_S)
def test_a_log_that_goes_on_is_placed_by_the_offset_in_force(by_s: float) -> None:
    wall = stepped(20, by_s)
    moments = [n * S // 2 for n in range(80) if n != 40]
    start = RunStart.make(START_NS, wall, {"n1": NodeClock(wall, BOOTED_NS)}, end_ns=40 * S)
    placed = place_log(start, "n1", [each + wall.ahead_at(each) for each in moments])
    assert all(abs(a - b) < DOUBT_NS for a, b in zip(placed, moments, strict=True))
    assert start.reasons() == []


def test_a_log_that_was_silent_across_a_step_backwards_is_in_doubt() -> None:
    wall = stepped(20, -13)
    start = RunStart.make(START_NS, wall, {"n1": NodeClock(wall, BOOTED_NS)}, end_ns=40 * S)
    place_log(start, "n1", [START_NS + 5 * S, START_NS + 10 * S, START_NS + 25 * S])
    (reason,) = start.reasons()
    assert reason.startswith("1 lines of n1 have a wall time that its clock showed twice")


def test_a_wall_time_less_the_start_is_a_time_of_the_run() -> None:
    start = RunStart.make(START_NS, stepped(20, 13))
    assert isinstance(start, int) and start == START_NS and start + 1 == START_NS + 1
    assert START_NS + 10 * S - start == 10 * S
    assert START_NS + 38 * S - start == 25 * S, "after the step"
    assert START_NS + 25 * S - start == 20 * S, "the clock never showed that: the step left it out"
    assert start.reasons() == []
    back = RunStart.make(START_NS, stepped(20, -13))
    assert START_NS + 10 * S - back == 10 * S
    assert len(back.reasons()) == 1, "it showed that at 10 s and at 23 s"
    assert 7 - int(START_NS) == 7 - START_NS and place_log(START_NS, "n1", [START_NS + 3]) == [3]


def test_what_lies_outside_of_the_run_is_not_placed() -> None:
    wall = WallClock([(0, START_NS)])
    start = RunStart.make(START_NS, wall, {"n1": NodeClock(wall, BOOTED_NS)}, end_ns=40 * S)
    assert start.place("n1", BOOTED_NS + 999 * S, START_NS) is None
    assert "1 events of n1 lie outside of the run" in start.reasons()[0]


@settings(max_examples=200, deadline=None)
@given(
    ppm=st.integers(-500, 500), ahead_s=st.integers(-90_000, 90_000), at_s=st.floats(0, 60),
    by_s=st.sampled_from(STEPS_S), latency_ms=st.integers(0, 8),
)  # fmt: skip
def test_another_host_s_clocks_are_read_again_and_again(
    ppm: int, ahead_s: int, at_s: float, by_s: float, latency_ms: int
) -> None:
    """Its monotonic clock drifts, its wall clock is wrong, and stepped once."""
    clock, steps = NodeClock(WallClock()), []

    def monotonic_ns(run_ns: int) -> int:
        return 77 * S + run_ns + run_ns * ppm // 1_000_000

    def wall_ns(run_ns: int) -> int:
        return START_NS + ahead_s * S + run_ns + (round(by_s * S) if run_ns > at_s * S else 0)

    for number in range(31):
        run_ns = number * 2 * S
        late_ns = latency_ms * 1_000_000 * (number % 2)
        seen = Reading(run_ns + late_ns, wall_ns(run_ns), monotonic_ns(run_ns))
        steps.append(clock.read(seen))
    start = RunStart.make(START_NS, None, {"n1": clock}, end_ns=60 * S)
    for run_ns in range(0, 60 * S, S // 3):
        placed = start.place("n1", monotonic_ns(run_ns), wall_ns(run_ns))
        assert placed is not None and abs(placed - run_ns) < 12_000_000
    found = [step for step in steps if step is not None]
    if 2 < at_s < 58:
        (step,) = [each for each in found if abs(each.by_ns - by_s * S) < 15_000_000]
        assert step.begin_ns - 10_000_000 <= at_s * S <= step.end_ns


def test_a_host_without_a_monotonic_clock_is_placed_by_its_wall_clock() -> None:
    clock = NodeClock(WallClock())
    for run_ns in range(0, 40 * S, 2 * S):
        ahead_ns = START_NS + 3 * S + (13 * S if run_ns >= 20 * S else 0)
        clock.read(Reading(run_ns, run_ns + ahead_ns))
    start = RunStart.make(START_NS, None, {"n1": clock}, end_ns=40 * S)
    assert start.place("n1", 1, START_NS + 3 * S + 5 * S) == 5 * S
    assert start.place("n1", 1, START_NS + 16 * S + 30 * S) == 30 * S


def test_a_clock_that_is_slewed_is_followed_and_was_not_stepped() -> None:
    clock = NodeClock(WallClock())

    def wall_ns(run_ns: int) -> int:
        return START_NS + run_ns + run_ns * 500 // 1_000_000  # as fast as NTP slews

    for run_ns in range(0, 600 * S, 2 * S):
        assert clock.read(Reading(run_ns, wall_ns(run_ns))) is None
    start = RunStart.make(START_NS, None, {"n1": clock}, end_ns=600 * S)
    for run_ns in range(0, 598 * S, 7 * S):
        (placed,) = start.place_log("n1", [wall_ns(run_ns)])
        assert abs(placed - run_ns) < 25_000_000
    assert start.reasons() == []
