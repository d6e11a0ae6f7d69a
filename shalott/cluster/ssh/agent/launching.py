"""Starting a node's programs: as the user who logged in, under the nodes' names, to die with the
agent.

Where the agent is root, a node gets a mount and a UTS namespace of its own, in which its host name
is the node's and /etc/hosts knows the others: RabbitMQ and the like need names, and the host's own
files stay as they are. The files, the network and the processes remain the host's.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS = 0x00020000, 0x04000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None, use_errno=True)  # loaded before any fork


@dataclass(frozen=True)
class Program:
    """``user``: its number, or None for the agent's own; ``hosts``: a file to lie over /etc/hosts,
    or ""; ``tmp``: a directory over /tmp, or ""; ``groups``: the control groups that it enters."""

    command: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    output: str
    user: int | None = None
    hosts: str = ""
    host_name: str = ""
    tmp: str = ""
    groups: Sequence[str] = ()


def launch(program: Program) -> int:
    """The process's id; it leads a session of its own. Raises OSError if it can't be run."""
    agent = os.getpid()
    with Path(program.output).open("ab") as output:
        process = subprocess.Popen(
            list(program.command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=program.directory,
            env=dict(program.environment),
            start_new_session=True,
            preexec_fn=lambda: _become(program, agent),
        )
    process.returncode = 0  # the agent reaps its children itself
    return process.pid


def _become(program: Program, agent: int) -> None:
    """Between fork and exec."""
    signal.set_wakeup_fd(-1)
    for group in program.groups:
        Path(group, "cgroup.procs").write_text("0")
    if program.hosts:
        isolate(program.hosts, program.host_name, program.tmp)
    if program.user is not None:
        entry = pwd.getpwuid(program.user)
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    # Last: a change of the user takes the kernel's promise back.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != agent:
        os._exit(1)


def isolate(hosts: str, host_name: str, tmp: str = "") -> None:
    """Names of this process's own. Raises OSError without the right to it."""
    _check(LIBC.unshare(CLONE_NEWNS | CLONE_NEWUTS))
    _check(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    _check(LIBC.mount(hosts.encode(), b"/etc/hosts", None, MS_BIND, None))
    if tmp:
        _check(LIBC.mount(tmp.encode(), b"/tmp", None, MS_BIND, None))
    name = host_name.encode()
    _check(LIBC.sethostname(name, len(name)))


def can_isolate(hosts: str) -> bool:
    """Whether ``isolate`` works here: tried in a child."""
    child = os.fork()
    if child == 0:
        try:
            isolate(hosts, "trial")
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return status == 0


def adopt_orphans() -> None:
    """What a node's processes leave behind becomes a child of this one."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def give_to(path: Path, user: int | None) -> None:
    """Make a path the user's own."""
    if user is not None:
        os.chown(path, user, pwd.getpwuid(user).pw_gid)


def login_user() -> int | None:
    """Who logged in, if the agent became root by sudo."""
    number = os.environ.get("SUDO_UID", "")
    return int(number) if number.isdigit() and os.geteuid() == 0 and int(number) != 0 else None


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
