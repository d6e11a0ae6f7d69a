"""Callbacks, tasks and timeouts behave the same on asyncio's own loop and on the simulated one."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from tests.world.clock.both_loops import agree

pytestmark = pytest.mark.unit

SHORT_S = 0.01
LATER_S = 0.3  # surely after SHORT_S, on a busy machine too
LONG_S = 60


async def later(value: Any, delay_s: float = SHORT_S) -> Any:
    await asyncio.sleep(delay_s)
    return value


async def failing(delay_s: float = SHORT_S) -> None:
    await asyncio.sleep(delay_s)
    raise ValueError("planted")


def test_callbacks_run_in_the_order_in_which_they_were_called_soon() -> None:
    async def program() -> Any:
        loop, seen = asyncio.get_running_loop(), list[str]()

        def nested(name: str) -> None:
            seen.append(name)
            loop.call_soon(seen.append, f"{name} nested")

        for name in "abc":
            loop.call_soon(nested, name)
        loop.call_soon(seen.append, "d").cancel()
        await asyncio.sleep(0)
        seen.append("between")
        await asyncio.sleep(0)
        return seen

    assert agree(program) == ["a", "b", "c", "between", "a nested", "b nested", "c nested"]


def test_timers_run_by_deadline_and_not_when_cancelled() -> None:
    async def program() -> Any:
        loop, seen = asyncio.get_running_loop(), list[str]()
        handles = [
            loop.call_later(0.03, seen.append, "third"),
            loop.call_later(0.01, seen.append, "first"),
            loop.call_at(loop.time() + 0.02, seen.append, "second"),
            loop.call_later(0.015, seen.append, "cancelled"),
        ]
        handles[3].cancel()
        loop.call_soon(seen.append, "at once")
        loop.call_later(0, seen.append, "zero")
        await asyncio.sleep(0.06)
        in_order = handles[1].when() < handles[2].when() < handles[0].when()
        return seen, in_order, [handle.cancelled() for handle in handles]

    assert agree(program) == (
        ["at once", "zero", "first", "second", "third"],
        True,
        [False, False, False, True],
    )


def test_tasks_take_turns() -> None:
    async def program() -> Any:
        seen: list[str] = []

        async def step(name: str) -> None:
            for number in range(3):
                seen.append(f"{name}{number}")
                await asyncio.sleep(0)

        await asyncio.gather(step("a"), step("b"))
        return seen

    assert agree(program) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_cancelled_task_may_clean_up_or_refuse() -> None:
    async def program() -> Any:
        seen: list[Any] = []

        async def cleans_up() -> None:
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError as error:
                seen.append(("cancelled", error.args))
                await asyncio.sleep(0)
                raise
            finally:
                seen.append("finally")

        async def refuses() -> str:
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                seen.append(("asked", task.cancelling(), task.uncancel()))
            return "stayed"

        first, second = asyncio.create_task(cleans_up()), asyncio.create_task(refuses())
        never = asyncio.create_task(later("never begun"))
        never.cancel()
        await asyncio.sleep(0)
        seen.append((first.cancel("a reason"), second.cancel()))
        results = await asyncio.gather(first, second, never, return_exceptions=True)
        return seen, [r if isinstance(r, str) else type(r).__name__ for r in results]

    assert agree(program) == (
        [(True, True), ("cancelled", ("a reason",)), ("asked", 1, 0), "finally"],
        ["CancelledError", "stayed", "CancelledError"],
    )


def test_a_task_group_waits_for_all_its_tasks() -> None:
    async def program() -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(later(number, 0.001 * number)) for number in (3, 1, 2)]
            tasks.append(group.create_task(nested(group)))
        return [task.result() for task in tasks]

    async def nested(group: asyncio.TaskGroup) -> str:
        group.create_task(later("inner"))
        return "outer"

    assert agree(program) == [3, 1, 2, "outer"]


def test_a_failure_in_a_task_group_cancels_the_others() -> None:
    async def program() -> Any:
        ended: list[int] = []

        async def waits(number: int) -> None:
            try:
                await asyncio.sleep(LONG_S)
            finally:
                ended.append(number)

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(waits(number))
                group.create_task(failing())
                await asyncio.sleep(LONG_S)
        except ExceptionGroup as errors:
            return sorted(ended), [str(error) for error in errors.exceptions]

    assert agree(program) == ([0, 1, 2, 3, 4], ["planted"])


def test_timeouts_expire_are_rescheduled_and_nest() -> None:
    async def program() -> Any:
        loop, seen = asyncio.get_running_loop(), list[Any]()
        try:
            async with asyncio.timeout(SHORT_S) as scope:
                await asyncio.sleep(LONG_S)
        except TimeoutError:
            seen.append(("expired", scope.expired()))
        async with asyncio.timeout(LONG_S) as scope:
            scope.reschedule(None)
            seen.append((scope.when(), await later("in time")))
        try:
            async with asyncio.timeout_at(loop.time() + SHORT_S):
                async with asyncio.timeout(LONG_S) as inner:
                    await asyncio.sleep(LONG_S)
        except TimeoutError:
            seen.append(("outer", inner.expired()))
        try:
            async with asyncio.timeout(0):
                await asyncio.sleep(LONG_S)
        except TimeoutError:
            seen.append("at once")
        return seen

    assert agree(program) == [("expired", True), (None, "in time"), ("outer", False), "at once"]


def test_wait_for_returns_times_out_and_hands_cancellation_on() -> None:
    async def program() -> Any:
        seen: list[Any] = [await asyncio.wait_for(later("in time"), LONG_S)]

        async def notices() -> None:
            try:
                await asyncio.sleep(LONG_S)
            except asyncio.CancelledError:
                seen.append("inner cancelled")
                raise

        try:
            await asyncio.wait_for(notices(), SHORT_S)
        except TimeoutError:
            seen.append("timeout")
        waiting = asyncio.create_task(asyncio.wait_for(notices(), LONG_S))
        await asyncio.sleep(SHORT_S)
        waiting.cancel()
        await asyncio.wait([waiting])
        seen.append(waiting.cancelled())
        try:
            await asyncio.wait_for(failing(), None)
        except ValueError as error:
            seen.append(str(error))
        return seen

    assert agree(program) == [
        "in time", "inner cancelled", "timeout", "inner cancelled", True, "planted",
    ]  # fmt: skip


def test_a_shielded_task_goes_on() -> None:
    async def program() -> Any:
        inner = asyncio.create_task(later("survived", LATER_S))
        outer = asyncio.create_task(_shielded(inner))
        await asyncio.sleep(0)
        outer.cancel()
        await asyncio.wait([outer])
        return outer.cancelled(), inner.done(), await inner

    assert agree(program) == (True, False, "survived")


async def _shielded(task: asyncio.Task[Any]) -> Any:
    return await asyncio.shield(task)


def test_gather_keeps_the_order_and_raises_the_first_error() -> None:
    async def program() -> Any:
        seen: list[Any] = [await asyncio.gather(later("slow", 0.02), later("fast", 0.001))]
        results = await asyncio.gather(later(1), failing(), return_exceptions=True)
        seen.append([repr(result) for result in results])
        other = asyncio.create_task(later("goes on", LATER_S))
        try:
            await asyncio.gather(failing(), other)
        except ValueError:
            seen.append(("raised", other.done()))
        seen.append(await other)
        children = [asyncio.create_task(later(n, LONG_S)) for n in range(2)]
        together = asyncio.gather(*children)
        await asyncio.sleep(0)
        together.cancel()
        try:
            await together
        except asyncio.CancelledError:
            seen.append([child.cancelled() for child in children])
        seen.append(await asyncio.gather())
        return seen

    assert agree(program) == [
        ["slow", "fast"],
        ["1", "ValueError('planted')"],
        ("raised", False),
        "goes on",
        [True, True],
        [],
    ]


@pytest.mark.parametrize(
    ("until", "timeout_s", "expected"),
    [
        (asyncio.FIRST_COMPLETED, None, (["fast"], 2)),
        (asyncio.FIRST_EXCEPTION, None, (["fast", "failed"], 1)),
        (asyncio.ALL_COMPLETED, 2 * LATER_S, (["fast", "failed"], 1)),
        (asyncio.ALL_COMPLETED, 0, (["fast"], 2)),
    ],
)
def test_wait_returns_when_it_should(until: str, timeout_s: float | None, expected: Any) -> None:
    async def program() -> Any:
        names = {"fast": later(1, 0), "failed": failing(LATER_S), "slow": later(1, LONG_S)}
        tasks = [asyncio.create_task(coroutine, name=name) for name, coroutine in names.items()]
        done, pending = await asyncio.wait(tasks, timeout=timeout_s, return_when=until)
        in_order = [task.get_name() for task in tasks if task in done]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return in_order, len(pending)

    assert agree(program) == expected


def test_futures_tell_their_callbacks_in_order() -> None:
    async def program() -> Any:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        seen: list[Any] = []

        def unwanted(done: asyncio.Future[int]) -> None:
            seen.append("unwanted")

        future.add_done_callback(lambda done: seen.append(("first", done.result())))
        future.add_done_callback(unwanted)
        future.add_done_callback(lambda done: seen.append("second"))
        seen.append(future.remove_done_callback(unwanted))
        future.set_result(1)
        seen.append("set")
        try:
            future.set_result(2)
        except asyncio.InvalidStateError:
            seen.append("only once")
        seen.append(await future)
        await asyncio.sleep(0)
        future.add_done_callback(lambda done: seen.append("late"))
        await asyncio.sleep(0)
        return seen

    assert agree(program) == [1, "set", "only once", 1, ("first", 1), "second", "late"]


def test_context_variables_belong_to_their_task() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def program() -> Any:
        seen: list[str] = []

        async def changes() -> None:
            variable.set("of the task")
            asyncio.get_running_loop().call_soon(lambda: seen.append(variable.get()))
            await asyncio.sleep(SHORT_S)
            seen.append(variable.get())

        variable.set("of the caller")
        await asyncio.create_task(changes())
        seen.append(variable.get())
        return seen

    assert agree(program) == ["of the task", "of the task", "of the caller"]


def test_a_failing_callback_is_told_to_the_exception_handler() -> None:
    async def program() -> Any:
        loop, told = asyncio.get_running_loop(), list[Any]()
        loop.set_exception_handler(lambda loop, context: told.append(repr(context["exception"])))

        def fail() -> None:
            raise ValueError("planted")

        loop.call_soon(fail)
        loop.call_later(SHORT_S, fail)
        await asyncio.sleep(5 * SHORT_S)
        return told

    assert agree(program) == ["ValueError('planted')"] * 2


def test_asynchronous_generators_are_closed() -> None:
    async def program() -> Any:
        seen: list[Any] = []

        async def numbers() -> AsyncIterator[int]:
            try:
                for number in range(10):
                    yield number
                    await asyncio.sleep(0)
            finally:
                await asyncio.sleep(0)
                seen.append("closed")

        async with aclosing(numbers()) as stream:
            async for number in stream:
                seen.append(number)
                if number == 2:
                    break
        seen.append([number async for number in numbers() if number > 7])
        return seen

    assert agree(program) == [0, 1, 2, "closed", "closed", [8, 9]]


def test_current_tasks_and_their_names() -> None:
    async def program() -> Any:
        async def name() -> str:
            task = asyncio.current_task()
            assert task is not None
            return task.get_name()

        task = asyncio.create_task(name(), name="named")
        names = [await task]
        task.set_name("renamed")
        return [*names, task.get_name(), asyncio.get_running_loop().is_running()]

    assert agree(program) == ["named", "renamed", True]
