"""Rows of losses of power, which take what a broker had written and not synced.

Of every file the calls after some one are lost (``power_loss="drop"``, docs/explanation/disks.md).
RocketMQ syncs its logs, and never its tables: topics may be gone after a loss of power. Where a
plan is not about that, topics are made anew by the first message after it (autoCreateTopicEnable,
by default true), and their queues lie there still.
"""

from __future__ import annotations

from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, fault, releases

ALL = ("n1", "n2", "n3")
# What a master has written stays unsynced for seconds, as on a busy disk.
LATE = {"flushIntervalCommitLog": 5000, "flushCommitLogThoroughInterval": 20_000}

POWER_ROWS: tuple[Row, ...] = (
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
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20),
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
        why="All nodes lose their power at once. Topics, which nobody flushes, are made anew by "
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
        faults=(
            fault(1, "power", "n1", 10_000, 500),
            fault(2, "failover", "n1", 28_000, 4000),
        ),
        shows=Shows(
            anomalies=("lost-write",),
            with_line=Lines(pattern=r"slave fall behind master -\d+bytes"),
        ),
        run_on="5.3.3",
        why="The master loses its power and what it had not flushed, comes back behind its slaves, "
        "and goes on answering SEND_OK, as they have reported more than that; they have none of "
        "it, and one of them is promoted. (A loss counts if the master's own log tells that its "
        "slaves are ahead: a run lost 3 messages since the heir was not the one that had them.)",
        ours=Ours(
            system="master-slave",
            bug="KB-RKT-06",
            policy=dict.fromkeys(LATE),
        ),
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
        "by somebody. It loses its power, and has none of it when it is back.",
    ),
)
