"""What the kernels must know of a run besides its files: plain data that goes to any process.

A task is a run, or a part of a huge one: messages are split by value, objects by name; everything
else of it is one part ("rest").
"""

from __future__ import annotations

from typing import Literal

import msgspec

from shalott.checkers.consumers.consume_rules import ConsumeRules
from shalott.checkers.groups.group_rules import GroupRules

Part = Literal["all", "messages", "objects", "rest"]


class ObjectRules(msgspec.Struct, frozen=True, kw_only=True):
    """A model that the objects of a run are held against (checkers/linearizability)."""

    model: str
    fs: tuple[str, ...]
    exactly_once: bool = False


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan says. ``log``: its clients send and poll; ``fifo``: order is promised."""

    consume: ConsumeRules | None = None
    group: GroupRules | None = None
    log: bool = False
    fifo: bool = False
    elections: bool = False
    objects: tuple[ObjectRules, ...] = ()
    tolerance_ns: int = 100_000_000

    @property
    def is_plain(self) -> bool:
        """Whether its messages go through queues that only dequeues empty."""
        return self.consume is None and self.group is None and not self.log


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """``history``: a path, or a URI. ``events``: "" if there are none. ``size``: bytes to read."""

    run: str
    history: str
    events: str = ""
    complete: bool = True
    round_ns: int = 500_000_000
    rules: Rules = Rules()
    size: int = 0
    part: Part = "all"
    bucket: int = 0
    buckets: int = 1


SPLIT_BYTES = 64 << 20  # some six million operations: half a gigabyte as columns


def split(task: Task) -> tuple[Task, ...]:
    """The parts of a run that is worth it; else the run."""
    buckets = -(-task.size // SPLIT_BYTES)
    if buckets < 2 or not task.rules.is_plain:
        return (task,)
    replace = msgspec.structs.replace
    parts = [
        replace(task, part="messages", bucket=bucket, buckets=buckets, size=task.size // 2)
        for bucket in range(buckets)
    ]
    if task.rules.objects:
        parts += [
            replace(task, part="objects", bucket=bucket, buckets=buckets, size=task.size // 2)
            for bucket in range(buckets)
        ]
    return (replace(task, part="rest"), *parts)


def packed(tasks: list[Task], bins: int) -> list[list[Task]]:
    """Into as many bins of about one size, the longest first; none is empty."""
    bins = max(1, min(bins, len(tasks)))
    found: list[list[Task]] = [[] for _ in range(bins)]
    filled = [0] * bins
    for task in sorted(tasks, key=lambda each: -each.size):
        least = filled.index(min(filled))
        found[least].append(task)
        filled[least] += task.size + 20_000  # what any run costs, however small
    return [each for each in found if each]
