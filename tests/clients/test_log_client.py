"""The log workload's client: what each answer makes of an operation, and where polls stand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from shalott.broker.rocket.config import parse_address
from shalott.broker.rocket.processor import puts as outcomes
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.clients.rocketmq import log_client
from shalott.clients.rocketmq.log_client import LogClient
from shalott.core.errors import Definite, Indefinite, Unreachable
from shalott.core.log_generator import NO_QUEUE
from shalott.core.message_body import encode_body
from shalott.core.op import Completion, Invocation
from tests.world.clock.virtual import HOST
from tests.world.rocket.scripted_broker import (
    BROKER,
    NAME_SERVER_PORT,
    World,
    in_world,
    pull_answer,
)

pytestmark = pytest.mark.unit

KEY = "T/0"
NOBODY = "127.0.0.1:1"


class Driver:
    def __init__(self, world: World, client: LogClient) -> None:
        self.world, self.client = world, client
        self.broker = world.broker

    async def send(self, value: int, key: str = KEY) -> Completion:
        return await self.client.invoke(Invocation(f="send", key=key, value=value))

    async def poll(self, value: int | None = None, key: str = KEY) -> Completion:
        return await self.client.invoke(Invocation(f="poll", key=key, value=value))

    async def send_fails(self, answer: Command | None) -> type[Exception]:
        self.broker.answers = [answer]
        try:
            await self.send(1)
        except (Definite, Indefinite) as error:
            return type(error)
        raise AssertionError("it is ok")


def driving(
    test: Callable[[Driver], Awaitable[None]], *, port: int = NAME_SERVER_PORT, own: bool = False
) -> None:
    async def main(world: World) -> None:
        client = LogClient(HOST, port, dial=parse_address, broker=BROKER if own else None)
        try:
            await test(Driver(world, client))
        finally:
            await client.close()

    in_world(main)


def test_a_send_is_ok_with_its_offset_and_a_poll_reads_it() -> None:
    async def test(it: Driver) -> None:
        await it.client.open()
        first, second = await it.send(11), await it.send(12)
        assert (first.type, first.offset, second.type, second.offset) == ("ok", 0, "ok", 1)
        assert first.extra == second.extra == {"broker": "127.0.0.1:10911"}
        polled = await it.poll()
        assert polled == Completion(type="ok", extra={"from": 0, "records": [(0, 11), (1, 12)]})
        await it.send(13)
        assert (await it.poll()).extra == {"from": 2, "records": [(2, 13)]}
        [first, *_] = it.broker.requests
        assert first.ext["i"] == "UNIQ_KEY\x010000000000000000000000000000000B\x02"
        assert len(it.broker.requests) == 5  # nothing is sent twice

    driving(test)


def test_nothing_beyond_is_empty_and_the_client_stays() -> None:
    async def test(it: Driver) -> None:
        empty = await it.poll()
        assert (empty.type, empty.error) == ("fail", "empty")
        assert empty.extra == {"from": 0, "records": []}
        await it.send(1)
        assert (await it.poll()).extra == {"from": 0, "records": [(0, 1)]}
        assert (await it.poll()).extra == {"from": 1, "records": []}

    driving(test)


def test_polls_jump_to_an_offset_and_back() -> None:
    async def test(it: Driver) -> None:
        for value in range(6):
            await it.send(value)
        assert (await it.poll(4)).extra == {"from": 4, "records": [(4, 4), (5, 5)]}
        assert (await it.poll(-2)).extra == {"from": 4, "records": [(4, 4), (5, 5)]}
        polled = await it.poll(-100)
        assert polled.extra is not None and polled.extra["from"] == 0
        assert (await it.poll()).error == "empty"  # it stands behind what the jump read

    driving(test)


def test_queues_have_stands_of_their_own() -> None:
    async def test(it: Driver) -> None:
        await it.send(1)
        await it.poll()
        assert (await it.poll(key="T/1")).extra == {"from": 0, "records": [(0, 1)]}  # the fake's

    driving(test)


def test_a_damaged_message_has_no_value() -> None:
    async def test(it: Driver) -> None:
        await it.send(1)
        it.broker.messages[0] = it.broker.messages[0].replace(encode_body(1, 64), bytes(64))
        assert (await it.poll()).extra == {"from": 0, "records": [(0, None)]}

    driving(test)


def test_an_offset_that_is_none_moves_the_client() -> None:
    async def test(it: Driver) -> None:
        for value in range(3):
            await it.send(value)
        await it.poll()
        del it.broker.messages[1:]
        moved = await it.poll()
        assert moved.type == "fail" and moved.extra == {"from": 3, "moved": 1}
        assert moved.error == "there is no offset 3: the broker says 1"
        assert (await it.poll()).extra == {"from": 1, "records": []}

    driving(test)


@pytest.mark.parametrize(
    ("code", "remark", "outcome"),
    [
        (10, "slow disk", Indefinite),
        (11, "no slave", Indefinite),
        (12, "slow slave", Indefinite),
        (1, "no quorum in time", Indefinite),
        (1, f"in-sync replicas not enough: {outcomes.STORED}", Indefinite),
        (1, f"in-sync replicas not enough: {outcomes.NOTHING_STORED}", Definite),
        (14, f"a slave: {outcomes.NOTHING_STORED}", Definite),
        (14, f"deposed: {outcomes.STORED}", Indefinite),
        (14, "", Indefinite),
        (2, "too busy", Definite),
        (3, "what?", Definite),
        (13, "illegal", Definite),
        (13, f"illegal: {outcomes.STORED}", Indefinite),
        (16, "not allowed", Definite),
        (17, "no such topic", Definite),
        (22, "never heard of it", Indefinite),
        (999, "never heard of it", Indefinite),
    ],
)
def test_what_an_answer_says_of_a_send(code: int, remark: str, outcome: type[Exception]) -> None:
    async def test(it: Driver) -> None:
        assert await it.send_fails(response(code, remark)) is outcome

    driving(test)


def test_a_poll_says_that_its_broker_has_no_such_queue() -> None:
    async def test(it: Driver) -> None:
        illegal = response(1, "queueId[1] is illegal, topic:[T]")
        it.broker.pull_answers = [illegal, response(1, "else")]
        with pytest.raises(Definite, match=f"^{NO_QUEUE}: "):
            await it.poll(key="T/1")
        with pytest.raises(Definite, match="^(?!there is no queue)"):
            await it.poll(key="T/1")

    driving(test)


def test_a_topic_grows_to_the_key_s_queue_and_what_is_acknowledged_there_is_noted() -> None:
    async def test(it: Driver) -> None:
        book = it.client._settings.book
        book.used.clear()
        await it.client.invoke(Invocation(f="grow", key="T/2"))
        (request,) = it.broker.requests
        assert request.ext["topic"] == "T"
        assert (request.ext["readQueueNums"], request.ext["writeQueueNums"]) == ("3", "3")
        await it.send_fails(response(ResponseCode.SYSTEM_ERROR))
        assert not book.used
        await it.send(2)
        assert list(book.used) == [KEY]

    driving(test)


def test_the_words_are_the_brokers() -> None:
    assert log_client.NOTHING_STORED == outcomes.NOTHING_STORED
    assert log_client.STORED == outcomes.STORED


def test_a_connection_that_ends_with_the_answer_leaves_it_open() -> None:
    async def test(it: Driver) -> None:
        assert await it.send_fails(None) is Indefinite

    driving(test)


def test_a_success_that_can_not_be_read_is_no_success() -> None:
    async def test(it: Driver) -> None:
        it.broker.store = lambda request: {"queueOffset": "many"}  # type: ignore[method-assign]
        assert await it.send_fails(response(0)) is Indefinite

    driving(test)


def test_a_master_that_is_not_there_gets_nothing() -> None:
    async def test(it: Driver) -> None:
        await it.world.register(NOBODY, epoch=1)
        with pytest.raises(Definite):
            await it.send(1)
        with pytest.raises(Definite):
            await it.poll()

    driving(test)


def test_the_route_is_asked_for_again_after_an_error_and_not_before() -> None:
    async def test(it: Driver) -> None:
        await it.send(1)
        await it.world.register(NOBODY, epoch=1)
        await it.send(2)  # by the route that it has
        refusal = response(ResponseCode.SERVICE_NOT_AVAILABLE, outcomes.NOTHING_STORED)
        assert await it.send_fails(refusal) is Definite
        with pytest.raises(Definite, match=NOBODY):
            await it.send(3)
        await it.world.register(BROKER, epoch=2)
        assert (await it.send(4)).offset == 2

    driving(test)


def test_without_a_route_nothing_is_sent() -> None:
    async def test(it: Driver) -> None:
        with pytest.raises(Definite, match="no route"):
            await it.send(1, key="U/0")

    driving(test)


def test_without_a_name_server_the_client_does_not_open_and_sends_nothing() -> None:
    async def test(it: Driver) -> None:
        with pytest.raises(Unreachable):
            await it.client.open()
        with pytest.raises(Definite) as error:
            await it.send(1)
        assert not isinstance(error.value, Unreachable)  # that would cost it where it stands

    driving(test, port=1)


def test_polls_at_its_own_broker_need_no_route() -> None:
    async def test(it: Driver) -> None:
        await it.send(1)
        await it.world.register(NOBODY, epoch=1)
        assert (await it.poll()).extra == {"from": 0, "records": [(0, 1)]}

    driving(test, own=True)


@pytest.mark.parametrize(
    "answer",
    [
        response(14, "this broker may not answer reads now"),
        response(17, "no such topic"),
        pull_answer(ResponseCode.PULL_RETRY_IMMEDIATELY, 0),
        pull_answer(ResponseCode.SUCCESS, 1),
        pull_answer(ResponseCode.SUCCESS, 1, b"rubbish"),
    ],
)
def test_a_poll_that_fails_is_not_the_end_of_the_queue(answer: Command) -> None:
    async def test(it: Driver) -> None:
        it.broker.pull_answers = [answer]
        with pytest.raises(Definite):
            await it.poll()
        assert (await it.poll()).error == "empty"

    driving(test)


@pytest.mark.parametrize("invocation", [("send", "T"), ("send", "T/x"), ("dequeue", KEY)])
def test_what_it_does_not_know(invocation: tuple[str, str]) -> None:
    async def test(it: Driver) -> None:
        f, key = invocation
        with pytest.raises(Definite):
            await it.client.invoke(Invocation(f=f, key=key, value=1))

    driving(test)


@pytest.mark.parametrize(
    ("stored", "decided", "said"),
    [(0, None, "ok"), (2, 2, "ok"), (2, 1, "1 messages"), (2, None, "2 messages")],
)
def test_transactions_are_decided_when_their_broker_has_read_them_all(
    stored: int, decided: int | None, said: str
) -> None:
    async def test(it: Driver) -> None:
        for value in range(stored):
            await it.send(value)
        if decided is not None:
            it.broker.offsets["CID_RMQ_SYS_TRANS"] = decided
        done = await it.client.invoke(Invocation(f="settle", key=KEY))
        if said == "ok":
            # The fake has one queue, and says of every topic that it holds what that has.
            assert done.extra == {"transactions": stored, "discarded": stored}
        else:
            assert done.type == "fail" and said in str(done.error)

    driving(test)


def test_a_master_that_does_not_say_has_not_decided() -> None:
    async def test(it: Driver) -> None:
        await it.client.open()
        await it.broker.server.stop()
        with pytest.raises(Definite):
            await it.client.invoke(Invocation(f="settle", key=KEY))

    driving(test)
