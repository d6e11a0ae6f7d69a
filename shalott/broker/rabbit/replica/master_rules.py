"""What a master tells its mirrors and waits for: the rules, and which known bugs break them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MasterRules:
    """One field a rule. All hold by default.

    confirms_wait_for_ring: the confirm of a message that a mirror gets by the ring only waits until
    the ring has carried it. The original does not wait (OUR-02).
    tells_requeued: the mirrors hear what a promoted master requeues.
    promote_backing_queue_state requeued in its own backing queue only (KB-RMQ-29, rmq#7579).
    """

    confirms_wait_for_ring: bool = True
    tells_requeued: bool = True


def master_rules(has_bug: Callable[[str], bool]) -> MasterRules:
    """The rules of a node with these bugs switched on."""
    return MasterRules(
        confirms_wait_for_ring=not has_bug("OUR-02"),
        tells_requeued=not has_bug("KB-RMQ-29"),
    )
