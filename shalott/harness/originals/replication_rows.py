"""Rows of masters with slaves, of losses of power, and of DLedger.

Masters and slaves are HAService's, which 4.9 and 5.x have alike in the main. A loss of power takes
of every file the calls after some one (``power_loss="drop"``, docs/explanation/disks.md). RocketMQ
syncs its logs, and never its tables: topics may be gone after it. Where a plan is not about that,
topics are made anew by the first message (autoCreateTopicEnable, by default true), and their queues
lie there still. DLedger, RocketMQ's Raft, is 0.2.6 in 4.9, 0.3.1 in 5.0.0 and 5.1.0, 0.3.1.2 in
5.1.1 to
5.3.3, and 0.3.2 in 5.4.0 and 5.5.0.
"""

from __future__ import annotations

from shalott.harness.originals.controller_rows import EVERYWHERE
from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, fault, releases

# What a master has written stays unsynced for seconds, as on a busy disk.
LATE = {"flushIntervalCommitLog": 5000, "flushCommitLogThoroughInterval": 20_000}

REPLICATION_ROWS: tuple[Row, ...] = (
    Row(
        id="KB-RKT-01",
        has=releases(),
        read_in="store/ha/DefaultHAConnection.java, processReadEvent: no report is looked at; 4.9.3"
        " to 4.9.8 (store/ha/HAConnection.java) close the connection at a second one beyond the "
        "master's end, and believe the first",
        setup=Setup(replication="master-slave", profile="safe", time_limit_ms=25_000),
        faults=(
            fault(1, "stray-report", "n1", 4000, 15_000),
            fault(2, "partition-one", "n1", 6000, 12_000),
            fault(3, "failover", "n1", 14_000, 3000),
        ),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        why="Something that is no slave reports an enormous offset, and stays; the master, "
        "cut off from its slaves, then answers SEND_OK for what no slave has, and dies.",
        ours=Ours(system="master-slave", bug="KB-RKT-01"),
    ),
    Row(
        id="W-MS-1",
        title="A master that does not wait for its slaves dies, and a slave takes its place",
        has=releases(),
        read_in="store/config/MessageStoreConfig.java: brokerRole=ASYNC_MASTER in every release",
        setup=Setup(
            replication="master-slave", time_limit_ms=25_000, rate_hz=150, clients_a_node=4
        ),
        faults=(
            fault(1, "partition-one", "n1", 5000, 6000),
            fault(2, "failover", "n1", 9000, 3000),
        ),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        control_policy={"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
        why="The master is cut off from its slaves, goes on acknowledging, and dies; an operator "
        "promotes a slave.",
        ours=Ours(system="master-slave", closed={"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}),
    ),
    Row(
        id="KB-RKT-03",
        has=releases(),
        read_in="store/ha/HAConnection.java (4.9), store/ha/DefaultHAConnection.java (5.x), run: "
        "what the master does not have is waited for, with heartbeats",
        setup=Setup(
            replication="master-slave",
            profile="safe",
            time_limit_ms=30_000,
            rate_hz=40,
            must_settle=True,
            must_converge=True,
        ),
        faults=(fault(1, "wipe", "n1", 14_000, 500),),
        shows=Shows(anomalies=("stuck", "diverged")),
        run_on="5.3.3",
        why="The master gets a new disk and begins anew, and its slaves are ahead of it: they get "
        "nothing of what it writes, and the group is called synchronised.",
        ours=Ours(system="master-slave", bug="KB-RKT-03", anomalies=("stuck",)),
    ),
    Row(
        id="KB-RKT-04",
        has=releases(),
        read_in="store/ha/HAConnection.java (4.9), store/ha/DefaultHAConnection.java (5.x), run: a "
        "slave that asks from 0 gets the newest file; only Controller mode's has the choice",
        setup=Setup(
            replication="master-slave",
            profile="safe",
            time_limit_ms=130_000,
            rate_hz=60,
            policy={"mappedFileSizeCommitLog": 65_536},
            told={"body-bytes": "256"},
        ),
        faults=(
            fault(1, "wipe", "n2", 9000, 500),
            fault(2, "wipe", "n3", 9500, 500),
            fault(3, "failover", "n1", 115_000, 3000),
        ),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        why="Both slaves get a new disk while the log has several files, and follow again, which "
        "takes them half a minute, and know the topics again a minute after that. Then one of "
        "them takes the master's place.",
        ours=Ours(system="master-slave", bug="KB-RKT-04", anomalies=("lost-write", "lost-on-node")),
    ),
    Row(
        id="M-MS-TOPIC",
        title="A topic that was made and used is gone with its messages when its master dies",
        has=releases(),
        read_in="broker/slave/SlaveSynchronize.java: topics are copied on a timer alone",
        setup=Setup(
            replication="master-slave",
            profile="safe",
            topic_made_at="master",
            time_limit_ms=25_000,
            quiet_ms=0,
            rate_hz=80,
            max_rto_ms=20_000,
            policy={"autoCreateTopicEnable": False},
        ),
        faults=(fault(1, "failover", "n1", 1000, 12_000),),
        shows=Shows(
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20)
        ),
        run_on="5.3.3",
        control_told=EVERYWHERE,
        why="As KB-RKT-36, with a slave that an operator promotes within a minute.",
    ),
    # -- losses of power
    Row(
        id="M-MS-POWER",
        title="After a power loss no broker knows the topics, though every message was flushed",
        has=releases(),
        read_in="common/MixAll.java, string2File: the tables (topics, groups, offsets) and their "
        "copies are written and never synced",
        setup=Setup(
            replication="master-slave",
            profile="safe",
            time_limit_ms=25_000,
            power_loss="drop",
            policy={"autoCreateTopicEnable": False},
            max_rto_ms=15_000,
        ),
        faults=(fault(1, "power-all", "all", 8000, 1000, nodes=("n1", "n2", "n3")),),
        shows=Shows(
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20)
        ),
        run_on="5.3.3",
        why="All nodes lose their power at once, under synchronous flushing and replication: the "
        "logs come back whole, the table of topics does not.",
    ),
    Row(
        id="W-MS-2",
        title="A master acknowledges what it has not flushed, and all lose their power",
        has=releases(),
        read_in="store/config/MessageStoreConfig.java: flushDiskType=ASYNC_FLUSH in every release",
        setup=Setup(
            replication="master-slave",
            time_limit_ms=25_000,
            rate_hz=80,
            power_loss="drop",
            policy={"flushIntervalCommitLog": 5000, "flushCommitLogThoroughInterval": 20_000},
        ),
        faults=(fault(1, "power-all", "all", 10_000, 1000, nodes=("n1", "n2", "n3")),),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        control_policy={"flushDiskType": "SYNC_FLUSH"},
        why="All nodes lose their power at once. Topics, which no broker flushes, are made anew by "
        "the first message after it.",
        ours=Ours(
            system="master-slave",
            policy={"flushIntervalCommitLog": None, "flushCommitLogThoroughInterval": None},
            closed={"flushDiskType": "SYNC_FLUSH"},
        ),
    ),
    Row(
        id="KB-RKT-06",
        has=releases(),
        read_in="store/ha/GroupTransferService.java: a slave that is ahead has everything",
        setup=Setup(
            replication="master-slave",
            time_limit_ms=40_000,
            rate_hz=60,
            power_loss="drop",
            policy={"brokerRole": "SYNC_MASTER", **LATE},
        ),
        faults=(fault(1, "power", "n1", 10_000, 500), fault(2, "failover", "n1", 28_000, 4000)),
        shows=Shows(
            anomalies=("lost-write",),
            with_line=Lines(pattern=r"slave fall behind master -\d+bytes"),
        ),
        run_on="5.3.3",
        why="The master loses its power and what it had not flushed, comes back behind its slaves, "
        "and goes on answering SEND_OK, as they have reported more than that; they have none of "
        "it, and one of them is promoted. (A loss counts if the master's own log tells that its "
        "slaves are ahead: a run lost 3 messages since the heir was not the one that had them.)",
        ours=Ours(system="master-slave", bug="KB-RKT-06", policy=dict.fromkeys(LATE)),
    ),
    Row(
        id="KB-RKT-D",
        has=releases(),
        read_in="store/ha/HAConnection.java (4.9), store/ha/DefaultHAConnection.java (5.x), run: "
        "what is sent to slaves goes up to the end of the log, not to where it is flushed",
        setup=Setup(
            replication="master-slave",
            profile="safe",
            time_limit_ms=30_000,
            rate_hz=60,
            clients_a_node=4,
            power_loss="drop",
            must_settle=True,
            must_converge=True,
        ),
        faults=(
            fault(1, "disk-slow", "n1", 6000, 8000, amount=400),
            fault(2, "power", "n1", 12_000, 500),
        ),
        shows=Shows(anomalies=("diverged", "lost-write", "vanished")),
        run_on="5.3.3",
        why="The master's disk is slow, and its slaves get what it has not flushed, although it "
        "flushes before it answers. It loses its power, and they are ahead of it.",
    ),
    Row(
        id="KB-RKT-09",
        title="Under synchronous flushing a reader sees what a crash takes back",
        links=("https://github.com/apache/rocketmq/issues/8239",),
        has=releases(last="5.2.0"),
        free=releases("5.3.0"),
        read_in="store/CommitLog.java, getConfirmOffset, to which queues are built: the end of the "
        "log; mended in 5.3.0 (d60198f621, #8240)",
        setup=Setup(
            replication="master-slave",
            time_limit_ms=30_000,
            rate_hz=60,
            clients_a_node=4,
            power_loss="drop",
            policy={"flushDiskType": "SYNC_FLUSH"},
        ),
        faults=(
            fault(1, "disk-slow", "n1", 6000, 8000, amount=400),
            fault(2, "power", "n1", 12_000, 500),
        ),
        shows=Shows(anomalies=("vanished",)),
        run_on="5.2.0",
        control_on="5.3.3",
        why="The master's disk is slow: what was sent is not flushed, not acknowledged, and read "
        "by a consumer. It loses its power, and has none of it when it is back.",
    ),
    # -- DLedger
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
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20)
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
            anomalies=("stuck",), lines=Lines(pattern="REPEATED_PUSH|repeated push", least=20)
        ),
        run_on="5.3.3",
        why="A follower stands still for longer than a push may take, again and again.",
        ours=Ours(system="dledger", bug="KB-DL-15"),
    ),
    Row(
        id="KB-DL-22",
        has=releases(),
        read_in="broker/processor/PullMessageProcessor.java: a member that takes itself for the "
        "leader answers from its own store",
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
