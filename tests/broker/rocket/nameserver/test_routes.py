"""The rules of routes, with a clock that the test turns."""

from __future__ import annotations

import pytest

from shalott.broker.rocket.nameserver.routes import Routes
from shalott.broker.rocket.remoting.headers import RegisterBrokerResult
from shalott.broker.rocket.remoting.route_data import DataVersion
from tests.world.rocket.registering import CLUSTER, GROUP, body, header

pytestmark = pytest.mark.unit

A, B, C = "a:1", "b:2", "c:3"


class World:
    def __init__(self, *, last_writer_wins: bool = False) -> None:
        self.now_ms = 0
        self.routes = Routes(
            lambda: self.now_ms, default_timeout_ms=1000, last_writer_wins=last_writer_wins
        )

    def register(
        self, address: str, broker_id: int = 0, *, epoch: int = 0, over: object = None
    ) -> RegisterBrokerResult:
        return self.routes.register(header(address, broker_id), body("T", epoch=epoch), over)

    @property
    def addresses(self) -> dict[int, str]:
        route = self.routes.route("T")
        return {} if route is None else route.broker_datas[0].broker_addrs


def test_a_topic_nobody_has_has_no_route() -> None:
    world = World()
    assert world.routes.route("T") is None
    world.register(A)
    assert world.routes.route("U") is None


def test_a_master_and_its_slaves_are_one_group() -> None:
    world = World()
    world.register(A)
    assert world.register(B, 1) == RegisterBrokerResult(ha_server_addr=f"ha-of-{A}", master_addr=A)
    route = world.routes.route("T")
    assert route is not None
    assert world.addresses == {0: A, 1: B}
    assert [data.broker_name for data in route.queue_datas] == [GROUP]
    assert route.master(GROUP) == A and route.master("other") is None


def test_a_master_is_told_of_no_master() -> None:
    assert World().register(A) == RegisterBrokerResult()


def test_a_slave_alone_makes_a_group_without_topics() -> None:
    world = World()
    assert world.register(B, 1) == RegisterBrokerResult()
    assert world.routes.topics() == []
    info = world.routes.cluster_info()
    assert info.cluster_addr_table == {CLUSTER: [GROUP]}
    assert info.broker_addr_table[GROUP].broker_addrs == {1: B}


def test_a_slave_that_may_act_for_its_master_tells_of_topics() -> None:
    world = World()
    world.routes.register(header(C, 2, acting=True), body("T"), None)
    world.routes.register(header(B, 1, acting=True), body("T", "U"), None)
    assert world.routes.topics() == ["T", "U"]
    world.routes.register(header(C, 2, acting=True), body("V", counter=1), None)
    assert world.routes.topics() == ["T", "U"]  # it is not the first slave any more


def test_an_address_holds_one_id() -> None:
    world = World()
    world.register(A)
    world.register(B, 1)
    world.register(B, 0, epoch=1)
    assert world.addresses == {0: B}
    world.register(A, 1, epoch=1)
    assert world.addresses == {0: B, 1: A}


def test_a_deposed_master_does_not_take_the_route_back() -> None:
    world = World()
    world.register(A, epoch=1)
    world.register(B, epoch=2)
    assert world.register(A, epoch=1) == RegisterBrokerResult()
    assert world.addresses == {0: B}
    assert world.routes.live_addresses() == [B]  # who is refused does not count as alive


def test_last_writer_wins_is_the_bug() -> None:
    world = World(last_writer_wins=True)
    world.register(A, epoch=1)
    world.register(B, epoch=2)
    world.register(A, epoch=1)
    assert world.addresses == {0: A}


def test_a_later_epoch_and_the_same_epoch_take_the_id() -> None:
    world = World()
    world.register(A, epoch=1)
    world.register(B, epoch=1)
    assert world.addresses == {0: B}
    world.register(A, epoch=2)
    assert world.addresses == {0: A}


def test_a_later_epoch_that_is_dead_protects_nobody() -> None:
    world = World()
    world.register(B, epoch=2)
    world.now_ms = 1001
    assert world.routes.scan() == [B]
    world.register(A, epoch=1)
    assert world.addresses == {0: A}


