"""Which of the ring's historical faults are switched on: the flags that the GM machine takes.

The machine is pure and has no Env, so its shell makes these from the ids in ``Env.bugs`` (see
broker/known_bugs.py). All are off by default.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GmBugs:
    """One flag a bug.

    blank_member_crash: a member without states can't cope with news of a newer ring (KB-RMQ-31).
    hears_former_neighbours: what the left neighbour sent in a former time as our neighbour counts
    (OUR-05). blind_newcomers: who lost its left neighbour before the catchup goes on (OUR-06).
    stops_undrained: a stopping member doesn't wait for its words to come round (KB-RMQ-04).
    ignores_lost_membership: who was recorded dead goes on (KB-RMQ-06). strict_common: holes in a
    neighbour's messages are not expected (KB-RMQ-07). missing_group_crash: nor is a group whose row
    is gone (KB-RMQ-10). hears_broken_left: a left neighbour whose link broke is heard by its next
    link, and a right one is told more by it (OUR-10).
    """

    blank_member_crash: bool = False
    hears_former_neighbours: bool = False
    blind_newcomers: bool = False
    stops_undrained: bool = False
    ignores_lost_membership: bool = False
    strict_common: bool = False
    missing_group_crash: bool = False
    hears_broken_left: bool = False


NO_BUGS = GmBugs()


def gm_bugs(has_bug: Callable[[str], bool]) -> GmBugs:
    """The flags of a node."""
    return GmBugs(
        blank_member_crash=has_bug("KB-RMQ-31"),
        hears_former_neighbours=has_bug("OUR-05"),
        blind_newcomers=has_bug("OUR-06"),
        stops_undrained=has_bug("KB-RMQ-04"),
        ignores_lost_membership=has_bug("KB-RMQ-06"),
        strict_common=has_bug("KB-RMQ-07"),
        missing_group_crash=has_bug("KB-RMQ-10"),
        hears_broken_left=has_bug("OUR-10"),
    )
