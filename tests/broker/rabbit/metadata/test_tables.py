"""Compare-and-set on row versions."""

from __future__ import annotations

import pytest

from shalott.broker.rabbit.metadata.records import PolicyRow
from shalott.broker.rabbit.metadata.tables import Change, LocalTransaction, Tables

pytestmark = pytest.mark.unit


def policy(name: str, priority: int = 0) -> PolicyRow:
    return PolicyRow(vhost="/", name=name, pattern="^", definition={}, priority=priority)


def test_a_change_whose_row_moved_on_is_a_conflict() -> None:
    tables = Tables()
    tables.apply(1, [Change("policy", "a", 0, policy("a"))])
    stale = Change("policy", "a", 0, policy("a", 9))
    assert tables.conflicts([stale]) == [stale]
    fresh = Change("policy", "a", 1, policy("a", 9))
    assert tables.conflicts([fresh]) == []


def test_a_deleted_row_cannot_be_brought_back_by_an_old_writer() -> None:
    tables = Tables()
    tables.apply(1, [Change("policy", "a", 0, policy("a"))])
    tables.apply(2, [Change("policy", "a", 1, None)])
    assert tables.read("policy", "a") is None
    assert tables.conflicts([Change("policy", "a", 1, policy("a"))])
    assert tables.conflicts([Change("policy", "a", 0, policy("a"))])
    assert not tables.conflicts([Change("policy", "a", 2, policy("a"))])


def test_storing_a_snapshot_keeps_the_newest_of_each_row() -> None:
    old, new = Tables(), Tables()
    old.apply(1, [Change("policy", "a", 0, policy("a", 1))])
    new.apply(5, [Change("policy", "a", 0, policy("a", 5))])
    assert not new.store(old.snapshot())
    assert len(old.store(new.snapshot())) == 1
    assert old.read("policy", "a") == new.read("policy", "a") == policy("a", 5)
    assert old.version == 5


def test_a_transaction_sees_its_own_writes_and_checks_what_it_read() -> None:
    tables = Tables()
    tables.apply(1, [Change("policy", "a", 0, policy("a")), Change("policy", "b", 0, policy("b"))])
    transaction = LocalTransaction(tables)
    assert transaction.read("policy", "a") == policy("a")
    transaction.write("policy", "c", policy("c"))
    transaction.delete("policy", "b")
    assert [key for key, _ in transaction.rows("policy")] == ["a", "c"]
    changes = {change.key: change for change in transaction.changes()}
    assert changes["a"].check_only and changes["a"].expected == 1
    assert changes["b"].record is None and not changes["b"].check_only
    assert changes["c"].expected == 0
    tables.apply(2, [Change("policy", "a", 1, policy("a", 7))])
    assert tables.conflicts(transaction.changes()) == [changes["a"]]
