"""Rows of masters and slaves: HAService, which 4.9 and 5.x have alike in the main."""

from __future__ import annotations

from shalott.harness.originals.row import Lines, Ours, Row, Setup, Shows, fault, releases
from shalott.harness.originals.rows_controller import EVERYWHERE

MASTER_SLAVE_ROWS: tuple[Row, ...] = (
    Row(
        id="KB-RKT-01",
        has=releases(),
        read_in="store/ha/DefaultHAConnection.java, processReadEvent: no report is looked at; 4.9.3"
        " to 4.9.8 (store/ha/HAConnection.java) close the connection at a second one beyond the "
        "master's end, and believe the first",
        setup=Setup(
            replication="master-slave",
            profile="safe",
            time_limit_ms=25_000,
        ),
        faults=(
            fault(1, "stray-report", "n1", 4000, 15_000),
            fault(2, "partition-one", "n1", 6000, 12_000),
            fault(3, "failover", "n1", 14_000, 3000),
        ),
        shows=Shows(anomalies=("lost-write",)),
        run_on="5.3.3",
        why="Something that is no slave reports an enormous offset, and stays; the master, "
        "cut off from its slaves, then answers SEND_OK for what nobody else has, and dies.",
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
        ours=Ours(
            system="master-slave",
            closed={"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2},
        ),
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
        ours=Ours(
            system="master-slave",
            bug="KB-RKT-04",
            anomalies=("lost-write", "lost-on-node"),
        ),
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
            lines=Lines(pattern=r"the topic log not exist|topic\[log\] not exist", least=20),
        ),
        run_on="5.3.3",
        control_told=EVERYWHERE,
        why="As KB-RKT-36, with a slave that an operator promotes within a minute.",
    ),
)
