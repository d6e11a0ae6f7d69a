"""Oracles of a ring of mirrors: what a mirror holds is what its master held when it said so.

Everybody applies the instructions of one master in its order, each told once the master has done
it. So after each of them a mirror has the newest messages of what the master had then, ready or
not as there, with a time to live or without, and lacks as many as it says.

A mirror that a publish was not sent to has it from the ring only, and a master that confirms it
must have waited for that: unless the mirror is not synchronised, and counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from shalott.cluster.sim.oracles.watch import Watch
from shalott.core.oracles import MIRRORS_AGREE

Messages = list[tuple[int, bool, bool]]  # by age: which one, whether it is ready, and expires
Outline = Callable[[], Messages | None]
Process = Hashable  # as brokers name it

EVERY = 4  # of a master's instructions: what it holds is kept of these
KEPT = 1024  # instructions of a master


@dataclass(slots=True)
class _Told:
    """What a master has said: by its number, and the numbers by what cannot be said twice."""

    count: int = 0
    payloads: dict[int, bytes] = field(default_factory=dict)
    numbers: dict[bytes, int | None] = field(default_factory=dict)  # None: said twice
    outlines: dict[int, Messages | None] = field(default_factory=dict)

    def add(self, payload: bytes, outline: Outline) -> None:
        number = self.count = self.count + 1
        self.payloads[number] = payload
        self.numbers[payload] = None if payload in self.numbers else number
        if number % EVERY == 0:
            self.outlines[number] = outline()
        if (old := self.payloads.pop(number - KEPT, None)) is not None:
            self.numbers.pop(old, None)
            self.outlines.pop(number - KEPT, None)


@dataclass(slots=True)
class _Mirror:
    """``at``: by master, the number of what was heard last; 0 if it can't be told.
    ``brought``: messages of which the ring has told."""

    at: dict[Process, int] = field(default_factory=dict)
    brought: dict[int, None] = field(default_factory=dict)


class Mirrors:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._outlines: dict[Process, Outline] = {}  # by process
        self._told: dict[Process, _Told] = {}  # by process
        self._mirrors: dict[Process, _Mirror] = {}  # by process
        self._lacks: dict[Process, int | None] = {}  # by process, as it says
        self._sent_to: dict[int, list[Process]] = {}  # by message
        # By synchronisation: whose, and what its queue had when it began.
        self._copied: dict[int, tuple[Process, Messages | None]] = {}

    def replica(self, node: str, life: int, pid: Process, outline: Outline) -> None:
        self._outlines[pid] = outline

    def sent(
        self, node: str, life: int, message_id: int, to: Mapping[str, Sequence[Process]]
    ) -> None:
        """A channel sent a publish to these processes, by queue."""
        self._sent_to[message_id] = [process for own in to.values() for process in own]

    def told(self, node: str, life: int, pid: Process, payload: bytes) -> None:
        """A process says something to its ring, when it has done it."""
        if outline := self._outlines.get(pid):
            self._told.setdefault(pid, _Told()).add(payload, outline)

    def heard(
        self, node: str, life: int, pid: Process, origin: Process, payload: bytes, lacks: int | None
    ) -> None:
        """A mirror has done what ``origin`` said, and says how many messages it lacks."""
        self._lacks[pid] = lacks
        mirror, told = self._mirrors.setdefault(pid, _Mirror()), self._told.get(origin)
        if told is None:
            return
        number = mirror.at.get(origin, 0) + 1
        if told.payloads.get(number) != payload:
            number = told.numbers.get(payload) or 0
        mirror.at[origin] = number
        theirs = told.outlines.get(number)
        own = None if theirs is None else self._outlines[pid]()
        # Who was promoted without all messages may find more of them at its mirrors.
        was_behind = self._lacks.get(origin, 0) != 0
        if theirs is None or own is None or was_behind:
            return
        self._watch.asked(MIRRORS_AGREE, node)
        wrong = _difference(theirs, own, lacks)
        if wrong:
            summary = f"{pid} has done what {origin} said as number {number}, and {wrong}"
            self._watch.broken(MIRRORS_AGREE, node, summary, number=number)

    def sync_began(self, node: str, life: int, syncer: Process, ref: int) -> None:
        self._copied[ref] = syncer, self._outlines[syncer]()

    def sync_ended(
        self, node: str, life: int, pid: Process, ref: int, done: bool, lacks: int | None
    ) -> None:
        """A mirror takes no more of it. It has all but what its master gave up meanwhile; or, when
        that was broken off, no older messages without the newer ones."""
        self._lacks[pid] = lacks
        (syncer, theirs), own = self._copied.get(ref, ("", None)), self._outlines[pid]()
        if theirs is None or own is None:
            return
        self._watch.asked(MIRRORS_AGREE, node)
        ids, has = [one[0] for one in theirs], {one[0]: None for one in own}
        left = {one[0]: None for one in self._outlines[syncer]() or ()}
        if done:
            missing = [one for one in ids if one in left and one not in has]
        else:
            newer = ids[next((n for n, one in enumerate(ids) if one in has), len(ids)) :]
            missing = [one for one in newer if one not in has]
        if missing:
            how = "lacks" if done else "kept older ones without the newer"
            summary = f"{pid} was synchronised by {syncer}, and {how}"
            self._watch.broken(MIRRORS_AGREE, node, f"{summary} {len(missing)} messages")

    def brought(self, node: str, life: int, pid: Process, message_id: int) -> None:
        self._mirrors.setdefault(pid, _Mirror()).brought[message_id] = None

    def mirror_confirms(self, node: str, life: int, pid: Process, message_id: int) -> None:
        self._watch.asked(MIRRORS_AGREE, node)
        if message_id not in self._mirrors.setdefault(pid, _Mirror()).brought:
            summary = f"{pid} confirms message {message_id}, of which the ring has not told it"
            self._watch.broken(MIRRORS_AGREE, node, summary, offset=message_id)

    def master_confirms(
        self,
        node: str,
        life: int,
        pid: Process,
        message_id: int,
        mirrors: Callable[[], list[Process]],
    ) -> None:
        """``mirrors``: of its queue, in its ring, as it sees it. What is consumed already is no
        matter: a mirror that came since never had it."""
        self._watch.asked(MIRRORS_AGREE, node)
        sent_to = self._sent_to.get(message_id)
        if not sent_to or not self._has(pid, message_id):
            return
        for mirror in mirrors():
            if mirror in sent_to or self._lacks.get(mirror) != 0:
                continue
            is_told = message_id in self._mirrors[mirror].brought
            if not is_told and not self._has(mirror, message_id):
                summary = f"{pid} confirms message {message_id}, which {mirror} has not got"
                self._watch.broken(MIRRORS_AGREE, node, summary, offset=message_id)

    def _has(self, pid: Process, message_id: int) -> bool:
        outline = self._outlines[pid]()
        return outline is None or any(one[0] == message_id for one in outline)


def _difference(theirs: Messages, own: Messages, lacks: int | None) -> str:
    """In words; "" if what a mirror has is the end of what its master had."""
    newest = theirs[len(theirs) - len(own) :] if len(own) <= len(theirs) else None
    if own != newest:
        return f"has {_words(own)}, not the newest of {_words(theirs)}"
    missing = len(theirs) - len(own)
    if lacks is not None and lacks != missing:
        return f"says that it lacks {lacks} messages, and lacks {missing}"
    return ""


def _words(messages: Messages) -> str:
    ready = sum(one[1] for one in messages)
    expiring = sum(one[2] for one in messages)
    return f"{ready} ready and {len(messages) - ready} other messages, {expiring} that expire"
