"""The experiment itself: boot, configure, load under faults, heal, settle, drain.

Each part is a phase, recorded in the history with its beginning and end, so that checkers and
readers know what was going on when. Everything here may be cancelled at any moment; what must
happen nevertheless is in harness/run/run.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from shalott.checkers.runs.deaths import how_it_ended
from shalott.cluster.cluster import Cluster, ignore_exit
from shalott.cluster.nodes import NodeExit
from shalott.cluster.system import (
    ExplainsUnsettled,
    MendsPartitions,
    RecordsReplicas,
    System,
    TellsHeld,
    members_of,
)
from shalott.cluster.systems.settling import observe_all
from shalott.core.client import Client
from shalott.core.errors import (
    BootFailed,
    ClientError,
    Definite,
    HarnessError,
    Indefinite,
    Unreachable,
)
from shalott.core.generator.base import Generator
from shalott.core.history import Recorder
from shalott.core.op import NEMESIS, Invocation
from shalott.core.plan import FaultAction, Plan
from shalott.core.recording import RunRecorder, record_to_file
from shalott.core.worker import describe
from shalott.harness.run import draining
from shalott.harness.run.interpreter import Interpreter
from shalott.workloads.base import Workload

log = logging.getLogger("shalott.run")

BOOT_TIMEOUT_MS = 120_000
SETUP_PAUSE_S = 0.5
SETUP_REFUSALS = 10  # that many may be a node's that has not heard of everything yet
OBSERVE_TIMEOUT_S = 2.0
LAST_LINES = 20  # of a node that died


class Nemesis(Protocol):
    """What injects the plan's faults (nemesis.runner)."""

    in_force: list[str]

    @property
    def resolved_actions(self) -> tuple[FaultAction, ...]:
        """The plan's faults, with the targets that they had where they have fired."""
        ...

    async def run(self) -> None:
        """Inject and heal every fault of the plan, each at its time counted from now."""
        ...

    async def heal(self) -> None:
        """Heal what is still in force and prove it. Safe to call at any moment, also twice."""
        ...


