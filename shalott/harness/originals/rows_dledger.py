"""Rows of DLedger, RocketMQ's Raft: 0.2.6 (in 4.9), 0.3.1 (in 5.0.0 and 5.1.0), 0.3.1.2 (in 5.1.1
to 5.3.3) and 0.3.2 (in 5.4.0 and 5.5.0)."""

from __future__ import annotations

from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, fault, releases
from shalott.harness.originals.rows_controller import EVERYWHERE

DLEDGER_ROWS: tuple[Row, ...] = (
    Row(
        id="M-DL-TOPIC",
        title="A topic that was made and used is gone with its messages when its master dies",
        has=releases(),
        read_in="broker/slave/SlaveSynchronize.java: topics are copied on a timer alone, of 10 s",
        setup=Setup(
            replication="dledger",
            topic_made_at="master",
            time_limit_ms=30_000,
            quiet_ms=0,
            rate_hz=80,
            max_rto_ms=20_000,
            policy={"autoCreateTopicEnable": False},
        ),
        faults=(fault(1, "kill", "master", 1000, 18_000),),
        shows=Shows(
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20),
        ),
        run_on="5.3.3",
        control_told=EVERYWHERE,
        why="As KB-RKT-36, with DLedger: the log has every message on a majority, and no broker "
        "knows the topic any more.",
    ),
    Row(
        id="KB-DL-16",
        has=releases("4.9.4", "5.2.0"),
        free=releases("5.3.3"),
        read_in="store/dledger/DLedgerCommitLog.java, recover: always as after an orderly stop; "
        "5.2.0 was to mend it (646e2a4942, #7599), but dledgerRecoverAbnormally wants marks of "
        "duplication in every message, which only some settings write, and stops at the first (run:"
        " pos=310); 5.3.3 wants them under those settings",
        setup=Setup(
            replication="dledger",
            time_limit_ms=36_000,
            rate_hz=100,
            clients_a_node=4,
            power_loss="drop",
        ),
        faults=(fault(1, "power-all", "all", 10_000, 1000, nodes=("n1", "n2", "n3")),),
        shows=Shows(anomalies=("lost-on-node", "lost-write", "inconsistent-offsets")),
        run_on="5.1.4",
        control_on="5.3.3",
        why="All members lose their power under load. Their logs are synced every few ms, their "
        "queues every minute: what is in the log and not in the queues must be put there at the "
        "start. (Kills alone lose nothing of the queues: one run of two kills showed nothing.)",
        ours=Ours(system="dledger", bug="KB-DL-16"),
    ),
    Row(
        id="KB-DL-15",
        has=releases(),
        read_in="dledger/DLedgerEntryPusher.java, EntryHandler.handlePush: what came before its "
        "turn stays in the table, and its repetition is refused as REPEATED_PUSH",
        setup=Setup(
            replication="dledger",
            time_limit_ms=45_000,
            rate_hz=120,
            clients_a_node=4,
            must_settle=True,
            settle_timeout_ms=30_000,
        ),
        faults=(
            fault(1, "kill", "n3", 2000, 6000),
            *(fault(number, "pause", "n3", 4000 + 6000 * number, 2500) for number in range(2, 7)),
        ),
        shows=Shows(
            anomalies=("stuck",),
            lines=Lines(pattern="REPEATED_PUSH|repeated push", least=20),
        ),
        run_on="5.3.3",
        why="A follower stands still for longer than a push may take, again and again.",
        ours=Ours(system="dledger", bug="KB-DL-15"),
    ),
    Row(
        id="KB-DL-22",
        has=releases(),
        read_in="broker/processor/PullMessageProcessor.java: whoever takes itself for the leader "
        "answers from its own store",
        setup=Setup(replication="dledger", time_limit_ms=45_000, rate_hz=120, clients_a_node=3),
        faults=(
            fault(1, "pause", "master", 5000, 12_000),
            fault(2, "pause", "master", 25_000, 12_000),
        ),
        shows=Shows(anomalies=("stale-read",), fresh_reads=True),
        run_on="5.3.3",
        why="The leader stands still until another one is elected and has acknowledged messages. "
        "When it goes on, it answers polls until it hears of the new term.",
        ours=Ours(system="dledger", bug="KB-DL-22", policy={"raft.read_index": True}),
    ),
)
