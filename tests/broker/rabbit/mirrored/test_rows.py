"""Transactions on a queue's row: every decision is taken on the row as it is, not as it was."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shalott.broker.rabbit.metadata.records import BindingRow, QueueRow
from shalott.broker.rabbit.metadata.tables import LocalTransaction, Tables
from shalott.broker.rabbit.mirrored import policy, rows
from shalott.broker.rabbit.processes.messages import Pid

pytestmark = pytest.mark.unit

A, B, C = (Pid(node, 1, 1) for node in "abc")
B2 = Pid("b", 2, 1)
KEY = "q@/"
WHEN_SYNCED: dict[str, Any] = {"ha-mode": "all", "ha-promote-on-failure": "when-synced"}


def queue(**more: Any) -> QueueRow:
    fields: dict[str, Any] = {"durable": True, "auto_delete": False, "pid": A, "gm_pids": (A,)}
    return QueueRow(vhost="/", name="q", **{**fields, **more})


def mirrored(**more: Any) -> QueueRow:
    fields: dict[str, Any] = {
        "slave_pids": (B, C),
        "sync_slave_pids": (B, C),
        "gm_pids": (C, B, A),
        "definition": {"ha-mode": "all"},
    }
    return queue(**{**fields, **more})


class World:
    """One node's tables; ``do`` commits."""

    def __init__(self, *records: QueueRow) -> None:
        self.tables = Tables()
        for record in records:
            self.do(lambda tx, record=record: rows.store(tx, record))

    def do(self, body: Any) -> Any:
        tx = LocalTransaction(self.tables)
        result = body(tx)
        self.tables.apply(self.tables.version + 1, tx.changes())
        return result

    @property
    def live(self) -> Any:
        return self.tables.read("queue", KEY)

    @property
    def durable(self) -> Any:
        return self.tables.read("durable_queue", KEY)


def everyone(pid: Pid) -> bool:
    return True


def nobody(pid: Pid) -> bool:
    return False


def test_the_durable_row_keeps_the_master_and_no_mirrors() -> None:
    world = World(mirrored())
    assert world.durable.pid == A
    assert (world.durable.slave_pids, world.durable.sync_slave_pids, world.durable.gm_pids) == (
        (),
        (),
        (),
    )
    assert World(queue(durable=False)).durable is None


def test_declare_returns_what_exists_even_if_it_only_waits_for_its_node() -> None:
    world = World(queue())
    assert world.do(lambda tx: rows.declare(tx, queue(pid=B))) == (world.live, False)
    world.do(lambda tx: rows.forget_live(tx, KEY, A))
    assert world.live is None
    row, created = world.do(lambda tx: rows.declare(tx, queue(pid=B)))
    assert (row.pid, created) == (A, False)


def test_a_master_that_starts_late_does_not_overwrite_its_successor() -> None:
    """rmq#2009: the row changed between the decision to restart and the write."""
    world = World(mirrored())
    seen = world.live.pid
    world.do(lambda tx: rows.remove_dead(tx, KEY, B, (A,)))
    assert world.live.pid == B
    assert world.do(lambda tx: rows.take_over(tx, KEY, Pid("a", 1, 9), seen)) is None
    assert world.live.pid == B
    taken = world.do(lambda tx: rows.take_over(tx, KEY, Pid("a", 1, 9), B))
    assert (taken.pid, taken.slave_pids) == (Pid("a", 1, 9), ())


@pytest.mark.parametrize(
    ("row", "me", "is_alive", "outcome"),
    [
        (None, B, everyone, "no_row"),
        (queue(), B, everyone, "new"),
        (queue(pid=B), B2, everyone, "duplicate_live_master"),
        (queue(pid=B), B2, nobody, "stale_master"),
        (mirrored(), B2, everyone, "existing"),
        (mirrored(), B2, nobody, "new"),
    ],
)
def test_what_a_starting_mirror_finds(
    row: QueueRow | None, me: Pid, is_alive: Any, outcome: str
) -> None:
    world = World(*([] if row is None else [row]))
    found = world.do(lambda tx: rows.init_mirror(tx, KEY, me, is_alive))
    assert found.outcome == outcome
    if outcome == "new":
        assert world.live.slave_pids[-1] == me
        assert world.live.gm_pids[0] == me
        assert me not in world.live.sync_slave_pids


def test_a_mirror_of_a_former_life_is_replaced_at_the_end_of_the_line() -> None:
    world = World(mirrored())
    world.do(lambda tx: rows.init_mirror(tx, KEY, B2, lambda pid: pid.node != "b"))
    assert world.live.slave_pids == (C, B2)
    assert world.live.sync_slave_pids == (C,)
    assert B not in world.live.gm_pids


def test_a_mirror_that_did_not_stop_in_time_is_stopped_before_it_comes_back() -> None:
    world = World(queue(slave_pids_pending_shutdown=(B, C)))
    found = world.do(lambda tx: rows.init_mirror(tx, KEY, B2, everyone))
    assert found.stop_first == (B,)
    assert world.live.slave_pids_pending_shutdown == (C,)


