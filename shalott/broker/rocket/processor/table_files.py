"""TableFiles: the JSON files below ``config`` that a broker keeps its tables in (ConfigManager).

Files are written behind: topics and groups at once, offsets every five seconds, as upstream does.
A disk that takes no table stops nothing; it is tried again. A file that makes no sense counts for
nothing, and its former content, in ``.bak``, stands in for it, as upstream has it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shalott.broker.base.disk import Disk
from shalott.broker.base.env import Witness, unseen
from shalott.broker.base.files import FORMER, read_file, replace_file
from shalott.broker.rocket.remoting.java_json import decode_java_json

log = logging.getLogger("shalott.broker.tables")

T = TypeVar("T", bound=msgspec.Struct)
U = TypeVar("U")
OFFSETS_INTERVAL_S = 5.0  # flushConsumerOffsetInterval
WAIT_S_MIN = 0.001
AGAIN_S = 1.0  # after a disk that took nothing

TOPICS = "config/topics.json"
GROUPS = "config/subscriptionGroup.json"
OFFSETS = "config/consumerOffset.json"
DELAYS = "config/delayOffset.json"
TIMERS = "config/timercheck"
BEHIND = (OFFSETS, DELAYS, TIMERS)  # written every so often


class TableFiles:
    """Of one broker. ``contents`` gives what each file should hold now."""

    def __init__(self, disk: Disk, witness: Witness = unseen) -> None:
        self.contents: dict[str, Callable[[], bytes]] = {}
        self._disk = disk
        self._witness = witness
        self._dirty: dict[str, None] = {}
        self._rubbish: dict[str, None] = {}  # files whose content must not become the former one
        self._changed = asyncio.Event()

    def touch(self, path: str) -> None:
        """What the file should hold has changed."""
        self._dirty[path] = None
        self._changed.set()

    @property
    def unwritten(self) -> tuple[str, ...]:
        return tuple(self._dirty)

    async def run(self) -> None:
        """Write what changes until cancelled."""
        offsets_at = 0.0
        loop = asyncio.get_running_loop()
        while True:
            late = any(path in self._dirty for path in BEHIND)
            try:
                # Never nothing: a timer may fire a rounding error before its time.
                wait_s = max(WAIT_S_MIN, offsets_at - loop.time())
                async with asyncio.timeout(wait_s if late else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            due = [path for path in (TOPICS, GROUPS) if path in self._dirty]
            if loop.time() >= offsets_at:
                due += [path for path in BEHIND if path in self._dirty]
                offsets_at = loop.time() + OFFSETS_INTERVAL_S
            if not await self._save(due):
                await asyncio.sleep(AGAIN_S)

    async def save(self) -> None:
        """Write all that changed, at an orderly end."""
        await self._save(list(self._dirty))

    async def read_json(self, path: str, shape: type[T]) -> T:
        """See ``read``."""
        return await self.read(path, lambda data: decode_java_json(data, shape), shape)

    async def read(self, path: str, decode: Callable[[bytes], U], empty: Callable[[], U]) -> U:
        """The file's content, or its former one, or an empty table. Raises OSError."""
        for candidate in (path, path + FORMER):
            data = await read_file(self._disk, candidate)
            if data is None:
                continue
            try:
                table = decode(data)
            except ValueError as error:  # a DecodeError is one
                log.warning("%s can't be understood and counts as absent: %s", candidate, error)
                self._rubbish[candidate] = None
                continue
            if candidate != path:
                log.warning("%s is read instead of %s", candidate, path)
            return table
        return empty()

    async def _save(self, paths: list[str]) -> bool:
        """Whether the disk took them all; what it did not take stays to be written."""
        for path in paths:
            self._dirty.pop(path, None)
            sound, content = path not in self._rubbish, self.contents[path]()
            try:
                await replace_file(self._disk, path, content, keep_former=sound)
                self._rubbish.pop(path, None)
            except OSError as error:
                log.warning("%s can't be written: %s", path, error.strerror or error)
                self._dirty[path] = None
                return False
            finally:
                if path not in self._dirty:
                    self._witness("written", path, content)
        return True
