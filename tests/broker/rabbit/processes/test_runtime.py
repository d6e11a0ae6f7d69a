"""Processes in one node and across two, linked by a real mesh on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shalott.broker.base.env import Env, SystemClock, seeded_rng
from shalott.broker.base.errors import CallTimeout, NodeDown, NoProcess
from shalott.broker.rabbit.config import NodeConfig, Peer
from shalott.broker.rabbit.processes.link import CallFrame
from shalott.broker.rabbit.processes.mesh import Mesh
from shalott.broker.rabbit.processes.messages import (
    MESSAGES,
    Codec,
    Down,
    Message,
    Name,
    NodeDownEvent,
    NodeUp,
)
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Caller, Runtime
from shalott.broker.rabbit.processes.turns import Turns
from tests.world.clock.turns import until

pytestmark = pytest.mark.unit


class Note(Message):
    text: str


class Ask(Message):
    text: str


CODEC = Codec((*MESSAGES, Note, Ask))


class Recorder(Process):
    """Keeps what it gets; answers Ask with Note, unless the text is "silence" or "crash"."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Message] = []
        self._changed = asyncio.Event()

    async def handle(self, message: Message) -> None:
        self.got.append(message)
        self._changed.set()
        if isinstance(message, Note) and message.text == "end":
            self.exit("finished")
        if isinstance(message, Note) and message.text == "crash":
            raise ValueError("boom")

    async def handle_call(self, request: Message, caller: Caller) -> Message | None:
        assert isinstance(request, Ask)
        return None if request.text == "silence" else Note(request.text.upper())

    async def until(self, condition: Callable[[list[Message]], bool]) -> None:
        async with asyncio.timeout(5):
            while not condition(self.got):
                self._changed.clear()
                await self._changed.wait()


def run(body: Callable[[], Awaitable[Any]]) -> None:
    async def main() -> None:
        await body()

    asyncio.run(main())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def make_pair(net_tick_ms: int = 400) -> list[tuple[Runtime, Mesh]]:
    ports = {"a": free_port(), "b": free_port()}
    pair = []
    for name, other in (("a", "b"), ("b", "a")):
        config = NodeConfig(
            name=name,
            data_dir="",
            bind_host="127.0.0.1",
            cluster_port=ports[name],
            peers=(Peer(other, "127.0.0.1", ports[other]),),
            net_tick_ms=net_tick_ms,
        )
        runtime = Runtime(name, 1, CODEC)
        env = Env(name, 1, SystemClock(), seeded_rng(1, 1), None, None)  # type: ignore[arg-type]
        pair.append((runtime, Mesh(env, config, runtime)))
    return pair


def test_messages_arrive_in_order_and_a_call_is_answered() -> None:
    async def body() -> None:
        runtime = Runtime("a", 1, CODEC)
        recorder = Recorder()
        pid = runtime.spawn(recorder)
        for index in range(100):
            runtime.send(pid, Note(str(index)))
        assert await runtime.call(pid, Ask("hello"), timeout_ms=1000) == Note("HELLO")
        assert recorder.got == [Note(str(index)) for index in range(100)]
        with pytest.raises(CallTimeout):
            await runtime.call(pid, Ask("silence"), timeout_ms=10)
        await runtime.kill(pid)
        with pytest.raises(NoProcess):
            await runtime.call(pid, Ask("x"), timeout_ms=10)

    run(body)


@pytest.mark.parametrize(
    ("word", "reason"), [("end", "finished"), ("crash", "crash: ValueError: boom")]
)
def test_a_monitor_fires_once_with_the_reason(word: str, reason: str) -> None:
    async def body() -> None:
        runtime = Runtime("a", 1, CODEC)
        target, watcher = Recorder(), Recorder()
        pid, watching = runtime.spawn(target), runtime.spawn(watcher)
        ref = runtime.monitor(pid, watching)
        ignored = runtime.monitor(pid, watching)
        runtime.demonitor(ignored)
        runtime.send(pid, Note(word))
        await watcher.until(lambda got: bool(got))
        assert watcher.got == [Down(ref, pid, reason)]
        late = runtime.monitor(pid, watching)
        await watcher.until(lambda got: len(got) == 2)
        assert watcher.got[-1] == Down(late, pid, "noproc")
        await runtime.kill(watching)

    run(body)


def test_only_what_ends_by_its_own_exception_is_told_as_a_crash() -> None:
    class FailsToStop(Recorder):
        async def stopping(self, reason: str) -> None:
            raise LookupError("too late")

    async def body() -> None:
        runtime = Runtime("a", 1, CODEC)
        told: list[tuple[str, str]] = []
        runtime.on_crash = lambda process, reason: told.append((process, reason))
        watcher = Recorder()
        watching = runtime.spawn(watcher)
        for process, word in ((Recorder(), "end"), (Recorder(), "crash"), (FailsToStop(), "end")):
            pid = runtime.spawn(process)
            runtime.monitor(pid, watching)
            runtime.send(pid, Note(word))
        await watcher.until(lambda got: len(got) == 3)
        killed = runtime.spawn(Recorder())
        await runtime.kill(killed)
        await runtime.kill(watching)
        assert told == [
            ("Recorder", "crash: ValueError: boom"),
            ("FailsToStop", "crash: LookupError: too late"),
        ]

    run(body)


