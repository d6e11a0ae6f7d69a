"""Builds faultfs, the file system of this directory: a few C files, and one static program.

It needs a C compiler and the kernel's headers, and no FUSE library: the program speaks the kernel's
protocol itself, and runs on other hosts and in containers too. It is built once, when it is first
wanted, into build/disks of a checkout or else the user's cache. Its name is a digest of the
sources, so a changed source is another file. ``scripts/setup disks`` and
``python -m shalott.cluster.disks.build`` build it ahead of time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

from shalott.core.errors import HarnessError, ShalottError, UsageError

SOURCES: Final = Path(__file__).resolve().parent
ROOT: Final = SOURCES.parents[2]
FLAGS: Final = ("-O2", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-pthread")
PROGRAM: Final = "faultfs"
TIMEOUT_S: Final = 300.0
NEEDED: Final = (
    "power and disk faults of real nodes take a C compiler to be built, once:"
    " apt-get install gcc libc6-dev"
)


def program_path() -> Path:
    """The program, which is built if it is not there.

    Raises UsageError: there is no C compiler. Raises HarnessError: it does not compile.
    """
    path = _path()
    if not path.exists():
        _build(path)
    return path


def why_not() -> str | None:
    """Why no such file system can be mounted on this host by this user, or None. Builds nothing."""
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse: sudo modprobe fuse"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse is not open to this user"
    if os.geteuid() != 0 and shutil.which("fusermount3") is None:
        return "there is no fusermount3 for a user who is not root: apt-get install fuse3"
    return why_not_built()


def why_not_built() -> str | None:
    """Why there is no program and none can be built, or None."""
    return NEEDED if not _path().exists() and _compiler() is None else None


def _path() -> Path:
    return _directory() / f"{PROGRAM}-{_digest()}"


def _compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def _directory() -> Path:
    if (ROOT / "pyproject.toml").exists():
        return ROOT / "build" / "disks"
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "shalott" / "disks"


def _digest() -> str:
    said = hashlib.sha256(f"{sysconfig.get_platform()} {FLAGS}".encode())
    for path in sorted(SOURCES.glob("*.[ch]")):
        said.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        said.update(path.read_bytes())
    return said.hexdigest()[:16]


def _build(path: Path) -> None:
    compiler = _compiler()
    if compiler is None:
        raise UsageError(NEEDED)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as directory:
        made = Path(directory) / path.name
        sources = [str(source) for source in sorted(SOURCES.glob("*.c"))]
        # Not every distribution has a C library to link statically: then it runs on this host.
        for extra in (("-static",), ()):
            built = _run(compiler, *FLAGS, *extra, "-o", str(made), *sources)
            if built.returncode == 0:
                break
        else:
            lines = built.stderr.strip().splitlines() or [f"exit code {built.returncode}"]
            raise HarnessError(f"the file system of disk faults can't be built: {lines[-1]}")
        made.replace(path)


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{command[0]} took more than {TIMEOUT_S:.0f} s") from None


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{program_path()}\n")
    except ShalottError as error:
        sys.exit(f"shalott: {error}")
