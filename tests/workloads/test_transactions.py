"""The workloads of transactions: their client, their reads at the end, and what they refuse."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from shalott.cluster.systems.record import SYSTEMS
from shalott.core.errors import Indefinite, UsageError
from shalott.core.generator import Context, Generator, Scheduled
from shalott.core.op import Completion
from shalott.core.plan import ClusterPlan, GatePlan, Plan, SystemPlan, WorkloadPlan
from shalott.core.transactions import Mop, invocation_of, mops_of
from shalott.workloads import transactions
from shalott.workloads.transactions import TransactionClient, most_keys
from shalott_transactions.toy import SYSTEM

pytestmark = pytest.mark.unit

ASKED: tuple[Mop, ...] = (("append", 1, 7), ("r", 1, None))


def plan(workload: str = "list-append", rate_hz: float = 100, **parameters: object) -> Plan:
    return Plan(
        name="toy",
        seed=5,
        time_limit_ms=5000,
        cluster=ClusterPlan(backend="sim", nodes=("n1", "n2", "n3")),
        system=SystemPlan(name="toy-transactions", profile="safe"),
        workload=WorkloadPlan(name=workload, rate_hz=rate_hz, concurrency=6, parameters=parameters),
        gates=GatePlan(),
        faults=(),
    )


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    SYSTEMS.offer(SYSTEM)
    yield
    SYSTEMS.withdraw(SYSTEM.name)


class Answers:
    """A Transactor that gives one answer."""

    def __init__(self, answer: Sequence[Mop]) -> None:
        self._answer = answer

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def transact(self, mops: Sequence[Mop]) -> Sequence[Mop]:
        return self._answer


def invoked(answer: Sequence[Mop]) -> Completion:
    client = TransactionClient(Answers(answer))
    return asyncio.run(client.invoke(invocation_of(ASKED)))


def test_a_transaction_stands_in_the_history_with_what_it_saw() -> None:
    done = invoked((("append", 1, 7), ("r", 1, [3, 7])))
    assert done == Completion(type="ok", extra={"value": (("append", 1, 7), ("r", 1, [3, 7]))})


@pytest.mark.parametrize(
    "answer",
    [
        (("append", 1, 7),),
        (("append", 1, 8), ("r", 1, [7])),
        (("r", 1, [7]), ("append", 1, 7)),
        (("append", 1, 7), ("r", 2, [7])),
    ],
)
def test_an_answer_to_another_transaction_is_no_answer(answer: Sequence[Mop]) -> None:
    with pytest.raises(Indefinite, match="Answers.transact returned another transaction"):
        invoked(answer)


def load(of: Plan, transactions_drawn: int) -> int:
    """The highest key of so many transactions."""
    generator: Generator = transactions.load_generator(of)
    highest, now_ns = 0, 0
    for _ in range(transactions_drawn):
        answer, generator = generator.next(Context(now_ns, 0, "n1"))
        if not isinstance(answer, Scheduled):
            break
        now_ns = max(now_ns, answer.at_ns)
        highest = max(highest, *(key for _, key, _ in mops_of(answer.invocation)))
    return highest


def test_the_last_reads_are_of_all_keys_that_the_load_can_have_used() -> None:
    rng = random.Random(3)
    for _ in range(20):
        parameters = {
            "keys": rng.choice((1, 3, 10)),
            "longest": rng.choice((1, 4, 8)),
            "writes_per_key": rng.choice((1, 4, 32)),
        }
        of = plan(rate_hz=rng.choice((5, 40, 200)), **parameters)
        assert load(of, 100_000) < most_keys(of)
    few = transactions.reading_generator(plan(keys=3, writes_per_key=1000), ("n1",))
    answer, _ = few.next(Context(0, 0, "n1"))
    assert isinstance(answer, Scheduled)
    assert [key for _, key, _ in mops_of(answer.invocation)] == [0, 1, 2, 3, 4][: most_keys(of)]


def test_a_system_without_transactions_or_with_other_ones_is_refused() -> None:
    transactions.check(plan())
    with pytest.raises(UsageError, match="--shortest 5 is more than --longest 4"):
        transactions.check(plan(shortest=5))
    broker = msgspec.structs.replace(plan(), system=SystemPlan(name="mirrored", profile="safe"))
    with pytest.raises(UsageError, match="mirrored does no transactions"):
        transactions.check(broker)
