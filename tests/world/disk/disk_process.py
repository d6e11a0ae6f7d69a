"""A program that does what it is told to files, one system call after another, and says how far it
came: ``python disk_process.py ROOT < ACTIONS``, a JSON list of actions as tests/world/disk/
stressed.py draws them. After each action it writes a dot."""

from __future__ import annotations

import json
import mmap
import os
import sys
from pathlib import Path
from typing import Any

Action = tuple[str, str, str, int, int]  # verb, path, other path, offset or size, length


def do(root: Path, number: int, action: Action) -> None:
    verb, path, other, offset, length = action
    data = bytes([number % 255 + 1]) * length
    where = str(root / path)
    if verb == "sync_dir":
        descriptor = os.open(str((root / path).parent), os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(descriptor)
    elif verb == "rename":
        os.rename(where, str(root / other))  # noqa: PTH104
        return
    elif verb == "link":
        os.link(where, str(root / other))  # noqa: PTH200
        return
    elif verb == "remove":
        os.unlink(where)  # noqa: PTH108
        return
    elif verb == "append":
        descriptor = os.open(where, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        assert os.write(descriptor, data) == length
    else:
        flags = os.O_DSYNC if verb == "write_synced" else 0
        descriptor = os.open(where, os.O_RDWR | os.O_CREAT | flags, 0o644)
        change(descriptor, verb, offset, data)
    os.close(descriptor)


def change(descriptor: int, verb: str, offset: int, data: bytes) -> None:
    if verb in ("write", "write_synced"):
        assert os.pwrite(descriptor, data, offset) == len(data)
    elif verb == "truncate":
        os.ftruncate(descriptor, offset)
    elif verb == "allocate":
        os.posix_fallocate(descriptor, 0, offset + 1)
    elif verb == "sync":
        os.fsync(descriptor)
    elif verb == "sync_data":
        os.fdatasync(descriptor)
    elif verb in ("map", "map_synced"):
        size = os.fstat(descriptor).st_size
        if offset < size:
            with mmap.mmap(descriptor, size) as mapped:
                end = min(size, offset + len(data))
                mapped[offset:end] = data[: end - offset]
                if verb == "map_synced":
                    mapped.flush()


def main() -> None:
    root = Path(sys.argv[1])
    actions: list[Any] = json.load(sys.stdin)
    for number, action in enumerate(actions):
        do(root, number, tuple(action))
        os.write(1, b".")


if __name__ == "__main__":
    main()
