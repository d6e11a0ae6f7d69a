"""Oracles of replicated logs, whose files are equal byte for byte: asked of the disks when a broker
acknowledges, confirms, or lets consumers see a stretch of its log.

Legal, and no finding:
- master and slaves: a slave acknowledges what it has written. Where its power went since the
  message was taken, its copy may be gone, and the master's disk is what is left.
- DLedger: any majority of disks will do, also one without the leader's.
- after a failover by hand replicas may differ in what the new master lacked.
- controllers: a slave's log may end in the midst of a message, and acknowledge so far; restarted,
  it cuts that message. So a confirm offset may lie beyond it by a part of a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from shalott.cluster.sim.disk.survival import Survival
from shalott.cluster.sim.oracles.epochs import Epochs
from shalott.cluster.sim.oracles.messages import HEAD, SIZE, is_border, messages_in
from shalott.cluster.sim.oracles.watch import Watch, pieces
from shalott.core.oracles import (
    CONFIRMED_BY_ALL,
    CONFIRMED_ONLY,
    DENSE_QUEUES,
    DISK_COPIES,
    EPOCHS_AGREE,
    EQUAL_LOGS,
    SYNC_FIRST,
    WHOLE_MESSAGES,
)

COMMIT_LOG = "commitlog"
Place = tuple[str, int, int, int]  # directory, segment_bytes, begin, end


class Logs:
    """``confirmed``: the bytes of each log as they were first let see, by directory."""

    def __init__(self, watch: Watch, epochs: Epochs) -> None:
        self._watch = watch
        self._epochs = epochs
        self._confirmed: dict[str, bytearray] = {}
        self._parted: dict[str, None] = {}  # logs of which an operator has chosen one
        self._place: Place = ("", 0, 0, 0)  # the last that was asked of, and its pieces
        self._pieces: list[tuple[str, int, int]] = []

    # -- when it happens ---------------------------------------------------------------------------

    def acked(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int,
        age_ns: int,
    ) -> None:  # fmt: skip
        """A producer is about to be told that it counts. It was taken ``age_ns`` ago."""
        watch, promised = self._watch, self._watch.promised
        if not promised.disks:
            return
        place = (directory, segment_bytes, begin, end)
        if self._is_damaged(node, place):
            return
        own = self._seen(node, place)
        if promised.own:
            watch.asked(SYNC_FIRST, node)
            if len(own) < end - begin or not self._keeps(node, place, own):
                summary = f"{node} acknowledged its log up to {end}, which isn't on its own disk"
                watch.broken(SYNC_FIRST, node, summary, offset=end)
        watch.asked(DISK_COPIES, node)
        on_disks = [one for one in watch.machines if self._keeps(one, place, own)]
        since_ns = watch.loop.now_ns - age_ns
        held = [
            one
            for one in watch.machines
            if one in on_disks
            or self._seen(one, place) == own
            or watch.disk(one).lost_ns >= since_ns
        ]
        missing = [one for one in self._epochs.members() if one not in on_disks]
        if len(on_disks) < promised.disks or len(held) < promised.copies or missing:
            where = " and ".join(on_disks) or "none"
            summary = f"{node} acknowledged its log up to {end}: of the disks {where} has it"
            if missing:
                summary += f", but not {' and '.join(missing)} of the SyncStateSet"
            watch.broken(DISK_COPIES, node, summary, offset=end, disks=on_disks)

    def dispatched(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int
    ) -> None:
        """Consumers may see whole messages up to ``end`` from now on."""
        watch, promised = self._watch, self._watch.promised
        if not promised.disks:
            return
        place = (directory, segment_bytes, begin, end)
        if self._is_damaged(node, place):
            return
        own = self._seen(node, place)
        self._compare(node, directory, begin, own)
        watch.asked(CONFIRMED_ONLY, node)
        needed = [node] if promised.copies > promised.disks else self._epochs.members()
        missing = [one for one in needed if not self._keeps(one, place, own)]
        on_disks = promised.disks
        if not needed:
            on_disks = sum(self._keeps(one, place, own) for one in watch.machines)
        if missing or on_disks < promised.disks:
            who = " and ".join(missing) if missing else "too many others"
            summary = f"{node} lets consumers see its log up to {end}, which {who} could still lose"
            watch.broken(CONFIRMED_ONLY, node, summary, offset=end)

    def reads(
        self, node: str, life: int, directory: str, segment_bytes: int, message: bytes
    ) -> None:
        """A master shows clients all up to this message. Where slaves acknowledge what they have
        written, it is asked whether enough have it, unless that may be gone."""
        watch, promised = self._watch, self._watch.promised
        is_gone = any(watch.disk(one).lost_ns >= 0 for one in watch.machines)
        if promised.copies <= promised.disks or is_gone or directory in self._parted:
            return
        begin = HEAD.unpack_from(message)[2]
        place = (directory, segment_bytes, begin, begin + len(message))
        watch.asked(CONFIRMED_ONLY, node)
        holders = [one for one in watch.machines if self._seen(one, place) == message]
        if len(holders) < promised.copies and not self._is_damaged(node, place):
            summary = f"{node} shows clients its log up to {place[3]}, which no slave has yet"
            watch.broken(CONFIRMED_ONLY, node, summary, offset=begin)

    def holds(self, node: str, life: int, directory: str, segment_bytes: int, end: int) -> None:
        """A slave tells its master that its log is safe up to ``end``."""
        self._has_synced(node, "acknowledges its log up to", (directory, segment_bytes, end, end))

    def sends(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int,
        epoch: tuple[int, int],
    ) -> None:  # fmt: skip
        """A master sends bytes as those of ``epoch``: its number, and where it begins."""
        watch = self._watch
        self._has_synced(node, "sends its log up to", (directory, segment_bytes, begin, end))
        watch.asked(EPOCHS_AGREE, node)
        if (known := self._epochs.written_in(node, life, begin, end)) != epoch:
            summary = f"{node} sends its log from {begin} to {end} as of {epoch}: it is of {known}"
            watch.broken(EPOCHS_AGREE, node, summary, offset=begin)

    def begins(
        self, node: str, life: int, directory: str, segment_bytes: int, epoch: int, start: int
    ) -> None:
        """A master is about to note that its epoch begins at ``start``."""
        self._has_synced(node, f"begins epoch {epoch} at", (directory, segment_bytes, 0, start))

    def reigns(
        self, node: str, life: int, directory: str, segment_bytes: int, epoch: int, start: int
    ) -> None:
        """A master's epoch has begun at ``start``."""
        known = self._epochs.written_in(node, life, start, start + 1)
        if known != (epoch, start):
            summary = f"{node} begins epoch {epoch} at {start}, and its epoch file says {known}"
            self._watch.broken(EPOCHS_AGREE, node, summary, offset=start)

    def checkpoint(self, node: str, life: int, places: Sequence[tuple[str, int, int]]) -> None:
        """A checkpoint says that log and queues are safe, each up to an offset."""
        for directory, segment_bytes, end in places:
            place = (directory, segment_bytes, end, end)
            self._has_synced(node, f"has a checkpoint of {directory} up to", place)

    def appends(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int,
        next_offsets: Mapping[tuple[str, int], int],
    ) -> None:  # fmt: skip
        """A master is about to append to its log, and goes on with these queue offsets."""
        watch, place = self._watch, (directory, segment_bytes, begin, end)
        if self._is_damaged(node, place):
            return
        if directory == COMMIT_LOG:  # DLedger's is one of entries
            self.ends(node, life, directory, segment_bytes, end)
        watch.asked(DENSE_QUEUES, node)
        for (topic, queue), offset in next_offsets_of(self._seen(node, place)).items():
            told = next_offsets.get((topic, queue), 0)
            if told != offset:
                summary = f"{node} goes on with {told} in queue {queue} of {topic}, not {offset}"
                watch.broken(DENSE_QUEUES, node, summary, offset=told)

    def cut(self, node: str, life: int, directory: str, segment_bytes: int, end: int) -> None:
        """A log was cut there: nothing of what lay behind may be found again."""
        self.ends(node, life, directory, segment_bytes, end)
        self._watch.asked(WHOLE_MESSAGES, node)
        for path, begin, _ in pieces(directory, segment_bytes, end, end + segment_bytes):
            if self._watch.disk(node).may_return(path, begin):
                summary = f"{node} has cut its log to {end}, and its disk has more in {path}"
                self._watch.broken(WHOLE_MESSAGES, node, summary, offset=end)

    def ends(self, node: str, life: int, directory: str, segment_bytes: int, end: int) -> None:
        """New messages come there."""
        begin = max(0, end - 1) // segment_bytes * segment_bytes
        place = (directory, segment_bytes, begin, end)
        seen = self._seen(node, place)
        if self._is_damaged(node, place) or len(seen) < end - begin:
            return
        self._watch.asked(WHOLE_MESSAGES, node)
        if not is_border(seen):
            summary = f"{node} has its log end at {end}, in the midst of a message"
            self._watch.broken(WHOLE_MESSAGES, node, summary, offset=end)

    def queue_offset(
        self, node: str, life: int, topic: str, queue: int, offset: int, wrong: str
    ) -> None:
        """A consume queue gets units from ``offset`` on. ``wrong``: what is, of this one."""
        watch = self._watch
        watch.asked(DENSE_QUEUES, node)
        if wrong and watch.promised.disks and not self._parted:
            summary = f"{node}: offset {offset} of queue {queue} of {topic} {wrong}"
            watch.broken(DENSE_QUEUES, node, summary, offset=offset)

    def confirmed(
        self, node: str, life: int, directory: str, segment_bytes: int, begin: int, end: int
    ) -> None:
        """A master raises its confirm offset from ``begin`` to ``end``."""
        watch = self._watch
        if not watch.promised.disks:
            return
        watch.asked(CONFIRMED_BY_ALL, node)
        for member in self._epochs.members():
            if self._is_damaged(member, (directory, segment_bytes, begin, end)):
                continue
            has = durable_end(self._watch.disk(member), directory, segment_bytes, end)
            if has < end and has < self._whole(node, directory, segment_bytes, end):
                summary = (
                    f"{node} confirms its log up to {end}; {member} is in the SyncStateSet and has"
                    f" it up to {has}"
                )
                watch.broken(CONFIRMED_BY_ALL, node, summary, offset=end)
            place = (directory, segment_bytes, begin, min(end, has))
            if begin < min(end, has) and self._seen(member, place) != self._seen(node, place):
                summary = f"{member} has other bytes than {node} before {end}, which is confirmed"
                watch.broken(EQUAL_LOGS, node, summary, offset=begin)

    def failed_over(self, node: str, life: int, directory: str) -> None:
        """An operator makes a slave the master: what it lacks is lost, and written anew."""
        self._parted[directory] = None

    # -- what is there -----------------------------------------------------------------------------

    def _has_synced(self, node: str, does: str, place: Place) -> None:
        """Everything before the place's end, before it says so."""
        watch, (directory, segment_bytes, _, end) = self._watch, place
        disk = watch.disk(node)
        if not watch.promised.disks or disk.emptied or disk.rotted:
            return
        watch.asked(SYNC_FIRST, node)
        has = durable_end(self._watch.disk(node), directory, segment_bytes, end)
        if has < end:
            summary = f"{node} {does} {end}, and its disk has {has} for sure"
            watch.broken(SYNC_FIRST, node, summary, offset=end)

    def _compare(self, node: str, directory: str, begin: int, own: bytes) -> None:
        """With what the first node let see there."""
        if directory in self._parted:
            return
        self._watch.asked(EQUAL_LOGS, node)
        known = self._confirmed.setdefault(directory, bytearray())
        end = begin + len(own)
        if begin > len(known):
            return  # a log that begins later than the others'
        if known[begin:end] != own[: len(known) - begin]:
            summary = f"{node} lets consumers see other bytes from {begin} to {end} than others do"
            self._watch.broken(EQUAL_LOGS, node, summary, offset=begin)
        elif end > len(known):
            known[begin:end] = own

    def _is_damaged(self, node: str, place: Place) -> bool:
        disk = self._watch.disk(node)
        return any(disk.is_damaged(path) for path, _, _ in self._pieces_of(place))

    def _seen(self, node: str, place: Place) -> bytes:
        disk = self._watch.disk(node)
        return b"".join([disk.seen(*piece) for piece in self._pieces_of(place)])

    def _keeps(self, node: str, place: Place, wanted: bytes) -> bool:
        """Whether a power loss would leave ``wanted`` there."""
        disk, at = self._watch.disk(node), 0
        for path, begin, end in self._pieces_of(place):
            if not disk.keeps_bytes(path, begin, wanted[at : at + end - begin]):
                return False
            at += end - begin
        return True

    def _pieces_of(self, place: Place) -> list[tuple[str, int, int]]:
        """Every disk is asked about one place in turn."""
        if place != self._place:
            self._place, self._pieces = place, list(pieces(*place))
        return self._pieces

    def _whole(self, node: str, directory: str, segment_bytes: int, end: int) -> int:
        """The end of the last message that lies before ``end`` as a whole."""
        at = len(self._confirmed.get(directory, b""))
        while at < end:
            head = self._seen(node, (directory, segment_bytes, at, at + SIZE.size))
            size = SIZE.unpack(head)[0] if len(head) == SIZE.size else 0
            if size <= 0 or at + size > end:
                break
            at += size
        return at


def durable_end(disk: Survival, directory: str, segment_bytes: int, end: int) -> int:
    """Of a log, as far as it goes up to ``end``."""
    for path, _, upto in _backwards(directory, segment_bytes, end):
        size = disk.durable_size(path)
        if size > 0:
            return int(path[-20:]) + min(size, upto)
    return 0


def next_offsets_of(log: bytes) -> dict[tuple[str, int], int]:
    """By topic and queue, as the messages in these bytes have them."""
    found = (one for one in messages_in(log) if not one.is_undecided)
    return {(one.topic, one.queue): one.queue_offset + 1 for one in found}


def _backwards(directory: str, segment_bytes: int, end: int) -> Iterator[tuple[str, int, int]]:
    while end > 0:
        start = (end - 1) - (end - 1) % segment_bytes
        yield from pieces(directory, segment_bytes, start, end)
        end = start
