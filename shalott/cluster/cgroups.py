"""Control groups of Linux, version 1 and 2: what the processes of a node may take together.

Files are read and written by the host's view. (Linux: Documentation/admin-guide/cgroup-v2.rst and
cgroup-v1/; CPU quotas: scheduler/sched-bwc.rst.)
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shalott.core.errors import HarnessError

PERIOD_US = 100_000
CONTROLLERS = ("cpu", "memory", "pids")
COUNTS_CPU = "cpuacct"  # of version 1, often in a tree with "cpu", but not always
KNOWN = (*CONTROLLERS, COUNTS_CPU)
GONE_WITHIN_S = 5.0
POLL_S = 0.01
UNLIMITED = 1 << 62  # version 1 shows "no limit" as a number of about this size


@dataclass(frozen=True)
class Hierarchy:
    """One mounted tree of groups. ``controllers``: of version 1; () is the unified tree."""

    mount: Path
    root: str  # the group that is seen at the mount
    controllers: tuple[str, ...]


def read_hierarchies(mountinfo: str) -> list[Hierarchy]:
    """Of the text of /proc/<pid>/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        place, _, source = line.partition(" - ")
        kind, *rest = source.split()
        words = place.split()
        if kind == "cgroup2":
            found.append(Hierarchy(Path(words[4]), words[3], ()))
        elif kind == "cgroup":
            options = rest[-1].split(",")
            named = tuple(each for each in KNOWN if each in options)
            found.append(Hierarchy(Path(words[4]), words[3], named))
    return found


def usable_controllers() -> frozenset[str]:
    """What this host's groups can limit, of CONTROLLERS."""
    found: set[str] = set()
    try:
        hierarchies = read_hierarchies(Path("/proc/self/mountinfo").read_text())
    except OSError:
        return frozenset()
    for each in hierarchies:
        if each.controllers:
            found.update(each.controllers)
            continue
        try:
            found.update((each.mount / "cgroup.controllers").read_text().split())
        except OSError:
            continue
    return frozenset(found & set(CONTROLLERS))


@dataclass(frozen=True)
class Groups:
    """The groups of one process, by controller. ``is_unified``: they are of version 2."""

    directories: Mapping[str, Path]
    is_unified: bool

    def processes(self) -> list[int]:
        """The processes that run in them."""
        return [int(word) for word in self._read("pids", "cgroup.procs").split()]

    # -- what is in force; None: no limit

    def cpu_percent(self) -> float | None:
        if self.is_unified:
            quota, period = self._read("cpu", "cpu.max").split()
            return None if quota == "max" else 100 * int(quota) / int(period)
        quota_us = int(self._read("cpu", "cpu.cfs_quota_us"))
        return (
            None if quota_us < 0 else 100 * quota_us / int(self._read("cpu", "cpu.cfs_period_us"))
        )

    def memory_limit(self) -> int | None:
        """Bytes."""
        name = "memory.max" if self.is_unified else "memory.limit_in_bytes"
        return _number(self._read("memory", name))

    def pids_limit(self) -> int | None:
        return _number(self._read("pids", "pids.max"))

    # -- what is taken

    def cpu_used_s(self) -> float:
        """Since they were made. Raises KeyError: none of them counts it."""
        if not self.is_unified:
            return int(self._read(COUNTS_CPU, "cpuacct.usage")) / 1e9
        rows = dict(line.split() for line in self._read("cpu", "cpu.stat").splitlines())
        return int(rows["usage_usec"]) / 1e6

    def memory_in_use(self) -> int:
        """Bytes, without pages of files that were not read lately: the kernel takes those
        away before it lets anybody go short."""
        name = "memory.current" if self.is_unified else "memory.usage_in_bytes"
        idle = "inactive_file" if self.is_unified else "total_inactive_file"
        rows = dict(line.split() for line in self._read("memory", "memory.stat").splitlines())
        return max(0, int(self._read("memory", name)) - int(rows.get(idle, 0)))

    def pids_in_use(self) -> int:
        """Processes and threads."""
        return int(self._read("pids", "pids.current"))

    def memory_kills(self) -> int:
        """How many of their processes the kernel has ended for want of memory."""
        name = "memory.events" if self.is_unified else "memory.oom_control"
        rows = dict(line.split() for line in self._read("memory", name).splitlines())
        return int(rows.get("oom_kill", 0))

    # -- setting; None: no limit

    def limit_cpu(self, percent: float | None) -> None:
        quota_us = -1 if percent is None else max(1000, round(percent * PERIOD_US / 100))
        if self.is_unified:
            quota = "max" if quota_us < 0 else str(quota_us)
            self._write("cpu", "cpu.max", f"{quota} {PERIOD_US}")
            return
        self._write("cpu", "cpu.cfs_period_us", str(PERIOD_US))
        self._write("cpu", "cpu.cfs_quota_us", str(quota_us))

    def limit_memory(self, size: int | None) -> None:
        """Of memory and swap together. Raises OSError (EBUSY) on version 1 if more is in use and
        can't be taken away; version 2 ends processes then."""
        if self.is_unified:
            swap = self.directories["memory"] / "memory.swap.max"
            if swap.exists():
                swap.write_text("max" if size is None else "0")
            self._write("memory", "memory.max", "max" if size is None else str(size))
            return
        names = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        there = [name for name in names if (self.directories["memory"] / name).exists()]
        # What counts swap too may never be the smaller one.
        for name in reversed(there) if size is None else there:
            self._write("memory", name, "-1" if size is None else str(size))

    def limit_pids(self, count: int | None) -> None:
        self._write("pids", "pids.max", "max" if count is None else str(count))

    def _read(self, controller: str, name: str) -> str:
        return (self.directories[controller] / name).read_text()

    def _write(self, controller: str, name: str, text: str) -> None:
        (self.directories[controller] / name).write_text(text)


