"""RelayProcess: the harness's end of the process that relays all traffic between nodes.

What it can be asked is in relay_messages.py, what it does in relay_process.py. It is started like a
node's process: it dies with the harness, and is written down for ``sweep``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from shalott.cluster.local.nodes import LAUNCHER
from shalott.cluster.local.relay_messages import (
    Answer,
    Order,
    Ports,
    decode_answer,
    encode_line,
)
from shalott.cluster.nodes import Endpoint, HelperEnd, Link, LinkShape
from shalott.cluster.owner import start_ticks
from shalott.cluster.stalls import Stall
from shalott.core.errors import HarnessError

log = logging.getLogger("shalott.cluster.local")

PROGRAM = "shalott.cluster.local.relay_process"
OUTPUT_BYTES_MAX = 2000  # of what it printed, quoted in an error
LINE_BYTES_MAX = 16 << 20


class RelayProcess:
    """The relays of one cluster. Raises HarnessError for what it can't do, or once it has ended."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = tuple(nodes)
        self._process: asyncio.subprocess.Process | None = None
        self._output: Path | None = None
        self._listening: Mapping[str, Mapping[str, Ports]] = {}
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._number = 0
        self._reading: asyncio.Task[None] | None = None
        self._closing = False
        self._tell: Callable[[Stall], None] = _log_stall
        self.on_end: Callable[[HelperEnd], None] = _log_end

    def tell_stalls(self, tell: Callable[[Stall], None]) -> None:
        """Call this when the process could not run; ``on_end`` is called when it ended."""
        self._tell = tell

    @property
    def identity(self) -> tuple[int, int] | None:
        """(process id, its start time in ticks); None if it does not run."""
        process = self._process
        if process is None or process.returncode is not None:
            return None
        return process.pid, start_ticks(process.pid) or 0

    async def start(self, output: Path) -> None:
        """Start the process; what it prints is appended to ``output``."""
        self._output, self._closing = output, False
        command = (sys.executable, "-I", "-S", str(LAUNCHER), str(os.getpid()))
        search = os.pathsep.join(entry for entry in sys.path if entry)
        try:
            with output.open("ab") as errors:
                self._process = await asyncio.create_subprocess_exec(
                    *(*command, sys.executable, "-m", PROGRAM),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, "PYTHONPATH": search},
                    start_new_session=True,
                    limit=LINE_BYTES_MAX,
                )
        except OSError as error:
            raise HarnessError(f"cannot run the relays' process: {error.strerror}") from error
        self._reading = asyncio.create_task(self._read(self._process))

    async def open(self, targets: Mapping[str, Mapping[str, Endpoint]]) -> None:
        """Listen for every pair and port. ``targets[node][port]``: where the node really
        listens."""
        plain = {node: dict(ports) for node, ports in targets.items()}
        answer = await self._carry_out(
            Order(number=self._next(), do="open", nodes=self._nodes, targets=plain)
        )
        self._listening = answer.listening

    def endpoint(self, source: str, destination: str, port: str) -> Endpoint:
        """Where ``source`` dials ``destination``."""
        return self._listening[source][destination][port]

    async def cut(self, links: Sequence[Link]) -> None:
        """These links are cut from now on, and no others."""
        if self._listening:
            await self._carry_out(Order(number=self._next(), do="cut", links=tuple(links)))

    async def shape(self, link: Link, delay_s: float, rate_bytes_s: int) -> None:
        await self._carry_out(
            Order(
                number=self._next(),
                do="shape",
                links=(link,),
                delay_s=delay_s,
                rate_bytes_s=rate_bytes_s,
            )
        )

    async def shape_of(self, link: Link) -> LinkShape:
        """What is in force, as the process says."""
        answer = await self._carry_out(Order(number=self._next(), do="shape", links=(link,)))
        return LinkShape(delay_ms=answer.delay_s * 1000, rate_bytes_s=answer.rate_bytes_s)

    async def restore_shapes(self) -> None:
        """No link is slow any more."""
        if self._listening:
            links = [(a, b) for a in self._nodes for b in self._nodes if a != b]
            await asyncio.gather(*(self.shape(link, 0, 0) for link in links))

    async def probe(self, source: str, destination: str, timeout_ms: int) -> bool:
        """Whether a byte sent by ``source`` comes out at ``destination``'s end of the link."""
        links = ((source, destination),)
        order = Order(number=self._next(), do="probe", links=links, timeout_ms=timeout_ms)
        return (await self._carry_out(order)).value

    async def close(self) -> None:
        """End the process, and with it every connection."""
        self._closing = True
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process, self._reading, self._listening = None, None, {}

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _carry_out(self, order: Order) -> Answer:
        """The answer, when it has been carried out."""
        process = self._process
        if process is None or process.stdin is None or self._reading is None:
            raise HarnessError("the relays' process does not run")
        if self._reading.done():
            raise self._ended()
        asked = self._asked[order.number] = asyncio.get_running_loop().create_future()
        process.stdin.write(encode_line(order))
        answer: Answer = await asked
        if answer.error:
            raise HarnessError(answer.error)
        return answer

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Answers, until the process ends."""
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                answer = decode_answer(line)
                if answer.stall is not None:
                    self._tell(Stall("relays", *answer.stall))
                asked = self._asked.pop(answer.number, None) if answer.number else None
                if asked is not None and not asked.done():
                    asked.set_result(answer)
        except msgspec.MsgspecError as error:
            log.error("the relays' process said what is no answer: %s", error)
            process.kill()
        await process.wait()
        if not self._closing:
            self.on_end(HelperEnd(helper="relays", reason=str(self._ended())))
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(self._ended())
        self._asked.clear()

    def _ended(self) -> HarnessError:
        code = self._process.returncode if self._process is not None else None
        said = ""
        if self._output is not None and self._output.is_file():
            said = self._output.read_text(errors="replace")[-OUTPUT_BYTES_MAX:].strip()
        return HarnessError(
            f"the relays' process ended (exit code {code}), so no node hears another"
            + (f": {said}" if said else "")
        )


def _log_stall(stall: Stall) -> None:
    log.warning("the relays: %s, %.2f s", stall.kind, stall.end_s - stall.begin_s)


def _log_end(ended: HelperEnd) -> None:
    log.error("%s", ended.reason)
