"""JavaMember: a member of a consumer group that is RocketMQ's Java push consumer, in the run's JVM.

It is observed as the C++ member is (cpp/member.py), and told more: how often to say that it is
there, to commit and to ask for routes, which delay a retry has, how many retries there are. What
differs on the wire is in rows.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shalott.checkers.groups.group_rules import Group
from shalott.clients.cpp.member import LibraryMember
from shalott.clients.java.instance import JavaInstance
from shalott.clients.java.machine import JavaMachine
from shalott.clients.java.rows import JavaMemberRows
from shalott.clients.members.consumption import MemberSettings
from shalott.clients.members.listener import Listener
from shalott.clients.members.rows import Rows
from shalott.clients.rocketmq import Dial, Queue, RocketClient, RocketError

ASK_TIMEOUT_MS = 2000.0


class JavaMember(LibraryMember):
    """``machine``: the JVM of the run."""

    def __init__(
        self,
        name: str,
        group: Group,
        *,
        machine: JavaMachine,
        settings: MemberSettings,
        name_server: str,
        dial: Dial,
        listener: Listener,
        rows: Rows,
    ) -> None:
        self._machine = machine
        self._asking = RocketClient([], dial=dial, timeout_ms=ASK_TIMEOUT_MS)
        super().__init__(
            name,
            group,
            settings=settings,
            name_server=name_server,
            dial=dial,
            listener=listener,
            rows=rows,
        )

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

    def _reconsumed(self, said: Mapping[str, Any]) -> int:
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