WatchStalls = Callable[[Cluster, Recorder], contextlib.AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class World:
    """Where a run takes place. The nemesis is made when there is a history to record in.

    ``inspect`` is called between settling and draining, in worlds that can look into their nodes,
    or after it (Workload.writes_until_drained);
    ``announce`` when the nodes have been started, in worlds whose nodes others can ask.
    ``watch_stalls`` records what keeps the harness from running, in worlds where time passes.
    ``boot`` and ``teardown``: how the nodes come to run and what becomes of them, where that is not
    the cluster's own boot and teardown (harness/run/warm.py).
    """

    cluster: Cluster
    system: System
    make_nemesis: Callable[[Recorder], Nemesis]
    make_recorder: Callable[[Path], RunRecorder] = record_to_file
    inspect: Callable[[], Awaitable[None]] | None = None
    announce: Callable[[Cluster, System], Awaitable[None]] | None = None
    watch_stalls: WatchStalls | None = None
    boot: Callable[[System], Awaitable[None]] | None = None
    teardown: Callable[[], Awaitable[None]] | None = None


@dataclass
class Stage:
    """The state of one run while it lasts; what a progress line shows."""

    plan: Plan
    world: World
    workload: Workload
    record: RunRecorder
    nemesis: Nemesis
    phase: str = "boot"
    phase_began_ns: int = 0
    started: bool = False  # the nodes' processes were
    healed: bool = False
    deaths: asyncio.Queue[tuple[int, NodeExit]] = field(default_factory=asyncio.Queue)  # by row
    notes: list[str] = field(default_factory=list)
    _watching: asyncio.Task[None] | None = None
    _started_again: list[str] = field(default_factory=list)

    async def perform(self) -> None:
        """The whole experiment."""
        interpreter = self._interpreter()
        self._watching = asyncio.create_task(self._tell_deaths())
        self.world.cluster.on_exit = self._node_died
        try:
            async with self._phase("boot"):
                await self._boot()
            async with self._observing():
                async with self._phase("load"):
                    await self._load(interpreter)
                async with self._phase("heal"):
                    await self.heal()
                async with self._phase("settle") as found:
                    found.update(await self._settle())
                    if not self.workload.writes_until_drained:
                        await self._look_at_replicas()
                async with self._phase("drain"):
                    await self._drain(interpreter)
                    if self.workload.writes_until_drained:
                        await self._look_at_replicas()
            async with self._phase("end"):
                pass  # its row says that nothing was left out
        finally:
            await interpreter.close()

    def show(self, phase: str) -> None:
        """What the progress line says from now on."""
        self.phase, self.phase_began_ns = phase, self.record.now_ns()

    async def heal(self) -> None:
        """Undo every fault, start every node, and do what an operator would do."""
        cluster, system = self.world.cluster, self.world.system
        await self.nemesis.heal()
        await cluster.heal()
        for node in members_of(cluster, system):
            if (await cluster.processes.status(node)).state != "running":
                await cluster.processes.start(node)
        self.healed = True
        if isinstance(system, MendsPartitions) and system.wants_mending:
            index = self.record.invoke(NEMESIS, "", "operator")
            restarted = await system.mend_partition(cluster)
            self.record.complete(index, "info", extra={"restarted": list(restarted)})
            if restarted:
                log.info("the operator restarted %s", ", ".join(restarted))

    def _node_died(self, ended: NodeExit) -> None:
        """Its row begins now. A simulated node calls this from its own process, in which no task
        runs any more: the rest is left to one of the harness."""
        self.deaths.put_nowait((self.record.invoke(NEMESIS, ended.node, "died"), ended))

    async def _tell_deaths(self) -> None:
        while True:
            index, ended = await self.deaths.get()
            await self._tell_death(index, ended)
            await self._start_once_more(ended.node)
            self.deaths.task_done()

    async def _tell_death(self, index: int, ended: NodeExit) -> None:
        """Complete the row with what the node printed last."""
        extra = {"exit_code": ended.exit_code, "out_of_memory": ended.out_of_memory}
        try:
            printed = await self.world.cluster.files.output(ended.node, LAST_LINES)
        except HarnessError as error:
            printed = f"(its output can't be read: {error})"
        self.record.complete(index, "info", extra={**extra, "output": printed})
        log.warning("%s died: %s", ended.node, how_it_ended(ended.exit_code, ended.out_of_memory))

    async def _start_once_more(self, node: str) -> None:
        """A fault may end a node a moment after it was healed, as a write that had failed is told
        late. Whoever starts the others starts it, too: once, while the cluster settles."""
        if self.phase != "settle" or node in self._started_again:
            return
        self._started_again.append(node)
        cluster = self.world.cluster
        is_member = node in members_of(cluster, self.world.system)
        try:
            if is_member and (await cluster.processes.status(node)).state != "running":
                log.info("starting %s again", node)
                await cluster.processes.start(node)
        except HarnessError as error:
            log.warning("%s could not be started again: %s", node, describe(error))

    async def stop_watching(self) -> None:
        """Nodes that end from now on are no news; what is being written down is finished."""
        self.world.cluster.on_exit = ignore_exit
        if self._watching is not None:
            await self.deaths.join()
            self._watching.cancel()

    def _interpreter(self) -> Interpreter:
        return Interpreter(
            self._client_nodes,
            self.plan.workload.concurrency,
            self._make_client,
            self.record,
            op_timeout_ms=self.plan.workload.op_timeout_ms,
            seed=self.plan.seed,
        )

    def _final_generator(self) -> Generator:
        members = members_of(self.world.cluster, self.world.system)
        left_out = [node for node in self.world.cluster.nodes if node not in members]
        return self.workload.final_without(left_out, self._client_nodes)

    async def _drain(self, interpreter: Interpreter) -> None:
        """Once more, if clients that are gone held something meanwhile."""
        await interpreter.run(self._final_generator())
        cluster, system = self.world.cluster, self.world.system
        if not self.workload.drains or not isinstance(system, TellsHeld):
            return

        async def held(node: str) -> int:
            return await system.held(cluster, node)

        if await draining.came_back(held, members_of(cluster, system)):
            await interpreter.run(self._final_generator())

    @property
    def _client_nodes(self) -> tuple[str, ...]:
        return self.workload.nodes or self.plan.cluster.nodes

    def _make_client(self, node: str) -> Client:
        cluster, several = self.world.cluster, self.workload.several
        if several is None:
            endpoint = cluster.endpoint(node, self.workload.port)
            return self.workload.make_client(endpoint.host, endpoint.port)
        found = {port: cluster.endpoint(several.at(node, port), port) for port in several.names}
        return several.make_client({port: (at.host, at.port) for port, at in found.items()})

    async def _boot(self) -> None:
        cluster, system = self.world.cluster, self.world.system
        await (self.world.boot or cluster.boot)(system)
        self.started = True
        if self.world.announce is not None:
            await self.world.announce(cluster, system)
        await system.await_ready(cluster, cluster.nodes, BOOT_TIMEOUT_MS)
        own = () if self.workload.declares_queues else self.workload.queues
        await system.configure(cluster, own)
        await self._set_up()

    async def _set_up(self) -> None:
        """What the workload needs before anything is measured. Raises BootFailed.

        A message may be lost and a leader change while queues are declared, which is no reason to
        give a run up: what may be asked for twice is asked for again.
        """
        left = deque(self.workload.setup)
        until_ns, refusals = self.record.now_ns() + BOOT_TIMEOUT_MS * 1_000_000, 0
        while left:
            try:
                await self._ask_for(left)
            except ClientError as error:
                refusals += isinstance(error, Definite) and not isinstance(error, Unreachable)
                is_over = refusals > SETUP_REFUSALS or self.record.now_ns() >= until_ns
                if is_over or not self.workload.setup_repeats:
                    text = f"the workload can't be set up: {describe(error)}"
                    raise BootFailed(text) from error
                log.info("the set-up is tried again: %s", describe(error))
                await asyncio.sleep(SETUP_PAUSE_S)

    async def _ask_for(self, left: deque[Invocation]) -> None:
        """With one client, until nothing is left. Raises ClientError."""
        client = self._make_client(self._client_nodes[0])
        try:
            await client.open()
            while left:
                done = await client.invoke(left[0])
                if done.type != "ok":
                    raise Definite(done.error or done.type)
                left.popleft()
        finally:
            await client.close()

    async def _load(self, interpreter: Interpreter) -> None:
        """Clients and faults side by side; the clients' time limit ends both."""
        async with asyncio.TaskGroup() as group:
            faults = group.create_task(self.nemesis.run())
            await interpreter.run(self.workload.generator)
            faults.cancel()

    async def _settle(self) -> dict[str, Any]:
        """Whether the cluster settled, and else what was still missing: what the row will say."""
        timeout_ms = self.plan.settle_timeout_ms
        settled = await self.world.system.await_settled(
            self.world.cluster, self.workload.queues, timeout_ms
        )
        if not settled:
            self.notes.append(
                f"The cluster had not settled {timeout_ms / 1000:g} s after the heal;"
                " it was drained as it was."
            )
            log.warning("%s", self.notes[-1])
        return {"settled": settled, "reason": "" if settled else await self._why_unsettled()}

    async def _look_at_replicas(self) -> None:
        """What is replicated, where nodes can be asked or looked into."""
        system = self.world.system
        if self.world.inspect is not None:
            await self.world.inspect()
        if isinstance(system, RecordsReplicas):
            await system.record_replicas(self.world.cluster, self.record)

    async def _ask(self, node: str) -> Mapping[str, Any]:
        """What ``node`` believes now. Raises ClientError."""
        try:
            async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                return await self.world.system.observe(self.world.cluster, node)
        except (HarnessError, OSError, TimeoutError) as error:
            raise Indefinite(describe(error)) from error

    async def _why_unsettled(self) -> str:
        return await self.missing() or "it changed from look to look"

    async def missing(self) -> str:
        """What one more look at every node finds to be missing; "" if nothing is."""
        system = self.world.system
        if not isinstance(system, ExplainsUnsettled):
            return "it does not say what it waits for"
        seen = await observe_all(self._ask, members_of(self.world.cluster, system))
        return system.why_unsettled(seen, self.workload.queues)

    @contextlib.asynccontextmanager
    async def _phase(self, name: str) -> AsyncIterator[dict[str, Any]]:
        """What is put into the mapping is recorded when the phase ends."""
        self.show(name)
        log.info("phase %s", name)
        index = self.record.invoke(NEMESIS, "", "phase", extra={"phase": name})
        found: dict[str, Any] = {}
        yield found
        self.record.complete(index, "ok", extra={"phase": name, **found} if found else None)

    @contextlib.asynccontextmanager
    async def _observing(self) -> AsyncIterator[None]:
        """While it lasts, every node is asked at the plan's interval what it believes, and what
        keeps the harness from running is recorded."""
        async with self._watching_stalls(), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._observe(node)) for node in self.world.cluster.nodes]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def _watching_stalls(self) -> contextlib.AbstractAsyncContextManager[None]:
        if self.world.watch_stalls is None:
            return contextlib.nullcontext()
        return self.world.watch_stalls(self.world.cluster, self.record)

    async def _observe(self, node: str) -> None:
        interval_ns = self.plan.observe_interval_ms * 1_000_000
        while True:
            began_ns = self.record.now_ns()
            index = self.record.invoke(NEMESIS, node, "observe")
            try:
                async with asyncio.timeout(OBSERVE_TIMEOUT_S):
                    belief = await self.world.system.observe(self.world.cluster, node)
                self.record.complete(index, "ok", extra=belief)
            except (ClientError, HarnessError, OSError, TimeoutError) as error:
                self.record.complete(index, "info", error=describe(error))
            rest_ns = began_ns + interval_ns - self.record.now_ns()
            await asyncio.sleep(max(0, rest_ns) / 1e9)
