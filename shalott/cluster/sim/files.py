"""What simulated nodes write: data, output and events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from shalott.broker.base.events import Event
from shalott.cluster.capabilities import WORLDS
from shalott.cluster.data_files import chosen
from shalott.cluster.parts import TellEvent
from shalott.cluster.sim.nodes import SimPart
from shalott.core.errors import HarnessError


class SimFiles(SimPart):
    """See ``Files``, ``TellsEventsAtOnce`` and ``ChangesDataFiles``."""

    capabilities = WORLDS["sim"]["files"]

    async def wipe(self, node: str) -> None:
        if self._sim.machines[node].is_alive:
            raise HarnessError(f"{node} runs: its data can't be wiped")
        self._sim.tell(f"wipe {node}")
        self._sim.machines[node].disk.wipe()

    async def find(self, node: str, pattern: str) -> Mapping[str, int]:
        disk = self._sim.machines[node].disk
        paths = (path for path in disk.files() if chosen(path, pattern, ()))
        ends = {path: len(disk.read_all(path).rstrip(b"\0")) for path in paths}
        return {path: end for path, end in ends.items() if end}

    async def read_places(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[bytes]:
        disk = self._sim.machines[node].disk
        content = disk.read_all(path) if path in disk.files() else b""
        return [content[offset : offset + size] for offset, size in places]

    async def flip_bits(
        self, node: str, path: str, places: Sequence[tuple[int, int]]
    ) -> Sequence[tuple[int, int]]:
        self._sim.tell(f"flip bits of {path} of {node}: {places}")
        return self._sim.machines[node].disk.outside.flip_bits(path, places)

    async def cut_file(self, node: str, path: str, size: int) -> None:
        self._sim.tell(f"cut {path} of {node} to {size} B")
        self._sim.machines[node].disk.outside.cut_file(path, size)

    async def leave_file(self, node: str, path: str, data: bytes) -> None:
        self._sim.tell(f"leave {path} on {node}")
        self._sim.machines[node].disk.outside.leave_file(path, data)

    def watch_events(self, tell: TellEvent) -> Callable[[], None]:
        own: dict[str, Callable[[Event], None]] = {}
        for node, machine in self._sim.machines.items():
            own[node] = partial(_tell_event, tell, node)
            machine.event_watchers.append(own[node])

        def stop() -> None:
            for node, watcher in own.items():
                self._sim.machines[node].event_watchers.remove(watcher)

        return stop

    async def output(self, node: str, lines: int = 20) -> str:
        return "\n".join(list(self._sim.machines[node].output)[-lines:])

    async def collect(self, into: Path) -> None:
        encode = msgspec.json.encode
        for node, machine in self._sim.machines.items():
            (into / node).mkdir(parents=True, exist_ok=True)
            (into / node / "output.log").write_text("".join(f"{x}\n" for x in machine.output))
            lines = b"".join(encode(event) + b"\n" for event in machine.events)
            (into / node / "events.jsonl").write_bytes(lines)


def _tell_event(tell: TellEvent, node: str, event: Event) -> None:
    tell(node, msgspec.structs.asdict(event))
