"""LibraryMember: a member of a consumer group that is a library of upstream's, driven over pipes.
CppMember is one that is RocketMQ's C++ client, in a process of its own.

It is used as our own member is (members/member.py): begins at once, ends by ``leave`` or ``end``.
The application's part, how long a message takes and what comes of it, is the run's listener; all
else is the library's. The C++ client has times of its own: it asks for members every 10 s, commits
every 5 s and looks for routes every 30 s, and leaves delays and the number of retries to the
broker.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from shalott.checkers.groups.group_rules import Group
from shalott.clients.body import decode_body
from shalott.clients.cpp.process import CppProcess
from shalott.clients.cpp.tap import RemotingTap
from shalott.clients.cpp.wire import MemberRows, key_of_delivery
from shalott.clients.members.consumption import GONE, MemberSettings
from shalott.clients.members.listener import Listener
from shalott.clients.members.rows import Rows
from shalott.clients.rocketmq import Dial
from shalott.core.errors import Unreachable

log = logging.getLogger("shalott.clients")

JOIN_TIMEOUT_S = 60.0  # it asks for routes with a patience of its own
AGAIN_S = 1.0  # a member that could not join tries again


class Driven(Protocol):
    """A library's object: a C++ client's process, or one of several in a JVM."""

    async def start(self) -> None: ...

    async def ask(self, do: str, what: Mapping[str, object], timeout_s: float) -> None: ...

    def tell(self, do: str, what: Mapping[str, object]) -> None: ...

    async def leave(self) -> None: ...

    async def kill(self) -> None: ...


class LibraryMember(ABC):
    """``name`` is its instance name."""

    def __init__(
        self,
        name: str,
        group: Group,
        *,
        settings: MemberSettings,
        name_server: str,
        dial: Dial,
        listener: Listener,
        rows: Rows,
    ) -> None:
        self.name = name
        self.group = group
        self._listener = listener
        self._rows = rows
        self._settings = settings
        self._name_server = name_server
        self._dial = dial
        self._wire = self._new_wire()
        self._tap = RemotingTap(dial, self._wire)
        self._process = self._new_process()
        self._given: dict[tuple[str, int], int] = {}  # how often, by queue and offset
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._joined = False
        self._ended = False
        self._spawn(self._live())

    def stands_at(self, key: str) -> int | None:
        """How far it has consumed a queue; None if it does not have it."""
        return self._wire.stands_at(key)

    async def leave(self) -> None:
        """In order. May be cancelled: then ``end`` does the rest."""
        await self._process.leave()
        await self.end("left")

    async def end(self, ended: str) -> None:
        """Without a word. Does nothing the second time."""
        if self._ended:
            return
        self._ended = True
        await self._process.kill()
        await self._tap.close()
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._wire.end(ended)

    @abstractmethod
    def _new_process(self) -> Driven:
        """What tells ``_said`` and ``_process_ended``. Uses the tap of the moment."""

    def _new_wire(self) -> MemberRows:
        return MemberRows(self.name, self.group, self._rows)

    def _join_words(self) -> dict[str, object]:
        """What the library is told besides where and whose it is."""
        return {}

    async def _live(self) -> None:
        while not self._ended:
            try:
                await self._join()
                self._joined = True
                return
            except Unreachable as error:
                log.info("the member %s can't join: %s", self.name, error)
                await self._process.kill()
                await asyncio.sleep(AGAIN_S)
                await self._tap.close()
                self._tap = RemotingTap(self._dial, self._wire)
                self._process = self._new_process()

    async def _join(self) -> None:
        await self._process.start()
        group = self.group
        wanted = self._join_words() | {
            "name_server": await self._tap.address(self._name_server),
            "group": group.name,
            "instance": self.name,
            "topics": list(group.topics),
            "tags": " || ".join(group.tags) or "*",
            "orderly": group.orderly,
            "broadcast": group.broadcast,
            "threads": self._settings.parallel,
        }
        await self._process.ask("join", wanted, JOIN_TIMEOUT_S)

    def _process_ended(self, words: str) -> None:
        if self._joined and not self._ended:
            log.warning("the member %s ended by itself: %s", self.name, words)
            self._spawn(self.end("died"))

    # -- deliveries --------------------------------------------------------------------------------

    def _said(self, said: Mapping[str, Any]) -> None:
        self._spawn(self._deliver(said))

    async def _deliver(self, said: Mapping[str, Any]) -> None:
        key, offset = key_of_delivery(said, self.group.name), int(said["offset"])
        value = decode_body(bytes.fromhex(said["body"]))
        again = self._given.get((key, offset), 0)
        self._given[key, offset] = again + 1
        reconsumed = self._reconsumed(said)
        attempt = reconsumed + (0 if said["retry"] else again)
        words: dict[str, Any] = self._wire.words | {
            "reconsumed": reconsumed,
            "origin": said["retry"] or said["topic"],
        }
        if said["tag"]:
            words["tag"] = said["tag"]
        row = self._rows.begin("deliver", key, words, value)
        assignment = self._wire.work(key)
        told: dict[str, Any] = {"offset": offset, "redelivered": attempt > 0}
        work = self._listener.work(self.group, value or 0, attempt)
        try:
            await asyncio.sleep(work.time_ms / 1000)
            outcome: str = "success" if value is None else work.outcome
            self._process.tell("verdict", {"id": said["id"], "success": outcome == "success"})
        except (asyncio.CancelledError, Unreachable) as error:
            self._rows.end(row, "info", error=GONE, **told)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        if assignment is None or assignment.ended:
            outcome = "dropped"
        elif outcome != "suspend":
            self._wire.done(key, offset)
        told["error"] = "corrupted" if value is None else None
        self._rows.end(row, extra=words | {"outcome": outcome}, **told)
        self._wire.worked(key, assignment)

    def _reconsumed(self, said: Mapping[str, Any]) -> int:
        """How often the broker says that it was."""
        return int(said["reconsumed"])

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name=f"member {self.name}")
        self._tasks[task] = None
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the member %s", self.name, exc_info=error)


class CppMember(LibraryMember):
    """``body_bytes``: of every message of the run."""

    def __init__(
        self,
        name: str,
        group: Group,
        *,
        body_bytes: int,
        settings: MemberSettings,
        name_server: str,
        dial: Dial,
        listener: Listener,
        rows: Rows,
    ) -> None:
        self._body_bytes = body_bytes
        super().__init__(
            name,
            group,
            settings=settings,
            name_server=name_server,
            dial=dial,
            listener=listener,
            rows=rows,
        )

    def _new_process(self) -> CppProcess:
        return CppProcess(self._body_bytes, self._said, self._process_ended)
