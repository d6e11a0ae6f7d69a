"""When a channel may acknowledge a publish to its client: the rules, and what each known bug makes
of them.

The rules are those of confirms.py. ``confirm_rules`` reads the switches (broker/rabbit/known_bugs)
once, when a channel opens; the code asks the rules only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# KB-RMQ-24: the ends that rabbit_misc:is_abnormal_exit calls benign, in this broker's words. Only
# another reason made a nack; a process that ended so was struck off as if it had confirmed.
BENIGN_ENDS = (
    "normal",
    "shutdown",
    "noproc",
    "noconnection",
    "dropped",
    "stopped by its master",
)


@dataclass(frozen=True, slots=True)
class ConfirmRules:
    """One field a rule. All hold by default.

    needs_recorded_master: a confirm counts only with that of the recorded master; in the original a
    confirm is a confirm, whose ever it is (OUR-01, KB-RMQ-24). discounts_unsynchronised: the
    confirm of a mirror that is not synchronised does not count (OUR-01). waits_for_rows: a process
    out of reach owes its confirm as long as a queue's row names it; the original strikes it off at
    once (OUR-08, OUR-09, KB-RMQ-24). settling_ends: the reasons of an end that leave nothing to
    confirm, which is the deletion of the queue only (KB-RMQ-24, before 3.8.0: every benign one).
    """

    needs_recorded_master: bool = True
    discounts_unsynchronised: bool = True
    waits_for_rows: bool = True
    settling_ends: tuple[str, ...] = ("normal",)


def confirm_rules(has_bug: Callable[[str], bool]) -> ConfirmRules:
    """The rules of a node with these bugs switched on."""
    any_end_settles = has_bug("KB-RMQ-24")
    return ConfirmRules(
        needs_recorded_master=not (has_bug("OUR-01") or any_end_settles),
        discounts_unsynchronised=not has_bug("OUR-01"),
        waits_for_rows=not (has_bug("OUR-08") or has_bug("OUR-09") or any_end_settles),
        settling_ends=BENIGN_ENDS if any_end_settles else ("normal",),
    )
