"""Pops of our own client: a group is given messages for a time, and acknowledges most of them.

What it does with a message is drawn from its value and from how often it came: it acknowledges it,
asks for more time and acknowledges it then, or leaves it, so that it must come again. ``calm``:
it acknowledges everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from shalott.clients.rocketmq.rocket_client import (
    NotSent,
    Refused,
    RocketClient,
    RocketError,
    Unknown,
)
from shalott.clients.rocketmq.stored_messages import Malformed, PulledMessage, decode_messages
from shalott.core.message_body import decode_body
from shalott.core.rng import draw_float

GROUP = "shalott-pops"
INVISIBLE_MS = 3000
MESSAGES_MAX = 16
MARGIN_S = 0.1  # of an operation's time, to say what became of it
LEFT, LONGER = 0.2, 0.1  # shares of messages, at each attempt
RETRY = "1"  # of a handle: its message is in the group's retry topic
EMPTY = (ResponseCode.PULL_NOT_FOUND, ResponseCode.POLLING_TIMEOUT)


class _Pop(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    consumer_group: str = GROUP
    topic: str
    queue_id: int = -1
    max_msg_nums: int = MESSAGES_MAX
    invisible_time: int = INVISIBLE_MS
    poll_time: int = 0
    born_time: int = 0
    init_mode: int = 0
    exp_type: str = "TAG"
    exp: str = "*"
    order: bool = False


class _Popped(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    pop_time: int
    invisible_time: int
    revive_qid: int
    start_offset_info: str = ""


class _Handled(msgspec.Struct, kw_only=True, frozen=True, rename="camel"):
    """ACK_MESSAGE, and with a time CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str = GROUP
    topic: str
    queue_id: int
    extra_info: str
    offset: int
    invisible_time: int | None = None


@dataclass(slots=True)
class Popper:
    """``key``: of the random stream."""

    client: RocketClient
    key: int

    async def pop(
        self, address: str, broker_name: str, topic: str, *, calm: bool, deadline_s: float
    ) -> Mapping[str, object]:
        """What a row says of it: the places and values that came, and which places were
        acknowledged, certainly or perhaps. What there is no time for is left. Raises
        RocketError."""
        wanted = _Pop(topic=topic)
        answer = await self._ask(address, RequestCode.POP_MESSAGE, wanted, deadline_s)
        if answer.code in EMPTY:
            return {"popped": [], "broker": address}
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(answer.code, answer.remark)
        try:
            said = msgspec.convert(answer.ext, _Popped, strict=False)
            messages = decode_messages(answer.body)
        except (msgspec.ValidationError, Malformed) as error:
            raise Unknown(str(error)) from error
        popped = list[tuple[str, int, int | None]]()
        acked, unsure = list[tuple[str, int]](), list[tuple[str, int]]()
        for message in messages:
            handle = _handle_of(message, said, broker_name, topic)
            place = (f"{handle.topic}/{handle.queue_id}", handle.offset)
            value = decode_body(message.body) if message.is_sound else None
            popped.append((*place, value))
            attempt = 64 * (value or 0) + min(message.reconsumed, 63)
            drawn = 1.0 if calm else draw_float(self.key, attempt)
            done = await self._handle(address, handle, drawn, deadline_s)
            if done is not False:
                (unsure if done is None else acked).append(place)
        return {"popped": popped, "acked": acked, "unsure": unsure, "broker": address}

    async def _handle(
        self, address: str, handle: _Handled, drawn: float, deadline_s: float
    ) -> bool | None:
        """Whether the broker said that it is acknowledged; None: it may be."""
        if drawn < LEFT:
            return False
        try:
            if drawn < LEFT + LONGER:
                wanted = msgspec.structs.replace(handle, invisible_time=INVISIBLE_MS)
                code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
                answer = await self._ask(address, code, wanted, deadline_s)
                if answer.code != ResponseCode.SUCCESS:
                    return False
                parts = handle.extra_info.split(" ")
                parts[1] = answer.ext.get("popTime", "")
                handle = msgspec.structs.replace(handle, extra_info=" ".join(parts))
            answer = await self._ask(address, RequestCode.ACK_MESSAGE, handle, deadline_s)
        except NotSent:
            return False
        except RocketError:
            return None
        if answer.code in (ResponseCode.SUCCESS, ResponseCode.NO_MESSAGE):
            return answer.code == ResponseCode.SUCCESS
        return None

    async def _ask(
        self, address: str, code: RequestCode, header: msgspec.Struct, deadline_s: float
    ) -> Command:
        """Raises RocketError."""
        left_s = deadline_s - asyncio.get_running_loop().time() - MARGIN_S
        if left_s <= 0:
            raise NotSent("there is no time left")
        return await self.client.ask(address, code, header, timeout_ms=1000 * left_s)


def _handle_of(message: PulledMessage, said: _Popped, broker_name: str, topic: str) -> _Handled:
    """As the Java client makes it: a retried message brings its own, those of a queue have the
    pop's first offset there in common."""
    info = message.properties.get("POP_CK", "")
    if not info:
        starts = dict(each.rsplit(" ", 1) for each in said.start_offset_info.split(";"))
        start = starts.get(f"0 {message.queue_id}", message.queue_offset)
        info = f"{start} {said.pop_time} {said.invisible_time} {said.revive_qid} 0 {broker_name}"
        info += f" {message.queue_id} {message.queue_offset}"
    parts = info.split(" ")
    if parts[4] == RETRY:
        topic = f"%RETRY%{GROUP}_{topic}"
    return _Handled(topic=topic, queue_id=int(parts[6]), extra_info=info, offset=int(parts[7]))
