"""What the harness sees of the nodes while a run lasts: who died, and what each believes.

Every end of a node's process that the harness did not ask for becomes a row of the history, with
what the node printed last, and so does every end of a process of the harness's own that serves the
nodes. Every node is asked at the plan's interval what it believes, and each answer is a row, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from shalott.checkers.runs.deaths import how_it_ended
from shalott.cluster.cluster import ignore_exit, ignore_helper_end
from shalott.cluster.nodes import HelperEnd, NodeExit
from shalott.cluster.system import ExplainsUnsettled, members_of
from shalott.cluster.systems.settling import observe_all
from shalott.core.errors import ClientError, HarnessError, Indefinite
from shalott.core.history import Recorder
from shalott.core.json_value import Json
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.worker import describe
from shalott.harness.run.world import World

log = logging.getLogger("shalott.run")

OBSERVE_TIMEOUT_S = 2.0
LAST_LINES = 20  # of a node that died


@dataclass
class DeathWatch:
    """Records who died. ``is_settling``: whether a node that died is started once more."""

    world: World
    record: Recorder
    is_settling: Callable[[], bool]
    # Nodes whose disks faults have spoilt, and whether they may get empty ones.
    rotten: Callable[[], Mapping[str, bool]]
    left_down: asyncio.Event = field(default_factory=asyncio.Event)  # one more node is
    _deaths: asyncio.Queue[tuple[int, NodeExit]] = field(default_factory=asyncio.Queue)  # by row
    _recording: asyncio.Task[None] | None = None
    _started_again: list[str] = field(default_factory=list)
    _emptied: list[str] = field(default_factory=list)

    def start(self) -> None:
        self._recording = asyncio.create_task(self._record_all())
        self.world.cluster.on_exit = self._node_died
        self.world.cluster.on_helper_end = self._helper_ended

    async def stop(self) -> None:
        """Nodes that end from now on are no news; what is being written down is finished."""
        self.world.cluster.on_exit = ignore_exit
        self.world.cluster.on_helper_end = ignore_helper_end
        if self._recording is not None:
            await self._deaths.join()
            self._recording.cancel()

    def _node_died(self, ended: NodeExit) -> None:
        """Its row begins now. A simulated node calls this from its own process, in which no task
        runs any more: the rest is left to one of the harness."""
        index = self.record.invoke(NEMESIS, ended.node, Invocation(f="died"))
        self._deaths.put_nowait((index, ended))

    def _helper_ended(self, ended: HelperEnd) -> None:
        """No verdict on the nodes stands from then on (checkers/runs/harness_failures.py)."""
        extra: dict[str, Json] = {"helper": ended.helper, "reason": ended.reason}
        index = self.record.invoke(NEMESIS, ended.node, Invocation(f="helper-ended", extra=extra))
        self.record.complete(index, Completion(type="info", extra=extra))
        log.error("a helper of the harness's own ended: %s", ended.reason)

    async def _record_all(self) -> None:
        while True:
            index, ended = await self._deaths.get()
            await self._record(index, ended)
            await self._start_once_more(ended.node)
            self._deaths.task_done()

    async def _record(self, index: int, ended: NodeExit) -> None:
        """Complete the row with what the node printed last."""
        extra = {"exit_code": ended.exit_code, "out_of_memory": ended.out_of_memory}
        try:
            printed = await self.world.cluster.files.output(ended.node, LAST_LINES)
        except HarnessError as error:
            printed = f"(its output can't be read: {error})"
        self.record.complete(index, Completion(type="info", extra={**extra, "output": printed}))
        log.warning("%s died: %s", ended.node, how_it_ended(ended.exit_code, ended.out_of_memory))

    async def _start_once_more(self, node: str) -> None:
        """A fault may end a node a moment after it was healed, as a write that failed is noticed
        late. The heal has started the others; it starts this one, too: once, while the cluster
        settles. One whose disk was spoilt, and that ends again, is left down, or gets an empty
        one."""
        cluster = self.world.cluster
        if not self.is_settling() or node in cluster.left_down:
            return
        if node in self._started_again:
            if (may_empty := self.rotten().get(node)) is not None:
                await self._give_up(node, may_empty=may_empty)
            return
        self._started_again.append(node)
        is_member = node in members_of(cluster, self.world.system)
        try:
            if is_member and (await cluster.processes.status(node)).state != "running":
                log.info("starting %s again", node)
                await cluster.processes.start(node)
        except HarnessError as error:
            log.warning("%s could not be started again: %s", node, describe(error))

    async def _give_up(self, node: str, *, may_empty: bool) -> None:
        cluster = self.world.cluster
        if not (may_empty and "wipe" in cluster.capabilities) or node in self._emptied:
            log.warning("%s can't start from its damaged files: it is left down", node)
            cluster.left_down.append(node)
            self.left_down.set()
            return
        log.warning("%s can't start from its damaged files: it gets an empty disk", node)
        self._emptied.append(node)
        index = self.record.invoke(NEMESIS, "", Invocation(f="operator"))
        try:
            await cluster.files.wipe(node)
            await cluster.processes.start(node)
        except HarnessError as error:
            log.warning("%s could not be started again: %s", node, describe(error))
        extra: dict[str, Json] = {"restarted": [node], "replaced": [node]}
        self.record.complete(index, Completion(type="info", extra=extra))


@dataclass
class Observer:
    world: World
    record: Recorder
    interval_ms: int
    _is_over: bool = False

    @contextlib.asynccontextmanager
    async def observing(self) -> AsyncIterator[None]:
        """While it lasts, every node is asked at the interval, and what keeps the harness from
        running is recorded."""
        async with self._watching_stalls(), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._observe(node)) for node in self.world.cluster.nodes]
            try:
                yield
            finally:
                self._is_over = True  # a system's client may swallow what cancels it
                for task in tasks:
                    task.cancel()

    async def missing(self, queues: tuple[str, ...]) -> str:
        """What one more look at every node finds to be missing; "" if nothing is."""
        system = self.world.system
        if not isinstance(system, ExplainsUnsettled):
            return "it does not say what it waits for"
        seen = await observe_all(self._ask, members_of(self.world.cluster, system))
        return system.why_unsettled(seen, queues)

    async def _ask(self, node: str) -> Mapping[str, Json]:
        """What ``node`` believes now. Raises ClientError."""
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                return await self.world.system.observe(self.world.cluster, node)
        except (HarnessError, OSError, TimeoutError) as error:
            raise Indefinite(describe(error)) from error

    def _watching_stalls(self) -> contextlib.AbstractAsyncContextManager[None]:
        if self.world.watch_stalls is None:
            return contextlib.nullcontext()
        return self.world.watch_stalls(self.world.cluster, self.record)

    async def _observe(self, node: str) -> None:
        interval_ns = self.interval_ms * 1_000_000
        while not self._is_over:
            began_ns = self.record.now_ns()
            index = self.record.invoke(NEMESIS, node, Invocation(f="observe"))
            try:
                async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                    belief = await self.world.system.observe(self.world.cluster, node)
                self.record.complete(index, Completion(type="ok", extra=belief))
            except (ClientError, HarnessError, OSError, TimeoutError) as error:
                self.record.complete(index, Completion(type="info", error=describe(error)))
            rest_ns = began_ns + interval_ns - self.record.now_ns()
            await asyncio.sleep(max(0, rest_ns) / 1e9)
