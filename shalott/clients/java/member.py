"""JavaMember: a member of a consumer group that is RocketMQ's Java push consumer, in the run's JVM.

It is observed as the C++ member is (cpp/member.py), and told more: how often to say that it is
there, to commit and to ask for routes, which delay a retry has, how many retries there are. What
differs on the wire is in rows.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from shalott.broker.rocket.remoting.command import Command, RequestCode
from shalott.clients.cpp.member import LibraryMember
from shalott.clients.cpp.process import LibraryLine
from shalott.clients.cpp.wire_rows import MemberRows
from shalott.clients.java.machine import JavaInstance, JavaMachine
from shalott.clients.java.sends import SENDS, key_of_send
from shalott.clients.rocketmq.consumption import Membership
from shalott.clients.rocketmq.group_requests import retry_topic
from shalott.clients.rocketmq.rocket_client import Queue, RocketClient, RocketError
from shalott.clients.rocketmq.stored_messages import decode_properties
from shalott.core.message_body import decode_body
from shalott.core.op import Completion

ASK_TIMEOUT_MS = 2000.0


class JavaMember(LibraryMember):
    """``machine``: the JVM of the run."""

    def __init__(self, of: Membership, *, machine: JavaMachine) -> None:
        self._machine = machine
        self._asking = RocketClient([], dial=of.dial, timeout_ms=ASK_TIMEOUT_MS)
        super().__init__(of)

    def _new_process(self) -> JavaInstance:
        return JavaInstance(
            self._machine, self.name, self._tap, self._said, self._process_ended, self._rows
        )

    def _new_wire(self) -> JavaMemberRows:
        return JavaMemberRows(self.name, self.group, self._rows, committed=self._committed)

    def _join_words(self) -> dict[str, object]:
        settings = self._settings
        return {
            "heartbeat_ms": settings.heartbeat_ms,
            "persist_ms": settings.persist_ms,
            "route_poll_ms": settings.route_poll_ms,
            "suspend_ms": settings.suspend_ms,
            "retry_level": settings.retry_level,
            "max_reconsume": self.group.max_reconsume,
        }

    def _reconsumed(self, said: LibraryLine) -> int:
        """The library counts what an orderly member suspends in the same place."""
        return int(said["reconsumed"]) if said["retry"] or not self.group.orderly else 0

    async def end(self, ended: str) -> None:
        await super().end(ended)
        await self._asking.close()

    async def _committed(self, behind: str, key: str) -> int | None:
        """What a broker says of the group's offset."""
        topic, _, number = key.rpartition("/")
        try:
            queue = Queue(topic, "", int(number))
            return await self._asking.consumer_offset(behind, queue, self.group.name)
        except RocketError:
            return None


ASK_AGAIN_S = (0.0, 0.05, 0.2, 0.5)  # the commit may still be on its way
UNSEEN = "no broker said that it has it"
Committed = Callable[[str, str], Awaitable[int | None]]


@dataclass(slots=True, kw_only=True)
class JavaMemberRows(MemberRows):
    """What the member says to brokers, where it differs from the C++ client (cpp/wire_rows.py).

    It commits without waiting for an answer. So the broker is asked, right after, what it has: the
    commit is ok if that is the offset, and else info. What an orderly member could not consume
    often enough, and what a broker refuses to take back, it sends to the retry topic as a message
    of its own: a ``send-back`` as well.

    ``committed`` asks the broker behind an address for the group's offset in a queue.
    """

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
            self.rows.end(row, Completion(type="info", error="its member is gone"))
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
                self.rows.end(row, Completion(type="ok", offset=offset))
                return
        self.rows.end(row, Completion(type="info", offset=offset, error=UNSEEN))

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
