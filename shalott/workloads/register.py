"""The workload register: independent registers, read, written and compared-and-set.

As in Jepsen's etcd tutorial. It runs on each system whose record says how its clients do that
(``Registers``, cluster/systems/record.py); what that promises is judged: linearizable registers by
a search for an order, sequential ones by what no client may see of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.history.concurrent import UNKNOWN, Operation
from shalott.checkers.judge import JudgeOfRuns
from shalott.checkers.linearizability.run_checker import Linearizability
from shalott.checkers.runs.documented_anomalies import DocumentedAnomalies
from shalott.cluster.systems.record import REGISTERS, SYSTEMS, Registers
from shalott.core.client import Client
from shalott.core.errors import Definite, UsageError
from shalott.core.generator import Generator, Stagger, TimeLimit
from shalott.core.op import Completion, Invocation
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan, names_prefix
from shalott.core.registers import CAS, PACKED, READ, WRITE, Registered, RegisterMix
from shalott.core.rng import stream_key
from shalott.workloads.programs import registers_by
from shalott.workloads.record import Workload, WorkloadRecord
from shalott.workloads.shared_checkers import documented_losses

AFTERWARDS_MS = 2000  # so long registers are used on after the heal
MONOTONIC = ("monotonic-reads", "monotonic-writes")
SESSIONS = {
    "sequential": ("read-your-writes", *MONOTONIC, "writes-follow-reads"),
    "monotonic": MONOTONIC,
}  # by promise


class RegisterParameters(msgspec.Struct, frozen=True):
    ops_per_key: Annotated[
        int, msgspec.Meta(ge=1, description="Then another key takes its place.")
    ] = 100
    clients_per_key: Annotated[int, msgspec.Meta(ge=1, description="A group of clients.")] = 3


def parameters_of(plan: Plan) -> RegisterParameters:
    return make_parameters(RegisterParameters, plan.workload.parameters)


def registers_of(plan: Plan) -> Registers:
    """How the plan's system has registers. Raises UsageError: not under this plan."""
    found = SYSTEMS.find(plan.system.name).registers(plan)
    if plan.workload.client:
        return registers_by(plan, found)
    if found is None:
        raise UsageError(f"{plan.system.name} has no registers as it is set here")
    return found


def paced(plan: Plan, part: str, limit_ms: int) -> Generator:
    parameters, ways = parameters_of(plan), registers_of(plan)
    mix = RegisterMix(
        part=part,
        seed=plan.seed,
        concurrency=plan.workload.concurrency,
        clients_per_key=parameters.clients_per_key,
        ops_per_key=parameters.ops_per_key,
        cas=ways.cas,
        unique=ways.promises in SESSIONS,
    )
    pauses = stream_key(plan.seed, part, "stagger")
    return TimeLimit(Stagger(mix, 1e9 / plan.workload.rate_hz, pauses), limit_ms * 1_000_000)


def register_workload(plan: Plan) -> Workload:
    ways = registers_of(plan)

    def make_client(host: str, port: int) -> Client:
        timeout_ms = plan.workload.op_timeout_ms
        made = ways.make_client(host, port, timeout_ms=timeout_ms)
        return RegisterClient(made, names_prefix(plan))

    return Workload(
        name="register",
        queues=(),
        port=ways.port,
        make_client=make_client,
        generator=paced(plan, "load", plan.time_limit_ms),
        final_generator=paced(plan, "afterwards", AFTERWARDS_MS),
    )


@dataclass(slots=True)
class RegisterClient:
    """A Registered as a client of the harness. ``prefix``: of the keys there."""

    registered: Registered
    prefix: str = ""

    async def open(self) -> None:
        await self.registered.open()

    async def close(self) -> None:
        await self.registered.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        key, value = f"{self.prefix}{invocation.key}", invocation.value
        if invocation.f == READ:
            return Completion(type="ok", value=await self.registered.read(key))
        assert value is not None
        if invocation.f == WRITE:
            await self.registered.write(key, value)
            return Completion(type="ok", value=value)
        if invocation.f == CAS:
            if await self.registered.cas(key, *divmod(value, PACKED)):
                return Completion(type="ok", value=value)
            return Completion(type="fail", error="did not match")
        raise Definite(f"a client of registers knows no {invocation.f}")


@dataclass(frozen=True, slots=True)
class PackedCasRegister:
    """A register whose cas is one number (core/registers.py); one that failed is not judged."""

    name: ClassVar[str] = "cas-register"

    @property
    def init(self) -> Hashable:
        return (None,)

    def step(self, state: Hashable, op: Operation) -> Hashable:
        if op.f == READ:
            return state if op.result is UNKNOWN or state == (op.result,) else None
        required, value = divmod(int(str(op.argument)), PACKED)
        if op.f == WRITE:
            return (op.argument,)
        return (value,) if state == (required,) else None


def register_checkers(plan: Plan) -> Sequence[Checker]:
    fs = (READ, WRITE, CAS)
    judges: tuple[Checker, ...] = (Linearizability(model=PackedCasRegister(), fs=fs),)
    if sessions := SESSIONS.get(registers_of(plan).promises):
        judges = tuple(JudgeOfRuns(name, fs=fs) for name in sessions)
    documented = documented_losses(plan)
    return tuple(DocumentedAnomalies(each, documented) for each in judges) if documented else judges


def check(plan: Plan) -> None:
    """Raises UsageError."""
    registers_of(plan)


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return f"{parameters.clients_per_key} clients a register, {parameters.ops_per_key} operations"


WORKLOAD = WorkloadRecord(
    name="register",
    summary="independent registers with compare-and-set, as linearizable as the system promises",
    needs=(REGISTERS,),
    parameters=RegisterParameters,
    build=register_workload,
    checkers=register_checkers,
    check=check,
    describe=describe,
    reads=(READ,),
)
