"""Runtimes joined in memory: FIFO links that can be cut, for tests of several nodes in one event
loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shalott.broker.rabbit.processes.link import Frame, decode_frame, encode_frame
from shalott.broker.rabbit.processes.messages import Message, NodeDownEvent
from shalott.broker.rabbit.processes.process import Process
from shalott.broker.rabbit.processes.runtime import Codec, Runtime


class Switchboard:
    """``link`` and ``cut`` work on pairs; a cut loses what is in flight."""

    def __init__(self, nodes: Sequence[str], codec: Codec) -> None:
        self.runtimes = {node: Runtime(node, 1, codec) for node in nodes}
        self._generation: dict[tuple[str, str], int] = {}
        self._up: dict[tuple[str, str], bool] = {}
        for node, runtime in self.runtimes.items():
            runtime.transmit = self._transmit_from(node)

    def _transmit_from(self, source: str):  # type: ignore[no-untyped-def]
        def transmit(node: str, frame: Frame) -> bool:
            pair = tuple(sorted((source, node)))
            if not self._up.get(pair):  # type: ignore[call-overload]
                return False
            generation = self._generation[pair]  # type: ignore[index]
            data = encode_frame(frame)[4:]
            loop = asyncio.get_running_loop()
            loop.call_soon(self._arrive, pair, generation, source, node, data)
            return True

        return transmit

    def _arrive(
        self, pair: tuple[str, str], generation: int, source: str, to: str, data: bytes
    ) -> None:
        if self._up.get(pair) and self._generation[pair] == generation:
            self.runtimes[to].receive(source, decode_frame(data))

    def link(self, one: str, other: str) -> None:
        pair = (min(one, other), max(one, other))
        if self._up.get(pair):
            return
        self._generation[pair] = self._generation.get(pair, 0) + 1
        self._up[pair] = True
        self.runtimes[one].link_up(other, self.runtimes[other].incarnation)
        self.runtimes[other].link_up(one, self.runtimes[one].incarnation)

    def cut(self, one: str, other: str) -> None:
        pair = (min(one, other), max(one, other))
        if self._up.pop(pair, False):
            self.runtimes[one].link_down(other, "cut")
            self.runtimes[other].link_down(one, "cut")

    def link_all(self) -> None:
        names = sorted(self.runtimes)
        for index, one in enumerate(names):
            for other in names[index + 1 :]:
                self.link(one, other)

    def isolate(self, node: str) -> None:
        for other in self.runtimes:
            if other != node:
                self.cut(node, other)


class Listener(Process):
    """Keeps every message; for subscriptions."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Message] = []

    async def handle(self, message: Message) -> None:
        if not isinstance(message, NodeDownEvent):
            self.got.append(message)
