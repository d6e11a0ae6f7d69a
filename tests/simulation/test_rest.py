"""A broker that forgets to answer, or to remember: at rest its nodes are found to wait, or to have
in memory what their disks have not. The sound one is at rest in the same runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec
import pytest

from shalott.broker.base import files
from shalott.broker.base.disk import Disk
from shalott.broker.rabbit.amqp.confirms import UnconfirmedMessages
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.records import QueueRow
from shalott.broker.rabbit.mirrored import rows
from shalott.broker.rabbit.processes.messages import Pid
from shalott.broker.rabbit.replica.consumers import Consumers
from shalott.broker.raft.api import Entry
from shalott.broker.raft.applier import Applier
from shalott.broker.raft.group import Submitted
from shalott.broker.rocket.autoswitch import epochs
from shalott.broker.rocket.commitlog.replica import PutResult, PutStatus
from shalott.broker.rocket.controller.replicated_state import ReplicatedState
from shalott.broker.rocket.controller.state import SyncStateInfo
from shalott.broker.rocket.processor.transactions import Transactions
from shalott.harness.run.planning import make_plan
from shalott.harness.run.request import Request
from shalott.harness.run.simulate import SimOutcome, simulate

pytestmark = pytest.mark.sim
Patch = pytest.MonkeyPatch


def run(system: str, workload: str, **given: str | bool) -> SimOutcome:
    request = Request(
        system=system, workload=workload, profile="safe", cluster="sim", rate=40.0, time_limit="6",
        nemesis="none", given=given, op_timeout="2",
    )  # fmt: skip
    plan = make_plan(request, backend="sim", seed=4)
    gates = msgspec.structs.replace(plan.gates, must_settle=True)
    return simulate(msgspec.structs.replace(plan, gates=gates), stop_early=False)


def forgets_a_confirm(patch: Patch) -> None:
    confirm = UnconfirmedMessages.confirm
    heard: list[Iterable[int]] = []

    def confirm_but_one(self: UnconfirmedMessages, process: Pid, seqs: Iterable[int]) -> None:
        heard.append(seqs)
        if len(heard) != 30:
            confirm(self, process, seqs)

    patch.setattr(UnconfirmedMessages, "confirm", confirm_but_one)


def drops_an_acknowledgement(patch: Patch) -> None:
    """Its channel is rid of the delivery, and the queue keeps the message."""
    settle = Consumers.settle
    settled: list[Pid] = []

    def settle_but_one(self: Consumers, channel: Pid, ack_ids: tuple[int, ...]) -> list[int]:
        settled.append(channel)
        found = settle(self, channel, ack_ids)
        return [] if len(settled) == 5 else found

    patch.setattr(Consumers, "settle", settle_but_one)


def keeps_epochs_in_memory(patch: Patch) -> None:
    replace = files.replace_file

    async def replace_by_nothing(disk: Disk, path: str, data: bytes) -> None:
        await replace(disk, path, epochs.encode(()))

    patch.setattr("shalott.broker.rocket.autoswitch.epochs.replace_file", replace_by_nothing)


def keeps_tables_in_memory(patch: Patch) -> None:
    replace = files.replace_file
    written: dict[tuple[int, str], None] = {}

    async def replace_once(disk: Disk, path: str, data: bytes, *, keep_former: bool) -> None:
        if (id(disk), path) not in written:
            written[id(disk), path] = None
            await replace(disk, path, data, keep_former=keep_former)

    patch.setattr("shalott.broker.rocket.processor.table_files.replace_file", replace_once)


def answers_no_proposal(patch: Patch) -> None:
    await_commit = Applier.await_commit
    seen: list[Submitted] = []

    def await_never(self: Applier, submitted: Submitted) -> None:
        seen.append(submitted)
        if len(seen) == 20:
            self._submitted.setdefault(0, []).append(submitted)
        else:
            await_commit(self, submitted)

    patch.setattr(Applier, "await_commit", await_never)


def decides_otherwise_on_one(patch: Patch) -> None:
    apply = ReplicatedState.apply
    applied: list[ReplicatedState] = []

    def apply_but_one(self: ReplicatedState, entries: Sequence[Entry]) -> None:
        applied.append(self)
        apply(self, entries)
        if self is applied[0]:
            self.applied.cleaned["another"] = SyncStateInfo()

    patch.setattr(ReplicatedState, "apply", apply_but_one)


def notes_nothing(patch: Patch) -> None:
    """What a transaction came to is in memory only."""

    async def note(self: Transactions, queue_offset: int) -> PutResult:
        return PutResult(PutStatus.PUT_OK)

    patch.setattr(Transactions, "_note", note)


def stores_another_master(patch: Patch) -> None:
    """A restarted cluster would recover the queue from a process of a former life."""
    store = rows.store

    def store_otherwise(tx: Transaction, row: QueueRow) -> QueueRow:
        stored = store(tx, row)
        durable = rows.read_durable(tx, row.key)
        if durable is not None:
            former = msgspec.structs.replace(row.pid, incarnation=row.pid.incarnation - 1)
            tx.write(rows.DURABLE, row.key, msgspec.structs.replace(durable, pid=former))
        return stored

    patch.setattr(rows, "store", store_otherwise)


BROKEN: tuple[tuple[Callable[[Patch], None], str, str, str], ...] = (
    (forgets_a_confirm, "mirrored", "queue", "has told its client nothing of 1 publishes"),
    (drops_an_acknowledgement, "mirrored", "queue", "1 messages unsettled, and gave clients 0"),
    (stores_another_master, "mirrored", "queue", "would be recovered from"),
    (keeps_epochs_in_memory, "controller", "log", "other epochs in memory than on its disk"),
    (keeps_tables_in_memory, "master-slave", "log", "another config/topics.json in memory"),
    (answers_no_proposal, "dledger", "log", "1 proposals and reads have no answer"),
    (decides_otherwise_on_one, "controller", "log", "something else of the same decisions"),
    (notes_nothing, "master-slave", "log", "counts as ended, and its log has no note of it"),
)


@pytest.mark.parametrize(
    ("breaks", "system", "workload", "sentence"), BROKEN, ids=[one[0].__name__ for one in BROKEN]
)
def test_what_is_not_at_rest_is_told(
    monkeypatch: Patch,
    breaks: Callable[[Patch], None],
    system: str,
    workload: str,
    sentence: str,
) -> None:
    given: dict[str, str | bool] = {"patient": True} if system == "mirrored" else {}
    if breaks is notes_nothing:
        given = {"transactional": "0.3"}
    breaks(monkeypatch)
    outcome = run(system, workload, **given)
    assert outcome.error is None
    stuck = [
        anomaly.summary
        for result in outcome.results
        if result.checker == "liveness"
        for anomaly in result.anomalies
    ]
    assert any("at rest: " in one and sentence in one for one in stuck), stuck


@pytest.mark.parametrize(
    ("system", "workload"), (("mirrored", "queue"), ("controller", "log"), ("dledger", "log"))
)
def test_the_sound_broker_is_at_rest(system: str, workload: str) -> None:
    outcome = run(system, workload)
    assert outcome.valid is True
