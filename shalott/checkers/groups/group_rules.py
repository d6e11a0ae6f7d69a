"""What a plan of the workload ``group`` sets, as far as its judges must know it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One consumer group. ``tags``: what it subscribes to, of every topic; empty: everything.

    ``max_reconsume``: a message that was reconsumed so often goes to the dead letters.
    """

    name: str
    topics: tuple[str, ...]
    tags: tuple[str, ...] = ()
    orderly: bool = False
    broadcast: bool = False
    max_reconsume: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRules:
    """``queues``: keys of the queues that are sent to. ``levels_ms``: the delay of each level, from
    level 1 on. ``first_retry_level``: of the first retry that names none.

    ``keeps_acknowledged``: what was acknowledged is in the log of every possible next master.
    ``offsets_follow_ms``: how old a slave's copy of committed offsets may be (it copies them so
    often); a new master may set a group back by so much, and no further. ``stuck_after_ms``: so
    long after the heal every group has consumed everything.
    """

    groups: tuple[Group, ...]
    queues: tuple[str, ...]
    levels_ms: tuple[int, ...]
    first_retry_level: int = 3
    keeps_acknowledged: bool = True
    offsets_follow_ms: int = 10_000
    stuck_after_ms: int = 30_000
    client: str = "own"
