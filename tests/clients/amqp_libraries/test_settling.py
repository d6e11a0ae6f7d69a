"""What is said of deliveries through a library: as the plan says, and nothing after the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shalott.clients.amqp_libraries.library import Settler
from shalott.clients.amqp_libraries.library_client import Hosts
from shalott.core.subscription import PLAIN, Settling, Verdict
from tests.world.clock.turns import turns

pytestmark = pytest.mark.unit


class Said:
    def __init__(self, settling: Settling) -> None:
        self.verdicts: list[tuple[int, Verdict]] = []
        self.asked: list[str] = []
        self.proof = asyncio.Event()
        self.settler = Settler(settling, self._say, self._ask)

    def _say(self, tag: int, verdict: Verdict) -> None:
        self.verdicts.append((tag, verdict))

    def _ask(self, queue: str) -> None:
        self.asked.append(queue)
        self.proof.set()

    async def proved(self) -> None:
        async with asyncio.timeout(5):
            await self.proof.wait()


def played(settling: Settling, act: Callable[[Said], Awaitable[None]]) -> None:
    async def main() -> None:
        await act(Said(settling))

    asyncio.run(main())


def test_each_is_acknowledged_and_one_question_proves_them() -> None:
    async def act(said: Said) -> None:
        said.settler.delivered(1, "q")
        said.settler.delivered(2, "q")
        await said.proved()
        assert [(tag, verdict.said) for tag, verdict in said.verdicts] == [(1, "ack"), (2, "ack")]
        assert said.asked == ["q"]
        assert said.settler.is_idle and not said.settler.unsettled

    played(PLAIN, act)


def test_multiple_settles_what_came_before_it() -> None:
    async def act(said: Said) -> None:
        for tag in (1, 2, 3):
            said.settler.delivered(tag, "q")
        await said.proved()
        ((tag, verdict),) = said.verdicts
        assert (tag, verdict.multiple) == (3, True)
        assert not said.settler.unsettled

    played(Settling(batch=3), act)


def test_what_is_never_settled_is_kept() -> None:
    async def act(said: Said) -> None:
        said.settler.delivered(1, "q")
        assert list(said.settler.kept) == [1] and said.settler.is_idle
        said.settler.calm()
        said.settler.delivered(2, "q")
        await said.proved()
        assert [tag for tag, _ in said.verdicts] == [2]

    played(Settling(never=1.0), act)


def test_what_comes_while_recover_is_under_way_is_taken_back() -> None:
    async def act(said: Said) -> None:
        said.settler.delivered(1, "q")
        await said.proved()
        assert [verdict.said for _, verdict in said.verdicts] == ["recover"]
        said.settler.delivered(2, "q")
        assert not said.settler.unsettled and not said.settler.is_idle
        said.settler.recovered()
        said.settler.delivered(3, "q")
        assert list(said.settler.unsettled) == [3]

    played(Settling(recover=1.0), act)


def test_nothing_is_said_of_a_channel_that_is_over() -> None:
    async def act(said: Said) -> None:
        said.settler.delivered(1, "q")
        said.settler.over()
        said.settler.delivered(2, "q")
        await turns()
        assert said.verdicts == [] and not said.settler.unsettled

    played(PLAIN, act)


class _Host:
    closed = False

    async def close(self) -> None:
        self.closed = True


def test_next_client_of_a_thread_takes_over_what_its_predecessor_left() -> None:
    async def act() -> None:
        hosts: Hosts[_Host] = Hosts()
        host = _Host()
        hosts.park(2, host)
        await turns()
        assert hosts.take(1) is None
        assert hosts.take(2) is host and hosts.take(2) is None
        await turns()
        assert not host.closed

    asyncio.run(act())


def test_what_nobody_takes_over_is_closed_with_the_run() -> None:
    host = _Host()

    async def act() -> None:
        Hosts[_Host]().park(2, host)
        await turns()  # it begins to wait; the end of the run cancels that

    asyncio.run(act())
    assert host.closed
