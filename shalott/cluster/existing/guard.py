"""The harness's side of the guardian: what is done to containers of others is written down first.

``shalott clean``, and the next run, undo what a guardian left that was killed itself
(``sweep_ledgers``).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from shalott.cluster.cluster import ignore_helper_end
from shalott.cluster.existing.guardian import END, RENEW
from shalott.cluster.existing.ledger import Ledger, place_of, read_ledgers, undo
from shalott.cluster.nodes import HelperEnd
from shalott.cluster.owner import runs
from shalott.core.errors import HarnessError

replace = msgspec.structs.replace

PROGRAM = "shalott.cluster.existing.guardian"
RENEWALS = 4  # in one lease


class Guard:
    """``ledger``: what has been written down. Raises HarnessError once the guardian is gone: then
    nothing may be done that it would have to undo."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.on_end: Callable[[HelperEnd], None] = ignore_helper_end
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lock = asyncio.Lock()
        self._is_ending = False

    async def start(self) -> None:
        search = os.pathsep.join(entry for entry in sys.path if entry)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", PROGRAM, self.ledger.run),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PYTHONPATH": search},
            start_new_session=True,
        )
        await self.note(lambda ledger: ledger)
        self._tasks = [asyncio.create_task(self._renew()), asyncio.create_task(self._watch())]

    async def note(self, change: Callable[[Ledger], Ledger]) -> None:
        """Returns when the ledger is written as it is after that change."""
        async with self._lock:
            fresh = change(self.ledger)
            process = self._process
            if process is None or process.stdin is None or process.stdout is None:
                raise HarnessError("the guardian of the cluster does not run")
            process.stdin.write(msgspec.json.encode(fresh) + b"\n")
            if await process.stdout.readline() != b"kept\n":
                raise HarnessError("the guardian of the cluster ended: nothing more is broken")
            self.ledger = fresh

    async def note_shapes(self) -> None:
        if not self.ledger.is_shaped:
            await self.note(lambda ledger: replace(ledger, is_shaped=True))

    async def end(self) -> None:
        """All is undone."""
        self._is_ending = True
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                process.stdin.write(END)
                await process.stdin.drain()
            process.stdin.close()
            await process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def abandon(self) -> None:
        """Leave all that is left to the guardian, which hears no more from here."""
        self._is_ending = True
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            await process.wait()
        await self.end()

    async def _renew(self) -> None:
        while self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(RENEW)
            await asyncio.sleep(self.ledger.lease_s / RENEWALS)

    async def _watch(self) -> None:
        assert self._process is not None
        code = await self._process.wait()
        if not self._is_ending:
            reason = f"the guardian of the cluster ended (exit code {code})"
            self.on_end(HelperEnd(helper="guardian", reason=reason))


async def sweep_ledgers() -> list[str]:
    """Undo what guardians left that are dead. Says what was undone."""
    sentences = []
    for ledger in read_ledgers():
        if runs(*ledger.guardian):
            continue
        try:
            await undo(ledger)
        except HarnessError as error:
            sentences.append(f"run {ledger.run} on a cluster of others is not all undone: {error}")
            continue
        place_of(ledger.token).unlink(missing_ok=True)
        nodes = ", ".join(each.node for each in ledger.nodes)
        sentences.append(f"undid the faults that run {ledger.run} had left on {nodes}")
    return sentences


def guardians(run: str) -> list[int]:
    """The processes that guard that run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode(errors="replace").split("\0")
            if PROGRAM in words and run in words:
                found.append(int(path.parent.name))
    return found
