"""The experiment itself: boot, configure, load under faults, heal, settle, reread, drain.

Each part is a phase, recorded in the history with its beginning and end, so that checkers and
readers know what was going on when. Everything here may be cancelled at any moment; what must
happen nevertheless is in harness/run/run.py.

The drain's end: what clients that are gone still hold is no loss.

A broker that does not read a connection, as RabbitMQ during an alarm, can't hear that its client
hung up: it keeps the messages that it sent there until the alarm is over, or until a heartbeat
fails. Queues say that they are empty meanwhile. So a drain that leaves such messages waits for
them, and is made again when they have come back.

The interpreter: workers ask the generator what to do, do it when it is due, and tell how it went.

After jepsen.generator.interpreter, but pulled instead of pushed: no scheduler stands between the
generator and the workers, and no task is made for an operation. A worker that is free takes the
next operation and waits until it is due; the rate is the generator's and is shared by all.
Everything runs on one event loop, so the generator, a pure value in one cell, needs no lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from shalott.cluster.system import MendsPartitions, RecordsReplicas, TellsHeld, members_of
from shalott.cluster.systems.record import serving_nodes
from shalott.core.client import Client, completion_of
from shalott.core.errors import BootFailed, ClientError, Definite, Unreachable
from shalott.core.generator import Answer, Completed, Context, Generator, Pending
from shalott.core.history import Recorder
from shalott.core.json_value import Json
from shalott.core.op import NEMESIS, Completion, Invocation
from shalott.core.plan import Plan
from shalott.core.recording import RunRecorder
from shalott.core.worker import ClientFactory, Worker, describe
from shalott.harness.run.node_watch import DeathWatch, Observer
from shalott.harness.run.world import Nemesis, World
from shalott.nemesis.record import FAULTS
from shalott.workloads.programs import tell_places
from shalott.workloads.record import Workload

# Clients agree on a heartbeat every 10 s. Two may be written before one fails, each after 5 to 10.
WITHIN_S = 25.0
PAUSE_S = 0.5


async def came_back(world: World) -> bool:
    """Wait until no client holds a message, WITHIN_S at most; whether some have come back."""
    first = left = await _held(world)
    if not first:
        return False
    log.info("clients that are gone hold %d messages: waiting for them", first)
    clock = asyncio.get_running_loop().time
    until_s = clock() + WITHIN_S
    while left != 0 and clock() < until_s:
        await asyncio.sleep(PAUSE_S)
        answer = await _held(world)
        left = left if answer is None else answer
    return left != first


async def _held(world: World) -> int | None:
    """How many messages clients have, by the first node that answers; None if none does, or the
    system does not tell."""
    cluster, system = world.cluster, world.system
    if not isinstance(system, TellsHeld):
        return None
    for node in members_of(cluster, world.system):
        try:
            return await system.held(cluster, node)
        except ClientError:
            pass
    return None


async def _settled(
    world: World, workload: Workload, timeout_ms: int, left_down: asyncio.Event
) -> bool:
    """Waits anew when a node is left down meanwhile: who waits began to wait for it, too."""
    while True:
        left_down.clear()
        changed = asyncio.create_task(left_down.wait())
        waiting = asyncio.ensure_future(
            world.system.await_settled(world.cluster, workload.queues, timeout_ms)
        )
        try:
            await asyncio.wait((changed, waiting), return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
        finally:
            for pending in (changed, waiting):
                pending.cancel()
            await asyncio.gather(changed, waiting, return_exceptions=True)


log = logging.getLogger("shalott.run")

BOOT_TIMEOUT_MS = 120_000
SETUP_PAUSE_S = 0.5
SETUP_REFUSALS = 10  # that many may be a node's that has not heard of everything yet


@dataclass
class Stage:
    plan: Plan
    world: World
    workload: Workload
    record: RunRecorder
    nemesis: Nemesis
    phase: str = "boot"
    phase_began_ns: int = 0
    started: bool = False  # the nodes' processes were
    healed: bool = False
    notes: list[str] = field(default_factory=list)
    _deaths: DeathWatch = field(init=False)
    _observer: Observer = field(init=False)

    def __post_init__(self) -> None:
        self._deaths = DeathWatch(
            self.world, self.record, lambda: self.phase == "settle", self._rotten
        )
        self._observer = Observer(self.world, self.record, self.plan.observe_interval_ms)

    async def perform(self) -> None:
        interpreter = self._interpreter()
        self._deaths.start()
        try:
            async with self._phase("boot"):
                await self._boot()
            async with self._observer.observing():
                async with self._phase("load"):
                    await self._load(interpreter)
                async with self._phase("heal"):
                    await self.heal()
                async with self._phase("settle") as found:
                    found.update(await self._settle())
                    looks = not self.workload.writes_until_drained
                    if looks and not self.plan.reread:
                        await self._look_at_replicas()
                    await interpreter.let_go()
                if self.plan.reread:
                    async with self._phase("reread") as found:
                        found.update(await self._reread())
                        if looks:
                            await self._look_at_replicas()
                async with self._phase("drain") as found:
                    if down := self.world.cluster.left_down:
                        found["left_down"] = [*down]
                        self.notes.append(
                            f"{', '.join(down)} can't start from damaged files: left down, and the"
                            " rest of the cluster was drained."
                        )
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
            index = self.record.invoke(NEMESIS, "", Invocation(f="operator"))
            restarted = await system.mend_partition(cluster)
            self.record.complete(
                index, Completion(type="info", extra={"restarted": list(restarted)})
            )
            if restarted:
                log.info("the operator restarted %s", ", ".join(restarted))

    async def stop_watching(self) -> None:
        """Nodes that end from now on are no news."""
        await self._deaths.stop()

    async def missing(self) -> str:
        """What one more look at every node finds to be missing; "" if nothing is."""
        return await self._observer.missing(self.workload.queues)

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
        if self.workload.drains and await came_back(self.world):
            await interpreter.run(self._final_generator())

    @property
    def _client_nodes(self) -> tuple[str, ...]:
        return self.workload.nodes or serving_nodes(self.plan)

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
        self._tell_places()
        own = () if self.workload.declares_queues else self.workload.queues
        await system.configure(cluster, own)
        await self._set_up()

    def _tell_places(self) -> None:
        """Where clients that are programs find every node: all that is started from here on."""
        cluster, program = self.world.cluster, self.plan.workload.client
        if program:
            found = {node: cluster.endpoint(node, program.port) for node in self._client_nodes}
            tell_places({node: (at.host, at.port) for node, at in found.items()})

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
                done = completion_of(client, await client.invoke(left[0]))
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

    async def _settle(self) -> dict[str, Json]:
        """Whether the cluster settled, and else what was still missing: what the row will say."""
        timeout_ms = self.plan.settle_timeout_ms
        settled = await _settled(self.world, self.workload, timeout_ms, self._deaths.left_down)
        if not settled:
            self.notes.append(
                f"The cluster had not settled {timeout_ms / 1000:g} s after the heal;"
                " it was drained as it was."
            )
            log.warning("%s", self.notes[-1])
        reason = "" if settled else await self.missing() or "it changed from look to look"
        return {"settled": settled, "reason": reason}

    async def _reread(self) -> dict[str, Json]:
        """Restart the nodes in order: they know then what their disks hold. First those whose disk
        a fault has spoilt, one by one, while the others have all; then every node, all at once
        down. Whether they came back, and else why not."""
        members = members_of(self.world.cluster, self.world.system)
        rotten = self._rotten()
        for group in (*([node] for node in members if node in rotten), [*members]):
            group = [node for node in group if node not in self.world.cluster.left_down]
            reason = await self._restart(group, rotten)
            if reason:
                self.notes.append(f"The nodes did not come back from their disks: {reason}.")
                log.warning("%s", self.notes[-1])
                return {"settled": False, "reason": reason}
        return {"settled": True, "reason": ""}

    def _rotten(self) -> dict[str, bool]:
        """The nodes whose disks faults have spoilt, and whether they may get empty ones."""
        found: dict[str, bool] = {}
        for action in self.nemesis.resolved_actions:
            if "damages-data" in FAULTS.find(action.kind).effects:
                for node in action.nodes or ():
                    may_empty = bool(action.parameters.get("replace"))
                    found[node] = found.get(node, True) and may_empty
        return found

    async def _restart(self, nodes: Sequence[str], rotten: Mapping[str, bool]) -> str:
        """Stop these nodes, start them, and wait until all is well; why it is not, or "". A single
        one that can't start from its disk is right to give up, if that was spoilt: it is left down,
        or gets an empty one if it may."""
        cluster, system = self.world.cluster, self.world.system
        everyone, one = members_of(cluster, system), nodes[0]
        index = self.record.invoke(NEMESIS, "", Invocation(f="operator"))
        try:
            for node in nodes:
                await cluster.processes.stop(node)
            for node in reversed(nodes):  # the last to stop knows most
                await cluster.processes.start(node)
            try:
                await system.await_ready(cluster, everyone, BOOT_TIMEOUT_MS)
            except BootFailed:
                if len(nodes) > 1 or one not in rotten:
                    raise
                await cluster.processes.kill(one)
                if rotten[one] and "wipe" in cluster.capabilities:
                    log.warning("%s can't start from its disk, which is emptied", one)
                    await cluster.files.wipe(one)
                    await cluster.processes.start(one)
                else:
                    cluster.left_down.append(one)
                everyone = members_of(cluster, system)
                await system.await_ready(cluster, everyone, BOOT_TIMEOUT_MS)
        except BootFailed as error:
            return str(error).partition("\n")[0].rstrip(".")
        finally:
            extra: dict[str, Json] = {"restarted": list(nodes)}
            self.record.complete(index, Completion(type="info", extra=extra))
        timeout_ms = self.plan.settle_timeout_ms
        if await system.await_settled(cluster, self.workload.queues, timeout_ms):
            return ""
        return await self.missing() or "it changed from look to look"

    async def _look_at_replicas(self) -> None:
        """What is replicated, where nodes can be asked or looked into."""
        system = self.world.system
        if self.world.inspect is not None:
            await self.world.inspect()
        if isinstance(system, RecordsReplicas):
            await system.record_replicas(self.world.cluster, self.record)

    @contextlib.asynccontextmanager
    async def _phase(self, name: str) -> AsyncIterator[dict[str, Json]]:
        """What is put into the mapping is recorded when the phase ends."""
        self.show(name)
        log.info("phase %s", name)
        index = self.record.invoke(NEMESIS, "", Invocation(f="phase", extra={"phase": name}))
        found: dict[str, Json] = {}
        yield found
        self.record.complete(
            index, Completion(type="ok", extra={"phase": name, **found} if found else None)
        )


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

    async def let_go(self) -> None:
        """Clients that stayed when they had no answer have waited long enough."""
        await asyncio.gather(*(worker.let_go() for worker in self._workers))

    async def close(self) -> None:
        await self.let_go()
        await asyncio.gather(*(worker.close() for worker in self._workers))


async def _serve(worker: Worker, cell: _Cell) -> None:
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
