"""One boot of a plug-in's system, on which hands are laid: nodes are killed, paused and cut off one
after the other, and its client is asked for one operation at a time."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shalott.cluster.cluster import Cluster
from shalott.cluster.nodes import NodeSpec, Topology
from shalott.cluster.system import System
from shalott.core.client import Client, completion_of
from shalott.core.errors import ClientError, HarnessError
from shalott.core.generator import Completed, Context, Generator, Scheduled
from shalott.core.memory_recording import MemoryRecorder
from shalott.core.op import Completion, Invocation, OpType
from shalott.core.plan import Plan
from shalott.core.worker import Worker
from shalott.harness.conformance.lies import is_write
from shalott.harness.conformance.points import Failed, NotTried, Score
from shalott.workloads.record import Workload, WorkloadRecord

DRAWN = 400  # operations, until each kind was seen
HOUR_MS = 3_600_000
WITHIN_S = 10.0  # an operation succeeds, after which it is asked for again and again
SETTLE_MS = 30_000
OBSERVE_S = 5.0


class SeenSoftware:
    """The system as a cluster boots it; what its nodes were told is kept."""

    def __init__(self, system: System) -> None:
        self.name, self.ports, self.image = system.name, system.ports, system.image
        self.system = system
        self.specs: list[NodeSpec] = []

    def node_specs(self, topology: Topology) -> Sequence[NodeSpec]:
        self.specs[:] = self.system.node_specs(topology)
        told = sorted(spec.name for spec in self.specs)
        if told != sorted(topology.listen):
            raise Failed(f"node_specs tells of {', '.join(told) or 'no node'}, and the nodes are"
                         f" {', '.join(sorted(topology.listen))}")  # fmt: skip
        return self.specs


class Operations:
    """Draws operations of a long load, each once, as if no time passed."""

    def __init__(self, record: WorkloadRecord, plan: Plan) -> None:
        self._record = record
        long = msgspec.structs.replace(plan, time_limit_ms=HOUR_MS)
        built = record.build(long)
        self._generator: Generator = built.generator
        self._final = built.final_generator
        self._nodes = plan.cluster.nodes
        self._concurrency = plan.workload.concurrency

    def draw(self) -> Iterator[Invocation]:
        for number in range(DRAWN):
            process = number % self._concurrency
            node = self._nodes[process % len(self._nodes)]
            answer, self._generator = self._generator.next(Context(0, process, node))
            if answer is None:
                return
            if isinstance(answer, Scheduled):
                is_own = answer.invocation.f in self._record.own
                kind: OpType = "ok" if is_own else "fail"
                done = Completed(answer.at_ns, process, node, answer.invocation, kind)
                self._generator = self._generator.update(done)
                if not is_own:
                    yield answer.invocation

    def write(self) -> Invocation:
        """One that changes something, if there is such; else any."""
        found = None
        for each in self.draw():
            if found is None or found.f in self._record.reads:
                found = each
            if is_write(self._record, each):
                return each
        if found is None:
            raise Failed("the workload's generator gives no operation")
        return found

    def of_each_kind(self) -> list[Invocation]:
        """Of those that change something, the final generator's too."""
        found: dict[str, Invocation] = {}
        load = list(self.draw())
        own, self._generator = self._generator, self._final
        final = list(self.draw())
        self._generator = own
        for each in (*load, *final):
            if each.f not in self._record.reads:
                found.setdefault(each.f, each)
        return list(found.values())


