"""asyncio.gather in a simulation: the same number of turns of the loop on every version of Python,
and otherwise what asyncio's own does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from tests.world.clock.both_loops import agree

pytestmark = pytest.mark.unit


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return SimLoop().run(main, SimProcess("harness", fenced=False))


async def value(of: Any) -> Any:
    return of


async def failing() -> None:
    raise ValueError("planted")


def test_children_that_are_done_take_their_turn() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        done = [asyncio.create_task(value(number)) for number in range(2)]
        await asyncio.wait(done)
        loop.call_soon(seen.append, "first")
        gathering = asyncio.gather(*done)
        seen.append("not yet" if not gathering.done() else "at once")
        await gathering
        seen.append("then")
        return seen

    assert run(main()) == ["not yet", "first", "then"]


def test_outside_of_a_simulation_gather_is_asyncios_own() -> None:
    own = asyncio.gather

    async def main() -> bool:
        return asyncio.gather is own

    async def broken() -> None:
        raise ValueError("planted")

    assert run(main()) is False
    assert asyncio.gather is own
    with pytest.raises(ValueError, match="planted"):
        run(broken())
    assert asyncio.gather is own


def test_one_child_twice_is_one_child() -> None:
    async def program() -> Any:
        child = asyncio.create_task(value("once"))
        return await asyncio.gather(child, value("other"), child)

    assert agree(program) == ["once", "other", "once"]


def test_what_children_do_after_the_first_error_is_nobodys_loss() -> None:
    async def program() -> Any:
        told: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what))
        try:
            await asyncio.gather(failing(), failing(), value(1))
        except ValueError as error:
            told.append(str(error))
        await asyncio.sleep(0.01)
        return told

    assert agree(program) == ["planted"]


@pytest.mark.parametrize("return_exceptions", [False, True])
def test_a_cancelled_child_and_a_cancelled_gathering(return_exceptions: bool) -> None:
    async def program() -> Any:
        seen: list[str] = []
        child = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(child.cancel)
        try:
            results = await asyncio.gather(child, value(1), return_exceptions=return_exceptions)
            seen.append(repr(results))
        except asyncio.CancelledError:
            seen.append("cancelled")
        children = [asyncio.create_task(asyncio.sleep(60)) for _ in range(2)]
        gathering = asyncio.gather(*children, return_exceptions=return_exceptions)
        await asyncio.sleep(0)
        seen.append(str(gathering.cancel()))
        try:
            await gathering
        except asyncio.CancelledError:
            seen.append(f"cancelled {gathering.done()} {gathering.cancel()}")
        seen += [str(one.cancelled()) for one in children]
        return seen

    first = "[CancelledError(''), 1]" if return_exceptions else "cancelled"
    assert agree(program) == [first, "True", "cancelled True False", "True", "True"]
