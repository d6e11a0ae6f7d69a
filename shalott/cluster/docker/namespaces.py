"""What the host does inside a container's network namespace: shell commands and one-way probes.

A socket belongs for ever to the namespace that its thread was in when it was made, so a probe
needs nothing inside the container: one thread enters the sender's namespace, another the
receiver's, each opens a UDP socket, and a datagram with a random token goes from one to the
other. UDP because it is directional: a TCP connect needs both directions, and a cut of one would
hide as a cut of the other. The datagram is repeated, since the first one to a fresh neighbour may
be lost to address resolution.

A program of the host (``run_program``) is ended before anything else goes on if its caller is
cancelled: a teardown after Ctrl-C must not be overtaken by what an interrupted boot had begun.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from shalott.cluster.packets.numbered import UNSHAPED_TOS
from shalott.cluster.precedence import children_first
from shalott.core.errors import HarnessError

Made = TypeVar("Made")

CLONE_NEWNET = 0x40000000
REPEAT_S = 0.02


def can_enter(pid: int) -> bool:
    """Whether this process may enter the namespaces of ``pid``."""
    try:
        socket_in_namespace(pid).close()
    except OSError:
        return False
    return True


def socket_in_namespace(pid: int) -> socket.socket:
    """A UDP socket in the network namespace of ``pid``. Raises OSError (no such process, no
    right)."""
    return in_namespace(pid, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


def in_namespace(pid: int, make: Callable[[], Made]) -> Made:
    """What ``make`` makes in the network namespace of ``pid``. Raises OSError."""
    made: list[Made] = []
    failed: list[OSError] = []

    def enter_and_make() -> None:
        try:
            _set_network_namespace(pid)
            made.append(make())
        except OSError as error:
            failed.append(error)

    # The thread ends in the foreign namespace, so it can't be one that serves anybody else.
    thread = threading.Thread(target=enter_and_make, name="netns")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return made[0]


def _set_network_namespace(pid: int) -> None:
    descriptor = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(descriptor)


def datagram_arrives(
    source_pid: int, destination_pid: int, address: str, timeout_ms: int, port: int = 0
) -> bool:
    """Whether a datagram from one container reaches ``address`` in the other. Blocks; False on no
    process."""
    token = secrets.token_bytes(16)
    deadline = time.monotonic() + timeout_ms / 1000
    try:
        with (
            socket_in_namespace(destination_pid) as receiver,
            socket_in_namespace(source_pid) as sender,
        ):
            receiver.bind((address, port))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, UNSHAPED_TOS)
            while (left_s := deadline - time.monotonic()) > 0:
                sender.sendto(token, receiver.getsockname())
                receiver.settimeout(min(left_s, REPEAT_S))
                try:
                    if receiver.recv(64) == token:
                        return True
                except TimeoutError:
                    continue
    except OSError:
        return False
    return False


async def run_in_namespace(pid: int, script: str, *, own_files: bool) -> str:
    """Run a shell script in the network namespace of ``pid``.

    ``own_files``: with the container's own programs, not the host's. Raises HarnessError if it
    fails.
    """
    flags = ["-n", "-m"] if own_files else ["-n"]
    done = await run_program("nsenter", "-t", str(pid), *flags, "--", "sh", "-c", script)
    if done.exit_code != 0:
        raise HarnessError(f"nsenter {pid}: {done.errors.strip() or done.output.strip()}")
    return done.output


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


def brings(pid: int, names: Sequence[str]) -> bool:
    """Whether a container's image has all these programs, as the host sees its files."""
    places = ("bin", "sbin", "usr/bin", "usr/sbin")

    def has(name: str) -> bool:
        # A link may lead to a place within the container only: that it is there is enough.
        found = (Path(f"/proc/{pid}/root/{place}/{name}") for place in places)
        return any(each.is_symlink() or each.exists() for each in found)

    return all(has(name) for name in names)


def has_program(name: str) -> bool:
    """Whether an administration program is on this host; they are often outside a user's PATH."""
    directories = [*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin"]
    return any((Path(directory) / name).is_file() for directory in directories if directory)
