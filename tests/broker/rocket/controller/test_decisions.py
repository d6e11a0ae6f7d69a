"""What requests lead to: codes, the order of checks, events. With what ReplicasInfoManagerTest of
RocketMQ checks: registering, electing by epoch, offset and priority, cleaning, serializing.
"""

from __future__ import annotations

import msgspec
import pytest

from shalott.broker.rocket.controller import decisions
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.elect_policy import LiveInfo
from shalott.broker.rocket.remoting.command import Command
from tests.world.rocket.registry import CLUSTER, NAME, Registry, env_with

pytestmark = pytest.mark.unit


def set_of(answer: Command) -> cm.SyncStateSet:
    return cm.from_body(answer.body, cm.SyncStateSet)


def master_of(answer: Command) -> cm.MasterInfo:
    return cm.from_ext(answer.ext, cm.MasterInfo)


# -- identity --------------------------------------------------------------------------------------


def test_ids_begin_at_one_and_count_up() -> None:
    registry = Registry()
    assert registry.next_id() == 1
    assert registry.register(1).code == 0
    assert registry.next_id() == 2
    assert registry.register(2).code == 0
    assert registry.next_id() == 3


def test_the_first_id_of_a_group_is_one() -> None:
    assert Registry().register(2).code == 2014


def test_an_id_is_one_brokers_and_its_own_repetition_succeeds() -> None:
    registry = Registry()
    registry.register(1, "h1:1", "h1:1;17")
    before = msgspec.msgpack.encode(registry.state)
    assert registry.register(1, check_code="h1:1;17").code == 0
    assert msgspec.msgpack.encode(registry.state) == before
    assert registry.register(1, check_code="h9:1;18").code == 2014
    assert registry.state.groups[NAME].replicas.address(1) == "h1:1"


def test_who_never_applied_for_an_id_must_do_so() -> None:
    registry = Registry()
    assert registry.come_back(1).code == 2010
    registry.register(1)
    assert registry.come_back(2).code == 2010
    assert registry.come_back(1).code == 0


def test_registering_tells_of_the_master_only_if_it_is_alive() -> None:
    registry = Registry.of_three()
    answer = registry.come_back(2)
    assert master_of(answer) == cm.MasterInfo(
        master_broker_id=1, master_address="h1:1", master_epoch=1, sync_state_set_epoch=1
    )
    assert set_of(answer) == cm.SyncStateSet(sync_state_set=(1,), sync_state_set_epoch=1)
    del registry.alive[1]
    answer = registry.come_back(2)
    assert master_of(answer) == cm.MasterInfo()
    assert set_of(answer).sync_state_set == (1,)


def test_reports_of_a_masters_former_life_are_refused_when_it_is_back() -> None:
    """It counts without the member that such a report brings."""
    registry = Registry.of_three()
    under_way = registry.sync.set_epoch
    answer = registry.come_back(1)
    assert set_of(answer) == cm.SyncStateSet(
        sync_state_set=(1,), sync_state_set_epoch=under_way + 1
    )
    assert registry.decide_alter((1, 2), set_epoch=under_way).answer.code == 2001
    assert registry.alter((1, 3)).code == 0
    before = registry.sync
    registry.come_back(3)  # a slave's register changes nothing
    assert registry.sync == before


def test_a_broker_that_moved_is_known_under_its_new_address() -> None:
    registry = Registry.of_three()
    answer = registry.come_back(1, "new:1")
    assert master_of(answer).master_address == "new:1"
    info = cm.from_ext(registry.look().ext, cm.ReplicaInfo)
    assert info == cm.ReplicaInfo(master_broker_id=1, master_address="new:1", master_epoch=1)


# -- the SyncStateSet ------------------------------------------------------------------------------


def test_the_master_alters_its_set() -> None:
    registry = Registry.of_three()
    answer = registry.alter((2, 1))
    assert answer.ext == {"newSyncStateSetEpoch": "2"}
    assert set_of(answer) == cm.SyncStateSet(sync_state_set=(1, 2), sync_state_set_epoch=2)
    assert registry.sync == cs.SyncStateInfo(1, 1, (1, 2), 2)


# Each row breaks its own rule and all that are looked at later: the first broken rule answers.
CHECKS = [
    ("an equal set", (1,), 9, 9, 9, (), 2013),
    ("another master", (7,), 9, 9, 9, (), 2002),
    ("another master epoch", (7,), 1, 9, 9, (), 2000),
    ("another epoch of the set", (7,), 1, 1, 9, (), 2001),
    ("an unknown replica", (7,), 1, 1, 1, (), 2003),
    ("a dead replica", (2,), 1, 1, 1, (1, 3), 2006),
    ("without the master", (2,), 1, 1, 1, (1, 2, 3), 2013),
    ("a dead one before an unknown one", (2, 7), 1, 1, 1, (1, 3), 2006),
    ("all well", (1, 2), 1, 1, 1, (1, 2, 3), 0),
]


