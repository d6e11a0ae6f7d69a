"""What oracles take for broken, and what not, where a whole run seldom shows it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shalott.broker.base.batches import encode_batch
from shalott.broker.rabbit.amqp.queue_protocol import Content
from shalott.broker.rabbit.storage.queue_index import (
    Closed,
    Opened,
    Published,
    QueueRecord,
    Removed,
    encode_record,
)
from shalott.broker.rocket.commitlog.api import Message
from shalott.broker.rocket.commitlog.codec import Encoder
from shalott.broker.rocket.dledger.entry import NO_OP
from shalott.cluster.sim.oracles.journals import EVERY
from shalott.cluster.sim.oracles.logs import next_offsets_of
from tests.world.cluster.oracles import World

pytestmark = pytest.mark.unit
LOG = "store/commitlog", 1 << 20


Tell = Callable[[World], Any]


def follow(epoch: int) -> Tell:
    return lambda w: w.epochs.followed("n1", 1, "g", epoch)


def send(begin: int, end: int, epoch: tuple[int, int]) -> Tell:
    return lambda w: w.logs.sends("n1", 1, *LOG, begin, end, epoch)


def learn(*epochs: int, members: tuple[int, ...] = (1, 2)) -> Tell:
    return lambda w: [w.epochs.learnt("n1", 1, "g", epoch, members) for epoch in epochs]


def vote(theirs: tuple[int, int], own: tuple[int, int], term: int = 5) -> Tell:
    def tell(w: World) -> None:
        w.raft.voted("n1", 1, "log", term, "n1", theirs, "", b"")
        w.raft.voted("n2", 1, "log", term, "n1", own, "", b"")

    return tell


def vote_in(*terms: int) -> Tell:
    return lambda w: [w.raft.voted("n2", 1, "log", term, "n2", (1, 1), "", b"") for term in terms]


def read(*answers: tuple[str, int]) -> Tell:
    def tell(w: World) -> None:
        w.raft.follows("n2", 1, "log", 5)
        w.raft.asked("n1", 1, "log", 9, 3)
        for node, term in answers:
            w.raft.follows(node, 1, "log", term)
        w.raft.read("n1", 1, "log", 9, 5, 0)

    return tell


def deliver(again_at: str) -> Tell:
    """A master delivers a message to a client at n2, flagged, and then as new."""

    def tell(w: World) -> None:
        w.queues.role("n1", 1, "q@/", "p", True, "queues/q")
        w.queues.delivered("n2", 1, "p", 7, True)
        w.queues.delivered(again_at, 1, "p", 7, False)

    return tell


def messages(own: Sequence[int]) -> list[tuple[int, bool, bool]]:
    """Below zero: unacknowledged. 3 expires."""
    return [(abs(one), one > 0, one == 3) for one in own]


def mirror(own: Sequence[int], lacks: int | None, payload: bytes = b"4") -> Tell:
    """Its master said four things, and had 1, -2, 3 after the last."""

    def tell(w: World) -> None:
        w.mirrors.replica("n1", 1, "master", lambda: messages([1, -2, 3]))
        w.mirrors.replica("n2", 1, "mirror", lambda: messages(own))
        for said in (b"1", b"2", b"again", b"4"):
            w.mirrors.told("n1", 1, "master", said)
        w.mirrors.heard("n2", 1, "mirror", "master", b"again", lacks)
        w.mirrors.heard("n2", 1, "mirror", "master", payload, lacks)

    return tell


def confirm(
    *sent_to: str, brought: bool, lacks: int | None = 0, held: tuple[int, ...] = (7,)
) -> Tell:
    """A master confirms message 7 with a mirror in its ring."""

    def tell(w: World) -> None:
        mirror([1, -2, 3], lacks)(w)
        w.watch.summaries.clear()
        w.mirrors.replica("n1", 1, "master", lambda: messages(held))
        w.mirrors.sent("n1", 1, 7, {"q@/": ["master", *sent_to]})
        if brought:
            w.mirrors.brought("n2", 1, "mirror", 7)
        w.mirrors.master_confirms("n1", 1, "master", 7, lambda: ["mirror"])

    return tell


def mirror_confirms(brought: int) -> Tell:
    def tell(w: World) -> None:
        w.mirrors.brought("n2", 1, "mirror", brought)
        w.mirrors.mirror_confirms("n2", 1, "mirror", 7)

    return tell


def restart(last: int, cut_from: int = 9) -> Tell:
    """A member that acknowledged up to entry 7 comes back with so many."""

    def tell(w: World) -> None:
        w.raft.holds("n1", 1, "log", 5, 7, "", b"text")
        w.watch.summaries.clear()  # its disk is empty here
        w.raft.cut("n1", 1, "log", cut_from)
        w.raft.began("n1", 2, "log", 5, "", last)

    return tell


def acknowledge(term: int, own: int) -> Tell:
    """A follower that is in term ``own`` acknowledges entries in ``term``."""

    def tell(w: World) -> None:
        w.raft.term("n1", 1, "log", own)
        w.raft.holds("n1", 1, "log", term, 7, "", b"")

    return tell


def answer(*seqs: int, ack: bool = True, multiple: bool = False) -> Tell:
    """Of three publishes the first is decided by one of two queues, and the others by all."""

    def tell(w: World) -> None:
        for seq, queues in ((1, ("a", "b")), (2, ()), (3, ("a",))):
            w.verdicts.published("n1", 1, "channel", seq, queues)
            w.verdicts.counted("n1", 1, "channel", seq, "a", ["p"])
        for seq in seqs:
            w.verdicts.answered("n1", 1, "channel", seq, ack, multiple)

    return tell


def count(index: int, term: int = 5) -> Tell:
    """A leader, of a follower that acknowledged seven entries in term 5."""

    def tell(w: World) -> None:
        w.raft.holds("n2", 1, "log", 5, 7, "", b"")
        w.raft.counts("n1", 1, "log", term, "n2", index)

    return tell


def commit(*counted: str) -> Tell:
    def tell(w: World) -> None:
        w.verdicts.published("n1", 1, "channel", 1, ["a", "b"])
        for queue in counted:
            w.verdicts.counted("n1", 1, "channel", 1, queue, ["p"])
        w.verdicts.committed("n1", 1, "channel")

    return tell


def wait_for(*members: int, reports: int = 0, refused: int = 0, life: int = 2) -> Tell:
    """The set is 1 and 2. Its master, in its second life, asked for one with 3, too."""

    def tell(w: World) -> None:
        w.sets.decided("c1", 4, 1, 9, (1,), {1: "n1"})
        w.sets.decided("c1", 4, 1, 10, (1, 2), {1: "n1"})
        for _ in range(reports):
            w.sets.reported("n1", life, 4, 10, (1, 2, 3))
        for _ in range(refused):
            w.sets.refused("n1", life, 4, 10, (1, 2, 3))
        w.sets.waits_for("n1", 2, 4, members)

    return tell


def promote(
    *taken: int, owes: Sequence[int] = (8, 9), flagged: bool = True, before: str = ""
) -> Tell:
    """Channels sent messages 7, 8 and 9; the ring brought 8, and 7 wants no confirm."""

    def tell(w: World) -> None:
        for number in (7, 8, 9):
            w.heirs.takes("n2", 1, "mirror", number, number > 7)
        w.heirs.brought("n2", 1, "mirror", 8)
        if before == "forgets":
            w.heirs.forgets("n2", 1, "mirror", [9])
        elif before:
            w.heirs.answers("n2", 1, "mirror", 9)
        for number in taken:
            w.heirs.master_takes("n2", 1, "mirror", number)
        w.heirs.succeeded("n2", 1, "mirror", lambda: list(owes), lambda: [(7, flagged)])

    return tell


def elect(master: int | None, *members: int) -> Tell:
    return lambda w: w.sets.decided("c1", 4, master, 8, members, {})


def log_of(end: int) -> Tell:
    """Two messages of the same size, and a log that ends at ``end``."""

    def tell(w: World) -> None:
        message = Message(topic="t", queue_id=3, body=b"body", prepared_transaction_offset=40)
        stored = b"".join([Encoder(100).encode(message, 0, offset, 7) for offset in (0, 1)])
        w.watch.all_disks.content = stored
        w.logs.ends("n1", 1, *LOG, len(stored) + end)

    return tell


def cut_log(kept: str) -> Tell:
    def tell(w: World) -> None:
        w.watch.all_disks.kept = kept
        w.logs.cut("n1", 1, *LOG, 0)

    return tell


def stay(master: str) -> Tell:
    def tell(w: World) -> None:
        w.heirs.deaths("n2", 1, "mirror", ["dead"])
        w.heirs.deaths("n2", 1, "mirror", ["other"])
        w.heirs.stays("n2", 1, "mirror", master)

    return tell


def note(*, commits: bool, half: int | None) -> Tell:
    """A master decides a transaction whose half message lies at 40, has the whole one of ``half``
    acknowledged, and notes that."""

    def tell(w: World) -> None:
        log_of(0)(w)
        w.decisions.decides("n1", 1, 9, 40 if half is None else half, commits)
        if half is not None:
            w.decisions.acked("n1", 1, *LOG, 0, 1000)
        w.decisions.notes("n1", 1, 9)

    return tell


def stop(*left: str, first: str = "", reason: str = "shutdown", synchronised: bool = False) -> Tell:
    """A master that sees one mirror stops in order."""

    def tell(w: World) -> None:
        w.queues.synchronised("n2", 1, "q@/", "mirror", synchronised)
        w.queues.stops("n1", 1, "q@/", "master", True, ["mirror"])
        if first:
            w.queues.stopped("n2", 1, "q@/", first, "stopped by its master", [])
        w.queues.stopped("n1", 1, "q@/", "master", reason, left)

    return tell


def copy(epoch: int, role: str = "slave") -> Tell:
    def tell(w: World) -> None:
        w.epochs.role("n1", 1, "g", role, 3)
        w.epochs.copied("n1", 1, epoch)

    return tell


def synchronise(own: Sequence[int], *, done: bool, since: Sequence[int] = (1, 2, 3)) -> Tell:
    """By a master that had 1, 2 and 3."""

    def tell(w: World) -> None:
        w.mirrors.replica("n1", 1, "master", lambda: messages([1, 2, 3]))
        w.mirrors.sync_began("n1", 1, "master", 5)
        w.mirrors.replica("n1", 1, "master", lambda: messages(since))
        w.mirrors.replica("n2", 1, "mirror", lambda: messages(own))
        w.mirrors.sync_ended("n2", 1, "mirror", 5, done, 0)

    return tell


def recover(
    *flags: tuple[int, bool],
    last: int = 3,
    given: Sequence[int] = (2,),
    then: Sequence[QueueRecord] = (Opened(),),
    confirms: int = 0,
) -> Tell:
    """A queue whose journal has 1, flagged, and 2, and of 3 that it is gone. ``given``: what was
    delivered when it was closed."""

    def tell(w: World) -> None:
        contents = [Content(number, "", "q", b"", b"", True) for number in (1, 2, 3)]
        records = [Published(c.id, c.id == 1, c) for c in contents]
        written = [*records, Removed([3]), Closed(list(given)), *then]
        w.watch.all_disks.content = encode_batch(0, [encode_record(one) for one in written])
        for _ in range(EVERY if confirms else 0):
            w.journals.durable("n1", 1, "q@/", "queues/q", confirms)
        w.journals.recovered("n1", 1, "q@/", "queues/q", last, lambda: list(flags))

    return tell


AS_BEFORE = ((1, True), (2, True))
SOUND: dict[str, Tell] = {
    "a follower acknowledges in its term": acknowledge(5, 5),
    "a leader counts what was acknowledged": count(7),
    "a leader that leads no more": count(0, term=6),
    "a master waits for the set": wait_for(1, 2),
    "it waits for what it asks for": wait_for(1, 2, 3, reports=1),
    "all reports were refused": wait_for(1, 2, reports=2, refused=2),
    "a master out of the set": elect(2, 2),
    "nobody of the set can follow": elect(None, 1, 2),
    "a log ends between messages": log_of(0),
    "a log is cut, and its disk too": cut_log(""),
    "a rollback is noted": note(commits=False, half=None),
    "a commit that is stored is noted": note(commits=True, half=40),
    "a slave copies tables": copy(3),
    "a table is written": lambda w: w.decisions.written("n1", 1, "config/topics.json", b""),
    "an acknowledgement of what is decided": answer(3, 2),
    "a refusal of what is not": answer(1, ack=False),
    "an acknowledgement of many, behind a refusal": lambda w: (
        answer(1, ack=False)(w),
        w.verdicts.answered("n1", 1, "channel", 3, True, True),
    ),
    "a commit that all queues have": commit("a", "b"),
    "what a client holds": lambda w: w.verdicts.prefetch("n1", 1, "channel", 3, lambda: 3),
    "an heir sees to all": promote(7, 9),
    "it confirmed one before": promote(7, 9, owes=[8], before="answers"),
    "the channel of one is dead": promote(7, owes=[8], before="forgets"),
    "it follows another": stay("third"),
    "a master that stops ends its mirror": stop("mirror", first="mirror"),
    "it is no mirror any more": stop(),
    "a master leaves the queue to one that has all": stop("mirror", synchronised=True),
    "it crashes before it is done": stop("mirror", reason="crash"),
    "a mirror gets all": synchronise([1, 2, 3], done=True),
    "it gets what is left": synchronise([2, 3], done=True, since=[2, 3, 4]),
    "it starts anew": synchronise([], done=False),
    "a queue is recovered": recover(*AS_BEFORE, confirms=2),
    "it knows what was delivered": recover((1, True), (2, False), given=[]),
    "it rests": lambda w: (
        recover(*AS_BEFORE)(w),
        w.journals.rests("n1", 1, "q@/", "queues/q", [1, 2], 3),
    ),
    "it was open": recover(*AS_BEFORE, given=[], then=[Opened(), Removed([3])]),
    "a member comes back with what it acknowledged": restart(7),
    "it was told to give up some of it": restart(4, cut_from=5),
    "a mirror has all": mirror([1, -2, 3], 0),
    "a mirror has the newest": mirror([-2, 3], 1),
    "a mirror does not know yet what it lacks": mirror([3], None),
    "a mirror heard what was not told": mirror([9], 0, b"unheard of"),
    "a mirror has more than one that was promoted behind": lambda w: (
        w.mirrors.heard("n1", 1, "master", "dead", b"", 1),
        mirror([9, 1, -2, 3], 0)(w),
    ),
    "a mirror confirms what the ring brought": mirror_confirms(7),
    "the ring was waited for": confirm(brought=True),
    "the channel sent it to the mirror": confirm("mirror", brought=False),
    "what is consumed already": confirm(brought=False, held=()),
    "a mirror that counts for nothing": confirm(brought=False, lacks=None),
    "a slave follows the newest": follow(3),
    "a log is cut behind its last epoch": lambda w: w.epochs.cut("n1", 1, 101),
    "bytes of one epoch": send(20, 100, (1, 0)),
    "an epoch begins on the disk": lambda w: w.logs.reigns("n1", 1, *LOG, 3, 100),
    "the set of now, and a newer one": learn(7, 8),
    "a slave hears of another": lambda w: w.epochs.heard("n1", 1, "g", 3, "slave", 2),
    "a master hears of one that was": lambda w: w.epochs.heard("n1", 1, "g", 2, "master", 3),
    "a vote for an equal log": vote((4, 8), (4, 8)),
    "a voter that has the candidate's first entries by now": vote((4, 8), (5, 9)),
    "terms rise": vote_in(4, 5, 7),
    "a majority answered since": read(("n3", 5)),
    "a delivery to another node that was on its way": deliver("n3"),
    "a leader that hears a majority": lambda w: w.raft.leads("n1", 1, "log", 5, 3, 2),
}
BROKEN: dict[str, Tell] = {
    "a term forgotten in memory": lambda w: [w.raft.term("n1", 1, "log", n) for n in (5, 4)],
    "a follower acknowledges in a former term": acknowledge(4, 5),
    "a leader counts more": count(8),
    "a leader counts what was acknowledged in another term": count(7, term=6),
    "a master waits for less than the set": wait_for(1),
    "a master forgets what it asked for": wait_for(1, 2, reports=1),
    "one of two reports was refused": wait_for(1, 2, reports=2, refused=1),
    "a master forgets what it asked for before it was killed": wait_for(1, 2, reports=1, life=1),
    "a master from elsewhere": elect(3, 3),
    "the set goes with its master": elect(None),
    "a log ends in a message": log_of(-1),
    "a log is cut in memory": cut_log(f"{LOG[0]}/{0:020d}"),
    "a commit is noted first": note(commits=True, half=None),
    "another commit is stored": note(commits=True, half=41),
    "a slave copies tables of the epoch before": copy(2),
    "a master copies tables": copy(3, "master"),
    "a table is not written": lambda w: w.decisions.written("n1", 1, "config/topics.json", b"{}"),
    "an acknowledgement of what is not decided": answer(1),
    "an acknowledgement of many, and one is not": answer(3, multiple=True),
    "a second answer": answer(3, 3),
    "a commit that one queue has not": commit("a"),
    "more than a client holds": lambda w: w.verdicts.prefetch("n1", 1, "channel", 3, lambda: 2),
    "an heir drops what the ring had not brought": promote(9),
    "an heir forgets a confirm": promote(7, 9, owes=[9]),
    "an heir takes one for new": promote(7, 9, flagged=False),
    "it stays with a dead master": stay("dead"),
    "a master leaves the queue to one that lacks messages": stop("mirror"),
    "a mirror gets less": synchronise([1, 2], done=True),
    "a mirror keeps a part": synchronise([1], done=False),
    "a recovered queue lacks one": recover((1, True)),
    "it has one more": recover(*AS_BEFORE, (3, True)),
    "it takes one for new": recover((1, True), (2, False)),
    "nobody knows what was delivered": recover(
        (1, True), (2, False), given=[], then=[Opened(), Removed([3])]
    ),
    "it gives a number again": recover(*AS_BEFORE, last=2),
    "the next life gives a number again": lambda w: (
        recover(*AS_BEFORE)(w),
        w.journals.rests("n1", 1, "q@/", "queues/q", [1, 2], 2),
    ),
    "it holds more than a restart would find": lambda w: (
        recover(*AS_BEFORE)(w),
        w.journals.rests("n1", 1, "q@/", "queues/q", [1, 2, 3], 3),
    ),
    "its journal is closed": recover(*AS_BEFORE, then=()),
    "it confirms what is gone": recover(*AS_BEFORE, confirms=3),
    "a member forgets what it acknowledged": restart(6),
    "a mirror has the oldest": mirror([1, -2], 1),
    "a mirror has more": mirror([9, 1, -2, 3], 0),
    "a mirror has one ready that is not": mirror([2, 3], 1),
    "a mirror has one for ever that expires": lambda w: (
        mirror([1, -2, 3], 0)(w),
        w.mirrors.replica("n2", 1, "mirror", lambda: [(1, True, False), (2, False, False)]),
        w.mirrors.replica("n1", 1, "master", lambda: [(1, True, False), (2, False, True)]),
        [w.mirrors.told("n1", 1, "master", said) for said in (b"5", b"6", b"7", b"8")],
        w.mirrors.heard("n2", 1, "mirror", "master", b"8", 0),
    ),
    "a mirror counts wrong": mirror([-2, 3], 0),
    "a mirror confirms before the ring": mirror_confirms(6),
    "the ring was not waited for": confirm(brought=False),
    "a slave follows one older than its log": follow(2),
    "a slave has an older role": lambda w: w.epochs.role("n1", 1, "g", "slave", 2),
    "an epoch of what was cut": lambda w: w.epochs.cut("n1", 1, 100),
    "bytes of two epochs as of one": send(20, 101, (1, 0)),
    "bytes as of the epoch before": send(100, 120, (1, 0)),
    "bytes that may be lost": send(490, 501, (3, 100)),
    "an epoch begins in memory": lambda w: w.logs.begins("n1", 1, *LOG, 3, 501),
    "an epoch begins elsewhere": lambda w: w.logs.reigns("n1", 1, *LOG, 3, 99),
    "an older set": learn(8, 7),
    "a set that was not decided": learn(7, members=(1,)),
    "a master goes on": lambda w: w.epochs.heard("n1", 1, "g", 3, "master", 2),
    "a slave's log in memory": lambda w: w.logs.holds("n1", 1, *LOG, 501),
    "a checkpoint of memory": lambda w: w.logs.checkpoint("n1", 1, [(*LOG, 501)]),
    "a vote for a shorter log": vote((4, 7), (4, 8)),
    "a vote for an older log": vote((3, 9), (4, 8)),
    "a term taken back": vote_in(5, 4),
    "a heartbeat in an older term": lambda w: (vote_in(5)(w), w.raft.follows("n2", 1, "log", 4)),
    "nobody answered since": read(),
    "a majority answered another leader": read(("n2", 6), ("n3", 6)),
    "a delivery as new behind a flagged one": deliver("n2"),
    "a leader that hears nobody": lambda w: w.raft.leads("n1", 1, "log", 5, 3, 1),
}


@pytest.mark.parametrize("name", SOUND)
def test_it_is_sound(name: str) -> None:
    world = World()
    SOUND[name](world)
    assert world.watch.summaries == []


@pytest.mark.parametrize("name", BROKEN)
def test_it_is_broken(name: str) -> None:
    world = World()
    BROKEN[name](world)
    assert len(world.watch.summaries) == 1


@pytest.mark.parametrize("host", [("10.0.0.1", 1), ("fe80::1", 2)])
@pytest.mark.parametrize("topic", ["t", "long" * 50])
def test_queue_offsets_are_read_from_messages_as_they_are_stored(
    topic: str, host: tuple[str, int]
) -> None:
    message = Message(topic=topic, queue_id=3, body=b"body" * 9, born_host=host, store_host=host)
    stored = [Encoder(100).encode(message, 50, offset, 7) for offset in (4, 5)]
    assert next_offsets_of(b"header".join([b"", *stored, b"rest"])) == {(topic, 3): 6}


def test_what_no_queue_gets_has_no_queue_offset() -> None:
    message = Message(topic="t", queue_id=0, body=b"body", sys_flag=0x8)
    stored = Encoder(100).encode(message, 0, 4, 7)
    assert next_offsets_of(NO_OP + stored + NO_OP) == {("t", 0): 5}


def test_bytes_that_are_no_messages_have_no_queue_offsets() -> None:
    assert next_offsets_of(b"") == {}
    assert next_offsets_of(bytes(5) + b"\xda\xa3\x20\xa7" + bytes(40)) == {}
