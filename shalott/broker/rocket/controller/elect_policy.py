"""Who becomes master: controller/elect/impl/DefaultElectPolicy.java; docs/protocols.md 3.4.

Among the alive members of the SyncStateSet, and if there is none and unclean elections are allowed,
among all alive replicas: the old master if it is one of them; a designated broker or none; else
the one with the highest epoch, then the highest offset, then the lowest priority number.

Where we differ on purpose: upstream casts a difference of offsets to 32 bits, so that logs which
differ by more than 2 GiB compare the wrong way round (KB-RKT-E), and among equals it takes the one
that a hash set yields first. Here offsets are compared in full, and among equals the lowest id
wins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from shalott.broker.base.env import Env


@dataclass(frozen=True, slots=True)
class LiveInfo:
    """What a broker last said of its log."""

    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    priority: int = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is known when a master is wanted. ``all_replicas`` is empty for a clean election.

    ``is_alive`` and ``live_info`` are asked by broker id.
    """

    members: tuple[int, ...]
    all_replicas: tuple[int, ...]
    old_master: int | None
    is_alive: Callable[[int], bool]
    live_info: Callable[[int], LiveInfo | None]


def elect(env: Env, candidates: Candidates, designated: int | None) -> int | None:
    """The master from now on; None if none can be. It may be the old one."""
    chosen = _elect_among(env, candidates, candidates.members, designated)
    if chosen is None:
        chosen = _elect_among(env, candidates, candidates.all_replicas, designated)
    return chosen


def _elect_among(
    env: Env, candidates: Candidates, brokers: tuple[int, ...], designated: int | None
) -> int | None:
    old = candidates.old_master
    alive = [broker for broker in brokers if candidates.is_alive(broker)]
    if env.has_bug("KB-RKT-30") and not (old is None or old in alive or designated):
        # dead_master_candidate: the dead master stands too, with the log that it last spoke of.
        return _best(env, candidates, [*alive, *(i for i in brokers if i == old)])
    if old in alive and designated in (None, old):
        return old
    if designated is not None:
        return designated if designated in alive else None
    return _best(env, candidates, alive)


def _best(env: Env, candidates: Candidates, brokers: list[int]) -> int | None:
    infos = {broker: candidates.live_info(broker) or LiveInfo() for broker in brokers}
    compare = _compare_as_int if env.has_bug("KB-RKT-E") else _compare

    def order(one: int, other: int) -> int:
        return compare(infos[one], infos[other]) or one - other

    return min(brokers, key=functools.cmp_to_key(order), default=None)


def _compare(one: LiveInfo, other: LiveInfo) -> int:
    """Negative if ``one`` is the better master."""
    if one.epoch != other.epoch:
        return other.epoch - one.epoch
    return other.max_offset - one.max_offset or one.priority - other.priority


def _compare_as_int(one: LiveInfo, other: LiveInfo) -> int:
    """Upstream's: the difference of two longs, cast to an int."""
    if one.epoch == other.epoch and one.max_offset != other.max_offset:
        return (other.max_offset - one.max_offset + (1 << 31)) % (1 << 32) - (1 << 31)
    return _compare(one, other)
