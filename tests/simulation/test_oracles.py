"""Each oracle inside the simulation: a broker that breaks exactly its promise is found by it alone,
and the sound broker, in the same run, by none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import pytest

from shalott.broker.rabbit.amqp import publishing
from shalott.broker.rabbit.amqp.queue_protocol import Publish
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.replica.mirror import Mirror
from shalott.broker.rabbit.replica.publish_copies import PublishCopies
from shalott.broker.rabbit.storage.entries import Entry
from shalott.broker.rabbit.storage.flusher import Flusher
from shalott.broker.rabbit.storage.message_table import MessageTable
from shalott.broker.raft import api, election, heartbeats, leader
from shalott.broker.raft.applier import Applier
from shalott.broker.raft.state import State
from shalott.broker.rocket.autoswitch.client import AutoSwitchHAClient
from shalott.broker.rocket.autoswitch.copies import Copies
from shalott.broker.rocket.autoswitch.epochs import EpochFileCache
from shalott.broker.rocket.autoswitch.packets import EpochStart
from shalott.broker.rocket.autoswitch.tenure import Tenure
from shalott.broker.rocket.commitlog.consume_queues import QueueSet
from shalott.broker.rocket.commitlog.dispatch import Dispatch
from shalott.broker.rocket.commitlog.segment_writer import SegmentWriter
from shalott.broker.rocket.dledger import ledger
from shalott.broker.rocket.dledger.log import DLedgerLog
from shalott.broker.rocket.ha.group_transfer import GroupTransferService
from shalott.core.oracles import ORACLES
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate

pytestmark = pytest.mark.sim
Patch = pytest.MonkeyPatch
SYSTEMS = ("mirrored", "master-slave", "dledger", "controller")
SOON = ("raft.heartbeat_interval_ms=100", "raft.max_heartbeat_leak=2")
MANUAL = ("ha-sync-mode=manual",)
NAMES = tuple(oracle.name for oracle in ORACLES)


def run(
    system: str, *, policy: tuple[str, ...] = (), workload: str = "", nemesis: str = "kill"
) -> SimOutcome:
    request = Request(
        system=system, workload=workload, profile="safe", cluster="sim", rate=40.0, time_limit="12",
        nemesis=nemesis, targets="master", nemesis_interval="4", nemesis_duration="1",
        policy=policy, given={"enqueue-fraction": "0.95"} if policy == MANUAL else {},
    )  # fmt: skip
    return simulate(make_plan(request, backend="sim", seed=4), stop_early=False)


def found_by_oracles(outcome: SimOutcome) -> list[str]:
    assert outcome.error is None
    results = [result for result in outcome.results if result.checker in NAMES]
    assert [result.checker for result in results] == list(NAMES)
    return sorted({anomaly.kind for result in results for anomaly in result.anomalies})


# -- brokers that break a promise ------------------------------------------------------------------


def acknowledges_without_slaves(patch: Patch) -> None:
    patch.setattr(GroupTransferService, "is_replicated", lambda self, next_offset, ack_nums: True)


def counts_what_is_only_written(patch: Patch) -> None:
    """The log of an acknowledging master is synced late, and said to be synced at once."""

    async def sync(self: SegmentWriter) -> None:
        self.flushed_end = self.written_end

    patch.setattr(SegmentWriter, "sync", sync)


def confirms_before_the_sync(patch: Patch) -> None:
    patch.setattr(Flusher, "durable_mark", property(lambda self: self._journal.mark))


def votes_before_the_sync(patch: Patch) -> None:
    hold = State.hold

    def hold_but_votes(self: State, mark: int, what: object) -> None:
        is_vote = isinstance(getattr(what, "message", None), api.VoteResponse)
        hold(self, 0 if is_vote else mark, what)  # type: ignore[arg-type]

    patch.setattr(State, "hold", hold_but_votes)


def has_entries_before_the_sync(patch: Patch) -> None:
    hold = State.hold

    def hold_but_pushes(self: State, mark: int, what: object) -> None:
        is_push = isinstance(getattr(what, "message", None), api.PushResponse)
        hold(self, 0 if is_push else mark, what)  # type: ignore[arg-type]

    patch.setattr(State, "hold", hold_but_pushes)


def forgets_its_vote(patch: Patch) -> None:
    read = ledger.read_member_state

    async def read_term_only(*args: object, **more: object) -> api.HardState:
        found = await read(*args, **more)  # type: ignore[arg-type]
        return msgspec.structs.replace(found, voted_for="")

    patch.setattr(ledger, "read_member_state", read_term_only)


def applies_other_entries(patch: Patch) -> None:
    """One member, the third that starts, takes entries for another term's."""
    apply, known = Applier._apply, []

    def apply_altered(self: Applier, entries: list[api.Entry], commit_index: int) -> None:
        if self not in known:
            known.append(self)
        shift = int(known.index(self) == 2)
        apply(
            self, [msgspec.structs.replace(e, term=e.term + shift) for e in entries], commit_index
        )

    patch.setattr(Applier, "_apply", apply_altered)


