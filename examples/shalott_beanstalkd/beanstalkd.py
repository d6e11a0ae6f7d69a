"""beanstalkd under test by shalott.api alone: one a node, each for itself, with a binary log.

Jobs are put and taken while faults come and go, then each node is emptied. A job that was reserved
comes back when its connection ends; one whose deletion was not answered was seen, and has a value.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec

import shalott.api as api
from shalott.api import Cluster, Completion, Indefinite, Invocation


class BeanstalkdClient:
    def __init__(self, host: str, port: int, *, timeout_ms: int) -> None:
        self._at, self._timeout_s = (host, port), timeout_ms / 1000
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                self._reader, self._writer = await asyncio.open_connection(*self._at)
        except (OSError, TimeoutError) as error:
            raise api.Unreachable(f"no connection: {type(error).__name__}") from error

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f == "put":
            body = str(invocation.value)
            said = await self.ask(f"put 0 0 60 {len(body)}\r\n{body}")
            if not said.startswith("INSERTED"):
                raise api.Definite(said)
            return Completion(type="ok")
        said = await self.ask("reserve-with-timeout 0")
        if said == "TIMED_OUT":
            return Completion(type="fail", error="empty")
        value = int(await self._line())
        try:
            await self.ask(f"delete {said.split()[1]}")
        except Indefinite as error:
            return Completion(type="info", value=value, error=str(error))
        return Completion(type="ok", value=value)

    async def ask(self, words: str) -> str:
        assert self._writer is not None, "open comes first"
        self._writer.write(f"{words}\r\n".encode())
        return await self._line()

    async def _line(self) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                line = await self._reader.readuntil(b"\r\n")
        except (OSError, EOFError, TimeoutError) as error:
            raise Indefinite(f"no answer: {type(error).__name__}") from error
        return line.decode().strip()


class Parameters(msgspec.Struct, frozen=True):
    fsync_ms: Annotated[int, msgspec.Meta(ge=0, description="Sync so often; 0: each write.")] = 50


class BeanstalkdSystem:
    name = "beanstalkd"
    ports: Mapping[str, int] = {"client": 11300}
    image = str(Path(__file__).parent / "images" / "beanstalkd")

    def __init__(self, plan: api.Plan) -> None:
        parameters = api.make_parameters(Parameters, plan.system.parameters)
        self._words = ("beanstalkd", "-V", "-b", "{data}", f"-f{parameters.fsync_ms}")

    def node_specs(self, topology: api.Topology) -> Sequence[api.NodeSpec]:
        return [self._spec(node, ports["client"]) for node, ports in topology.listen.items()]

    def _spec(self, node: str, at: api.Endpoint) -> api.NodeSpec:
        words = (*self._words, "-l", at.host, "-p", str(at.port))
        return api.NodeSpec(name=node, image=self.image, command=words, collect=())

    async def await_ready(self, cluster: Cluster, nodes: Sequence[str], timeout_ms: int) -> None:
        async def why_not(node: str) -> str:
            await self.observe(cluster, node)
            return ""

        await api.await_nodes(cluster, nodes, why_not, timeout_ms)

    async def configure(self, cluster: Cluster, queues: Sequence[str]) -> None: ...

    async def observe(self, cluster: Cluster, node: str) -> api.Observation:
        at = cluster.endpoint(node, "client")
        client = BeanstalkdClient(at.host, at.port, timeout_ms=1000)
        try:
            await client.open()
            await client.ask("list-tube-used")
        finally:
            await client.close()
        return {"claims": [{"group": node, "role": "master", "epoch": 1}]}

    async def await_settled(self, cluster: Cluster, queues: Sequence[str], timeout_ms: int) -> bool:
        try:
            await self.await_ready(cluster, cluster.nodes, timeout_ms)
        except api.BootFailed:
            return False
        return True

    def read_events(self, collected: Path, run_start_wall_ns: int) -> Sequence[api.EventRow]:
        return ()


SYSTEM = api.SystemRecord(
    name="beanstalkd",
    summary="beanstalkd from Debian's package: jobs that workers take, each node for itself",
    make=BeanstalkdSystem, speaks=("beanstalkd",), workload="jobs", parameters=Parameters,
    profiles={"upstream": api.Profile(), "safe": api.Profile(parameters={"fsync_ms": 0})},
    worlds=("docker", "local", "ssh"), stays_up=True,  # the last two where it is installed
)  # fmt: skip


class Load(msgspec.Struct, frozen=True):
    seed: int
    count: int = 0

    def next(self, context: api.Context) -> tuple[api.Answer, api.Generator]:
        is_put = api.draw_below(api.stream_key(self.seed, "jobs"), self.count, 3) > 0
        put, take = Invocation(f="put", value=self.count + 1), Invocation(f="take")
        successor = Load(self.seed, self.count + 1)
        return api.Scheduled(context.now_ns, put if is_put else take), successor

    def update(self, event: api.Completed) -> api.Generator:
        return self


class Emptying(msgspec.Struct, frozen=True):
    empty: tuple[str, ...] = ()

    def next(self, context: api.Context) -> tuple[api.Answer, api.Generator]:
        take = api.Scheduled(context.now_ns, Invocation(f="take"))
        return None if context.node in self.empty else take, self

    def update(self, event: api.Completed) -> api.Generator:
        return Emptying((*self.empty, event.node)) if event.error == "empty" else self


def workload(plan: api.Plan) -> api.Workload:
    pauses = api.stream_key(plan.seed, "jobs", "stagger")
    paced = api.Stagger(Load(plan.seed), 1e9 / plan.workload.rate_hz, pauses)
    return api.Workload(
        name="jobs", queues=(), port="client",
        make_client=partial(BeanstalkdClient, timeout_ms=plan.workload.op_timeout_ms),
        generator=api.TimeLimit(paced, plan.time_limit_ms * 1_000_000),
        final_generator=api.TimeLimit(Emptying(), 60_000_000_000),
    )  # fmt: skip


@dataclass(frozen=True)
class Jobs:
    nodes: tuple[str, ...]
    name: str = "jobs"

    def check(self, history: api.History) -> api.Result:
        ops = api.client_operations(history)
        put, ok, empty = ops.f.equal("put"), ops.type.equal("ok"), ops.error.equal("empty")
        acked, seen = {*ops.value[put & ok].tolist()}, {*ops.value[~put & ops.has_value].tolist()}
        found = {
            "lost": acked - seen,
            "unexpected": seen - {*ops.value[put].tolist()},
            "phantom": seen & {*ops.value[put & ops.type.equal("fail")].tolist()},
        }
        empty &= ops.invoke_ns > ops.invoke_ns[put].max(initial=0)
        full = [node for node in self.nodes if not (empty & ops.node.equal(node)).any()]
        wrong = [kind for kind, jobs in found.items() if jobs]
        return api.Result(
            checker=self.name,
            valid="unknown" if full else not wrong,
            counts={f"{kind}-count": len(jobs) for kind, jobs in found.items()},
            anomalies=tuple(
                api.Anomaly(kind=k, summary=f"{k} jobs: {sorted(found[k])[:5]}") for k in wrong
            ),
            notes=(f"{', '.join(full)} did not say that no job is left.",) if full else (),
            headline=f"none of {len(acked):,} acknowledged jobs was lost",
            words={"lost": ("1 acknowledged job was lost", "{n} acknowledged jobs were lost")},
        )


WORKLOAD = api.WorkloadRecord(
    name="jobs",
    summary="jobs are put and taken, and every acknowledged one is taken in the end",
    needs=("beanstalkd",), build=workload, checkers=lambda plan: (Jobs(plan.cluster.nodes),),
)  # fmt: skip
