"""Mounting disks on this host, and removing them: by a run, and by a sweep of
what a dead one left.

The server ends with the harness (``--with-pid``), and unmounts. What is there nevertheless is found
by its type in the table of mounts, where its source says whose it is. The end of a server ends its
connection: its users get ENOTCONN, and no process waits for it. (The kernel could cut it off
through /sys/fs/fuse/connections, but not every host has that.)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from shalott.cluster.disks.build import PROGRAM, program_path
from shalott.cluster.disks.control import Ask, FaultDisk
from shalott.cluster.node_tree import OWN_BROKER
from shalott.cluster.owner import Owner, liveness, parse_owner
from shalott.core.errors import HarnessError

MOUNT_TYPE = "fuse.shalott"
SOURCE_PREFIX = "shalott:"
PLACE_PREFIX = "shalott-disks-"
OWNER_FILE = "owner"
READY_WITHIN_S = 20.0
GONE_WITHIN_S = 5.0
ANSWER_BYTES_MAX = 1 << 26  # a listing of very many files

# Which sync makes a name durable. "posix": its directory's, as in the simulation. "journal": any,
# as on the file systems that most people have (ext4, XFS), and as some programs count on.
NamesRule = Literal["posix", "journal"]


def names_rule_for(image: str) -> NamesRule:
    """Our own broker counts on nothing but what POSIX says, as in the simulation; others count on a
    file system with a journal."""
    return "posix" if image == OWN_BROKER else "journal"


Planted = Literal["", "syncs-nothing", "keeps-all"]  # errors that the tests must find


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """How a disk is made.

    ``capacity_bytes``: 0 is as much as the backing directory's. ``shared``: others than this user
    may use it, as the users inside a container. ``evidence``: names in the root of what the harness
    reads afterwards, at most 8; no power loss takes it, and nothing of it rots.
    """

    names: NamesRule = "posix"
    capacity_bytes: int = 0
    dirty_limit_bytes: int = 256 << 20
    shared: bool = False
    evidence: tuple[str, ...] = ()
    planted: Planted = ""


@dataclass(frozen=True, slots=True)
class DiskMount:
    """A disk that is mounted on this host, and its server."""

    disk: FaultDisk
    mountpoint: Path
    socket: Path
    server: asyncio.subprocess.Process

    async def unmount(self) -> None:
        """Write everything back, unmount lazily, end the server. Safe to call at any moment."""
        if self.server.returncode is None:
            with contextlib.suppress(HarnessError, TimeoutError):
                async with asyncio.timeout(GONE_WITHIN_S):
                    await ask_socket(self.socket, '{"do": "end"}')
        try:
            async with asyncio.timeout(GONE_WITHIN_S):
                await self.server.wait()
        except TimeoutError:
            self.server.kill()  # a process still uses it, and gets ENOTCONN
            await self.server.wait()
        await self._remove()

    async def abandon(self) -> None:
        """End the server and unmount at once: nothing is written back, and users get ENOTCONN."""
        if self.server.returncode is None:
            self.server.kill()
        await self.server.wait()
        await self._remove()

    async def _remove(self) -> None:
        for mount in find_mounts():
            if mount.mountpoint == self.mountpoint:
                await remove_mount(mount)
        self.socket.unlink(missing_ok=True)


async def mount_disk(
    backing: Path,
    mountpoint: Path,
    socket: Path,
    *,
    node: str,
    seed: int,
    owner: Owner,
    options: DiskOptions | None = None,
) -> DiskMount:
    """Mount the content of ``backing`` at ``mountpoint``, which may be the same directory.

    ``socket``: where its control socket is to be, at most 107 bytes long. Raises HarnessError;
    UsageError if it can't be built.
    """
    chosen = DiskOptions() if options is None else options
    program = await asyncio.to_thread(program_path)
    words = [
        *("serve", "--backing", str(backing), "--mount", str(mountpoint), "--socket", str(socket)),
        *("--source", f"{SOURCE_PREFIX}{owner}", "--with-pid", str(owner.pid)),
        *("--names", chosen.names, "--capacity", str(chosen.capacity_bytes)),
        *("--dirty-limit", str(chosen.dirty_limit_bytes)),
        *(("--allow-other",) if chosen.shared else ()),
        *(word for name in chosen.evidence for word in ("--evidence", name)),
        *(("--planted", chosen.planted) if chosen.planted else ()),
    ]
    with socket.with_suffix(".log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            program, *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=log, cwd="/", start_new_session=True,
        )  # fmt: skip
    assert server.stdout is not None
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            said = await server.stdout.readline()
    except (TimeoutError, asyncio.CancelledError):
        server.kill()
        await server.wait()
        raise
    if said != b"ready\n":
        await server.wait()
        reason = socket.with_suffix(".log").read_text(errors="replace").strip()
        raise HarnessError(f"the disk of {node} can't be mounted: {reason or 'it says nothing'}")
    disk = FaultDisk(asking(socket), node=node, seed=seed)
    return DiskMount(disk, mountpoint, socket, server)


def asking(socket: Path) -> Ask:
    """Commands through a Unix socket of this host."""

    async def ask(line: str) -> str:
        return await ask_socket(socket, line)

    return ask


async def ask_socket(socket: Path, line: str) -> str:
    """Raises HarnessError when the server does not answer."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket, limit=ANSWER_BYTES_MAX)
    except OSError as error:
        raise HarnessError(f"the disk behind {socket} can't be reached: {error}") from error
    try:
        writer.write(line.encode() + b"\n")
        await writer.drain()
        answer = await reader.readline()
    except OSError as error:
        raise HarnessError(f"the disk behind {socket} is gone: {error}") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not answer:
        raise HarnessError(f"the disk behind {socket} is gone")
    return answer.decode()


