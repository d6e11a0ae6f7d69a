"""Programs of others on a mounted disk: what they synced outlives any power loss, and what they did
not is lost sometimes."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from shalott.cluster.disks.control import FaultDisk
from shalott.cluster.disks.mounting import DiskOptions
from shalott.core.rng import Stream
from tests.world.disk import sqlite_process
from tests.world.disk.mounted_disk import MountWorld

pytestmark = pytest.mark.local

POWERS = 100


def commit_until_killed(database: Path, synchronous: str, first: int, commits: int) -> int:
    """Returns the last number whose commit returned."""
    program = subprocess.Popen(
        [sys.executable, sqlite_process.__file__, str(database), synchronous, str(first)],
        stdout=subprocess.PIPE,
    )
    assert program.stdout is not None
    with program:
        lines = [program.stdout.readline() for _ in range(commits)]
        program.kill()
        lines += program.stdout.readlines()
    assert all(line.endswith(b"\n") for line in lines), "it ended by itself"
    return int(lines[-1])


def numbers_in(database: Path) -> list[int]:
    connection = sqlite3.connect(database)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in connection.execute("SELECT number FROM rows ORDER BY number")]
    finally:
        connection.close()


def test_sqlite_loses_no_commit_that_it_synced() -> None:
    mount = MountWorld()
    try:
        disk, first = mount.fresh(1), 1
        lost_bytes = 0
        for turn in range(POWERS):
            commits = 1 + Stream(turn, "commits").below(12)
            last = commit_until_killed(mount.root / "db", "FULL", first, commits)
            lost_bytes += mount.run(disk.power()).lost.lost_bytes
            found = numbers_in(mount.root / "db")
            assert found[:last] == list(range(1, last + 1)), f"power loss {turn}"
            first = found[-1] + 1
        assert lost_bytes > 0, "these power losses took nothing"
    finally:
        mount.close()


def test_sqlite_loses_commits_that_it_did_not_sync() -> None:
    mount, losses = MountWorld(), 0
    try:
        for seed in range(12):
            disk = mount.fresh(seed)
            last = commit_until_killed(mount.root / "db", "OFF", 1, 15)
            mount.run(disk.power())
            losses += lost_commits(mount.root / "db", last)
    finally:
        mount.close()
    assert losses > 0


def lost_commits(database: Path, last: int) -> bool:
    try:
        return numbers_in(database)[:last] != list(range(1, last + 1))
    except (sqlite3.DatabaseError, AssertionError):
        return True  # or the whole database


def git(repository: Path, *words: str) -> str:
    always = ["-c", "core.fsync=all", "-c", "user.name=n", "-c", "user.email=e@x"]
    done = subprocess.run(
        ["git", "-C", str(repository), *always, *words], capture_output=True, text=True
    )
    assert done.returncode == 0, f"git {words}: {done.stderr}"
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_a_git_repository_keeps_its_commits_where_the_file_system_has_a_journal() -> None:
    """git syncs what it writes before it renames it into its place, and leaves the rename to the
    file system: it may be undone until anything else is synced."""
    mount = MountWorld(DiskOptions(names="journal"))
    try:
        disk, repository = mount.fresh(1), mount.root / "repository"
        git(mount.root, "init", "-q", "-b", "main", "repository")
        heads, undone = [""], 0
        for turn in range(16):
            for number in range(3):
                (repository / f"file{number}").write_text(f"{turn} {number}\n" * (100 * turn + 1))
            git(repository, "add", "-A")
            git(repository, "commit", "-q", "-m", f"commit {turn}")
            if turn % 4 == 3:
                git(repository, "repack", "-adq")
            heads.append(git(repository, "rev-parse", "HEAD").strip())
            if synced := turn % 2 == 0:
                sync_directory(repository)
            write_and_lose_power(mount, disk, repository)
            git(repository, "fsck", "--strict", "--no-dangling")
            head = git(repository, "rev-parse", "HEAD").strip()
            assert head == heads[-1] or (head == heads[-2] and not synced)
            if head != heads[-1]:
                heads.pop()
                undone += 1
            git(repository, "reset", "-q", "--hard")  # what it checks out is not synced
        assert git(repository, "log", "--format=%H").split() == heads[:0:-1]
        assert undone > 0, "these power losses undid nothing"
    finally:
        mount.close()


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)


def write_and_lose_power(mount: MountWorld, disk: FaultDisk, repository: Path) -> None:
    (repository / "unsynced").write_text("x" * 5000)
    mount.run(disk.power())
    for leftover in repository.rglob("*.lock"):
        leftover.unlink()  # as git says that one should