def test_who_does_not_register_in_time_is_gone() -> None:
    world = World()
    world.register(A)
    world.routes.register(header(B, 1, timeout_ms=100), body("T"), None)
    world.now_ms = 100
    assert world.routes.scan() == []
    world.now_ms = 101
    assert world.routes.scan() == [B]
    assert world.addresses == {0: A}
    world.now_ms = 1001
    assert world.routes.scan() == [A]
    assert world.routes.route("T") is None and world.routes.topics() == []


def test_a_registration_is_a_heartbeat() -> None:
    world = World()
    world.register(A)
    world.now_ms = 900
    world.register(A)
    world.now_ms = 1900
    assert world.routes.scan() == []


def test_the_end_of_a_connection_is_the_end_of_its_broker() -> None:
    world = World()
    world.register(A, over="first")
    world.register(B, 1, over="second")
    world.routes.connection_closed("first")
    assert world.addresses == {1: B}


def test_the_end_of_an_old_connection_is_nothing() -> None:
    world = World()
    world.register(A, over="first")
    world.register(A, over="second")
    world.routes.connection_closed("first")
    assert world.addresses == {0: A}


def test_the_end_of_a_displaced_master_leaves_its_successor() -> None:
    world = World()
    world.register(A, epoch=1, over="a")
    world.register(B, epoch=2, over="b")
    world.routes.connection_closed("a")
    assert world.addresses == {0: B}
    world.routes.unregister(CLUSTER, GROUP, A)
    assert world.addresses == {0: B}


def test_goodbyes_of_strangers_are_nothing() -> None:
    world = World()
    world.routes.unregister(CLUSTER, "nobody", A)
    world.routes.connection_closed("nothing")
    world.register(A)
    world.routes.unregister(CLUSTER, GROUP, B)
    assert world.addresses == {0: A}


def test_topics_change_with_the_data_version() -> None:
    world = World()
    routes = world.routes
    routes.register(header(A), body("T"), None)
    routes.register(header(A), body("T", queues=8), None)
    assert routes.route("T").queue_datas[0].read_queue_nums == 4  # type: ignore[union-attr]
    routes.register(header(A), body("T", queues=8, counter=1), None)
    assert routes.route("T").queue_datas[0].read_queue_nums == 8  # type: ignore[union-attr]


def test_a_topic_that_is_not_known_is_taken_with_any_data_version() -> None:
    world = World()
    world.register(A)
    world.routes.register(header(A), body("T", "U"), None)
    assert world.routes.topics() == ["T", "U"]


def test_whether_a_broker_needs_to_register() -> None:
    world = World()
    key = (CLUSTER, A)
    assert world.routes.is_changed(key, DataVersion())
    world.register(A, epoch=1)
    assert world.routes.is_changed(key, DataVersion())
    assert not world.routes.is_changed(key, DataVersion(state_version=1))
    world.now_ms = 900
    world.routes.touch(key)
    world.now_ms = 1900
    assert world.routes.scan() == []


def test_two_groups_with_one_topic_are_in_one_route() -> None:
    world = World()
    world.register(A)
    world.routes.register(header(B, group="h"), body("T"), None)
    route = world.routes.route("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == [GROUP, "h"]
    world.routes.unregister(CLUSTER, GROUP, A)
    route = world.routes.route("T")
    assert route is not None and [data.broker_name for data in route.broker_datas] == ["h"]


def test_the_permission_to_write_is_taken_and_given() -> None:
    world = World()
    world.register(A)
    assert world.routes.set_write_perm(GROUP, allowed=False) == 1
    assert world.routes.route("T").queue_datas[0].perm == 4  # type: ignore[union-attr]
    assert world.routes.set_write_perm(GROUP, allowed=True) == 1
    assert world.routes.route("T").queue_datas[0].perm == 6  # type: ignore[union-attr]
    assert world.routes.set_write_perm("nobody", allowed=True) == 0


def test_every_change_of_the_master_is_told_once() -> None:
    told: list[tuple[str, str, int]] = []
    world = World()
    world.routes = Routes(
        lambda: world.now_ms,
        default_timeout_ms=1000,
        master_changed=lambda group, address, epoch: told.append((group, address, epoch)),
    )
    world.register(B, 1, epoch=1)
    world.register(A, epoch=1)
    world.register(A, epoch=1)
    world.register(B, epoch=2)
    world.register(A, epoch=1)  # is refused
    world.routes.unregister(CLUSTER, GROUP, B)
    assert told == [(GROUP, A, 1), (GROUP, B, 2), (GROUP, "", 0)]
