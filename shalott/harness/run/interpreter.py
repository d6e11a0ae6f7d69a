"""The interpreter: workers ask the generator what to do, do it when it is due, and tell how it
went.

After jepsen.generator.interpreter, but pulled instead of pushed: no scheduler stands between the
generator and the workers, and no task is made for an operation. A worker that is free takes the
next operation and waits until it is due; the rate is the generator's and is shared by all.
Everything runs on one event loop, so the generator, a pure value in one cell, needs no lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from shalott.core.generator import Answer, Completed, Context, Generator, Pending
from shalott.core.history import Recorder
from shalott.core.worker import ClientFactory, Worker


class Interpreter:
    """``concurrency`` workers, bound to the nodes in turn; they outlive a run."""

    def __init__(
        self,
        nodes: Sequence[str],
        concurrency: int,
        make_client: ClientFactory,
        record: Recorder,
        *,
        op_timeout_ms: int,
        seed: int,
    ) -> None:
        self._record = record
        self._workers = [
            Worker(
                thread,
                nodes[thread % len(nodes)],
                concurrency,
                make_client,
                record,
                op_timeout_ms=op_timeout_ms,
                seed=seed,
            )
            for thread in range(concurrency)
        ]

    async def run(self, generator: Generator) -> Generator:
        """Interpret ``generator`` until it is exhausted; returns what became of it."""
        cell = _Cell(generator, self._record)
        async with asyncio.TaskGroup() as group:
            for worker in self._workers:
                group.create_task(_serve(worker, cell))
        return cell.generator

    async def close(self) -> None:
        """Close every client."""
        await asyncio.gather(*(worker.close() for worker in self._workers))


async def _serve(worker: Worker, cell: _Cell) -> None:
    """One worker's loop."""
    while True:
        answer = cell.ask(worker)
        if answer is None:
            return
        if isinstance(answer, Pending):
            await cell.changed(answer.until_ns)
            continue
        if answer.when_lost:
            await worker.until_lost((answer.at_ns - cell.now_ns()) / 1e9)
        else:
            await cell.wait_until(answer.at_ns)
        process = worker.process
        cell.in_flight += 1
        try:
            done = await worker.perform(answer.invocation, answer.due_ns)
        finally:
            cell.in_flight -= 1
        now_ns, what = cell.now_ns(), answer.invocation
        cell.tell(Completed(now_ns, process, worker.node, what, done.type, done.error))
        backoff_s = worker.backoff_s
        if backoff_s:
            await asyncio.sleep(backoff_s)


class _Cell:
    """The generator's present value, and the workers that wait for it to change."""

    def __init__(self, generator: Generator, record: Recorder) -> None:
        self.generator = generator
        self.in_flight = 0
        self.now_ns = record.now_ns
        self._change = asyncio.Event()
        self._waiting = 0

    def ask(self, worker: Worker) -> Answer:
        now_ns, in_flight = self.now_ns(), self.in_flight
        context = Context(now_ns, worker.process, worker.node, in_flight, worker.holds)
        answer, self.generator = self.generator.next(context)
        if answer is None:
            self._wake()  # a phase may have ended for those who wait
        return answer

    def tell(self, event: Completed) -> None:
        self.generator = self.generator.update(event)
        self._wake()

    async def changed(self, until_ns: int | None) -> None:
        """Return when an operation has completed, or at ``until_ns``."""
        timeout_s = None if until_ns is None else max(0, until_ns - self.now_ns()) / 1e9
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_s):
                await self._change.wait()
        except TimeoutError:
            pass
        finally:
            self._waiting -= 1

    async def wait_until(self, at_ns: int) -> None:
        """Sleep until the run's clock shows ``at_ns``; always lets the event loop turn."""
        await asyncio.sleep(max(0, at_ns - self.now_ns()) / 1e9)

    def _wake(self) -> None:
        if self._waiting:
            change, self._change = self._change, asyncio.Event()
            change.set()
