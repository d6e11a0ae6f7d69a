"""The workloads list-append and rw-register: transactions over several keys, after Elle's.

After jepsen.tests.cycle.append and .wr: clients append to lists, or write registers, and read
several of either in one transaction; after the heal every key is read at every node. What they saw
is searched for what the promised isolation level forbids (checkers/judge.py).

They run on each system whose record says that it does transactions, and how (``Transactions``,
cluster/systems/record.py): that also says what it promises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import msgspec

from shalott.checkers.checker import Checker
from shalott.checkers.judge import JudgeOfRuns
from shalott.cluster.systems.record import SYSTEMS, TRANSACTIONS, Transactions
from shalott.core.client import Client
from shalott.core.errors import Indefinite, UsageError
from shalott.core.generator import Generator, Stagger, TimeLimit
from shalott.core.op import Completion, Invocation
from shalott.core.parameters import make_parameters
from shalott.core.plan import Plan
from shalott.core.rng import Draw, stream_key
from shalott.core.transactions import (
    READ,
    TXN,
    Mop,
    Transactor,
    Write,
    mops_of,
    read_all,
    transaction_mix,
)
from shalott.workloads.programs import transactions_by
from shalott.workloads.record import Values, Workload, WorkloadRecord
from shalott.workloads.shared_checkers import run_checkers

LIST_APPEND, RW_REGISTER = "list-append", "rw-register"
WRITES: dict[str, Write] = {LIST_APPEND: "append", RW_REGISTER: "w"}
READING_LIMIT_MS = 20_000
KEYS_A_READ = 8  # of the final reads

Length = Annotated[int, msgspec.Meta(ge=1, le=64)]


class TransactionParameters(msgspec.Struct, frozen=True, kw_only=True):
    keys: Annotated[int, msgspec.Meta(ge=1, le=60, description="In use at a time.")] = 6
    key_choice: Annotated[
        Literal["exponential", "uniform"],
        msgspec.Meta(description="exponential: each twice as often as the one before."),
    ] = "exponential"
    shortest: Annotated[Length, msgspec.Meta(description="Micro-operations, at least.")] = 1
    longest: Annotated[Length, msgspec.Meta(description="At most.")] = 4
    writes_per_key: Annotated[
        int, msgspec.Meta(ge=1, description="Then another takes its place.")
    ] = 32
    isolation: Annotated[
        str, msgspec.Meta(description="What must hold, if not what the system promises.")
    ] = ""


def parameters_of(plan: Plan) -> TransactionParameters:
    return make_parameters(TransactionParameters, plan.workload.parameters)


def transactions_of(plan: Plan) -> Transactions:
    """How the plan's system does transactions. Raises UsageError: not under this plan."""
    found = SYSTEMS.find(plan.system.name).transactions(plan)
    if plan.workload.client:
        return transactions_by(plan, found)
    if found is None:
        raise UsageError(f"{plan.system.name} does no transactions as it is set here")
    return found


def most_keys(plan: Plan) -> int:
    """No load of this plan can have come to use more keys: each new one takes the place of a key
    that was written to its limit."""
    parameters, workload = parameters_of(plan), plan.workload
    # Gaps are uniform in [0, 2 mean): six standard deviations more than the mean's number.
    mean = workload.rate_hz * plan.time_limit_ms / 1000
    transactions = mean + 6 * (mean / 3) ** 0.5 + 20
    return parameters.keys + int(transactions * parameters.longest / parameters.writes_per_key)


def load_generator(plan: Plan) -> Generator:
    parameters = parameters_of(plan)
    mix = transaction_mix(
        WRITES[plan.workload.name],
        keys=parameters.keys,
        shortest=parameters.shortest,
        longest=parameters.longest,
        writes_a_key=parameters.writes_per_key,
        uniform=parameters.key_choice == "uniform",
        seed=plan.seed,
    )
    paced = Stagger(mix, 1e9 / plan.workload.rate_hz, stream_key(plan.seed, TXN, "stagger"))
    return TimeLimit(paced, plan.time_limit_ms * 1_000_000)


def reading_generator(plan: Plan, nodes: Sequence[str]) -> Generator:
    reads = read_all(nodes, most_keys(plan), KEYS_A_READ)
    return TimeLimit(reads, READING_LIMIT_MS * 1_000_000)


def transaction_workload(plan: Plan) -> Workload:
    ways = transactions_of(plan)

    def make_client(host: str, port: int) -> Client:
        timeout_ms = plan.workload.op_timeout_ms
        return TransactionClient(ways.make_client(host, port, timeout_ms=timeout_ms))

    return Workload(
        name=plan.workload.name,
        queues=(),
        port=ways.port,
        make_client=make_client,
        generator=load_generator(plan),
        final_generator=reading_generator(plan, plan.cluster.nodes),
        final_at=partial(reading_generator, plan),
    )


@dataclass(slots=True)
class TransactionClient:
    """A Transactor as a client of the harness."""

    transactor: Transactor

    async def open(self) -> None:
        await self.transactor.open()

    async def close(self) -> None:
        await self.transactor.close()

    async def invoke(self, invocation: Invocation) -> Completion:
        asked = mops_of(invocation)
        done = tuple(await self.transactor.transact(asked))
        if [_without_reads(mop) for mop in done] != [_without_reads(mop) for mop in asked]:
            name = type(self.transactor).__name__
            raise Indefinite(f"{name}.transact returned another transaction than it was asked for")
        return Completion(type="ok", extra={"value": done})


def _without_reads(mop: Mop) -> Mop:
    f, key, value = mop
    return f, key, None if f == READ else value


def transaction_checkers(plan: Plan) -> Sequence[Checker]:
    level = parameters_of(plan).isolation or transactions_of(plan).promises
    judge = f"{plan.workload.name}:consistency={level}"
    return (JudgeOfRuns(judge, fs=(TXN,)), *run_checkers(plan))


def check(plan: Plan) -> None:
    """Raises UsageError: the system can't, or not so."""
    parameters, ways = parameters_of(plan), transactions_of(plan)
    if WRITES[plan.workload.name] not in ways.writes:
        raise UsageError(f"{plan.system.name} does no transactions of {plan.workload.name}")
    if parameters.shortest > parameters.longest:
        raise UsageError(
            f"--shortest {parameters.shortest} is more than --longest {parameters.longest}"
        )


def draw_parameters(draw: Draw) -> Values:
    return {
        "keys": draw.knob("keys", (2, 3, 6, 10)),
        "key_choice": draw.knob("key_choice", ("exponential", "uniform")),
        "longest": draw.knob("longest", (2, 4, 4, 8)),
        "writes_per_key": draw.knob("writes_per_key", (8, 32, 128)),
    }


def describe(plan: Plan) -> str:
    parameters = parameters_of(plan)
    return f"{parameters.keys} keys at a time, {parameters.longest} micro-operations at most"


def record(name: str, summary: str, build: Callable[[Plan], Workload]) -> WorkloadRecord:
    return WorkloadRecord(
        name=name,
        summary=summary,
        needs=(TRANSACTIONS,),
        parameters=TransactionParameters,
        build=build,
        checkers=transaction_checkers,
        check=check,
        draw=draw_parameters,
        describe=describe,
        lower=("keys", "longest"),
    )


APPENDS = record(
    LIST_APPEND,
    "transactions that read lists and append to them, and what isolation that shows",
    transaction_workload,
)
REGISTERS = record(
    RW_REGISTER,
    "transactions that read and write registers, and what isolation that shows",
    transaction_workload,
)