@pytest.mark.parametrize(
    ("members", "by", "epoch", "set_epoch", "alive", "code"),
    [check[1:] for check in CHECKS],
    ids=[check[0] for check in CHECKS],
)
def test_checks_of_a_set_are_made_in_this_order(
    members: tuple[int, ...],
    by: int,
    epoch: int,
    set_epoch: int,
    alive: tuple[int, ...],
    code: int,
) -> None:
    registry = Registry.of_three()
    registry.alive = {i: LiveInfo() for i in alive}
    decision = registry.decide_alter(members, by=by, epoch=epoch, set_epoch=set_epoch)
    assert decision.answer.code == code
    assert bool(decision.events) == (code == 0)


def test_a_set_of_an_unknown_group_is_refused() -> None:
    assert Registry().decide_alter((1,)).answer.code == 2013


def test_a_group_without_a_master_alters_nothing() -> None:
    registry = Registry.of_three()
    registry.alive = {}
    registry.elect()
    assert registry.decide_alter((1, 2), by=1, epoch=2).answer.code == 2002


def test_a_master_whose_answer_was_lost_is_told_what_it_has() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2))
    again = registry.decide_alter((1, 2), set_epoch=1)
    assert (again.answer.code, again.events) == (0, ())
    assert set_of(again.answer) == cm.SyncStateSet(sync_state_set=(1, 2), sync_state_set_epoch=2)


# -- elections -------------------------------------------------------------------------------------


def test_who_asks_first_is_the_first_master() -> None:
    registry = Registry()
    registry.register(1)
    registry.register(2)
    answer = registry.elect(2)
    assert answer.code == 0
    assert master_of(answer) == cm.MasterInfo(
        master_broker_id=2, master_address="h2:1", master_epoch=1, sync_state_set_epoch=1
    )
    body = cm.from_body(answer.body, cm.ElectMasterBody)
    assert body == cm.ElectMasterBody(
        broker_member_group=cm.BrokerMemberGroup(
            cluster=CLUSTER, broker_name=NAME, broker_addrs={1: "h1:1", 2: "h2:1"}
        ),
        sync_state_set=(2,),
    )


def test_nobody_is_elected_for_a_group_or_by_a_broker_that_is_not_registered() -> None:
    registry = Registry()
    assert registry.elect(1).code == 2010
    registry.register(1)
    assert registry.elect(2).code == 2010
    assert registry.elect(-1).code == 2004  # it has no set, and no broker of it asks
    assert registry.sync == cs.SyncStateInfo()


def test_a_master_that_is_alive_stays() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2, 3))
    answer = registry.elect(2)
    assert answer.code == 2011
    assert master_of(answer).master_broker_id == 1
    assert cm.from_body(answer.body, cm.ElectMasterBody).sync_state_set == (1, 2, 3)
    assert registry.decide_elect().events == ()


@pytest.mark.parametrize(
    ("second", "third", "winner"),
    [
        (LiveInfo(1, 9, 9, 1), LiveInfo(2, 1, 1, 9), 3),  # the epoch before all
        (LiveInfo(2, 8, 0, 9), LiveInfo(2, 7, 7, 1), 2),  # then the offset
        (LiveInfo(2, 8, 0, 9), LiveInfo(2, 8, 0, 1), 3),  # then the lower priority number
        (LiveInfo(2, 8, 0, 1), LiveInfo(2, 8, 9, 1), 2),  # then the lower id
    ],
)
def test_the_best_log_wins(second: LiveInfo, third: LiveInfo, winner: int) -> None:
    registry = Registry.of_three()
    registry.alter((1, 2, 3))
    registry.alive = {2: second, 3: third}
    assert registry.elect().code == 0
    assert registry.sync == cs.SyncStateInfo(winner, 2, (winner,), 3)


@pytest.mark.parametrize(("bugs", "winner"), [((), 3), (("KB-RKT-E",), 2)])
def test_logs_that_differ_by_more_than_two_gib_compare_the_right_way(
    bugs: tuple[str, ...], winner: int
) -> None:
    registry = Registry.of_three(env=env_with(*bugs))
    registry.alter((1, 2, 3))
    registry.alive = {2: LiveInfo(1, 100), 3: LiveInfo(1, 100 + 3 * 2**30)}
    registry.elect()
    assert registry.sync.master == winner


