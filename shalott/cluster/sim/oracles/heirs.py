"""The oracle of promotions: what a dead master leaves, its heir has to see to.

A mirror has each publish from its channel, too. What the ring had not brought when the master died,
the heir takes as new; it owes each confirm that the mirror owed; and each message that it has may
have been given to a client, so it is flagged. No mirror stays with a master of whose death it has
heard.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import HEIRS_COMPLETE

Process = Hashable  # as brokers name it
Flags = Callable[[], list[tuple[int, bool]] | None]


class Heirs:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        # By process: messages that came from channels, and of which the ring has not told.
        self._waiting: dict[Process, dict[int, None]] = {}
        self._brought: dict[Process, dict[int, None]] = {}
        # By process: messages whose channels are to hear of them.
        self._owed: dict[Process, dict[int, None]] = {}
        self._dead: dict[Process, dict[Process, None]] = {}  # by who heard of it

    def takes(self, node: str, life: int, pid: Process, message_id: int, is_owed: bool) -> None:
        """A mirror gets a channel's copy."""
        if self._brought.setdefault(pid, {}).pop(message_id, 0) == 0:
            self._waiting.setdefault(pid, {})[message_id] = None
        if is_owed:
            self._owed.setdefault(pid, {})[message_id] = None

    def brought(self, node: str, life: int, pid: Process, message_id: int) -> None:
        if self._waiting.setdefault(pid, {}).pop(message_id, 0) == 0:
            self._brought.setdefault(pid, {})[message_id] = None

    def answers(
        self, node: str, life: int, pid: Process, message_id: int, *details: object
    ) -> None:
        """A process confirms a message, or refuses it."""
        self._owed.get(pid, {}).pop(message_id, None)

    def forgets(self, node: str, life: int, pid: Process, message_ids: Sequence[int]) -> None:
        """Master and mirror know that their channel is dead."""
        for message_id in message_ids:
            self._waiting.get(pid, {}).pop(message_id, None)
            self._owed.get(pid, {}).pop(message_id, None)

    def master_takes(self, node: str, life: int, pid: Process, message_id: int) -> None:
        self._waiting.get(pid, {}).pop(message_id, None)

    def succeeded(
        self, node: str, life: int, pid: Process, owes: Callable[[], list[int]], flags: Flags
    ) -> None:
        """A mirror is its queue's master now, and has seen to what it inherits."""
        watch = self._watch
        watch.asked(HEIRS_COMPLETE, node)
        if lost := self._waiting.get(pid):
            what = f"has dropped {len(lost)} messages that it got from their channels only"
            watch.broken(HEIRS_COMPLETE, node, f"{pid} is promoted, and {what}")
        owed = dict.fromkeys(owes())
        if gone := [one for one in self._owed.get(pid, {}) if one not in owed]:
            what = f"has forgotten that it owes {len(gone)} confirms"
            watch.broken(HEIRS_COMPLETE, node, f"{pid} is promoted, and {what}")
        if new := [one for one, is_flagged in flags() or () if not is_flagged]:
            what = f"takes {len(new)} messages for new that its master may have delivered"
            watch.broken(HEIRS_COMPLETE, node, f"{pid} is promoted, and {what}")

    def deaths(self, node: str, life: int, pid: Process, dead: Sequence[Process]) -> None:
        self._dead.setdefault(pid, {}).update(dict.fromkeys(dead))

    def stays(self, node: str, life: int, pid: Process, master: Process) -> None:
        """Others have died, and nothing changes for who tells this."""
        self._watch.asked(HEIRS_COMPLETE, node)
        if master in self._dead.get(pid, {}):
            summary = f"{pid} stays with its master {master}, of whose death it has heard"
            self._watch.broken(HEIRS_COMPLETE, node, summary)
