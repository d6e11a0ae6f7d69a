"""The simulation's loop: virtual time, order, paused and frozen processes, and its limits."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from shalott.cluster.sim.loop.clock import NodeClock
from shalott.cluster.sim.loop.fences import SimDeadlock, SimLivelock, SimTimeLimit
from shalott.cluster.sim.loop.loop import START_NS, SimLoop
from shalott.cluster.sim.loop.processes import SimProcess

pytestmark = pytest.mark.unit

DAY_S = 86_400


def run(main: Coroutine[Any, Any, Any], loop: SimLoop | None = None) -> Any:
    return (loop or SimLoop()).run(main, SimProcess("harness", fenced=False))


def spawn(name: str, main: Coroutine[Any, Any, Any]) -> SimProcess:
    """A process of its own that runs ``main``."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    process = SimProcess(name)
    loop.add_process(process)
    loop.create_task(main, name=name, context=process.context)
    return process


def test_time_jumps_to_the_next_timer() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(DAY_S)
        return loop.time() - began

    assert run(main()) == DAY_S


def test_timers_of_one_instant_run_in_the_order_in_which_they_were_set() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        at = loop.time() + 1
        for number in range(20):
            loop.call_at(at, seen.append, number)
        await asyncio.sleep(2)
        return seen

    assert run(main()) == list(range(20))


def test_nothing_left_to_wait_for_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(SimDeadlock, match="no timer"):
        run(main())


def test_callbacks_that_stop_time_are_a_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shalott.cluster.sim.loop.loop.CALLBACKS_PER_INSTANT_MAX", 1000)

    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(SimLivelock, match="main"):
        run(main())


def test_a_cost_for_each_callback_moves_time() -> None:
    async def main() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        began = loop.now_ns
        for _ in range(10):
            await asyncio.sleep(0)
        return loop.now_ns - began

    assert run(main(), SimLoop(callback_cost_ns=1000)) == 10_000


def test_the_deadline_ends_a_run() -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    with pytest.raises(SimTimeLimit, match="10"):
        run(main(), SimLoop(deadline_ns=START_NS + 10**10))


def test_a_paused_process_runs_late_and_in_order() -> None:
    async def ticking(seen: list[tuple[int, float]]) -> None:
        for number in range(4):
            await asyncio.sleep(1)
            seen.append((number, asyncio.get_running_loop().time()))

    async def main() -> list[tuple[int, float]]:
        seen: list[tuple[int, float]] = []
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        began = loop.time()
        process = spawn("n1", ticking(seen))
        await asyncio.sleep(1.5)
        process.state = "paused"
        await asyncio.sleep(5)
        assert len(seen) == 1
        loop.resume(process)
        await asyncio.sleep(5)
        return [(number, at - began) for number, at in seen]

    assert run(main()) == [(0, 1), (1, 6.5), (2, 7.5), (3, 8.5)]


def test_a_killed_process_is_frozen_and_no_finally_of_it_runs() -> None:
    seen: list[str] = []

    async def node() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(1))
                await asyncio.sleep(100)
        finally:
            seen.append("goodbye")

    async def main() -> None:
        process = spawn("n1", node())
        await asyncio.sleep(0.5)
        process.freeze()
        await asyncio.sleep(1000)
        assert seen == []

    run(main())


def test_what_a_dead_process_would_have_scheduled_is_dropped() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        assert isinstance(loop, SimLoop)
        process = SimProcess("n1")
        loop.add_process(process)
        loop.call_at_ns(loop.now_ns + 10, seen.append, "dead", process=process)
        loop.call_at_ns(loop.now_ns + 10, seen.append, "nobody's")
        process.freeze()
        await asyncio.sleep(1)
        return seen

    assert run(main()) == ["nobody's"]


def test_children_of_a_process_belong_to_it() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        assert isinstance(loop, SimLoop)

        async def child() -> None:
            seen.append(str(loop.process))
            loop.call_later(1, lambda: seen.append(str(loop.process)))

        async def parent() -> None:
            await asyncio.create_task(child())

        spawn("n7", parent())
        await asyncio.sleep(5)
        return seen

    assert run(main()) == ["n7#1", "n7#1"]


def test_timers_of_a_drifting_process_run_by_its_clock() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        clock = NodeClock(loop, wall_origin_ns=0, drift_ppm=100_000)  # a tenth faster
        process = SimProcess("n1", clock=clock)
        loop.add_process(process)
        done = loop.create_future()

        async def node() -> None:
            began = loop.time()
            await asyncio.sleep(11)
            done.set_result(loop.time() - began)

        began_ns = loop.now_ns
        loop.create_task(node(), context=process.context)
        local_s = await done
        return local_s, (loop.now_ns - began_ns) / 1e9

    local_s, global_s = run(main())
    assert local_s == pytest.approx(11)
    assert global_s == pytest.approx(10)


def test_unhandled_exceptions_reach_who_watches_over_the_process() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        assert isinstance(loop, SimLoop)
        process = SimProcess("n1", on_exception=lambda context: seen.append(context["message"]))
        loop.add_process(process)
        loop.call_at_ns(loop.now_ns + 1, lambda: 1 // 0, process=process)
        await asyncio.sleep(1)
        return seen

    assert len(run(main())) == 1


def test_a_task_group_aborts_its_children_in_the_order_of_their_creation() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        junk: list[object] = []

        async def child(number: int) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                seen.append(number)

        async def failing() -> None:
            await asyncio.sleep(1)
            raise ValueError

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(failing())
                for number in range(12):
                    junk.append(bytearray(1 + 997 * number))  # so that addresses vary
                    group.create_task(child(number))
        return seen

    assert run(main()) == list(range(12))


def test_futures_in_a_set_come_in_the_order_in_which_they_were_hashed() -> None:
    async def main() -> list[int]:
        loop = asyncio.get_running_loop()
        futures, junk = list[asyncio.Future[int]](), list[object]()
        for number in range(12):
            junk.append(bytearray(1 + 997 * number))  # so that addresses vary
            futures.append(loop.create_future())
        wanted = futures[::-1]
        assert list(map(hash, wanted)) == list(map(hash, wanted)), "a hash stays what it was"
        return [futures.index(one) for one in set(futures)]

    assert run(main()) == list(range(12))[::-1]


def test_a_generator_that_is_left_half_way_ends_in_silence() -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("ended")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)

    with pytest.MonkeyPatch.context() as patch:
        ignored: list[object] = []
        patch.setattr(sys, "unraisablehook", ignored.append)
        SimLoop().run(main(), SimProcess("n1"))
        assert not ignored and not ended