def commits_what_it_finds(patch: Patch) -> None:
    """A new leader takes all that it has for committed."""
    begin = leader.begin_tenure

    def begin_and_commit(s: State) -> None:
        s.commit_to(s.log.last_index)
        begin(s)

    patch.setattr(leader, "begin_tenure", begin_and_commit)


def reads_what_was_committed_before(patch: Patch) -> None:
    """A leader lets a read go with the entry before the last that is committed."""
    begins = heartbeats.round_begins

    def begin_behind(s: State) -> None:
        begins(s)
        for read in s.reads:
            read.index = max(read.index - 1, min(read.index, 0))

    patch.setattr(heartbeats, "round_begins", begin_behind)


def leads_on_alone(patch: Patch) -> None:
    patch.setattr(election, "_check_quorum", lambda s: None)


def reads_alone(patch: Patch) -> None:
    """A leader lets reads go that nobody else has heard of."""
    answered = heartbeats.round_answered

    def answer_at_once(s: State) -> None:
        heard = [replace(p, round=s.round) for p in s.progress.values()]
        answered(replace(s, progress=dict(zip(s.progress, heard, strict=True))))

    patch.setattr(heartbeats, "round_answered", answer_at_once)


def sends_what_it_may_lose(patch: Patch) -> None:
    patch.setattr(Tenure, "sendable", property(lambda self: self.log.max_offset))


def has_bytes_before_the_sync(patch: Patch) -> None:
    """A slave acknowledges what it has got."""

    async def at_once(self: AutoSwitchHAClient, end: int) -> None:
        return None

    patch.setattr(AutoSwitchHAClient, "_safe", at_once)
    patch.setattr(AutoSwitchHAClient, "_safe_offset", lambda self: self._store.log.max_offset)


def flushes_no_queues(patch: Patch) -> None:
    """A checkpoint takes queues for safe that are not."""

    async def later(self: QueueSet) -> None:
        return None

    patch.setattr(QueueSet, "flush", later)


def leaves_offsets_out(patch: Patch) -> None:
    """A new leader gives its first message in each queue the offset after the next one."""
    patch.setattr(QueueSet, "ends", lambda s: {key: one.end + 1 for key, one in s.queues.items()})


def confirms_for_members(patch: Patch) -> None:
    patch.setattr(Copies, "confirmed", lambda self, judged, before: self._log.max_offset)


def dispatches_all_that_is_written(patch: Patch) -> None:
    """A DLedger's log says that all of it is committed."""
    patch.setattr(Dispatch, "_bound", lambda self: self._log.written_offset)
    patch.setattr(
        DLedgerLog, "written_offset", property(lambda self: self._ledger.data.written_offset)
    )


def invents_epochs(patch: Patch) -> None:
    """A master files what it writes under the epoch after the one that it was given."""
    append = EpochFileCache.append

    async def append_next(self: EpochFileCache, entry: EpochStart) -> bool:
        return await append(self, EpochStart(entry.epoch + 1, entry.start_offset))

    patch.setattr(EpochFileCache, "append", append_next)


def counts_unsynchronised_mirrors(patch: Patch) -> None:
    patch.setattr(publishing, "unsynchronised_mirrors", lambda row: [])


def promotes_the_youngest(patch: Patch) -> None:
    patch.setattr(rows, "_successor", lambda row, alive: alive[-1])


def takes_back_as_new(patch: Patch) -> None:
    requeue = MessageTable.requeue

    def forget(self: MessageTable, entry: Entry, *, redelivered: bool) -> None:
        requeue(self, entry, redelivered=False)

    patch.setattr(MessageTable, "requeue", forget)


def drops_nothing(patch: Patch) -> None:
    patch.setattr(Mirror, "_drop", lambda self, instruction: None)


def confirms_before_the_ring(patch: Patch) -> None:
    publish = PublishCopies.publish

    def confirm(self: PublishCopies, message: Publish) -> None:
        publish(self, message)
        self._confirm_or_wait("confirmed", message)

    patch.setattr(PublishCopies, "publish", confirm)


@dataclass(frozen=True, slots=True)
class Plant:
    """``also``: what else must break with it."""

    breaks: Callable[[Patch], None]
    system: str
    kind: str
    also: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    workload: str = ""
    nemesis: str = "kill"