def test_a_killed_process_fails_the_calls_in_its_mailbox() -> None:
    async def body() -> None:
        runtime = Runtime("a", 1, CODEC)
        pid = runtime.spawn(Recorder())
        runtime.send(pid, Note("end"))
        with pytest.raises(NoProcess):
            await runtime.call(pid, Ask("too late"), timeout_ms=1000)

    run(body)


def test_a_process_that_ends_without_answering_fails_the_call() -> None:
    async def body() -> None:
        runtime = Runtime("a", 1, CODEC)
        recorder = Recorder()
        pid = runtime.spawn(recorder)
        call = asyncio.create_task(runtime.call(pid, Ask("silence"), timeout_ms=5000))
        assert await runtime.call(pid, Ask("after"), timeout_ms=1000) == Note("AFTER")
        assert not call.done()
        await runtime.kill(pid)
        with pytest.raises(NoProcess):
            await call

    run(body)


def test_two_nodes_talk_monitor_and_see_each_other_go_down() -> None:
    async def body() -> None:
        (near, near_mesh), (far, far_mesh) = await make_pair()
        watcher, target = Recorder(), Recorder()
        watching = near.spawn(watcher)
        near.watch_nodes(watching)
        await near_mesh.start()
        await far_mesh.start()
        await watcher.until(lambda got: NodeUp("b", 1) in got)
        pid = far.spawn(target, name="target")
        near.send(Name("b", "target"), Note("1"))
        near.send(pid, Note("2"))
        assert await near.call(pid, Ask("over there"), timeout_ms=1000) == Note("OVER THERE")
        assert target.got == [Note("1"), Note("2")]
        with pytest.raises(NoProcess):
            await near.call(Name("b", "nobody"), Ask("x"), timeout_ms=1000)
        ref = near.monitor(pid, watching)
        pending = asyncio.create_task(near.call(pid, Ask("silence"), timeout_ms=5000))
        await near.call(pid, Ask("a round trip"), timeout_ms=1000)
        await far_mesh.stop()
        with pytest.raises(NodeDown):
            await pending
        await watcher.until(lambda got: any(isinstance(message, NodeDownEvent) for message in got))
        assert watcher.got[1] == Down(ref, pid, "noconnection"), (
            "Down must come before NodeDownEvent"
        )
        assert isinstance(watcher.got[2], NodeDownEvent)
        await near_mesh.stop()
        await near.kill(watching)
        await far.kill(pid)

    run(body)


def test_a_silent_peer_is_down_after_the_net_tick() -> None:
    async def body() -> None:
        (near, near_mesh), (far, far_mesh) = await make_pair(net_tick_ms=200)
        watcher = Recorder()
        watching = near.spawn(watcher)
        near.watch_nodes(watching)
        await near_mesh.start()
        await far_mesh.start()
        await watcher.until(lambda got: NodeUp("b", 1) in got)
        for task in far_mesh._tasks:
            task.cancel()  # no more ticks from b: the connection stays open, and silent
        await watcher.until(lambda got: NodeDownEvent("b", "net_tick_timeout") in got)
        await near_mesh.stop()
        await far_mesh.stop()
        await near.kill(watching)
        del far

    run(body)


@pytest.mark.parametrize("incarnation", [1, 2])
def test_a_late_answer_does_not_reach_the_next_life_of_who_asked(incarnation: int) -> None:
    """It counts its calls anew, so one of them has the same number."""

    class Slow(Recorder):
        async def handle_call(self, request: Message, caller: Caller) -> Message | None:
            self.caller = caller
            return None

    async def body() -> None:
        runtime, slow, sent = Runtime("b", 1, CODEC), Slow(), []
        runtime.transmit = lambda node, frame: sent.append(frame) or True  # type: ignore[func-returns-value]
        runtime.spawn(slow, name="slow")
        runtime.link_up("a", 1)
        runtime.receive("a", CallFrame(None, "slow", 7, None, CODEC.encode(Ask("who?"))))
        async with asyncio.timeout(5):
            await until(lambda: hasattr(slow, "caller"), step_s=0)
        runtime.link_down("a", "it ended")
        runtime.link_up("a", incarnation)
        slow.caller.reply(Note("you"))
        assert len(sent) == (1 if incarnation == 1 else 0)
        await runtime.kill(slow.pid)

    run(body)


def test_who_is_woken_goes_before_floods_and_floods_go_one_by_one() -> None:
    async def body() -> None:
        turns, rounds = Turns(), list[str]()

        async def flood(name: str) -> None:
            for _ in range(2):
                await turns.next()
                rounds.append(name)

        floods = [asyncio.create_task(flood(name)) for name in "abc"]
        await asyncio.sleep(0)
        turns.has_woken(1)
        for _ in range(4):
            await asyncio.sleep(0)
        assert rounds == [], "somebody who was woken waits"
        turns.has_woken(-1)
        seen = 0
        while not all(task.done() for task in floods):
            await asyncio.sleep(0)
            assert len(rounds) - seen <= 1, "one in a round of the loop"
            seen = len(rounds)
        assert rounds == [*"abcabc"]

    run(body)
