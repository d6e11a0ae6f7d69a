"""The relays' process: it relays whatever the harness does, and says when it could not."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from shalott.cluster.local.relay import HOST
from shalott.cluster.local.relay_link import RelayProcess
from shalott.cluster.nodes import Endpoint, HelperEnd
from shalott.cluster.owner import process_state
from shalott.cluster.stalls import STALL_S, Stall
from shalott.cluster.waiting import wait_until
from shalott.core.errors import HarnessError

pytestmark = pytest.mark.local

SOON_S = 10
Scenario = Callable[[RelayProcess, socket.socket, list[Stall]], Awaitable[None]]


def with_process(tmp_path: Path, scenario: Scenario) -> None:
    """``scenario`` gets the relays, the socket where node b listens, and the stalls told."""

    async def main() -> None:
        relays, stalls = RelayProcess(("a", "b")), list[Stall]()
        relays.tell_stalls(stalls.append)
        with socket.create_server((HOST, 0)) as server:
            server.settimeout(SOON_S)
            at = {"cluster": Endpoint(HOST, server.getsockname()[1])}
            try:
                await relays.start(tmp_path / "relays.log")
                await relays.open({"a": at, "b": at})
                await scenario(relays, server, stalls)
            finally:
                await relays.close()
        assert relays.identity is None

    asyncio.run(main())


def pid_of(relays: RelayProcess) -> int:
    assert relays.identity is not None
    return relays.identity[0]


def dial(relays: RelayProcess, server: socket.socket) -> tuple[socket.socket, socket.socket]:
    at = relays.endpoint("a", "b", "cluster")
    near = socket.create_connection((at.host, at.port), SOON_S)
    far, _ = server.accept()
    far.settimeout(SOON_S)
    return near, far


def test_a_harness_that_does_nothing_else_is_no_slow_network(tmp_path: Path) -> None:
    async def scenario(relays: RelayProcess, server: socket.socket, stalls: list[Stall]) -> None:
        # Everything here blocks the harness's event loop, and bytes pass nevertheless.
        near, far = dial(relays, server)
        with near, far:
            near.sendall(b"there")
            assert far.recv(5) == b"there"
            far.sendall(b"back")
            assert near.recv(4) == b"back"

    with_process(tmp_path, scenario)


def test_a_cut_that_was_answered_is_in_force_and_so_is_its_mend(tmp_path: Path) -> None:
    async def scenario(relays: RelayProcess, server: socket.socket, stalls: list[Stall]) -> None:
        near, far = dial(relays, server)
        with near, far:
            await relays.cut([("a", "b")])
            near.sendall(b"held")
            far.setblocking(False)
            with pytest.raises(BlockingIOError):
                far.recv(4)
            assert not await relays.probe("a", "b", 50)
            assert await relays.probe("b", "a", SOON_S * 1000)
            await relays.cut([])
            assert await relays.probe("a", "b", SOON_S * 1000)
            far.settimeout(SOON_S)
            assert far.recv(4) == b"held"

    with_process(tmp_path, scenario)


def test_a_shape_is_what_the_process_says_it_is(tmp_path: Path) -> None:
    async def scenario(relays: RelayProcess, server: socket.socket, stalls: list[Stall]) -> None:
        await relays.shape(("a", "b"), 0.25, 1000)
        found = await relays.shape_of(("a", "b"))
        assert (found.delay_ms, found.rate_bytes_s) == (250, 1000)
        assert (await relays.shape_of(("b", "a"))).delay_ms == 0
        await relays.restore_shapes()
        assert (await relays.shape_of(("a", "b"))).delay_ms == 0

    with_process(tmp_path, scenario)


def test_it_says_when_it_was_stopped(tmp_path: Path) -> None:
    async def scenario(relays: RelayProcess, server: socket.socket, stalls: list[Stall]) -> None:
        clock = asyncio.get_running_loop().time
        pid, began_s = pid_of(relays), clock()
        os.kill(pid, signal.SIGSTOP)
        assert await wait_until(lambda: process_state(pid) == "T", SOON_S, 0.001)
        await asyncio.sleep(2 * STALL_S)  # nothing tells of time that passes
        os.kill(pid, signal.SIGCONT)
        assert await wait_until(lambda: bool(stalls), SOON_S, 0.01)
        assert stalls[0].kind == "relays" and stalls[0].begin_s >= began_s - 0.1
        assert stalls[0].end_s - stalls[0].begin_s > STALL_S

    with_process(tmp_path, scenario)


def test_when_it_ends_it_is_told_and_every_order_fails(tmp_path: Path) -> None:
    async def scenario(relays: RelayProcess, server: socket.socket, stalls: list[Stall]) -> None:
        os.kill(pid_of(relays), signal.SIGSTOP)
        asked = asyncio.create_task(relays.probe("a", "b", SOON_S * 1000))
        ends: list[HelperEnd] = []
        relays.on_end = ends.append
        os.kill(pid_of(relays), signal.SIGKILL)
        with pytest.raises(HarnessError, match="the relays' process ended"):
            await asked
        assert [ended.helper for ended in ends] == ["relays"] and not stalls
        with pytest.raises(HarnessError, match="no node hears another"):
            await relays.cut([("a", "b")])

    with_process(tmp_path, scenario)
