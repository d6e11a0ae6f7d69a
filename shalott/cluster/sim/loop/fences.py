"""Fences: a simulated program that reaches for the real world is stopped, and told what to use.

Two of them. The loop's methods that need threads, descriptors, subprocesses or signals raise
SimFence (``Fenced``). And while a simulation runs, the interpreter's audit events show files,
sockets and subprocesses that a fenced process tries to open (``watching``). What audit events don't
show (time, random, os.urandom) a static test bans: tests/tidy/determinism.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NoReturn, Protocol

if TYPE_CHECKING:
    from shalott.cluster.sim.loop.processes import SimProcess

from shalott.core.errors import HarnessError

INSTEAD: Mapping[str, str] = {
    "run_in_executor": "simulated programs have no threads: await something of this loop",
    "set_default_executor": "simulated programs have no threads",
    "call_soon_threadsafe": "simulated programs have no threads: use call_soon",
    "subprocess_exec": "simulated programs have no subprocesses",
    "subprocess_shell": "simulated programs have no subprocesses",
    "add_signal_handler": "signals reach the harness, not the simulation: use SimLoop.interrupted",
    "remove_signal_handler": "signals reach the harness, not the simulation",
    "add_reader": "there are no descriptors: use streams",
    "remove_reader": "there are no descriptors: use streams",
    "add_writer": "there are no descriptors: use streams",
    "remove_writer": "there are no descriptors: use streams",
    "sock_recv": "there are no sockets: use streams",
    "sock_recv_into": "there are no sockets: use streams",
    "sock_recvfrom": "there are no sockets: use streams",
    "sock_sendall": "there are no sockets: use streams",
    "sock_sendto": "there are no sockets: use streams",
    "sock_connect": "there are no sockets: use open_connection",
    "sock_accept": "there are no sockets: use start_server",
    "sock_sendfile": "there are no sockets: use streams",
    "sendfile": "there are no descriptors: write what Env.disk read",
    "start_tls": "TLS draws from the operating system's randomness",
    "connect_accepted_socket": "there are no sockets: use start_server",
    "create_datagram_endpoint": "datagrams are not simulated",
    "create_unix_connection": "there is no file system: use host names",
    "create_unix_server": "there is no file system: use host names",
    "connect_read_pipe": "there are no pipes",
    "connect_write_pipe": "there are no pipes",
    "set_task_factory": "the loop numbers its tasks itself",
}

AUDITED: Mapping[str, str] = {
    "open": "use Env.disk",
    "os.listdir": "use Env.disk",
    "os.scandir": "use Env.disk",
    "os.mkdir": "use Env.disk",
    "os.remove": "use Env.disk",
    "os.rename": "use Env.disk",
    "os.truncate": "use Env.disk",
    "socket.__new__": "use asyncio streams",
    "socket.getaddrinfo": "use asyncio streams and host names",
    "socket.gethostname": "use the node's configuration",
    "subprocess.Popen": "simulated programs have no subprocesses",
    "os.fork": "simulated programs have no subprocesses",
    "os.system": "simulated programs have no subprocesses",
    "os.kill": "simulated programs have no signals",
    "_thread.start_new_thread": "simulated programs have no threads",
    "time.sleep": "await asyncio.sleep",
}


def _fence(name: str) -> Callable[..., NoReturn]:
    def fenced(self: asyncio.AbstractEventLoop, *args: object, **kwargs: object) -> NoReturn:
        raise SimFence(f"{name} is not there in a simulation: {INSTEAD[name]}")

    fenced.__name__ = name
    return fenced


class Fenced:
    """The loop's methods that a simulation does not have."""

    _refusing = True

    @staticmethod
    def _refuse(unsupported: Mapping[str, object]) -> None:
        for name, value in unsupported.items():
            if value:
                raise SimFence(f"{name}={value!r} is not there in a simulation's connections")


for _name in INSTEAD:
    setattr(Fenced, _name, _fence(_name))


class RunsProcesses(Protocol):
    """A loop that knows whose callback it runs."""

    process: SimProcess | None


class _Watch:
    """The loop that is running; the audit hook, which can't be removed, asks for it."""

    loop: RunsProcesses | None = None
    installed = False


def _audit(event: str, args: tuple[object, ...]) -> None:
    loop = _Watch.loop
    if loop is None:
        return
    instead = AUDITED.get(event)
    if instead is None:
        return
    process = loop.process
    if process is not None and process.fenced:
        raise SimFence(f"{process} tried {event} {args[:1]!r} in a simulation: {instead}")


@contextlib.contextmanager
def watching(loop: RunsProcesses) -> Iterator[None]:
    """While it lasts, fenced processes of ``loop`` can't open files, sockets or subprocesses."""
    if not _Watch.installed:
        sys.addaudithook(_audit)
        _Watch.installed = True
    before, _Watch.loop = _Watch.loop, loop
    try:
        yield
    finally:
        _Watch.loop = before


@contextlib.contextmanager
def lowered(loop: RunsProcesses) -> Iterator[None]:
    """For the simulation's own work done in the middle of a process's callback."""
    process, loop.process = loop.process, None
    try:
        yield
    finally:
        loop.process = process


class SimError(HarnessError):
    """The simulation can't go on."""


class SimDeadlock(SimError):
    """Nothing is ready to run and no timer is set: everybody waits for ever."""


class SimLivelock(SimError):
    """Callbacks follow callbacks and time does not move."""


class SimTimeLimit(SimError):
    """The virtual deadline was reached."""


class SimFence(SimError):
    """Code in a simulation reached for the real world. The message says what to use instead."""
