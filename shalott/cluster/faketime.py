"""libfaketime: a C library's wall clock tells another time than the kernel's.

A program that is started with it preloaded (0.9.10, Debian's libfaketime) reads an offset from a
file at every call; the harness or the agent of its host writes that file. Only the wall clock is
touched: libfaketime hangs Python 3.11 when it is told to change the monotonic one.

It works by the dynamic linker: a program without one, or one that asks the kernel by itself as Go
does, reads the true time; and with jemalloc as a library it never starts, as each asks the other
first (libfaketime's issue 130; ``check_program``).
"""

from __future__ import annotations

import struct
import time

FILE = "clock"  # in the node's configuration directory
LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"  # the dynamic linker fills in $LIB
TICK_S = 0.02
WIDTH = 40  # of the file's text: it is overwritten in place, never shorter for a moment
READ_WITHIN_S = 10.0
READINGS = 20
PT_INTERP = 3
JEMALLOC = b"libjemalloc.so"  # among the libraries that an ELF file needs
GO_MARK = b"\xff Go buildinf:"

# Beside each other: the machine's monotonic clock, which is never touched, and the wall clock that
# the node sees. The narrowest of several pairs counts.
READ = f"""
import time
best = None
for _ in range({READINGS}):
    before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    if best is None or after - before < best[0]:
        best = after - before, (before + after) // 2, wall
print(best[1], best[2])
"""


def environment(config_dir: str) -> dict[str, str]:
    """What a node is started with that shall have a clock of its own."""
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": f"{config_dir}/{FILE}",
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Its mending of waits by the monotonic clock makes each change of threads in Python take
        # milliseconds; glibc has none of what it mends.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        # A node may change its user, and could not open what its first process had made.
        "FAKETIME_DISABLE_SHM": "1",
    }


def file_text(offset_ms: float) -> str:
    """What libfaketime reads: seconds to add."""
    return f"{offset_ms / 1000:+.6f}".ljust(WIDTH - 1) + "\n"


def wall_beside_monotonic_ns() -> int:
    """This machine's wall clock less its monotonic one, of the narrowest of several pairs."""
    pairs = []
    for _ in range(READINGS):
        before, wall, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        pairs.append((after - before, wall - (before + after) // 2))
    return min(pairs)[1]


def check_program(content: bytes) -> str:
    """Why libfaketime can do nothing to it; "" if it can. ``content``: of the executable file."""
    if content[:4] != b"\x7fELF":
        return ""  # a script: its interpreter may be any; the proof sees it
    if GO_MARK in content:
        return "is a Go program, which reads the clock without the C library"
    if PT_INTERP not in _segments(content):
        return "is statically linked, so no library can be put before its own"
    if JEMALLOC in content:
        return "takes its memory from jemalloc, which never starts under libfaketime"
    return ""


def _segments(content: bytes) -> list[int]:
    """Types of the program headers of an ELF file (elf(5))."""
    is_64, order = content[4] == 2, "<" if content[5] == 1 else ">"
    at = struct.unpack_from(order + ("Q" if is_64 else "I"), content, 32 if is_64 else 28)[0]
    size, count = struct.unpack_from(order + "HH", content, 54 if is_64 else 42)
    return [struct.unpack_from(order + "I", content, at + n * size)[0] for n in range(count)]
