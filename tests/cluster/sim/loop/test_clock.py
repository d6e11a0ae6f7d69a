"""Clocks that drift and jump: never back, exactly invertible, true again when restored."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess

pytestmark = pytest.mark.unit

SECOND_NS = 1_000_000_000
ORIGIN_NS = 1_700_000_000 * SECOND_NS
DRIFTS_PPM = st.floats(-900_000, 2_000_000, allow_nan=False)


class Now:
    """The true time, as a test sets it."""

    def __init__(self) -> None:
        self.now_ns = 1000 * SECOND_NS


def test_a_clock_that_was_never_set_is_true() -> None:
    now = Now()
    clock = NodeClock(now, wall_origin_ns=ORIGIN_NS)
    now.now_ns += 12_345
    assert clock.monotonic_ns() == now.now_ns
    assert clock.wall_ns() == ORIGIN_NS + now.now_ns
    assert clock.offset_ms() == 0


def test_only_the_wall_clock_jumps() -> None:
    now = Now()
    clock = NodeClock(now, wall_origin_ns=ORIGIN_NS)
    clock.set(-250.5, 0)
    assert clock.monotonic_ns() == now.now_ns
    assert clock.wall_ns() == ORIGIN_NS + now.now_ns - 250_500_000
    assert clock.offset_ms() == -250.5


def test_drift_moves_both_clocks_and_a_restored_wall_clock_is_true_again() -> None:
    now = Now()
    clock = NodeClock(now, wall_origin_ns=ORIGIN_NS, drift_ppm=100_000)
    start_ns = clock.monotonic_ns()
    now.now_ns += 10 * SECOND_NS
    assert clock.monotonic_ns() - start_ns == 11 * SECOND_NS
    assert clock.offset_ms() == 1000
    clock.set(0, 0)
    assert clock.offset_ms() == 0
    assert clock.wall_ns() == ORIGIN_NS + now.now_ns
    # What the monotonic clock gained it keeps: giving it back would be going back.
    assert clock.monotonic_ns() - start_ns == 11 * SECOND_NS
    now.now_ns += 5
    assert clock.monotonic_ns() - start_ns == 11 * SECOND_NS + 5


def test_drift_is_exact_over_a_year() -> None:
    now = Now()
    clock = NodeClock(now, wall_origin_ns=ORIGIN_NS, drift_ppm=0.001)
    start_ns = now.now_ns
    now.now_ns += 31_536_000 * SECOND_NS
    assert clock.monotonic_ns() == now.now_ns + (now.now_ns - start_ns) // 10**9


def test_a_clock_that_stands_still_is_refused() -> None:
    clock = NodeClock(Now(), wall_origin_ns=ORIGIN_NS)
    with pytest.raises(AssertionError):
        clock.set(0, -1_000_000)


@pytest.mark.explore
@given(
    st.lists(
        st.tuples(st.integers(0, 10 * SECOND_NS), st.floats(-1e6, 1e6), DRIFTS_PPM), max_size=8
    )
)
def test_the_monotonic_clock_never_goes_back(changes: list[tuple[int, float, float]]) -> None:
    now = Now()
    clock = NodeClock(now, wall_origin_ns=ORIGIN_NS)
    last_ns = clock.monotonic_ns()
    for elapsed_ns, offset_ms, drift_ppm in changes:
        clock.set(offset_ms, drift_ppm)
        assert clock.monotonic_ns() == last_ns, "a change of the drift is no jump"
        now.now_ns += elapsed_ns
        assert clock.monotonic_ns() >= last_ns
        last_ns = clock.monotonic_ns()


@given(DRIFTS_PPM, st.integers(0, SECOND_NS), st.integers(0, 10**13))
def test_global_ns_is_the_first_moment_at_which_the_clock_shows_a_time(
    drift_ppm: float, before_ns: int, ahead_ns: int
) -> None:
    now = Now()
    clock = NodeClock(now, wall_origin_ns=ORIGIN_NS)
    clock.set(0, drift_ppm)
    now.now_ns += before_ns
    wanted_ns = clock.monotonic_ns() + ahead_ns
    at_ns = clock.global_ns(wanted_ns)
    assert clock.local_ns(at_ns) >= wanted_ns
    assert clock.local_ns(at_ns - 1) < wanted_ns


def test_timers_of_a_drifting_process_run_by_its_own_clock() -> None:
    loop = SimLoop()
    clock = NodeClock(loop, wall_origin_ns=0, drift_ppm=250_000)
    process = SimProcess("n1", clock=clock)
    start_ns = loop.now_ns

    async def main() -> tuple[float, int]:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(5)
        return asyncio.get_running_loop().time() - began, loop.now_ns - start_ns

    local_s, elapsed_ns = loop.run(main(), process)
    assert local_s == pytest.approx(5, abs=1e-6)
    assert elapsed_ns == 4 * SECOND_NS