def test_the_oldest_mirror_is_promoted_and_only_it_says_so() -> None:
    world = World(mirrored())
    other = world.do(lambda tx: rows.remove_dead(tx, KEY, C, (A,)))
    assert (other.outcome, other.master) == ("other", B)
    assert world.live.pid == A, "the successor decides for itself"
    won = world.do(lambda tx: rows.remove_dead(tx, KEY, B, (A,)))
    assert (won.outcome, won.was_synchronised, won.master_was) == ("promoted", True, A)
    assert (world.live.pid, world.live.slave_pids) == (B, (C,))
    assert world.durable.pid == B
    same = world.do(lambda tx: rows.remove_dead(tx, KEY, C, (A,)))
    assert same.outcome == "same"


def test_deaths_of_mirrors_leave_the_master_alone() -> None:
    world = World(mirrored())
    removal = world.do(lambda tx: rows.remove_dead(tx, KEY, A, (B,)))
    assert removal.outcome == "same"
    assert (world.live.pid, world.live.slave_pids, world.live.sync_slave_pids) == (A, (C,), (C,))


def test_under_when_synced_the_oldest_synchronised_mirror_is_promoted_or_none() -> None:
    world = World(mirrored(definition=WHEN_SYNCED, sync_slave_pids=(C,)))
    assert world.do(lambda tx: rows.remove_dead(tx, KEY, C, (A,))).outcome == "promoted"
    world = World(mirrored(definition=WHEN_SYNCED, sync_slave_pids=()))
    assert world.do(lambda tx: rows.remove_dead(tx, KEY, C, (A,))).outcome == "other"
    assert world.do(lambda tx: rows.remove_dead(tx, KEY, B, (A,))).outcome == "not_synced"
    assert world.live.pid == A
    assert world.do(lambda tx: rows.remove_dead(tx, KEY, C, (A, B))).outcome == "not_synced"
    assert world.live.slave_pids == ()


def test_a_dead_synchronised_mirror_doesnt_vouch_for_an_unsynchronised_one() -> None:
    world = World(mirrored(definition=WHEN_SYNCED, sync_slave_pids=(B,)))
    assert world.do(lambda tx: rows.remove_dead(tx, KEY, C, (A, B))).outcome == "not_synced"


def test_who_is_not_in_the_row_has_no_say() -> None:
    world = World(mirrored(slave_pids=(C,), gm_pids=(C, A)))
    assert world.do(lambda tx: rows.remove_dead(tx, KEY, B, (A,))).outcome == "not_member"
    assert world.live.pid == A
    assert World().do(lambda tx: rows.remove_dead(tx, KEY, B, (A,))).outcome == "gone"
    assert world.do(lambda tx: rows.record_synchronised(tx, KEY, B)) is None


def test_only_the_master_may_change_policy_ring_and_mirrors() -> None:
    world = World(mirrored())
    before = world.live
    assert world.do(lambda tx: rows.update_policy(tx, KEY, B)) is None
    assert world.do(lambda tx: rows.add_gm(tx, KEY, B)) is None
    assert world.do(lambda tx: rows.delete_owned(tx, KEY, B)) is False
    world.do(lambda tx: rows.clear_mirrors(tx, KEY, B, ()))
    assert world.live == before
    world.do(lambda tx: rows.clear_mirrors(tx, KEY, A, (C,)))
    assert (world.live.slave_pids, world.live.slave_pids_pending_shutdown) == ((), (C,))


def test_deletion_takes_the_bindings_along() -> None:
    world = World(queue())
    mine = BindingRow(vhost="/", source="x", destination="q")
    other = BindingRow(vhost="/", source="x", destination="p")
    world.do(lambda tx: tx.write("binding", "mine", mine))
    world.do(lambda tx: tx.write("binding", "other", other))
    assert world.do(lambda tx: rows.delete(tx, world.live))
    assert (world.live, world.durable) == (None, None)
    assert [key for key, _ in world.tables.rows("binding")] == ["other"]


# -- placement -------------------------------------------------------------------------------------


def decide(live: QueueRow | None, durable: QueueRow | None, node: str, dead: str = "") -> str:
    return policy.decide(live, durable, node, lambda pid: pid.node not in dead, lambda n: 0)


def test_only_the_last_masters_node_recovers_a_queue() -> None:
    assert decide(None, queue(), "a") == "master"
    assert decide(None, queue(), "b") == "nothing"
    assert decide(None, None, "a") == "nothing"


def test_a_dead_master_is_not_restarted_while_mirrors_may_be_promoted() -> None:
    assert decide(mirrored(), mirrored(), "a", dead="a") == "wait"
    assert decide(mirrored(), mirrored(), "a", dead="abc") == "master"


def test_a_node_takes_its_place_as_a_mirror() -> None:
    row = msgspec.structs.replace(mirrored(), slave_pids=(C,))
    assert decide(row, row, "b") == "mirror"
    assert decide(row, row, "b", dead="a") == "wait"
    assert decide(row, row, "b", dead="ac") == "nothing"
    assert decide(queue(), queue(), "b") == "nothing"
    exactly = mirrored(definition={"ha-mode": "exactly", "ha-params": 2}, slave_pids=(C,))
    assert decide(exactly, exactly, "b") == "nothing"