# -- what is mounted -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundMount:
    """A mount of ours."""

    mountpoint: Path
    owner: Owner | None


def find_mounts(table: str | None = None) -> list[FoundMount]:
    """Ours in the table of mounts, /proc/self/mountinfo, the latest first."""
    text = Path("/proc/self/mountinfo").read_text() if table is None else table
    found = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 2 or kind[0] != MOUNT_TYPE:
            continue
        source = kind[1].removeprefix(SOURCE_PREFIX)
        found.append(FoundMount(Path(_unescape(fields[4])), parse_owner(source)))
    return found[::-1]


def _unescape(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


async def remove_mount(mount: FoundMount) -> None:
    """End its server at once, which cuts off its users, and unmount it lazily.

    Raises HarnessError.
    """
    for pid in find_servers(mount.mountpoint):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    is_root = os.geteuid() == 0
    fusermount = shutil.which("fusermount3") or "fusermount3"
    words = ("umount", "-l") if is_root else (fusermount, "-u", "-z")
    done = await asyncio.create_subprocess_exec(
        *words, str(mount.mountpoint), cwd="/", stderr=asyncio.subprocess.PIPE
    )
    _, errors = await done.communicate()
    if done.returncode != 0 and mount in find_mounts():
        reason = errors.decode(errors="replace").strip()
        raise HarnessError(f"{mount.mountpoint} can't be unmounted: {reason}")


def find_servers(mountpoint: Path) -> list[int]:
    """The processes that serve a mountpoint, by their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        is_server = words[1:2] == [b"serve"] and Path(os.fsdecode(words[0])).name.startswith(
            PROGRAM
        )
        if is_server and os.fsencode(mountpoint) in words[words.index(b"--mount") + 1 :][:1]:
            found.append(int(path.parent.name))
    return found


def make_place(owner: Owner) -> Path:
    """A directory for the sockets of a harness's disks; removed by ``sweep_disks`` when it is dead.

    Its path is short: that of a socket has 107 bytes at most.
    """
    place = Path(tempfile.mkdtemp(prefix=PLACE_PREFIX))
    (place / OWNER_FILE).write_text(str(owner))
    return place


def find_places() -> Iterator[tuple[Path, Owner]]:
    """The directories that ``make_place`` has made, and whose they are."""
    for path in sorted(Path(tempfile.gettempdir()).glob(f"{PLACE_PREFIX}*/{OWNER_FILE}")):
        with contextlib.suppress(OSError):  # it is removed at this moment, or another user's
            owner = parse_owner(path.read_text())
            if owner is not None:
                yield path.parent, owner


async def sweep_disks() -> list[str]:
    """Remove the mounts that dead harnesses left. Says what was removed."""
    sentences = []
    for mount in find_mounts():
        if mount.owner is not None and liveness(mount.owner) == "dead":
            await remove_mount(mount)
            sentences.append(
                f"unmounted {mount.mountpoint}, a disk that a dead harness had left behind"
            )
    for place, owner in find_places():
        if liveness(owner) == "dead":
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
    return sentences


async def unmount_below(directory: Path) -> None:
    """Unmount the disks of ours that lie below a directory, before that is removed."""
    for mount in find_mounts():
        if mount.mountpoint.is_relative_to(directory):
            await remove_mount(mount)
