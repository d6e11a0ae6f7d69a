"""The program of the relays' process: ``python -m shalott.cluster.local.relay_process``.

The relays are the network between the nodes of a local cluster. In the harness's own process a
harness that is busy, or stopped, would be a slow network that no plan asked for. Here they run
also while the harness is busy or stopped. Orders come over stdin (relay_messages.py) and are
carried out one after the other, but probes, which take their time; the end of stdin is the end of
the process. It also watches itself, and says when it could not run.
"""

from __future__ import annotations

import asyncio
import os
import sys

from shalott.cluster.local.relay import Relays
from shalott.cluster.local.relay_messages import Answer, Order, decode_order, encode_line
from shalott.cluster.nodes import Endpoint
from shalott.cluster.precedence import go_first_or_be_less_nice
from shalott.cluster.stalls import STALL_S, TICK_S
from shalott.core.errors import HarnessError

LINE_BYTES_MAX = 16 << 20


class RelayServer:
    """Carries out orders. ``out`` is a file descriptor for the answers."""

    def __init__(self, out: int) -> None:
        self._out = out
        self._relays = Relays(())
        self._probes: dict[asyncio.Task[None], None] = {}

    async def serve(self, orders: asyncio.StreamReader) -> None:
        """Until the end of ``orders``."""
        watching = asyncio.create_task(self._watch())
        try:
            while line := await orders.readline():
                order = decode_order(line)
                if order.do == "probe":
                    task = asyncio.create_task(self._probe(order))
                    self._probes[task] = None
                    task.add_done_callback(self._probes.pop)
                else:
                    self._say(await self._carry_out(order))
        finally:
            for task in (watching, *self._probes):
                task.cancel()
            await self._relays.close()

    async def _carry_out(self, order: Order) -> Answer:
        if order.do == "open":
            return await self._open(order)
        if order.do == "cut":
            for pair, link in self._relays.links.items():
                if (pair in order.links) != link.is_cut:
                    link.set_cut(not link.is_cut)
            return Answer(number=order.number)
        (pair,) = order.links
        link = self._relays.links[pair]
        if order.delay_s is not None:
            link.set_shape(order.delay_s, order.rate_bytes_s)
        return Answer(number=order.number, delay_s=link.delay_s, rate_bytes_s=link.rate_bytes_s)

    async def _open(self, order: Order) -> Answer:
        self._relays = Relays(order.nodes)
        try:
            await self._relays.open(order.targets)
        except HarnessError as error:
            return Answer(number=order.number, error=str(error))
        listening: dict[str, dict[str, dict[str, Endpoint]]] = {}
        for source, destination in self._relays.links:
            ports = {
                port: self._relays.endpoint(source, destination, port)
                for port in order.targets[destination]
            }
            listening.setdefault(source, {})[destination] = ports
        return Answer(number=order.number, listening=listening)

    async def _probe(self, order: Order) -> None:
        ((source, destination),) = order.links
        passed = await self._relays.probe(source, destination, order.timeout_ms)
        self._say(Answer(number=order.number, value=passed))

    async def _watch(self) -> None:
        """Say when this process was late."""
        clock = asyncio.get_running_loop().time
        while True:
            expected_s = clock() + TICK_S
            await asyncio.sleep(TICK_S)
            if clock() - expected_s > STALL_S:
                self._say(Answer(stall=(expected_s, clock())))

    def _say(self, answer: Answer) -> None:
        line = encode_line(answer)
        while line:  # a pipe takes what it has room for
            line = line[os.write(self._out, line) :]


async def main() -> None:
    go_first_or_be_less_nice()  # a busy machine shall not be a slow network
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await RelayServer(sys.stdout.fileno()).serve(orders)


if __name__ == "__main__":
    asyncio.run(main())
