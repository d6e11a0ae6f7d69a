"""Requests over messages: who asks is answered through its own broker."""

from __future__ import annotations

import msgspec
import pytest

from shalott.broker.rocket.processor.stored_messages import properties_of
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from tests.world.rocket.broker import World, in_world, messages_of

pytestmark = pytest.mark.unit

ASKS = "REPLY_TO_CLIENT\x01c\x02CORRELATION_ID\x017\x02"
LETTERS = {"a": "p", "b": "shalott_REPLY_TOPIC", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1}
NAMES = {
    "producerGroup": "p",
    "topic": "shalott_REPLY_TOPIC",
    "queueId": -1,
    "sysFlag": 0,
    "bornTimestamp": 1,
}


@pytest.mark.parametrize("is_v2", [False, True])
def test_a_reply_is_passed_on_to_who_asked_and_kept(is_v2: bool) -> None:
    async def body(world: World) -> None:
        await world.send(b"question", properties=ASKS)
        [question] = messages_of((await world.pull()).body)
        properties = properties_of(question.message.properties)
        assert properties["CLUSTER"] == "shalott"  # who answers makes the topic's name of it
        asker = world.new_client()
        beat = {"clientID": "c", "producerDataSet": [{"groupName": "p"}]}
        command = Command(code=RequestCode.HEART_BEAT, body=msgspec.json.encode(beat))
        await asker.invoke(world.address, command, 1000)
        code = RequestCode.SEND_REPLY_MESSAGE_V2 if is_v2 else RequestCode.SEND_REPLY_MESSAGE
        ext = LETTERS | {"i": ASKS} if is_v2 else NAMES | {"properties": ASKS}
        assert (await world.ask(code, ext, b"answer")).code == ResponseCode.SUCCESS
        await asker.invoke(world.address, command, 1000)
        [told] = world.pushed
        assert told.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT and told.body == b"answer"
        assert properties_of(told.ext["properties"])["CORRELATION_ID"] == "7"
        assert told.ext["topic"] == "shalott_REPLY_TOPIC" and told.ext["queueId"] == "0"
        assert await world.bodies("shalott_REPLY_TOPIC") == [b"answer"]
        await asker.close()

    in_world(body)


def test_a_reply_to_nobody_says_so() -> None:
    async def body(world: World) -> None:
        ext = NAMES | {"properties": ASKS}
        answer = await world.ask(RequestCode.SEND_REPLY_MESSAGE, ext, b"answer")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "push reply message fail, channel of <c> not found."

    in_world(body)
