"""Groups that are stuck: messages wait, members live, and nothing happens.

When everything is healed a group has ``stuck_after_ms`` to consume what waits, or at least to go
on with it. It has more where
something keeps its queues that can't be asked back: the lock of an orderly member that died is its
for 60 s (RebalanceLockManager), and one whose death a broker may not have noticed is a member, with
queues, for two minutes (CHANNEL_EXPIRED_TIMEOUT). Stalls of the harness do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_fates import Fates, final_offsets, places
from shalott.checkers.groups.group_history import ENDS, GroupHistory
from shalott.checkers.groups.master_changes import MS
from shalott.checkers.groups.orderly import LOCK_NS
from shalott.checkers.groups.retries import delayed_due_ns, due_ns, late_ns
from shalott.checkers.history.columns import NEVER, Bools, Ints
from shalott.checkers.history.faults import stalled_ns
from shalott.checkers.logs.records import FAIL

CHANNEL_NS = 120_000 * MS  # CHANNEL_EXPIRED_TIMEOUT of upstream's ConsumerManager
TOLERANCE_NS = 1_000 * MS
AFTER_NS = 10_000 * MS  # to hear of it and to consume what waited
DIED = ENDS.index("died")


@dataclass(frozen=True, slots=True)
class Waiting:
    """One group at the end. ``lives``: it had members as long as it takes. ``stuck``: positions
    in ``fates`` that had waited long enough; ``undecided``: what the members had no time for."""

    group: int
    lives: bool
    stuck: Ints
    undecided: Ints


def deadlines_ns(story: GroupHistory) -> Ints:
    """By group: when what can be consumed has been, at the latest; NEVER: nothing was healed."""
    healed_ns = _healed_ns(story)
    groups, lives = story.rules.groups, story.lives
    found = np.full(len(groups), NEVER, dtype=np.int64)
    if healed_ns is None:
        return found
    for number, group in enumerate(groups):
        own = lives.group == number
        died_ns = lives.end_ns[own & (lives.ended == DIED) & (lives.end_ns <= healed_ns)]
        due_ns = healed_ns + story.rules.stuck_after_ms * MS
        if len(died_ns) and group.orderly:
            due_ns = max(due_ns, int(died_ns.max()) + LOCK_NS + AFTER_NS)
        unnoticed_ns = died_ns[story.turns.troubled(died_ns, died_ns)]
        if len(unnoticed_ns):
            due_ns = max(due_ns, int(unnoticed_ns.max()) + CHANNEL_NS + AFTER_NS)
        # Who is there to the end may have come after the heal.
        last_ns = lives.begin_ns[own & (lives.end_ns >= due_ns - TOLERANCE_NS)]
        if len(last_ns):
            due_ns = max(due_ns, int(last_ns.min()) + story.rules.stuck_after_ms * MS)
        due_ns += stalled_ns(story.around.stalls, healed_ns, story.end_ns)
        found[number] = due_ns
    return found


def waiting(story: GroupHistory, fates: Fates, deadlines: Ints) -> list[Waiting]:
    """Every group that has offsets at brokers."""
    found, lives = [], story.lives
    pending = fates.of("pending")
    patience_ns = max(story.rules.stuck_after_ms * MS, late_ns(story))
    for number, group in enumerate(story.rules.groups):
        if group.broadcast:
            continue
        close_ns = int(np.minimum(lives.end_ns[lives.group == number], story.end_ns).max(initial=0))
        is_over = close_ns + TOLERANCE_NS >= int(deadlines[number])
        own = pending[fates.group[pending] == number]
        ready_ns = _ready_ns(story, number)[fates.message[own]]
        idle_ns = np.maximum(ready_ns, _last_given_ns(story, number)[fates.message[own]])
        old: Bools = idle_ns + patience_ns <= close_ns + TOLERANCE_NS
        is_stuck = old & is_over
        may_be = ~is_stuck & (ready_ns <= close_ns) & (close_ns >= (_healed_ns(story) or NEVER))
        found.append(Waiting(number, is_over, own[is_stuck], own[may_be]))
    return found


def _last_given_ns(story: GroupHistory, number: int) -> Ints:
    """By message: when the group was last given anything from where the message waits. A group
    that is slow, but goes on, is not stuck."""
    rows, keys = story.deliveries, story.keys
    given_ns = np.zeros(len(keys.names) + 1, dtype=np.int64)
    own = np.flatnonzero(rows.group == number)
    np.maximum.at(given_ns, rows.key[own], np.minimum(rows.end_ns[own], story.end_ns))
    key = story.messages.key
    here = places(story, key) >= np.maximum(final_offsets(story, number)[key], 0)
    retry = np.flatnonzero(keys.retry_of == number)
    elsewhere_ns = int(given_ns[retry].max(initial=0))
    return np.where(here, given_ns[key], elsewhere_ns)


def _ready_ns(story: GroupHistory, number: int) -> Ints:
    """By message: from when on the group could consume it, at the latest."""
    sent, ready_ns = story.send_backs, delayed_due_ns(story)
    mine = np.flatnonzero((sent.group == number) & (sent.message >= 0) & (sent.type != FAIL))
    np.maximum.at(ready_ns, sent.message[mine], due_ns(story, mine))
    return np.asarray(ready_ns)


def _healed_ns(story: GroupHistory) -> int | None:
    for name in ("heal", "load"):
        phase = story.around.phase(name)
        if phase is not None and phase.end_ns is not None:
            return phase.end_ns
    return None
