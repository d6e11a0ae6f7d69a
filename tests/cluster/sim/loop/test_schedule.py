"""Priorities of who goes first: an order that no timing shows, and what keeps its order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.loop.schedule import By, Priorities
from shalott.cluster.sim.network.network import NetworkKnobs, SimNetwork

pytestmark = pytest.mark.unit

MS = 1_000_000


def wake_ups(seed: int | None, *, points: Sequence[int] = (), window_ns: int = 5 * MS) -> list[str]:
    """Three processes wake up three times each, in turn, a millisecond apart."""
    loop, seen = SimLoop(), []
    if seed is not None:
        loop.priorities = Priorities(seed, by="process", window_ns=window_ns, points=points)
    processes = [SimProcess(name) for name in "abc"]

    async def wake(name: str, offset: int) -> None:
        for turn in range(3):
            await asyncio.sleep((1 + offset if turn == 0 else 3) / 1000)
            seen.append(f"{name}{turn}")

    async def main() -> None:
        for offset, process in enumerate(processes):
            loop.add_process(process)
            loop.create_task(wake(process.name, offset), context=process.context)
        await asyncio.sleep(1)

    loop.run(main(), SimProcess("harness", fenced=False))
    return seen


def test_without_priorities_who_is_due_first_goes_first() -> None:
    assert wake_ups(None) == ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]
    assert wake_ups(1, window_ns=0) == wake_ups(None)


def test_priorities_show_every_order_and_a_process_keeps_its_own() -> None:
    orders = {"".join(wake_ups(seed)) for seed in range(30)}
    assert len(orders) >= 6
    for order in orders:
        for name in "abc":
            assert [order.index(f"{name}{turn}") for turn in range(3)] == sorted(
                order.index(f"{name}{turn}") for turn in range(3)
            )
    # In this one c goes twice before a has gone at all: no timing of these delays shows it.
    assert any(order.index("c1") < order.index("a0") for order in orders)
    assert [wake_ups(7), wake_ups(7)] == [wake_ups(7)] * 2


def test_at_a_change_point_who_goes_becomes_the_last() -> None:
    changed = {"".join(wake_ups(3, points=(step,))) for step in range(6)}
    assert len(changed) > 1 and "".join(wake_ups(3, points=(1000,))) == "".join(wake_ups(3))


def deliveries(seed: int, by: By = "message") -> list[str]:
    """Two connections carry three lines each from one host to another, a millisecond apart."""
    loop, seen = SimLoop(), []
    loop.network = network = SimNetwork(loop, 1, NetworkKnobs(latency_us=4000))
    loop.priorities = Priorities(seed, by=by, window_ns=5 * MS, points=())
    here, there = SimProcess("here"), SimProcess("there")
    for name in ("here", "there"):
        network.add_host(name)

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            seen.append(line.decode().strip())

    async def serve() -> None:
        await asyncio.start_server(read, "there", 9)

    async def send() -> None:
        await asyncio.sleep(0.1)
        writers = [(await asyncio.open_connection("there", 9))[1] for _ in "xy"]
        for number in range(3):
            for name, writer in zip("xy", writers, strict=True):
                writer.write(f"{name}{number}\n".encode())
                await asyncio.sleep(0.001)
        for writer in writers:
            writer.close()

    async def main() -> None:
        for process, what in ((there, serve()), (here, send())):
            loop.add_process(process)
            loop.create_task(what, context=process.context)
        await asyncio.sleep(1)

    loop.run(main(), SimProcess("harness", fenced=False))
    return seen


def test_chains_of_messages_overtake_each_other_and_connections_keep_their_order() -> None:
    orders = {"".join(deliveries(seed)) for seed in range(20)}
    assert len(orders) > 3
    for order in orders:
        for name in "xy":
            places = [order.index(f"{name}{number}") for number in range(3)]
            assert places == sorted(places)
    assert any(order.index("y0") < order.index("x0") for order in orders)
