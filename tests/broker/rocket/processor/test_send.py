"""Sends over the wire: what is stored, and what each outcome is answered with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shalott.broker.base.events import Event
from shalott.broker.rocket.commitlog.api import PutStage
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.config import BrokerConfig
from shalott.broker.rocket.processor import puts, send
from shalott.broker.rocket.remoting.command import RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.send_batch import BatchItem, encode_batch
from tests.world.clock.turns import until
from tests.world.rocket.broker import World, in_world, messages_of

pytestmark = pytest.mark.unit

TAGGED = "TAGS\x01a\x02UNIQ_KEY\x01u1\x02"


def test_a_sent_message_is_stored_as_it_was_sent() -> None:
    async def test(world: World) -> None:
        answer = await world.send(b"hello", properties=TAGGED, flag=7, bornTimestamp=123)
        assert answer.code == ResponseCode.SUCCESS
        assert answer.ext["queueId"] == "0" and answer.ext["queueOffset"] == "0"
        assert answer.ext["transactionId"] == "u1"
        assert answer.ext["msgId"] == "0A000001" + "00002A9F" + "0" * 16
        await world.settle()
        (stored,) = messages_of((await world.pull()).body)
        assert stored.message.body == b"hello" and stored.message.properties == TAGGED
        assert (stored.message.topic, stored.message.queue_id) == ("t", 0)
        assert (stored.message.flag, stored.message.born_ms) == (7, 123)
        assert stored.message.store_host == ("10.0.0.1", 10911)

    in_world(test)


def test_the_three_forms_of_a_send_store_the_same() -> None:
    async def test(world: World) -> None:
        await world.send(b"1")
        letters = {"a": "p", "b": "t", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}
        v2 = await world.ask(RequestCode.SEND_MESSAGE_V2, letters | {"i": TAGGED}, b"2")
        assert (v2.code, v2.ext["queueOffset"]) == (0, "1")
        items = encode_batch([BatchItem(b"3", "", 0), BatchItem(b"4", TAGGED, 9)])
        batch = await world.ask(RequestCode.SEND_BATCH_MESSAGE, letters | {"m": "true"}, items)
        assert (batch.code, batch.ext["queueOffset"]) == (0, "2")
        assert len(batch.ext["msgId"].split(",")) == 2
        from_cpp = await world.send(items, batch="1")
        assert (from_cpp.code, from_cpp.ext["queueOffset"]) == (0, "4")
        assert await world.bodies() == [b"1", b"2", b"3", b"4", b"3", b"4"]

    in_world(test)


@pytest.mark.parametrize("cut", [1, 18, 30])
def test_a_batch_that_is_cut_short_stores_nothing(cut: int) -> None:
    async def test(world: World) -> None:
        items = encode_batch([BatchItem(b"3", "", 0), BatchItem(b"4" * 20, TAGGED, 9)])
        answer = await world.send(items[:-cut], batch="true")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert world.broker.store.log.max_offset == 0

    in_world(test)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (PutStatus.PUT_OK, 0),
        (PutStatus.FLUSH_DISK_TIMEOUT, 10),
        (PutStatus.SLAVE_NOT_AVAILABLE, 11),
        (PutStatus.FLUSH_SLAVE_TIMEOUT, 12),
        (PutStatus.MESSAGE_ILLEGAL, 13),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14),
        (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, 1),
        (PutStatus.OS_PAGE_CACHE_BUSY, 1),
        (PutStatus.UNKNOWN_ERROR, 1),
    ],
)
@pytest.mark.parametrize("stores", [True, False])
def test_every_outcome_has_its_code_and_says_whether_something_was_stored(
    outcome: PutStatus, code: int, stores: bool
) -> None:
    if outcome is PutStatus.PUT_OK and not stores:
        pytest.skip("there is no such outcome")

    async def test(world: World) -> None:
        world.replica.outcome, world.replica.stores = outcome, stores
        answer = await world.send()
        assert answer.code == code
        assert ("nothing was stored" in answer.remark) == (not stores)
        stored = "it was stored on this broker" in answer.remark
        assert stored == (stores and outcome is not PutStatus.PUT_OK)
        assert ("queueOffset" in answer.ext) == (stores and code in (0, 10, 11, 12))

    in_world(test)


def test_success_tells_that_all_counts_which_the_request_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the handler makes of an outcome that is none: an oracle asks the disks then."""

    async def test(world: World) -> None:
        asked: list[tuple[object, ...]] = []
        env = replace(world.broker.env, witness=lambda *what: asked.append(what))
        monkeypatch.setattr(world.broker, "env", env)
        world.replica.outcome = PutStatus.FLUSH_SLAVE_TIMEOUT
        assert (await world.send()).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert "acked" not in [what[0] for what in asked]
        monkeypatch.setattr(send, "send_answer", lambda *_: response(ResponseCode.SUCCESS))
        assert (await world.send()).code == ResponseCode.SUCCESS
        assert [what[0] for what in asked].count("acked") == 1

    in_world(test)


