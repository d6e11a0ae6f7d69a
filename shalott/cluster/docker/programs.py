"""Running a program of the host to its end. If its caller is cancelled, it is ended before
anything else goes on: a teardown after Ctrl-C must not be overtaken by what an interrupted boot
had begun."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.cluster.precedence import children_first


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a program ended, and what it said."""

    exit_code: int
    output: str
    errors: str


async def run_program(*command: str, script: str = "") -> Outcome:
    """Run ``command`` with ``script`` as its input. Raises OSError if there is no such program."""
    starting = asyncio.ensure_future(_start(command))
    try:
        # asyncio ends a program whose start is cancelled, and not what it has started itself.
        process = await asyncio.shield(starting)
        output, errors = await process.communicate(script.encode())
    except asyncio.CancelledError:
        with contextlib.suppress(OSError):  # there is no such program
            await _end(await starting)
        raise
    assert process.returncode is not None
    texts = [stream.decode(errors="replace") for stream in (output, errors)]
    return Outcome(process.returncode, *texts)


async def _start(command: Sequence[str]) -> asyncio.subprocess.Process:
    with children_first():
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            start_new_session=True,
        )


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it with what it has started itself, and wait for that however often it is cancelled."""
    with contextlib.suppress(ProcessLookupError):  # it has ended, and its loop was not told yet
        os.killpg(process.pid, signal.SIGTERM)
    while process.returncode is None:
        with contextlib.suppress(asyncio.CancelledError):
            await process.communicate()


def is_root() -> bool:
    return os.geteuid() == 0


def has_program(name: str) -> bool:
    """Whether an administration program is on this host; they are often outside a user's PATH."""
    directories = [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin"]
    return any((Path(directory) / name).is_file() for directory in directories if directory)