@dataclass
class HandsOn:
    plan: Plan
    record: WorkloadRecord
    workload: Workload
    cluster: Cluster
    system: System
    score: Score
    boot_within_ms: int
    _processes: int = 0

    async def perform(self) -> None:
        """Every point that one boot can show; what is left is not tried. Tears all down."""
        seen = SeenSoftware(self.system)
        try:
            with self.score.trying("boots") as told:
                began_s = time.monotonic()
                await self._boot(seen)
                count = len(self.cluster.nodes)
                told.append(f"{count} nodes were ready after {time.monotonic() - began_s:.1f} s")
            if not self.score.passed("boots"):
                await self._show_output()
                return
            self._operations = Operations(self.record, self.plan)
            for name, step in (
                ("serves", self._serves), ("observes", self._observes), ("kills", self._kills),
                ("restarts", self._restarts), ("timeouts are info", self._times_out),
                ("pauses", self._resumes), ("cuts", self._cuts),
            ):  # fmt: skip
                with self.score.trying(name) as told:
                    told.append(await step())
                if not self.score.passed("serves"):
                    self.score.rest("no operation succeeds")
                    return
            with self.score.trying("collects") as told:
                told.append(await self._collects(seen.specs))
        finally:
            await self.cluster.teardown()

    async def _boot(self, seen: SeenSoftware) -> None:
        await self.cluster.boot(seen)
        await self._ready()
        own = () if self.workload.declares_queues else self.workload.queues
        await self.system.configure(self.cluster, own)
        client = self._client(self._nodes[0]) if self.workload.setup else None
        if client is None:
            return
        await client.open()
        for asked in self.workload.setup:
            done = completion_of(client, await client.invoke(asked))
            if done.type != "ok":
                raise Failed(f"the set-up's {asked.f} ended as {_shown(done)}")
        await client.close()

    async def _ready(self) -> None:
        cluster, timeout_ms = self.cluster, self.boot_within_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000 + 5):
                await self.system.await_ready(cluster, cluster.nodes, timeout_ms)
        except TimeoutError as error:
            raise Failed(
                f"await_ready had not returned {timeout_ms / 1000:g} s after the boot"
            ) from error

    async def _show_output(self) -> None:
        for node in self.cluster.nodes[:1]:
            try:
                printed = (await self.cluster.files.output(node, 5)).strip()
            except HarnessError:
                continue
            self.score.note("serves", "not tried", f"{node} printed: {printed or 'nothing'}")

    @property
    def _nodes(self) -> tuple[str, ...]:
        return self.workload.nodes or self.plan.cluster.nodes

    def _client(self, node: str) -> Client:
        several = self.workload.several
        if several is None:
            at = self.cluster.endpoint(node, self.workload.port)
            return self.workload.make_client(at.host, at.port)
        found = {p: self.cluster.endpoint(several.at(node, p), p) for p in several.names}
        return several.make_client({port: (at.host, at.port) for port, at in found.items()})

    def _worker(self, node: str) -> Worker:
        self._processes += 1
        return Worker(
            self._processes, node, 1, self._client,
            MemoryRecorder(time.monotonic_ns, time.time_ns),
            op_timeout_ms=self.plan.workload.op_timeout_ms, seed=self.plan.seed,
        )  # fmt: skip

    async def _succeeds(self, node: str) -> str:
        """An operation on a node that serves; asked for again until it does."""
        worker, until_s = self._worker(node), time.monotonic() + WITHIN_S
        try:
            while True:
                asked = self._operations.write()
                done = await worker.perform(asked)
                if done.type == "ok":
                    return asked.f
                if time.monotonic() > until_s:
                    raise Failed(
                        f"{asked.f} on {node}, which serves, ended as {_shown(done)} for"
                        f" {WITHIN_S:g} s"
                    )
                await asyncio.sleep(0.1)
        finally:
            await worker.close()

    # -- the points

    async def _serves(self) -> str:
        done = [await self._succeeds(node) for node in self._nodes]
        return f"{', '.join(dict.fromkeys(done))} on {', '.join(self._nodes)}"

    async def _observes(self) -> str:
        for node in self.cluster.nodes:
            found: object = await self.system.observe(self.cluster, node)
            if not isinstance(found, Mapping):
                raise Failed(f"observe returned a {type(found).__name__} of {node}, no mapping")
            claims = found.get("claims", ())
            if any(not isinstance(c, Mapping) or not {"group", "role"} <= set(c) for c in claims):
                raise Failed(f"a claim of {node} lacks its group or its role")
        return ""

    async def _kills(self) -> str:
        """Each node: one alone may keep the data."""
        return ", ".join([await self._kill(node) for node in self._nodes])

    async def _kill(self, node: str) -> str:
        await self.cluster.processes.kill(node)
        worker = self._worker(node)
        asked = self._operations.write()
        done = await worker.perform(asked)
        await worker.close()
        if done.type == "ok":
            raise Failed(f"{asked.f} on {node}, which had been killed, was answered ok")
        await self._cannot_be_asked(node)
        await self._start(node)
        return f"{asked.f} on {node}, dead: {done.type}"

    async def _cannot_be_asked(self, node: str) -> None:
        try:
            async with asyncio.timeout(OBSERVE_S):
                await self.system.observe(self.cluster, node)
        except (ClientError, HarnessError, OSError, TimeoutError):
            return
        raise Failed(f"observe tells of {node}, which is dead, what it believes")

    async def _restarts(self) -> str:
        for node in self._nodes:
            await self.cluster.processes.stop(node)
            await self._start(node)
        return ""

    async def _start(self, node: str) -> None:
        await self.cluster.processes.start(node)
        await self._ready()
        await self._succeeds(node)

    async def _times_out(self) -> str:
        return ", ".join([await self._time_out(node) for node in dict.fromkeys(self._ends)])

    @property
    def _ends(self) -> tuple[str, str]:
        """The first node, which may be another than the rest, and the last."""
        return self._nodes[0], self._nodes[-1]

    async def _time_out(self, node: str) -> str:
        processes = self.cluster.processes
        kinds = self._operations.of_each_kind()
        workers = [self._worker(node) for _ in kinds]
        for worker in workers:
            await worker.perform(self._operations.write())  # it has a connection
        await processes.pause(node)
        try:
            ended = await asyncio.gather(
                *(worker.perform(asked) for worker, asked in zip(workers, kinds, strict=True))
            )
        finally:
            await processes.resume(node)
        await asyncio.gather(*(worker.close() for worker in workers))
        pairs = list(zip(kinds, ended, strict=True))
        wrong = [
            f"{asked.f} ended as {_shown(done)}" for asked, done in pairs if done.type == "fail"
        ]
        if wrong:
            raise Failed(f"on {node}, which was paused, {', '.join(wrong)}: it may happen yet")
        if all(done.type == "ok" for done in ended):
            raise NotTried(f"{node} was paused, and its clients were served nevertheless")
        await self._succeeds(node)
        told = ", ".join(f"{asked.f}: {done.error or done.type}" for asked, done in pairs)
        return f"{node}, paused: {told}"

    async def _resumes(self) -> str:
        for node in self._nodes:
            await self._succeeds(node)
        return ""

    async def _cuts(self) -> str:
        nodes, links = self.cluster.nodes, self.cluster.links
        if len(nodes) < 2:
            raise NotTried("there is one node")
        pairs = [(a, b) for a in nodes[:1] for b in nodes[1:]]
        both = [link for a, b in pairs for link in ((a, b), (b, a))]
        await links.cut(both)
        through = [link for link in both if await links.reach(*link, timeout_ms=300)]
        await links.mend(both)
        if through:
            raise Failed(f"packets still passed from {through[0][0]} to {through[0][1]}")
        try:
            async with asyncio.timeout(SETTLE_MS / 1000 + 5):
                settled = await self.system.await_settled(
                    self.cluster, self.workload.queues, SETTLE_MS
                )
        except TimeoutError:
            settled = False
        if settled is not True:
            raise Failed(f"{SETTLE_MS / 1000:g} s after the cut await_settled had not said True")
        await self._succeeds(nodes[0])
        return f"{nodes[0]} was cut off, and the cluster settled after it"

    async def _collects(self, specs: Sequence[NodeSpec]) -> str:
        with tempfile.TemporaryDirectory(prefix="shalott-try-") as place:
            await self.cluster.files.collect(Path(place))
            brought = await asyncio.to_thread(_files_with_content, Path(place))
        if not brought:
            raise Failed("no node printed or wrote anything that was brought")
        named = {path for spec in specs for path in spec.collect}
        missing = [
            path for path in sorted(named)
            if not any(each.partition("/")[2].startswith(path) for each in brought)
        ]  # fmt: skip
        if missing:
            raise Failed(f"collect names {', '.join(missing)}, and no node had it below {{data}}")
        return f"{len(brought)} files"


def _files_with_content(place: Path) -> list[str]:
    found = sorted(path for path in place.rglob("*") if path.is_file())
    return [path.relative_to(place).as_posix() for path in found if path.stat().st_size]


def _shown(done: Completion) -> str:
    return f"{done.type} ({done.error})" if done.error else done.type