def test_a_put_of_which_nothing_fitted_is_an_outcome_like_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(world: World) -> None:
        async def put(messages: object) -> PutResult:
            return PutResult(PutStatus.FLUSH_SLAVE_TIMEOUT, PutStage(messages=()), "no room")

        monkeypatch.setattr(world.replica, "put", put)
        assert (await puts.put(world.broker, [])).status is PutStatus.FLUSH_SLAVE_TIMEOUT

    in_world(test)


def test_a_demoted_broker_refuses_writes_and_stores_nothing() -> None:
    async def test(world: World) -> None:
        for role in ("slave", "none"):
            world.replica.role = role
            answer = await world.send()
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "nothing was stored" in answer.remark
        assert world.broker.store.log.max_offset == 0

    in_world(test)


def test_topics_are_made_by_being_sent_to_and_told_at_once() -> None:
    async def test(world: World) -> None:
        await world.send(defaultTopicQueueNums=2)
        assert world.broker.tables.topics["t"].write_queue_nums == 2
        await world.send(topic="wide", defaultTopicQueueNums=100)
        assert world.broker.tables.topics["wide"].write_queue_nums == 8  # the template's
        assert len(world.topics_told) == 2
        beyond = await world.send(queue=2)
        assert beyond.code == ResponseCode.SYSTEM_ERROR
        assert "queueId[2] is illegal" in beyond.remark and "nothing was stored" in beyond.remark
        somewhere = await world.send(queue=-1)
        assert somewhere.code == 0 and somewhere.ext["queueId"] in ("0", "1")

    in_world(test)


def test_without_auto_creation_an_unknown_topic_is_refused() -> None:
    async def test(world: World) -> None:
        assert (await world.send()).code == ResponseCode.TOPIC_NOT_EXIST
        wanted = {"topic": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        made = await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted)
        assert made.code == 0 and len(world.topics_told) == 1
        assert (await world.send()).code == 0
        await world.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wanted | {"perm": 4})
        assert (await world.send()).code == ResponseCode.NO_PERMISSION

    in_world(test, config=BrokerConfig(auto_create_topics=False))


def test_what_can_not_be_stored_is_refused() -> None:
    async def test(world: World) -> None:
        illegal = await world.send(topic="no spaces")
        assert illegal.code == ResponseCode.MESSAGE_ILLEGAL
        reserved = await world.send(topic="TBW102")
        assert reserved.code == ResponseCode.SYSTEM_ERROR
        committed = await world.send(sysFlag=8)
        assert committed.code == ResponseCode.MESSAGE_ILLEGAL
        code = RequestCode.CHECK_TRANSACTION_STATE  # a broker asks that, and is not asked
        assert (await world.ask(code)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        nonsense = await world.send(queue="many")  # type: ignore[arg-type]
        assert nonsense.code == ResponseCode.SYSTEM_ERROR and "queueId" in nonsense.remark
        assert world.broker.store.log.max_offset == 0

    in_world(test)


def test_the_event_log_tells_only_what_was_acknowledged() -> None:
    async def test(world: World) -> None:
        await world.send()
        await world.send()
        world.replica.outcome = PutStatus.FLUSH_SLAVE_TIMEOUT
        await world.send()
        world.replica.outcome, world.replica.epoch = PutStatus.PUT_OK, 2
        await world.send()

        def acknowledged() -> list[Event]:
            return [event for event in world.events if event.kind == "acked"]

        await until(lambda: len(acknowledged()) == 2)
        acked = acknowledged()
        assert [(event.epoch, event.detail["count"]) for event in acked] == [(1, 2), (2, 1)]
        assert acked[0].detail["last_ns"] < acked[1].detail["first_ns"]
        assert all(event.group == "shalott" for event in acked)
        end = world.broker.store.log.max_offset  # a third of it is of the one that was not
        assert [event.detail["end"] for event in acked] == [end // 2, end]

    in_world(test)
