"""What RocketMQ's Java member says to brokers, as rows of the history, where it differs from the
C++ client (cpp/wire.py).

- It commits without waiting for an answer. So the broker is asked, right after, what it has: the
  commit is ok if that is the offset, and else info.
- What an orderly member could not consume often enough, and what a broker refuses to take back, it
  sends to the retry topic as a message of its own: a ``send-back`` as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.clients.body import decode_body
from shalott.clients.cpp.wire import MemberRows
from shalott.clients.java.attempts import SENDS, key_of_send
from shalott.clients.members.requests import retry_topic
from shalott.clients.rocketmq_messages import decode_properties

ASK_AGAIN_S = (0.0, 0.05, 0.2, 0.5)  # the commit may still be on its way
UNSEEN = "no broker said that it has it"
Committed = Callable[[str, str], Awaitable[int | None]]


@dataclass(slots=True, kw_only=True)
class JavaMemberRows(MemberRows):
    """``committed`` asks the broker behind an address for the group's offset in a queue."""

    committed: Committed
    _asking: dict[asyncio.Task[None], int] = field(default_factory=dict)  # -> row

    def asked(self, behind: str, request: Command) -> None:
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET and request.is_oneway:
            self._commit(behind, request)
        elif request.code in SENDS:
            self._sent(request)
        else:
            MemberRows.asked(self, behind, request)

    def end(self, ended: str) -> None:
        for task, row in list(self._asking.items()):
            task.cancel()
            self.rows.end(row, "info", error="its member is gone")
        self._asking.clear()
        MemberRows.end(self, ended)

    # -- commits -----------------------------------------------------------------------------------

    def _commit(self, behind: str, request: Command) -> None:
        key = f"{request.ext.get('topic', '')}/{request.ext.get('queueId', '')}"
        offset = int(request.ext.get("commitOffset", 0))
        row = self.rows.begin("commit", key, self.words)
        task = asyncio.create_task(self._confirm(row, behind, key, offset), name="commit seen")
        self._asking[task] = row
        task.add_done_callback(lambda done: self._asking.pop(done, None))

    async def _confirm(self, row: int, behind: str, key: str, offset: int) -> None:
        for pause_s in ASK_AGAIN_S:
            await asyncio.sleep(pause_s)
            if await self.committed(behind, key) == offset:
                self.rows.end(row, offset=offset)
                return
        self.rows.end(row, "info", offset=offset, error=UNSEEN)

    # -- messages that it sends itself -------------------------------------------------------------

    def _sent(self, request: Command) -> None:
        if key_of_send(request).rpartition("/")[0] != retry_topic(self.group.name):
            return
        value = decode_body(request.body)
        pulled = [one for one in self._by_log_offset.values() if one.value == value]
        if value is None or not pulled:
            return  # of nothing that it was given since this member began
        last = pulled[-1]
        ext = request.ext
        is_short = request.code == RequestCode.SEND_MESSAGE_V2
        properties = decode_properties(ext.get("i" if is_short else "properties", ""))
        times = int(ext.get("j" if is_short else "reconsumeTimes", 0) or 0)
        # A concurrent member counts the retry that it asks for, an orderly one does not.
        words = self.words | {
            "level": int(properties.get("DELAY", 0)),
            "reconsumed": times - (not self.group.orderly),
        }
        row = self.rows.begin("send-back", last.key, words, value)
        self._sent_back[row] = last.message.queue_offset
        self._open(request, [row])
