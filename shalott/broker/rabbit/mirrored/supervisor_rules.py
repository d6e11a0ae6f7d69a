"""What a queue supervisor starts, and whom it tells of a row: the rules, and which known bugs break
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# They are about what a process that the row doesn't name does before its ring tells it.
BUGS_OF_THE_DISPLACED = tuple(f"KB-RMQ-{number}" for number in ("02", "04", "06", "08", "10", "13"))


@dataclass(frozen=True, slots=True)
class SupervisorRules:
    """One field a rule. All hold by default.

    recovers_current_row: a restarted master takes over the row as it is then, not as it was when
    its start was decided (KB-RMQ-02).
    replaces_pending_only: a mirror may be started beside a process that its master has stopped in
    vain, and beside no other. In the original it may be started beside whatever the row doesn't
    name: the master's list of mirrors is all that counts (KB-RMQ-02).
    looks_at_orderly_ends: where a process ended in good order, or a node came into sight, somebody
    looks whether the queue needs a process there. In the original a queue's supervisor starts
    again what crashed and nothing else (its child is intrinsic), and mirrors are added when a
    master starts, a virtual host comes up, a policy changes or a member of the ring dies
    (KB-RMQ-37).
    restart_adds_mirrors: a broker that starts again in a running node adds its mirrors. Mirrors
    were added when a *node* came up: a virtual host that was started again in a running node
    recovered the masters that belong to it, and nothing else (KB-RMQ-20).
    tells_displaced: a process that the row no longer names is told to look. In RabbitMQ nobody
    tells it: it learns that from its ring, or never (BUGS_OF_THE_DISPLACED).
    """

    recovers_current_row: bool = True
    replaces_pending_only: bool = True
    looks_at_orderly_ends: bool = True
    restart_adds_mirrors: bool = True
    tells_displaced: bool = True


def supervisor_rules(has_bug: Callable[[str], bool]) -> SupervisorRules:
    """The rules of a node with these bugs switched on."""
    return SupervisorRules(
        recovers_current_row=not has_bug("KB-RMQ-02"),
        replaces_pending_only=not has_bug("KB-RMQ-02"),
        looks_at_orderly_ends=not has_bug("KB-RMQ-37"),
        restart_adds_mirrors=not has_bug("KB-RMQ-20"),
        tells_displaced=not any(has_bug(bug) for bug in BUGS_OF_THE_DISPLACED),
    )
