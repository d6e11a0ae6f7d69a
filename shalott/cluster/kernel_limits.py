"""What nodes of this machine are short of: limits of the kernel, set from outside the nodes.

The limits of a node's control groups, of its processes' files and the room in its /tmp are changed
while it runs. A node that is started again has none of them, and gets them anew. Used by the
harness for containers and by the agent on hosts (Python 3.9, no libraries).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shalott.cluster.cgroups import Groups
from shalott.cluster.filling import empty, fill, is_full
from shalott.cluster.owner import process_state
from shalott.core.errors import HarnessError

MIB = 1 << 20
MEMORY_TRIES = 5
STOPPED = ("T", "t")


@dataclass(frozen=True)
class Lack:
    """As ``cluster.nodes.Shortage``, where there is no msgspec."""

    cpu_percent: float = 0
    memory_left_mib: float = 0
    files_left: int = 0
    processes_left: int = 0
    is_tmp_full: bool = False
    is_stopped: bool = False


ENOUGH = Lack()


@dataclass
class Limits:
    """What a shortage came to when it was made: ``memory`` (bytes) and ``pids`` of a node, the
    numbers of ``files`` of each process; 0: not limited. The node's next life is to have the same:
    a machine has what it has, also when a process that has just begun needs more."""

    memory: int = 0
    pids: int = 0
    files: int = 0


class Life:
    """What one node's processes are short of, from their start to their end. ``pid``: of the
    first, as this machine sees it; ``limits``: of the life before; ``groups``: the node's own, and
    no one else's; ``fork``: the command that runs forking.py; ``tmp``: where the node's own /tmp
    is, and no one else's. Raises HarnessError."""

    def __init__(
        self,
        pid: int,
        limits: Limits,
        groups: Groups,
        fork: Sequence[str],
        tmp: Callable[[], Path],
    ) -> None:
        self.pid = pid
        self._fork_command = fork
        self._tmp = tmp
        self.limits = Limits()
        self._former = replace(limits)  # none is left when it has been made use of
        self._groups = groups
        self._now = ENOUGH
        self._before: dict[str, float | int | None] = {}
        self._files = FileLimits()
        self._forking: asyncio.subprocess.Process | None = None
        self._stopped: int | None = None

    async def bring(self, wanted: Lack) -> None:
        """From what is short now to that. Raises HarnessError."""
        try:
            await asyncio.to_thread(self._limit, wanted)
            if wanted.processes_left != self._now.processes_left:
                await self._fork(wanted.processes_left)
        except OSError as error:
            if wanted == ENOUGH and not _is_there(self.pid):
                return  # it has ended, and its limits with it
            raise HarnessError(f"process {self.pid} can't be limited: {error}") from error
        self._now = wanted

    async def end(self) -> None:
        await self._stop_forking()

    def read(self) -> Lack:
        """What the kernel says. Raises HarnessError if it can't be read though it runs."""
        try:
            return self._read()
        except OSError as error:
            if not _is_there(self.pid):
                return ENOUGH
            raise HarnessError(f"limits of process {self.pid} can't be read: {error}") from error

    def stop_again(self) -> None:
        """Something else has let all of them run."""
        if self._stopped is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._stopped, signal.SIGSTOP)

    def resume(self) -> None:
        if self._stopped is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._stopped, signal.SIGCONT)
            self._stopped = None

    # -- setting

    def _limit(self, wanted: Lack) -> None:
        now, groups = self._now, self._groups
        if wanted.cpu_percent != now.cpu_percent:
            self._before.setdefault("cpu", groups.cpu_percent())
            groups.limit_cpu(wanted.cpu_percent or self._before["cpu"])
        if wanted.memory_left_mib != now.memory_left_mib:
            self._limit_memory(wanted.memory_left_mib)
        if wanted.files_left != now.files_left:
            self._files.restore(groups.processes())
            if wanted.files_left:
                self._files.leave(groups.processes(), wanted.files_left, self._former.files)
            self.limits.files, self._former.files = self._files.most, 0
        if wanted.is_tmp_full != now.is_tmp_full:
            (fill if wanted.is_tmp_full else empty)(self._tmp())
        if wanted.is_stopped and not now.is_stopped:
            self._stopped = largest(groups.processes())
            os.kill(self._stopped, signal.SIGSTOP)
        elif not wanted.is_stopped:
            self.resume()

    def _limit_memory(self, left_mib: float) -> None:
        self._before.setdefault("memory", self._groups.memory_limit())
        if not left_mib:
            before = self._before["memory"]
            self._groups.limit_memory(None if before is None else int(before))
            self.limits.memory = 0
            return
        for tried in range(MEMORY_TRIES):
            least = self._groups.memory_in_use() + round(left_mib * MIB)
            limit = max(least, self._former.memory)
            try:
                self._groups.limit_memory(limit)
            except OSError as error:
                # It has taken more meanwhile than was left to it.
                if error.errno != errno.EBUSY or tried == MEMORY_TRIES - 1:
                    raise
            else:
                self.limits.memory, self._former.memory = limit, 0
                return

    async def _fork(self, left: int) -> None:
        await self._stop_forking()
        self._before.setdefault("pids", self._groups.pids_limit())
        if not left:
            before = self._before["pids"]
            self._groups.limit_pids(None if before is None else int(before))
            self.limits.pids = 0
            return
        self.limits.pids = max(self._former.pids, self._groups.pids_in_use() + left)
        self._former.pids = 0
        self._groups.limit_pids(self.limits.pids)
        directories = dict.fromkeys(str(path) for path in self._groups.directories.values())
        self._forking = await asyncio.create_subprocess_exec(
            *(*self._fork_command, str(self.pid), *directories),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._forking.stdout is not None and self._forking.stderr is not None
        if not await self._forking.stdout.readline():
            why = (await self._forking.stderr.read()).decode(errors="replace").strip()
            raise HarnessError(f"nothing forks in process {self.pid}'s world: {why[-200:]}")

    async def _stop_forking(self) -> None:
        process, self._forking = self._forking, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            await process.communicate()

    # -- reading

    def _read(self) -> Lack:
        groups = self._groups
        cpu = groups.cpu_percent()
        return Lack(
            cpu_percent=0 if cpu is None or cpu == self._before.get("cpu", cpu) else cpu,
            memory_left_mib=self._memory_left(),
            files_left=self._files.left(),
            processes_left=self._processes_left(),
            is_tmp_full=is_full(self._tmp()) if self._now.is_tmp_full else False,
            is_stopped=self._stopped is not None and process_state(self._stopped) in STOPPED,
        )

    def _memory_left(self) -> float:
        """What was asked for if the limit stands, else by how much it is another."""
        limit = self._groups.memory_limit()
        if limit is None or limit == self._before.get("memory", limit):
            return 0
        return round(self._now.memory_left_mib + (limit - self.limits.memory) / MIB, 1)

    def _processes_left(self) -> int:
        """0 as well as long as the process that forks has not taken them all."""
        limit = self._groups.pids_limit()
        if limit is None or limit == self._before.get("pids", limit):
            return 0
        is_taken = self._groups.pids_in_use() >= limit
        return self._now.processes_left + limit - self.limits.pids if is_taken else 0


def largest(processes: list[int]) -> int:
    """The process with the most memory. Raises ProcessLookupError: there is none."""
    sizes = {}
    for pid in processes:
        with contextlib.suppress(OSError):
            sizes[pid] = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    if not sizes:
        raise ProcessLookupError(errno.ESRCH, "no process of the node is left")
    return max(sizes, key=lambda pid: sizes[pid])


def _is_there(pid: int) -> bool:
    return process_state(pid) not in ("", "Z", "X")


class Lives:
    """The shortages of some nodes of this machine. ``begin``: a node's life, of its first process
    and of what the life before was limited to."""

    def __init__(self, begin: Callable[[int, Limits], Life]) -> None:
        self._begin = begin
        self._wanted: dict[str, Lack] = {}
        self._lives: dict[str, Life] = {}
        self._locks: list[asyncio.Lock] = []

    @property
    def _lock(self) -> asyncio.Lock:
        """Made inside the loop, for Python 3.9."""
        self._locks = self._locks or [asyncio.Lock()]
        return self._locks[0]

    async def set(self, node: str, shortage: Lack, pid: int | None) -> None:
        """``pid``: of its first process, if it runs. Raises HarnessError."""
        async with self._lock:
            self._wanted[node] = shortage
            if pid is not None:
                await (await self._life(node, pid)).bring(shortage)
            elif shortage == ENOUGH and node in self._lives:
                await self._lives.pop(node).end()

    async def seen(self, node: str, pid: int | None) -> Lack:
        """What the kernel says."""
        life = self._lives.get(node)
        if pid is None or life is None or life.pid != pid:
            return ENOUGH
        return await asyncio.to_thread(life.read)

    async def started(self, node: str, pid: int | None) -> None:
        """A new process lacks what the node is to lack."""
        if pid is not None and self._wanted.get(node, ENOUGH) != ENOUGH:
            async with self._lock:
                await (await self._life(node, pid)).bring(self._wanted[node])

    async def stopping(self, node: str) -> None:
        """A process that stands still could not end by itself."""
        if self._wanted.get(node, ENOUGH).is_stopped and node in self._lives:
            self._lives[node].resume()

    def stop_again(self) -> None:
        """All processes were let run: those that are to stand still do so again."""
        for life in self._lives.values():
            life.stop_again()

    async def heal(self, pids: Mapping[str, int | None]) -> None:
        """Nothing is short any more."""
        for node, shortage in list(self._wanted.items()):
            if shortage != ENOUGH:
                await self.set(node, ENOUGH, pids.get(node))

    async def close(self) -> None:
        """End what still runs."""
        lives, self._lives = list(self._lives.values()), {}
        self._wanted.clear()
        await asyncio.gather(*(life.end() for life in lives))

    async def _life(self, node: str, pid: int) -> Life:
        before = self._lives.get(node)
        if before is None or before.pid != pid:
            if before is not None:
                await before.end()
            former = before.limits if before is not None else Limits()
            self._lives[node] = self._begin(pid, former)
        return self._lives[node]


# -- How many files a running process may open, changed from outside (prlimit(2)).
#
# The limit bounds the numbers of descriptors, not how many there are; so what a process has left is
# how many numbers below its limit are free.
PRLIMIT = "/usr/bin/prlimit"  # util-linux: an essential package of Debian and Ubuntu


class FileLimits:
    """The limits of some processes, and what they were before. ``most``: the highest of them, 0 if
    there is none."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[int, int]] = {}  # by process
        self._set: dict[int, int] = {}
        self._left = 0

    @property
    def most(self) -> int:
        return max(self._set.values(), default=0)

    def leave(self, processes: Iterable[int], left: int, least: int = 0) -> None:
        """So many more each, and no fewer than ``least`` in all. Raises OSError (no right);
        processes that have ended don't matter."""
        self._left = left
        for pid in processes:
            try:
                soft, hard = read_limit(pid)
                self._before.setdefault(pid, (soft, hard))
                self._set[pid] = min(hard, max(least, _limit_for(open_files(pid), left)))
                set_limit(pid, self._set[pid], hard)
            except (ProcessLookupError, FileNotFoundError):
                continue

    def left(self) -> int:
        """What ``leave`` set, as far as the kernel still says so; 0: nothing is set."""
        seen = []
        for pid, limit in self._set.items():
            try:
                soft, _ = read_limit(pid)
            except (ProcessLookupError, FileNotFoundError):
                continue
            seen.append(self._left + soft - limit)
        return min(seen, default=0)

    def restore(self, processes: Iterable[int]) -> None:
        """As before; those of ``processes`` that were begun meanwhile get what others have."""
        usual = max(self._before.values(), default=None)
        for pid in {*processes, *self._before}:
            before = self._before.get(pid, usual)
            if before is None:
                continue
            try:
                set_limit(pid, *before)
            except (ProcessLookupError, FileNotFoundError):
                continue
        self._before.clear()
        self._set.clear()
        self._left = 0


def read_limit(pid: int) -> tuple[int, int]:
    """Soft and hard, as anybody may read them. Raises FileNotFoundError or ProcessLookupError: it
    has ended."""
    text = Path(f"/proc/{pid}/limits").read_text()
    found = re.search(r"^Max open files +(\S+) +(\S+)", text, re.MULTILINE)
    if found is None:
        raise ProcessLookupError(f"{pid} has ended")  # and is not reaped: it has no limits
    return _number(found[1]), _number(found[2])


def set_limit(pid: int, soft: int, hard: int) -> None:
    """Raises OSError (no right), or ProcessLookupError or FileNotFoundError: it has ended.

    A root without CAP_SYS_RESOURCE, as in many containers, may do it to processes of its own user
    only. Then a process of that user does it.
    """
    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))
    except PermissionError:
        owner = Path(f"/proc/{pid}").stat()
        if os.geteuid() != 0 or owner.st_uid == 0 or not Path(PRLIMIT).exists():
            raise
        values = ":".join("unlimited" if each < 0 else str(each) for each in (soft, hard))
        done = subprocess.run(
            [PRLIMIT, f"--pid={pid}", f"--nofile={values}"],
            user=owner.st_uid,
            group=owner.st_gid,
            extra_groups=(),
            cwd="/",
            check=False,
            capture_output=True,
        )
        if done.returncode != 0 and Path(f"/proc/{pid}").exists():
            raise


def _number(text: str) -> int:
    return resource.RLIM_INFINITY if text == "unlimited" else int(text)


def open_files(pid: int) -> set[int]:
    """The numbers of its descriptors. Raises FileNotFoundError: it has ended."""
    return {int(entry.name) for entry in Path(f"/proc/{pid}/fd").iterdir()}


def _limit_for(taken: set[int], left: int) -> int:
    """The limit below which exactly so many numbers are free."""
    limit = free = 0
    while free < left:
        free += limit not in taken
        limit += 1
    # Numbers above it stay open: only new ones are refused.
    return limit
