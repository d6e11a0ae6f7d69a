"""The trace: equal for equal runs whatever the loop's callbacks, different for any difference in
what the world saw, which it names."""

from __future__ import annotations

import asyncio

import pytest

from shalott.cluster.sim.backend import HARNESS, SimCluster
from shalott.cluster.sim.loop.loop import SimLoop
from shalott.cluster.sim.loop.processes import SimProcess
from shalott.cluster.sim.loop.trace import Trace, differing_chunk, first_difference, way_of
from shalott.cluster.sim.machine import Machine, SimEventLog
from shalott.cluster.systems.broker_program import broker_program
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.op import Completion, Invocation
from shalott.core.plan import SimPlan
from shalott.harness.run.simulate import TracedRecorder

pytestmark = pytest.mark.unit

PORT = 5672
ROUNDS = 400  # of the client: more than a chunk's worth of events
ODD = 370  # the round with the planted difference

# What is planted, and words that the sentence about the first difference has. ``None``: no event of
# the world differs, so the digests must be equal.
PLANTED = {
    "nothing": None,
    "callbacks": None,
    "a byte": "harness:32768 -> n1:5672 segment",
    "order": "harness:32768 -> n1:5672 segment",
    "disk call": "disk n1 size of journal",
    "written byte": "disk n1 write journal at",
    "event": "event of n1",
    "answer": "ok",
    "invocation": "invoke",
    "restart": "kill n2",
    "pause": "pause n2",
    "cut": "cut n1->n2",
    "instant": "harness:32768 -> n1:5672 segment",
}


def traced(plant: str = "nothing", *, label_chunk: int | None = None) -> Trace:
    """A server that keeps what it gets on disk and a client that asks it, with a difference in
    round ODD."""
    trace = Trace(label_chunk=label_chunk)
    loop = SimLoop(trace=trace)
    cluster = SimCluster(("n1", "n2"), loop, SimPlan(seed=1), broker_program)

    async def program(machine: Machine, process: SimProcess, stop: asyncio.Event) -> int:
        return await serve(machine, process, stop, plant)

    for machine in cluster.machines.values():
        machine.program = program
    loop.run(ask(cluster, plant), SimProcess(HARNESS, fenced=False))
    trace.digest()
    return trace


async def serve(machine: Machine, process: SimProcess, stop: asyncio.Event, plant: str) -> int:
    file = await machine.disk.open("journal", create=True)
    events = SimEventLog(machine, 1, process)
    written = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while data := await reader.read(100):
            odd = written == ODD
            await file.pwrite(b"?" if odd and plant == "written byte" else data[:1], written)
            written += 1
            if odd and plant == "disk call":
                await file.size()
            if odd:
                detail = {"what": "odd" if plant == "event" else "even"}
                events.emit("q", "noticed", detail=detail)
            writer.write(data)

    server = await asyncio.start_server(talk, machine.name, PORT)
    await stop.wait()
    server.close()
    return 0


async def ask(cluster: SimCluster, plant: str) -> None:
    loop = cluster.loop
    memory = MemoryRecorder(lambda: loop.now_ns, cluster.wall_ns)
    record = TracedRecorder(memory, cluster)
    for node in cluster.nodes:
        await cluster.processes.start(node)
    await asyncio.sleep(0.1)
    reader, writer = await asyncio.open_connection("n1", PORT)
    for number in range(ROUNDS):
        odd = number == ODD
        index = record.invoke(
            0, "n1", Invocation(f="enqueue", value=number + (odd and plant == "invocation"))
        )
        for data in payloads(plant if odd else "nothing"):
            await asyncio.sleep(0.001 + 1e-9 * (odd and plant == "instant"))
            writer.write(data)
        got = await reader.readexactly(8)
        record.complete(index, Completion(type="ok", value=got[0] + (odd and plant == "answer")))
        if odd:
            await misbehave(cluster, plant)
    writer.close()
    await writer.wait_closed()
    await cluster.teardown()


def payloads(plant: str) -> tuple[bytes, bytes]:
    if plant == "a byte":
        return b"once", b"morf"
    return (b"more", b"once") if plant == "order" else (b"once", b"more")


async def misbehave(cluster: SimCluster, plant: str) -> None:
    if plant == "callbacks":
        for _ in range(10):
            cluster.loop.call_soon(len, "")
            await asyncio.sleep(0)
        asyncio.create_task(asyncio.sleep(0), name="one more")  # noqa: RUF006
    elif plant == "pause":
        await cluster.processes.pause("n2")
    elif plant == "cut":
        await cluster.links.cut((("n1", "n2"),))
    elif plant == "restart":
        await cluster.processes.kill("n2")
        await cluster.processes.start("n2")


@pytest.fixture(scope="module")
def plain() -> Trace:
    return traced()


@pytest.mark.explore
@pytest.mark.parametrize("plant", PLANTED)
def test_a_difference_in_the_world_and_no_other_changes_the_digest_and_is_named(
    plain: Trace, plant: str
) -> None:
    other = traced(plant)
    chunk = differing_chunk(plain.checkpoints, other.checkpoints)
    words = PLANTED[plant]
    if words is None:
        assert other.digest() == plain.digest()
        assert chunk is None
        return
    assert other.digest() != plain.digest()
    assert chunk is not None
    labels = traced(label_chunk=chunk).labels, traced(plant, label_chunk=chunk).labels
    sentence = first_difference(*labels)
    assert words in sentence
    assert "t=100" in sentence


def test_a_run_has_chunks_enough_for_these_tests(plain: Trace) -> None:
    assert len(plain.checkpoints) > 1
    assert differing_chunk(plain.checkpoints, traced("a byte").checkpoints) != 0


def test_a_sign_is_not_a_segment_with_its_name() -> None:
    way = way_of("a:1", "b:2")
    one, other = Trace(), Trace()
    one.segment(5, way, b"FIN")
    other.event(5, f"{way[1]} FIN")
    assert one.digest() != other.digest()


@pytest.mark.parametrize("source", ["a:2", "c:1"])
def test_the_same_bytes_from_elsewhere_are_another_event(source: str) -> None:
    one, other = Trace(), Trace()
    one.segment(5, way_of("a:1", "b:2"), b"abc")
    other.segment(5, way_of(source, "b:2"), b"abc")
    assert one.digest() != other.digest()


def test_labels_name_no_addresses() -> None:
    labels = traced(label_chunk=0).labels
    assert labels
    assert not any("0x" in label for label in labels)
    assert any("n1#1 starts" in label for label in labels)


def test_runs_that_are_alike_when_labelled_are_called_so() -> None:
    assert first_difference(["a"], ["a"]).startswith("the two labelled runs are alike")
    assert first_difference(["a"], ["a", "b"]) == "one run ends, the other goes on with: b"