def own_groups(name: str) -> Groups:
    """New groups of that name, one in each tree, or those that are there. Raises HarnessError: this
    machine's groups can't limit all of CONTROLLERS, or there is no right to make any."""
    hierarchies = read_hierarchies(Path("/proc/self/mountinfo").read_text())
    directories: dict[str, Path] = {}
    is_unified = False
    try:
        for each in hierarchies:
            if each.controllers:
                own = [one for one in each.controllers if one in CONTROLLERS]
                directories |= dict.fromkeys(own, each.mount / name)
                continue
            listed = each.mount / "cgroup.controllers"
            if listed.is_file() and {*CONTROLLERS} <= {*listed.read_text().split()}:
                enabled = (each.mount / "cgroup.subtree_control").read_text().split()
                if lacking := [one for one in CONTROLLERS if one not in enabled]:
                    words = " ".join(f"+{one}" for one in lacking)
                    (each.mount / "cgroup.subtree_control").write_text(words)
                directories = dict.fromkeys(CONTROLLERS, each.mount / name)
                is_unified = True
                break
        missing = [each for each in CONTROLLERS if each not in directories]
        if missing:
            raise HarnessError(f"control groups can't limit {' and '.join(missing)} here")
        for directory in directories.values():
            directory.mkdir(exist_ok=True)
    except OSError as error:
        raise HarnessError(f"no control group can be made here: {error}") from error
    return Groups(directories, is_unified)


def remove_groups(names: Sequence[str]) -> None:
    """End what is in them, and remove them. May be repeated."""
    deadline = time.monotonic() + GONE_WITHIN_S
    for directory in [found for name in names for found in _find(name)]:
        while directory.is_dir():
            try:
                for word in (directory / "cgroup.procs").read_text().split():
                    os.kill(int(word), signal.SIGKILL)
                directory.rmdir()
            except ProcessLookupError:
                continue  # it ended a moment ago
            except FileNotFoundError:
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    sys.stderr.write(f"{directory} can't be removed: {error}\n")
                    break
                time.sleep(POLL_S)


def _find(name: str) -> list[Path]:
    """Where groups of that name are."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, source = line.partition(" - ")
        directory = Path(place.split()[4]) / name
        if source.split()[0] in ("cgroup", "cgroup2") and directory.is_dir():
            found.append(directory)
    return found


def groups_of(pid: int) -> Groups:
    """Of a process of this host. Raises HarnessError: it is gone, or in no group of its own."""
    try:
        own = Path(f"/proc/{pid}/cgroup").read_text()
        hierarchies = read_hierarchies(Path("/proc/self/mountinfo").read_text())
    except OSError as error:
        raise HarnessError(f"process {pid} is not seen on this host: {error.strerror}") from error
    directories: dict[str, Path] = {}
    is_unified = False
    for line in own.splitlines():
        _, names, path = line.split(":", 2)
        for hierarchy in hierarchies:
            if set(hierarchy.controllers) != set(names.split(",")) & set(KNOWN):
                continue
            directory = _place(hierarchy, path)
            if not names and not hierarchy.controllers and (directory / "cpu.max").exists():
                directories = dict.fromkeys(CONTROLLERS, directory)
                is_unified = True
            elif not is_unified:
                directories |= dict.fromkeys(hierarchy.controllers, directory)
    lacking = [each for each in CONTROLLERS if each not in directories]
    if lacking:
        raise HarnessError(f"process {pid} has no control group for {' and '.join(lacking)}")
    groups = Groups(directories, is_unified)
    if others := {1, os.getpid()} & {*groups.processes()} - {pid}:
        raise HarnessError(f"process {pid} shares its control group with {min(others)}")
    return groups


def _place(hierarchy: Hierarchy, path: str) -> Path:
    return hierarchy.mount / os.path.relpath(path, hierarchy.root)


def _number(text: str) -> int | None:
    word = text.strip()
    return None if word == "max" or int(word) >= UNLIMITED else int(word)
