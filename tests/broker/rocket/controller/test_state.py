"""Cleaning, snapshots, and the invariants that events may not break."""

from __future__ import annotations

import msgspec
import pytest

from shalott.broker.rocket.controller import state as cs
from tests.world.rocket.registry import CLUSTER, NAME, Registry

pytestmark = pytest.mark.unit


# -- cleaning --------------------------------------------------------------------------------------


def test_what_lives_is_not_cleaned_unless_that_is_meant() -> None:
    registry = Registry.of_three()
    assert registry.clean().code == 2009
    assert registry.clean("1;3").code == 2009
    assert registry.clean("3;x").code == 2009
    assert registry.clean("3", living=True).code == 0
    assert list(registry.state.groups[NAME].replicas.replicas) == [1, 2]


def test_a_dead_member_is_cleaned_out_of_the_set() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2))
    del registry.alive[2]
    assert registry.clean("2").code == 0
    assert registry.sync == cs.SyncStateInfo(1, 1, (1,), 3)
    assert registry.come_back(2).code == 2010
    assert registry.next_id() == 4  # its id is not given again


def test_a_master_that_is_cleaned_away_is_fenced() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2))
    assert registry.clean("1", living=True).code == 0
    assert registry.sync == cs.SyncStateInfo(None, 2, (2,), 3)
    assert registry.decide_alter((2, 3), set_epoch=3).answer.code == 2002


def test_a_group_that_is_cleaned_away_goes_on_with_its_epochs() -> None:
    registry = Registry.of_three()
    registry.alive = {}
    registry.elect()
    assert registry.clean().code == 0
    assert registry.look().code == 2008
    assert registry.clean().code == 2009
    assert registry.register(1).code == 0
    assert registry.elect(1).code == 0
    assert registry.sync.master == 1
    assert registry.sync.master_epoch == 3
    assert registry.sync.set_epoch == 3


# -- the state machine itself ----------------------------------------------------------------------


def test_a_snapshot_is_the_state() -> None:
    registry = Registry.of_three()
    registry.alter((1, 3))
    registry.register(4)
    assert cs.decode(cs.encode(registry.state)) == registry.state


def test_the_empty_entry_has_no_events() -> None:
    assert cs.decode_events(b"") == ()
    assert cs.decode_events(cs.encode_events(())) == ()


@pytest.mark.parametrize(
    "event",
    [
        cs.ElectMasterEvent(NAME, 1, 1),  # an epoch twice
        cs.ElectMasterEvent(NAME, 1, 3),  # an epoch left out
        cs.ElectMasterEvent(NAME, None, 1),
        cs.ElectMasterEvent(NAME, 3, 2),  # not in the set
        cs.ElectMasterEvent(NAME, 9, 2, unclean=True),  # no broker's id
        cs.AlterSyncStateSetEvent(NAME, (2,), 2),  # without the master
        cs.AlterSyncStateSetEvent(NAME, (1, 2), 3),
        cs.AlterSyncStateSetEvent(NAME, (2, 1), 2),  # not sorted: two encodings of one set
        cs.ApplyBrokerIdEvent(CLUSTER, NAME, 1, "h9:1", "h9:1;1"),
    ],
)
def test_an_event_that_breaks_an_invariant_is_not_applied(event: cs.Event) -> None:
    registry = Registry.of_three()
    before = msgspec.msgpack.encode(registry.state)
    with pytest.raises(AssertionError):
        cs.apply(registry.state, event)
    assert msgspec.msgpack.encode(registry.state) == before