@pytest.mark.parametrize(("bugs", "winner"), [((), 2), (("KB-RKT-30",), 1)])
def test_the_dead_master_is_no_candidate(bugs: tuple[str, ...], winner: int) -> None:
    registry = Registry.of_three(env=env_with(*bugs))
    registry.alter((1, 2))
    last_words = LiveInfo(1, 500)
    live = registry.live

    def live_info(cluster: str, group: str, broker: int) -> LiveInfo | None:
        return last_words if broker == 1 else LiveInfo(1, 400)

    registry.alive = {2: LiveInfo(1, 400)}
    request = cm.ElectMaster(broker_name=NAME)
    known = decisions.Liveness(live.is_alive, live_info)
    decision = decisions.elect_master(registry.env, registry.state, request, known, unclean=False)
    assert master_of(decision.answer).master_broker_id == winner


@pytest.mark.parametrize(("unclean", "code", "winner"), [(False, 2004, None), (True, 0, 3)])
def test_only_an_unclean_election_goes_beyond_the_set(
    unclean: bool, code: int, winner: int | None
) -> None:
    registry = Registry.of_three(unclean=unclean)
    registry.alter((1, 2))
    registry.alive = {3: LiveInfo(1, 9999)}
    assert registry.elect().code == code
    assert registry.sync.master == winner
    assert registry.sync.master_epoch == 2
    assert registry.sync.members == ((1, 2) if winner is None else (3,))


def test_an_unclean_election_prefers_the_set() -> None:
    registry = Registry.of_three(unclean=True)
    registry.alter((1, 2))
    registry.alive = {2: LiveInfo(1, 1), 3: LiveInfo(1, 9999)}
    registry.elect()
    assert registry.sync.master == 2


def test_a_dead_master_is_given_up_once() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2))
    registry.alive = {}
    assert registry.elect().code == 2004
    assert registry.sync == cs.SyncStateInfo(None, 2, (1, 2), 2)
    assert registry.decide_elect().events == ()
    assert registry.decide_elect().answer.code == 2004


def test_a_broker_that_can_not_be_master_gives_up_nobody() -> None:
    registry = Registry.of_three()
    del registry.alive[1]
    decision = registry.decide_elect(2)
    assert (decision.answer.code, decision.events) == (2012, ())


def test_a_member_of_the_set_that_comes_back_is_master_again() -> None:
    registry = Registry.of_three()
    registry.alive = {}
    registry.elect()
    registry.alive = {1: LiveInfo(1, 5), 2: LiveInfo(1, 5)}
    assert registry.elect(2).code == 0
    assert registry.sync.master == 1  # the set decides, not the asker


def test_a_designated_broker_takes_over_from_a_living_master() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2, 3))
    assert registry.elect(3, designate=True).code == 0
    assert registry.sync == cs.SyncStateInfo(3, 2, (3,), 3)
    assert registry.elect(3, designate=True).code == 2011


def test_a_designated_broker_must_be_in_the_set() -> None:
    registry = Registry.of_three()
    assert registry.elect(3, designate=True).code == 2012
    assert registry.sync.master == 1
    registry.unclean = True
    assert registry.elect(3, designate=True).code == 0


def test_epochs_of_masters_only_grow() -> None:
    registry = Registry.of_three()
    epochs = [registry.sync.master_epoch]
    for victim in (1, 2, 1, 2):
        registry.alive = {i: LiveInfo(epochs[-1], 1) for i in (1, 2, 3)}
        registry.alter((1, 2, 3))
        del registry.alive[victim]
        if registry.sync.master == victim:
            registry.elect()
        epochs.append(registry.sync.master_epoch)
    assert epochs == sorted(epochs)
    assert epochs[-1] > 3


# -- looking ---------------------------------------------------------------------------------------


def test_an_unknown_group_has_no_info() -> None:
    assert Registry().look().code == 2008


def test_replica_info_of_a_group_without_a_master() -> None:
    registry = Registry.of_three()
    registry.alive = {}
    registry.elect()
    answer = registry.look()
    assert answer.ext == {"masterEpoch": "2"}
    assert set_of(answer) == cm.SyncStateSet(sync_state_set=(1,), sync_state_set_epoch=1)


def test_sync_state_data_sorts_replicas_by_set_and_says_who_lives() -> None:
    registry = Registry.of_three()
    registry.alter((1, 2))
    del registry.alive[3]
    answer = decisions.sync_state_data(registry.state, [NAME, "unknown"], registry.live).answer
    table = cm.from_body(answer.body, cm.BrokerReplicasInfo).replicas_info_table
    assert list(table) == [NAME]
    info = table[NAME]
    assert (info.master_broker_id, info.master_epoch, info.sync_state_set_epoch) == (1, 1, 2)
    assert [(r.broker_id, r.alive) for r in info.in_sync_replicas] == [(1, True), (2, True)]
    assert [(r.broker_id, r.alive) for r in info.not_in_sync_replicas] == [(3, False)]