PLANTS = (
    Plant(acknowledges_without_slaves, "controller", "too-few-disks"),
    Plant(votes_before_the_sync, "dledger", "acked-before-sync"),
    # Of tables no client is told: that too few disks have an entry is seen at its commit.
    Plant(has_entries_before_the_sync, "mirrored", "acked-before-sync", ("too-few-disks",)),
    Plant(forgets_its_vote, "dledger", "vote-taken-back"),
    Plant(applies_other_entries, "controller", "replicas-differ"),
    Plant(commits_what_it_finds, "controller", "leader-lacks-committed"),
    Plant(reads_what_was_committed_before, "dledger", "read-without-majority"),
    Plant(
        leads_on_alone, "dledger", "leader-alone", policy=SOON, nemesis="partition-isolate-master"
    ),
    Plant(reads_alone, "dledger", "read-without-majority"),
    Plant(sends_what_it_may_lose, "controller", "acked-before-sync"),
    Plant(
        has_bytes_before_the_sync,
        "controller",
        "acked-before-sync",
        ("confirmed-beyond-member", "dispatched-unconfirmed", "too-few-disks"),
    ),
    Plant(flushes_no_queues, "master-slave", "acked-before-sync"),
    Plant(leaves_offsets_out, "dledger", "queue-offset-wrong"),
    Plant(
        confirms_for_members, "controller", "confirmed-beyond-member", ("dispatched-unconfirmed",)
    ),
    Plant(dispatches_all_that_is_written, "controller", "dispatched-unconfirmed"),
    Plant(dispatches_all_that_is_written, "dledger", "dispatched-unconfirmed"),
    Plant(invents_epochs, "controller", "epoch-went-back"),
    Plant(counts_unsynchronised_mirrors, "mirrored", "unsynchronised-counted", policy=MANUAL),
    Plant(promotes_the_youngest, "mirrored", "unsynchronised-counted", policy=MANUAL),
    Plant(
        confirms_before_the_sync,
        "mirrored",
        "acked-before-sync",
        ("journal-differs", "too-few-disks"),
    ),
    Plant(drops_nothing, "mirrored", "mirror-differs"),
    Plant(confirms_before_the_ring, "mirrored", "mirror-differs"),
    Plant(takes_back_as_new, "mirrored", "flag-forgotten", ("heritage-lost",), workload="consume"),
    Plant(
        counts_what_is_only_written,
        "master-slave",
        "acked-before-sync",
        ("dispatched-unconfirmed", "too-few-disks"),
    ),
)


@pytest.mark.parametrize(
    "plant", PLANTS, ids=lambda plant: f"{plant.system}-{plant.breaks.__name__}"
)
def test_its_planted_failure_is_found(plant: Plant, monkeypatch: Patch) -> None:
    plant.breaks(monkeypatch)
    outcome = run(plant.system, policy=plant.policy, workload=plant.workload, nemesis=plant.nemesis)
    assert found_by_oracles(outcome) == sorted((plant.kind, *plant.also))


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_sound_broker_keeps_all_promises_and_is_asked(system: str) -> None:
    outcome = run(system)
    assert found_by_oracles(outcome) == []
    asked = {r.checker for r in outcome.results if r.counts.get("asked-count", 0) > 0}
    of_logs = {"disk-copies", "equal-logs", "dispatched-confirmed", "dense-queues"}
    of_transactions, of_commit_log = {"commits-stored"}, {"whole-messages"}
    told = {"answers-due", "heirs-complete", "journals-true", "prefetch-true"}
    of_queues = {"synchronised-only", "flags-kept", "mirrors-agree", *told}
    of_raft = {"votes-kept", "leaders-complete", "leaders-heard"}
    expected = {
        "mirrored": {"disk-copies", "sync-first", "equal-logs", *of_queues, *of_raft},
        "master-slave": {*of_logs, *of_commit_log, "sync-first"},
        "dledger": {*of_logs, *of_raft, "sync-first", "reads-led"},
        "controller": {*NAMES} - of_queues - of_transactions,
    }
    assert asked & {*NAMES} == expected[system]


def test_a_cluster_that_never_has_a_leader_is_stuck(monkeypatch: Patch) -> None:
    """Before any fault, and with nothing real around it, that is the broker's doing."""
    monkeypatch.setattr(election, "take_vote", lambda state, voter: None)
    outcome = run("dledger")
    assert outcome.error is None and outcome.valid is False and "stuck" in outcome.anomalies
    (liveness,) = [result for result in outcome.results if result.checker == "liveness"]
    assert "no node is the master" in liveness.anomalies[0].summary
