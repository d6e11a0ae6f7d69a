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
from collections.abc import Mapping
from typing import Protocol

from shalott.broker.base.tasks import Tasks
from shalott.clients.cpp.process import CppProcess, LibraryLine
from shalott.clients.cpp.tap import RemotingTap
from shalott.clients.cpp.wire_rows import MemberRows, key_of_delivery
from shalott.clients.rocketmq.consumption import GONE, Membership
from shalott.core.errors import Unreachable
from shalott.core.message_body import decode_body
from shalott.core.op import Completion

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
    """The name of its membership is its instance name."""

    def __init__(self, of: Membership) -> None:
        self.name = of.name
        self.group = of.group
        self._listener = of.listener
        self._rows = of.rows
        self._settings = of.settings
        self._name_server = of.name_server
        self._dial = of.dial
        self._wire = self._new_wire()
        self._tap = RemotingTap(of.dial, self._wire)
        self._process = self._new_process()
        self._given: dict[tuple[str, int], int] = {}  # how often, by queue and offset
        self._tasks = Tasks(self._failed, name=f"member {self.name}")
        self._joined = False
        self._ended = False
        self._tasks.start(self._live())

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
        await self._tasks.end()
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
            self._tasks.start(self.end("died"))

    # -- deliveries --------------------------------------------------------------------------------

    def _said(self, said: LibraryLine) -> None:
        self._tasks.start(self._deliver(said))

    async def _deliver(self, said: LibraryLine) -> None:
        key, offset = key_of_delivery(said, self.group.name), int(said["offset"])
        value = decode_body(bytes.fromhex(said["body"]))
        again = self._given.get((key, offset), 0)
        self._given[key, offset] = again + 1
        reconsumed = self._reconsumed(said)
        attempt = reconsumed + (0 if said["retry"] else again)
        words: dict[str, object] = self._wire.words | {
            "reconsumed": reconsumed,
            "origin": said["retry"] or said["topic"],
        }
        if said["tag"]:
            words["tag"] = said["tag"]
        row = self._rows.begin("deliver", key, words, value)
        assignment = self._wire.work(key)
        redelivered = attempt > 0
        work = self._listener.work(self.group, value or 0, attempt)
        try:
            await asyncio.sleep(work.time_ms / 1000)
            outcome: str = "success" if value is None else work.outcome
            self._process.tell("verdict", {"id": said["id"], "success": outcome == "success"})
        except (asyncio.CancelledError, Unreachable) as error:
            self._rows.end(
                row, Completion(type="info", offset=offset, redelivered=redelivered, error=GONE)
            )
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        if assignment is None or assignment.ended:
            outcome = "dropped"
        elif outcome != "suspend":
            self._wire.done(key, offset)
        done = Completion(
            type="ok",
            offset=offset,
            redelivered=redelivered,
            error="corrupted" if value is None else None,
            extra=words | {"outcome": outcome},
        )
        self._rows.end(row, done)
        self._wire.worked(key, assignment)

    def _reconsumed(self, said: LibraryLine) -> int:
        """How often the broker says that it was."""
        return int(said["reconsumed"])

    def _failed(self, task: str, error: BaseException) -> None:
        log.error("the member %s", self.name, exc_info=error)


class CppMember(LibraryMember):
    """``body_bytes``: of every message of the run."""

    def __init__(self, of: Membership, *, body_bytes: int) -> None:
        self._body_bytes = body_bytes
        super().__init__(of)

    def _new_process(self) -> CppProcess:
        return CppProcess(self._body_bytes, self._said, self._process_ended)
