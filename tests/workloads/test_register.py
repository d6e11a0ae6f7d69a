"""The workload of registers: what is drawn, what its client says, and what its model forbids."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shalott.checkers.history.concurrent import UNKNOWN, Operation, Row, from_rows
from shalott.checkers.linearizability.checking import check
from shalott.core.generator import Context, Scheduled
from shalott.core.op import Invocation
from shalott.core.registers import RegisterMix
from shalott.workloads.register import PackedCasRegister, RegisterClient

pytestmark = pytest.mark.unit

NODES = ("n1", "n2", "n3")


@pytest.mark.parametrize(
    ("state", "operation", "after"),
    [
        ((None,), Operation("read", None, None), (None,)),
        ((3,), Operation("read", None, 3), (3,)),
        ((3,), Operation("read", None, 4), None),
        ((3,), Operation("read", None, UNKNOWN), (3,)),
        ((None,), Operation("write", 0, 0), (0,)),
        ((None,), Operation("write", 13, 13), (13,)),
        ((1,), Operation("cas", 13, 13), (3,)),
        ((2,), Operation("cas", 13, 13), None),
        ((None,), Operation("cas", 3, 3), None),
        ((0,), Operation("cas", 3, UNKNOWN), (3,)),
    ],
)
def test_a_step_of_the_register(state: object, operation: Operation, after: object) -> None:
    assert PackedCasRegister().step(state, operation) == after  # type: ignore[arg-type]


def test_a_stale_read_is_found_and_a_failed_cas_is_held_against_no_client() -> None:
    wrote = Row(0, "write", 1, 1, 1, 2)
    swapped = Row(0, "cas", 12, 12, 3, 4)
    missed = Row(1, "cas", 13, 13, 5, 6, type="fail")
    fresh, stale = (Row(1, "read", value, value, 7, 8) for value in (2, 1))
    for last, valid in ((fresh, True), (stale, False)):
        verdict = check(from_rows([wrote, swapped, missed, last]), PackedCasRegister())
        assert verdict.valid is valid


def drawn(processes: range, count: int, **changes: bool) -> list[tuple[int, Invocation]]:
    generator: Any = RegisterMix(
        part="load", seed=5, concurrency=6, clients_per_key=3, ops_per_key=10, **changes
    )
    found = []
    for number in range(count):
        process = processes[number % len(processes)]
        answer, generator = generator.next(Context(number, process, NODES[process % 3]))
        assert isinstance(answer, Scheduled)
        found.append((process, answer.invocation))
    return found


def test_a_key_belongs_to_a_group_of_clients_for_a_limited_number_of_operations() -> None:
    found = drawn(range(6), 120)
    groups: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for process, invocation in found:
        groups.setdefault(invocation.key, set()).add(process)
        counts[invocation.key] = counts.get(invocation.key, 0) + 1
    assert set(map(frozenset, groups.values())) == {frozenset({0, 1, 2}), frozenset({3, 4, 5})}
    assert len(counts) == 12 and set(counts.values()) == {10}


def test_a_retired_processs_successor_goes_on_with_the_keys_of_its_group() -> None:
    assert {invocation.key for _, invocation in drawn(range(12, 15), 10)} == {"load.0.0"}


def test_all_kinds_are_drawn_with_small_values_and_the_same_again() -> None:
    found = [invocation for _, invocation in drawn(range(6), 300)]
    assert found == [invocation for _, invocation in drawn(range(6), 300)]
    values = {f: {each.value for each in found if each.f == f} for f in ("read", "write", "cas")}
    assert values["read"] == {None}
    assert values["write"] == set(range(5))
    assert values["cas"] <= {10 * old + new for old in range(5) for new in range(5)}
    assert len(values["cas"]) > 15


def test_registers_without_a_cas_are_asked_for_none() -> None:
    assert {each.f for _, each in drawn(range(6), 300, cas=False)} == {"read", "write"}


def test_values_of_sequential_registers_are_written_once() -> None:
    writes = [(each.key, each.value) for _, each in drawn(range(6), 300, unique=True) if each.value]
    assert len(writes) == len(set(writes)) > 100
    assert {each.f for _, each in drawn(range(6), 300, unique=True)} == {"read", "write"}


class Values:
    """Registers in memory."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def read(self, key: str) -> int | None:
        return self.values.get(key)

    async def write(self, key: str, value: int) -> None:
        self.values[key] = value

    async def cas(self, key: str, old: int, new: int) -> bool:
        if self.values.get(key) != old:
            return False
        self.values[key] = new
        return True


def test_the_client_asks_for_what_was_drawn_and_tells_what_came_of_it() -> None:
    client = RegisterClient(Values())

    def done(f: str, value: int | None = None) -> tuple[str, int | None]:
        found = asyncio.run(client.invoke(Invocation(f=f, key="r", value=value)))
        return found.type, found.value

    assert done("read") == ("ok", None)
    assert done("write", 1) == ("ok", 1)
    assert done("cas", 13) == ("ok", 13)
    assert done("cas", 13) == ("fail", None)
    assert done("read") == ("ok", 3)
